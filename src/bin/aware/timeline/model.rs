//! What the page is given: columns of numbers, and each text once.

use std::collections::HashMap;

use serde::Serialize;
use session_awareness::{Event, Kind, Provenance, SessionRow, WatchRow};

use crate::text;

/// The page's data. Texts are safe to show; events are in columns, the rising
/// ones as differences, so that 50,000 of them are a few megabytes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    title: String,
    database: String,
    made_at: i64,
    version: &'static str,
    kinds: Vec<&'static str>,
    sessions: Vec<Session>,
    events: Events,
    watches: Vec<Watch>,
    texts: Vec<String>,
    #[serde(skip)]
    text_at: HashMap<String, usize>,
    #[serde(skip)]
    session_at: HashMap<(String, String), usize>,
    #[serde(skip)]
    last: (u64, i64),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Session {
    key: String,
    agent: String,
    state_version: u64,
    pruned_below: u64,
}

#[derive(Default, Serialize)]
struct Events {
    /// Sequences, each as the difference to the one before.
    sequence: Vec<u64>,
    /// Times in ms, each as the difference to the one before.
    at: Vec<i64>,
    session: Vec<usize>,
    kind: Vec<usize>,
    /// Places in `texts`.
    by: Vec<usize>,
    summary: Vec<usize>,
    run: Vec<usize>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Watch {
    watcher: usize,
    target: usize,
    ambient: bool,
    last_seen: u64,
    notified: u64,
    material: u64,
    /// ms; absent when nothing is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<i64>,
}

impl Model {
    pub fn new(title: &str, database: &str, made_at: i64) -> Model {
        let mut model = Model {
            title: text::safe(title),
            database: text::safe(database),
            made_at,
            version: env!("CARGO_PKG_VERSION"),
            kinds: Kind::ALL.map(Kind::as_str).to_vec(),
            sessions: Vec::new(),
            events: Events::default(),
            watches: Vec::new(),
            texts: Vec::new(),
            text_at: HashMap::new(),
            session_at: HashMap::new(),
            last: (0, 0),
        };
        // The first text is the one that is not there.
        model.text("");
        model
    }

    pub fn add_session(&mut self, row: &SessionRow) {
        let at = self.session(&row.session_key, &row.agent_id);
        self.sessions[at].state_version = row.state_version;
        self.sessions[at].pruned_below = row.pruned_below;
    }

    pub fn add_event(&mut self, event: &Event) {
        let session = self.session(
            event.session_key.as_deref().unwrap_or_default(),
            event.agent_id.as_deref().unwrap_or_default(),
        );
        let by = match &event.actor_id {
            Some(id) => self.text(&format!("{} {id}", event.actor_type.as_str())),
            None => self.text(event.actor_type.as_str()),
        };
        let summary = self.text(&event.summary);
        let run = self.text(event.run_id.as_deref().unwrap_or_default());
        let (sequence, at) = std::mem::replace(&mut self.last, (event.sequence, event.occurred_at));
        let events = &mut self.events;
        events.sequence.push(event.sequence - sequence);
        events.at.push(event.occurred_at - at);
        events.session.push(session);
        events.kind.push(event.kind as usize);
        events.by.push(by);
        events.summary.push(summary);
        events.run.push(run);
    }

    pub fn add_watch(&mut self, row: &WatchRow) {
        // A watcher's key is qualified: it names its agent.
        let agent = row
            .watcher_session_key
            .split(':')
            .nth(1)
            .unwrap_or_default();
        let watcher = self.session(&row.watcher_session_key, agent);
        let target = self.session(&row.target_session_key, &row.target_agent_id);
        self.watches.push(Watch {
            watcher,
            target,
            ambient: row.provenance == Provenance::AmbientGroup,
            last_seen: row.last_seen,
            notified: row.notified,
            material: row.material,
            since: row.pending_since,
        });
    }

    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    pub fn events(&self) -> usize {
        self.events.at.len()
    }

    pub fn watches(&self) -> usize {
        self.watches.len()
    }

    pub fn pending(&self) -> usize {
        self.watches
            .iter()
            .filter(|watch| watch.since.is_some())
            .count()
    }

    fn session(&mut self, key: &str, agent: &str) -> usize {
        let sessions = &mut self.sessions;
        *self
            .session_at
            .entry((agent.to_owned(), key.to_owned()))
            .or_insert_with(|| {
                sessions.push(Session {
                    key: text::safe(key),
                    agent: text::safe(agent),
                    state_version: 0,
                    pruned_below: 0,
                });
                sessions.len() - 1
            })
    }

    fn text(&mut self, raw: &str) -> usize {
        if let Some(at) = self.text_at.get(raw) {
            return *at;
        }
        self.texts.push(text::safe(raw));
        self.text_at.insert(raw.to_owned(), self.texts.len() - 1);
        self.texts.len() - 1
    }
}
