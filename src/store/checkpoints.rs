//! When the write-ahead log is moved into the database, with `durability: "process"`.
//!
//! SQLite does it inside the commit that finds the log long, and whoever commits
//! waits for the disk. Here the upkeep thread does it meanwhile. A log that is
//! written all the time is never moved whole by another, though, and then never
//! begins anew: so a commit that finds it longer still does what is left.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;
use rusqlite::hooks::Wal;
use rusqlite::wal::CheckpointMode;

use super::fault;
use crate::contract::Result;

/// How many pages the log has when it is due to be moved; SQLite's own number.
pub(super) const PAGES: c_int = 1_000;
/// How many pages it may have before a commit moves it. Few: to find a page that
/// is in the log a thousand times SQLite passes over all of them.
pub(super) const MOST_PAGES: c_int = 2_000;

/// Whether the log of a writer is to be moved, and by whom.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    due: AtomicBool,
    quiet: AtomicBool,
}

impl Checkpoints {
    /// Takes over from SQLite when the log is moved.
    pub(super) fn take_over(conn: &mut Connection) -> Result<Arc<Checkpoints>> {
        let checkpoints = Arc::new(Checkpoints::default());
        let hooked = Arc::clone(&checkpoints);
        let mut log = Log::default();
        conn.wal_hook(Some(move |wal: &mut Wal, pages| {
            let quiet = hooked.quiet.load(Ordering::Relaxed);
            match log.grown_to(pages, quiet) {
                Some(By::Commit) => {
                    // Somebody else may be at it, or a reader need the log.
                    let _ = wal.checkpoint_v2(CheckpointMode::PASSIVE);
                }
                Some(By::Upkeep) => hooked.due.store(true, Ordering::Relaxed),
                None => {}
            }
            // What was committed is committed.
            Ok(())
        }))
        .map_err(fault)?;
        Ok(checkpoints)
    }

    /// Whether the log became due to be moved since this was asked.
    pub(super) fn take_due(&self) -> bool {
        self.due.swap(false, Ordering::Relaxed)
    }

    /// Sets whether commits leave the log alone however long it is.
    pub(super) fn set_quiet(&self, quiet: bool) {
        self.quiet.store(quiet, Ordering::Relaxed);
    }
}

/// Who is to move the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Commit,
    Upkeep,
}

/// How long the log is, in pages.
#[derive(Debug, Default)]
struct Log {
    pages: c_int,
    /// How long it was when the upkeep thread was last told.
    told: c_int,
    /// How much of it is of commits that do not leave it to others.
    own: c_int,
}

impl Log {
    fn grown_to(&mut self, pages: c_int, quiet: bool) -> Option<By> {
        if pages < self.pages {
            // It began anew.
            *self = Log::default();
        }
        let grown = pages - self.pages;
        self.pages = pages;
        if !quiet {
            self.own = self.own.saturating_add(grown);
            if self.own >= MOST_PAGES {
                return Some(By::Commit);
            }
        }
        if pages - self.told >= PAGES {
            self.told = pages;
            return Some(By::Upkeep);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upkeep_thread_is_told_once_a_thousand_pages_and_a_commit_steps_in_late() {
        let mut log = Log::default();
        let told: Vec<_> = (1..=2_100)
            .filter_map(|pages| Some((pages, log.grown_to(pages, false)?)))
            .collect();
        let (upkeep, commit) = told.split_at(1);
        assert_eq!(upkeep, [(1_000, By::Upkeep)]);
        assert_eq!(commit.len(), 101, "each tries until the log begins anew");
        assert!(commit.iter().all(|(_, by)| *by == By::Commit));
        assert_eq!(log.grown_to(3, false), None);
        assert_eq!(log.grown_to(1_002, false), Some(By::Upkeep));
    }

    #[test]
    fn what_a_quiet_commit_leaves_is_for_the_upkeep_thread() {
        let mut log = Log::default();
        assert_eq!(log.grown_to(16_000, true), Some(By::Upkeep));
        assert_eq!(log.grown_to(16_004, false), None);
        assert_eq!(log.grown_to(17_001, false), Some(By::Upkeep));
        assert_eq!(log.grown_to(18_000, false), Some(By::Commit));
    }

    #[test]
    fn quiet_commits_among_others_put_nothing_off_for_ever() {
        let mut log = Log::default();
        let mut pages = 0;
        let moved = (0..1_000).any(|turn| {
            pages += 10;
            log.grown_to(pages, turn % 2 == 0) == Some(By::Commit)
        });
        assert!(moved && pages <= 2 * MOST_PAGES, "{pages}");
    }
}
