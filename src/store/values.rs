//! What a column may hold. The file is data that anything may have changed: a
//! value outside its type is a fault of the file, told as such and never handed on.

use std::path::PathBuf;

use rusqlite::types::FromSql;
use rusqlite::{Connection, Params, Row};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::fault;
use crate::contract::{ActorType, Catalog, Error, Kind, MAX_NUMBER, Provenance, Result};
use crate::key::{MAX_ID_BYTES, Session, Watcher, is_plain};

/// The most bytes of a line: 200 characters.
const LINE_BYTES: usize = 200 * 4;
const CHANNEL_CHARS: usize = 100;

/// A row whose columns are read one by one, each checked.
pub(super) struct Values<'a>(pub(super) &'a Row<'a>);

impl Values<'_> {
    /// A value of this type, whatever it is.
    pub(super) fn any<T: FromSql>(&self, at: usize) -> Result<T> {
        self.0.get(at).map_err(fault)
    }

    /// A sequence, watermark, size or count.
    pub(super) fn number(&self, at: usize) -> Result<u64> {
        self.within(at, 0).map(i64::unsigned_abs)
    }

    /// As [`Values::number`], where there may be none.
    pub(super) fn maybe_number(&self, at: usize) -> Result<Option<u64>> {
        match self.any::<Option<i64>>(at)? {
            Some(_) => self.number(at).map(Some),
            None => Ok(None),
        }
    }

    /// A time, ms since the epoch: before it too, since an event may be a day older than the clock.
    pub(super) fn time(&self, at: usize) -> Result<i64> {
        self.within(at, -MAX_NUMBER)
    }

    /// Whether: 0 or 1.
    pub(super) fn flag(&self, at: usize) -> Result<bool> {
        match self.any::<i64>(at)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.wrong(at)),
        }
    }

    /// The name of one of a few things.
    pub(super) fn named<T>(&self, at: usize, of: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        of(self.text(at)?).ok_or_else(|| self.wrong(at))
    }

    pub(super) fn kind(&self, at: usize) -> Result<Kind> {
        self.named(at, Kind::from_name)
    }

    pub(super) fn actor_type(&self, at: usize) -> Result<ActorType> {
        self.named(at, ActorType::from_name)
    }

    pub(super) fn provenance(&self, at: usize) -> Result<Provenance> {
        self.named(at, Provenance::from_name)
    }

    pub(super) fn catalog(&self, at: usize) -> Result<Catalog> {
        self.named(at, Catalog::from_name)
    }

    /// A session by its key and its agent.
    pub(super) fn session(&self, key: usize, agent: usize) -> Result<Session> {
        Session::of(self.text(key)?, Some(self.text(agent)?)).map_err(|_| self.wrong(key))
    }

    /// The key of a watcher.
    pub(super) fn watcher(&self, at: usize) -> Result<String> {
        match Watcher::read(self.text(at)?, "") {
            Ok(Watcher::Qualified(key)) => Ok(key),
            _ => Err(self.wrong(at)),
        }
    }

    /// A host's own id.
    pub(super) fn maybe_id(&self, at: usize) -> Result<Option<&str>> {
        match self.maybe_text(at)? {
            Some(id) if id.len() > MAX_ID_BYTES => Err(self.wrong(at)),
            id => Ok(id),
        }
    }

    /// A text that is not empty.
    pub(super) fn filled(&self, at: usize) -> Result<String> {
        match self.text(at)? {
            "" => Err(self.wrong(at)),
            text => Ok(text.to_owned()),
        }
    }

    /// One line about something.
    pub(super) fn line(&self, at: usize) -> Result<&str> {
        let text = self.text(at)?;
        if text.len() > LINE_BYTES || !is_plain(text) && text.chars().any(breaks_line) {
            return Err(self.wrong(at));
        }
        Ok(text)
    }

    pub(super) fn maybe_path(&self, at: usize) -> Result<Option<PathBuf>> {
        let path: Option<String> = self.any(at)?;
        match path {
            Some(path) if path.is_empty() || path.contains('\0') => Err(self.wrong(at)),
            path => Ok(path.map(PathBuf::from)),
        }
    }

    /// A text that is JSON.
    pub(super) fn maybe_json(&self, at: usize) -> Result<Option<String>> {
        let json: Option<String> = self.any(at)?;
        match json {
            Some(json) if serde_json::from_str::<IgnoredAny>(&json).is_err() => Err(self.wrong(at)),
            json => Ok(json),
        }
    }

    /// What of a payload comes out.
    pub(super) fn maybe_payload(&self, at: usize, seen: &mut Seen) -> Result<Option<&str>> {
        let Some(json) = self.maybe_text(at)? else {
            return Ok(None);
        };
        if seen.0 != json {
            if !is_public(json) {
                return Err(self.wrong(at));
            }
            json.clone_into(&mut seen.0);
        }
        Ok(Some(json))
    }

    fn within(&self, at: usize, least: i64) -> Result<i64> {
        let number = self.any(at)?;
        if !(least..=MAX_NUMBER).contains(&number) {
            return Err(self.wrong(at));
        }
        Ok(number)
    }

    fn text(&self, at: usize) -> Result<&str> {
        let value = self.0.get_ref(at).map_err(fault)?;
        value.as_str().map_err(|_| self.wrong(at))
    }

    fn maybe_text(&self, at: usize) -> Result<Option<&str>> {
        let value = self.0.get_ref(at).map_err(fault)?;
        value.as_str_or_null().map_err(|_| self.wrong(at))
    }

    /// Names the column and never what it holds.
    pub(super) fn wrong(&self, at: usize) -> Error {
        let column = self.0.as_ref().column_name(at).unwrap_or("?");
        Error::damaged(format_args!("a value of {column} is none it can have"))
    }
}

