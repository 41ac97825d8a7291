//! Opening the database file.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags, ffi};

use super::alive::{Turn, beside_path, for_its_owner};
use super::checkpoints::Checkpoints;
use super::company::Company;
use super::faults::{explain, fault};
use super::owed::Known;
use super::power::{Moves, settle};
use super::{Options, readers, retry_busy, schema};
use crate::contract::{Code, Durability, Error, Result};
use crate::sharing::Use;
use crate::sync::{ProcessMutex, lock_process, try_lock_process};
use crate::sys::{self, Kept, PerProcess};

/// No value is longer than what one request may hold; a longer one is damage
/// and not to be read into memory.
const LONGEST: i32 = 16 << 20;

/// A file, whatever its name: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// The file at `path` now; `None` when there is none.
    fn of(path: &Path) -> Option<Identity> {
        fs::metadata(path).ok().as_ref().map(Identity::new)
    }

    fn new(found: &fs::Metadata) -> Identity {
        Identity {
            device: found.dev(),
            inode: found.ino(),
        }
    }
}

/// Where a database's files are.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) main: PathBuf,
    wal: PathBuf,
    shm: PathBuf,
    folder: PathBuf,
    /// What spares a look at each file; `None` before the first one.
    last: Arc<ProcessMutex<Option<Look>>>,
}

/// A look at the files of a place.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    files: Files,
    /// The folder they were in, when its time of change tells any later one.
    folder: Option<FolderStamp>,
}

/// A folder, and when a name in it was last made, removed or given to another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FolderStamp {
    folder: Identity,
    changed: (i64, i64),
}

impl FolderStamp {
    fn of(folder: &Path) -> Option<FolderStamp> {
        let found = fs::metadata(folder).ok()?;
        Some(FolderStamp {
            folder: Identity::new(&found),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }

    fn is_settled(&self) -> bool {
        is_settled(self.changed)
    }
}

/// Whether a change from now on has a later time than this one, in seconds and
/// nanoseconds since the epoch: file systems count in steps of up to two seconds.
fn is_settled((seconds, nanoseconds): (i64, i64)) -> bool {
    let at = || {
        let nanoseconds = u32::try_from(nanoseconds).ok()?;
        Some(Duration::new(u64::try_from(seconds).ok()?, nanoseconds))
    };
    let age = at().and_then(|at| UNIX_EPOCH.elapsed().ok()?.checked_sub(at));
    age.is_some_and(|age| age >= SETTLED)
}

/// How a database lies there: as long as it is the same, no name beside it was
/// made, removed or given to another file, and no connection of any process wrote
/// into its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stillness {
    folder: FolderStamp,
    log: Identity,
    length: u64,
    /// Which nobody can set back, as they can when it was written.
    changed: (i64, i64),
}

/// How old the last change of a folder is at least when the next has another time.
const SETTLED: Duration = Duration::from_secs(4);
/// How long a call looks at nothing but a folder's time of change. What it does not
/// tell, such as a file system mounted over a file, is seen after that.
const LOOK_AT_FILES: Duration = Duration::from_secs(1);

/// The files of a database, whatever their names: while one is open, none of
/// them is ever another. SQLite alone would go on with files that were removed
/// or replaced, and what it writes there nobody sees again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Files {
    main: Identity,
    wal: Option<Identity>,
    shm: Option<Identity>,
}

impl Place {
    pub(super) fn new(database: &Path) -> Place {
        Place {
            main: database.to_owned(),
            wal: beside_path(database, "wal"),
            shm: beside_path(database, "shm"),
            folder: database.parent().unwrap_or(database).to_owned(),
            last: Arc::default(),
        }
    }

