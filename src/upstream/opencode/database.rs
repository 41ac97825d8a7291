//! Sessions in an `opencode.db`.
//!
//! The database is another program's: it is opened read-only, never as
//! `immutable`, and nothing here checkpoints its log or takes it away. The
//! connection stays open between passes, for only the same connection can tell
//! that nothing was committed.
//!
//! A new message is told by its row, not by id or time: those come from clocks
//! that may be set back, but a new row's number is above those of all rows that
//! are there. So as long as a row is there, no row below it is new.

mod facts;
mod session;

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row};

use self::facts::{Facts, version};
use self::session::Session;
use super::position::{Parts, Position};
use super::{Budget, Error, Found, Link, Look, Reading, Result, State};
use crate::sharing::Use;
use crate::sys;
use crate::upstream::act::Names;
use crate::upstream::rows::Slice;

/// How long a pass waits for a lock.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long one question to a database may take: what is longer at work than this
/// answers no question of ours. The reading of a long cell is not counted.
const LONGEST: Duration = Duration::from_secs(5);

/// So often SQLite asks whether that is over, in its own steps.
const STEPS: i32 = 10_000;

/// The longest value that SQLite may put into memory, in bytes. Cells with text are
/// read in pieces.
const LONGEST_VALUE: i32 = 16 << 20;

/// The longest text of a column other than `data`, in bytes; a longer one counts as none.
const LONGEST_TEXT: usize = 4_096;

/// What the connection may keep of the database in memory, in KiB.
const CACHE_KIB: i64 = 1024;

/// An `opencode.db`, opened when it is first read.
pub(super) struct Database {
    path: PathBuf,
    open: Option<Open>,
    openings: u64,
}

struct Open {
    conn: Connection,
    /// Device and inode of the file it is on.
    file: (u64, u64),
    shape: Shape,
    facts: Facts,
    patience: Patience,
    // Dropped after the connection.
    _used: Use,
}

/// When SQLite is to give up what it is at.
#[derive(Clone)]
struct Patience {
    begin: Instant,
    /// In ms since `begin`.
    end: Arc<AtomicU64>,
}

impl Patience {
    fn new() -> Patience {
        let patience = Patience {
            begin: Instant::now(),
            end: Arc::default(),
        };
        patience.renew();
        patience
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64
    }

    /// Waits for [`LONGEST`] from now on.
    fn renew(&self) {
        let end = self.now() + LONGEST.as_millis() as u64;
        self.end.store(end, Ordering::Relaxed);
    }

    /// Leaves out of account the time since `from`.
    fn leave_out(&self, from: Instant) {
        let spent = from.elapsed().as_millis() as u64;
        self.end.fetch_add(spent, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.now() > self.end.load(Ordering::Relaxed)
    }
}

impl Database {
    pub(super) fn new(path: &Path) -> Database {
        Database {
            path: path.to_owned(),
            open: None,
            openings: 0,
        }
    }

    /// The file itself, where the path leads to it over links: its log lies beside it.
    pub(super) fn file(&self) -> PathBuf {
        fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone())
    }

    /// Whether a change of a file can be a commit. Read locks, which are taken
    /// here too, change the `-shm`.
    pub(super) fn concerns(&self, changed: &Path) -> bool {
        let file = self.file();
        let mut log = file.clone().into_os_string();
        log.push("-wal");
        changed == file || changed == log
    }

    pub(super) fn state(&mut self) -> Result<State> {
        let version = self.with(|open| version(&open.conn))?;
        Ok(State {
            opening: self.openings,
            version,
        })
    }

    pub(super) fn look(&mut self, links: &[Link<'_>]) -> Result<Vec<Look>> {
        self.with(|open| open.look(links))
    }

    pub(super) fn read(
        &mut self,
        thread: &str,
        from: &Position,
        names: &Names,
        slice: Slice<'_>,
    ) -> Result<Option<Reading>> {
        self.with(|open| open.read(thread, from, names, slice))
    }

    /// The sessions that are no sub-agents', newest first.
    pub(super) fn discover(&mut self, limit: usize) -> Result<Vec<Found>> {
        self.with(|open| {
            let Shape {
                directory,
                updated,
                parent,
                ..
            } = &open.shape;
            let mut sessions = open.conn.prepare_cached(&format!(
                "SELECT id, {directory}, {updated} FROM session
                 WHERE coalesce({parent}, '') = '' ORDER BY {updated} DESC, id LIMIT ?1"
            ))?;
            let mut rows = sessions.query([i64::try_from(limit).unwrap_or(i64::MAX)])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                if let Some(thread) = text(row, 0)? {
                    found.push(Found {
                        thread,
                        cwd: text(row, 1)?,
                        updated_ms: integer(row, 2)?.unwrap_or(0),
                    });
                }
            }
            Ok(found)
        })
    }

