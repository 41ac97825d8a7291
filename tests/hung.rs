//! What hangs in an agent's files, as on a mount whose server is gone, keeps
//! nobody waiting but itself.
//!
//! The test runs itself again below a preloaded library in which such calls hang.
#![cfg(target_os = "linux")]

// Each test uses a part of it.
#[allow(dead_code)]
mod native;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use session_awareness::*;

use native::{Language, build, root, told};

const CALL: &str = "HANG_CALL";
const GATE: &str = "HANG_GATE";
const CATALOG: &str = "HANG_CATALOG";

/// What closing waits for such a call, and what a machine that does other things too adds.
const PATIENCE: Duration = Duration::from_secs(2);
const SLACK: Duration = Duration::from_secs(3);

#[test]
fn a_call_that_hangs_in_an_agents_file_keeps_nobody_else_waiting() {
    if std::env::var_os(CALL).is_some() {
        return meet_one();
    }
    let shim = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hung/shim.so");
    let source = root().join("tests/hung/shim.c");
    // __typeof__ and the casts of dlsym are no ISO C.
    let flags = ["-shared", "-fPIC", "-Wno-pedantic"];
    build(Language::C11, &[source], &flags, &shim).unwrap_or_else(|said| panic!("{said}"));
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("claude", "stat"),
        ("claude", "open"),
        ("claude", "read"),
        ("claude", "inotify_add_watch"),
        ("opencode", "stat"),
        ("opencode", "open"),
        ("opencode", "read"),
    ];
    let children = cases.map(|(catalog, call)| {
        let gate = folder.path().join(format!("{catalog}-{call}"));
        let child: Child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("a_call_that_hangs_in_an_agents_file_keeps_nobody_else_waiting")
            .env("LD_PRELOAD", &shim)
            .env(CALL, call)
            .env(GATE, gate)
            .env(CATALOG, catalog)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        (catalog, call, child)
    });
    for (catalog, call, child) in children {
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{catalog} {call}: {}",
            told(&output)
        );
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let figures = said.lines().find(|line| line.starts_with("closing"));
        println!("{catalog}, hanging in {call}: {}", figures.unwrap());
    }
}

/// One case, in a process that ends with it.
fn meet_one() {
    let folder = tempfile::tempdir().unwrap();
    let gate = PathBuf::from(std::env::var_os(GATE).unwrap());
    let met = PathBuf::from(format!("{}.met", gate.display()));
    let call = std::env::var(CALL).unwrap();
    let catalog = match std::env::var(CATALOG).unwrap().as_str() {
        "claude" => Catalog::Claude,
        _ => Catalog::Opencode,
    };
    let aware = Arc::new(open(&folder.path().join("a.db")));
    let agent = Agent::new(catalog, &folder.path().join("HANG"));
    agent.adopt(&aware, "agent:main:hung");
    agent.write("before");
    until(|| turns(&aware, "agent:main:hung") == 1);

    std::fs::write(&gate, "").unwrap();
    if call == "inotify_add_watch" {
        // Another folder, which is to be watched from now on.
        Agent::new(catalog, &folder.path().join("HANG-too")).adopt(&aware, "agent:main:too");
    } else {
        agent.write("now");
    }
    // A store of OpenCode stays open in the background.
    if (catalog, call.as_str()) != (Catalog::Opencode, "open") {
        until(|| met.exists());
        std::fs::remove_file(&met).unwrap();
    }
    if call != "inotify_add_watch" {
        // A call of the host hangs too.
        let aware = Arc::clone(&aware);
        let scanning = std::thread::Builder::new().name("aware-host".to_owned());
        scanning.spawn(move || aware.scan(Scan::default())).unwrap();
        until(|| met.exists());
    }

    // Other agents and other handles go on.
    let well = match catalog {
        Catalog::Claude => Catalog::Opencode,
        _ => Catalog::Claude,
    };
    let well = Agent::new(well, &folder.path().join("well"));
    let began = Instant::now();
    let other = open(&folder.path().join("b.db"));
    for handle in [&other, &aware] {
        well.adopt(handle, "agent:main:well");
    }
    well.write("typed");
    for handle in [&other, &aware] {
        until(|| turns(handle, "agent:main:well") == 1);
    }
    other.close().unwrap();
    let others = began.elapsed();
    assert!(others < SLACK, "another handle took {others:?}");

    let began = Instant::now();
    aware.close().unwrap();
    let closing = began.elapsed();
    assert!(closing < PATIENCE + SLACK, "closing took {closing:?}");
    println!("\nclosing took {closing:?}, another handle from open to close {others:?}");
    // Not joined: what hangs would hang on.
    std::process::exit(0);
}

