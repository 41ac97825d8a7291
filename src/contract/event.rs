use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::parse::{maybe_objects, maybe_time};
use super::{Error, Result};

/// What happened to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A person sent a turn straight to the session.
    HumanDirectMessage,
    /// An adopted session lost its upstream source.
    UpstreamMissing,
    /// The session's goal was set, changed or removed.
    GoalChanged,
    /// A child session came into existence; seeds the cursors of its parents.
    ChildSpawned,
    /// A run of a child ended well.
    RunCompleted,
    /// A run of a child failed, timed out or was cancelled (`payload.outcome`).
    RunFailed,
    /// The session's history was compacted.
    Compacted,
    /// A session of another agent program was adopted.
    Adopted,
}

impl Kind {
    /// Every kind, in the contract's order.
    pub const ALL: [Kind; 8] = [
        Kind::HumanDirectMessage,
        Kind::UpstreamMissing,
        Kind::GoalChanged,
        Kind::ChildSpawned,
        Kind::RunCompleted,
        Kind::RunFailed,
        Kind::Compacted,
        Kind::Adopted,
    ];

    /// The kind's name in requests, replies and the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::HumanDirectMessage => "human_direct_message",
            Kind::UpstreamMissing => "upstream_missing",
            Kind::GoalChanged => "goal_changed",
            Kind::ChildSpawned => "child_spawned",
            Kind::RunCompleted => "run_completed",
            Kind::RunFailed => "run_failed",
            Kind::Compacted => "compacted",
            Kind::Adopted => "adopted",
        }
    }

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Whether watchers are told of it unless they chose otherwise.
    pub fn notifies(self) -> bool {
        KindSet::NOTIFYING.contains(self)
    }
}

/// A set of kinds, as small as a number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KindSet(u16);

impl KindSet {
    /// The three kinds that notify: `human_direct_message`, `upstream_missing`, `goal_changed`.
    pub const NOTIFYING: KindSet = KindSet(0b111);

    /// The set of these kinds.
    pub fn of(kinds: &[Kind]) -> KindSet {
        KindSet(kinds.iter().fold(0, |bits, kind| bits | 1 << *kind as u16))
    }

    /// Whether `kind` is in the set.
    pub fn contains(self, kind: Kind) -> bool {
        self.0 & (1 << kind as u16) != 0
    }

    /// The kinds of the set, in the contract's order.
    pub fn kinds(self) -> Vec<Kind> {
        Kind::ALL
            .into_iter()
            .filter(|kind| self.contains(*kind))
            .collect()
    }

    /// The set as the database holds it: bit n for the nth kind of [`Kind::ALL`].
    pub fn bits(self) -> u16 {
        self.0
    }

    /// The set of these bits; unknown bits are kept, for the sake of a newer minor schema.
    pub fn from_bits(bits: u16) -> KindSet {
        KindSet(bits)
    }
}

impl fmt::Debug for KindSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.kinds()).finish()
    }
}

/// Who caused an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorType {
    /// A person.
    Human,
    /// Another session's agent.
    Agent,
    /// The gateway or the library.
    System,
}

impl ActorType {
    /// Every actor type.
    pub const ALL: [ActorType; 3] = [ActorType::Human, ActorType::Agent, ActorType::System];

    /// The actor type of this name.
    pub fn from_name(name: &str) -> Option<ActorType> {
        ActorType::ALL
            .into_iter()
            .find(|actor| actor.as_str() == name)
    }

    /// The name in requests, replies and the database.
    pub fn as_str(self) -> &'static str {
        match self {
            ActorType::Human => "human",
            ActorType::Agent => "agent",
            ActorType::System => "system",
        }
    }
}

/// What a host adds to an event: any JSON object of at most 4 KiB. Only
/// `outcome`, `channel` and `turns` ever come out again.
pub type Payload = Map<String, Value>;

