//! The reading connections: at most three, opened when they are first needed.

use std::sync::{Condvar, Mutex};

use rusqlite::Connection;

use super::{Identity, OpenFile, Options, fault, lock, open};
use crate::contract::{Error, Result};

const MOST: usize = 3;

pub(super) struct Readers {
    options: Options,
    pool: Mutex<Pool>,
    returned: Condvar,
}

#[derive(Default)]
struct Pool {
    idle: Vec<OpenFile>,
    lent: usize,
    closed: bool,
}

impl Readers {
    pub(super) fn new(options: Options) -> Readers {
        Readers {
            options,
            pool: Mutex::default(),
            returned: Condvar::new(),
        }
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
        at_path: Identity,
        work: impl FnOnce(&Connection) -> Result<T>,
    ) -> Result<T> {
        self.alone(at_path, |conn| {
            conn.prepare_cached("BEGIN")
                .and_then(|mut begin| begin.execute([]))
                .map_err(fault)?;
            let read = work(conn);
            conn.prepare_cached("COMMIT")
                .and_then(|mut commit| commit.execute([]))
                .map_err(fault)?;
            read
        })
    }

    /// Runs `work` on a connection of the pool, outside a transaction.
    pub(super) fn alone<T>(
        &self,
        at_path: Identity,
        work: impl FnOnce(&Connection) -> Result<T>,
    ) -> Result<T> {
        let lent = self.borrow(at_path)?;
        let file = lent.file.as_ref().ok_or_else(Error::closed)?;
        let done = work(&file.conn);
        if !file.is_valid(&self.options.path) {
            return Err(Error::busy(
                "another process began to use the database while it was read",
            ));
        }
        done
    }

    /// Closes what is idle, and what is lent when it comes back.
    pub(super) fn close(&self) {
        let mut pool = lock(&self.pool);
        pool.closed = true;
        pool.idle.clear();
        self.returned.notify_all();
    }

    fn borrow(&self, at_path: Identity) -> Result<Lent<'_>> {
        let mut pool = lock(&self.pool);
        loop {
            if pool.closed {
                return Err(Error::closed());
            }
            // A connection to a file that is no longer at the path reads the past.
            let path = &self.options.path;
            pool.idle
                .retain(|file| file.identity == at_path && file.is_valid(path));
            if let Some(file) = pool.idle.pop() {
                pool.lent += 1;
                return Ok(Lent {
                    readers: self,
                    file: Some(file),
                });
            }
            if pool.lent < MOST {
                pool.lent += 1;
                break;
            }
            pool = self
                .returned
                .wait(pool)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        drop(pool);
        let mut lent = Lent {
            readers: self,
            file: None,
        };
        lent.file = Some(open::reader(&self.options, false)?);
        Ok(lent)
    }
}

/// A connection on loan; it goes back to the pool whatever happens to its user.
struct Lent<'a> {
    readers: &'a Readers,
    file: Option<OpenFile>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let file = self.file.take().filter(|file| {
            // What failed or panicked half-way left its transaction open.
            file.conn.is_autocommit() || file.conn.execute_batch("ROLLBACK").is_ok()
        });
        let mut pool = lock(&self.readers.pool);
        pool.lent -= 1;
        if !pool.closed {
            pool.idle.extend(file);
        }
        drop(pool);
        self.readers.returned.notify_one();
    }
}
