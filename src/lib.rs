//! The memory that lets sessions of a multi-agent gateway notice when someone
//! else stepped in.
//!
//! A manager hands work to a child session. A person types straight into that
//! child. The manager's picture is now wrong, and nobody tells it. This library
//! records the step-in as a typed event in a durable log, tells each session that
//! watches **once**, and gives it an exact delta to reconcile from. It also watches
//! the session files of Claude Code, Codex, OpenCode and Pi, so that a person who
//! goes back to their terminal is noticed too.
//!
//! [`Awareness`] is the whole of it for a Rust host: open one when the gateway
//! starts, share it among threads, close it last. Hosts in other languages use the
//! same through the C ABI of `include/session_awareness.h`, which [`abi`] exports.
//!
//! # The story
//!
//! ```
//! use session_awareness::*;
//!
//! # fn main() -> Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("awareness.db");
//! let aware = Awareness::open(Config::new(path.to_str().unwrap()))?;
//! let (manager, child) = ("agent:main:main", "agent:main:subagent:child");
//!
//! // The manager spawns a child, and so watches it from here on.
//! let spawned = aware.record(NewEvent {
//!     actor_id: Some(manager.into()),
//!     watcher_session_keys: Some(vec![manager.into()]),
//!     ..NewEvent::new(child, Kind::ChildSpawned, ActorType::Agent)
//! })?;
//!
//! // A person writes to the child. A wake asks for a turn of the manager.
//! aware.record(NewEvent::new(child, Kind::HumanDirectMessage, ActorType::Human))?;
//! let woken = aware.wait_wakes(WaitWakes { timeout_ms: 1_000, max: None })?;
//! assert_eq!(woken.wakes[0].session_key, manager);
//!
//! // In that turn its prompt gets one line, and the agent asks for what it missed.
//! let drained = aware.drain_notices(DrainNotices::new(manager))?;
//! let notice = &drained.notices[0];
//! assert_eq!(Some(notice.changes_since), spawned.event().map(|event| event.sequence));
//! let changes = aware.changes_since(ChangesSince::new(child, notice.changes_since))?;
//! assert!(!changes.state_changes.history_gap);
//! assert_eq!(changes.state_changes.events[0].summary, "human message via unknown");
//! # aware.close()
//! # }
//! ```
//!
//! # Concepts
//!
//! - A **session** is known by its key. `agent:<agentId>:<rest>` names its agent; a
//!   bare key like `global` belongs to the agent given beside it, else to `main`.
//! - An **event** is a typed change of a session ([`Kind`]) by a person, an agent or
//!   the system, with a line of summary and no message text. Its **sequence** rises
//!   over the whole database; a session's **state version** is its last one, and
//!   outlives what is pruned.
//! - A **watch** is a cursor of a watcher on a target with three watermarks,
//!   `lastSeen ≤ notified ≤ material`. A **notice** is open while `notified` is above
//!   `lastSeen`: at most one a pair, whatever happens meanwhile. Draining moves the
//!   cursor; what came in between opens exactly one more.
//! - A **wake** asks the host for a turn of a watcher, once a notice. It crosses
//!   processes. Wait for it ([`Awareness::wait_wakes`]), poll a descriptor
//!   ([`Awareness::wake_fd`]), or be called ([`Awareness::set_wake_handler`]).
//! - A **delta** ([`Awareness::changes_since`]) is what happened after a version, from
//!   one snapshot. A **gap** says that events in it were pruned.
//! - A **link** ties a session to a terminal agent's own one ([`Awareness::adopt`]);
//!   what a person types there becomes an event like any other.
//!
//! # Promises
//!
//! A process killed at any instant loses nothing that was answered and tells nothing
//! twice. A failing disk, a damaged file and hostile input are errors, never a crash.
//! `docs/reliability.md` says how each promise is tested, `docs/hosts.md` where in a
//! gateway's life to call what, `docs/performance.md` what it costs.
//!
//! # Limits
//!
//! - Linux with glibc on x86_64 and aarch64; macOS builds. Local disks only.
//! - 30 days and 50,000 events by default ([`Retention`]).
//! - An id has at most 512 bytes, a summary 200 characters, a payload 4 KiB, a batch
//!   1,000 events. Message text belongs in none of them.
//! - A handle does not outlive a `fork`: in the child it is [`Code::Closed`].
//! - Never open the database file from the host's own process by any other means: a
//!   second copy of SQLite that opens and closes it drops this library's locks and
//!   can delete its live write-ahead log. What a host wants to read has a method, and
//!   [`Awareness::backup`] copies the file.

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
    FileEvents, HandleRow, Inspection, Kind, KindSet, Link, LinkFault, LinksReply, LinksRequest,
    Maintained, MonitorConfig, NewEvent, Notice, Outcome, OutcomeKind, OwnMessage, Payload,
    Provenance, PublicPayload, Queued, Recorded, Released, Remembered, Reset, Result, Retention,
    Roots, RunActive, RunMark, Scan, Scanned, SessionDelete, SessionRef, SessionReset, SessionRow,
    SessionsAfter, SessionsReply, SessionsRequest, SetRunActive, StateChanges, StateVersion,
    StateVersions, StateVersionsReply, Stats, Tally, ToolFormat, ToolSchemas, ToolSchemasReply,
    Unrecorded, Unwatch, Unwatched, UpstreamSession, WaitWakes, Wake, WakeConfig, Wakes, Watch,
    WatchReply, WatchRow, Watches, WatchesReply,
};
pub use engine::{Awareness, WakeHandler};
