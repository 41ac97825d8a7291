//! Whether others write beside this connection, who are to come to their turn.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::owed::data_version;
use crate::contract::Result;
use crate::sys::Kept;

/// Other connections that write, of this process or another.
#[derive(Default)]
pub(super) struct Company {
    version: Cell<Option<i64>>,
    last: Cell<Option<Instant>>,
}

/// For how long who wrote is thought to go on: opening a handle is a write too.
const COMPANY: Duration = Duration::from_secs(60);

impl Company {
    /// Whether another connection wrote of late.
    pub(super) fn is_there(&self, conn: &Kept) -> Result<bool> {
        let now = data_version(conn)?;
        if self
            .version
            .replace(Some(now))
            .is_some_and(|last| last != now)
        {
            self.last.set(Some(Instant::now()));
        }
        Ok(self.last.get().is_some_and(|at| at.elapsed() < COMPANY))
    }
}
