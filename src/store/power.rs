//! What `durability: "power"` asks for beyond SQLite's own syncs: a sync that
//! failed is not made good by one that does not. The system tries a page once,
//! and keeps it in its cache as if it were on the disk.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::hooks::Wal;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode};

use super::alive::is_alive;
use super::checkpoints::PAGES;
use super::faults::fault;
use super::{lock, offers};
use crate::contract::{Error, Result};
use crate::sync::Mutex;

/// How long a rewrite that failed is not tried again.
const PATIENCE: Duration = Duration::from_secs(1);

/// How the log of a writer is moved into the database.
///
/// A move that readers hold back ends without a sync, and is not done again by
/// the one that syncs. When that sync fails, SQLite moves anew what the failed
/// move had written, and not what the one before had: those pages may never
/// reach the disk. So after a failure all pages are written to the log anew.
#[derive(Default)]
pub(super) struct Moves {
    failed: AtomicBool,
    /// Through which frame the log was moved when all pages were written behind it.
    rewritten: AtomicI64,
    tried: Mutex<Option<Instant>>,
}

impl Moves {
    /// Takes over from SQLite when the log is moved, to know how it goes.
    pub(super) fn take_over(conn: &mut Connection) -> Result<Arc<Moves>> {
        let moves = Arc::new(Moves::default());
        let hooked = Arc::clone(&moves);
        conn.wal_hook(Some(move |wal: &mut Wal, pages| {
            if pages >= PAGES && !hooked.failed() {
                hooked.note(&wal.checkpoint_v2(CheckpointMode::PASSIVE));
            }
            // What was committed is committed.
            Ok(())
        }))
        .map_err(fault)?;
        Ok(moves)
    }

    /// Whether a move failed and its pages are not written anew yet: until then
    /// nothing more is to be moved.
    pub(super) fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Takes note of how a move went.
    pub(super) fn note<T>(&self, moved: &rusqlite::Result<T>) {
        match moved {
            Ok(_) => self.rewritten.store(0, Ordering::Release),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
            Err(error) => {
                self.failed.store(true, Ordering::Release);
                log::error!(target: "store", "the log could not be moved into the database, nothing is lost: {error}");
            }
        }
    }

    /// Writes every page anew after a move that failed, where that is called for.
    pub(super) fn mend(&self, conn: &Connection) {
        let recently = |at: &Instant| at.elapsed() < PATIENCE;
        if !self.failed() || lock(&self.tried).as_ref().is_some_and(recently) {
            return;
        }
        match self.rewrite(conn) {
            Ok(()) => {
                self.failed.store(false, Ordering::Release);
                *lock(&self.tried) = None;
            }
            Err(error) => {
                *lock(&self.tried) = Some(Instant::now());
                log::warn!(target: "store", "the log is kept until its pages can be written anew: {error}");
            }
        }
    }

    fn rewrite(&self, conn: &Connection) -> rusqlite::Result<()> {
        let through: i64 = conn.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get(2))?;
        // The whole log is moved by the next move, or was rewritten since the last.
        if through <= 0 || through == self.rewritten.load(Ordering::Acquire) {
            return Ok(());
        }
        conn.execute_batch("VACUUM")?;
        self.rewritten.store(through, Ordering::Release);
        Ok(())
    }
}

/// How many frames the log has, and through which it was moved.
fn extent(conn: &Connection) -> rusqlite::Result<(i64, i64)> {
    conn.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| {
        Ok((row.get(1)?, row.get(2)?))
    })
}

/// Brings to the disk what earlier processes may have left in the system's
/// cache alone. Where another handle is alive, it has done so before it registered.
pub(super) fn settle(conn: &Connection, moves: &Moves, path: &Path) -> Result<()> {
    let mut others = offers::handles(conn)?.into_iter();
    if !others.any(|other| is_alive(path, other.id)) {
        empty_log(conn, moves)?;
    }
    // SQLite does so too, at a connection's first sync of a log that it may make,
    // but it passes over a failure.
    sync_folder(path)
}

/// A failed sync can leave a transaction in the log that every reader finds and
/// the disk never gets; what is appended behind it would be lost with it. So
/// the log is emptied into the database, which writes its pages anew.
fn empty_log(conn: &Connection, moves: &Moves) -> Result<()> {
    let (length, through) = extent(conn).map_err(fault)?;
    if 0 < through && through < length {
        // Moved in part, perhaps by a writer whose sync failed after that.
        conn.execute_batch("VACUUM").map_err(fault)?;
    }
    let emptied = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
        row.get::<_, bool>(0)
    });
    moves.note(&emptied);
    moves.mend(conn);
    if emptied.map_err(fault)? {
        return Err(Error::storage(
            "another process held the database for longer than busyTimeoutMs",
        ));
    }
    Ok(())
}

/// Makes the names in the folder of `path` safe on the disk.
fn sync_folder(path: &Path) -> Result<()> {
    File::open(path.parent().unwrap_or(path))
        .and_then(|folder| folder.sync_all())
        .map_err(|problem| {
            Error::storage(format!(
                "the folder of the database cannot be synced: {problem}"
            ))
        })
}