/// An event to record.
///
/// ```
/// use session_awareness::{ActorType, Kind, NewEvent};
/// let event = NewEvent {
///     run_id: Some("r1".into()),
///     dedupe_key: Some("run-terminal:r1".into()),
///     ..NewEvent::new("agent:main:subagent:child", Kind::RunCompleted, ActorType::System)
/// };
/// # let _ = event;
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NewEvent {
    /// The session it happened to.
    pub session_key: String,
    /// The session's agent when the key is bare; default `main`.
    pub agent_id: Option<String>,
    /// The host's own id of the session's current transcript, at most 512 bytes.
    pub session_id: Option<String>,
    /// What happened.
    pub kind: Kind,
    /// Who did it.
    pub actor_type: ActorType,
    /// Which one: a session key for an agent, the host's own id for a person, at most 512 bytes.
    /// A watcher is never told of what it did itself.
    pub actor_id: Option<String>,
    /// The run it belongs to, at most 512 bytes.
    pub run_id: Option<String>,
    /// One line of at most 200 characters; a text by kind when absent. Never message text.
    pub summary: Option<String>,
    /// More about it: an object of at most 4 KiB.
    pub payload: Option<Payload>,
    /// A second event with this key is not stored; at most 512 bytes.
    pub dedupe_key: Option<String>,
    /// When it happened, ms since the epoch, clamped to the last 24 hours; now when absent.
    #[serde(default, deserialize_with = "maybe_time")]
    pub occurred_at: Option<i64>,
    /// Watchers to tell beside the registered ones; for `child_spawned` the parents to seed.
    pub watcher_session_keys: Option<Vec<String>>,
    /// Store nothing when nobody watches the session. Default false.
    pub only_if_watched: Option<bool>,
}

impl NewEvent {
    /// An event with what is required and nothing else.
    pub fn new(session_key: impl Into<String>, kind: Kind, actor_type: ActorType) -> NewEvent {
        NewEvent {
            session_key: session_key.into(),
            agent_id: None,
            session_id: None,
            kind,
            actor_type,
            actor_id: None,
            run_id: None,
            summary: None,
            payload: None,
            dedupe_key: None,
            occurred_at: None,
            watcher_session_keys: None,
            only_if_watched: None,
        }
    }
}

/// The request of `record`: the fields of one event, or `events`; `wait` beside either.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RecordRequest {
    /// A batch, stored in order and all or nothing; at most 1,000.
    #[serde(default, deserialize_with = "maybe_objects")]
    pub events: Option<Vec<NewEvent>>,
    /// `false` queues the events for the background writer and answers at once.
    pub wait: Option<bool>,
    /// As in [`NewEvent`].
    pub session_key: Option<String>,
    /// As in [`NewEvent`].
    pub agent_id: Option<String>,
    /// As in [`NewEvent`].
    pub session_id: Option<String>,
    /// As in [`NewEvent`].
    pub kind: Option<Kind>,
    /// As in [`NewEvent`].
    pub actor_type: Option<ActorType>,
    /// As in [`NewEvent`].
    pub actor_id: Option<String>,
    /// As in [`NewEvent`].
    pub run_id: Option<String>,
    /// As in [`NewEvent`].
    pub summary: Option<String>,
    /// As in [`NewEvent`].
    pub payload: Option<Payload>,
    /// As in [`NewEvent`].
    pub dedupe_key: Option<String>,
    /// As in [`NewEvent`].
    #[serde(default, deserialize_with = "maybe_time")]
    pub occurred_at: Option<i64>,
    /// As in [`NewEvent`].
    pub watcher_session_keys: Option<Vec<String>>,
    /// As in [`NewEvent`].
    pub only_if_watched: Option<bool>,
}

/// The events of a `record` request.
#[derive(Debug)]
pub enum Batch {
    /// One event, on its own.
    One(Box<NewEvent>),
    /// A list of events, even of one.
    Many(Vec<NewEvent>),
}

impl RecordRequest {
    /// The events. An error names the field that is missing, or that stands beside `events`.
    pub fn into_batch(self) -> Result<Batch> {
        if let Some(events) = self.events {
            let beside = [
                ("sessionKey", self.session_key.is_some()),
                ("agentId", self.agent_id.is_some()),
                ("sessionId", self.session_id.is_some()),
                ("kind", self.kind.is_some()),
                ("actorType", self.actor_type.is_some()),
                ("actorId", self.actor_id.is_some()),
                ("runId", self.run_id.is_some()),
                ("summary", self.summary.is_some()),
                ("payload", self.payload.is_some()),
                ("dedupeKey", self.dedupe_key.is_some()),
                ("occurredAt", self.occurred_at.is_some()),
                ("watcherSessionKeys", self.watcher_session_keys.is_some()),
                ("onlyIfWatched", self.only_if_watched.is_some()),
            ];
            return match beside.iter().find(|(_, given)| *given) {
                Some((field, _)) => Err(Error::invalid(
                    *field,
                    "stands within `events`, not beside it",
                )),
                None => Ok(Batch::Many(events)),
            };
        }
        let missing = |field| Error::invalid(field, format!("missing field `{field}`"));
        Ok(Batch::One(Box::new(NewEvent {
            session_key: self.session_key.ok_or_else(|| missing("sessionKey"))?,
            kind: self.kind.ok_or_else(|| missing("kind"))?,
            actor_type: self.actor_type.ok_or_else(|| missing("actorType"))?,
            agent_id: self.agent_id,
            session_id: self.session_id,
            actor_id: self.actor_id,
            run_id: self.run_id,
            summary: self.summary,
            payload: self.payload,
            dedupe_key: self.dedupe_key,
            occurred_at: self.occurred_at,
            watcher_session_keys: self.watcher_session_keys,
            only_if_watched: self.only_if_watched,
        })))
    }
}

