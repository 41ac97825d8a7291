//! What is at rest and who may read it: modes of files whatever the umask, no text of
//! a message in any file or log line after any verb, and hashes with a key of their own.
//!
//! This program is its own child: the umask and the logger are the whole process's.
#![cfg(target_os = "linux")]
// For umask alone.
#![allow(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use serde_json::json;
use session_awareness::*;

const ROLE: &str = "AWARE_TEST_UMASK";
const CANARY: &str = "canary-9f3a-of-a-transcript";
const MANAGER: &str = "agent:main:main";

/// What the library logged, at every level.
static LINES: Mutex<String> = Mutex::new(String::new());

struct Listening;

impl log::Log for Listening {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LINES
            .lock()
            .unwrap()
            .push_str(&format!("{}\n", record.args()));
    }

    fn flush(&self) {}
}

/// Runs the test of this name in a process of its own with this umask.
fn again(test: &str, umask: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, umask)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "umask {umask}: {said}"
    );
}

/// The umask to play under, when this is the child.
fn role() -> Option<libc::mode_t> {
    let umask = std::env::var(ROLE).ok()?;
    Some(libc::mode_t::from_str_radix(&umask, 8).unwrap())
}

/// Everything below a folder with its mode; folders too.
fn all(folder: &Path) -> BTreeMap<PathBuf, u32> {
    let mut found = BTreeMap::new();
    for entry in walkdir::WalkDir::new(folder).min_depth(1) {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        found.insert(entry.into_path(), mode & 0o7777);
    }
    found
}

