use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::parse::{maybe_object, maybe_whole, objects, whole};
use super::{Event, Kind};

/// The request of verbs that take nothing: `{}`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// A session: its key, and its agent when the key is bare (default `main`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SessionRef {
    /// The session's key.
    pub session_key: String,
    /// Its agent.
    pub agent_id: Option<String>,
}

impl SessionRef {
    /// The session of this key.
    pub fn new(session_key: impl Into<String>) -> SessionRef {
        SessionRef {
            session_key: session_key.into(),
            agent_id: None,
        }
    }
}

/// The request of `state_versions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateVersions {
    /// Which sessions: at most 1,000.
    #[serde(deserialize_with = "objects")]
    pub sessions: Vec<SessionRef>,
}

/// The reply of `state_versions`, in the request's order.
#[derive(Clone, Debug, Serialize)]
pub struct StateVersionsReply {
    /// One version a session.
    pub versions: Vec<StateVersion>,
}

/// How far a session's log has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StateVersion {
    /// The session's key.
    pub session_key: String,
    /// Its agent.
    pub agent_id: String,
    /// The sequence of its last event, pruned or not; 0 when nothing is logged.
    pub state_version: u64,
}

/// The request of `changes_since`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ChangesSince {
    /// The session's key.
    pub session_key: String,
    /// Its agent when the key is bare; default `main`.
    pub agent_id: Option<String>,
    /// Only events above this sequence.
    #[serde(deserialize_with = "whole")]
    pub changes_since: u64,
    /// At most so many: 200 when absent and at the most.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub limit: Option<u64>,
}

impl ChangesSince {
    /// Up to 200 changes of `session_key` above `changes_since`.
    pub fn new(session_key: impl Into<String>, changes_since: u64) -> ChangesSince {
        ChangesSince {
            session_key: session_key.into(),
            changes_since,
            ..ChangesSince::default()
        }
    }
}

/// The reply of `changes_since`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangesReply {
    /// The session's version now.
    pub state_version: u64,
    /// What changed.
    pub state_changes: StateChanges,
}

/// The changes of one session, ascending, from one snapshot of the log.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StateChanges {
    /// The events, without what the caller knows already.
    pub events: Vec<Event>,
    /// Whether an event above `changesSince` was pruned: the delta is not whole, read the session anew.
    pub history_gap: bool,
    /// Whether `limit` left some out.
    pub truncated: bool,
    /// What to ask with next: the last sequence of a truncated page, else the version.
    pub next_changes_since: u64,
    /// Present and true when `changesSince` is above the version: the store was replaced.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub future_cursor: bool,
}

/// The request of `sessions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionsRequest {
    /// The last session of the page before.
    #[serde(default, deserialize_with = "maybe_object")]
    pub after: Option<SessionsAfter>,
    /// At most so many: 200 when absent, 1,000 at the most.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub limit: Option<u64>,
}

/// Where a page of `sessions` begins.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SessionsAfter {
    /// The agent of the last session seen.
    pub agent_id: String,
    /// The key of the last session seen.
    pub session_key: String,
}

/// The reply of `sessions`, by agent, then key.
#[derive(Clone, Debug, Serialize)]
pub struct SessionsReply {
    /// The sessions that have a log.
    pub sessions: Vec<SessionRow>,
    /// Whether there are more behind them.
    pub more: bool,
}

/// A session that has a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionRow {
    /// The session's key.
    pub session_key: String,
    /// Its agent.
    pub agent_id: String,
    /// The sequence of its last event.
    pub state_version: u64,
    /// The highest sequence of it that was pruned: `changes_since` below it has a gap. 0 when none was.
    pub pruned_below: u64,
}

/// The request of `events`; each given field narrows the list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct EventsRequest {
    /// Only events above this sequence; default 0.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub after: Option<u64>,
    /// Only of this session.
    pub session_key: Option<String>,
    /// The session's agent when its key is bare; without a key, only sessions of this agent.
    pub agent_id: Option<String>,
    /// Only of these kinds; absent or empty means all.
    pub kinds: Option<Vec<Kind>>,
    /// At most so many: 200 when absent, 1,000 at the most.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub limit: Option<u64>,
}

/// The reply of `events`: the log over all sessions, ascending.
#[derive(Clone, Debug, Serialize)]
pub struct EventsReply {
    /// The events.
    pub events: Vec<Event>,
    /// Whether there are more behind them.
    pub more: bool,
}

/// The request of `backup`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backup {
    /// The file to make, mode 0600; it must not exist.
    pub path: String,
}

/// The reply of `backup`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BackupReply {
    /// The size of the copy.
    pub bytes: u64,
}

/// The reply of `maintain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Maintained {
    /// How many events this call pruned.
    pub pruned_events: u64,
    /// How many cursors this call pruned.
    pub pruned_cursors: u64,
}

/// The reply of `stats`: counters of this handle and its database. While the
/// database cannot be read, its own (`events` to `pending`) are those of the
/// last time it could be, and `unreadable` says why.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// Events in the log.
    pub events: u64,
    /// Sessions with a head.
    pub sessions: u64,
    /// Cursors.
    pub watches: u64,
    /// Upstream links.
    pub links: u64,
    /// Those of them whose source could not be read when it was looked at last.
    pub links_in_error: u64,
    /// Open notices.
    pub pending: u64,
    /// Records of this handle that failed to store since it was opened.
    pub failed_appends: u64,
    /// How often this handle, its background too, could not read or write its database since it was opened.
    pub storage_faults: u64,
    /// Why, the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_fault: Option<String>,
    /// Why the database cannot be read now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
    /// Whether damage was seen in the database: this handle writes nothing more to it.
    pub damaged: bool,
    /// What is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// Events this handle shed since it was opened, its queue being full.
    pub shed_events: u64,
    /// Events in this handle's queue now.
    pub queued_events: u64,
    /// Wakes offered to this handle and not yet taken.
    pub queued_wakes: u64,
    /// The database's schema, as `major.minor`.
    pub schema_version: String,
    /// The database file, as an absolute path.
    pub database: String,
    /// The size of the database file.
    pub database_bytes: u64,
    /// The size of its write-ahead log.
    pub wal_bytes: u64,
    /// The library's version.
    pub version: &'static str,
    /// Whether changes of agents' files are seen at once.
    pub file_events: FileEvents,
    /// Folders of linked sources that are watched by file events.
    pub watched_folders: u64,
    /// Folders the system would not watch: their sources are looked at every interval alone.
    pub unwatched_folders: u64,
    /// What the background did, by catalog.
    pub scans: BTreeMap<&'static str, CatalogScans>,
}

/// Whether changes of agents' files are seen at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileEvents {
    /// Of every folder of a linked source.
    Full,
    /// Of some: the system's limit of watched folders was met, or a folder is gone.
    Partial,
    /// Of none: the config says so, or the handle is read only.
    Off,
}

/// What the background did for a catalog since the handle was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogScans {
    /// Rounds in which something was looked at.
    pub passes: u64,
    /// How long the last one took, in ms.
    pub last_pass_ms: u64,
    /// How long after the first hint the last activity was stored, in ms.
    pub lag_ms: u64,
}