/// What of a payload comes out: `outcome` (`error`, `timeout`, `cancelled`),
/// `channel` (a string) and `turns` (a positive whole number), those that are there.
#[derive(Clone, PartialEq)]
pub struct PublicPayload(Box<str>);

impl PublicPayload {
    /// From a JSON object that holds nothing else.
    pub(crate) fn from_json(json: String) -> Option<PublicPayload> {
        serde_json::from_str::<serde::de::IgnoredAny>(&json).ok()?;
        Some(PublicPayload(json.into()))
    }

    /// From a JSON object that the library has just written.
    pub(crate) fn of_own(json: String) -> PublicPayload {
        PublicPayload(json.into())
    }

    /// The payload as a compact JSON object.
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// How a failed run ended: `error`, `timeout` or `cancelled`.
    pub fn outcome(&self) -> Option<String> {
        self.field("outcome")?.as_str().map(str::to_owned)
    }

    /// The channel a turn came by.
    pub fn channel(&self) -> Option<String> {
        self.field("channel")?.as_str().map(str::to_owned)
    }

    /// How many turns the event stands for.
    pub fn turns(&self) -> Option<u64> {
        self.field("turns")?.as_u64()
    }

    fn field(&self, name: &str) -> Option<Value> {
        serde_json::from_str::<Map<String, Value>>(self.as_json())
            .ok()?
            .remove(name)
    }
}

impl fmt::Debug for PublicPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json())
    }
}

impl Serialize for PublicPayload {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        let json: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        json.serialize(to)
    }
}

/// An event of the log. In the changes of one session `session_key`, `agent_id`
/// and `session_id` are absent, since the caller named the session.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Its place in the log: unique, rising, never used twice.
    pub sequence: u64,
    /// The session it happened to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// The session's agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The host's own id of the session's transcript.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// What happened.
    pub kind: Kind,
    /// Who did it.
    pub actor_type: ActorType,
    /// Which one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor_id: Option<String>,
    /// The run it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// When it happened, ms since the epoch.
    pub occurred_at: i64,
    /// One line about it.
    pub summary: String,
    /// What of the payload comes out; absent when nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<PublicPayload>,
}

/// What recording one event came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Recorded {
    /// The event is in the log.
    Stored {
        /// Always true.
        recorded: bool,
        /// Whether it was there before, under the same `dedupeKey`.
        duplicate: bool,
        /// The event, or the first one of that key.
        event: Event,
    },
    /// Nothing was stored.
    Not {
        /// Always false.
        recorded: bool,
        /// Why.
        reason: Unrecorded,
    },
}

impl Recorded {
    /// Of an event that nobody watches.
    pub(crate) const UNWATCHED: Recorded = Recorded::Not {
        recorded: false,
        reason: Unrecorded::Unwatched,
    };

    /// The event that is in the log, if one is.
    pub fn event(&self) -> Option<&Event> {
        match self {
            Recorded::Stored { event, .. } => Some(event),
            Recorded::Not { .. } => None,
        }
    }
}

/// Why an event was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unrecorded {
    /// `onlyIfWatched` was given and nobody watches the session.
    Unwatched,
}

/// The reply of `record`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum RecordReply {
    /// To one event.
    One(Recorded),
    /// To `events`, in their order.
    Batch {
        /// One result an event.
        results: Vec<Recorded>,
    },
    /// To `wait: false`.
    Queued(Queued),
}

/// What became of events that nobody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Queued {
    /// Whether they are in the queue of the background writer.
    pub queued: bool,
    /// `full` when they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
}
