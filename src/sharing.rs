//! An SQLite file that this process may have open by other means too.
//!
//! POSIX locks, which SQLite uses, are one set a process and file, whoever took
//! them: two copies of SQLite in a process do not see each other's locks, and
//! closing any descriptor of a file drops all of them. That cannot be prevented
//! here. What can be is the worst of it, and the rest can be said:
//!
//! - A copy of SQLite that finds nobody on a `-shm` cuts it to nothing, and whoever
//!   has it mapped dies by SIGBUS. And one that finds nobody on the database when
//!   it closes it takes the live write-ahead log away. [`Use`] holds locks on both
//!   that belong to a descriptor, not to the process: every other copy sees
//!   somebody, and no close of another descriptor drops them.
//! - [`look`] finds a second copy, and locks that were dropped.

use crate::sync::{ProcessMutex, lock_process};
use std::cell::Cell;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::sys::{self, NotInChild, PerProcess};

/// The byte of a `-shm` that every connection holds a read lock on, and that is
/// locked for writing by who cuts the file ("dead man's switch").
const DMS: Range<i64> = 128..129;

/// The bytes of a database file in WAL mode that every connection holds a read
/// lock on, and that are locked for writing by who takes the log away.
const SHARED: Range<i64> = 0x4000_0002..0x4000_0002 + 510;

/// Device and inode.
type Key = (u64, u64);

/// The SQLite files that this library has open in this process.
static FILES: PerProcess<ProcessMutex<HashMap<Key, Arc<ProcessMutex<OneFile>>>>> =
    PerProcess::new();

/// What is closed only when the library has no connection to the file: closing
/// it before would drop the locks of the others.
#[derive(Default)]
struct OneFile {
    users: usize,
    /// Those of them that have not left.
    staying: usize,
    guards: Vec<Guard>,
    parked: Vec<Box<dyn Send>>,
}

impl OneFile {
    fn set_guards(&self, set: fn(&File, Range<i64>) -> io::Result<()>) {
        for guard in &self.guards {
            if let Err(problem) = set(&guard.held, guard.bytes.clone()) {
                log::debug!(target: "store", "a file is not kept from another SQLite: {problem}");
            }
        }
    }
}

/// A lock of its own descriptor.
struct Guard {
    file: Key,
    bytes: Range<i64>,
    // Dropped in this order: a child must not find the number of a closed descriptor.
    _in_child: NotInChild,
    held: File,
}

/// The library uses a database file. Begun before the connection is opened, and
/// dropped after it is closed.
pub(crate) struct Use {
    left: Cell<bool>,
    key: Key,
    file: Arc<ProcessMutex<OneFile>>,
    path: PathBuf,
}

impl Use {
    /// Begins to use the database that is at `path` and is the file `key`.
    pub(crate) fn begin(path: &Path, key: (u64, u64)) -> Use {
        let file = Arc::clone(lock_process(FILES.get()).entry(key).or_default());
        {
            let mut file = lock_process(&file);
            file.users += 1;
            file.staying += 1;
            if file.staying == 1 {
                file.set_guards(sys::lock_for_reading);
            }
        }
        let own = Use {
            left: Cell::new(false),
            key,
            file,
            path: path.to_owned(),
        };
        own.guard_shm();
        own
    }

    /// Keeps the `-shm` that is there from being cut. Called again when the
    /// connection has read, which makes one where there was none.
    pub(crate) fn guard_shm(&self) {
        self.guard(&beside(&self.path, "-shm"), DMS);
    }

    /// Keeps the log from being taken away. Only for a database that is in WAL mode,
    /// where every connection holds this lock all the time.
    pub(crate) fn guard_log(&self) {
        let found = fs::metadata(&self.path).map(|found| (found.dev(), found.ino()));
        if found.is_ok_and(|key| key == self.key) {
            self.guard(&self.path, SHARED);
        }
    }

