//! Pruning, in steps small enough that nobody waits long for one.

use crate::contract::{Error, Maintained, Result, Retention};
use crate::store::{Tx, cursors, events, links};

/// The most rows of each table one step deletes.
const STEP: usize = 1_000;

/// What is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub max_age_ms: i64,
    pub max_events: u64,
}

impl Limits {
    /// The limits of a config; an error names the field.
    pub(crate) fn check(retention: Retention) -> Result<Limits> {
        for (field, value) in [
            ("retention.maxAgeMs", retention.max_age_ms),
            ("retention.maxEvents", retention.max_events),
        ] {
            if value == Some(0) {
                return Err(Error::invalid(field, "at least 1"));
            }
        }
        Ok(Limits {
            max_age_ms: retention.max_age_ms.unwrap_or(30 * 24 * 60 * 60 * 1_000) as i64,
            max_events: retention.max_events.unwrap_or(50_000),
        })
    }

    /// The time before which things are too old.
    pub(crate) fn cutoff(&self, now: i64) -> i64 {
        now - self.max_age_ms
    }
}

/// One step of pruning: what is too old, and of the events what is not above
/// `floor`; whether another one would find more, and what went.
pub(crate) fn prune_step(tx: &Tx<'_>, limits: &Limits, floor: u64) -> Result<(bool, Maintained)> {
    // The pruning thread checkpoints between its steps.
    tx.leave_log();
    let cutoff = limits.cutoff(tx.now());
    let (through, count) = events::prunable(tx.conn()?, cutoff, floor, STEP)?;
    let pruned_events = if count == 0 {
        0
    } else {
        events::prune_through(tx, through)?
    };
    let pruned_cursors = cursors::prune(tx, cutoff, STEP)?;
    let pruned_turns = links::prune(tx, cutoff, STEP)?;
    Ok((
        pruned_events >= STEP || pruned_cursors >= STEP || pruned_turns >= STEP,
        Maintained {
            pruned_events: pruned_events as u64,
            pruned_cursors: pruned_cursors as u64,
        },
    ))
}
