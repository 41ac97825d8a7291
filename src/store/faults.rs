//! What fails at the database: told in words that help who runs the host,
//! counted, and, when the file is damaged, the end of all writing to it.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rusqlite::{Connection, ffi};

use super::alive::beside_path;
use super::open::Files;
use crate::contract::{Cause, Code, Error, Result};
use crate::sync::{Mutex, MutexGuard, lock};
use crate::sys;

/// SQLite's errors as the contract's.
pub(crate) fn fault(error: rusqlite::Error) -> Error {
    use rusqlite::Error as E;
    match &error {
        E::SqliteFailure(failure, text) => of_sqlite(*failure, text.as_deref().unwrap_or_default()),
        E::SqlInputError { error, msg, .. } => of_sqlite(*error, msg),
        // A value that its column cannot have; what it was is not told.
        E::FromSqlConversionFailure(..)
        | E::IntegralValueOutOfRange(..)
        | E::InvalidColumnType(..)
        | E::Utf8Error(..) => Error::damaged("a value is not of its column's type"),
        E::QueryReturnedNoRows => Error::damaged("a row it always has is gone"),
        _ => Error::storage(format!("SQLite: {error}")),
    }
}

fn of_sqlite(failure: ffi::Error, text: &str) -> Error {
    let code = failure.extended_code;
    let system = |words: &str| Error {
        cause: Cause::System(code),
        ..Error::storage(format!("{words} (SQLite {code}: {text})"))
    };
    match code & 0xff {
        // The last is what a reader answers that met others' changes of the locks too often.
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED | ffi::SQLITE_PROTOCOL => {
            Error::busy("another process held the database for longer than busyTimeoutMs")
        }
        ffi::SQLITE_NOTADB => Error::damaged("the file is not an SQLite database"),
        ffi::SQLITE_CORRUPT | ffi::SQLITE_MISMATCH | ffi::SQLITE_TOOBIG | ffi::SQLITE_FORMAT => {
            Error::damaged(format_args!("SQLite {code}: {text}"))
        }
        // No statement here breaks a rule of the tables on what it may find there.
        ffi::SQLITE_CONSTRAINT => Error::damaged(format_args!(
            "a rule of its tables is broken (SQLite {code})"
        )),
        // A transaction that ended took its savepoints with it, whatever ended it.
        ffi::SQLITE_ERROR if text.starts_with("no such savepoint") => {
            system("the transaction was undone")
        }
        ffi::SQLITE_ERROR if text.starts_with("no such ") || text.contains(" has no column ") => {
            Error::damaged("its tables are not those it was made with")
        }
        ffi::SQLITE_FULL => system(
            "there is no room to write: the disk is full, or a quota or a limit on the file's size is met",
        ),
        ffi::SQLITE_READONLY => {
            system("the database cannot be written: its file, folder or file system is read-only")
        }
        ffi::SQLITE_PERM | ffi::SQLITE_AUTH => system("access to the database is denied"),
        ffi::SQLITE_CANTOPEN => system("the database, or a file beside it, cannot be opened"),
        ffi::SQLITE_NOMEM => system("there is no memory left"),
        ffi::SQLITE_IOERR => match code {
            // The files end before what they say they hold.
            ffi::SQLITE_IOERR_SHORT_READ => Error::damaged("a file of it was cut short"),
            ffi::SQLITE_IOERR_NOMEM => system("there is no memory left"),
            // SQLite's word for EIO while reading is the latter.
            ffi::SQLITE_IOERR_READ | ffi::SQLITE_IOERR_CORRUPTFS => {
                system("the disk fails: the database cannot be read")
            }
            ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC => {
                system("the disk fails: what was written cannot be made safe on it")
            }
            ffi::SQLITE_IOERR_WRITE | ffi::SQLITE_IOERR_TRUNCATE => {
                system("the disk fails: the database cannot be written")
            }
            _ => system("the disk fails: an input or output error at the database"),
        },
        _ => Error::storage(format!("SQLite {code}: {text}")),
    }
}

/// The error with what the system said of it, where it said something.
pub(super) fn explain(error: Error, conn: Option<&Connection>, database: &Path) -> Error {
    if error.cause == Cause::Damage
        && let Some(why) = conn.and_then(sys::take_read_errno)
        // Those that SQLite tells as damage in the middle of a statement.
        && matches!(
            why.raw_os_error(),
            Some(libc::EIO | libc::ENXIO | libc::ERANGE)
        )
    {
        return Error::storage(format!(
            "the disk fails: the database cannot be read: {why}"
        ));
    }
    let Cause::System(code) = error.cause else {
        return error;
    };
    // Of a connection that was not made, this is all that is left.
    let last = io::Error::last_os_error();
    let said = match code & 0xff {
        ffi::SQLITE_IOERR | ffi::SQLITE_CANTOPEN => match conn {
            Some(conn) => {
                let read = sys::take_read_errno(conn);
                sys::sqlite_errno(conn).or(read).map(|why| why.to_string())
            }
            None => refused(database)
                .or_else(|| (last.raw_os_error() != Some(0)).then(|| last.to_string())),
        },
        ffi::SQLITE_READONLY | ffi::SQLITE_PERM | ffi::SQLITE_AUTH => refused(database),
        _ => None,
    };
    let Some(why) = said else {
        return error;
    };
    Error {
        message: format!("{}: {why}", error.message),
        // Told once.
        cause: Cause::Told,
        ..error
    }
}