    pub(super) fn holds(&mut self, thread: &str) -> Result<bool> {
        self.with(|open| {
            let mut session = open
                .conn
                .prepare_cached("SELECT 1 FROM session WHERE id = ?1")?;
            Ok(session.exists([thread])?)
        })
    }

    /// Runs `task` on the file that is at the path now.
    fn with<T>(&mut self, task: impl FnOnce(&mut Open) -> Result<T>) -> Result<T> {
        let open = self.open.take();
        let file = identity(&self.path)?;
        let mut open = match open {
            Some(open) if open.file == file => {
                check_beside(&self.file())?;
                open.patience.renew();
                open
            }
            _ => {
                check_beside(&self.file())?;
                self.openings += 1;
                Open::new(&self.path, file)?
            }
        };
        let done = task(&mut open);
        // After a failure the next pass begins with a new connection, and with
        // the tables as they are then.
        if !matches!(done, Err(Error::Unreadable(_))) {
            self.open = Some(open);
        }
        done
    }
}

/// Whether what SQLite opens beside the database are files: the opening of anything
/// else could block for ever.
fn check_beside(file: &Path) -> Result<()> {
    for end in ["-journal", "-wal", "-shm"] {
        let mut path = file.as_os_str().to_owned();
        path.push(end);
        match fs::metadata(&path) {
            Ok(found) if !found.is_file() => {
                return Err(Error::Unreadable(format!("its {end} is no file")));
            }
            _ => {}
        }
    }
    Ok(())
}

fn identity(path: &Path) -> Result<(u64, u64)> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => Ok((found.dev(), found.ino())),
        Ok(_) => Err(Error::Missing),
        Err(e) => Err(e.into()),
    }
}

impl Open {
    fn new(path: &Path, file: (u64, u64)) -> Result<Open> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let used = Use::begin(
            &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
            file,
        );
        let mut conn = Connection::open_with_flags(path, flags)?;
        if identity(path)? != file {
            return Err(Error::Busy);
        }
        sys::wait_for_locks(&conn, PATIENCE)?;
        let patience = Patience::new();
        let watched = patience.clone();
        conn.progress_handler(STEPS, Some(move || watched.is_over()))?;
        conn.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST_VALUE)?;
        for (pragma, value) in [
            ("cache_size", -CACHE_KIB),
            ("trusted_schema", 0),
            ("cell_size_check", 1),
        ] {
            conn.pragma_update(None, pragma, value)?;
        }
        let shape = Shape::of(&conn)?;
        used.guard_shm();
        let mode: String = conn.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        if mode == "wal" {
            used.guard_log();
        }
        let facts = Facts::of(&shape);
        Ok(Open {
            conn,
            file,
            shape,
            facts,
            patience,
            _used: used,
        })
    }

    fn look(&mut self, links: &[Link<'_>]) -> Result<Vec<Look>> {
        let tx = self.conn.unchecked_transaction()?;
        let facts = &mut self.facts;
        facts.renew(&tx)?;
        facts.add_sessions(&tx, links)?;
        facts.add_parts(&tx, &self.shape, links)?;
        Ok(links.iter().map(|link| facts.look(link)).collect())
    }

    fn read(
        &mut self,
        thread: &str,
        from: &Position,
        names: &Names,
        slice: Slice<'_>,
    ) -> Result<Option<Reading>> {
        let tx = self.conn.unchecked_transaction()?;
        let Shape {
            parent, created, ..
        } = &self.shape;
        let mut session = tx.prepare_cached(&format!(
            "SELECT {parent}, {created} FROM session WHERE id = ?1"
        ))?;
        let found = session
            .query_row([thread], |row| Ok((text(row, 0)?, integer(row, 1)?)))
            .optional()?;
        let Some((parent, created)) = found else {
            return Ok(None);
        };
        let mut v1 = tx.prepare_cached("SELECT 1 FROM message WHERE session_id = ?1")?;
        let mut session = Session {
            tx: &tx,
            shape: &self.shape,
            names,
            thread,
            created,
            v2: self.shape.v2 && !v1.exists([thread])?,
            sub_agent: parent.is_some_and(|parent| !parent.is_empty()),
            budget: Budget::new(slice),
            patience: &self.patience,
            position: from.clone(),
            rid: false,
            acts: Vec::new(),
        };
        let more = match session.read() {
            Err(Error::Stopped) => true,
            more => more?,
        };
        let Session { position, acts, .. } = session;
        Ok(Some(Reading {
            acts,
            position,
            more,
        }))
    }
}

