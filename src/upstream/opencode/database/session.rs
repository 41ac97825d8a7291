//! Reading one session.

use std::collections::HashSet;
use std::time::Instant;

use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Row, Transaction, params};

use super::{Patience, Shape, add_part, integer, part_columns, text};
use crate::upstream::act::{Act, Names};
use crate::upstream::opencode::copies::{Origin, origin};
use crate::upstream::opencode::position::{Parts, Position, Said, mark};
use crate::upstream::opencode::words::{INFO, PART, PROMPT, Verdict, Words};
use crate::upstream::opencode::{Budget, LONGEST_ID, Result, sift};
use crate::upstream::rows::read_value;
use crate::upstream::sift::{Value, Want};

/// The longest cell that is read at once, in bytes.
const WHOLE_CELL: i64 = 256 * 1024;

/// The messages of a session that are listed at once.
const MESSAGES: usize = 4096;

/// The parts of one message that are read, in bytes.
const MOST_OF_A_MESSAGE: u64 = 4 << 30;

/// The messages of other sessions that are compared with one that may be a copy.
const TWINS: usize = 16;

/// One session, while it is read.
pub(super) struct Session<'a> {
    pub(super) tx: &'a Transaction<'a>,
    pub(super) shape: &'a Shape,
    pub(super) names: &'a Names,
    pub(super) thread: &'a str,
    /// Milliseconds since the epoch.
    pub(super) created: Option<i64>,
    /// Whether its messages are those of version 2.
    pub(super) v2: bool,
    pub(super) sub_agent: bool,
    pub(super) budget: Budget<'a>,
    pub(super) patience: &'a Patience,
    pub(super) position: Position,
    /// Whether the position was rid of what is undone.
    pub(super) rid: bool,
    pub(super) acts: Vec<Act>,
}

/// A row of the session's messages.
struct Message {
    row: i64,
    id: String,
    created: Option<i64>,
    /// `type` in `session_message`.
    kind: Option<String>,
}

