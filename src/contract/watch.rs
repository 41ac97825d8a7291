use serde::{Deserialize, Serialize};

use super::Kind;
use super::parse::{maybe_whole, objects, whole};

/// Why a cursor exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provenance {
    /// Its watcher spawned the target, asked for the watch, or was named by an event.
    Explicit,
    /// Its watcher is the main session of the agent a group belongs to; it raises no wakes.
    AmbientGroup,
}

impl Provenance {
    /// The name in requests, replies and the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Provenance::Explicit => "explicit",
            Provenance::AmbientGroup => "ambient-group",
        }
    }

    /// The provenance of this name.
    pub fn from_name(name: &str) -> Option<Provenance> {
        [Provenance::Explicit, Provenance::AmbientGroup]
            .into_iter()
            .find(|provenance| provenance.as_str() == name)
    }
}

/// The request of `watch`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Watch {
    /// Who watches: an agent-qualified key.
    pub watcher_session_key: String,
    /// What is watched.
    pub target_session_key: String,
    /// The target's agent when its key is bare; default `main`.
    pub target_agent_id: Option<String>,
    /// Default `explicit`.
    pub provenance: Option<Provenance>,
    /// The kinds to be told of; default the three notifying ones. Given for a watch
    /// that exists, they replace its kinds; absent or empty keeps them.
    pub notify_kinds: Option<Vec<Kind>>,
}

impl Watch {
    /// An explicit watch of `target` by `watcher` for the notifying kinds.
    pub fn new(watcher: impl Into<String>, target: impl Into<String>) -> Watch {
        Watch {
            watcher_session_key: watcher.into(),
            target_session_key: target.into(),
            ..Watch::default()
        }
    }
}

/// The reply of `watch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum WatchReply {
    /// The watch is there.
    #[serde(rename_all = "camelCase")]
    Watched {
        /// Always true.
        watched: bool,
        /// Whether this call made it.
        created: bool,
        /// The target's version now.
        state_version: u64,
    },
    /// There is no watch.
    Not {
        /// Always false.
        watched: bool,
        /// `self` or `unqualified_watcher`.
        reason: &'static str,
    },
}

/// The request of `unwatch`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Unwatch {
    /// Who watches.
    pub watcher_session_key: String,
    /// What is watched.
    pub target_session_key: String,
    /// The target's agent when its key is bare; default `main`.
    pub target_agent_id: Option<String>,
}

/// The reply of `unwatch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unwatched {
    /// Whether there was a watch to end.
    pub unwatched: bool,
}

/// The request of `watches`; each given field narrows the list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Watches {
    /// Only of this watcher.
    pub watcher_session_key: Option<String>,
    /// Only of this target.
    pub target_session_key: Option<String>,
    /// The target's agent when its key is bare; without a target, only targets of this agent.
    pub target_agent_id: Option<String>,
    /// At most so many rows: 1,000 when absent and at the most.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub limit: Option<u64>,
    /// Pass over so many rows first.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub offset: Option<u64>,
}

/// The reply of `watches`, by watcher, then target agent and key.
#[derive(Clone, Debug, Serialize)]
pub struct WatchesReply {
    /// The watches.
    pub watches: Vec<WatchRow>,
    /// Whether there are more behind them.
    pub more: bool,
}

/// A cursor: what a watcher has seen of a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchRow {
    /// Who watches.
    pub watcher_session_key: String,
    /// What is watched.
    pub target_session_key: String,
    /// The target's agent.
    pub target_agent_id: String,
    /// Why the cursor exists.
    pub provenance: Provenance,
    /// The kinds it is told of.
    pub notify_kinds: Vec<Kind>,
    /// The sequence the watcher has acknowledged.
    pub last_seen: u64,
    /// The sequence its open notice, or its last one, stands at.
    pub notified: u64,
    /// The newest sequence that matters to it.
    pub material: u64,
    /// Whether a notice is open.
    pub pending: bool,
    /// Since when, ms since the epoch; absent when none is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_since: Option<i64>,
}

/// The request of `session_reset`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SessionReset {
    /// The watcher whose cursors go.
    pub session_key: String,
}

/// The reply of `session_reset`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reset {
    /// How many watches went.
    pub removed_watches: u64,
}

/// The request of `session_delete`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SessionDelete {
    /// The session that is gone.
    pub session_key: String,
    /// Its agent when the key is bare; default `main`.
    pub agent_id: Option<String>,
}

/// The reply of `session_delete`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Deleted {
    /// Whether there was anything of it.
    pub deleted: bool,
}

/// The request of `drain_notices`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct DrainNotices {
    /// Whose notices.
    pub watcher_session_key: String,
    /// Acknowledge them in the same step (default true); `false` only reads.
    pub ack: Option<bool>,
    /// At most so many: 100 when absent, 1,000 at the most.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub limit: Option<u64>,
}

impl DrainNotices {
    /// Drains and acknowledges up to 100 notices of `watcher`.
    pub fn new(watcher: impl Into<String>) -> DrainNotices {
        DrainNotices {
            watcher_session_key: watcher.into(),
            ..DrainNotices::default()
        }
    }
}

/// The reply of `drain_notices`, oldest (by `notified`) first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Drained {
    /// The notices.
    pub notices: Vec<Notice>,
    /// Whether `limit` left some out.
    pub more: bool,
}

/// One line for a watcher's next prompt: a target changed, reconcile first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Notice {
    /// The line, the same to the byte as long as the notice is open.
    pub text: String,
    /// What changed.
    pub target_session_key: String,
    /// Its agent.
    pub target_agent_id: String,
    /// Where the watcher's knowledge ends: ask `changes_since` with it.
    pub changes_since: u64,
    /// What an acknowledgement names.
    pub notified: u64,
    /// A stable id of the target, for hosts that keep notices in queues of their own.
    pub context_key: String,
}

/// The request of `ack_notices`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AckNotices {
    /// Whose notices.
    pub watcher_session_key: String,
    /// Which: at most 1,000.
    #[serde(deserialize_with = "objects")]
    pub notices: Vec<AckedNotice>,
}

/// A notice to acknowledge, as `drain_notices` with `ack: false` answered it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AckedNotice {
    /// The notice's target.
    pub target_session_key: String,
    /// The target's agent when its key is bare; default `main`.
    pub target_agent_id: Option<String>,
    /// The notice's `notified`.
    #[serde(deserialize_with = "whole")]
    pub notified: u64,
}

/// The reply of `ack_notices`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Acknowledged {
    /// How many cursors moved.
    pub acknowledged: u64,
    /// How many of them have a new notice, for what came in between.
    pub reopened: u64,
}

/// The request of `wait_wakes`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct WaitWakes {
    /// How long to wait for the first wake, in ms; 0 asks without waiting.
    #[serde(deserialize_with = "whole")]
    pub timeout_ms: u64,
    /// At most so many; all that are there when absent.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub max: Option<u64>,
}

/// The reply of `wait_wakes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wakes {
    /// The wakes, oldest first; empty when the time was over.
    pub wakes: Vec<Wake>,
}

/// A nudge: this watcher has a notice to drain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wake {
    /// The watcher to wake.
    pub session_key: String,
    /// What changed.
    pub target_session_key: String,
    /// Its agent.
    pub target_agent_id: String,
    /// Always `session-state`.
    pub reason: &'static str,
}
