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
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod key;
mod log;
mod sharing;
mod signal;
mod store;
mod sync;
mod sys;
mod tools;
mod upstream;
mod watch;

pub use contract::{
    AckNotices, AckedNotice, Acknowledged, ActorType, Adopt, Adopted, Backup, BackupReply,
    Baseline, Catalog, CatalogScans, ChangesReply, ChangesSince, Code, Config, Deleted, Discover,
    Discovered, DrainNotices, Drained, Durability, Error, Event, EventsReply, EventsRequest, Feed,
    FileEvents, HandleRow, Inspection, Kind, KindSet, Link, LinksReply, LinksRequest, Maintained,
    MonitorConfig, NewEvent, Notice, Outcome, OutcomeKind, OwnMessage, Payload, Provenance,
    PublicPayload, Queued, Recorded, Released, Remembered, Reset, Result, Retention, Roots,
    RunActive, RunMark, Scan, Scanned, SessionDelete, SessionRef, SessionReset, SessionRow,
    SessionsAfter, SessionsReply, SessionsRequest, SetRunActive, StateChanges, StateVersion,
    StateVersions, StateVersionsReply, Stats, Tally, ToolFormat, ToolSchemas, ToolSchemasReply,
    Unrecorded, Unwatch, Unwatched, UpstreamSession, WaitWakes, Wake, WakeConfig, Wakes, Watch,
    WatchReply, WatchRow, Watches, WatchesReply,
};
pub use engine::{Awareness, WakeHandler};