    fn guard(&self, path: &Path, bytes: Range<i64>) {
        let Ok(found) = fs::metadata(path) else {
            return;
        };
        let key = (found.dev(), found.ino());
        // The lock of this file alone: who waits for it wants the same file.
        let mut file = lock_process(&self.file);
        if file.guards.iter().any(|guard| guard.file == key) {
            return;
        }
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path);
        let Ok(opened) = opened else { return };
        // Kept in any case: closing it here would drop the locks of this process.
        file.guards.push(Guard {
            file: key,
            bytes,
            _in_child: NotInChild::guard(&opened),
            held: opened,
        });
        if file.staying > 0 {
            file.set_guards(sys::lock_for_reading);
        }
    }

    /// Says that the connection is about to be closed. The last one takes the
    /// write-ahead log away, which it does only when nobody is on the `-shm`.
    pub(crate) fn leave(&self) {
        if !self.left.replace(true) {
            let mut file = lock_process(&self.file);
            file.staying -= 1;
            if file.staying == 0 {
                file.set_guards(sys::unlock);
            }
        }
    }

    /// Keeps what holds a descriptor of the file until nobody uses the file any more.
    pub(crate) fn park(&self, held: impl Send + 'static) {
        lock_process(&self.file).parked.push(Box::new(held));
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.leave();
        {
            let mut file = lock_process(&self.file);
            file.users -= 1;
            if file.users == 0 {
                file.parked.clear();
                file.guards.clear();
            }
        }
        let mut files = lock_process(FILES.get());
        // Here and in the map: nobody else has it, and nobody can get it now.
        if Arc::strong_count(&self.file) == 2 {
            files.remove(&self.key);
        }
    }
}

/// What else in this process endangers a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Danger {
    /// Another copy of SQLite has the database open.
    pub another_sqlite: bool,
    /// The locks of this library's connections are gone.
    pub locks_dropped: bool,
}

/// Looks for what endangers the database at `path`, which has a connection of
/// this library that has read. Where the system does not tell, nothing is found.
pub(crate) fn look(path: &Path) -> Danger {
    let look = || -> io::Result<Danger> {
        let maps = BufReader::new(File::open("/proc/self/maps")?);
        let locks = BufReader::new(File::open("/proc/locks")?);
        let database = fs::metadata(path)?.ino();
        let shm = beside(path, "-shm");
        let shm_inode = match fs::metadata(&shm) {
            Ok(found) => found.ino(),
            // Taken away under the connection, which needs that its locks were gone.
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => {
                return Ok(Danger {
                    locks_dropped: true,
                    ..Danger::default()
                });
            }
            Err(problem) => return Err(problem),
        };
        Ok(Danger {
            // SQLite maps the file once a process; each copy of SQLite does.
            another_sqlite: first_mappings(maps, &shm, shm_inode)? > 1,
            locks_dropped: !holds_lock(locks, sys::process_id(), database)?,
        })
    };
    look().unwrap_or_default()
}

/// How often the beginning of the file of this name and inode is mapped. The
/// path may lead to it over links, and the device be another layer's.
fn first_mappings(mut maps: impl BufRead, file: &Path, inode: u64) -> io::Result<usize> {
    let name = file.file_name().unwrap_or_default().as_bytes();
    let inode = inode.to_string();
    let mut count = 0;
    let mut line = Vec::new();
    while maps.read_until(b'\n', &mut line)? > 0 {
        // from-to, permissions, offset, device, inode, and a path of any bytes.
        if let [head @ .., b'\n'] = &line[..]
            && let Some(head) = head.strip_suffix(name)
            && head.ends_with(b"/")
        {
            let mut words = head.split(|b| *b == b' ').filter(|word| !word.is_empty());
            let at_start = words.nth(2).is_some_and(|at| at.iter().all(|b| *b == b'0'));
            count += usize::from(at_start && words.nth(1) == Some(inode.as_bytes()));
        }
        line.clear();
    }
    Ok(count)
}

