//! A clock that is set back and forth, by hours and by years, between any two calls.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use proptest::prelude::*;

use super::*;
use crate::contract::{
    ActorType, Event, Kind, MAX_NUMBER, MonitorConfig, Retention, Roots, StateChanges,
};

const SECOND: i64 = 1_000;
const HOUR: i64 = 60 * 60 * SECOND;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;
/// Somewhen in November 2026.
const NOW: i64 = 1_796_000_000_000;

const WATCHER: &str = "agent:main:main";
const MAX_AGE: i64 = 30 * DAY;
const MAX_EVENTS: usize = 25;

/// A database and the clock it goes by.
struct Lab {
    folder: tempfile::TempDir,
    hands: std::sync::Arc<AtomicI64>,
}

impl Lab {
    fn new() -> Lab {
        Lab {
            folder: tempfile::tempdir().unwrap(),
            hands: std::sync::Arc::new(AtomicI64::new(NOW)),
        }
    }

    fn config(&self) -> Config {
        Config {
            retention: Some(Retention {
                max_age_ms: Some(MAX_AGE as u64),
                max_events: Some(MAX_EVENTS as u64),
            }),
            monitor: Some(MonitorConfig {
                enabled: Some(false),
                ..MonitorConfig::default()
            }),
            ..Config::new(self.folder.path().join("a.db").to_str().unwrap())
        }
    }

    fn open_with(&self, config: Config) -> Awareness {
        let clock = Clock {
            hands: Some(self.hands.clone()),
        };
        Awareness::open_by(config, clock, Steps::default()).unwrap()
    }

    fn open(&self) -> Awareness {
        self.open_with(self.config())
    }

    fn set(&self, time: i64) {
        self.hands.store(time, SeqCst);
    }
}

fn session(n: usize) -> String {
    format!("agent:main:s{n}")
}

fn say(aware: &Awareness, n: usize, occurred_at: Option<i64>) -> Event {
    let event = NewEvent {
        occurred_at,
        ..NewEvent::new(session(n), Kind::HumanDirectMessage, ActorType::Human)
    };
    match aware.record(event).unwrap() {
        Recorded::Stored { event, .. } => event,
        other => panic!("{other:?}"),
    }
}

fn sequences(aware: &Awareness) -> Vec<u64> {
    let request = EventsRequest {
        limit: Some(200),
        ..EventsRequest::default()
    };
    let page = aware.events(request).unwrap();
    page.events.iter().map(|event| event.sequence).collect()
}

fn changes(aware: &Awareness, n: usize, since: u64) -> StateChanges {
    let request = ChangesSince::new(session(n), since);
    aware.changes_since(request).unwrap().state_changes
}

/// What the contract says of a database under such a clock.
#[derive(Default)]
struct Model {
    /// Session and time of recording, by sequence.
    log: BTreeMap<u64, (usize, i64)>,
    pruned: BTreeMap<u64, usize>,
    cursors: BTreeMap<usize, Cursor>,
    last: u64,
}

#[derive(Clone, Copy)]
struct Cursor {
    last_seen: u64,
    notified: u64,
    material: u64,
    touched_at: i64,
    opened_at: i64,
}

impl Cursor {
    fn is_open(&self) -> bool {
        self.notified > self.last_seen
    }
}

impl Model {
    fn say(&mut self, n: usize, sequence: u64, now: i64) {
        self.log.insert(sequence, (n, now));
        self.last = sequence;
        if let Some(cursor) = self.cursors.get_mut(&n) {
            if !cursor.is_open() {
                cursor.notified = sequence;
                cursor.opened_at = now;
            }
            cursor.material = sequence;
            cursor.touched_at = now;
        }
    }

    fn version(&self, n: usize) -> u64 {
        let there = self.log.iter().map(|(sequence, (of, _))| (sequence, of));
        let all = there.chain(&self.pruned);
        all.filter(|(_, of)| **of == n)
            .map(|(sequence, _)| *sequence)
            .max()
            .unwrap_or(0)
    }

    fn watch(&mut self, n: usize, now: i64) {
        let version = self.version(n);
        let fresh = Cursor {
            last_seen: version,
            notified: version,
            material: version,
            touched_at: now,
            opened_at: 0,
        };
        self.cursors.entry(n).or_insert(fresh).touched_at = now;
    }