/// What differs between versions. A column that is not there is `NULL`.
struct Shape {
    parent: &'static str,
    /// Of sessions.
    created: &'static str,
    updated: &'static str,
    directory: &'static str,
    message_created: &'static str,
    part_updated: &'static str,
    /// Whether there is the table `session_message` of version 2.
    v2: bool,
}

impl Shape {
    fn of(conn: &Connection) -> Result<Shape> {
        let columns = |table: &str| -> Result<HashSet<String>> {
            // A view answers with what it is told to, for as long as it likes.
            let mut kind =
                conn.prepare("SELECT type FROM pragma_table_list(?1) WHERE schema = 'main'")?;
            let kind = kind.query_row([table], |row| text(row, 0)).optional()?;
            if kind.flatten().as_deref() != Some("table") {
                return Ok(HashSet::new());
            }
            let mut columns = conn.prepare("SELECT name FROM pragma_table_info(?1)")?;
            let names = columns.query_map([table], |row| row.get(0))?;
            Ok(names.collect::<rusqlite::Result<_>>()?)
        };
        let session = columns("session")?;
        let message = columns("message")?;
        let part = columns("part")?;
        let has = |table: &HashSet<String>, names: &[&str]| {
            names.iter().all(|name| table.contains(*name))
        };
        if !has(&session, &["id"])
            || !has(&message, &["id", "session_id", "data"])
            || !has(&part, &["id", "message_id", "data"])
        {
            return Err(Error::Unreadable(
                "it has not the tables of OpenCode".to_owned(),
            ));
        }
        let or_null = |table: &HashSet<String>, name: &'static str| {
            if table.contains(name) { name } else { "NULL" }
        };
        Ok(Shape {
            parent: or_null(&session, "parent_id"),
            created: or_null(&session, "time_created"),
            updated: or_null(&session, "time_updated"),
            directory: or_null(&session, "directory"),
            message_created: or_null(&message, "time_created"),
            part_updated: or_null(&part, "time_updated"),
            v2: has(
                &columns("session_message")?,
                &["id", "session_id", "type", "data", "time_created"],
            ),
        })
    }
}

/// What tells parts apart, of `part AS p`; for [`add_part`].
fn part_columns(shape: &Shape) -> String {
    format!("p.id, octet_length(p.data), {}", shape.part_updated)
}

fn add_part(parts: &mut Parts, row: &Row<'_>) -> Result<()> {
    let id = text(row, 0)?.unwrap_or_default();
    parts.add(
        &id,
        integer(row, 1)?.unwrap_or(0),
        integer(row, 2)?.unwrap_or(0),
    );
    Ok(())
}

/// A text column; `None` for any other type.
fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) if bytes.len() <= LONGEST_TEXT => {
            std::str::from_utf8(bytes).ok().map(str::to_owned)
        }
        _ => None,
    })
}

/// A number column, cut to a whole one; `None` for any other type.
fn integer(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<i64>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Integer(number) => Some(number),
        ValueRef::Real(number) => Some(number as i64),
        _ => None,
    })
}

impl From<rusqlite::Error> for Error {
    /// SQLite's own words are left out: they may quote what was read.
    fn from(error: rusqlite::Error) -> Error {
        match error.sqlite_error() {
            Some(e) if matches!(e.code, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Error::Busy
            }
            Some(e) if e.code == ErrorCode::OperationInterrupted => {
                Error::Unreadable("its answers take too long".to_owned())
            }
            Some(e) => Error::Unreadable(format!("SQLite's code {}", e.extended_code)),
            None => Error::Unreadable("a value of another type".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
