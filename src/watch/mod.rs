//! Watchers: their cursors, the notices these stand for, and wakes.

mod cursor;
mod notice;
mod register;
mod wakes;

#[cfg(test)]
pub(crate) use notice::text_of;
pub(crate) use notice::{ack, drain};
pub(crate) use register::{announce, reset, session_deleted, sweep, unwatch, watch, watches};
pub(crate) use wakes::Wakes;
