//! From a host's event to a row of the log.

use std::collections::HashSet;

use serde_json::{Map, Number, Value};

use crate::contract::text;
use crate::contract::{Error, Event, Kind, MAX_NUMBER, NewEvent, PublicPayload, Result};
use crate::key::{MAX_ID_BYTES, Session, Watcher, has_control};
use crate::store::{Tx, events};

/// The most events of one batch.
const MOST_EVENTS: usize = 1_000;
/// The most watchers one event names.
const MOST_WATCHERS: usize = 1_000;
const SUMMARY_CHARS: usize = 200;
const PAYLOAD_BYTES: usize = 4_096;
const CHANNEL_CHARS: usize = 100;
/// How far back an event may say it happened, in ms.
const OLDEST_MS: i64 = 24 * 60 * 60 * 1_000;

/// A checked event, ready to be appended in any transaction.
pub(crate) struct Draft {
    pub session: Session,
    pub kind: Kind,
    pub actor_id: Option<String>,
    /// The named watchers the event has something for: none of a kind that is
    /// only logged, no bare key, not the session itself, not the one who did it
    /// unless it spawned the session; each once.
    pub watchers: Vec<String>,
    pub only_if_watched: bool,
    actor_type: crate::contract::ActorType,
    session_id: Option<String>,
    run_id: Option<String>,
    occurred_at: Option<i64>,
    summary: String,
    payload_json: Option<String>,
    public_json: Option<String>,
    dedupe_key: Option<String>,
}

/// What appending came to.
pub(crate) enum Appended {
    New(Event),
    /// The first event of the same dedupe key.
    Known(Event),
}

impl Draft {
    /// Checks an event. An error names the field.
    pub(crate) fn check(event: NewEvent) -> Result<Draft> {
        let session = Session::owning(event.session_key, event.agent_id.as_deref())?;
        for (field, id) in [
            ("sessionId", &event.session_id),
            ("actorId", &event.actor_id),
            ("runId", &event.run_id),
            ("dedupeKey", &event.dedupe_key),
        ] {
            if id.as_ref().is_some_and(|id| id.len() > MAX_ID_BYTES) {
                return Err(Error::invalid(field, "at most 512 bytes"));
            }
        }
        if event.dedupe_key.as_deref() == Some("") {
            // Every event with it would be the same one.
            return Err(Error::invalid(
                "dedupeKey",
                "not empty; leave it out instead",
            ));
        }
        let payload = event.payload.unwrap_or_default();
        let payload_json = (!payload.is_empty())
            .then(|| compact(&payload))
            .transpose()?;
        let channel = channel(&payload);
        let summary = match event.summary {
            Some(summary) => check_summary(summary)?,
            None => default_summary(event.kind, &payload, channel),
        };
        let mut watchers = distinct_watchers(event.watcher_session_keys.unwrap_or_default())?;
        watchers.retain(|watcher| {
            *watcher != session.key
                && match event.kind {
                    Kind::ChildSpawned => true,
                    kind => kind.notifies() && event.actor_id.as_ref() != Some(watcher),
                }
        });
        Ok(Draft {
            session,
            kind: event.kind,
            actor_id: event.actor_id,
            watchers,
            only_if_watched: event.only_if_watched.unwrap_or(false),
            actor_type: event.actor_type,
            session_id: event.session_id,
            run_id: event.run_id,
            occurred_at: event.occurred_at,
            summary,
            payload_json,
            public_json: project(&payload, channel),
            dedupe_key: event.dedupe_key,
        })
    }
}

/// Checks a batch. An error names the event's place in it.
pub(crate) fn drafts(batch: Vec<NewEvent>) -> Result<Vec<Draft>> {
    if batch.len() > MOST_EVENTS {
        return Err(Error::invalid("events", "at most 1,000 events"));
    }
    // Not collected: a batch is often of one, and each move of an event costs.
    let mut drafts = Vec::with_capacity(batch.len());
    for (at, event) in batch.into_iter().enumerate() {
        let draft = Draft::check(event);
        drafts.push(draft.map_err(|error| error.within(&format!("events[{at}]")))?);
    }
    Ok(drafts)
}

