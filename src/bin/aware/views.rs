//! `aware log`, `aware watches` and `aware pending`.

use std::collections::VecDeque;

use serde::Serialize;
use session_awareness::{
    ActorType, Awareness, ChangesSince, Event, EventsRequest, Kind, WatchRow, Watches,
};

use crate::args::{LogOptions, WatchOptions};
use crate::database;
use crate::failure::Failure;
use crate::output::{Column, Look, Output, Text};
use crate::text;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Log {
    events: VecDeque<Event>,
    #[serde(flatten)]
    session: Option<Standing>,
}

/// How `--since` stands to the session's log.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Standing {
    state_version: u64,
    history_gap: bool,
    future_cursor: bool,
}

pub fn log(aware: &Awareness, options: &LogOptions, out: &mut Output) -> Result<(), Failure> {
    let session = match &options.key {
        None => None,
        Some(key) => {
            let reply = aware.changes_since(ChangesSince {
                agent_id: options.agent.clone(),
                limit: Some(1),
                ..ChangesSince::new(key, options.since)
            })?;
            Some(Standing {
                state_version: reply.state_version,
                history_gap: reply.state_changes.history_gap,
                future_cursor: reply.state_changes.future_cursor,
            })
        }
    };
    let mut events = VecDeque::new();
    let most = options
        .last
        .map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let request = EventsRequest {
        after: Some(options.since),
        session_key: options.key.clone(),
        agent_id: options.agent.clone(),
        kinds: Some(options.kind.clone()),
        limit: None,
    };
    database::events(aware, request, |page| {
        events.extend(page);
        events.drain(..events.len().saturating_sub(most));
    })?;
    if out.json {
        return out.document(&Log { events, session });
    }
    let mut columns = vec![
        Column::Right("SEQ"),
        Column::Left("TIME"),
        Column::Spare("KIND"),
    ];
    if options.key.is_none() {
        columns.push(Column::Long("SESSION"));
    }
    columns.extend([Column::Long("BY"), Column::Long("SUMMARY")]);
    let rows = events
        .iter()
        .map(|event| {
            let mut row = vec![
                Look::Strong.of(event.sequence.to_string()),
                when(Look::Faint, event.occurred_at),
                kind(event.kind),
            ];
            if options.key.is_none() {
                row.push(Look::Name.of(session_name(event)));
            }
            row.extend([actor(event), (&event.summary).into()]);
            row
        })
        .collect();
    // A key that was mistyped names a session of which nothing was ever logged.
    let unknown = session
        .as_ref()
        .is_some_and(|standing| standing.state_version == 0);
    let none = if unknown {
        "nothing was ever logged of this session; `aware log --last 20` shows the keys there are"
    } else {
        "nothing is logged"
    };
    out.table(&columns, rows, none)?;
    match session {
        Some(standing) if standing.future_cursor => out.line(&[Look::Warning.of(format!(
            "the session stands at {}, below --since: the database was replaced",
            standing.state_version
        ))]),
        Some(standing) if standing.history_gap => out.line(&[
            Look::Warning.of("some events above --since were pruned: read the session itself")
        ]),
        _ => Ok(()),
    }
}

/// An event's session; one whose key does not name its agent is shown with it.
pub fn session_name(event: &Event) -> String {
    named(
        event.session_key.as_deref().unwrap_or_default(),
        event.agent_id.as_deref().unwrap_or_default(),
    )
}

/// A session; one whose key does not name its agent is shown with it.
pub fn named(key: &str, agent: &str) -> String {
    if key.starts_with("agent:") {
        key.to_owned()
    } else {
        format!("{key} ({agent})")
    }
}

pub fn kind(kind: Kind) -> Text {
    match kind {
        Kind::HumanDirectMessage => Look::Warning,
        Kind::UpstreamMissing | Kind::RunFailed => Look::Bad,
        Kind::GoalChanged | Kind::ChildSpawned | Kind::Adopted => Look::Name,
        Kind::RunCompleted => Look::Good,
        Kind::Compacted => Look::Faint,
    }
    .of(kind.as_str())
}

