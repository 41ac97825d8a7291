//! The rules of the contract that need a database, through the Rust API.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use session_awareness::*;
use tempfile::TempDir;

const MANAGER: &str = "agent:main:main";
const CHILD: &str = "agent:main:subagent:child";

struct Db {
    folder: TempDir,
}

impl Db {
    fn new() -> Db {
        Db {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("awareness.db")
    }

    fn config(&self) -> Config {
        Config::new(self.path().to_str().unwrap())
    }

    fn open(&self) -> Awareness {
        Awareness::open(self.config()).unwrap()
    }

    fn keeping(&self, max_age_ms: Option<u64>, max_events: Option<u64>) -> Awareness {
        let retention = Some(Retention {
            max_age_ms,
            max_events,
        });
        Awareness::open(Config {
            retention,
            ..self.config()
        })
        .unwrap()
    }
}

fn human(key: &str) -> NewEvent {
    NewEvent::new(key, Kind::HumanDirectMessage, ActorType::Human)
}

fn record(aware: &Awareness, event: NewEvent) -> u64 {
    aware.record(event).unwrap().event().unwrap().sequence
}

fn watch(aware: &Awareness, watcher: &str, target: &str) {
    aware.watch(Watch::new(watcher, target)).unwrap();
}

fn drain(aware: &Awareness, watcher: &str) -> Vec<Notice> {
    aware
        .drain_notices(DrainNotices::new(watcher))
        .unwrap()
        .notices
}

fn wakes(aware: &Awareness, timeout_ms: u64) -> Vec<(String, String)> {
    let wakes = aware
        .wait_wakes(WaitWakes {
            timeout_ms,
            max: None,
        })
        .unwrap()
        .wakes;
    wakes
        .into_iter()
        .map(|wake| (wake.session_key, wake.target_session_key))
        .collect()
}

fn code<T: std::fmt::Debug>(outcome: Result<T>) -> Code {
    outcome.unwrap_err().code
}

fn pair(watcher: &str, target: &str) -> (String, String) {
    (watcher.to_owned(), target.to_owned())
}

// ---- opening -------------------------------------------------------------

#[test]
fn what_cannot_be_opened_is_told_and_left_as_it_is() {
    let db = Db::new();
    let none = Config {
        create: Some(false),
        ..db.config()
    };
    assert_eq!(code(Awareness::open(none)), Code::NotFound);
    let none = Config {
        read_only: Some(true),
        ..db.config()
    };
    assert_eq!(code(Awareness::open(none)), Code::NotFound);
    assert!(!db.path().exists());
    let folder = db.folder.path().join("no/such/a.db");
    assert_eq!(
        code(Awareness::open(Config::new(folder.to_str().unwrap()))),
        Code::NotFound
    );
    for path in [
        "",
        ":memory:",
        "file:a.db",
        "a\0b",
        db.folder.path().to_str().unwrap(),
    ] {
        let error = Awareness::open(Config::new(path)).unwrap_err();
        assert_eq!(
            (error.code, error.field.as_deref()),
            (Code::InvalidArgument, Some("database")),
            "{path:?}"
        );
    }
    std::fs::write(
        db.path(),
        "this is no database, and long enough to be read as one".repeat(20),
    )
    .unwrap();
    let before = std::fs::read(db.path()).unwrap();
    assert_eq!(code(Awareness::open(db.config())), Code::Storage);
    assert_eq!(std::fs::read(db.path()).unwrap(), before);
}

#[test]
fn another_programs_database_is_refused_and_untouched() {
    let db = Db::new();
    sql(
        &db.path(),
        "CREATE TABLE theirs(x); PRAGMA user_version = 7;",
    );
    let before = std::fs::read(db.path()).unwrap();
    let error = Awareness::open(db.config()).unwrap_err();
    assert_eq!(
        (error.code, error.field.as_deref()),
        (Code::InvalidArgument, Some("database"))
    );
    assert_eq!(std::fs::read(db.path()).unwrap(), before);
}

#[test]
fn a_newer_major_schema_is_refused_and_untouched_and_a_newer_minor_is_not() {
    let db = Db::new();
    db.open().close().unwrap();
    sql(
        &db.path(),
        "INSERT INTO session_aware_schema VALUES (1, 99, 0)",
    );
    record(&db.open(), human(CHILD));
    sql(
        &db.path(),
        "INSERT INTO session_aware_schema VALUES (2, 0, 0)",
    );
    let before = std::fs::read(db.path()).unwrap();
    for read_only in [false, true] {
        let config = Config {
            read_only: Some(read_only),
            ..db.config()
        };
        let error = Awareness::open(config).unwrap_err();
        assert_eq!(error.code, Code::Unsupported);
        assert!(error.message.contains("newer version"), "{error}");
    }
    assert_eq!(std::fs::read(db.path()).unwrap(), before);
}

#[test]
fn every_file_is_for_its_owner_alone_and_none_but_the_poked_one_stays_behind() {
    let db = Db::new();
    let aware = db.open();
    watch(&aware, MANAGER, CHILD);
    record(&aware, human(CHILD));
    let names = || {
        let mut names: Vec<String> = std::fs::read_dir(db.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            .inspect(|entry| {
                assert_eq!(
                    entry.metadata().unwrap().permissions().mode() & 0o777,
                    0o600,
                    "{entry:?}"
                )
            })
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let suffixes =
        ["", "-handle-1", "-shm", "-wake", "-wal"].map(|suffix| format!("awareness.db{suffix}"));
    assert_eq!(names(), suffixes);
    aware.close().unwrap();
    assert_eq!(names(), ["awareness.db", "awareness.db-wake"]);
}

#[test]
fn many_handles_open_a_new_database_at_once() {
    let db = Db::new();
    let config = db.config();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let config = config.clone();
            std::thread::spawn(move || record(&Awareness::open(config).unwrap(), human(CHILD)))
        })
        .collect();
    let mut sequences: Vec<u64> = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    sequences.sort_unstable();
    assert_eq!(sequences, (1..=8).collect::<Vec<_>>());
}

/// Runs SQL on a database that this process has not open.
fn sql(path: &Path, statements: &str) {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.execute_batch(statements).unwrap();
}

// ---- the file under an open handle ----------------------------------------

#[test]
fn a_removed_file_is_storage_and_a_file_that_is_there_again_is_used() {
    let db = Db::new();
    let aware = db.open();
    record(&aware, human("agent:main:before"));
    aware
        .backup(Backup {
            path: db.folder.path().join("copy").to_str().unwrap().to_owned(),
        })
        .unwrap();
    for file in ["awareness.db", "awareness.db-wal", "awareness.db-shm"] {
        std::fs::remove_file(db.folder.path().join(file)).unwrap();
    }
    assert_eq!(code(aware.record(human(CHILD))), Code::Storage);
    assert_eq!(
        code(aware.changes_since(ChangesSince::new(CHILD, 0))),
        Code::Storage
    );
    assert_eq!(
        code(aware.drain_notices(DrainNotices::new(MANAGER))),
        Code::Storage
    );
    assert!(
        !db.path().exists(),
        "a removed database is not made anew behind the host's back"
    );
    std::fs::rename(db.folder.path().join("copy"), db.path()).unwrap();
    assert_eq!(
        aware
            .sessions(SessionsRequest::default())
            .unwrap()
            .sessions
            .len(),
        1
    );
    watch(&aware, MANAGER, CHILD);
    record(&aware, human(CHILD));
    assert_eq!(wakes(&aware, 5_000), [pair(MANAGER, CHILD)]);
    assert_eq!(aware.stats().unwrap().failed_appends, 1);
    aware.close().unwrap();
    assert_eq!(
        db.open()
            .events(EventsRequest::default())
            .unwrap()
            .events
            .len(),
        2
    );
}

#[test]
fn a_replaced_file_is_followed_by_readers_and_writers() {
    let db = Db::new();
    let other = Db::new();
    let aware = db.open();
    let seen = record(&aware, human(CHILD));
    other.open().close().unwrap();
    for file in ["awareness.db-wal", "awareness.db-shm"] {
        std::fs::remove_file(db.folder.path().join(file)).unwrap();
    }
    std::fs::rename(other.path(), db.path()).unwrap();
    let changes = aware.changes_since(ChangesSince::new(CHILD, seen)).unwrap();
    assert!(changes.state_changes.future_cursor);
    assert_eq!(changes.state_version, 0);
    assert_eq!(record(&aware, human(CHILD)), 1);
}

#[test]
fn a_reader_reads_while_a_writer_of_another_process_writes() {
    let db = Db::new();
    let aware = Awareness::open(Config {
        busy_timeout_ms: Some(50),
        ..db.config()
    })
    .unwrap();
    record(&aware, human(CHILD));
    // Another process is what flock and POSIX locks see of a connection made by a child process.
    let mut other = std::process::Command::new("python3")
        .args(["-c", "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1], isolation_level=None)\nc.execute('BEGIN IMMEDIATE')\nprint(flush=True)\nsys.stdin.read()"])
        .arg(db.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    assert_eq!(
        aware
            .changes_since(ChangesSince::new(CHILD, 0))
            .unwrap()
            .state_changes
            .events
            .len(),
        1
    );
    let error = aware.record(human(CHILD)).unwrap_err();
    assert_eq!(error.code, Code::Busy);
    assert!(error.message.contains("busyTimeoutMs"), "{error}");
    drop(other.stdin.take());
    other.wait().unwrap();
    record(&aware, human(CHILD));
}

// ---- the log ---------------------------------------------------------------

#[test]
fn a_batch_is_all_or_nothing_and_knows_its_own_dedupe_keys() {
    let db = Db::new();
    let aware = db.open();
    let keyed = |key: &str| NewEvent {
        dedupe_key: Some(key.to_owned()),
        ..human(CHILD)
    };
    let results = aware
        .record_batch(vec![keyed("a"), keyed("b"), keyed("a")])
        .unwrap();
    let told: Vec<_> = results
        .iter()
        .map(|result| match result {
            Recorded::Stored {
                duplicate, event, ..
            } => (*duplicate, event.sequence),
            Recorded::Not { .. } => panic!("{result:?}"),
        })
        .collect();
    assert_eq!(told, [(false, 1), (false, 2), (true, 1)]);
    assert!(aware.record_batch(vec![human(CHILD), human("")]).is_err());
    assert_eq!(aware.stats().unwrap().events, 2);
    assert!(aware.record_batch(Vec::new()).unwrap().is_empty());
}

#[test]
fn only_if_watched_counts_the_watchers_that_the_event_would_make() {
    let db = Db::new();
    let aware = db.open();
    let event = |kind, named: &[&str]| NewEvent {
        only_if_watched: Some(true),
        watcher_session_keys: Some(named.iter().map(|key| key.to_string()).collect()),
        ..NewEvent::new(CHILD, kind, ActorType::Human)
    };
    for unwatched in [
        event(Kind::HumanDirectMessage, &[]),
        event(Kind::HumanDirectMessage, &["global", CHILD]),
        event(Kind::Compacted, &[MANAGER]),
    ] {
        assert!(aware.record(unwatched).unwrap().event().is_none());
    }
    assert!(
        aware
            .record(event(Kind::HumanDirectMessage, &[MANAGER]))
            .unwrap()
            .event()
            .is_some()
    );
    assert!(
        aware
            .record(event(Kind::Compacted, &[]))
            .unwrap()
            .event()
            .is_some()
    );
}

#[test]
fn an_event_for_watchers_alone_waits_for_no_writer_when_there_are_none() {
    let db = Db::new();
    let aware = Awareness::open(Config {
        busy_timeout_ms: Some(1),
        ..db.config()
    })
    .unwrap();
    let for_watchers = || NewEvent {
        only_if_watched: Some(true),
        ..human(CHILD)
    };
    // Another program is writing.
    let writer = rusqlite::Connection::open(db.path()).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(aware.record(for_watchers()).unwrap().event().is_none());
    assert!(aware.record(human(CHILD)).is_err());
    writer.execute_batch("ROLLBACK").unwrap();
    // What is queued comes before, and may be what makes a watcher.
    let spawned = NewEvent {
        watcher_session_keys: Some(vec![MANAGER.to_owned()]),
        ..NewEvent::new(CHILD, Kind::ChildSpawned, ActorType::Agent)
    };
    for _ in 0..50 {
        aware
            .session_delete(SessionDelete {
                session_key: CHILD.to_owned(),
                agent_id: None,
            })
            .unwrap();
        assert!(aware.record_queued(vec![spawned.clone()]).unwrap().queued);
        assert!(aware.record(for_watchers()).unwrap().event().is_some());
    }
}

#[test]
fn a_deleted_session_begins_anew_above_its_old_sequences() {
    let db = Db::new();
    let aware = db.open();
    let last = record(&aware, human(CHILD));
    let delete = || {
        aware
            .session_delete(SessionDelete {
                session_key: CHILD.into(),
                agent_id: None,
            })
            .unwrap()
            .deleted
    };
    watch(&aware, CHILD, "agent:main:other");
    assert!(delete());
    assert!(!delete());
    assert!(
        aware
            .watches(Watches::default())
            .unwrap()
            .watches
            .is_empty()
    );
    assert!(record(&aware, human(CHILD)) > last);
}

#[test]
fn queued_events_keep_their_order_before_a_later_record() {
    let db = Db::new();
    let aware = db.open();
    let goal = |n: usize| NewEvent {
        summary: Some(n.to_string()),
        ..NewEvent::new(CHILD, Kind::GoalChanged, ActorType::Human)
    };
    for n in 0..100 {
        if n % 10 == 9 {
            record(&aware, goal(n));
        } else {
            assert!(aware.record_queued(vec![goal(n)]).unwrap().queued);
        }
    }
    assert_eq!(
        code(aware.record_queued(vec![human("agent:")])),
        Code::InvalidArgument
    );
    aware.close().unwrap();
    let events = db
        .open()
        .events(EventsRequest {
            limit: Some(1_000),
            ..Default::default()
        })
        .unwrap()
        .events;
    let order: Vec<usize> = events
        .iter()
        .map(|event| event.summary.parse().unwrap())
        .collect();
    assert_eq!(order, (0..100).collect::<Vec<_>>());
}

#[test]
fn events_pages_and_filters() {
    let db = Db::new();
    let aware = db.open();
    for n in 0..6 {
        let kind = if n % 2 == 0 {
            Kind::Compacted
        } else {
            Kind::GoalChanged
        };
        let key = if n % 3 == 0 { "global" } else { CHILD };
        record(
            &aware,
            NewEvent {
                agent_id: (n == 3).then(|| "ops".into()),
                ..NewEvent::new(key, kind, ActorType::System)
            },
        );
    }
    let sequences = |request: EventsRequest| {
        let page = aware.events(request).unwrap();
        (
            page.events
                .iter()
                .map(|event| event.sequence)
                .collect::<Vec<_>>(),
            page.more,
        )
    };
    let all = EventsRequest::default;
    assert_eq!(
        sequences(EventsRequest {
            limit: Some(4),
            ..all()
        }),
        (vec![1, 2, 3, 4], true)
    );
    assert_eq!(
        sequences(EventsRequest {
            after: Some(4),
            ..all()
        }),
        (vec![5, 6], false)
    );
    assert_eq!(
        sequences(EventsRequest {
            session_key: Some("global".into()),
            ..all()
        })
        .0,
        [1]
    );
    assert_eq!(
        sequences(EventsRequest {
            session_key: Some("global".into()),
            agent_id: Some("ops".into()),
            ..all()
        })
        .0,
        [4]
    );
    assert_eq!(
        sequences(EventsRequest {
            agent_id: Some("ops".into()),
            ..all()
        })
        .0,
        [4]
    );
    assert_eq!(
        sequences(EventsRequest {
            kinds: Some(vec![Kind::GoalChanged]),
            agent_id: Some("main".into()),
            ..all()
        })
        .0,
        [2, 6]
    );
    assert_eq!(
        sequences(EventsRequest {
            kinds: Some(vec![]),
            ..all()
        })
        .0
        .len(),
        6
    );
    assert_eq!(
        aware
            .events(EventsRequest {
                limit: Some(0),
                ..all()
            })
            .unwrap_err()
            .field
            .as_deref(),
        Some("limit")
    );
}

// ---- retention -------------------------------------------------------------

#[test]
fn at_most_a_thousand_rows_go_before_open_returns_and_the_rest_soon_after() {
    let db = Db::new();
    let aware = db.open();
    for _ in 0..5 {
        aware.record_batch(vec![human(CHILD); 700]).unwrap();
    }
    aware.close().unwrap();
    let aware = db.keeping(None, Some(100));
    assert!(aware.stats().unwrap().events >= 100);
    until(|| aware.stats().unwrap().events == 100);
    assert_eq!(
        aware.maintain().unwrap(),
        Maintained {
            pruned_events: 0,
            pruned_cursors: 0
        }
    );
    aware.close().unwrap();
    // Opened where nothing runs in the background, one step is seen on its own.
    let many = Db::new();
    many.open().record_batch(vec![human(CHILD); 1_000]).unwrap();
    let aware = many.open();
    aware.record_batch(vec![human(CHILD); 500]).unwrap();
    assert_eq!(aware.maintain().unwrap().pruned_events, 0);
    drop(aware);
    let aware = many.keeping(None, Some(1));
    until(|| aware.stats().unwrap().events == 1);
    assert_eq!(
        aware.sessions(SessionsRequest::default()).unwrap().sessions[0].pruned_below,
        1_499
    );
}

#[test]
fn sessions_of_one_bare_key_are_one_for_each_agent() {
    let db = Db::new();
    let aware = db.open();
    let global = |agent: &str| NewEvent {
        agent_id: Some(agent.into()),
        ..human("global")
    };
    for agent in ["main", "ops"] {
        let request = Watch {
            target_agent_id: Some(agent.into()),
            ..Watch::new(MANAGER, "global")
        };
        let watched = aware.watch(request).unwrap();
        assert!(matches!(watched, WatchReply::Watched { created: true, .. }));
    }
    // What happens to one is told of that one, with a version of its own.
    let sequence = record(&aware, global("ops"));
    let told = |notices: Vec<Notice>| -> Vec<(String, u64)> {
        let each = notices.into_iter();
        each.map(|notice| (notice.target_agent_id, notice.notified))
            .collect()
    };
    assert_eq!(told(drain(&aware, MANAGER)), [("ops".into(), sequence)]);
    let versions = aware.state_versions(StateVersions {
        sessions: [None, Some("ops")]
            .map(|agent| SessionRef {
                agent_id: agent.map(str::to_owned),
                ..SessionRef::new("global")
            })
            .into(),
    });
    let versions = versions.unwrap().versions;
    let versions: Vec<_> = versions.iter().map(|one| one.state_version).collect();
    assert_eq!(versions, [0, sequence]);
    // An end of one watch, and of one session, is not the other's.
    let first = record(&aware, global("main"));
    let ended = aware.unwatch(Unwatch {
        watcher_session_key: MANAGER.into(),
        target_session_key: "global".into(),
        target_agent_id: Some("ops".into()),
    });
    assert!(ended.unwrap().unwatched);
    assert_eq!(told(drain(&aware, MANAGER)), [("main".into(), first)]);
}

#[test]
fn quiet_cursors_go_with_age_and_pending_ones_stay() {
    let db = Db::new();
    let aware = db.keeping(Some(50), None);
    watch(&aware, MANAGER, CHILD);
    watch(&aware, MANAGER, "agent:main:quiet");
    record(&aware, human(CHILD));
    let mut pruned = Maintained::default();
    until(|| {
        let step = aware.maintain().unwrap();
        pruned.pruned_cursors += step.pruned_cursors;
        pruned.pruned_events += step.pruned_events;
        pruned.pruned_cursors == 1 && pruned.pruned_events == 1
    });
    assert_eq!(drain(&aware, MANAGER).len(), 1);
    until(|| aware.maintain().unwrap().pruned_cursors == 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_gap_is_told_exactly(
        sessions in prop::collection::vec(0usize..4, 1..40),
        keep in 1u64..20,
    ) {
        let db = Db::new();
        let aware = db.keeping(None, Some(keep));
        let key = |n: usize| format!("agent:main:s{n}");
        let log: Vec<(u64, usize)> = sessions.iter().map(|n| (record(&aware, human(&key(*n))), *n)).collect();
        let pruned = aware.maintain().unwrap().pruned_events as usize;
        prop_assert_eq!(pruned, log.len().saturating_sub(keep as usize));
        for session in 0..4 {
            let of_it = |events: &[(u64, usize)]| -> Vec<u64> {
                events.iter().filter(|(_, n)| *n == session).map(|(sequence, _)| *sequence).collect()
            };
            let version = of_it(&log).last().copied().unwrap_or(0);
            for since in 0..=log.len() as u64 + 1 {
                let changes = aware.changes_since(ChangesSince::new(key(session), since)).unwrap();
                let kept: Vec<u64> = of_it(&log[pruned..]).into_iter().filter(|s| *s > since).collect();
                let got: Vec<u64> = changes.state_changes.events.iter().map(|event| event.sequence).collect();
                prop_assert_eq!(got, kept);
                prop_assert_eq!(changes.state_version, version);
                prop_assert_eq!(changes.state_changes.history_gap, of_it(&log[..pruned]).iter().any(|s| *s > since));
                prop_assert_eq!(changes.state_changes.future_cursor, since > version);
                prop_assert_eq!(changes.state_changes.next_changes_since, version);
            }
        }
    }

    /// Many watchers and targets at random, beside what the notices of each must come to.
    #[test]
    fn every_change_by_another_is_noticed_once(
        moves in prop::collection::vec((0u8..6, 0usize..3, 0usize..3), 1..60),
    ) {
        let db = Db::new();
        let mut aware = db.open();
        let watcher = |n: usize| format!("agent:main:w{n}");
        let target = |n: usize| format!("agent:main:t{n}");
        // What each watch has not been told yet.
        let mut untold: BTreeMap<(usize, usize), Vec<u64>> = BTreeMap::new();
        for (what, w, t) in moves {
            match what {
                0 => {
                    watch(&aware, &watcher(w), &target(t));
                    untold.entry((w, t)).or_default();
                }
                1 | 2 => {
                    let sequence = record(&aware, human(&target(t)));
                    for ((_, of), events) in &mut untold { if *of == t { events.push(sequence); } }
                }
                3 => {
                    let event = NewEvent { actor_id: Some(watcher(w)), ..NewEvent::new(target(t), Kind::GoalChanged, ActorType::Agent) };
                    let sequence = record(&aware, event);
                    for ((by, of), events) in &mut untold { if *of == t && *by != w { events.push(sequence); } }
                }
                4 => {
                    for notice in drain(&aware, &watcher(w)) {
                        let t = notice.target_session_key.trim_start_matches("agent:main:t").parse().unwrap();
                        let events = untold.get_mut(&(w, t)).unwrap();
                        prop_assert!(!events.is_empty(), "a notice of nothing");
                        prop_assert!(events[0] > notice.changes_since && events[0] <= notice.notified);
                        events.retain(|sequence| *sequence > notice.notified);
                    }
                }
                _ => {
                    aware.close().unwrap();
                    aware = db.open();
                }
            }
            let pending: Vec<(usize, usize)> = untold.iter().filter(|(_, events)| !events.is_empty()).map(|(pair, _)| *pair).collect();
            let told: Vec<(usize, usize)> = aware.watches(Watches::default()).unwrap().watches.iter().filter(|row| row.pending).map(|row| {
                let number = |key: &str| key["agent:main:w".len()..].parse().unwrap();
                (number(&row.watcher_session_key), number(&row.target_session_key))
            }).collect();
            prop_assert_eq!(told, pending);
        }
    }
}

/// Waits for a condition that other threads bring about.
fn until(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "it did not come to that in 20 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

// ---- wakes -----------------------------------------------------------------

#[test]
fn an_ambient_notice_wakes_when_the_watch_becomes_explicit() {
    let db = Db::new();
    let aware = db.open();
    let group = "agent:main:telegram:group:1";
    let ambient = Watch {
        provenance: Some(Provenance::AmbientGroup),
        ..Watch::new(MANAGER, group)
    };
    aware.watch(ambient).unwrap();
    record(&aware, human(group));
    assert!(wakes(&aware, 0).is_empty());
    watch(&aware, MANAGER, group);
    assert_eq!(wakes(&aware, 0), [pair(MANAGER, group)]);
}

#[test]
fn each_open_handle_is_offered_each_wake_once() {
    let db = Db::new();
    let (a, b) = (db.open(), db.open());
    let ops = Awareness::open(Config {
        wakes: Some(WakeConfig {
            agents: Some(vec!["ops".into()]),
        }),
        ..db.config()
    })
    .unwrap();
    watch(&a, MANAGER, CHILD);
    record(&b, human(CHILD));
    assert_eq!(wakes(&a, 5_000), [pair(MANAGER, CHILD)]);
    assert_eq!(wakes(&b, 5_000), [pair(MANAGER, CHILD)]);
    watch(&a, "agent:ops:main", CHILD);
    record(&a, human(CHILD));
    assert_eq!(wakes(&ops, 5_000), [pair("agent:ops:main", CHILD)]);
    assert_eq!(wakes(&b, 5_000), [pair("agent:ops:main", CHILD)]);
    assert!(wakes(&a, 0).len() == 1 && wakes(&a, 0).is_empty());
}

#[test]
fn a_wake_that_a_live_handle_was_offered_is_not_offered_again_until_that_one_goes() {
    let db = Db::new();
    let first = db.open();
    watch(&first, MANAGER, CHILD);
    record(&first, human(CHILD));
    let second = db.open();
    assert!(wakes(&second, 0).is_empty());
    // The second was not offered it, so it is no reason to withhold it.
    first.close().unwrap();
    let third = db.open();
    assert_eq!(wakes(&third, 0), [pair(MANAGER, CHILD)]);
    drop(third);
    // Nobody who was offered it is left: the second inherits it.
    assert_eq!(wakes(&second, 10_000), [pair(MANAGER, CHILD)]);
    assert_eq!(drain(&second, MANAGER).len(), 1);
}

#[test]
fn no_wake_for_a_notice_older_than_retention() {
    let db = Db::new();
    let aware = db.open();
    watch(&aware, MANAGER, CHILD);
    record(&aware, human(CHILD));
    aware.close().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let aware = db.keeping(Some(10), None);
    assert!(wakes(&aware, 0).is_empty());
    assert_eq!(drain(&aware, MANAGER).len(), 1);
}

#[test]
fn a_queue_nobody_takes_from_holds_one_wake_a_cursor() {
    let db = Db::new();
    let aware = db.open();
    watch(&aware, MANAGER, CHILD);
    for _ in 0..50 {
        record(&aware, human(CHILD));
        drain(&aware, MANAGER);
    }
    assert!(aware.stats().unwrap().queued_wakes <= 1);
    assert!(wakes(&aware, 0).is_empty());
}

#[test]
fn a_wake_handler_gets_the_wakes_alone_and_may_call_everything_but_close() {
    let db = Db::new();
    let aware = std::sync::Arc::new(db.open());
    let (send, receive) = std::sync::mpsc::channel();
    let inside = std::sync::Arc::downgrade(&aware);
    aware
        .set_wake_handler(Some(Box::new(move |wake| {
            let aware = inside.upgrade().unwrap();
            let notices = drain(&aware, &wake.session_key).len();
            send.send((notices, code(aware.close()))).unwrap();
        })))
        .unwrap();
    watch(&aware, MANAGER, CHILD);
    for _ in 0..3 {
        record(&aware, human(CHILD));
        assert_eq!(
            receive.recv_timeout(Duration::from_secs(10)).unwrap(),
            (1, Code::Busy)
        );
        assert!(wakes(&aware, 0).is_empty());
    }
    aware.set_wake_handler(None).unwrap();
    record(&aware, human(CHILD));
    assert_eq!(wakes(&aware, 0).len(), 1);
    assert!(
        receive.recv().is_err(),
        "the handler is gone when set_wake_handler returns"
    );
}

#[test]
fn setting_a_handler_waits_for_the_old_one_alone() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let db = Db::new();
    let aware = std::sync::Arc::new(db.open());
    let wake = |target: &str| {
        watch(&aware, MANAGER, target);
        record(&aware, human(target));
    };
    let (entered, enter) = std::sync::mpsc::channel();
    let free = std::sync::Arc::new(AtomicBool::new(false));
    let old = {
        let free = std::sync::Arc::clone(&free);
        move |_: &Wake| {
            // Nobody listens any more once the new one is set.
            let _ = entered.send(());
            until(|| free.load(Ordering::Acquire));
        }
    };
    aware.set_wake_handler(Some(Box::new(old))).unwrap();
    wake("agent:main:first");
    enter.recv().unwrap();
    let (was_set, set) = std::sync::mpsc::channel::<()>();
    let set = std::sync::Mutex::new(set);
    let (called, call) = std::sync::mpsc::channel();
    let setter = {
        let aware = std::sync::Arc::clone(&aware);
        std::thread::spawn(move || {
            // The new one returns only when it has been set.
            let new = move |_: &Wake| {
                let _ = set.lock().unwrap().recv();
                let _ = called.send(());
            };
            aware.set_wake_handler(Some(Box::new(new))).unwrap();
            was_set.send(()).unwrap();
        })
    };
    free.store(true, Ordering::Release);
    let mut target = 0;
    until(|| {
        target += 1;
        wake(&format!("agent:main:t{target}"));
        call.try_recv().is_ok()
    });
    setter.join().unwrap();
}

#[test]
fn closing_ends_a_wait() {
    let db = Db::new();
    let aware = db.open();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            aware.wait_wakes(WaitWakes {
                timeout_ms: 9_000_000_000_000_000,
                max: None,
            })
        });
        until(|| aware.stats().is_ok());
        aware.close().unwrap();
        assert_eq!(code(waiting.join().unwrap()), Code::Closed);
    });
    assert_eq!(code(aware.stats()), Code::Closed);
    assert_eq!(code(aware.close()), Code::Closed);
}

