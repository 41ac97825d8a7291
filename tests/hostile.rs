//! Sources that are no session files, or files made to do harm: each is an outcome
//! within a bounded time and memory, and other sessions go on.
#![cfg(target_os = "linux")]
// For mkfifo alone.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;
use serde_json::json;
use session_awareness::*;

#[allow(dead_code)]
mod agents;

use agents::{MANAGER, Place, SESSION};

/// A generous multiple of what any of these takes.
const BOUND: Duration = Duration::from_secs(60);

fn row(uuid: &str, text: &str) -> String {
    let row = json!({"type": "user", "uuid": uuid, "origin": {"kind": "human"}, "message": {"role": "user", "content": text}});
    format!("{row}\n")
}

fn adopt(aware: &Awareness, catalog: Catalog, source: &Path) -> Result<Adopted> {
    aware.adopt(Adopt {
        thread_id: (catalog == Catalog::Opencode).then(|| "ses_1".to_owned()),
        baseline: Some(Baseline::Start),
        ..Adopt::new(SESSION, catalog, source.to_str().unwrap())
    })
}

fn scan(aware: &Awareness) -> Outcome {
    let mut outcomes = aware.scan(Scan::default()).unwrap().outcomes;
    assert_eq!(outcomes.len(), 1, "{outcomes:?}");
    outcomes.remove(0)
}

fn fifo(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a NUL-terminated path.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

/// Runs `task` and panics when it takes too long.
fn within<T: Send + 'static>(what: &str, task: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = std::sync::mpsc::channel();
    let body = std::thread::spawn(move || {
        let _ = send.send(task());
    });
    match receive.recv_timeout(BOUND) {
        Ok(done) => done,
        Err(RecvTimeoutError::Disconnected) => std::panic::resume_unwind(body.join().unwrap_err()),
        Err(RecvTimeoutError::Timeout) => panic!("{what} takes longer than {BOUND:?}"),
    }
}

/// What is no regular file, by how it is made.
fn no_files(place: &Place) -> Vec<(&'static str, PathBuf)> {
    let made = |name: &str| place.path(&format!("odd/{name}"));
    fifo(&made("fifo"));
    fs::create_dir_all(made("folder")).unwrap();
    symlink(made("fifo"), made("to-a-fifo")).unwrap();
    symlink("/dev/zero", made("to-zero")).unwrap();
    symlink(made("one"), made("other")).unwrap();
    symlink(made("other"), made("one")).unwrap();
    std::mem::forget(UnixListener::bind(made("socket")).unwrap());
    vec![
        ("a FIFO", made("fifo")),
        ("a folder", made("folder")),
        ("a link to a FIFO", made("to-a-fifo")),
        ("a link to a device", made("to-zero")),
        ("a circle of links", made("one")),
        ("a socket", made("socket")),
        ("/dev/zero", "/dev/zero".into()),
        ("/dev/full", "/dev/full".into()),
        ("/dev/tty", "/dev/tty".into()),
        ("below a file", "/dev/null/x".into()),
    ]
}

#[test]
fn what_is_no_file_is_not_adopted_and_a_link_to_it_is_a_miss() {
    within("what is no file", || {
        let place = Place::new();
        let aware = place.open();
        let odd = no_files(&place);
        for catalog in Catalog::ALL {
            for (what, path) in &odd {
                let error = adopt(&aware, catalog, path).unwrap_err();
                // A circle of links is not known to be missing: it cannot be looked at.
                let codes = [Code::NotFound, Code::Storage];
                assert!(codes.contains(&error.code), "{catalog:?} {what}: {error:?}");
                assert_eq!(
                    error.code == Code::Storage,
                    *what == "a circle of links",
                    "{catalog:?} {what}"
                );
            }
        }
        // One after the other takes the place of a linked file.
        let source = place.path("claude/projects/p/s.jsonl");
        for (what, path) in &odd {
            let _ = fs::remove_file(&source);
            fs::write(&source, row("u", "x")).unwrap();
            adopt(&aware, Catalog::Claude, &source).unwrap();
            scan(&aware);
            fs::remove_file(&source).unwrap();
            if path.starts_with("/dev/null") {
                continue;
            }
            symlink(path, &source).unwrap();
            let outcome = scan(&aware).outcome;
            let expected = match *what {
                "a circle of links" => OutcomeKind::Error,
                _ => OutcomeKind::Missing,
            };
            assert_eq!(outcome, expected, "{what}");
        }
    });
}

