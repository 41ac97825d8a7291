//! The memory that lets sessions of a multi-agent gateway notice when someone
//! else stepped in.
//!
//! A manager hands work to a child session; a person types straight into that
//! child; the manager's picture is now wrong. This library records that as a
//! typed event in a durable log, tells the manager once, and gives it an exact
//! delta to reconcile from.
//!
//! [`Awareness`] is the whole of it for a Rust host. Hosts in other languages
//! use the same through the C ABI of `include/session_awareness.h`.
//!
//! Never open the database file from the host's own process by any other
//! means: a second copy of SQLite that opens and closes it drops this
//! library's locks and can delete its live write-ahead log. What a host wants
//! to read has a method, and [`Awareness::backup`] copies the file.

pub mod abi;
mod backup;
mod contract;
mod engine;
mod files;
mod key;
mod log;
mod store;
mod sys;
mod watch;

pub use contract::{
    AckNotices, AckedNotice, Acknowledged, ActorType, Backup, BackupReply, ChangesReply,
    ChangesSince, Code, Config, Deleted, DrainNotices, Drained, Durability, Error, Event,
    EventsReply, EventsRequest, Kind, KindSet, Maintained, MonitorConfig, NewEvent, Notice,
    Payload, Provenance, PublicPayload, Queued, Recorded, Reset, Result, Retention, Roots,
    SessionDelete, SessionRef, SessionReset, SessionRow, SessionsAfter, SessionsReply,
    SessionsRequest, StateChanges, StateVersion, StateVersions, StateVersionsReply, Stats,
    Unrecorded, Unwatch, Unwatched, WaitWakes, Wake, WakeConfig, Wakes, Watch, WatchReply,
    WatchRow, Watches, WatchesReply,
};
pub use engine::{Awareness, WakeHandler};