    /// The files that are here now. One look at the folder says it, most of the
    /// time: while no name in it is made, removed or given to another file, the
    /// files are the same.
    pub(super) fn files(&self) -> Result<Files> {
        let now = Instant::now();
        let Some(last) = try_lock_process(&self.last).map(|last| *last) else {
            return self.each_file();
        };
        match last.filter(|last| now.duration_since(last.at) < LOOK_AT_FILES) {
            Some(Look {
                files,
                folder: Some(folder),
                ..
            }) if FolderStamp::of(&self.folder) == Some(folder) => Ok(files),
            // Not settled a moment ago, so not worth two looks at the folder.
            Some(Look { folder: None, .. }) => self.each_file(),
            _ => {
                let before = FolderStamp::of(&self.folder).filter(FolderStamp::is_settled);
                let files = self.each_file()?;
                let same = before.is_some() && FolderStamp::of(&self.folder) == before;
                // Where a link leads may change without the folder.
                let is_settled = same && !self.has_links();
                if let Some(mut last) = try_lock_process(&self.last) {
                    *last = Some(Look {
                        at: now,
                        files,
                        folder: before.filter(|_| is_settled),
                    });
                }
                Ok(files)
            }
        }
    }

    /// How the database lies there, for two looks in all; `None` while the next change
    /// could leave it the same. What is seen in it may be a commit older than
    /// its log, as long as a disk takes to write that.
    pub(super) fn stillness(&self) -> Option<Stillness> {
        let last = *try_lock_process(&self.last)?;
        let folder = FolderStamp::of(&self.folder)?;
        if last?.folder != Some(folder) {
            return None;
        }
        let log = fs::metadata(&self.wal).ok()?;
        let changed = (log.ctime(), log.ctime_nsec());
        is_settled(changed).then(|| Stillness {
            folder,
            log: Identity::new(&log),
            length: log.len(),
            changed,
        })
    }

    fn has_links(&self) -> bool {
        [&self.main, &self.wal, &self.shm]
            .iter()
            .any(|path| path.is_symlink())
    }

    /// The files that are here now, each looked at.
    fn each_file(&self) -> Result<Files> {
        let main = fs::metadata(&self.main).map_err(|problem| match problem.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => {
                Error::storage("the database file is gone from its path")
            }
            _ => unseen(&problem),
        })?;
        Ok(Files {
            main: Identity::new(&main),
            wal: Identity::of(&self.wal),
            shm: Identity::of(&self.shm),
        })
    }

    /// Removes what lies beside a database that is no longer here. SQLite would
    /// take it for the log of the one that is.
    fn remove_leftovers(&self) -> Result<()> {
        for path in [&self.wal, &self.shm, &beside_path(&self.main, "journal")] {
            remove(path)?;
        }
        Ok(())
    }

    /// Whether this process has a connection to the database with another log
    /// than the one here, or to another database with this log. SQLite shares a
    /// log's index among the connections of a process to a file, and would mix the
    /// two; of one index it would hold two descriptors, and closing either drops the
    /// locks of both.
    pub(super) fn has_stale_connections(&self) -> bool {
        let is_stale = |other: &Files, now: Files| {
            if other.same_main(now) {
                *other != now && (other.wal.is_some() || other.shm.is_some())
            } else {
                now.has_log_of_another(*other) || now.shm.is_some() && now.shm == other.shm
            }
        };
        if let Ok(now) = self.files() {
            readers::let_go(|files| is_stale(&files, now));
        }
        let all = lock_process(CONNECTED.get());
        // Looked at while nobody comes or goes.
        self.files()
            .is_ok_and(|now| all.iter().any(|other| is_stale(other, now)))
    }

    /// Clears the place of what belongs to `old`, whose connections are closed:
    /// a log without its index or without its database, or the other way. Of a
    /// damaged database the log is kept under another name.
    pub(super) fn clear(&self, old: Files, damaged: bool) -> Result<()> {
        let now = self.files()?;
        if now.shm.is_some() && now.shm == old.shm {
            remove(&self.shm)?;
        }
        if now.has_log_of_another(old) {
            let is_empty = fs::metadata(&self.wal).is_ok_and(|found| found.len() == 0);
            if damaged && !is_empty {
                let kept = beside_path(&self.main, "wal-of-damaged");
                fs::rename(&self.wal, &kept).map_err(|problem| {
                    Error::storage(format!(
                        "the write-ahead log of the database that was here cannot be moved away: {problem}"
                    ))
                })?;
                log::warn!(target: "store", "the log of the damaged database was kept as {}", kept.display());
            } else {
                remove(&self.wal)?;
            }
        }
        Ok(())
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(problem) if problem.kind() != ErrorKind::NotFound => Err(Error::storage(format!(
            "a file that a database before this one left here cannot be removed: {problem}"
        ))),
        _ => Ok(()),
    }
}