    /// Takes every open notice; which ones.
    fn drain(&mut self, now: i64) -> Vec<(u64, usize)> {
        let mut taken = Vec::new();
        for (n, cursor) in self.cursors.iter_mut().filter(|(_, one)| one.is_open()) {
            taken.push((cursor.notified, *n));
            cursor.last_seen = cursor.notified;
            cursor.touched_at = now;
            if cursor.material > cursor.notified {
                cursor.notified = cursor.material;
                cursor.opened_at = now;
            }
        }
        taken.sort();
        taken
    }

    fn sweep(&mut self, now: i64) {
        for cursor in self.cursors.values_mut() {
            if cursor.is_open() && cursor.material > cursor.notified {
                cursor.notified = cursor.material;
                cursor.touched_at = now;
            }
        }
    }

    /// How many events and cursors go.
    fn prune(&mut self, now: i64) -> (u64, u64) {
        let cutoff = now - MAX_AGE;
        let mut events = 0;
        while let Some(first) = self.log.first_entry() {
            let (n, recorded_at) = *first.get();
            let sequence = *first.key();
            if recorded_at >= cutoff && self.log.len() <= MAX_EVENTS {
                break;
            }
            self.log.remove(&sequence);
            self.pruned.insert(sequence, n);
            events += 1;
        }
        let before = self.cursors.len();
        self.cursors
            .retain(|_, cursor| cursor.is_open() || cursor.touched_at >= cutoff);
        (events, (before - self.cursors.len()) as u64)
    }

    fn agrees(&self, aware: &Awareness) {
        let kept: Vec<u64> = self.log.keys().copied().collect();
        assert_eq!(sequences(aware), kept);
        // What is gone lies before what is there.
        if let (Some(gone), Some(first)) = (self.pruned.keys().last(), kept.first()) {
            assert!(gone < first);
        }
        for n in 0..3 {
            for since in (0..=self.last).rev().take(40).chain([0]) {
                let told = changes(aware, n, since);
                let gap = self.pruned.iter().any(|(at, of)| *of == n && *at > since);
                assert_eq!(told.history_gap, gap, "session {n} since {since}");
                assert_eq!(told.future_cursor, since > self.version(n));
            }
        }
        let watches = aware.watches(Watches::default()).unwrap().watches;
        let watches: Vec<_> = watches
            .iter()
            .map(|row| {
                let marks = (row.last_seen, row.notified, row.material);
                (row.target_session_key.clone(), marks)
            })
            .collect();
        let expected: Vec<_> = self
            .cursors
            .iter()
            .map(|(n, one)| (session(*n), (one.last_seen, one.notified, one.material)))
            .collect();
        assert_eq!(watches, expected);
    }
}

#[derive(Clone, Debug)]
enum Act {
    SetClock(i64),
    TurnClock(i64),
    Say(usize, Option<i64>),
    Watch(usize),
    Drain,
    Prune,
    Reopen,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let extremes = vec![
        NOW,
        0,
        -1,
        -62_135_596_800_001,
        i64::MIN,
        i64::MAX,
        MAX_NUMBER,
        MAX_NUMBER + 1,
        // 31 December 9999, and a day later.
        253_402_214_400_000,
        253_402_300_800_000,
    ];
    let turn = prop_oneof![
        (-48..=48i64).prop_map(|n| n * HOUR),
        (-40..=40i64).prop_map(|n| n * DAY),
        (-60..=60i64).prop_map(|n| n * YEAR),
        -5_000..=5_000i64,
    ];
    let offset = prop_oneof![-3 * YEAR..=3 * YEAR, -2 * DAY..=2 * DAY];
    let act = prop_oneof![
        1 => prop::sample::select(extremes).prop_map(Act::SetClock),
        3 => turn.prop_map(Act::TurnClock),
        8 => (0..3usize, prop::option::of(offset)).prop_map(|(n, at)| Act::Say(n, at)),
        2 => (0..3usize).prop_map(Act::Watch),
        2 => Just(Act::Drain),
        2 => Just(Act::Prune),
        1 => Just(Act::Reopen),
    ];
    prop::collection::vec(act, 1..60)
}