/// The payload that was looked at last: many events have the same one.
#[derive(Default)]
pub(super) struct Seen(String);

fn is_public(json: &str) -> bool {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Shape {
        #[serde(default, rename = "outcome", deserialize_with = "present")]
        _outcome: Option<Outcome>,
        #[serde(default, deserialize_with = "present")]
        channel: Option<String>,
        #[serde(default, deserialize_with = "present")]
        turns: Option<u64>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Outcome {
        Error,
        Timeout,
        Cancelled,
    }
    fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
        from: D,
    ) -> std::result::Result<Option<T>, D::Error> {
        T::deserialize(from).map(Some)
    }
    // A struct is read from a list too.
    let is_object = json.starts_with('{');
    let Some(shape) = serde_json::from_str::<Shape>(json)
        .ok()
        .filter(|_| is_object)
    else {
        return false;
    };
    shape.channel.is_none_or(|channel| {
        !channel.is_empty()
            && channel.chars().count() <= CHANNEL_CHARS
            && !channel.chars().any(breaks_line)
    }) && shape
        .turns
        .is_none_or(|turns| (1..=MAX_NUMBER.unsigned_abs()).contains(&turns))
}

fn breaks_line(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Every row of a query, in its order.
pub(super) fn rows<T>(
    conn: &Connection,
    sql: &str,
    values: impl Params,
    of: impl Fn(&Values<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut select = conn.prepare_cached(sql).map_err(fault)?;
    let mut found = select.query(values).map_err(fault)?;
    let mut all = Vec::new();
    while let Some(row) = found.next().map_err(fault)? {
        all.push(of(&Values(row))?);
    }
    drop(found);
    #[cfg(test)]
    scans::note(sql, &select);
    Ok(all)
}

/// The first row of a query, when it has one.
pub(super) fn first<T>(
    conn: &Connection,
    sql: &str,
    values: impl Params,
    of: impl FnOnce(&Values<'_>) -> Result<T>,
) -> Result<Option<T>> {
    let mut select = conn.prepare_cached(sql).map_err(fault)?;
    let mut found = select.query(values).map_err(fault)?;
    let first = match found.next().map_err(fault)? {
        Some(row) => Some(of(&Values(row))?),
        None => None,
    };
    drop(found);
    #[cfg(test)]
    scans::note(sql, &select);
    Ok(first)
}

/// The one row a query always has.
pub(super) fn only<T>(
    conn: &Connection,
    sql: &str,
    values: impl Params,
    of: impl FnOnce(&Values<'_>) -> Result<T>,
) -> Result<T> {
    first(conn, sql, values, of)?.ok_or_else(|| Error::damaged("a row it always has is gone"))
}

/// Which queries of a thread read a whole table or sorted what they found.
#[cfg(test)]
pub(super) mod scans {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use rusqlite::{Statement, StatementStatus};

    thread_local! {
        static FOUND: RefCell<BTreeSet<String>> = RefCell::default();
    }

    pub(super) fn note(sql: &str, done: &Statement<'_>) {
        let scanned = done.reset_status(StatementStatus::FullscanStep);
        let sorted = done.reset_status(StatementStatus::Sort);
        if scanned > 0 || sorted > 0 {
            FOUND.with_borrow_mut(|found| found.insert(sql.to_owned()));
        }
    }

    pub(crate) fn take() -> BTreeSet<String> {
        FOUND.take()
    }
}