impl Files {
    /// Whether both are the same database, with whatever log beside it.
    pub(super) fn same_main(self, other: Files) -> bool {
        self.main == other.main
    }

    /// Whether another database stands here beside the log of `old`.
    pub(super) fn has_log_of_another(self, old: Files) -> bool {
        self.main != old.main && self.wal.is_some() && self.wal == old.wal
    }

    /// What became of the log of `old`, whose connection is the asker's.
    pub(super) fn log_of(self, old: Files) -> Log {
        if self.main != old.main {
            // What is beside the other database is not this one's.
            Log::Own
        } else if self.wal.is_some() && self.wal != old.wal {
            Log::Another
        } else if self.wal.is_some() && self.shm.is_some() && self.shm != old.shm {
            Log::Taken
        } else {
            Log::Own
        }
    }
}

/// What became of a log when its files were removed or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Log {
    /// Nobody has begun to use what is here now.
    Own,
    /// Somebody goes on with it, having read all of it.
    Taken,
    /// Somebody has begun another.
    Another,
}

/// The connections of this process, by the files they are on.
static CONNECTED: PerProcess<ProcessMutex<Vec<Files>>> = PerProcess::new();

/// A connection's entry among those of the process.
struct Connected(Files);

impl Connected {
    fn new(files: Files) -> Connected {
        lock_process(CONNECTED.get()).push(files);
        Connected(files)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut all = lock_process(CONNECTED.get());
        if let Some(at) = all.iter().position(|files| *files == self.0) {
            all.swap_remove(at);
        }
    }
}