fn carry_out(acts: Vec<Act>) {
    let lab = Lab::new();
    let mut aware = lab.open();
    let mut model = Model::default();
    for act in acts {
        // What the contract has a number for.
        let now = lab.hands.load(SeqCst).clamp(0, MAX_NUMBER);
        match act {
            Act::SetClock(time) => lab.set(time),
            Act::TurnClock(by) => lab.set(now.saturating_add(by)),
            Act::Say(n, at) => {
                let at = at.map(|by| (now + by).clamp(-MAX_NUMBER, MAX_NUMBER));
                let event = say(&aware, n, at);
                assert!(event.sequence > model.last, "a sequence came twice");
                assert!((now - DAY..=now).contains(&event.occurred_at));
                assert_eq!(event.occurred_at, at.unwrap_or(now).clamp(now - DAY, now));
                model.say(n, event.sequence, now);
            }
            Act::Watch(n) => {
                aware.watch(Watch::new(WATCHER, session(n))).unwrap();
                model.watch(n, now);
            }
            Act::Drain => {
                let drained = aware.drain_notices(DrainNotices::new(WATCHER)).unwrap();
                let taken: Vec<_> = drained
                    .notices
                    .iter()
                    .map(|notice| (notice.notified, notice.target_session_key.clone()))
                    .collect();
                let expected = model.drain(now).into_iter();
                let expected: Vec<_> = expected.map(|(at, n)| (at, session(n))).collect();
                assert_eq!(taken, expected);
            }
            Act::Prune => {
                let pruned = aware.maintain().unwrap();
                let expected = model.prune(now);
                assert_eq!((pruned.pruned_events, pruned.pruned_cursors), expected);
            }
            Act::Reopen => {
                aware.close().unwrap();
                aware = lab.open();
                model.sweep(now);
                let woken: Vec<_> = model
                    .cursors
                    .iter()
                    .filter(|(_, one)| one.is_open() && one.opened_at >= now - MAX_AGE)
                    .map(|(n, _)| session(*n))
                    .collect();
                model.prune(now);
                let wakes = aware.wait_wakes(WaitWakes::default()).unwrap().wakes;
                let mut wakes: Vec<_> = wakes
                    .into_iter()
                    .map(|wake| wake.target_session_key)
                    .collect();
                wakes.sort();
                assert_eq!(wakes, woken);
            }
        }
    }
    model.agrees(&aware);
    aware.close().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_contract_holds_whatever_the_clock_does(acts in acts()) {
        carry_out(acts);
    }
}

#[test]
fn a_jump_forward_prunes_once_and_is_told_as_a_gap() {
    let lab = Lab::new();
    let aware = lab.open();
    let first = say(&aware, 0, None).sequence;
    let last = say(&aware, 0, None).sequence;
    lab.set(NOW + 10 * YEAR);
    assert_eq!(aware.maintain().unwrap().pruned_events, 2);
    let told = changes(&aware, 0, first);
    assert!(told.history_gap);
    assert_eq!(told.next_changes_since, last, "the head stays");
    assert!(!changes(&aware, 0, last).history_gap);
    // Later in that time, and after the clock was set right: nothing more.
    let there = say(&aware, 0, None).sequence;
    assert_eq!(aware.maintain().unwrap().pruned_events, 0);
    lab.set(NOW + HOUR);
    let here = say(&aware, 0, None).sequence;
    assert_eq!(aware.maintain().unwrap().pruned_events, 0);
    // Not even for those recorded here in a month, since one from the years to
    // come lies before them.
    lab.set(NOW + 60 * DAY);
    assert_eq!(aware.maintain().unwrap().pruned_events, 0);
    assert_eq!(sequences(&aware), [there, here]);
    // The number of events still bounds what is kept so.
    for _ in 0..MAX_EVENTS {
        say(&aware, 1, None);
    }
    assert_eq!(aware.maintain().unwrap().pruned_events, 2);
    // And from then on age does again.
    lab.set(NOW + 91 * DAY);
    assert_eq!(aware.maintain().unwrap().pruned_events, MAX_EVENTS as u64);
}

