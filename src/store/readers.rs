//! The reading connections: at most three, opened when they are first needed.

use rusqlite::Connection;

use super::faults::{explain, fault};
use super::open::{self, Files, OpenFile};
use super::{Options, lock};
use crate::contract::{Error, Result};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, ProcessMutex, Weak, lock_process, wait};
use crate::sys::{PerProcess, take_read_errno};

const MOST: usize = 3;

pub(super) struct Readers {
    options: Options,
    pool: Mutex<Pool>,
    returned: Condvar,
}

/// Those of every handle of the process.
static ALL: PerProcess<ProcessMutex<Vec<Weak<Readers>>>> = PerProcess::new();

#[derive(Default)]
struct Pool {
    idle: Vec<OpenFile>,
    /// What those that are lent are on.
    lent: Vec<Files>,
    /// None is lent while the writer turns to other files.
    retired: bool,
    /// How many threads wait for one.
    waiting: usize,
    closed: bool,
}

impl Readers {
    pub(super) fn new(options: Options) -> Arc<Readers> {
        let readers = Arc::new(Readers {
            options,
            pool: Mutex::default(),
            returned: Condvar::new(),
        });
        let mut all = lock_process(ALL.get());
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&readers));
        readers
    }

    /// Opens the first connection, so that a database that cannot be read is told at open.
    pub(super) fn check(&self) -> Result<()> {
        let file = open::reader(&self.options, false)?;
        lock(&self.pool).idle.push(file);
        Ok(())
    }

    /// Runs `work` in a read transaction, one snapshot, of the file `at_path`.
    pub(super) fn read<T>(
        &self,
        at_path: Files,
        work: impl FnOnce(&Connection) -> Result<T>,
    ) -> Result<T> {
        self.alone(at_path, |conn| {
            conn.prepare_cached("BEGIN")
                .and_then(|mut begin| begin.execute([]))
                .map_err(fault)?;
            // What fails half-way is rolled back when the connection is given back.
            let read = work(conn)?;
            conn.prepare_cached("COMMIT")
                .and_then(|mut commit| commit.execute([]))
                .map_err(fault)?;
            Ok(read)
        })
    }

    /// Runs `work` on a connection of the pool, outside a transaction.
    pub(super) fn alone<T>(
        &self,
        at_path: Files,
        work: impl FnOnce(&Connection) -> Result<T>,
    ) -> Result<T> {
        let mut lent = self.borrow(at_path)?;
        let file = lent.file.as_ref().ok_or_else(Error::closed)?;
        let done =
            work(&file.conn).map_err(|error| explain(error, Some(&file.conn), &self.options.path));
        if !file.is_valid(&self.options.path) {
            return Err(Error::busy(
                "another process began to use the database while it was read",
            ));
        }
        if done.is_err() && take_read_errno(&file.conn).is_some() {
            // The disk still refuses, which would hide later damage on this connection.
            lent.file = None;
        }
        done
    }

    /// Closes every connection, those that are lent when they come back, and
    /// lends none as long as the answer is kept.
    pub(super) fn retire(&self) -> Retired<'_> {
        let mut pool = lock(&self.pool);
        while pool.retired {
            pool = self.wait(pool);
        }
        pool.retired = true;
        pool.idle.clear();
        while !pool.lent.is_empty() {
            pool = self.wait(pool);
        }
        Retired(self)
    }

    /// Closes what is idle, and what is lent when it comes back.
    pub(super) fn close(&self) {
        let mut pool = lock(&self.pool);
        pool.closed = true;
        pool.idle.clear();
        self.returned.notify_all();
    }

    fn borrow(&self, at_path: Files) -> Result<Lent<'_>> {
        let mut pool = lock(&self.pool);
        loop {
            if pool.closed {
                return Err(Error::closed());
            }
            // The log is cleared away by who writes. A connection is kept meanwhile,
            // so that no other log gets the number of this one.
            let is_of_another = |file: &OpenFile| at_path.has_log_of_another(file.files);
            if self.options.read_only && pool.idle.iter().any(is_of_another) {
                return Err(Error::storage(
                    "the database file was replaced, and the log of the one before is still beside it",
                ));
            }
            // A connection to a file that is no longer at the path reads the past.
            pool.idle
                .retain(|file| file.files == at_path && file.is_valid(&self.options.path));
            if !pool.retired {
                if let Some(file) = pool.idle.pop() {
                    pool.lent.push(at_path);
                    return Ok(Lent {
                        readers: self,
                        at_path,
                        file: Some(file),
                    });
                }
                // One on other files must be closed before one is opened on these.
                if pool.lent.len() < MOST && pool.lent.iter().all(|files| *files == at_path) {
                    pool.lent.push(at_path);
                    break;
                }
            }
            pool = self.wait(pool);
        }
        drop(pool);
        let mut lent = Lent {
            readers: self,
            at_path,
            file: None,
        };
        let file = open::reader(&self.options, false)?;
        if !self.options.read_only {
            // Who only reads may meet a database whose last writer leaves just now.
            file.check_is_of(at_path)?;
        }
        lent.file = Some(file);
        Ok(lent)
    }

    fn wait<'a>(&self, mut pool: MutexGuard<'a, Pool>) -> MutexGuard<'a, Pool> {
        pool.waiting += 1;
        let mut pool = wait(&self.returned, pool);
        pool.waiting -= 1;
        pool
    }
}

/// Closes what is idle in this process on such files.
pub(super) fn let_go(of: impl Fn(Files) -> bool) {
    let all = lock_process(ALL.get()).clone();
    for readers in all.iter().filter_map(Weak::upgrade) {
        lock(&readers.pool).idle.retain(|file| !of(file.files));
    }
}

/// While it is kept, no connection is open or lent.
pub(super) struct Retired<'a>(&'a Readers);

impl Drop for Retired<'_> {
    fn drop(&mut self) {
        lock(&self.0.pool).retired = false;
        self.0.returned.notify_all();
    }
}

/// A connection on loan; it goes back to the pool whatever happens to its user.
struct Lent<'a> {
    readers: &'a Readers,
    at_path: Files,
    file: Option<OpenFile>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let file = self.file.take().filter(|file| {
            // What failed or panicked half-way left its transaction open.
            file.conn.is_autocommit() || file.conn.execute_batch("ROLLBACK").is_ok()
        });
        let mut pool = lock(&self.readers.pool);
        // Closed before it counts as returned: who waits for that relies on it.
        pool.idle.extend(file);
        if pool.closed || pool.retired {
            pool.idle.clear();
        }
        if let Some(at) = pool.lent.iter().position(|files| *files == self.at_path) {
            pool.lent.swap_remove(at);
        }
        // Telling costs a system call.
        let waited_for = pool.waiting > 0;
        drop(pool);
        if waited_for {
            self.readers.returned.notify_all();
        }
    }
}
