//! Locks, conditions and threads, in one place so that the models of races
//! (the feature `models`, in tests) can put shuttle's in theirs: the same code
//! then runs under every order of its threads that shuttle thinks of.

#[cfg(not(all(test, feature = "models")))]
pub(crate) use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
};

#[cfg(all(test, feature = "models"))]
pub(crate) use shuttle::{
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
};

use std::sync::PoisonError;
use std::time::Duration;

/// Takes a lock; what a panic left behind it is still whole, since every
/// guarded change here is a single step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the lock away until `told` is told.
pub(crate) fn wait<'a, T>(told: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    told.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// As [`wait`], for `most` at the longest.
pub(crate) fn wait_up_to<'a, T>(
    told: &Condvar,
    guard: MutexGuard<'a, T>,
    most: Duration,
) -> MutexGuard<'a, T> {
    told.wait_timeout(guard, most)
        .unwrap_or_else(PoisonError::into_inner)
        .0
}

/// Runs a model of threads: under `orders` of the orders they can run in where
/// shuttle leads them, else `times` times as they come.
#[cfg(test)]
pub(crate) fn explore(orders: usize, times: usize, model: impl Fn() + Send + Sync + 'static) {
    #[cfg(feature = "models")]
    {
        let _ = times;
        let mut config = shuttle::Config::new();
        // SQLite runs on it.
        config.stack_size = 1 << 20;
        let scheduler = shuttle::scheduler::RandomScheduler::new(orders);
        shuttle::Runner::new(scheduler, config).run(model);
    }
    #[cfg(not(feature = "models"))]
    {
        let _ = orders;
        (0..times).for_each(|_| model());
    }
}

/// Panics as a fault of the library would, without a word on stderr.
#[cfg(test)]
pub(crate) fn fail() -> ! {
    std::panic::resume_unwind(Box::new("a fault of the library"))
}