/// A time; where a terminal is narrow, to the second and without what today goes without saying.
pub fn when(look: Look, ms: i64) -> Text {
    look.of(text::time(ms))
        .or(text::short_time(ms, text::now_ms()))
}

pub fn actor(event: &Event) -> Text {
    match &event.actor_id {
        Some(id) => {
            let actor = event.actor_type.as_str();
            Text::from(format!("{actor} {id}")).or(actor)
        }
        None if event.actor_type == ActorType::System => Look::Faint.of("system"),
        None => event.actor_type.as_str().into(),
    }
}

fn request(options: &WatchOptions) -> Watches {
    Watches {
        watcher_session_key: options.watcher.clone(),
        target_session_key: options.target.clone(),
        target_agent_id: options.agent.clone(),
        ..Watches::default()
    }
}

#[derive(Serialize)]
struct WatchList {
    watches: Vec<WatchRow>,
}

pub fn watches(aware: &Awareness, options: &WatchOptions, out: &mut Output) -> Result<(), Failure> {
    let watches = database::watches(aware, &request(options))?;
    if out.json {
        return out.document(&WatchList { watches });
    }
    let columns = [
        Column::Long("WATCHER"),
        Column::Long("TARGET"),
        Column::Spare("WHY"),
        Column::Right("SEEN"),
        Column::Spare("NOTIFIED"),
        Column::Right("NEWEST"),
        Column::Left("STATE"),
        Column::Spare("TOLD OF"),
    ];
    let rows = watches
        .iter()
        .map(|watch| {
            vec![
                Look::Name.of(&watch.watcher_session_key),
                Look::Name.of(named(&watch.target_session_key, &watch.target_agent_id)),
                watch.provenance.as_str().into(),
                watch.last_seen.to_string().into(),
                watch.notified.to_string().into(),
                watch.material.to_string().into(),
                if watch.pending {
                    Look::Warning.of("pending")
                } else {
                    Look::Good.of("in sync")
                },
                Look::Faint.of(told_of(&watch.notify_kinds)),
            ]
        })
        .collect();
    out.table(&columns, rows, "nobody watches")
}

fn told_of(kinds: &[Kind]) -> String {
    let usual: Vec<Kind> = Kind::ALL
        .into_iter()
        .filter(|kind| kind.notifies())
        .collect();
    if kinds == usual {
        return "the usual".to_owned();
    }
    let names: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    names.join(", ")
}

#[derive(Serialize)]
struct PendingList<'a> {
    pending: Vec<Pending<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Pending<'a> {
    #[serde(flatten)]
    watch: &'a WatchRow,
    age_ms: i64,
}

pub fn pending(aware: &Awareness, options: &WatchOptions, out: &mut Output) -> Result<(), Failure> {
    let now = text::now_ms();
    let mut watches = database::watches(aware, &request(options))?;
    watches.retain(|watch| watch.pending);
    watches.sort_by_key(|watch| watch.pending_since);
    let pending = watches
        .iter()
        .map(|watch| Pending {
            watch,
            age_ms: (now - watch.pending_since.unwrap_or(now)).max(0),
        })
        .collect();
    if out.json {
        return out.document(&PendingList { pending });
    }
    let columns = [
        Column::Long("WATCHER"),
        Column::Long("HAS NOT SEEN"),
        Column::Right("SEEN"),
        Column::Right("NEWEST"),
        Column::Spare("WHY"),
        Column::Right("AGE"),
    ];
    let rows = pending
        .iter()
        .map(|Pending { watch, age_ms }| {
            let old = *age_ms > crate::doctor::NOTICE_AGE_MS;
            vec![
                Look::Name.of(&watch.watcher_session_key),
                Look::Name.of(named(&watch.target_session_key, &watch.target_agent_id)),
                watch.last_seen.to_string().into(),
                watch.material.to_string().into(),
                watch.provenance.as_str().into(),
                if old { Look::Bad } else { Look::Warning }.of(text::age(*age_ms)),
            ]
        })
        .collect();
    out.table(&columns, rows, "nothing is pending")
}
