//! Locks, conditions and threads, in one place so that tests can put others in
//! theirs: the models of races (the feature `models`) shuttle's, so that the
//! same code runs under every order of its threads that shuttle thinks of; a
//! build for ThreadSanitizer (`tsan`, set by build.rs) locks that it sees into, which it
//! does not into those of a standard library built without it.

#[cfg(tsan)]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(all(test, feature = "models"))]
pub(crate) use shuttle::{
    sync::{Arc, Condvar, Mutex, MutexGuard, Weak},
    thread,
};
#[cfg(not(any(tsan, all(test, feature = "models"))))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(all(test, feature = "models")))]
pub(crate) use std::{
    sync::{Arc, Weak},
    thread,
};

#[cfg(not(tsan))]
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

/// A lock of what belongs to the process and outlives a model, which shuttle's
/// locks do not.
#[cfg(tsan)]
pub(crate) use parking_lot::{Mutex as ProcessMutex, MutexGuard as ProcessGuard};
#[cfg(not(tsan))]
pub(crate) use std::sync::{Mutex as ProcessMutex, MutexGuard as ProcessGuard};

/// As [`lock`]. Nothing that waits for another thread may be done while it is held.
pub(crate) fn lock_process<T>(mutex: &ProcessMutex<T>) -> ProcessGuard<'_, T> {
    #[cfg(tsan)]
    return mutex.lock();
    #[cfg(not(tsan))]
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock_process`], without waiting; `None` when another has it.
pub(crate) fn try_lock_process<T>(mutex: &ProcessMutex<T>) -> Option<ProcessGuard<'_, T>> {
    #[cfg(tsan)]
    return mutex.try_lock();
    #[cfg(not(tsan))]
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Takes a lock; what a panic left behind it is still whole, since every
/// guarded change here is a single step.
#[cfg(not(tsan))]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], without waiting; `None` when another has it.
#[cfg(not(tsan))]
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Gives the lock away until `told` is told.
#[cfg(not(tsan))]
pub(crate) fn wait<'a, T>(told: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    told.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// As [`wait`], for `most` at the longest.
#[cfg(not(tsan))]
pub(crate) fn wait_up_to<'a, T>(
    told: &Condvar,
    guard: MutexGuard<'a, T>,
    most: Duration,
) -> MutexGuard<'a, T> {
    told.wait_timeout(guard, most)
        .unwrap_or_else(PoisonError::into_inner)
        .0
}

#[cfg(tsan)]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(tsan)]
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    mutex.try_lock()
}

#[cfg(tsan)]
pub(crate) fn wait<'a, T>(told: &Condvar, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    told.wait(&mut guard);
    guard
}

#[cfg(tsan)]
pub(crate) fn wait_up_to<'a, T>(
    told: &Condvar,
    mut guard: MutexGuard<'a, T>,
    most: Duration,
) -> MutexGuard<'a, T> {
    told.wait_for(&mut guard, most);
    guard
}

/// Runs a model of threads: under `orders` of the orders they can run in where
/// shuttle leads them (`ORDERS` times as many), else `times` times as they come.
#[cfg(test)]
pub(crate) fn explore(orders: usize, times: usize, model: impl Fn() + Send + Sync + 'static) {
    #[cfg(feature = "models")]
    {
        let _ = times;
        let mut config = shuttle::Config::new();
        // SQLite runs on it.
        config.stack_size = 1 << 20;
        let many = std::env::var("ORDERS").ok().and_then(|n| n.parse().ok());
        let scheduler = shuttle::scheduler::RandomScheduler::new(orders * many.unwrap_or(1));
        shuttle::Runner::new(scheduler, config).run(model);
    }
    #[cfg(not(feature = "models"))]
    {
        let _ = orders;
        (0..times).for_each(|_| model());
    }
}

/// A folder for a model's database, in memory where that is to be had.
#[cfg(test)]
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Panics as a fault of the library would, without a word on stderr.
#[cfg(test)]
pub(crate) fn fail() -> ! {
    std::panic::resume_unwind(Box::new("a fault of the library"))
}