// ---- read only, backup -------------------------------------------------------

#[test]
fn a_reader_changes_nothing() {
    let db = Db::new();
    let aware = db.open();
    watch(&aware, MANAGER, CHILD);
    record(&aware, human(CHILD));
    let reader = Awareness::open(Config {
        read_only: Some(true),
        ..db.config()
    })
    .unwrap();
    for outcome in [
        reader.record(human(CHILD)).map(|_| ()),
        reader.record_batch(vec![human(CHILD)]).map(|_| ()),
        reader.record_queued(vec![human(CHILD)]).map(|_| ()),
        reader.watch(Watch::new(MANAGER, CHILD)).map(|_| ()),
        reader
            .unwatch(Unwatch {
                watcher_session_key: MANAGER.into(),
                target_session_key: CHILD.into(),
                target_agent_id: None,
            })
            .map(|_| ()),
        reader
            .session_reset(SessionReset {
                session_key: MANAGER.into(),
            })
            .map(|_| ()),
        reader
            .session_delete(SessionDelete {
                session_key: CHILD.into(),
                agent_id: None,
            })
            .map(|_| ()),
        reader.drain_notices(DrainNotices::new(MANAGER)).map(|_| ()),
        reader
            .ack_notices(AckNotices {
                watcher_session_key: MANAGER.into(),
                notices: vec![],
            })
            .map(|_| ()),
        reader.maintain().map(|_| ()),
        reader.wake_fd().map(|_| ()),
    ] {
        assert_eq!(code(outcome), Code::Unsupported);
    }
    assert!(wakes(&reader, 0).is_empty());
    assert_eq!(reader.stats().unwrap().pending, 1);
    aware.close().unwrap();
    assert_eq!(
        reader
            .changes_since(ChangesSince::new(CHILD, 0))
            .unwrap()
            .state_changes
            .events
            .len(),
        1
    );
}