/// A database, and a folder for what the agents write, apart from each other.
struct Place {
    own: tempfile::TempDir,
    agents: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place {
            own: tempfile::tempdir().unwrap(),
            agents: tempfile::tempdir().unwrap(),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        let path = self.agents.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn config(&self) -> Config {
        let mut roots = Roots::default();
        for catalog in Catalog::ALL {
            let home = self.agents.path().join(catalog.as_str());
            roots.set(catalog, home.to_str().unwrap());
        }
        let monitor = MonitorConfig {
            enabled: Some(true),
            interval_ms: Some(50),
            initial_delay_ms: Some(0),
            roots: Some(roots),
            ..MonitorConfig::default()
        };
        Config {
            monitor: Some(monitor),
            ..Config::new(self.own.path().join("a.db").to_str().unwrap())
        }
    }
}

fn append(path: &Path, rows: &[serde_json::Value]) {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    for row in rows {
        writeln!(file, "{row}").unwrap();
    }
}

/// The rows of each agent that tell a text, and where they are written.
fn sessions(place: &Place, n: usize, text: &str) -> Vec<(Catalog, PathBuf)> {
    let stamp = format!("2026-11-30T10:00:{n:02}.000Z");
    let part = json!([{"type": "text", "text": text}]);
    let claude = json!({"type": "user", "uuid": format!("u-{n}"), "timestamp": stamp, "origin": {"kind": "human"},
        "message": {"role": "user", "content": text}});
    let meta = json!({"timestamp": stamp, "type": "session_meta", "payload": {"id": "t-1", "source": "cli", "cwd": "/"}});
    let codex = json!({"timestamp": stamp, "type": "event_msg", "payload": {"type": "user_message", "message": text}});
    let header = json!({"type": "session", "version": 3, "id": "p-1", "timestamp": "2026-11-30T09:00:00.000Z", "cwd": "/"});
    let pi = json!({"type": "message", "id": format!("{n:08x}"), "timestamp": stamp, "message": {"role": "user", "content": part}});
    let torn = json!(format!("{text} torn"));
    let files = [
        (
            Catalog::Claude,
            "claude/projects/p/c-1.jsonl",
            vec![claude, torn.clone()],
        ),
        (
            Catalog::Codex,
            "codex/sessions/2026/11/30/rollout-2026-11-30T12-41-15-t-1.jsonl",
            vec![meta, codex, torn.clone()],
        ),
        (
            Catalog::Pi,
            "pi/sessions/p/2026_p-1.jsonl",
            vec![header, pi, torn],
        ),
    ];
    let mut sources = Vec::new();
    for (catalog, name, rows) in files {
        let path = place.file(name);
        append(&path, &rows);
        sources.push((catalog, path));
    }
    let tree = place.file("opencode/storage/session/p/ses_1.json");
    fs::write(tree, "{\"id\":\"ses_1\"}").unwrap();
    let message = json!({"role": "user", "time": {"created": 5}, "summary": {"title": text}});
    fs::write(
        place.file(&format!("opencode/storage/message/ses_1/msg_{n}.json")),
        message.to_string(),
    )
    .unwrap();
    let part = json!({"type": "text", "text": text});
    fs::write(
        place.file(&format!("opencode/storage/part/msg_{n}/prt_1.json")),
        part.to_string(),
    )
    .unwrap();
    sources.push((Catalog::Opencode, place.agents.path().join("opencode")));
    let store = place.file("other/opencode.db");
    let conn = rusqlite::Connection::open(&store).unwrap();
    conn.execute_batch(
        "CREATE TABLE IF NOT EXISTS session (id text PRIMARY KEY);
         CREATE TABLE IF NOT EXISTS message (id text PRIMARY KEY, session_id text, data text);
         CREATE TABLE IF NOT EXISTS part (id text PRIMARY KEY, message_id text, data text);
         INSERT OR IGNORE INTO session VALUES ('ses_1');",
    )
    .unwrap();
    conn.execute(
        "INSERT INTO message VALUES (?1, 'ses_1', ?2)",
        [format!("msg_db_{n}"), message.to_string()],
    )
    .unwrap();
    conn.execute(
        "INSERT INTO part VALUES (?1, ?2, ?3)",
        [
            format!("prt_db_{n}"),
            format!("msg_db_{n}"),
            part.to_string(),
        ],
    )
    .unwrap();
    sources.push((Catalog::Opencode, store));
    sources
}

/// The verbs, by the header: what takes a request.
fn verbs() -> BTreeSet<String> {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/session_awareness.h");
    let header = fs::read_to_string(header).unwrap();
    let functions = header.split("\nint32_t aware_").skip(1);
    functions
        .filter_map(|function| function.split(';').next()?.split_once('('))
        .filter(|(_, parameters)| parameters.contains("request_json"))
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Calls every verb with the text wherever a text may be; what was answered.
fn every_verb(aware: &Awareness, place: &Place) -> String {
    let mut said = String::new();
    let mut called = BTreeSet::new();
    let mut note = |verb: &str, what: &dyn std::fmt::Debug| {
        called.insert(verb.to_owned());
        said.push_str(&format!("{what:?}\n"));
    };
    let session = |n: usize| format!("agent:main:up-{n}");
    let mut linked = Vec::new();
    for (n, (catalog, source)) in sessions(place, 1, CANARY).into_iter().enumerate() {
        note("watch", &aware.watch(Watch::new(MANAGER, session(n))));
        let request = Adopt {
            thread_id: (catalog == Catalog::Opencode).then(|| "ses_1".to_owned()),
            baseline: Some(Baseline::Start),
            ..Adopt::new(session(n), catalog, source.to_str().unwrap())
        };
        note("adopt", &aware.adopt(request));
        linked.push(session(n));
    }
    note("scan", &aware.scan(Scan::default()));
    let own = |key: &str, text: &str| OwnMessage {
        session_key: key.into(),
        agent_id: None,
        text: text.into(),
    };
    for key in &linked {
        note(
            "own_message",
            &aware.own_message(own(key, &format!("{CANARY} of the host"))),
        );
    }
    sessions(place, 2, &format!("{CANARY} of the host"));
    sessions(place, 3, &format!("/{CANARY}"));
    sessions(place, 4, &format!("{CANARY} {}", "long ".repeat(300_000)));
    for key in &linked {
        let run = |active| SetRunActive {
            session_key: key.clone(),
            agent_id: None,
            active,
        };
        note("set_run_active", &aware.set_run_active(run(true)));
        note("scan", &aware.scan(Scan::default()));
        note("set_run_active", &aware.set_run_active(run(false)));
    }
    note("scan", &aware.scan(Scan::default()));
    for (n, catalog) in Catalog::ALL.into_iter().enumerate() {
        let key = format!("agent:main:far-{n}");
        note("watch", &aware.watch(Watch::new(MANAGER, &key)));
        note(
            "adopt",
            &aware.adopt(Adopt {
                thread_id: Some("t".into()),
                host_id: Some("elsewhere".into()),
                source: None,
                baseline: Some(Baseline::Start),
                ..Adopt::new(&key, catalog, "")
            }),
        );
        let rows = [
            json!({"type": "user", "uuid": "f", "message": {"role": "user", "content": CANARY}}),
            json!({"type": "event_msg", "payload": {"type": "user_message", "message": CANARY}}),
            json!({"type": "message", "id": "f", "timestamp": "2026-11-30T10:00:00Z", "message": {"role": "user", "content": CANARY}}),
            json!({"info": {"id": "msg_f", "role": "user"}, "parts": [{"type": "text", "text": CANARY}]}),
            json!({"info": {"id": "msg_g", "role": "user"}, "parts": [{"type": "text", "text": CANARY, "synthetic": true}]}),
            json!(CANARY),
            json!([CANARY]),
        ];
        let feed = json!({"sessionKey": key, "rows": rows});
        note("feed", &aware.feed(serde_json::from_value(feed).unwrap()));
        note("own_message", &aware.own_message(own(&key, CANARY)));
    }
    note("discover", &aware.discover(Discover::default()));
    note("links", &aware.links(LinksRequest::default()));
    note(
        "record",
        &aware.record_queued(vec![NewEvent::new(
            session(0),
            Kind::GoalChanged,
            ActorType::Agent,
        )]),
    );
    // What a host records is its own to choose; of one that is refused nothing stays.
    for summary in [Some(format!("{CANARY}\n")), None] {
        note(
            "record",
            &aware.record(NewEvent {
                summary,
                ..NewEvent::new(session(2), Kind::HumanDirectMessage, ActorType::Human)
            }),
        );
    }
    let peeked = aware.drain_notices(DrainNotices {
        ack: Some(false),
        ..DrainNotices::new(MANAGER)
    });
    note("drain_notices", &peeked);
    let seen = peeked.unwrap().notices.remove(0);
    note(
        "ack_notices",
        &aware.ack_notices(AckNotices {
            watcher_session_key: MANAGER.into(),
            notices: vec![AckedNotice {
                target_session_key: seen.target_session_key,
                target_agent_id: None,
                notified: seen.notified,
            }],
        }),
    );
    note(
        "drain_notices",
        &aware.drain_notices(DrainNotices::new(MANAGER)),
    );
    note(
        "wait_wakes",
        &aware.wait_wakes(serde_json::from_value(json!({"timeoutMs": 0})).unwrap()),
    );
    note("events", &aware.events(EventsRequest::default()));
    note("sessions", &aware.sessions(SessionsRequest::default()));
    note("watches", &aware.watches(Watches::default()));
    note(
        "changes_since",
        &aware.changes_since(
            serde_json::from_value(json!({"sessionKey": session(0), "changesSince": 0})).unwrap(),
        ),
    );
    note(
        "state_versions",
        &aware.state_versions(StateVersions {
            sessions: vec![SessionRef::new(session(2))],
        }),
    );
    note(
        "tool_schemas",
        &aware.tool_schemas(serde_json::from_value(json!({"format": "openai"})).unwrap()),
    );
    note(
        "unwatch",
        &aware.unwatch(Unwatch {
            watcher_session_key: MANAGER.into(),
            target_session_key: session(2),
            target_agent_id: None,
        }),
    );
    let copy = place.own.path().join("copy.db");
    note(
        "backup",
        &aware.backup(serde_json::from_value(json!({"path": copy})).unwrap()),
    );
    note(
        "session_delete",
        &aware.session_delete(serde_json::from_value(json!({"sessionKey": session(1)})).unwrap()),
    );
    note(
        "release",
        &aware.release(serde_json::from_value(json!({"sessionKey": session(0)})).unwrap()),
    );
    note(
        "session_reset",
        &aware.session_reset(serde_json::from_value(json!({"sessionKey": MANAGER})).unwrap()),
    );
    note("maintain", &aware.maintain());
    note("stats", &aware.stats());
    // What stands in a request that is refused is not told either.
    let refused = serde_json::from_value::<OwnMessage>(json!({"sessionKey": 1, "text": CANARY}));
    note("own_message", &refused.unwrap_err().to_string());
    assert_eq!(called, verbs(), "each verb has its line here");
    said
}

#[test]
fn no_text_of_a_message_is_at_rest_in_a_reply_or_in_a_log_line_and_files_are_the_owners_alone() {
    let Some(umask) = role() else {
        for umask in ["000", "077", "777"] {
            again(
                "no_text_of_a_message_is_at_rest_in_a_reply_or_in_a_log_line_and_files_are_the_owners_alone",
                umask,
            );
        }
        return;
    };
    // SAFETY: sets the process's file mode mask; nothing else runs yet.
    unsafe { libc::umask(umask) };
    log::set_logger(&Listening).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    let place = Place::new();
    let aware = Awareness::open(place.config()).unwrap();
    let said = every_verb(&aware, &place);
    let told = said.matches("human_turns: ").count() - said.matches("human_turns: 0").count();
    assert!(told >= 4, "the canaries were met as turns: {said}");
    assert!(said.matches("channel").count() >= 4, "{said}");
    assert!(!said.contains(CANARY), "{said}");
    let hold = |when: &str| {
        let found = all(place.own.path());
        assert!(found.len() >= 2, "{found:?}");
        for (path, mode) in &found {
            assert!(
                path.is_file(),
                "{when}: the library makes no folders: {path:?}"
            );
            assert_eq!(*mode, 0o600, "{when}: {path:?} under umask {umask:o}");
            let bytes = fs::read(path).unwrap();
            let held = memchr::memmem::find(&bytes, CANARY.as_bytes());
            assert_eq!(held, None, "{when}: {path:?}");
        }
        found
    };
    let names: Vec<String> = hold("open")
        .into_keys()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    for name in ["a.db", "a.db-wal", "a.db-shm", "copy.db"] {
        assert!(names.iter().any(|found| found == name), "{name}: {names:?}");
    }
    assert!(
        names.iter().any(|name| name.starts_with("a.db-handle-")),
        "{names:?}"
    );
    aware.close().unwrap();
    hold("closed");
    // Nor did the agents' folders get anything of the library's.
    let theirs = all(place.agents.path());
    let foreign = |path: &&PathBuf| path.to_string_lossy().contains("aware");
    assert_eq!(theirs.keys().find(foreign), None);
    let lines = LINES.lock().unwrap();
    assert!(!lines.contains(CANARY), "{lines}");
}

#[test]
fn the_hashes_of_two_databases_have_nothing_in_common() {
    let mut hashes = Vec::new();
    for _ in 0..2 {
        let place = Place::new();
        let mut config = place.config();
        config.monitor.as_mut().unwrap().enabled = Some(false);
        let aware = Awareness::open(config).unwrap();
        let (_, source) = sessions(&place, 1, CANARY).remove(0);
        let key = "agent:main:up";
        aware
            .adopt(Adopt {
                baseline: Some(Baseline::Start),
                ..Adopt::new(key, Catalog::Claude, source.to_str().unwrap())
            })
            .unwrap();
        aware.scan(Scan::default()).unwrap();
        let own = OwnMessage {
            session_key: key.into(),
            agent_id: None,
            text: CANARY.into(),
        };
        aware.own_message(own).unwrap();
        aware.close().unwrap();
        let conn = rusqlite::Connection::open(place.own.path().join("a.db")).unwrap();
        let one = |sql: &str| -> Vec<u8> { conn.query_row(sql, [], |row| row.get(0)).unwrap() };
        hashes.push([
            one("SELECT value FROM session_aware_secret"),
            one("SELECT print FROM session_aware_own_messages"),
            one("SELECT key FROM session_aware_turns"),
            one("SELECT tail FROM session_upstream_links"),
        ]);
    }
    for (one, other) in hashes[0].iter().zip(&hashes[1]) {
        assert!(one.len() >= 16 && one != other);
    }
}