/// The opening and the look before it are two steps: what comes in between blocks nobody.
#[test]
fn a_file_that_turns_into_a_fifo_and_back_is_an_outcome() {
    within("a file that turns into a FIFO", || {
        let place = Place::new();
        let aware = place.open();
        let source = place.path("s.jsonl");
        let (file, pipe) = (place.path("file"), place.path("pipe"));
        fs::write(&source, row("u", "x")).unwrap();
        adopt(&aware, Catalog::Claude, &source).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let turning = std::thread::spawn({
            let (source, stop) = (source.clone(), Arc::clone(&stop));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    fifo(&pipe);
                    fs::rename(&pipe, &source).unwrap();
                    fs::write(&file, row("u", "x")).unwrap();
                    fs::rename(&file, &source).unwrap();
                }
            }
        });
        let (mut read, mut missed) = (0, 0);
        while read < 50 || missed < 50 {
            // Three misses in a row end the link.
            let outcomes = aware.scan(Scan::default()).unwrap().outcomes;
            match outcomes.first().map(|outcome| outcome.outcome) {
                Some(OutcomeKind::Missing) => missed += 1,
                Some(OutcomeKind::Error) => panic!("{outcomes:?}"),
                Some(_) => read += 1,
                None => drop(adopt(&aware, Catalog::Claude, &source)),
            }
        }
        stop.store(true, Ordering::Relaxed);
        turning.join().unwrap();
    });
}

/// A database that is none, and what lies where its own files go.
#[test]
fn what_is_no_file_is_no_database_and_is_not_waited_for_beside_one() {
    within("what is no database", || {
        let place = Place::new();
        for (what, path) in no_files(&place) {
            let config = Config {
                monitor: place.config().monitor,
                ..Config::new(path.to_str().unwrap())
            };
            let error = Awareness::open(config).unwrap_err();
            let codes = [Code::InvalidArgument, Code::NotFound, Code::Storage];
            assert!(codes.contains(&error.code), "{what}: {error:?}");
        }
        type Made = fn(&Path, &Path);
        let ways: [(&str, Made); 4] = [
            ("a FIFO", |at, _| fifo(at)),
            ("a folder", |at, _| fs::create_dir(at).unwrap()),
            ("a link to a file", |at, to| symlink(to, at).unwrap()),
            ("a link to a FIFO", |at, to| {
                let to = to.with_extension("fifo");
                fifo(&to);
                symlink(to, at).unwrap();
            }),
        ];
        for (what, make) in ways {
            for end in [
                "wal", "shm", "journal", "wake", "handle-1", "handle-2", "handle-3",
            ] {
                let place = Place::new();
                // A handle that died leaves its number behind, whose file is looked at.
                let config = || Config::new(place.database().to_str().unwrap());
                place.open().close().unwrap();
                Connection::open(place.database())
                    .unwrap()
                    .execute_batch("INSERT INTO session_aware_handles(first_wake) VALUES (0), (0)")
                    .unwrap();
                let outside = place.folder.path().join("outside");
                fs::write(&outside, "not ours").unwrap();
                let at = PathBuf::from(format!("{}-{end}", place.database().display()));
                let _ = fs::remove_file(&at);
                make(&at, &outside);
                for _ in 0..2 {
                    match Awareness::open(config()) {
                        Err(error) => {
                            assert_eq!(error.code, Code::Storage, "{what} for {end}: {error:?}")
                        }
                        Ok(aware) => {
                            // This one is written to.
                            assert!(end != "wake" || what == "a FIFO", "{what} for {end}");
                            let event = NewEvent::new(SESSION, Kind::GoalChanged, ActorType::Agent);
                            aware
                                .record(event)
                                .unwrap_or_else(|error| panic!("{what} for {end}: {error:?}"));
                            aware.close().unwrap();
                        }
                    }
                }
                assert_eq!(fs::read(&outside).unwrap(), b"not ours", "{what} for {end}");
            }
        }
    });
}