/// Appends the event, unless its dedupe key is known.
pub(crate) fn append(tx: &Tx<'_>, draft: &Draft) -> Result<Appended> {
    if let Some(key) = &draft.dedupe_key
        && let Some(first) = events::of_dedupe_key(tx, key)?
    {
        return Ok(Appended::Known(first));
    }
    let occurred_at = draft
        .occurred_at
        .unwrap_or(tx.now())
        .clamp(tx.now() - OLDEST_MS, tx.now());
    let sequence = events::append(
        tx,
        &events::NewRow {
            session: &draft.session,
            session_id: draft.session_id.as_deref(),
            kind: draft.kind,
            actor_type: draft.actor_type,
            actor_id: draft.actor_id.as_deref(),
            run_id: draft.run_id.as_deref(),
            occurred_at,
            summary: &draft.summary,
            payload_json: draft.payload_json.as_deref(),
            public_json: draft.public_json.as_deref(),
            dedupe_key: draft.dedupe_key.as_deref(),
        },
    )?;
    Ok(Appended::New(Event {
        sequence,
        session_key: Some(draft.session.key.clone()),
        agent_id: Some(draft.session.agent.clone()),
        session_id: draft.session_id.clone(),
        kind: draft.kind,
        actor_type: draft.actor_type,
        actor_id: draft.actor_id.clone(),
        run_id: draft.run_id.clone(),
        occurred_at,
        summary: draft.summary.clone(),
        payload: draft.public_json.clone().map(PublicPayload::of_own),
    }))
}

fn check_summary(summary: String) -> Result<String> {
    if summary.len() > SUMMARY_CHARS && summary.chars().count() > SUMMARY_CHARS {
        return Err(Error::invalid("summary", "at most 200 characters"));
    }
    if is_broken(&summary) {
        return Err(Error::invalid(
            "summary",
            "one line, without control characters",
        ));
    }
    Ok(summary)
}

/// Whether a text is more than one line, or holds control characters.
fn is_broken(text: &str) -> bool {
    !text.is_ascii() && text.contains(['\u{2028}', '\u{2029}']) || has_control(text)
}

fn compact(payload: &Map<String, Value>) -> Result<String> {
    if payload.values().any(has_large_number) {
        return Err(Error::invalid("payload", "numbers stay below 2^53"));
    }
    let json = serde_json::to_string(payload)
        .map_err(|_| Error::invalid("payload", "an object that JSON can hold"))?;
    if json.len() > PAYLOAD_BYTES {
        return Err(Error::invalid(
            "payload",
            format!(
                "at most 4,096 bytes of compact JSON, this is {}",
                json.len()
            ),
        ));
    }
    Ok(json)
}

fn has_large_number(value: &Value) -> bool {
    match value {
        Value::Number(n) => n.as_f64().is_none_or(|n| n.abs() > MAX_NUMBER as f64),
        Value::Array(items) => items.iter().any(has_large_number),
        Value::Object(fields) => fields.values().any(has_large_number),
        _ => false,
    }
}

/// The channel, when it may stand in a summary and come out of a payload.
fn channel(payload: &Map<String, Value>) -> Option<&str> {
    payload.get("channel")?.as_str().filter(|channel| {
        !channel.is_empty()
            && (channel.len() <= CHANNEL_CHARS || channel.chars().count() <= CHANNEL_CHARS)
            && !is_broken(channel)
    })
}

fn default_summary(kind: Kind, payload: &Map<String, Value>, channel: Option<&str>) -> String {
    let by_channel = |lead: &str| [lead, channel.unwrap_or("unknown")].concat();
    match kind {
        Kind::HumanDirectMessage => by_channel("human message via "),
        Kind::UpstreamMissing => by_channel("upstream missing via "),
        Kind::GoalChanged => "goal changed".to_owned(),
        Kind::ChildSpawned => "child session spawned".to_owned(),
        Kind::RunCompleted => "child run completed".to_owned(),
        Kind::RunFailed => match payload.get("outcome").and_then(Value::as_str) {
            Some("timeout") => "child run timed out",
            Some("cancelled") => "child run cancelled",
            _ => "child run failed",
        }
        .to_owned(),
        Kind::Compacted => "session compacted".to_owned(),
        Kind::Adopted => by_channel("adopted from "),
    }
}

