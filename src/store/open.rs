//! Opening the database file.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::{Options, fault, schema};
use crate::contract::{Durability, Error, Result};
use crate::sharing::Use;
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
    /// What the files were when they were opened without locks.
    alone: Option<Alone>,
    // Dropped after the connection.
    used: Use,
}

impl OpenFile {
    /// Whether nobody came to use the database since it was opened by
    /// [`reader`] as one that nobody uses. Always, when it was not so opened.
    pub(super) fn is_valid(&self, path: &Path) -> bool {
        self.alone
            .as_ref()
            .is_none_or(|then| Alone::look(path).is_ok_and(|now| now.as_ref() == Some(then)))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.used.leave();
        // SQLite closes its descriptor at once when it takes no locks on it.
        if matches!(self.alone, Some(Alone { log: Some(_), .. }))
            && let Ok(none) = Connection::open_in_memory()
        {
            self.used.park(std::mem::replace(&mut self.conn, none));
        }
    }
}

/// The files of a database that no process has open: there is no `-shm`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Alone {
    database: Stamp,
    /// What a process left that ended without closing the database.
    log: Option<Stamp>,
}

/// Inode, size, and the time of the last change of the content.
type Stamp = (u64, u64, i64, i64);

impl Alone {
    /// `None` when there is a `-shm`, or no database that is whole without a recovery.
    fn look(path: &Path) -> io::Result<Option<Alone>> {
        let stamp = |what: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(what);
            match fs::metadata(name) {
                Ok(found) => Ok(Some((
                    found.ino(),
                    found.len(),
                    found.mtime(),
                    found.mtime_nsec(),
                ))),
                Err(problem) if problem.kind() == ErrorKind::NotFound => Ok(None),
                Err(problem) => Err(problem),
            }
        };
        if stamp("-shm")?.is_some() || stamp("-journal")?.is_some() {
            return Ok(None);
        }
        let log = stamp("-wal")?.filter(|(_, size, ..)| *size > 0);
        Ok(stamp("")?.map(|database| Alone { database, log }))
    }
}

/// Opens for writing: makes the file when that is wanted, and its tables.
pub(super) fn writer(options: &Options) -> Result<OpenFile> {
    check_place(options)?;
    if options.create {
        make(&options.path)?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut file = open(options, flags, 2_000, None)?;
    let synchronous = match options.durability {
        Durability::Process => "NORMAL",
        Durability::Power => "FULL",
    };
    schema::migrate(&mut file.conn, options.busy_timeout)?;
    file.conn
        .pragma_update(None, "synchronous", synchronous)
        .map_err(fault)?;
    file.used.guard_shm();
    file.used.guard_log();
    Ok(file)
}

/// Opens for reading; `checkpoints` allows the connection to move the
/// write-ahead log, which a read-only one cannot.
///
/// A handle that is read only leaves no file behind, and needs none to be made:
/// where nobody has the database open it is read without locks, for as long as
/// [`OpenFile::is_valid`].
pub(super) fn reader(options: &Options, checkpoints: bool) -> Result<OpenFile> {
    check_place(options)?;
    if options.read_only
        && let Ok(Some(alone)) = Alone::look(&options.path)
    {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let file = open(options, flags, 512, Some(alone))?;
        schema::accept(&file.conn)?;
        return Ok(file);
    }
    let access = if checkpoints {
        OpenFlags::SQLITE_OPEN_READ_WRITE
    } else {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    };
    let file = open(options, access | OpenFlags::SQLITE_OPEN_NO_MUTEX, 512, None)?;
    schema::accept(&file.conn)?;
    file.used.guard_shm();
    Ok(file)
}

fn open(
    options: &Options,
    flags: OpenFlags,
    cache_kib: i64,
    alone: Option<Alone>,
) -> Result<OpenFile> {
    let path = &options.path;
    // The path may be given to another file at any time: what was opened is
    // known when it is the same before and after.
    loop {
        let Some(before) = Identity::of(path) else {
            return Err(missing());
        };
        let used = Use::begin(path, (before.device, before.inode));
        let conn = match &alone {
            None => Connection::open_with_flags(path, flags),
            Some(alone) => Connection::open_with_flags(uri(path, alone), flags),
        }
        .map_err(fault)?;
        let file = OpenFile {
            conn,
            identity: before,
            alone: alone.clone(),
            used,
        };
        if Identity::of(path) != Some(before) {
            continue;
        }
        if alone.as_ref().is_some_and(|alone| alone.log.is_some()) {
            // The index of the log is made in memory, and nothing of it is moved at the end.
            file.conn
                .pragma_update(None, "locking_mode", "EXCLUSIVE")
                .map_err(fault)?;
            file.conn
                .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
                .map_err(fault)?;
        }
        sys::wait_for_locks(&file.conn, options.busy_timeout).map_err(fault)?;
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

/// The database at `path`, which nobody else uses, for SQLite to read without locks.
fn uri(path: &Path, alone: &Alone) -> OsString {
    let how = match alone.log {
        None => "immutable=1",
        Some(_) => "vfs=unix-none",
    };
    let mut uri = b"file:".to_vec();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => uri.push(*byte),
            byte if byte.is_ascii_alphanumeric() => uri.push(*byte),
            byte => uri.extend(format!("%{byte:02X}").bytes()),
        }
    }
    uri.extend(format!("?mode=ro&{how}").bytes());
    OsString::from_vec(uri)
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