#[test]
fn a_jump_back_prunes_nothing_by_age_until_the_clock_is_back() {
    let lab = Lab::new();
    let aware = lab.open();
    aware.watch(Watch::new(WATCHER, session(0))).unwrap();
    say(&aware, 1, None);
    for back in [HOUR, YEAR, 50 * YEAR, NOW, NOW + YEAR] {
        lab.set(NOW - back);
        say(&aware, 1, None);
        let pruned = aware.maintain().unwrap();
        assert_eq!((pruned.pruned_events, pruned.pruned_cursors), (0, 0));
    }
    lab.set(NOW + MAX_AGE);
    let pruned = aware.maintain().unwrap();
    assert_eq!((pruned.pruned_events, pruned.pruned_cursors), (0, 0));
    lab.set(NOW + MAX_AGE + 1);
    let pruned = aware.maintain().unwrap();
    assert_eq!((pruned.pruned_events, pruned.pruned_cursors), (6, 1));
}

/// Opens with a background that looks once an interval.
fn open_watching(lab: &Lab, interval_ms: u64) -> Awareness {
    let nowhere = lab.folder.path().join("homes");
    let mut roots = Roots::default();
    for catalog in Catalog::ALL {
        roots.set(catalog, nowhere.to_str().unwrap());
    }
    lab.open_with(Config {
        monitor: Some(MonitorConfig {
            enabled: Some(true),
            initial_delay_ms: Some(0),
            interval_ms: Some(interval_ms),
            file_events: Some(false),
            roots: Some(roots),
        }),
        ..lab.config()
    })
}

/// Such a handle, and a watched session that is linked to a file.
fn adopted(lab: &Lab, interval_ms: u64) -> (Awareness, PathBuf) {
    let file = lab.folder.path().join("claude.jsonl");
    write_turn(&file, "before");
    let aware = open_watching(lab, interval_ms);
    aware.watch(Watch::new(WATCHER, session(0))).unwrap();
    let source = file.to_str().unwrap();
    aware
        .adopt(Adopt::new(session(0), Catalog::Claude, source))
        .unwrap();
    (aware, file)
}

fn write_turn(file: &Path, text: &str) {
    let row = serde_json::json!({
        "type": "user", "uuid": text, "sessionId": "s", "timestamp": "2026-11-30T10:00:00.000Z",
        "origin": {"kind": "human"}, "message": {"role": "user", "content": text},
    });
    let mut file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(file)
        .unwrap();
    writeln!(file, "{row}").unwrap();
}