/// Whether the process holds the lock that a connection to the database holds.
/// `true` also where no lock of the process is shown at all.
fn holds_lock(locks: impl BufRead, process: u32, database: u64) -> io::Result<bool> {
    let (process, database) = (process.to_string(), format!(":{database}"));
    let mut shown = false;
    for line in locks.lines() {
        let line = line?;
        // number, kind, ADVISORY, READ or WRITE, process, device:inode, first and last byte.
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "POSIX", _, _, of, file, first, last] = words[..] else {
            shown |= words.get(4) == Some(&process.as_str());
            continue;
        };
        if of != process {
            continue;
        }
        shown = true;
        let covers = |first: i64| {
            let end = last.parse::<i64>().unwrap_or(i64::MAX);
            (first..=end).contains(&SHARED.start)
        };
        if file.ends_with(&database) && first.parse().is_ok_and(covers) {
            return Ok(true);
        }
    }
    Ok(!shown)
}

fn beside(path: &Path, what: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(what);
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_counted_where_the_file_begins() {
        let maps = "\
7f0000000000-7f0000008000 rw-s 00000000 08:01 42                         /tmp/a b.db-shm
7f0000008000-7f0000010000 rw-s 00008000 08:01 42                         /tmp/a b.db-shm
7f0000010000-7f0000018000 rw-s 00000000 08:01 43                         /tmp/c.db-shm
7f0000020000-7f0000028000 rw-p 00000000 00:00 0
7f0000030000-7f0000038000 rw-s 00000000 08:01 42                         /tmp/a b.db-shm
";
        let count =
            |name: &str, inode| first_mappings(maps.as_bytes(), Path::new(name), inode).unwrap();
        assert_eq!(count("/tmp/a b.db-shm", 42), 2);
        assert_eq!(count("/by/a/link/a b.db-shm", 42), 2);
        assert_eq!(count("/tmp/b.db-shm", 42), 0, "a name is whole");
        assert_eq!(count("/tmp/c.db-shm", 43), 1);
        assert_eq!(count("/tmp/c.db-shm", 42), 0, "another file of the name");
    }

    #[test]
    fn a_lock_is_that_of_this_process_on_this_file_and_byte() {
        let locks = "\
1: POSIX  ADVISORY  READ 7 08:01:42 1073741826 1073742335
2: POSIX  ADVISORY  READ 8 08:01:142 1073741826 1073742335
3: POSIX  ADVISORY  READ 8 08:01:43 128 128
4: OFDLCK ADVISORY  READ -1 08:01:43 128 128
5: FLOCK  ADVISORY  WRITE 9 08:01:44 0 EOF
6: POSIX  ADVISORY  WRITE 10 08:01:42 0 EOF
";
        let holds = |process, database| holds_lock(locks.as_bytes(), process, database).unwrap();
        assert!(holds(7, 42));
        assert!(holds(10, 42), "up to the end");
        assert!(
            !holds(8, 42),
            "another process's, and an inode that ends the same"
        );
        assert!(!holds(8, 43), "another byte");
        assert!(!holds(9, 42), "it is shown to hold others alone");
        assert!(holds(11, 42), "it is not shown at all");
    }

    #[test]
    fn what_is_parked_goes_with_the_last_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        fs::write(&path, "").unwrap();
        fs::write(beside(&path, "-shm"), [0; 256]).unwrap();
        let found = fs::metadata(&path).unwrap();
        let key = (found.dev(), found.ino());
        let held = Arc::new(());
        let guards = || {
            lock_process(FILES.get())
                .get(&key)
                .map(|file| lock_process(file).guards.len())
        };
        let first = Use::begin(&path, key);
        let second = Use::begin(&path, key);
        second.guard_shm();
        assert_eq!(guards(), Some(1), "once a -shm");
        second.guard_log();
        assert_eq!(guards(), Some(2));
        first.park(Arc::clone(&held));
        drop(first);
        assert_eq!(Arc::strong_count(&held), 2, "somebody uses the file");
        assert_eq!(guards(), Some(2));
        drop(second);
        assert_eq!((Arc::strong_count(&held), guards()), (1, None));
    }
}
