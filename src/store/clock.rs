//! The local clock, which may be set to any time at any moment. What is stored
//! bears its time; how long something takes or waits is never counted with it.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::contract::MAX_NUMBER;

/// Where a store takes the time from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// A clock that a test sets, ms since the epoch.
    #[cfg(test)]
    pub(crate) hands: Option<std::sync::Arc<std::sync::atomic::AtomicI64>>,
}

impl Clock {
    /// Milliseconds since the epoch. What the contract has no number for, a
    /// time before the epoch or hundreds of thousands of years after it, is
    /// the nearest that it has one for.
    pub(crate) fn now_ms(&self) -> i64 {
        self.shown_ms().clamp(0, MAX_NUMBER)
    }

    fn shown_ms(&self) -> i64 {
        #[cfg(test)]
        if let Some(hands) = &self.hands {
            return hands.load(std::sync::atomic::Ordering::SeqCst);
        }
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}
