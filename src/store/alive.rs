//! Which handles are alive, over all processes: by locked files beside the database.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Tx, offers};
use crate::contract::{Error, Result};
use crate::sys::NotInChild;

/// Proof that a handle lives: a locked file beside the database, which no
/// other open or close in the process unlocks and no crash leaves locked.
pub(crate) struct Alive {
    pub(crate) id: i64,
    path: PathBuf,
    // Dropped in this order: a child must not find the number of a closed descriptor.
    _in_child: NotInChild,
    _locked: File,
}

impl Alive {
    /// Registers a handle in a transaction, and locks its file.
    pub(crate) fn register(
        tx: &Tx<'_>,
        database: &Path,
        agents: Option<&[String]>,
    ) -> Result<Alive> {
        loop {
            let id = offers::add_handle(tx, agents)?;
            let path = beside_path(database, &format!("handle-{id}"));
            let file = beside(database, &format!("handle-{id}"))?;
            match file.try_lock() {
                Ok(()) => {
                    return Ok(Alive {
                        id,
                        path,
                        _in_child: NotInChild::guard(&file),
                        _locked: file,
                    });
                }
                // A handle of the database that was at this path before.
                Err(TryLockError::WouldBlock) => offers::remove_handle(tx, id)?,
                Err(TryLockError::Error(problem)) => return Err(no_file(&problem)),
            }
        }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        // Removed while still locked: who opens the name next makes a new file.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the handle's file is locked; a dead one's is removed.
pub(crate) fn is_alive(database: &Path, id: i64) -> bool {
    let path = beside_path(database, &format!("handle-{id}"));
    let Ok(file) = File::open(&path) else {
        return false;
    };
    match file.try_lock() {
        Ok(()) => {
            let _ = std::fs::remove_file(&path);
            false
        }
        Err(_) => true,
    }
}

/// Whose turn it is, over all processes, to make the database or to clear its
/// place: a lock on the file that wakes are told by.
pub(super) struct Turn(File);

impl Turn {
    pub(super) fn take(database: &Path, patience: Duration) -> Result<Turn> {
        let file = beside(database, "wake")?;
        let deadline = Instant::now() + patience;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Turn(file)),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::busy(
                        "another process makes the database for longer than busyTimeoutMs",
                    ));
                }
                Err(TryLockError::Error(problem)) => return Err(no_file(&problem)),
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // A child of fork may hold the descriptor too: closing it is not enough.
        let _ = self.0.unlock();
    }
}

/// Whether the handle's file is locked, for who only looks: nothing is removed.
pub(crate) fn is_locked(database: &Path, id: u64) -> bool {
    File::open(beside_path(database, &format!("handle-{id}")))
        .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// The file of this name beside the database.
pub(crate) fn beside_path(database: &Path, what: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push("-");
    path.push(what);
    path.into()
}

/// Opens, and makes if need be, the file of this name beside the database.
pub(crate) fn beside(database: &Path, what: &str) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(beside_path(database, what))
        .map_err(|problem| no_file(&problem))
}

fn no_file(problem: &io::Error) -> Error {
    Error::storage(format!(
        "a file beside the database cannot be used: {problem}"
    ))
}
