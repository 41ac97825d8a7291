//! Which handles are alive, over all processes: by locked files beside the database.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Tx, offers};
use crate::contract::{Error, Result};
use crate::files::{self, Identity};
use crate::sync::{ProcessMutex, lock_process};
use crate::sys::{NotInChild, PerProcess};

/// The files of the handles that this copy of the library has in this process.
static OWN: PerProcess<ProcessMutex<Vec<Identity>>> = PerProcess::new();

/// Proof that a handle lives: a locked file beside the database, which no
/// other open or close in the process unlocks and no crash leaves locked.
pub(crate) struct Alive {
    pub(crate) id: i64,
    path: PathBuf,
    // Dropped in this order: a child must not find the number of a closed descriptor,
    // nor anybody an open one that is not listed as this library's.
    _in_child: NotInChild,
    locked: File,
    _own: Own,
}

/// Lists a handle's file as this library's.
struct Own(Identity);

impl Own {
    fn list(file: &File) -> io::Result<Own> {
        let file = files::identity_in(&file.metadata()?);
        lock_process(OWN.get()).push(file);
        Ok(Own(file))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let mut own = lock_process(OWN.get());
        if let Some(at) = own.iter().position(|file| *file == self.0) {
            own.swap_remove(at);
        }
    }
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
            if let Some(alive) = Alive::lock(database, id)? {
                return Ok(alive);
            }
            // A handle of the database that was at this path before.
            offers::remove_handle(tx, id)?;
        }
    }

    /// As [`Alive::register`], of a handle whose file was removed or replaced, and
    /// which others may have taken for dead.
    pub(crate) fn register_again(
        tx: &Tx<'_>,
        database: &Path,
        id: i64,
        agents: Option<&[String]>,
    ) -> Result<Alive> {
        let alive = Alive::lock(database, id)?
            .ok_or_else(|| Error::storage("another handle has the file of this one"))?;
        offers::keep_handle(tx, id, agents)?;
        Ok(alive)
    }

    /// Locks the handle's file; `None` when somebody else has.
    fn lock(database: &Path, id: i64) -> Result<Option<Alive>> {
        let path = beside_path(database, &format!("handle-{id}"));
        let file = beside(database, &format!("handle-{id}"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Alive {
                id,
                path,
                _in_child: NotInChild::guard(&file),
                _own: Own::list(&file).map_err(|problem| no_file(&problem))?,
                locked: file,
            })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(problem)) => Err(no_file(&problem)),
        }
    }

    /// Whether others find the lock.
    pub(crate) fn is_found(&self) -> bool {
        is_at(&self.locked, &self.path)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        // Removed while still locked: who opens the name next makes a new file.
        if self.is_found() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether the handle's file is locked; a dead one's is removed.
pub(crate) fn is_alive(database: &Path, id: i64) -> bool {
    let path = beside_path(database, &format!("handle-{id}"));
    let Ok(file) = existing(&path) else {
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

/// Whether one of these handles, which live, is of another copy of this library in
/// this process: its SQLite and this one's do not see each other's locks, and what
/// both write is a damaged file. Where the system does not tell, `false`.
pub(crate) fn is_in_another_copy(database: &Path, handles: impl Iterator<Item = i64>) -> bool {
    let own = lock_process(OWN.get()).clone();
    let file = |id| files::identity(&beside_path(database, &format!("handle-{id}")));
    let others: Vec<Identity> = handles
        .filter_map(file)
        .filter(|file| !own.contains(file))
        .collect();
    if others.is_empty() {
        return false;
    }
    let is_one = |open: PathBuf| {
        // By its name first: to look at a file may hang, to read a link does not.
        let named = std::fs::read_link(&open).is_ok_and(|file| {
            let name = file.file_name().map(|name| name.to_string_lossy());
            name.is_some_and(|name| name.contains("-handle-"))
        });
        named && files::identity(&open).is_some_and(|file| others.contains(&file))
    };
    std::fs::read_dir("/proc/self/fd")
        .is_ok_and(|open| open.flatten().any(|entry| is_one(entry.path())))
}

/// Whose turn it is, over all processes, to make the database or to clear its
/// place: a lock on the file that wakes are told by.
pub(super) struct Turn(File);

impl Turn {
    pub(super) fn take(database: &Path, patience: Duration) -> Result<Turn> {
        let path = beside_path(database, "wake");
        let deadline = Instant::now() + patience;
        loop {
            let file = beside(database, "wake")?;
            match file.try_lock() {
                // The lock of a file that was removed keeps nobody away.
                Ok(()) if !is_at(&file, &path) => {}
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
    existing(&beside_path(database, &format!("handle-{id}")))
        .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Whether this is the file at the path.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let which = |found: std::fs::Metadata| (found.dev(), found.ino());
    let (here, there) = (file.metadata(), std::fs::metadata(path));
    here.is_ok_and(|here| there.is_ok_and(|there| which(here) == which(there)))
}

/// The file of this name beside the database.
pub(crate) fn beside_path(database: &Path, what: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push("-");
    path.push(what);
    path.into()
}

/// What somebody else put there is neither followed nor waited for.
const AS_IT_IS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK;

fn existing(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(AS_IT_IS)
        .open(path)
}

/// Opens, and makes if need be, the file of this name beside the database.
pub(crate) fn beside(database: &Path, what: &str) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(AS_IT_IS)
        .open(beside_path(database, what))
        .and_then(for_its_owner)
        .map_err(|problem| no_file(&problem))
}

/// Gives the owner of a new file what the umask took: it could not be opened again.
pub(crate) fn for_its_owner(file: File) -> io::Result<File> {
    let mode = file.metadata()?.mode() & 0o777;
    if mode & 0o600 != 0o600 {
        file.set_permissions(Permissions::from_mode(mode | 0o600))?;
    }
    Ok(file)
}

fn no_file(problem: &io::Error) -> Error {
    Error::storage(format!(
        "a file beside the database cannot be used: {problem}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who waited for a turn may get the lock of a file that was removed meanwhile:
    /// another has the one that is at the path now.
    #[test]
    fn nobody_has_a_turn_by_a_file_that_was_removed() {
        const TURNS: usize = 4_000;
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let wake = beside_path(&database, "wake");
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    for _ in 0..TURNS {
                        let turn = Turn::take(&database, Duration::from_secs(60)).unwrap();
                        // Whoever has the turn removes it, and nobody else.
                        assert!(is_at(&turn.0, &wake));
                        std::fs::remove_file(&wake).unwrap();
                    }
                });
            }
        });
    }
}