/// Why a database with another log than that of this process's connections is not opened.
pub(super) fn stale() -> Error {
    Error::storage(
        "the write-ahead log was removed or replaced; the database is opened anew when every handle of this process has let go of the old one, which takes a second",
    )
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

/// A connection, and what it needs until it is closed.
pub(super) struct Held {
    conn: Kept,
    /// What the files were when they were opened without locks.
    alone: Option<Alone>,
    // Dropped after the connection.
    used: Use,
}

impl Held {
    /// Whether there is a log that a process left which ended without closing the database.
    fn has_left_log(&self) -> bool {
        matches!(self.alone, Some(Alone { log: Some(_), .. }))
    }
}

impl Deref for Held {
    type Target = Kept;

    fn deref(&self) -> &Kept {
        &self.conn
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.used.leave();
        // SQLite closes its descriptor at once when it takes no locks on it.
        if self.has_left_log()
            && let Ok(none) = Connection::open_in_memory()
        {
            let conn = std::mem::replace(&mut self.conn, Kept::new(none));
            self.used.park(conn.into_connection());
        }
    }
}

/// A connection and the files it is on.
pub(super) struct OpenFile {
    pub(super) conn: Held,
    pub(super) files: Files,
    /// Of a writer with `durability: "power"`.
    pub(super) moves: Option<Arc<Moves>>,
    /// Of any other writer.
    pub(super) checkpoints: Option<Arc<Checkpoints>>,
    /// What the last transaction of a writer knew.
    pub(super) known: RefCell<Option<Known>>,
    pub(super) company: Company,
    _connected: Connected,
}

impl OpenFile {
    fn new(conn: Held, options: &Options, main: Identity) -> Result<OpenFile> {
        let files = Place::new(&options.path).files()?;
        if files.main != main {
            return Err(replaced());
        }
        conn.used.guard_shm();
        Ok(OpenFile {
            conn,
            files,
            moves: None,
            checkpoints: None,
            known: RefCell::default(),
            company: Company::default(),
            _connected: Connected::new(files),
        })
    }

    /// Refuses a file that was opened for `wanted` and is another or has another log.
    pub(super) fn check_is_of(&self, wanted: Files) -> Result<()> {
        let is_other = |wanted: Option<_>, opened| wanted.is_some() && wanted != opened;
        if self.files.main != wanted.main
            || is_other(wanted.wal, self.files.wal)
            || is_other(wanted.shm, self.files.shm)
        {
            return Err(replaced());
        }
        Ok(())
    }

    /// Moves all of the log into the database. Waits for who else is at it: SQLite
    /// itself then gives up at once, and does nothing.
    pub(super) fn empty_log(&self, patience: Duration) -> Result<()> {
        retry_busy(&self.conn, patience, |conn| {
            let (held_up, length, through) =
                conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
                    Ok((row.get(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
                })?;
            // Moved, and kept for a reader that needs nothing else.
            let is_moved = length >= 0 && length == through;
            if held_up && !is_moved {
                let busy = ffi::Error::new(ffi::SQLITE_BUSY);
                return Err(rusqlite::Error::SqliteFailure(busy, None));
            }
            Ok(())
        })
    }

    /// Mends what a failed move of the log left, where there is something.
    pub(super) fn mend(&self) {
        if let Some(moves) = &self.moves {
            moves.mend(&self.conn);
        }
    }

    /// Whether the log must stay for what a failed move left.
    pub(super) fn keeps_log(&self) -> bool {
        self.moves.as_ref().is_some_and(|moves| moves.failed())
    }

    /// Closes the connection; the last one of all processes then moves the log
    /// into the database and removes it.
    pub(super) fn close_and_tidy(self) {
        // Refused or not, the log is only tidier so.
        let _ = self
            .conn
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
    }

    /// Whether nobody came to use the database since it was opened by
    /// [`reader`] as one that nobody uses. Always, when it was not so opened.
    pub(super) fn is_valid(&self, path: &Path) -> bool {
        self.conn
            .alone
            .as_ref()
            .is_none_or(|then| Alone::look(path).is_ok_and(|now| now.as_ref() == Some(then)))
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
        make(options)?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let (mut moves, mut checkpoints) = (None, None);
    let take_over = |conn: &mut Connection| {
        match options.durability {
            Durability::Process => checkpoints = Some(Checkpoints::take_over(conn)?),
            Durability::Power => moves = Some(Moves::take_over(conn)?),
        }
        Ok(())
    };
    let (conn, main) = open(options, flags, 2_000, None, take_over)?;
    let synchronous = match options.durability {
        Durability::Process => "NORMAL",
        Durability::Power => "FULL",
    };
    schema::migrate(&conn, options.clock.now_ms(), options.busy_timeout)
        .and_then(|()| {
            conn.pragma_update(None, "synchronous", synchronous)
                .map_err(fault)
        })
        .map_err(|error| explain(error, Some(&conn), &options.path))?;
    if let Some(moves) = &moves {
        settle(&conn, moves, &options.path)
            .map_err(|error| explain(error, Some(&conn), &options.path))?;
    }
    let file = OpenFile {
        moves,
        checkpoints,
        ..OpenFile::new(conn, options, main)?
    };
    file.conn.used.guard_log();
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
    let access = if checkpoints {
        OpenFlags::SQLITE_OPEN_READ_WRITE
    } else {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    };
    let alone = if options.read_only {
        Alone::look(&options.path).unwrap_or_default()
    } else {
        None
    };
    let flags = match alone {
        Some(_) => OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI,
        None => access,
    };
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let (conn, main) = open(options, flags, 512, alone, |_| Ok(()))?;
    schema::accept(&conn).map_err(|error| explain(error, Some(&conn), &options.path))?;
    OpenFile::new(conn, options, main)
}

fn open(
    options: &Options,
    flags: OpenFlags,
    cache_kib: i64,
    alone: Option<Alone>,
    mut begin: impl FnMut(&mut Connection) -> Result<()>,
) -> Result<(Held, Identity)> {
    let path = &options.path;
    let (place, deadline) = (Place::new(path), Instant::now() + options.busy_timeout);
    while place.has_stale_connections() {
        if Instant::now() >= deadline {
            return Err(stale());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    // The path may be given to another file at any time: what was opened is
    // known when it is the same before and after.
    loop {
        let Some(before) = Identity::of(path) else {
            return Err(missing());
        };
        let used = Use::begin(path, (before.device, before.inode));
        let mut conn = match &alone {
            None => Connection::open_with_flags(path, flags),
            Some(alone) => Connection::open_with_flags(uri(path, alone), flags),
        }
        .map_err(|error| explain(fault(error), None, path))?;
        begin(&mut conn)?;
        let conn = Held {
            conn: Kept::new(conn),
            alone: alone.clone(),
            used,
        };
        if Identity::of(path) != Some(before) {
            continue;
        }
        set_up(&conn, options, cache_kib)
            .map_err(|error| explain(fault(error), Some(&conn), path))?;
        return Ok((conn, before));
    }
}

fn set_up(conn: &Held, options: &Options, cache_kib: i64) -> rusqlite::Result<()> {
    if conn.has_left_log() {
        // Its index is made in memory.
        conn.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    }
    sys::wait_for_locks(conn, options.busy_timeout)?;
    conn.set_prepared_statement_cache_capacity(64);
    conn.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST)?;
    for (option, value) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        // Plans depend on no bound value: or statements would be prepared anew at
        // each use, since SQLite looks whether a value fits a partial index.
        (DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true),
        // A connection that is closed in a hurry writes nothing; see `close_and_tidy`.
        (DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true),
    ] {
        conn.set_db_config(option, value)?;
    }
    for (pragma, value) in [
        ("cache_size", -cache_kib),
        ("trusted_schema", 0),
        ("temp_store", 2),
        ("cell_size_check", 1),
    ] {
        conn.pragma_update(None, pragma, value)?;
    }
    Ok(())
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

fn replaced() -> Error {
    Error::storage("the database file was replaced while it was opened")
}

fn missing() -> Error {
    Error {
        field: Some("database".to_owned()),
        ..Error::new(Code::NotFound, "there is no database at this path")
    }
}

fn check_place(options: &Options) -> Result<()> {
    let path = &options.path;
    let folder = path.parent().unwrap_or(path);
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => {
            return Err(Error::invalid("database", "the path is not a regular file"));
        }
        Ok(found) => {
            // To open a FIFO would wait for whoever is at its other end.
            for name in ["journal", "wal", "shm"] {
                let beside = fs::symlink_metadata(beside_path(path, name));
                if beside.is_ok_and(|beside| !beside.is_file()) {
                    return Err(Error::storage(format!(
                        "the -{name} file of the database is not a regular file"
                    )));
                }
            }
            // SQLite would take the file for a new one and throw the log away.
            let log = fs::metadata(beside_path(path, "wal"));
            if found.len() == 0 && log.is_ok_and(|log| log.len() > 0) {
                return Err(Error::damaged(
                    "the file is empty while its write-ahead log is not",
                ));
            }
        }
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
        Err(problem) => return Err(unseen(&problem)),
    }
    if let Some(kind) = sys::network_file_system(folder) {
        return Err(Error::unsupported(format!(
            "the database is on {kind}, where SQLite's write-ahead log does not work; put it on a local disk"
        )));
    }
    Ok(())
}

fn unseen(problem: &std::io::Error) -> Error {
    Error::storage(format!("the database cannot be looked at: {problem}"))
}

fn make(options: &Options) -> Result<()> {
    let path = &options.path;
    if path.exists() {
        return Ok(());
    }
    let _turn = Turn::take(path, options.busy_timeout)?;
    if path.exists() {
        return Ok(());
    }
    Place::new(path).remove_leftovers()?;
    // Never opens a file that exists: closing it again would drop the POSIX
    // locks of this process's connections on it.
    match OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(for_its_owner)
    {
        Ok(_) => Ok(()),
        Err(problem) if problem.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(problem) => Err(Error::storage(format!(
            "the database cannot be made: {problem}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(folder: &Path) -> Place {
        let place = Place::new(&folder.join("a.db"));
        for path in [&place.main, &place.wal, &place.shm] {
            fs::write(path, "").unwrap();
        }
        place
    }

    #[test]
    fn a_path_that_gets_another_file_while_it_is_opened_is_opened_as_that_one() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::of_test(folder.path());
        let other = folder.path().join("other");
        for (path, version) in [(&options.path, 1), (&other, 2)] {
            let conn = Connection::open(path).unwrap();
            conn.pragma_update(None, "user_version", version).unwrap();
        }
        let mut openings = 0;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let (conn, main) = open(&options, flags, 512, None, |_| {
            openings += 1;
            if openings == 1 {
                fs::rename(&other, &options.path).unwrap();
            }
            Ok(())
        })
        .unwrap();
        assert_eq!((openings, Some(main)), (2, Identity::of(&options.path)));
        let version: i64 = conn
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .unwrap();
        assert_eq!(version, 2);
    }

    fn is_settled(place: &Place) -> bool {
        place.files().unwrap();
        lock_process(&place.last).is_some_and(|last| last.folder.is_some())
    }

    #[test]
    fn a_folder_that_has_not_changed_stands_for_its_files_and_one_that_has_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        type Change = fn(&Place) -> io::Result<()>;
        let replace: Change = |place| {
            let other = place.folder.join("other");
            fs::write(&other, "")?;
            fs::rename(&other, &place.main)
        };
        let another_folder: Change = |place| {
            fs::rename(&place.folder, place.folder.with_extension("away"))?;
            fs::create_dir(&place.folder)?;
            fs::write(&place.main, "")
        };
        let another_log: Change = |place| {
            // Kept, or the new one could get its number.
            fs::hard_link(&place.wal, place.folder.join("kept"))?;
            fs::remove_file(&place.wal)?;
            fs::write(&place.wal, "")
        };
        let changes: [(&str, Change); 5] = [
            ("replaced", replace),
            ("removed", |place| fs::remove_file(&place.main)),
            ("log", another_log),
            ("index", |place| fs::remove_file(&place.shm)),
            ("folder", another_folder),
        ];
        let places = changes.map(|(name, _)| place(&at(name)));
        let linked = Place::new(&at("link").join("a.db"));
        std::os::unix::fs::symlink(&places[0].main, &linked.main).unwrap();
        let before = places.each_ref().map(|place| place.files().unwrap());
        let begin = Instant::now();
        while !places.iter().all(is_settled) {
            assert!(begin.elapsed() < Duration::from_secs(60), "never settled");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!is_settled(&linked), "its file is in another folder");
        for ((place, before), (name, change)) in places.iter().zip(before).zip(changes) {
            assert_eq!(place.files(), Ok(before), "{name}");
            change(place).unwrap();
            assert_ne!(place.files(), Ok(before), "{name}");
            assert_eq!(place.files(), place.each_file(), "{name}");
        }
    }

    #[test]
    fn a_database_lies_still_until_a_name_beside_it_changes_or_somebody_commits() {
        type Change = fn(&Place, &Connection);
        let commit: Change = |_, conn| conn.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        let over_itself: Change = |place, conn| {
            let before = fs::metadata(&place.wal).unwrap().len();
            // From the log's beginning: it is not the longer for it.
            conn.execute_batch("PRAGMA wal_checkpoint(FULL); INSERT INTO t VALUES (1)")
                .unwrap();
            assert_eq!(fs::metadata(&place.wal).unwrap().len(), before);
        };
        let name: Change = |place, _| fs::write(place.folder.join("name"), "").unwrap();
        let changes = [
            ("commit", commit),
            ("over itself", over_itself),
            ("name", name),
        ];
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let folder = folder.path().join(name);
            fs::create_dir(&folder).unwrap();
            let place = Place::new(&folder.join("a.db"));
            let conn = Connection::open(&place.main).unwrap();
            conn.execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 0;
                 CREATE TABLE t(n)",
            )
            .unwrap();
            assert_eq!(place.files().map(|_| place.stillness()), Ok(None), "new");
            (place, conn)
        };
        let opened = changes.map(|(name, _)| open(name));
        let (linked, _other) = open("linked");
        fs::rename(&linked.wal, linked.folder.join("log")).unwrap();
        std::os::unix::fs::symlink(linked.folder.join("log"), &linked.wal).unwrap();
        let is_still = |place: &Place| place.files().is_ok() && place.stillness().is_some();
        let until_still = || {
            let begin = Instant::now();
            while !opened.iter().all(|(place, _)| is_still(place)) {
                assert!(begin.elapsed() < Duration::from_secs(60), "never still");
                std::thread::sleep(Duration::from_millis(20));
            }
            opened.each_ref().map(|(place, _)| place.stillness())
        };
        let before = until_still();
        assert_eq!(until_still(), before);
        assert!(!is_still(&linked), "its log may be another without a sign");
        for (((place, conn), before), (name, change)) in opened.iter().zip(before).zip(changes) {
            change(place, conn);
            assert_ne!(place.stillness(), before, "{name}");
        }
        for ((before, after), (name, _)) in before.iter().zip(until_still()).zip(changes) {
            assert_ne!(after, *before, "{name}: who slept meanwhile sees it");
        }
    }
}
