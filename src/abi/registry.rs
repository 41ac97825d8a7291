//! Handles: keys into a table, so that a closed, foreign or inherited one is
//! an answer and not a crash.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::exports::aware_t;
use crate::contract::{Error, Result};
use crate::engine::Awareness;
use crate::sys::PerProcess;

type Table = RwLock<HashMap<usize, Arc<Awareness>>>;

/// A child of `fork` has an empty one: its parent's handles are closed to it.
static HANDLES: PerProcess<Table> = PerProcess::new();

/// Never the same key twice, in a forked child neither.
static LAST: AtomicUsize = AtomicUsize::new(0);

pub(super) fn add(aware: Awareness) -> *mut aware_t {
    // Looks like no object's address, so that a debugger is not misled, and is never NULL.
    let key = LAST
        .fetch_add(1, Ordering::Relaxed)
        .wrapping_mul(16)
        .wrapping_add(0xa11);
    HANDLES
        .get()
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(key, Arc::new(aware));
    std::ptr::without_provenance_mut(key)
}

pub(super) fn get(handle: *mut aware_t) -> Result<Arc<Awareness>> {
    HANDLES
        .get()
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&handle.addr())
        .cloned()
        .ok_or_else(Error::closed)
}

pub(super) fn remove(handle: *mut aware_t) -> Result<Arc<Awareness>> {
    HANDLES
        .get()
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .remove(&handle.addr())
        .ok_or_else(Error::closed)
}
