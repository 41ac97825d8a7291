//! What must be in the database, by what its users said before they were
//! killed, and whether it is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use session_awareness::*;

use crate::upstream::{SESSIONS, Writer};
use crate::{ACKER, DRAINER, Place, Rng, TARGETS};

/// An event of the log.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    name: String,
    session: String,
    kind: Kind,
    actor: Option<String>,
    turns: u64,
}

impl Known {
    fn concerns(&self, watcher: &str) -> bool {
        self.kind.notifies() && self.actor.as_deref() != Some(watcher)
    }
}

/// A cursor as its watcher knows it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The target's version when the watch began.
    from: u64,
    last_seen: u64,
}

impl Seen {
    fn begin(from: u64) -> Seen {
        Seen {
            from,
            last_seen: from,
        }
    }
}

/// What one life said.
#[derive(Default)]
struct Life {
    /// Every event that was to be recorded, by its name.
    meant: HashMap<String, Value>,
    /// The sequences of those that were answered.
    answered: BTreeMap<u64, String>,
    batches: Vec<Vec<String>>,
    /// The events of the thread that queues, in its order, and how many of the
    /// first of them are stored for certain.
    queued: Vec<String>,
    queued_for_certain: usize,
    /// (watcher, target, the sequence of a notice)
    notices: Vec<(String, String, u64)>,
    drain_in_doubt: bool,
    ack_in_doubt: Vec<(String, u64)>,
    toggle_in_doubt: Option<(String, String)>,
    /// What was answered with an error is out of doubt when something else was
    /// recorded after it: it is not there.
    refused: Vec<String>,
    refusing: bool,
}

pub struct Model<'a> {
    place: &'a Place,
    known: BTreeMap<u64, Known>,
    names: BTreeSet<String>,
    seen: BTreeMap<(String, String), Seen>,
    writers: Vec<Writer>,
}

/// A session's key as the log has it, and its agent.
fn session(key: &str) -> SessionRef {
    SessionRef::new(key)
}

/// Opens the database as it is, without pruning.
pub fn open(place: &Place) -> Awareness {
    Awareness::open(serde_json::from_value(place.config()).unwrap())
        .unwrap_or_else(|error| panic!("what a kill left cannot be opened: {error}"))
}

/// What `PRAGMA integrity_check` says of a database that nobody has open.
pub fn assert_intact(database: &Path) {
    let conn = rusqlite::Connection::open(database).unwrap();
    let verdict: String = conn
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(verdict, "ok");
}

/// The whole log, ascending.
pub fn log(aware: &Awareness) -> Vec<Event> {
    let mut all: Vec<Event> = Vec::new();
    loop {
        let request = EventsRequest {
            after: all.last().map(|event| event.sequence),
            limit: Some(1_000),
            ..Default::default()
        };
        let page = aware.events(request).unwrap();
        all.extend(page.events);
        if !page.more {
            return all;
        }
    }
}

pub fn sessions(aware: &Awareness) -> Vec<SessionRow> {
    aware.sessions(SessionsRequest::default()).unwrap().sessions
}

