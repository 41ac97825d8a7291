//! The database: opening, one writer, a few readers, and every SQL statement
//! of the library behind functions named after what they do.

pub(crate) mod alive;
mod clock;
pub(crate) mod cursors;
pub(crate) mod events;
mod faults;
pub(crate) mod links;
pub(crate) mod offers;
mod open;
mod readers;
pub(crate) mod schema;
mod writer;

use std::path::{Path, PathBuf};

use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::contract::{Durability, Error, Result};
use crate::sync::Mutex;
pub(crate) use crate::sync::lock;
pub(crate) use clock::Clock;
pub(crate) use faults::Faults;
#[cfg(test)]
pub(crate) use faults::Step;
use open::{Identity, InUse, OpenFile};
use readers::Readers;
use writer::Writer;
pub(crate) use writer::{QUEUE_EVENTS, Tx};

/// How a database is opened.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub path: PathBuf,
    pub create: bool,
    pub read_only: bool,
    pub durability: Durability,
    pub busy_timeout: Duration,
    pub clock: Clock,
    pub faults: Faults,
}

/// What is done in the first transaction on a database, whenever it is opened anew.
pub(crate) type OnOpen = Box<dyn Fn(&Tx<'_>) -> Result<()> + Send + Sync>;

/// Told of the wakes that a transaction raised, after its commit; of none when
/// they were lost on the way and are to be read.
pub(crate) type OnCommit = Box<dyn Fn(Vec<offers::Raised>) + Send + Sync>;

/// An open database.
pub(crate) struct Store {
    options: Options,
    writer: Option<Writer>,
    readers: Readers,
    /// Given back when the connections are closed.
    in_use: Mutex<Option<InUse>>,
}

impl Store {
    /// Opens the database. With `read_only` neither hook is ever called.
    pub(crate) fn open(options: Options, on_open: OnOpen, on_commit: OnCommit) -> Result<Store> {
        let in_use = Mutex::new(Some(InUse::begin()?));
        let readers = Readers::new(options.clone());
        if options.read_only {
            readers.check()?;
            return Ok(Store {
                options,
                writer: None,
                readers,
                in_use,
            });
        }
        let writer = Writer::open(options.clone(), on_open, on_commit)?;
        Ok(Store {
            options,
            writer: Some(writer),
            readers,
            in_use,
        })
    }

    /// The database file, absolute.
    pub(crate) fn path(&self) -> &Path {
        &self.options.path
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.writer.is_none()
    }

    /// Runs `work` in a write transaction, together with whoever else waits to
    /// write. An error of `work` undoes what it did, and nothing else.
    pub(crate) fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.writer()?.write(work)
    }

    /// Queues `work`, which stores `events` events, for the background writer;
    /// `false` when the queue is full. `done` is told how it went.
    pub(crate) fn queue(
        &self,
        events: usize,
        work: impl FnOnce(&Tx<'_>) -> Result<()> + Send + 'static,
        done: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<bool> {
        self.writer()?.queue(events, work, done)
    }

    /// Writes what is queued until [`Store::close`]; the body of the background writer's thread.
    pub(crate) fn write_queued(&self) {
        if let Some(writer) = &self.writer {
            writer.write_queued();
        }
    }

    /// How many events are queued.
    pub(crate) fn queued_events(&self) -> usize {
        self.writer.as_ref().map_or(0, Writer::queued_events)
    }

    /// Runs `work` on one snapshot of the database.
    pub(crate) fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let at_path = Identity::of(&self.options.path).ok_or_else(gone)?;
        if let Some(writer) = &self.writer {
            writer.follow(at_path)?;
        }
        self.readers.read(at_path, work)
    }

    /// A number that changes when another connection has written.
    pub(crate) fn data_version(&self) -> Result<i64> {
        self.writer()?.data_version()
    }

    /// Moves what the write-ahead log holds into the database as far as readers allow.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let file = open::reader(&self.options, true)?;
        file.conn
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
            .map_err(fault)
    }

    /// A consistent copy in the file `into`, which must be empty or absent.
    pub(crate) fn copy_to(&self, into: &str) -> Result<()> {
        let at_path = Identity::of(&self.options.path).ok_or_else(gone)?;
        self.readers.alone(at_path, |conn| {
            conn.execute("VACUUM INTO ?1", [into]).map_err(fault)?;
            Ok(())
        })
    }

    /// Lets no more write; the background writer ends when its queue is empty.
    pub(crate) fn stop(&self) {
        if let Some(writer) = &self.writer {
            writer.stop();
        }
    }

    /// Closes every connection. Call after [`Store::stop`] and the end of the background writer.
    pub(crate) fn close(&self) {
        self.readers.close();
        if let Some(writer) = &self.writer {
            writer.close();
        }
        lock(&self.in_use).take();
    }

    fn writer(&self) -> Result<&Writer> {
        self.writer
            .as_ref()
            .ok_or_else(|| Error::unsupported("the handle was opened with readOnly"))
    }
}

/// SQLite's errors as the contract's.
pub(crate) fn fault(error: rusqlite::Error) -> Error {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Error::storage("another process held the database for longer than busyTimeoutMs")
        }
        Some(ErrorCode::NotADatabase) => Error::storage("the file is not an SQLite database"),
        _ => Error::storage(format!("SQLite: {error}")),
    }
}

fn gone() -> Error {
    Error::storage("the database file is gone from its path")
}

/// Repeats what SQLite refuses at once, without its own waiting, while another
/// process opens the same file.
fn retry_busy<T>(
    conn: &Connection,
    mut attempt: impl FnMut(&Connection) -> rusqlite::Result<T>,
) -> Result<T> {
    let wait: i64 = conn
        .query_row("PRAGMA busy_timeout", [], |row| row.get(0))
        .map_err(fault)?;
    let deadline = Instant::now() + Duration::from_millis(wait.unsigned_abs());
    loop {
        match attempt(conn) {
            Err(error)
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(2));
            }
            outcome => return outcome.map_err(fault),
        }
    }
}
