//! The types of every request, reply and error: the contract in one place.
//!
//! Each verb of the C ABI takes one JSON object and answers one; the structs
//! here are those objects. Field names are camelCase in JSON. In a request an
//! unknown field is refused and `null` is the same as absent. Nothing here
//! decides anything: limits and rules are checked where they live.

mod config;
mod error;
mod event;
mod inspect;
mod parse;
mod place;
mod read;
pub(crate) mod text;
mod tools;
mod upstream;
mod watch;

pub use config::{Config, Durability, MonitorConfig, Retention, Roots, WakeConfig};
pub(crate) use error::Cause;
pub use error::{Code, Error, Result};
pub use event::{
    ActorType, Batch, Event, Kind, KindSet, NewEvent, Payload, PublicPayload, Queued, RecordReply,
    RecordRequest, Recorded, Unrecorded,
};
pub use inspect::{HandleRow, Inspection, RunMark, Tally};
pub use parse::{MAX_NUMBER, parse};
pub use read::{
    Backup, BackupReply, CatalogScans, ChangesReply, ChangesSince, EventsReply, EventsRequest,
    FileEvents, Maintained, Nothing, SessionRef, SessionRow, SessionsAfter, SessionsReply,
    SessionsRequest, StateChanges, StateVersion, StateVersions, StateVersionsReply, Stats,
};
pub use tools::{ToolFormat, ToolSchemas, ToolSchemasReply};
pub use upstream::{
    Adopt, Adopted, Baseline, Catalog, Discover, Discovered, Feed, Link, LinkFault, LinksReply,
    LinksRequest, Outcome, OutcomeKind, OwnMessage, Released, Remembered, RunActive, Scan, Scanned,
    SetRunActive, UpstreamSession,
};
pub use watch::{
    AckNotices, AckedNotice, Acknowledged, Deleted, DrainNotices, Drained, Notice, Provenance,
    Reset, SessionDelete, SessionReset, Unwatch, Unwatched, WaitWakes, Wake, Wakes, Watch,
    WatchReply, WatchRow, Watches, WatchesReply,
};