fn count(aware: &Awareness, kind: Kind) -> usize {
    let request = EventsRequest {
        kinds: Some(vec![kind]),
        ..EventsRequest::default()
    };
    aware.events(request).unwrap().events.len()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const JUMPS: [i64; 6] = [
    NOW,
    NOW - 10 * YEAR,
    NOW + 10 * YEAR,
    0,
    i64::MAX,
    NOW - 3 * HOUR,
];

#[test]
fn no_clock_delays_a_pass() {
    let lab = Lab::new();
    let (aware, file) = adopted(&lab, 20);
    for (turn, time) in JUMPS.into_iter().enumerate() {
        lab.set(time);
        write_turn(&file, &format!("turn {turn}"));
        until("a turn", || {
            count(&aware, Kind::HumanDirectMessage) == turn + 1
        });
    }
}

#[test]
fn no_clock_delays_a_miss() {
    for time in JUMPS {
        let lab = Lab::new();
        let (aware, file) = adopted(&lab, 20);
        std::fs::remove_file(&file).unwrap();
        until("a miss", || {
            let links = aware.links(LinksRequest::default()).unwrap().links;
            links.first().is_none_or(|link| link.missing > 0)
        });
        lab.set(time);
        until("the end", || count(&aware, Kind::UpstreamMissing) == 1);
        assert!(
            aware
                .links(LinksRequest::default())
                .unwrap()
                .links
                .is_empty()
        );
    }
}

#[test]
fn no_clock_makes_two_misses_of_one() {
    let lab = Lab::new();
    let (aware, file) = adopted(&lab, HOUR as u64);
    aware.close().unwrap();
    std::fs::remove_file(&file).unwrap();
    for time in JUMPS {
        lab.set(time);
        // Every handle looks at once, and finds that this interval has its miss.
        let aware = open_watching(&lab, HOUR as u64);
        until("a round", || {
            let stats = aware.stats().unwrap();
            stats
                .scans
                .get("claude")
                .is_some_and(|scans| scans.passes > 0)
        });
        let links = aware.links(LinksRequest::default()).unwrap().links;
        assert_eq!(links[0].missing, 1, "at {time}");
        aware.close().unwrap();
    }
}

/// A store of OpenCode with one session, `ses_1`, of either kind.
enum Opencode {
    Tree(PathBuf),
    Database(PathBuf),
}

impl Opencode {
    fn source(&self) -> &Path {
        match self {
            Opencode::Tree(source) | Opencode::Database(source) => source,
        }
    }

    fn begin(&self) {
        match self {
            Opencode::Tree(folder) => {
                write_json(&folder.join("storage/session/p/ses_1.json"), "{}");
            }
            Opencode::Database(file) => rusqlite::Connection::open(file)
                .unwrap()
                .execute_batch(
                    "CREATE TABLE session (id TEXT PRIMARY KEY);
                     CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, data TEXT);
                     CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, data TEXT);
                     INSERT INTO session VALUES ('ses_1');",
                )
                .unwrap(),
        }
    }

    /// Writes what a person typed at this time, under ids as OpenCode makes them.
    fn say(&self, time: i64, text: &str) {
        let made = format!("{:012x}{:014}", time.rem_euclid(1 << 36) << 12, text.len());
        let (message, part) = (format!("msg_{made}"), format!("prt_{made}"));
        let data = serde_json::json!({"role": "user", "time": {"created": time}}).to_string();
        let typed = serde_json::json!({"type": "text", "text": text}).to_string();
        match self {
            Opencode::Tree(folder) => {
                let storage = folder.join("storage");
                let name = format!("message/ses_1/{message}.json");
                write_json(&storage.join(name), &data);
                write_json(&storage.join(format!("part/{message}/{part}.json")), &typed);
            }
            Opencode::Database(file) => {
                let db = rusqlite::Connection::open(file).unwrap();
                let row = [&message, "ses_1", &data];
                db.execute("INSERT INTO message VALUES (?1, ?2, ?3)", row)
                    .unwrap();
                let row = [&part, &message, &typed];
                db.execute("INSERT INTO part VALUES (?1, ?2, ?3)", row)
                    .unwrap();
            }
        }
    }
}

fn write_json(file: &Path, text: &str) {
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

#[test]
fn what_was_typed_up_to_the_millisecond_of_the_adoption_is_not_told() {
    for kind in [Opencode::Tree as fn(_) -> _, Opencode::Database] {
        let lab = Lab::new();
        let store = kind(lab.folder.path().join("opencode.db"));
        store.begin();
        store.say(NOW - 1, "before");
        store.say(NOW, "in the same millisecond");
        let aware = lab.open();
        for n in 0..2 {
            aware.watch(Watch::new(WATCHER, session(n))).unwrap();
        }
        let source = store.source().to_str().unwrap();
        let adopt = |n| Adopt {
            thread_id: Some("ses_1".to_owned()),
            ..Adopt::new(session(n), Catalog::Opencode, source)
        };
        aware.adopt(adopt(0)).unwrap();
        aware.scan(Scan::default()).unwrap();
        assert_eq!(count(&aware, Kind::HumanDirectMessage), 0);
        // Written after the adoption was answered, in the same millisecond.
        store.say(NOW, "quickly");
        aware.scan(Scan::default()).unwrap();
        assert_eq!(count(&aware, Kind::HumanDirectMessage), 1);
        aware.release(SessionRef::new(session(0))).unwrap();
        // Written while the adoption reads: its time tells.
        lab.set(NOW + 1);
        store.say(NOW + 1, "with the adoption");
        store.say(NOW + 2, "just after");
        let told = aware.adopt(adopt(1)).unwrap();
        let after = changes(&aware, 1, told.event.sequence);
        let times: Vec<i64> = after.events.iter().map(|event| event.occurred_at).collect();
        assert_eq!(
            times,
            [NOW + 1],
            "one turn, its time is the clock's at most"
        );
        aware.scan(Scan::default()).unwrap();
        assert_eq!(count(&aware, Kind::HumanDirectMessage), 2);
        aware.close().unwrap();
    }
}