pub fn cursors(aware: &Awareness) -> Vec<WatchRow> {
    aware.watches(Watches::default()).unwrap().watches
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// The sequence of the last event that was pruned.
fn pruned(sessions: &[SessionRow]) -> u64 {
    let each = sessions.iter().map(|row| row.pruned_below);
    each.max().unwrap_or(0)
}

/// The watcher and the target of a watch.
fn pair(said: &Value) -> (String, String) {
    (text(&said[1]), text(&said[2]))
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Says that something is over when it goes.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<'a> Model<'a> {
    /// Of a database that nobody has used yet.
    pub fn new(place: &'a Place) -> Model<'a> {
        Model {
            place,
            known: BTreeMap::new(),
            names: BTreeSet::new(),
            seen: BTreeMap::new(),
            writers: Vec::new(),
        }
    }

    /// Sets up who watches what, and the agents' files.
    pub fn begin(place: &'a Place) -> Model<'a> {
        let aware = open(place);
        let mut model = Model::new(place);
        let upstream = SESSIONS.map(|(_, key)| key);
        for target in TARGETS.into_iter().chain(upstream) {
            for watcher in [DRAINER, ACKER] {
                aware.watch(Watch::new(watcher, target)).unwrap();
                let pair = (watcher.to_owned(), target.to_owned());
                model.seen.insert(pair, Seen::begin(0));
            }
        }
        for (catalog, key) in SESSIONS {
            let writer = Writer::new(place, catalog, key);
            aware.adopt(writer.adoption()).unwrap();
            model.writers.push(writer);
        }
        aware.close().unwrap();
        model
    }

    /// Has the agents write while `work` goes on.
    pub fn feed_while(&mut self, seed: &mut u64, work: impl FnOnce()) {
        let over = AtomicBool::new(false);
        let writers = &mut self.writers;
        let mut rng = Rng(*seed);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for writer in writers.iter_mut() {
                        writer.step(&mut rng);
                    }
                    // The pace of a busy agent: fifty passes find each a few rows.
                    std::thread::sleep(std::time::Duration::from_micros(300));
                }
            });
            // Also when it fails, or its message would never be seen.
            let _over = Over(&over);
            work();
        });
    }

    /// Opens what was left, and compares.
    pub fn check(&mut self, said: &[Value]) {
        let life = self.hear(said);
        self.writers.iter_mut().for_each(Writer::end);
        let aware = open(self.place);
        for outcome in aware.scan(Scan::default()).unwrap().outcomes {
            assert!(
                matches!(
                    outcome.outcome,
                    OutcomeKind::Unchanged | OutcomeKind::Activity | OutcomeKind::Replaced
                ),
                "{outcome:?}"
            );
        }
        aware.close().unwrap();
        // Opening is what brings each pending notice up to its newest change.
        let aware = open(self.place);
        let log = log(&aware);
        let sessions = sessions(&aware);
        self.check_log(&log, &sessions, &life);
        self.check_turns();
        self.check_changes(&aware, &sessions);
        self.check_cursors(cursors(&aware), &life);
        aware.close().unwrap();
        assert_intact(&self.place.database());
    }

    /// Has what was told already be undone, where agents do that.
    pub fn undo(&mut self, rng: &mut Rng) {
        self.writers.iter_mut().for_each(|writer| writer.undo(rng));
    }

    /// The last look; how many events and turns it was about.
    pub fn finish(mut self) -> u64 {
        self.check(&[]);
        self.size()
    }

    /// How many events and turns are accounted for.
    pub fn size(&self) -> u64 {
        let typed: u64 = self.writers.iter().map(Writer::typed).sum();
        self.known.len() as u64 + typed
    }

    fn seen(&mut self, watcher: &str, target: &Value) -> &mut Seen {
        self.seen
            .get_mut(&(watcher.to_owned(), text(target)))
            .unwrap_or_else(|| panic!("{watcher} watches no {target}"))
    }

    /// Notices begin where the watcher's last one ended: none is told twice, none left out.
    fn hear_notices(&mut self, watcher: &str, taken: &Value, life: &mut Life) {
        for notice in taken.as_array().unwrap() {
            let (since, notified) = (count(&notice[1]), count(&notice[2]));
            let seen = self.seen(watcher, &notice[0]).last_seen;
            assert_eq!(since, seen, "{watcher} is told {notice}");
            assert!(notified > since, "a notice of nothing: {notice}");
            life.notices
                .push((watcher.to_owned(), text(&notice[0]), notified));
        }
    }

    fn hear_acks(&mut self, watcher: &str, taken: &Value) {
        for notice in taken.as_array().unwrap() {
            self.seen(watcher, &notice[0]).last_seen = count(&notice[2]);
        }
    }

    fn hear(&mut self, said: &[Value]) -> Life {
        let mut life = Life::default();
        let mut asked: HashMap<String, Vec<String>> = HashMap::new();
        let mut refused = Vec::new();
        for said in said {
            match said[0].as_str().unwrap() {
                "error" => panic!("a call failed: {said}"),
                "record?" | "queue?" => {
                    let names: Vec<String> = said[2]
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|event| {
                            let name = text(&event["summary"]);
                            life.meant.insert(name.clone(), event.clone());
                            name
                        })
                        .collect();
                    match said[1].as_str().unwrap() {
                        "batch" => life.batches.push(names.clone()),
                        "queue" => life.queued.extend(names.clone()),
                        _ => {}
                    }
                    asked.insert(text(&said[1]), names);
                }
                // A call was answered with an error. Who says so is alone.
                "refused" => {
                    life.refusing = true;
                    refused.extend(asked.drain().flat_map(|(_, names)| names));
                }
                "record!" => {
                    let names = asked.remove(said[1].as_str().unwrap()).unwrap();
                    if std::mem::take(&mut life.refusing) {
                        life.refused.append(&mut refused);
                        life.drain_in_doubt = false;
                        life.ack_in_doubt.clear();
                        life.toggle_in_doubt = None;
                    }
                    let sequences = said[2].as_array().unwrap();
                    assert_eq!(names.len(), sequences.len());
                    for (name, sequence) in names.into_iter().zip(sequences) {
                        let twice = life.answered.insert(count(sequence), name);
                        assert_eq!(twice, None, "sequence {sequence} was given twice");
                    }
                    if said[1] == "queue" {
                        life.queued_for_certain = life.queued.len();
                    }
                }
                "drain?" => life.drain_in_doubt = true,
                "drain!" => {
                    life.drain_in_doubt = false;
                    self.hear_notices(DRAINER, &said[1], &mut life);
                    self.hear_acks(DRAINER, &said[1]);
                }
                "peek!" => self.hear_notices(ACKER, &said[1], &mut life),
                "ack?" => {
                    life.ack_in_doubt = said[1]
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|notice| (text(&notice[0]), count(&notice[2])))
                        .collect();
                }
                "ack!" => {
                    life.ack_in_doubt.clear();
                    self.hear_acks(ACKER, &said[1]);
                }
                "watch?" | "unwatch?" => life.toggle_in_doubt = Some(pair(said)),
                "watch!" => {
                    life.toggle_in_doubt = None;
                    let from = count(&said[4]);
                    let was = self.seen.contains_key(&pair(said));
                    assert_eq!(said[3].as_bool(), Some(!was), "{said}");
                    self.seen.entry(pair(said)).or_insert(Seen::begin(from));
                }
                "unwatch!" => {
                    life.toggle_in_doubt = None;
                    let was = self.seen.remove(&pair(said)).is_some();
                    assert_eq!(said[3].as_bool(), Some(was), "{said}");
                }
                what => panic!("a child said {what}"),
            }
        }
        life
    }

    fn check_log(&mut self, log: &[Event], sessions: &[SessionRow], life: &Life) {
        let pruned = pruned(sessions);
        for (sequence, name) in life.answered.range(..=pruned) {
            // What was pruned unseen is known by what was answered.
            let meant = &life.meant[name];
            self.known.entry(*sequence).or_insert_with(|| Known {
                name: name.clone(),
                session: text(&meant["sessionKey"]),
                kind: serde_json::from_value(meant["kind"].clone()).unwrap(),
                actor: Some(text(&meant["actorId"])),
                turns: 0,
            });
        }
        let last = self.known.last_key_value().map_or(0, |(last, _)| *last);
        let whole = self.known.keys().copied().eq(1..=last);
        assert!(whole && pruned <= last, "pruned before it was looked at");
        // What is pruned is a prefix, and nothing else is missing.
        for (event, sequence) in log.iter().zip(pruned + 1..) {
            assert_eq!(event.sequence, sequence, "the log has a hole");
        }
        let end = pruned + log.len() as u64;
        assert!(last <= end, "{} events are gone", last - end);
        for event in log {
            let known = Known {
                name: event.summary.clone(),
                session: event.session_key.clone().unwrap(),
                kind: event.kind,
                actor: event.actor_id.clone(),
                turns: event
                    .payload
                    .as_ref()
                    .filter(|_| event.kind == Kind::HumanDirectMessage)
                    .filter(|payload| payload.channel().is_some())
                    .map_or(0, |payload| payload.turns().unwrap_or(1)),
            };
            if let Some(before) = self.known.get(&event.sequence) {
                assert_eq!(*before, known, "{} has changed", event.sequence);
                continue;
            }
            if SESSIONS.iter().all(|(_, key)| *key != known.session) {
                let name = &known.name;
                let meant = life.meant.get(name);
                let meant = meant.unwrap_or_else(|| panic!("nobody recorded {known:?}"));
                assert_eq!(meant["sessionKey"], known.session, "{name}");
                assert_eq!(meant["kind"], known.kind.as_str(), "{name}");
                assert!(self.names.insert(name.clone()), "{name} is there twice");
            }
            self.known.insert(event.sequence, known);
        }
        for (sequence, name) in &life.answered {
            let there = self.known.get(sequence).map(|known| &known.name);
            assert_eq!(there, Some(name), "{sequence} was acknowledged");
        }
        let by_name: HashMap<&str, u64> = self
            .known
            .iter()
            .map(|(sequence, known)| (known.name.as_str(), *sequence))
            .collect();
        for name in &life.refused {
            assert!(!by_name.contains_key(name.as_str()), "{name} was refused");
        }
        for batch in &life.batches {
            let stored: Vec<_> = batch
                .iter()
                .map(|name| by_name.get(name.as_str()))
                .collect();
            let whole = stored.windows(2).all(|pair| match (pair[0], pair[1]) {
                (Some(one), Some(next)) => one + 1 == *next,
                (None, None) => true,
                _ => false,
            });
            assert!(whole, "a batch is torn: {batch:?} is at {stored:?}");
        }
        let stored: Vec<_> = life
            .queued
            .iter()
            .map_while(|name| by_name.get(name.as_str()))
            .collect();
        assert!(stored.is_sorted(), "queued in order, stored in another");
        assert!(
            stored.len() >= life.queued_for_certain,
            "queued before an answered record, and lost"
        );
        for name in &life.queued[stored.len()..] {
            assert!(!by_name.contains_key(name.as_str()), "{name} went ahead");
        }
        // Each head is exactly where its log says.
        let mut heads: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (sequence, known) in &self.known {
            let head = heads.entry(&known.session).or_default();
            head.0 = *sequence;
            if *sequence <= pruned {
                head.1 = *sequence;
            }
        }
        let stored: BTreeMap<&str, (u64, u64)> = sessions
            .iter()
            .map(|row| {
                (
                    row.session_key.as_str(),
                    (row.state_version, row.pruned_below),
                )
            })
            .collect();
        assert_eq!(stored, heads, "versions, and what was pruned below");
    }

    fn check_turns(&self) {
        let by_session = |writer: &Writer, turns| (writer.session, turns);
        let typed = self
            .writers
            .iter()
            .map(|writer| by_session(writer, writer.typed()));
        let told = self.writers.iter().map(|writer| {
            let told = self
                .known
                .values()
                .filter(|known| known.session == writer.session);
            by_session(writer, told.map(|known| known.turns).sum())
        });
        let (typed, told): (Vec<_>, Vec<_>) = (typed.collect(), told.collect());
        assert_eq!(told, typed, "turns told beside turns typed");
    }

    fn check_changes(&self, aware: &Awareness, sessions: &[SessionRow]) {
        for row in sessions {
            let edge = row.pruned_below;
            for since in [0, edge.saturating_sub(1), edge, row.state_version] {
                let reply = aware
                    .changes_since(ChangesSince::new(
                        session(&row.session_key).session_key,
                        since,
                    ))
                    .unwrap();
                let changes = reply.state_changes;
                assert_eq!(
                    changes.history_gap,
                    since < edge,
                    "{row:?} read from {since}"
                );
                let there: Vec<u64> = changes.events.iter().map(|event| event.sequence).collect();
                let wanted: Vec<u64> = self
                    .known
                    .range(since.max(pruned(sessions)) + 1..)
                    .filter(|(_, known)| known.session == row.session_key)
                    .map(|(sequence, _)| *sequence)
                    .take(200)
                    .collect();
                assert_eq!(there, wanted, "{row:?} read from {since}");
            }
        }
    }

    fn check_cursors(&mut self, rows: Vec<WatchRow>, life: &Life) {
        for (watcher, target, notified) in &life.notices {
            let known = &self.known[notified];
            assert!(
                known.session == *target && known.concerns(watcher),
                "{watcher} was told of {known:?}"
            );
        }
        let mut rows: BTreeMap<(String, String), WatchRow> = rows
            .into_iter()
            .map(|row| {
                let pair = (
                    row.watcher_session_key.clone(),
                    row.target_session_key.clone(),
                );
                (pair, row)
            })
            .collect();
        if let Some(pair) = &life.toggle_in_doubt {
            // Whether it was carried out is told by what is there.
            match rows.get(pair) {
                Some(row) => {
                    let from = row.last_seen;
                    let of_target = |known: &Known| known.session == pair.1;
                    let is_version = from == 0 || self.known.get(&from).is_some_and(of_target);
                    assert!(is_version || self.seen.contains_key(pair), "{row:?}");
                    self.seen.entry(pair.clone()).or_insert(Seen::begin(from));
                }
                None => drop(self.seen.remove(pair)),
            }
        }
        for (pair, seen) in &mut self.seen {
            let (watcher, target) = pair;
            let row = rows.remove(pair);
            let row = row.unwrap_or_else(|| panic!("{watcher} no longer watches {target}"));
            assert!(
                row.last_seen <= row.notified && row.notified <= row.material,
                "{row:?}"
            );
            let newest = self
                .known
                .iter()
                .rev()
                .take_while(|(sequence, _)| **sequence > seen.from)
                .find(|(_, known)| known.session == *target && known.concerns(watcher));
            let material = newest.map_or(seen.from, |(sequence, _)| *sequence);
            assert_eq!(row.material, material, "{row:?}");
            let in_doubt = match watcher.as_str() {
                // An answer that was lost, of one drain.
                DRAINER => life.drain_in_doubt && row.last_seen > seen.last_seen,
                ACKER => life
                    .ack_in_doubt
                    .iter()
                    .any(|ack| (&ack.0, ack.1) == (target, row.last_seen)),
                _ => false,
            };
            assert!(
                row.last_seen == seen.last_seen || in_doubt,
                "{row:?} was acknowledged and is not, or the other way: {seen:?}"
            );
            seen.last_seen = row.last_seen;
            // All that concerns the watcher is acknowledged, or a notice stands for it.
            assert_eq!(row.pending, row.last_seen < material, "{row:?}");
            assert_eq!(row.notified, material, "{row:?}");
        }
        assert!(rows.is_empty(), "nobody asked for {rows:?}");
    }
}