/// What of a payload may come out again, as a JSON object; `None` when nothing may.
fn project(payload: &Map<String, Value>, channel: Option<&str>) -> Option<String> {
    if payload.is_empty() {
        return None;
    }
    let outcome = payload.get("outcome").and_then(Value::as_str);
    let outcome = outcome.filter(|word| matches!(*word, "error" | "timeout" | "cancelled"));
    let turns = match payload.get("turns") {
        Some(Value::Number(turns)) => positive(turns),
        _ => None,
    };
    // Room for what is usual: to grow costs each time.
    let mut json = Vec::with_capacity(64);
    let lead = |json: &mut Vec<u8>, name: &str| {
        json.push(if json.is_empty() { b'{' } else { b',' });
        text::raw(json, name);
    };
    if let Some(channel) = channel {
        lead(&mut json, r#""channel":"#);
        text::string(&mut json, channel);
    }
    if let Some(outcome) = outcome {
        lead(&mut json, r#""outcome":"#);
        text::string(&mut json, outcome);
    }
    if let Some(turns) = turns {
        lead(&mut json, r#""turns":"#);
        text::number(&mut json, turns);
    }
    if json.is_empty() {
        return None;
    }
    json.push(b'}');
    String::from_utf8(json).ok()
}

fn positive(number: &Number) -> Option<u64> {
    let whole = number.as_u64().or_else(|| {
        number
            .as_f64()
            .filter(|n| n.fract() == 0.0 && *n > 0.0)
            .map(|n| n as u64)
    });
    whole.filter(|n| (1..=MAX_NUMBER as u64).contains(n))
}

fn distinct_watchers(named: Vec<String>) -> Result<Vec<String>> {
    if named.len() > MOST_WATCHERS {
        return Err(Error::invalid(
            "watcherSessionKeys",
            "at most 1,000 watchers",
        ));
    }
    if named.is_empty() {
        return Ok(named);
    }
    let mut watchers = Vec::with_capacity(named.len());
    let mut seen = HashSet::new();
    for (at, key) in named.iter().enumerate() {
        let watcher = Watcher::read(key, &format!("watcherSessionKeys[{at}]"))?;
        if let Watcher::Qualified(key) = watcher
            && seen.insert(key.clone())
        {
            watchers.push(key);
        }
    }
    Ok(watchers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{ActorType, Code};
    use serde_json::json;

    fn event(kind: Kind, payload: Value) -> NewEvent {
        NewEvent {
            payload: payload.as_object().cloned(),
            ..NewEvent::new("agent:main:x", kind, ActorType::Human)
        }
    }

    fn summary(kind: Kind, payload: Value) -> String {
        Draft::check(event(kind, payload)).unwrap().summary
    }

    #[test]
    fn a_channel_that_cannot_stand_in_a_line_reads_unknown() {
        for channel in [
            json!(""),
            json!(7),
            json!("a\nb"),
            json!("a\u{2028}b"),
            json!("a\u{2029}b"),
            json!("c".repeat(101)),
            json!(null),
        ] {
            let payload = json!({"channel": channel});
            assert_eq!(
                summary(Kind::HumanDirectMessage, payload.clone()),
                "human message via unknown"
            );
            assert_eq!(
                Draft::check(event(Kind::HumanDirectMessage, payload))
                    .unwrap()
                    .public_json,
                None
            );
        }
        assert_eq!(
            summary(Kind::Adopted, json!({"channel": "é".repeat(100)})),
            format!("adopted from {}", "é".repeat(100))
        );
    }

    #[test]
    fn only_three_payload_fields_come_out_and_only_well_formed() {
        for (payload, public) in [
            (
                json!({"outcome": "timeout", "channel": "x", "turns": 2, "secret": 1}),
                Some(r#"{"channel":"x","outcome":"timeout","turns":2}"#),
            ),
            (
                json!({"outcome": "late", "channel": ["x"], "turns": 0}),
                None,
            ),
            (json!({"turns": -1}), None),
            (json!({"turns": 1.5}), None),
            (json!({"turns": 3.0}), Some(r#"{"turns":3}"#)),
            (json!({"turns": "3"}), None),
            (json!({"outcome": {"x": 1}}), None),
            (json!({}), None),
        ] {
            let draft = Draft::check(event(Kind::RunFailed, payload.clone())).unwrap();
            assert_eq!(draft.public_json.as_deref(), public, "{payload}");
        }
    }

    #[test]
    fn each_limit_is_told_with_its_field() {
        let base = || NewEvent::new("agent:main:x", Kind::GoalChanged, ActorType::Human);
        let long = || Some("x".repeat(513));
        let big = json!({"x": "y".repeat(4_096)}).as_object().cloned();
        let fits = json!({"x": "y".repeat(4_096 - r#"{"x":""}"#.len())})
            .as_object()
            .cloned();
        for (field, event) in [
            (
                "sessionId",
                NewEvent {
                    session_id: long(),
                    ..base()
                },
            ),
            (
                "actorId",
                NewEvent {
                    actor_id: long(),
                    ..base()
                },
            ),
            (
                "runId",
                NewEvent {
                    run_id: long(),
                    ..base()
                },
            ),
            (
                "dedupeKey",
                NewEvent {
                    dedupe_key: long(),
                    ..base()
                },
            ),
            (
                "dedupeKey",
                NewEvent {
                    dedupe_key: Some(String::new()),
                    ..base()
                },
            ),
            (
                "summary",
                NewEvent {
                    summary: Some("é".repeat(201)),
                    ..base()
                },
            ),
            (
                "summary",
                NewEvent {
                    summary: Some("a\u{2029}b".into()),
                    ..base()
                },
            ),
            (
                "summary",
                NewEvent {
                    summary: Some("a\tb".into()),
                    ..base()
                },
            ),
            (
                "payload",
                NewEvent {
                    payload: big,
                    ..base()
                },
            ),
            (
                "payload",
                NewEvent {
                    payload: json!({"deep": [{"n": 9007199254740992_i64}]})
                        .as_object()
                        .cloned(),
                    ..base()
                },
            ),
            (
                "agentId",
                NewEvent {
                    agent_id: Some("ops".into()),
                    ..base()
                },
            ),
            (
                "watcherSessionKeys",
                NewEvent {
                    watcher_session_keys: Some(vec!["agent:main:y".into(); 1_001]),
                    ..base()
                },
            ),
            (
                "watcherSessionKeys[1]",
                NewEvent {
                    watcher_session_keys: Some(vec!["agent:main:y".into(), "agent:main".into()]),
                    ..base()
                },
            ),
        ] {
            let error = Draft::check(event)
                .err()
                .unwrap_or_else(|| panic!("{field} passed"));
            assert_eq!(
                (error.code, error.field.as_deref()),
                (Code::InvalidArgument, Some(field))
            );
        }
        for event in [
            NewEvent {
                payload: fits,
                ..base()
            },
            NewEvent {
                summary: Some("é".repeat(200)),
                ..base()
            },
            NewEvent {
                actor_id: Some("x".repeat(512)),
                ..base()
            },
        ] {
            assert!(Draft::check(event).is_ok());
        }
        let error = drafts(vec![
            base(),
            NewEvent {
                session_key: String::new(),
                ..base()
            },
        ])
        .err()
        .unwrap();
        assert_eq!(error.field.as_deref(), Some("events[1].sessionKey"));
        assert_eq!(
            drafts(vec![base(); 1_001]).err().unwrap().field.as_deref(),
            Some("events")
        );
    }

    #[test]
    fn watchers_the_event_has_nothing_for_are_passed_over() {
        let watchers = |kind, actor: &str| {
            let named = [
                "global",
                "agent:main:x",
                "agent:main:w",
                "agent:main:w",
                "agent:main:subagent:p",
            ];
            let event = NewEvent {
                actor_id: Some(actor.to_owned()),
                watcher_session_keys: Some(named.map(String::from).to_vec()),
                ..NewEvent::new("agent:main:x", kind, ActorType::Agent)
            };
            Draft::check(event).unwrap().watchers
        };
        assert_eq!(
            watchers(Kind::GoalChanged, "u-1"),
            ["agent:main:w", "agent:main:subagent:p"]
        );
        assert_eq!(
            watchers(Kind::GoalChanged, "agent:main:w"),
            ["agent:main:subagent:p"]
        );
        assert_eq!(
            watchers(Kind::ChildSpawned, "agent:main:w"),
            ["agent:main:w", "agent:main:subagent:p"]
        );
        assert!(watchers(Kind::RunCompleted, "u-1").is_empty());
    }
}