fn open(database: &Path) -> Awareness {
    let config = Config {
        monitor: Some(MonitorConfig {
            interval_ms: Some(3_600_000),
            initial_delay_ms: Some(0),
            ..MonitorConfig::default()
        }),
        ..Config::new(database.to_str().unwrap())
    };
    let aware = Awareness::open(config).unwrap();
    for target in ["agent:main:hung", "agent:main:too", "agent:main:well"] {
        aware.watch(Watch::new("agent:main:main", target)).unwrap();
    }
    aware
}

fn turns(aware: &Awareness, key: &str) -> usize {
    let request = EventsRequest {
        session_key: Some(key.to_owned()),
        kinds: Some(vec![Kind::HumanDirectMessage]),
        ..EventsRequest::default()
    };
    aware.events(request).unwrap().events.len()
}

fn until(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "it did not come to that in 30 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An agent with one session, and its own way to keep it.
struct Agent {
    catalog: Catalog,
    source: PathBuf,
    store: Option<rusqlite::Connection>,
}

impl Agent {
    fn new(catalog: Catalog, folder: &Path) -> Agent {
        std::fs::create_dir(folder).unwrap();
        if catalog == Catalog::Claude {
            let source = folder.join("s.jsonl");
            std::fs::write(&source, "").unwrap();
            return Agent {
                catalog,
                source,
                store: None,
            };
        }
        let source = folder.join("opencode.db");
        let store = rusqlite::Connection::open(&source).unwrap();
        store
            .execute_batch(
                "PRAGMA journal_mode = WAL;
                 CREATE TABLE session (id TEXT PRIMARY KEY, time_created INTEGER, time_updated INTEGER);
                 CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT);
                 CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, data TEXT);
                 INSERT INTO session VALUES ('ses_1', 1700000000000, 1700000000000);",
            )
            .unwrap();
        Agent {
            catalog,
            source,
            store: Some(store),
        }
    }

    fn adopt(&self, aware: &Awareness, key: &str) {
        let request = Adopt {
            thread_id: self.store.as_ref().map(|_| "ses_1".to_owned()),
            baseline: Some(Baseline::Start),
            ..Adopt::new(key, self.catalog, self.source.to_str().unwrap())
        };
        aware.adopt(request).unwrap();
    }

    /// A person types into the session.
    fn write(&self, text: &str) {
        let Some(store) = &self.store else {
            let row = json!({"type": "user", "uuid": text, "origin": {"kind": "human"},
                             "message": {"role": "user", "content": text}});
            let mut file = OpenOptions::new().append(true).open(&self.source).unwrap();
            return file.write_all(format!("{row}\n").as_bytes()).unwrap();
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = now.as_millis() as i64;
        let id = format!("msg_{now}");
        let data = json!({"role": "user", "time": {"created": now}}).to_string();
        let part = json!({"type": "text", "text": text}).to_string();
        store
            .execute(
                "INSERT INTO message VALUES (?1, 'ses_1', ?2, ?3)",
                (&id, now, data),
            )
            .and_then(|_| {
                store.execute(
                    "INSERT INTO part VALUES ('prt_' || ?1, ?1, 'ses_1', ?2)",
                    (&id, part),
                )
            })
            .unwrap();
    }
}
