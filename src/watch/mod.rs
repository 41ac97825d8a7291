//! Watchers: their cursors, the notices these stand for, and wakes.

pub(crate) mod cursor;
pub(crate) mod notice;
mod register;
mod wakes;

pub(crate) use notice::{ack, drain};
pub(crate) use register::{announce, reset, session_deleted, sweep, unwatch, watch, watches};
pub(crate) use wakes::Wakes;
