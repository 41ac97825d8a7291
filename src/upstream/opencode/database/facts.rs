//! What is known of the sessions between passes, so that a pass asks only for
//! what may have changed.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, OptionalExtension, Transaction};

use super::{Shape, add_part, part_columns, text};
use crate::upstream::opencode::position::{Parts, Position};
use crate::upstream::opencode::{Link, Look, Result};

/// What is known of the store at one state of it.
pub(super) struct Facts {
    version: Option<i64>,
    tables: Vec<Table>,
    /// How many sessions there are, and the newest row of one. As long as both
    /// are the same, none came or went.
    sessions: Option<(i64, Newest)>,
    /// The id of the newest message of a session, as long as no other came.
    tails: HashMap<String, Option<String>>,
    /// Whether a session is there.
    there: HashMap<String, bool>,
    /// The parts of messages that are open in a position.
    parts: HashMap<String, Parts>,
}

/// A table of messages.
struct Table {
    name: &'static str,
    newest: Option<Newest>,
}

/// The newest row of a table: its number and id.
type Newest = (i64, Option<String>);

impl Table {
    /// The sessions that got messages since the newest row was asked for. `None`
    /// when that cannot be told: the row was deleted, and others may have taken
    /// the numbers of it and of those before it.
    fn touched(&self, tx: &Transaction<'_>) -> Result<Option<HashSet<String>>> {
        let name = self.name;
        let mut above = i64::MIN;
        if let Some((row, id)) = &self.newest {
            let mut now = tx.prepare_cached(&format!("SELECT id FROM {name} WHERE rowid = ?1"))?;
            let now = now.query_row([row], |row| text(row, 0)).optional()?;
            if now.as_ref() != Some(id) {
                return Ok(None);
            }
            above = *row;
        }
        let sql = format!("SELECT session_id FROM {name} WHERE rowid > ?1");
        let mut added = tx.prepare_cached(&sql)?;
        let mut rows = added.query([above])?;
        // Each once: there may be rows without end.
        let mut threads = HashSet::new();
        while let Some(row) = rows.next()? {
            threads.extend(text(row, 0)?);
        }
        Ok(Some(threads))
    }

    fn renew(&mut self, tx: &Transaction<'_>) -> Result<()> {
        let name = self.name;
        let sql = format!("SELECT rowid, id FROM {name} ORDER BY rowid DESC LIMIT 1");
        let mut newest = tx.prepare_cached(&sql)?;
        let newest = newest.query_row([], |row| Ok((row.get(0)?, text(row, 1)?)));
        self.newest = newest.optional()?;
        Ok(())
    }
}

impl Facts {
    pub(super) fn of(shape: &Shape) -> Facts {
        let mut names = vec!["message"];
        names.extend(shape.v2.then_some("session_message"));
        let table = |name| Table { name, newest: None };
        Facts {
            version: None,
            sessions: None,
            tables: names.into_iter().map(table).collect(),
            tails: HashMap::new(),
            there: HashMap::new(),
            parts: HashMap::new(),
        }
    }

    /// Drops what may hold no longer.
    pub(super) fn renew(&mut self, tx: &Transaction<'_>) -> Result<()> {
        let version = Some(version(tx)?);
        if self.version == version {
            return Ok(());
        }
        self.parts.clear();
        let mut sessions = tx.prepare_cached(
            "SELECT (SELECT count(*) FROM session), rowid, id FROM session
             ORDER BY rowid DESC LIMIT 1",
        )?;
        let sessions = sessions
            .query_row([], |row| Ok((row.get(0)?, (row.get(1)?, text(row, 2)?))))
            .optional()?;
        if self.sessions != sessions {
            self.there.clear();
            self.sessions = sessions;
        }
        for table in &mut self.tables {
            if !self.tails.is_empty() {
                match table.touched(tx)? {
                    Some(threads) => threads.iter().for_each(|id| drop(self.tails.remove(id))),
                    None => self.tails.clear(),
                }
            }
            table.renew(tx)?;
        }
        self.version = version;
        Ok(())
    }

    /// Asks for the sessions of `links` that nothing is known of.
    pub(super) fn add_sessions(&mut self, tx: &Transaction<'_>, links: &[Link<'_>]) -> Result<()> {
        let threads = || links.iter().map(|link| link.thread);
        let unknown: HashSet<&str> = threads()
            .filter(|id| !self.there.contains_key(*id))
            .collect();
        if !unknown.is_empty() {
            let sql = "SELECT s.id FROM json_each(?1) AS l JOIN session AS s ON s.id = l.value";
            let mut sessions = tx.prepare_cached(sql)?;
            let mut rows = sessions.query([json(&unknown)])?;
            while let Some(row) = rows.next()? {
                self.there
                    .extend(text(row, 0)?.map(|thread| (thread, true)));
            }
            for thread in unknown {
                self.there.entry(thread.to_owned()).or_insert(false);
            }
        }
        let unknown: HashSet<&str> = threads()
            .filter(|id| !self.tails.contains_key(*id))
            .collect();
        if !unknown.is_empty() {
            let newest = self.tables.iter().map(|Table { name, .. }| {
                let row = format!("SELECT max(rowid) FROM {name} WHERE session_id = l.value");
                format!("(SELECT id FROM {name} WHERE rowid = ({row}))")
            });
            let newest: Vec<String> = newest.collect();
            let mut tails = tx.prepare_cached(&format!(
                "SELECT l.value, coalesce({}, NULL) FROM json_each(?1) AS l",
                newest.join(", ")
            ))?;
            let mut rows = tails.query([json(&unknown)])?;
            while let Some(row) = rows.next()? {
                self.tails.insert(row.get(0)?, text(row, 1)?);
            }
        }
        Ok(())
    }

    /// Asks for the parts of the open messages of `links`.
    pub(super) fn add_parts(
        &mut self,
        tx: &Transaction<'_>,
        shape: &Shape,
        links: &[Link<'_>],
    ) -> Result<()> {
        let open = links.iter().flat_map(|link| &link.position.open);
        let ids = open.map(|open| open.id.as_str());
        let unknown: HashSet<&str> = ids.filter(|id| !self.parts.contains_key(*id)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let columns = part_columns(shape);
        let mut parts = tx.prepare_cached(&format!(
            "SELECT {columns}, p.message_id FROM json_each(?1) AS l
             JOIN part AS p ON p.message_id = l.value ORDER BY p.message_id, p.id"
        ))?;
        let mut rows = parts.query([json(&unknown)])?;
        for id in &unknown {
            self.parts.insert((*id).to_owned(), Parts::default());
        }
        while let Some(row) = rows.next()? {
            if let Some(parts) = text(row, 3)?.and_then(|id| self.parts.get_mut(&id)) {
                add_part(parts, row)?;
            }
        }
        Ok(())
    }

    pub(super) fn look(&self, link: &Link<'_>) -> Look {
        let Position { tail, open, .. } = link.position;
        if self.there.get(link.thread) != Some(&true) {
            Look::Gone
        } else if self.tails.get(link.thread) == Some(tail)
            && (open.iter()).all(|open| self.parts.get(&open.id) == Some(&open.parts))
        {
            Look::Same
        } else {
            Look::Moved
        }
    }
}

/// A number that is another one after each commit. Each connection has its own.
pub(super) fn version(conn: &Connection) -> Result<i64> {
    Ok(conn.pragma_query_value(None, "data_version", |row| row.get(0))?)
}

/// A list as `json_each` takes it.
fn json(list: &HashSet<&str>) -> String {
    // Strings always have a JSON form.
    serde_json::to_string(list).unwrap_or_default()
}
