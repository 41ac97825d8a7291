//! The C ABI: every exported function, and nothing else that a host can reach.
//!
//! Here is all `unsafe` of the crate but for `sys.rs`. Pointers from the host
//! are read once, at the edge; a handle is a key and never dereferenced; a
//! panic becomes an `internal` reply.
#![allow(unsafe_code)]

mod exports;
mod guard;
mod logging;
mod registry;

pub use exports::*;

#[cfg(test)]
mod tests;