impl Session<'_> {
    /// Reads on; whether there is more than the slice had room for.
    pub(super) fn read(&mut self) -> Result<bool> {
        let tail = self.position.tail.as_deref();
        let above = match tail.map(|id| self.message(id)).transpose()?.flatten() {
            Some(message) => message.row,
            None => self.forget_undone()?,
        };
        for open in self.position.open.clone() {
            self.judge_open(&open.id, open.parts)?;
        }
        let messages = self.messages(above)?;
        let more = messages.len() == MESSAGES;
        for (nth, message) in messages.into_iter().enumerate() {
            if nth > 0 && self.budget.is_spent() {
                return Ok(true);
            }
            let want = if self.v2 { &PROMPT } else { &INFO };
            let info = self.cell(self.table(), message.row, want)?;
            let is_user = match &message.kind {
                Some(kind) => kind == "user",
                None => info.get("role").str() == Some("user"),
            };
            if let Some(answered) = info.get("parentID").str() {
                self.position.answered(answered);
            }
            if is_user && !self.sub_agent && !self.position.judged(&message.id) {
                self.judge(&message, &info)?;
            }
            self.position.tail = Some(message.id);
        }
        Ok(more)
    }

    fn table(&self) -> &'static str {
        if self.v2 {
            "session_message"
        } else {
            "message"
        }
    }

    fn statement(&self, select: &str) -> Result<CachedStatement<'_>> {
        let (kind, created) = if self.v2 {
            ("type", "time_created")
        } else {
            ("NULL", self.shape.message_created)
        };
        let sql = format!(
            "SELECT rowid, id, {created}, {kind} FROM {} WHERE {select}",
            self.table()
        );
        Ok(self.tx.prepare_cached(&sql)?)
    }

    /// The message of this id, if the session has it.
    fn message(&self, id: &str) -> Result<Option<Message>> {
        let mut statement = self.statement("id = ?1 AND session_id = ?2")?;
        let mut rows = statement.query([id, self.thread])?;
        rows.next()?.map_or(Ok(None), Message::of)
    }

    /// The first messages above a row, in the order in which they were written.
    fn messages(&self, above: i64) -> Result<Vec<Message>> {
        // Without the plus SQLite might go through the rows of all sessions.
        let mut statement =
            self.statement("session_id = ?1 AND +rowid > ?2 ORDER BY +rowid LIMIT ?3")?;
        let mut rows = statement.query(params![self.thread, above, MESSAGES as i64])?;
        let mut messages = Vec::new();
        while let Some(row) = rows.next()? {
            messages.extend(Message::of(row)?);
        }
        Ok(messages)
    }

    /// Rids the position of what was undone, which is deleted. Answers the newest
    /// row that is known to be met: all rows below it are.
    fn forget_undone(&mut self) -> Result<i64> {
        self.rid = true;
        let mut there = HashSet::new();
        let mut newest = None;
        {
            let mut statement = self.statement("session_id = ?1 ORDER BY +rowid")?;
            let mut rows = statement.query([self.thread])?;
            while let Some(row) = rows.next()? {
                let Some(message) = Message::of(row)? else {
                    continue;
                };
                let met = self.position.met(mark(&message.id));
                if met {
                    there.insert(mark(&message.id));
                }
                if met || self.position.tail.as_deref() == Some(&message.id) {
                    newest = Some(message);
                }
            }
        }
        self.position.keep(&there);
        let row = newest.as_ref().map_or(i64::MIN, |message| message.row);
        self.position.tail = newest.map(|message| message.id);
        Ok(row)
    }

    fn judge_open(&mut self, id: &str, before: Parts) -> Result<()> {
        if self.parts(id)? != before
            && let Some(message) = self.message(id)?
        {
            let info = self.cell(self.table(), message.row, &INFO)?;
            self.judge(&message, &info)?;
        }
        Ok(())
    }

    fn judge(&mut self, message: &Message, info: &Value) -> Result<()> {
        if !self.rid {
            self.forget_undone()?;
        }
        let verdict = if self.v2 {
            let mut words = Words::new(self.names.secret());
            words.prompt(info);
            match words.verdict() {
                // A row of this table is whole when it comes.
                Verdict::Open { .. } => Verdict::Program,
                verdict => verdict,
            }
        } else {
            self.words(&message.id)?.verdict()
        };
        let time_ms = info
            .get("time")
            .get("created")
            .integer()
            .or(message.created);
        let copy = match origin(&message.id, time_ms, self.created) {
            Origin::Own => false,
            Origin::Copy => true,
            Origin::Unsure => self.has_twin(message, verdict)?,
        };
        let said = Said {
            id: &message.id,
            time_ms,
            copy,
            parts: self.parts(&message.id)?,
            verdict,
        };
        self.acts.extend(self.position.take(said, self.names));
        Ok(())
    }

    /// Whether an older row of another session has the same time and text.
    fn has_twin(&self, message: &Message, verdict: Verdict) -> Result<bool> {
        let (Verdict::Typed { shown, .. }, Some(created), false) =
            (verdict, message.created, self.v2)
        else {
            return Ok(false);
        };
        let mut twins = self.tx.prepare_cached(&format!(
            "SELECT id FROM message WHERE {} = ?1 AND rowid < ?2 AND session_id <> ?3 LIMIT {TWINS}",
            self.shape.message_created
        ))?;
        let mut rows = twins.query(params![created, message.row, self.thread])?;
        while let Some(row) = rows.next()? {
            if let Some(id) = text(row, 0)?
                && matches!(self.words(&id)?.verdict(), Verdict::Typed { shown: twin, .. } if twin == shown)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What tells the parts of a message from those it has at another time.
    fn parts(&self, message: &str) -> Result<Parts> {
        let columns = part_columns(self.shape);
        let sql = format!("SELECT {columns} FROM part AS p WHERE p.message_id = ?1 ORDER BY p.id");
        let mut statement = self.tx.prepare_cached(&sql)?;
        let mut rows = statement.query([message])?;
        let mut parts = Parts::default();
        while let Some(row) = rows.next()? {
            add_part(&mut parts, row)?;
        }
        Ok(parts)
    }

    /// What the parts of a message say.
    fn words(&self, message: &str) -> Result<Words<'_>> {
        let sql = "SELECT rowid FROM part WHERE message_id = ?1 ORDER BY id";
        let mut statement = self.tx.prepare_cached(sql)?;
        let mut rows = statement.query([message])?;
        let mut words = Words::new(self.names.secret());
        let before = self.budget.spent.get();
        while let Some(row) = rows.next()? {
            // What stands in the parts after so much is not judged.
            if self.budget.spent.get() - before > MOST_OF_A_MESSAGE {
                break;
            }
            words.part(&self.cell("part", row.get(0)?, &PART)?);
        }
        Ok(words)
    }

    /// What is wanted of the `data` of a row; null when it is no JSON.
    fn cell(&self, table: &'static str, row: i64, want: &'static Want) -> Result<Value> {
        let mut statement = self.tx.prepare_cached(&format!(
            "SELECT octet_length(data), CASE WHEN octet_length(data) <= {WHOLE_CELL} THEN data END
             FROM {table} WHERE rowid = ?1"
        ))?;
        let mut rows = statement.query([row])?;
        let Some(found) = rows.next()? else {
            return Ok(Value::Null);
        };
        let size = found.get::<_, Option<i64>>(0)?.unwrap_or(0);
        let secret = self.names.secret();
        self.budget.spend(size.unsigned_abs());
        match found.get_ref(1)? {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                Ok(read_value(bytes, secret, want).unwrap_or_default())
            }
            ValueRef::Null if size > WHOLE_CELL => {
                let begun = Instant::now();
                let mut blob = self.tx.blob_open("main", table, "data", row, true)?;
                let value = sift(&mut blob, want, secret, &self.budget);
                self.patience.leave_out(begun);
                value
            }
            _ => Ok(Value::Null),
        }
    }
}

impl Message {
    /// `None` for a row without an id.
    fn of(row: &Row<'_>) -> Result<Option<Message>> {
        let Some(id) = text(row, 1)?.filter(|id| id.len() <= LONGEST_ID) else {
            return Ok(None);
        };
        Ok(Some(Message {
            row: row.get(0)?,
            id,
            created: integer(row, 2)?,
            kind: text(row, 3)?,
        }))
    }
}
