//! Locks, conditions and threads, in one place so that the models of races
//! (the feature `models`, in tests) can put shuttle's in theirs: the same code
//! then runs under every order of its threads that shuttle thinks of.

#[cfg(not(all(test, feature = "models")))]
pub(crate) use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, Weak},
    thread,
};

#[cfg(all(test, feature = "models"))]
pub(crate) use shuttle::{
    sync::{Arc, Condvar, Mutex, MutexGuard, Weak},
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