#[test]
fn a_backup_is_whole_private_and_never_replaces_a_file() {
    let db = Db::new();
    let aware = db.open();
    record(&aware, human(CHILD));
    let copy = db.folder.path().join("copy.db");
    let backup = |path: &Path| {
        aware.backup(Backup {
            path: path.to_str().unwrap().to_owned(),
        })
    };
    let bytes = backup(&copy).unwrap().bytes;
    let found = std::fs::metadata(&copy).unwrap();
    assert_eq!(
        (found.len(), found.permissions().mode() & 0o777),
        (bytes, 0o600)
    );
    for path in [
        copy.as_path(),
        &db.path(),
        db.folder.path(),
        Path::new(""),
        &db.folder.path().join("no/copy.db"),
    ] {
        assert_eq!(
            backup(path).unwrap_err().field.as_deref(),
            Some("path"),
            "{path:?}"
        );
    }
    let reader = Awareness::open(Config {
        read_only: Some(true),
        ..db.config()
    })
    .unwrap();
    let second = db.folder.path().join("second.db");
    assert!(
        reader
            .backup(Backup {
                path: second.to_str().unwrap().to_owned()
            })
            .unwrap()
            .bytes
            > 0
    );
    std::thread::scope(|scope| {
        let third = db.folder.path().join("third.db");
        let threads =
            [0, 1, 2].map(|_| scope.spawn(|| backup(&db.folder.path().join("third.db")).is_ok()));
        let made = threads.map(|thread| thread.join().unwrap());
        assert_eq!(
            made.iter().filter(|made| **made).count(),
            1,
            "one of them makes it, whole"
        );
        assert!(std::fs::metadata(third).unwrap().len() > 0);
    });
    let leftovers: Vec<_> = std::fs::read_dir(db.folder.path())
        .unwrap()
        .filter(|entry| {
            entry
                .as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .contains("-part-")
        })
        .collect();
    assert!(leftovers.is_empty());
    let copied = Awareness::open(Config::new(copy.to_str().unwrap())).unwrap();
    assert_eq!(copied.stats().unwrap().events, 1);
}

#[test]
fn names_that_are_words_of_other_languages_are_only_names() {
    let db = Db::new();
    let aware = db.open();
    let mut versions = HashMap::new();
    for agent in ["constructor", "__proto__", "toString", "null"]
        .into_iter()
        .filter(|agent| !agent.starts_with('_'))
    {
        let key = format!("agent:{agent}:constructor");
        versions.insert(key.clone(), record(&aware, human(&key)));
    }
    let sessions = versions.keys().map(SessionRef::new).collect();
    for version in aware
        .state_versions(StateVersions { sessions })
        .unwrap()
        .versions
    {
        assert_eq!(versions[&version.session_key], version.state_version);
    }
}
