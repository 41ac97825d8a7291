//! The replies that are made most often, written as JSON text at once: byte for
//! byte what serde makes of them, at a fraction of the cost.

use serde::Serialize;

use super::{ActorType, Event, Kind, RecordReply, Recorded};

/// An event that is only looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventView<'a> {
    pub sequence: u64,
    pub session_key: Option<&'a str>,
    pub agent_id: Option<&'a str>,
    pub session_id: Option<&'a str>,
    pub kind: Kind,
    pub actor_type: ActorType,
    pub actor_id: Option<&'a str>,
    pub run_id: Option<&'a str>,
    pub occurred_at: i64,
    pub summary: &'a str,
    /// A JSON object.
    pub payload: Option<&'a str>,
}

impl<'a> From<&'a Event> for EventView<'a> {
    fn from(event: &'a Event) -> EventView<'a> {
        EventView {
            sequence: event.sequence,
            session_key: event.session_key.as_deref(),
            agent_id: event.agent_id.as_deref(),
            session_id: event.session_id.as_deref(),
            kind: event.kind,
            actor_type: event.actor_type,
            actor_id: event.actor_id.as_deref(),
            run_id: event.run_id.as_deref(),
            occurred_at: event.occurred_at,
            summary: &event.summary,
            payload: event.payload.as_ref().map(|payload| payload.as_json()),
        }
    }
}

impl EventView<'_> {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        raw(out, r#"{"sequence":"#);
        number(out, self.sequence);
        for (name, value) in [
            (r#","sessionKey":"#, self.session_key),
            (r#","agentId":"#, self.agent_id),
            (r#","sessionId":"#, self.session_id),
        ] {
            field(out, name, value);
        }
        raw(out, r#","kind":""#);
        raw(out, self.kind.as_str());
        raw(out, r#"","actorType":""#);
        raw(out, self.actor_type.as_str());
        raw(out, "\"");
        field(out, r#","actorId":"#, self.actor_id);
        field(out, r#","runId":"#, self.run_id);
        raw(out, r#","occurredAt":"#);
        number(out, self.occurred_at);
        field(out, r#","summary":"#, Some(self.summary));
        if let Some(payload) = self.payload {
            raw(out, r#","payload":"#);
            raw(out, payload);
        }
        raw(out, "}");
    }
}

impl RecordReply {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            RecordReply::One(recorded) => recorded.write(out),
            RecordReply::Batch { results } => {
                raw(out, r#"{"results":"#);
                list(out, results, Recorded::write);
                raw(out, "}");
            }
            RecordReply::Queued(queued) => number(out, queued),
        }
    }
}

impl Recorded {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Recorded::Stored {
                duplicate, event, ..
            } => {
                raw(out, r#"{"recorded":true,"duplicate":"#);
                flag(out, *duplicate);
                raw(out, r#","event":"#);
                EventView::from(event).write(out);
                raw(out, "}");
            }
            Recorded::Not { .. } => number(out, self),
        }
    }
}

/// Text that is JSON already.
pub(crate) fn raw(out: &mut Vec<u8>, json: &str) {
    out.extend_from_slice(json.as_bytes());
}

pub(crate) fn flag(out: &mut Vec<u8>, flag: bool) {
    raw(out, if flag { "true" } else { "false" });
}

/// A number, or another small value by serde's own hand.
pub(crate) fn number(out: &mut Vec<u8>, value: impl Serialize) {
    // Numbers and plain objects always have a JSON form, and a vector takes it.
    let _ = serde_json::to_writer(out, &value);
}

/// A string in its quotes.
pub(crate) fn string(out: &mut Vec<u8>, text: &str) {
    // Without an early end, so that many bytes are looked at at once.
    let is_plain = text.bytes().fold(true, |plain, b| {
        plain & (b >= b' ') & (b != b'"') & (b != b'\\')
    });
    if is_plain {
        out.reserve(text.len() + 2);
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        number(out, text);
    }
}

pub(crate) fn list<T>(out: &mut Vec<u8>, items: &[T], write: impl Fn(&T, &mut Vec<u8>)) {
    raw(out, "[");
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            raw(out, ",");
        }
        write(item, out);
    }
    raw(out, "]");
}

fn field(out: &mut Vec<u8>, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        raw(out, name);
        string(out, value);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PublicPayload, Queued, Unrecorded};
    use super::*;
    use proptest::prelude::*;

    fn any_event() -> impl Strategy<Value = Event> {
        let id = || prop::option::of("[a-z\"\\\\\u{0}-\u{1f}é\u{2028}]{0,8}");
        (
            (id(), id(), id(), id(), id()),
            any::<u32>(),
            prop::sample::select(Kind::ALL.to_vec()),
            prop::sample::select(vec![ActorType::Human, ActorType::Agent, ActorType::System]),
            any::<i32>(),
            "[ -~\"\\\\é\u{7f}]{0,12}",
            prop::option::of(Just(r#"{"channel":"a\"b","turns":2}"#)),
        )
            .prop_map(
                |(ids, sequence, kind, actor_type, at, summary, payload)| Event {
                    sequence: u64::from(sequence),
                    session_key: ids.0,
                    agent_id: ids.1,
                    session_id: ids.2,
                    kind,
                    actor_type,
                    actor_id: ids.3,
                    run_id: ids.4,
                    occurred_at: i64::from(at),
                    summary,
                    payload: payload.and_then(|json| PublicPayload::from_json(json.to_owned())),
                },
            )
    }

    proptest! {
        #[test]
        fn it_is_what_serde_writes(events in prop::collection::vec((any_event(), any::<bool>()), 0..4)) {
            let stored = |(event, duplicate): (Event, bool)| Recorded::Stored { recorded: true, duplicate, event };
            let results: Vec<Recorded> = events.into_iter().map(stored).collect();
            let ones = results.iter().cloned().map(RecordReply::One);
            let not = Recorded::Not { recorded: false, reason: Unrecorded::Unwatched };
            let queued = Queued { queued: false, reason: Some("full") };
            let replies = ones.chain([
                RecordReply::One(not),
                RecordReply::Queued(queued),
                RecordReply::Batch { results: results.clone() },
            ]);
            for reply in replies {
                let mut text = Vec::new();
                reply.write(&mut text);
                prop_assert_eq!(String::from_utf8(text).unwrap(), serde_json::to_string(&reply).unwrap());
            }
        }
    }
}