/// Which of the database's files the system does not let this process use, and why.
fn refused(database: &Path) -> Option<String> {
    let folder = database.parent().map(Path::to_owned);
    let files = [
        ("its folder", folder),
        ("the file", Some(database.to_owned())),
        ("its -wal file", Some(beside_path(database, "wal"))),
        ("its -shm file", Some(beside_path(database, "shm"))),
    ];
    files.into_iter().find_map(|(name, path)| {
        let why = sys::usable(&path?).err()?;
        (why.kind() != io::ErrorKind::NotFound).then(|| format!("{name}: {why}"))
    })
}

/// How the database of one handle fares.
#[derive(Default)]
pub(super) struct Health {
    /// The file in which damage was seen, and what it was.
    damage: Mutex<Option<(Files, String)>>,
    /// Whether there is any, without a lock.
    damaged: AtomicBool,
    /// Held while a transaction is committed.
    committing: Mutex<()>,
    /// Held while something writes to the files beside the writer.
    beside: Mutex<()>,
    faults: AtomicU64,
    last: Mutex<Option<String>>,
}

/// What [`Health`] tells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// How often the database could not be read or written.
    pub faults: u64,
    /// Why, the last time.
    pub last: Option<String>,
    /// What is damaged in the file that is open.
    pub damage: Option<String>,
}

impl Health {
    /// Takes note of how a step went, and at which files. Damage is the end of
    /// writing to them: who is told of it knows that nothing more is written.
    pub(super) fn note<T>(&self, files: Option<Files>, outcome: Result<T>) -> Result<T> {
        let Err(error) = &outcome else {
            return outcome;
        };
        if error.code != Code::Storage && error.cause == Cause::Told {
            return outcome;
        }
        self.faults.fetch_add(1, Ordering::Relaxed);
        *lock(&self.last) = Some(error.message.clone());
        if let (Cause::Damage, Some(files)) = (error.cause, files) {
            let mut damage = lock(&self.damage);
            if !damage.as_ref().is_some_and(|(of, _)| of.same_main(files)) {
                *damage = Some((files, error.message.clone()));
                self.damaged.store(true, Ordering::Release);
                drop(damage);
                log::error!(
                    target: "store",
                    "{}; this handle writes nothing more to it until it is opened anew",
                    error.message
                );
            } else {
                drop(damage);
            }
            // What was under way ends before it is told.
            drop(lock(&self.committing));
            drop(lock(&self.beside));
        }
        outcome
    }

    /// Lets a transaction on these files be committed, as long as the answer is
    /// kept, if they are sound.
    pub(super) fn begin_commit(&self, files: Files) -> Result<MutexGuard<'_, ()>> {
        let committing = lock(&self.committing);
        let sound = self.is_sound(files);
        self.note(None, sound)?;
        Ok(committing)
    }

    /// Refuses to write to files in which damage was seen. When it does, nothing
    /// that was under way beside the writer writes to them any more.
    pub(super) fn check(&self, files: Files) -> Result<()> {
        let checked = self.is_sound(files);
        if checked.is_err() {
            drop(lock(&self.beside));
        }
        checked
    }

    /// Runs what writes to the files beside the writer, if they are sound. It must
    /// not wait for the writer.
    pub(super) fn beside_writer<T>(
        &self,
        files: Files,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let alone = lock(&self.beside);
        let done = self.is_sound(files).and_then(|()| work());
        drop(alone);
        self.note(Some(files), done)
    }

    fn is_sound(&self, files: Files) -> Result<()> {
        match self.damage(files) {
            Some(what) => Err(Error::storage(format!(
                "nothing is written until the database is opened anew, since {what}"
            ))),
            None => Ok(()),
        }
    }

    /// What is damaged in these files.
    pub(super) fn damage(&self, files: Files) -> Option<String> {
        if !self.damaged.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.damage)
            .as_ref()
            .filter(|(of, _)| of.same_main(files))
            .map(|(_, what)| what.clone())
    }

    pub(super) fn report(&self, files: Option<Files>) -> Report {
        Report {
            faults: self.faults.load(Ordering::Relaxed),
            last: lock(&self.last).clone(),
            damage: files.and_then(|files| self.damage(files)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    use super::*;
    use crate::store::open::Place;

    #[test]
    fn damage_is_told_when_nothing_more_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        std::fs::write(&database, "x").unwrap();
        let files = Place::new(&database).files().unwrap();
        for committing in [true, false] {
            let health = &Health::default();
            let (writing, writes) = channel();
            let (go_on, waits) = channel::<()>();
            let (tell, told) = channel();
            std::thread::scope(|threads| {
                threads.spawn(move || {
                    let write = || {
                        writing.send(()).unwrap();
                        waits.recv().map_err(|_| Error::closed())
                    };
                    if committing {
                        let _commit = health.begin_commit(files).unwrap();
                        write().unwrap();
                    } else {
                        health.beside_writer(files, write).unwrap();
                    }
                });
                writes.recv().unwrap();
                threads.spawn(move || {
                    let seen: Result<()> = Err(Error::damaged("a test"));
                    tell.send(health.note(Some(files), seen).is_err()).unwrap();
                });
                let early = told.recv_timeout(Duration::from_millis(100));
                assert!(
                    matches!(early, Err(RecvTimeoutError::Timeout)),
                    "{committing} {early:?}"
                );
                go_on.send(()).unwrap();
                assert!(told.recv().unwrap());
                health.begin_commit(files).unwrap_err();
                health.check(files).unwrap_err();
                health.beside_writer(files, || Ok(())).unwrap_err();
            });
        }
    }
}