/// Times and counts that no agent writes, wherever a row has a number or a time.
#[test]
fn numbers_and_times_out_of_range_are_an_outcome_and_come_out_of_nowhere() {
    const NUMBERS: [&str; 22] = [
        "0",
        "-0",
        "-1",
        "1.5",
        "1e3",
        "1e400",
        "-1e400",
        "5e-324",
        "9007199254740991",
        "9007199254740992",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "18446744073709551616",
        "1e18",
        "null",
        "true",
        "[]",
        "{}",
        "\"1\"",
        "\"\"",
        "99999999999999999999999999999999999999999999999999",
    ];
    const TIMES: [&str; 14] = [
        "\"0000-01-01T00:00:00Z\"",
        "\"-9999-01-01T00:00:00Z\"",
        "\"9999-12-31T23:59:60Z\"",
        "\"+275760-09-13T00:00:00Z\"",
        "\"2026-02-30T00:00:00Z\"",
        "\"2026-11-30T24:00:00Z\"",
        "\"2026-11-30T10:00:00.99999999999999999999Z\"",
        "\"2026-11-30T10:00:00+99:99\"",
        "\"1969-12-31T23:59:59.999Z\"",
        "\"262143-12-31T23:59:59Z\"",
        "\"2026-11-30\"",
        "\"2026-11-30T10:00:00\"",
        "\"\\u0000\"",
        "\"２０２６-11-30T10:00:00Z\"",
    ];
    within("numbers out of range", || {
        let now = || {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_millis() as i64
        };
        let begun = now();
        let place = Place::new();
        let aware = place.open();
        for (nth, value) in NUMBERS.into_iter().chain(TIMES).enumerate() {
            let rows = [
                (
                    Catalog::Claude,
                    format!(
                        r#"{{"type":"user","uuid":"{nth}","timestamp":@,"version":@,"origin":{{"kind":"human"}},"message":{{"role":"user","content":"x"}}}}"#
                    ),
                ),
                (
                    Catalog::Codex,
                    format!(
                        "{{\"timestamp\":@,\"type\":\"session_meta\",\"payload\":{{\"id\":\"t-{nth}\",\"timestamp\":@,\"source\":\"cli\",\"history_base\":{{\"end_ordinal_exclusive\":@}}}}}}\n{{\"timestamp\":@,\"ordinal\":@,\"type\":\"event_msg\",\"payload\":{{\"type\":\"user_message\",\"message\":\"x\"}}}}"
                    ),
                ),
                (
                    Catalog::Pi,
                    format!(
                        "{{\"type\":\"session\",\"version\":3,\"id\":\"p-{nth}\",\"timestamp\":@}}\n{{\"type\":\"message\",\"id\":\"{nth:08x}\",\"timestamp\":@,\"message\":{{\"role\":\"user\",\"timestamp\":@,\"content\":\"x\"}}}}"
                    ),
                ),
            ];
            for (catalog, row) in rows {
                let source = place.path(&format!("{}-{nth}.jsonl", catalog.as_str()));
                fs::write(&source, row.replace('@', value) + "\n").unwrap();
                adopt(&aware, catalog, &source).unwrap();
                let outcome = scan(&aware);
                assert_eq!(
                    outcome.outcome,
                    OutcomeKind::Activity,
                    "{catalog:?} {value}: {outcome:?}"
                );
            }
            let store = place.path(&format!("opencode-{nth}"));
            let message = r#"{"role":"user","time":{"created":@,"updated":@}}"#.replace('@', value);
            let part = r#"{"type":"text","text":"@f x","time":{"start":@},"source":{"text":{"start":@,"end":@}}}"#;
            for (name, json) in [
                (
                    "storage/session/p/ses_1.json",
                    r#"{"id":"ses_1","time":{"created":@,"updated":@}}"#.replace('@', value),
                ),
                ("storage/message/ses_1/msg_1.json", message),
                (
                    "storage/part/msg_1/prt_1.json",
                    part.replace("@f", "").replace('@', value),
                ),
            ] {
                let file = store.join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, json).unwrap();
            }
            adopt(&aware, Catalog::Opencode, &store).unwrap();
            let outcome = scan(&aware);
            assert_ne!(outcome.outcome, OutcomeKind::Error, "{value}: {outcome:?}");
        }
        let request = EventsRequest {
            limit: Some(1_000),
            ..EventsRequest::default()
        };
        let events = aware.events(request).unwrap().events;
        assert!(events.len() > 100, "{}", events.len());
        for event in events {
            // Of the last day, whatever the row said.
            assert!(
                (begun - 86_400_000..=now()).contains(&event.occurred_at),
                "{event:?}"
            );
        }
    });
}

