//! Opening the database file.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::{Options, fault, schema};
use crate::contract::{Durability, Error, Result};
use crate::sys::{self, PerProcess};

/// A file, whatever its name: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// The file at `path` now; `None` when there is none.
    pub(super) fn of(path: &Path) -> Option<Identity> {
        let found = fs::metadata(path).ok()?;
        Some(Identity {
            device: found.dev(),
            inode: found.ino(),
        })
    }
}

/// How many stores this process has open, or is opening. SQLite keeps locks and
/// its own mutexes in the process's memory, where another thread may hold them
/// at a `fork`: a child must not enter it then.
static OPEN: PerProcess<AtomicUsize> = PerProcess::new();

/// Proof that a store may use SQLite in this process.
pub(super) struct InUse(());

impl InUse {
    pub(super) fn begin() -> Result<InUse> {
        if OPEN
            .inherited()
            .any(|stores| stores.load(Ordering::Acquire) > 0)
        {
            return Err(Error::unsupported(
                "this process was forked while its parent had handles open; open a database in a process started with exec",
            ));
        }
        OPEN.get().fetch_add(1, Ordering::AcqRel);
        Ok(InUse(()))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        OPEN.get().fetch_sub(1, Ordering::AcqRel);
    }
}

/// A connection and the file it is on.
pub(super) struct OpenFile {
    pub(super) conn: Connection,
    pub(super) identity: Identity,
}

/// Opens for writing: makes the file when that is wanted, and its tables.
pub(super) fn writer(options: &Options) -> Result<OpenFile> {
    check_place(options)?;
    if options.create {
        make(&options.path)?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut file = open(options, flags, 2_000)?;
    let synchronous = match options.durability {
        Durability::Process => "NORMAL",
        Durability::Power => "FULL",
    };
    schema::migrate(&mut file.conn, options.clock.now_ms())?;
    file.conn
        .pragma_update(None, "synchronous", synchronous)
        .map_err(fault)?;
    Ok(file)
}

/// Opens for reading; `checkpoints` allows the connection to move the
/// write-ahead log, which a read-only one cannot.
pub(super) fn reader(options: &Options, checkpoints: bool) -> Result<OpenFile> {
    check_place(options)?;
    let access = if checkpoints {
        OpenFlags::SQLITE_OPEN_READ_WRITE
    } else {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    };
    let file = open(options, access | OpenFlags::SQLITE_OPEN_NO_MUTEX, 512)?;
    schema::accept(&file.conn)?;
    Ok(file)
}

fn open(options: &Options, flags: OpenFlags, cache_kib: i64) -> Result<OpenFile> {
    let path = &options.path;
    // The path may be given to another file at any time: what was opened is
    // known when it is the same before and after.
    loop {
        let Some(before) = Identity::of(path) else {
            return Err(missing());
        };
        let conn = Connection::open_with_flags(path, flags).map_err(fault)?;
        if Identity::of(path) != Some(before) {
            continue;
        }
        let file = OpenFile {
            conn,
            identity: before,
        };
        file.conn
            .busy_timeout(options.busy_timeout)
            .map_err(fault)?;
        file.conn.set_prepared_statement_cache_capacity(64);
        file.conn
            .set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)
            .map_err(fault)?;
        for (pragma, value) in [
            ("cache_size", -cache_kib),
            ("trusted_schema", 0),
            ("temp_store", 2),
        ] {
            file.conn
                .pragma_update(None, pragma, value)
                .map_err(fault)?;
        }
        return Ok(file);
    }
}

fn missing() -> Error {
    Error {
        code: crate::contract::Code::NotFound,
        message: "there is no database at this path".to_owned(),
        field: Some("database".to_owned()),
    }
}

fn check_place(options: &Options) -> Result<()> {
    let path = &options.path;
    let folder = path.parent().unwrap_or(path);
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => {
            return Err(Error::invalid("database", "the path is not a regular file"));
        }
        Ok(_) => {}
        Err(problem) if problem.kind() == ErrorKind::NotFound => {
            if !folder.is_dir() {
                return Err(Error {
                    message: "the folder of the database does not exist".to_owned(),
                    ..missing()
                });
            }
            if !options.create || options.read_only {
                return Err(missing());
            }
        }
        Err(problem) => {
            return Err(Error::storage(format!(
                "the database cannot be looked at: {problem}"
            )));
        }
    }
    if let Some(kind) = sys::network_file_system(folder) {
        return Err(Error::unsupported(format!(
            "the database is on {kind}, where SQLite's write-ahead log does not work; put it on a local disk"
        )));
    }
    Ok(())
}

fn make(path: &Path) -> Result<()> {
    // Never opens a file that exists: closing it again would drop the POSIX
    // locks of this process's connections on it.
    match OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
    {
        Ok(_) => Ok(()),
        Err(problem) if problem.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(problem) => Err(Error::storage(format!(
            "the database cannot be made: {problem}"
        ))),
    }
}