#[test]
fn stores_full_of_what_is_no_file_are_searched() {
    within("a search of odd stores", || {
        let place = Place::new();
        for folder in [
            "claude/projects/p",
            "codex/sessions/2026/11/30",
            "pi/sessions/p",
        ] {
            let names = [
                "s.jsonl",
                "rollout-2026-11-30T12-41-15-x.jsonl",
                "rollout-2026-11-30T12-41-16-x.jsonl.zst",
            ];
            for name in names {
                fifo(&place.path(&format!("{folder}/{name}")));
            }
            symlink("/dev/zero", place.path(&format!("{folder}/zero.jsonl"))).unwrap();
            symlink(".", place.path(&format!("{folder}/circle"))).unwrap();
        }
        fifo(&place.path("pi/settings.json"));
        fifo(&place.path("opencode/opencode.db"));
        fifo(&place.path("opencode/storage/session/p/ses_1.json"));
        let aware = place.open();
        assert_eq!(
            aware.discover(Discover::default()).unwrap().sessions.len(),
            0
        );
        for catalog in Catalog::ALL {
            let request = Adopt {
                thread_id: Some("ses_1".into()),
                source: None,
                ..Adopt::new(SESSION, catalog, "")
            };
            assert_eq!(
                aware.adopt(request).unwrap_err().code,
                Code::NotFound,
                "{catalog:?}"
            );
        }
    });
}

#[test]
fn folders_that_lead_to_each_other_are_walked_once() {
    within("a walk in circles", || {
        let place = Place::new();
        let folder = place.path("codex/sessions/2026");
        for n in 0..40 {
            fs::create_dir_all(folder.join(n.to_string())).unwrap();
        }
        // By names alone there are 40 to the power of the depth.
        for n in 0..40 {
            for m in 0..40 {
                symlink(
                    folder.join(m.to_string()),
                    folder.join(format!("{n}/to-{m}")),
                )
                .unwrap();
            }
        }
        let meta = json!({"type": "session_meta", "payload": {"id": "x", "cwd": "/"}});
        let file = folder.join("7/rollout-2026-11-30T12-41-15-x.jsonl");
        fs::write(&file, format!("{meta}\n")).unwrap();
        symlink(&file, folder.join("8/rollout-2026-11-30T12-41-15-y.jsonl")).unwrap();
        let aware = place.open();
        let found = aware.discover(Discover::default()).unwrap().sessions;
        assert_eq!(found.len(), 1, "{found:?}");
    });
}

#[test]
fn sparse_gigabytes_without_a_line_feed_hold_up_nobody() {
    within("sparse gigabytes", || {
        let place = Place::new();
        let mut config = place.config();
        let monitor = config.monitor.as_mut().unwrap();
        monitor.enabled = Some(true);
        monitor.initial_delay_ms = Some(0);
        let aware = Awareness::open(config).unwrap();
        let (huge, small) = (place.path("huge.jsonl"), place.path("small.jsonl"));
        fs::write(&huge, row("h", "x")).unwrap();
        fs::write(&small, row("s", "x")).unwrap();
        let other = "agent:main:small";
        for (key, path) in [("agent:main:huge", &huge), (other, &small)] {
            aware.watch(Watch::new(MANAGER, key)).unwrap();
            aware
                .adopt(Adopt::new(key, Catalog::Claude, path.to_str().unwrap()))
                .unwrap();
        }
        let file = OpenOptions::new().write(true).open(&huge).unwrap();
        file.set_len(8 << 30).unwrap();
        let begun = Instant::now();
        OpenOptions::new()
            .append(true)
            .open(&small)
            .unwrap()
            .write_all(row("s2", "x").as_bytes())
            .unwrap();
        while aware.stats().unwrap().pending == 0 {
            assert!(begun.elapsed() < BOUND);
            std::thread::sleep(Duration::from_millis(5));
        }
        let request = DrainNotices::new(MANAGER);
        assert_eq!(
            aware.drain_notices(request).unwrap().notices[0].target_session_key,
            other
        );
        // Closing ends the search in the middle.
        let begun = Instant::now();
        aware.close().unwrap();
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
    });
}

#[test]
fn a_file_that_grows_faster_than_it_is_read_is_read_to_where_it_ended() {
    within("a growing file", || {
        let place = Place::new();
        let aware = place.open();
        let source = place.path("s.jsonl");
        fs::write(&source, row("u", "x")).unwrap();
        adopt(&aware, Catalog::Claude, &source).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let writer = std::thread::spawn({
            let (source, stop) = (source.clone(), Arc::clone(&stop));
            move || {
                let mut file = OpenOptions::new().append(true).open(source).unwrap();
                let rows: String = (0..4_000).map(|_| "{\"type\":\"assistant\"}\n").collect();
                // The disk's sake: some hundred megabytes are enough.
                for _ in 0..4_000 {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    file.write_all(rows.as_bytes()).unwrap();
                }
            }
        });
        for _ in 0..5 {
            let outcome = scan(&aware);
            assert!(
                matches!(
                    outcome.outcome,
                    OutcomeKind::Activity | OutcomeKind::Unchanged
                ),
                "{outcome:?}"
            );
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
}

#[test]
fn a_file_replaced_again_and_again_is_an_outcome_and_tells_each_turn_once() {
    within("a replaced file", || {
        let place = Place::new();
        let aware = place.open();
        let source = place.path("s.jsonl");
        let mut rows: String = (0..3_000).map(|_| "{\"type\":\"assistant\"}\n").collect();
        rows += &row("u-1", "one");
        rows += &row("u-2", "two");
        fs::write(&source, &rows).unwrap();
        adopt(&aware, Catalog::Claude, &source).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let writer = std::thread::spawn({
            let (source, stop, rows) = (source.clone(), Arc::clone(&stop), rows.clone());
            move || {
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    match n % 3 {
                        // Another file, the same file written anew, and one that is cut.
                        0 => {
                            let new = source.with_extension("new");
                            fs::write(&new, &rows).unwrap();
                            fs::rename(&new, &source).unwrap();
                        }
                        1 => fs::write(&source, &rows).unwrap(),
                        _ => File::options()
                            .write(true)
                            .open(&source)
                            .unwrap()
                            .set_len(100)
                            .unwrap(),
                    }
                }
            }
        });
        let mut turns = 0;
        for _ in 0..20 {
            turns += scan(&aware).human_turns;
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        fs::write(&source, &rows).unwrap();
        turns += scan(&aware).human_turns;
        assert_eq!(turns, 2);
    });
}

#[test]
fn json_ten_thousand_levels_deep_is_passed_in_files_and_refused_in_requests() {
    within("deep JSON", || {
        let place = Place::new();
        let aware = place.open();
        let source = place.path("s.jsonl");
        let mut text = String::new();
        for levels in [10_000, 1_000_000] {
            text += &format!("{}{}\n", "[".repeat(levels), "]".repeat(levels));
            text += &format!(
                "{{\"type\":\"user\",\"x\":{}1{}}}\n",
                "{\"a\":".repeat(levels),
                "}".repeat(levels)
            );
            text += &"{\"message\":[".repeat(levels);
            text += "\n";
        }
        fs::write(&source, text + &row("u", "x")).unwrap();
        adopt(&aware, Catalog::Claude, &source).unwrap();
        assert_eq!(scan(&aware).human_turns, 1);
        let request = format!(
            "{{\"sessionKey\":{}1{}}}",
            "[".repeat(10_000),
            "]".repeat(10_000)
        );
        let parsed: std::result::Result<Scan, _> = serde_json::from_str(&request);
        assert!(parsed.is_err());
        let far = "agent:main:far";
        aware
            .adopt(Adopt {
                thread_id: Some("t".into()),
                host_id: Some("elsewhere".into()),
                source: None,
                ..Adopt::new(far, Catalog::Claude, "")
            })
            .unwrap();
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let rows = format!(
            "{{\"sessionKey\":\"{far}\",\"rows\":[{deep},{}]}}",
            row("f", "x")
        );
        let feed: Feed = serde_json::from_str(&rows).unwrap();
        assert_eq!(aware.feed(feed).unwrap().human_turns, 1);
    });
}

#[test]
fn a_text_made_to_be_slow_is_not() {
    within("a slow text", || {
        let place = Place::new();
        let aware = place.open();
        let source = place.path("s.jsonl");
        let mut text = String::new();
        for (at, part) in [
            "<pasted_content id=",
            "<system-reminder></system-reminder>",
            "<image>",
            "<",
            "@f ",
        ]
        .iter()
        .enumerate()
        {
            let long = part.repeat((1 << 20) / part.len());
            for again in 0..4 {
                text += &row(&format!("u-{at}-{again}"), &long);
            }
        }
        fs::write(&source, text).unwrap();
        adopt(&aware, Catalog::Claude, &source).unwrap();
        assert_eq!(scan(&aware).outcome, OutcomeKind::Activity);
    });
}

const TABLES: &str = "CREATE TABLE session (id text PRIMARY KEY, parent_id text, directory text, time_created integer, time_updated integer);
    CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer, data text);
    CREATE TABLE part (id text PRIMARY KEY, message_id text, time_updated integer, data text);";

const ROWS: &str = r#"INSERT INTO session VALUES ('ses_1', NULL, '/', 0, 0);
    INSERT INTO message VALUES ('msg_1', 'ses_1', 5, '{"role":"user","time":{"created":5}}');
    INSERT INTO part VALUES ('prt_1', 'msg_1', 5, '{"type":"text","text":"x"}');"#;

/// A table with rows without end in the place of `name`.
fn endless(name: &str, columns: &str) -> String {
    let table = |wanted: &str| match name == wanted {
        true => format!(
            "CREATE VIEW {name} AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT {columns} FROM c;"
        ),
        false => TABLES
            .lines()
            .find(|line| line.contains(&format!("TABLE {wanted} ")))
            .unwrap()
            .to_owned(),
    };
    ["session", "message", "part"].map(table).concat()
}

#[test]
fn a_hostile_database_is_an_error_within_seconds() {
    within("hostile databases", || {
        let columns = |n: usize| (0..n).map(|n| format!(", c{n}")).collect::<String>();
        let stores = [
            ("a view for sessions", endless("session", "'s' || x AS id, NULL AS parent_id"), false),
            ("a view for messages", endless("message", "'m' || x AS id, 'ses_1' AS session_id, '{}' AS data"), false),
            ("a view for parts", endless("part", "'p' || x AS id, 'msg_1' AS message_id, '{}' AS data"), false),
            ("a made column", TABLES.replace("data text);\n    CREATE TABLE part", "data text GENERATED ALWAYS AS (hex(zeroblob(400000000))));\n    CREATE TABLE part"), false),
            ("no row ids", TABLES.replace("data text)", "data text) WITHOUT ROWID") + ROWS, false),
            ("tables of the names we ask", format!("{TABLES}{ROWS} CREATE TABLE json_each(x); CREATE TABLE pragma_table_list(type, schema);"), false),
            ("many columns", TABLES.replace("directory text", &format!("directory text{}", columns(1_900))) + "INSERT INTO session(id) VALUES ('ses_1');", true),
            ("long names", format!("{TABLES}{ROWS} INSERT INTO message VALUES (hex(zeroblob(4000000)), 'ses_1', 6, '{{\"role\":\"user\"}}'), (zeroblob(30000000), 'ses_1', 7, NULL); UPDATE session SET directory = hex(zeroblob(4000000));"), true),
            ("other types", format!("{TABLES}{ROWS} INSERT INTO session VALUES (x'ff', 1, 2.5, 'a', 1e300), (7, NULL, x'00', 9e99, -9223372036854775808); INSERT INTO message VALUES ('msg_ffffffffffffhHR1j0stW6IuV0', 'ses_1', -9223372036854775808, '{{\"role\":\"user\"}}'), (5, 6, 7, 8);"), true),
            ("triggers", format!("{TABLES}{ROWS} CREATE TRIGGER t BEFORE INSERT ON session BEGIN SELECT randomblob(1000000000); END;"), true),
        ];
        for (what, sql, sound) in stores {
            let place = Place::new();
            let source = place.path("opencode/opencode.db");
            Connection::open(&source)
                .unwrap()
                .execute_batch(&sql)
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            let aware = place.open();
            let found = aware.discover(Discover::default()).unwrap().sessions;
            let told = adopt(&aware, Catalog::Opencode, &source).map(|_| scan(&aware));
            match told {
                Ok(outcome) => assert!(
                    sound || outcome.outcome == OutcomeKind::Error,
                    "{what}: {outcome:?}"
                ),
                Err(error) => assert!(!sound, "{what}: {error:?}"),
            }
            assert_eq!(
                found.is_empty(),
                !sound && !found.iter().any(|s| s.thread_id == "ses_1"),
                "{what}"
            );
            for session in found {
                assert!(
                    session.updated_at.unsigned_abs() < 1 << 53,
                    "{what}: {session:?}"
                );
            }
        }
    });
}

#[test]
fn what_lies_beside_a_database_cannot_hold_it_up() {
    within("a FIFO beside a database", || {
        for end in ["-journal", "-wal", "-shm"] {
            let place = Place::new();
            let source = place.path("opencode/opencode.db");
            Connection::open(&source)
                .unwrap()
                .execute_batch(&format!("{TABLES}{ROWS}"))
                .unwrap();
            let aware = place.open();
            adopt(&aware, Catalog::Opencode, &source).unwrap();
            assert_eq!(scan(&aware).outcome, OutcomeKind::Activity);
            fifo(&place.path(&format!("opencode/opencode.db{end}")));
            assert_eq!(scan(&aware).outcome, OutcomeKind::Error, "{end}");
            fs::remove_file(place.path(&format!("opencode/opencode.db{end}"))).unwrap();
            assert_eq!(scan(&aware).outcome, OutcomeKind::Unchanged, "{end}");
        }
        let place = Place::new();
        let source = place.path("opencode/opencode.db");
        let conn = Connection::open(&source).unwrap();
        conn.execute_batch(&format!("PRAGMA journal_mode = WAL; {TABLES}{ROWS}"))
            .unwrap();
        drop(conn);
        let garbage: Vec<u8> = (0..200_000_u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        fs::write(place.path("opencode/opencode.db-wal"), garbage).unwrap();
        let aware = place.open();
        adopt(&aware, Catalog::Opencode, &source).unwrap();
        assert_eq!(scan(&aware).human_turns, 1);
    });
}

#[test]
fn names_in_rows_and_requests_lead_nowhere() {
    within("names that lead out", || {
        let place = Place::new();
        // Reading the FIFO would block; its folder holds a session that nobody may find.
        let outside = place.folder.path().join("outside");
        fs::create_dir_all(&outside).unwrap();
        fifo(&outside.join("trap.jsonl"));
        fs::write(outside.join("secret.jsonl"), row("u", "x")).unwrap();
        fs::write(outside.join("ses_1.json"), "{\"id\":\"ses_1\"}").unwrap();
        fs::create_dir_all(place.path("opencode/storage/session/p")).unwrap();
        fs::create_dir_all(place.path("claude/projects/p")).unwrap();
        fs::create_dir_all(place.path("codex/sessions")).unwrap();
        fs::create_dir_all(place.path("pi/sessions")).unwrap();
        let aware = place.open();
        let out = outside.to_str().unwrap();
        let long = "../".repeat(160);
        let names = [
            "..",
            ".",
            "../../outside/secret",
            "../../../outside/ses_1",
            "../../outside/trap",
            &format!("{out}/secret"),
            &format!("{out}/trap.jsonl"),
            &format!("{long}{out}/ses_1")[..512.min(long.len() + out.len() + 6)],
            "a\nb",
            "/",
            "~",
            "ses_1/../../../../outside/ses_1",
            "%2e%2e/secret",
            "..\\outside",
        ];
        for name in names {
            for catalog in Catalog::ALL {
                let request = Adopt {
                    thread_id: Some(name.to_owned()),
                    source: None,
                    ..Adopt::new(SESSION, catalog, "")
                };
                let error = aware.adopt(request).unwrap_err();
                assert_eq!(
                    error.code,
                    Code::NotFound,
                    "{catalog:?} {name:?}: {error:?}"
                );
            }
        }
        let request = Adopt {
            thread_id: Some("a\0b".into()),
            source: None,
            ..Adopt::new(SESSION, Catalog::Claude, "")
        };
        assert_eq!(
            aware.adopt(request).unwrap_err().code,
            Code::InvalidArgument
        );
        // Rows that name files: nothing of them is opened, linked or told.
        for path in [
            "../../outside/secret.jsonl",
            &format!("{out}/trap.jsonl"),
            &format!("{out}/secret.jsonl"),
        ] {
            let pi = json!({"type": "session", "version": 3, "id": path, "parentSession": path, "timestamp": "2026-11-30T10:00:00Z", "cwd": path});
            let codex = json!({"type": "session_meta", "payload": {"id": path, "rollout_path": path, "forked_from_id": path,
                "history_base": {"thread_id": path, "rollout_path": path, "end_ordinal_exclusive": 1}}});
            let claude = json!({"type": "user", "uuid": "c", "sessionId": path, "cwd": path, "transcript_path": path, "forkedFrom": {"sessionId": path}, "message": {"role": "user", "content": "x"}});
            for (catalog, name, row) in [
                (Catalog::Pi, "pi/sessions/p/2026_x.jsonl", pi),
                (
                    Catalog::Codex,
                    "codex/sessions/2026/11/30/rollout-2026-11-30T12-41-15-x.jsonl",
                    codex,
                ),
                (Catalog::Claude, "claude/projects/p/c.jsonl", claude),
            ] {
                let source = place.path(name);
                fs::write(&source, format!("{row}\n")).unwrap();
                let link = adopt(&aware, catalog, &source).unwrap().link.unwrap();
                assert_eq!(link.source.as_deref(), source.to_str());
                let outcome = scan(&aware);
                assert_eq!(
                    (outcome.human_turns, outcome.outcome != OutcomeKind::Error),
                    (0, true),
                    "{outcome:?}"
                );
                // The thread that such a row names is looked for by name alone.
                fs::remove_file(&source).unwrap();
                assert_eq!(
                    scan(&aware).outcome,
                    OutcomeKind::Missing,
                    "{catalog:?} {path}"
                );
            }
        }
    });
}

/// A store that was a database and is a tree now: its position names messages as it
/// likes, and none of the names leads out of the tree.
#[test]
fn ids_of_a_database_lead_nowhere_when_it_is_a_tree_later() {
    within("a store of another kind", || {
        let place = Place::new();
        let source = place.path("opencode/opencode.db");
        let outside = place.folder.path().join("outside");
        fs::create_dir_all(&outside).unwrap();
        fifo(&outside.join("prt_1.json"));
        let conn = Connection::open(&source).unwrap();
        conn.execute_batch(&format!(
            "{TABLES} INSERT INTO session VALUES ('ses_1', NULL, '/', 0, 0);"
        ))
        .unwrap();
        // A message in which nothing was typed yet stays open in the position.
        let insert = "INSERT INTO message VALUES (?1, 'ses_1', 5, '{\"role\":\"user\"}')";
        for id in ["../../../../../outside", outside.to_str().unwrap()] {
            conn.execute(insert, [id]).unwrap();
        }
        drop(conn);
        let aware = place.open();
        adopt(&aware, Catalog::Opencode, &source).unwrap();
        scan(&aware);
        fs::remove_file(&source).unwrap();
        let session = source.join("storage/session/p/ses_1.json");
        fs::create_dir_all(session.parent().unwrap()).unwrap();
        fs::write(&session, "{\"id\":\"ses_1\"}").unwrap();
        fs::create_dir_all(source.join("storage/part")).unwrap();
        let outcome = scan(&aware);
        assert_ne!(outcome.outcome, OutcomeKind::Error, "{outcome:?}");
        assert_eq!(outcome.human_turns, 0);
    });
}

/// What cannot be stored for one link holds up no other one.
#[test]
fn an_error_that_lasts_for_one_link_delays_no_other() {
    within("a link that cannot be stored", || {
        let place = Place::new();
        let (bad, good) = ("agent:main:bad", "agent:main:good");
        let sources = ["bad", "good"].map(|name| place.path(&format!("{name}.jsonl")));
        let aware = place.open();
        for (key, source) in [bad, good].iter().zip(&sources) {
            fs::write(source, row(&format!("first of {key}"), "x")).unwrap();
            aware.watch(Watch::new(MANAGER, *key)).unwrap();
            aware
                .adopt(Adopt::new(*key, Catalog::Claude, source.to_str().unwrap()))
                .unwrap();
        }
        aware.close().unwrap();
        // No rule of a table, which would be damage and end all writing.
        let refuse = "CREATE TRIGGER refuse BEFORE UPDATE OF position ON session_upstream_links
            WHEN new.session_key = 'agent:main:bad' BEGIN SELECT json('{'); END;";
        Connection::open(place.database())
            .unwrap()
            .execute_batch(refuse)
            .unwrap();
        let mut config = place.config();
        let monitor = config.monitor.as_mut().unwrap();
        monitor.enabled = Some(true);
        monitor.initial_delay_ms = Some(0);
        let aware = Awareness::open(config).unwrap();
        let append = |source: &Path, row: String| {
            let mut file = OpenOptions::new().append(true).open(source).unwrap();
            file.write_all(row.as_bytes()).unwrap();
        };
        let begun = Instant::now();
        for n in 0..30 {
            append(&sources[0], row(&format!("b-{n}"), "x"));
            append(&sources[1], row(&format!("g-{n}"), "x"));
            let asked = Instant::now();
            while aware
                .drain_notices(DrainNotices::new(MANAGER))
                .unwrap()
                .notices
                .is_empty()
            {
                assert!(asked.elapsed() < BOUND, "the good link's turn is not told");
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        // A second each is what the bad link's error made of it.
        assert!(
            begun.elapsed() < Duration::from_secs(12),
            "{:?}",
            begun.elapsed()
        );
        aware.close().unwrap();
    });
}
