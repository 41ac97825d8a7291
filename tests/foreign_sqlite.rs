//! A host that has another copy of SQLite in its process, and opens with it what
//! the library has open.
#![cfg(target_os = "linux")]

// Each test uses a part of it.
#[allow(dead_code)]
mod native;

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::{Value, json};

use native::{leave_out, root, shared_library};

const SESSION: &str = "agent:main:up";

/// A process of Python with the library and Python's own SQLite.
struct Host {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Host {
    /// `None`, and said, where there is no such Python.
    fn start() -> Option<Host> {
        let probe = Command::new("python3")
            .args(["-c", "import ctypes, sqlite3"])
            .output();
        if !probe.is_ok_and(|output| output.status.success()) {
            leave_out("a second SQLite in the process", "no python3 with sqlite3");
            return None;
        }
        let mut child = Command::new("python3")
            .arg(root().join("tests/foreign_sqlite/host.py"))
            .arg(shared_library())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Some(Host {
            to: child.stdin.take(),
            from: BufReader::new(child.stdout.take().unwrap()),
            child,
        })
    }

    fn ask(&mut self, what: Value) -> Value {
        writeln!(self.to.as_mut().unwrap(), "{what}").unwrap();
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        if line.is_empty() {
            let status = self.child.wait().unwrap();
            panic!("{what}: the host died, signal {:?}", status.signal());
        }
        serde_json::from_str(&line).unwrap()
    }

    fn open(&mut self, name: &str, database: &Path) {
        let config = json!({"database": database, "monitor": {"initialDelayMs": 0}});
        let reply = self.ask(json!(["open", name, config]));
        assert_eq!(reply["opened"], true, "{reply}");
    }

    fn call(&mut self, name: &str, verb: &str, request: Value) -> Value {
        let reply = self.ask(json!(["call", name, verb, request]));
        assert!(reply.get("error").is_none(), "{verb}: {reply}");
        reply
    }

    fn record(&mut self, name: &str) {
        let event =
            json!({"sessionKey": SESSION, "kind": "human_direct_message", "actorType": "human"});
        assert_eq!(self.call(name, "record", event)["recorded"], true);
    }

    fn said(&mut self, part: &str) -> u64 {
        self.ask(json!(["said", part])).as_u64().unwrap()
    }

    /// Waits for a line of the log.
    fn until_said(&mut self, part: &str) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.said(part) == 0 {
            assert!(Instant::now() < deadline, "never said: {part}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until so many turns of the session are told.
    fn until_told(&mut self, turns: u64) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let request = json!({"kinds": ["human_direct_message"]});
        while self.call("a", "events", request.clone())["events"]
            .as_array()
            .is_none_or(|events| (events.len() as u64) < turns)
        {
            assert!(Instant::now() < deadline, "{turns} are not told");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it, which must not be by a signal.
    fn end(mut self) {
        drop(self.to.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A mark in a `-shm`, at four bytes that SQLite never writes to: it is gone when
/// the file was cut. Set by this process, which has no locks on the file to lose.
struct Mark(PathBuf);

const MARK: &[u8; 4] = b"kept";
const UNUSED: u64 = 132;

impl Mark {
    fn set(database: &Path) -> Mark {
        let shm = PathBuf::from(format!("{}-shm", database.display()));
        let file = OpenOptions::new().write(true).open(&shm).unwrap();
        file.write_all_at(MARK, UNUSED).unwrap();
        Mark(shm)
    }

    fn assert_kept(&self) {
        let mut found = [0; 4];
        let file = fs::File::open(&self.0).unwrap();
        file.read_exact_at(&mut found, UNUSED).unwrap();
        assert_eq!(&found, MARK, "the -shm was cut");
    }
}

/// OpenCode, in a process of its own.
fn opencode(path: &Path) -> Connection {
    let store = Connection::open(path).unwrap();
    store
        .execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE IF NOT EXISTS session (id TEXT PRIMARY KEY, time_created INTEGER, time_updated INTEGER);
             CREATE TABLE IF NOT EXISTS message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT);
             CREATE TABLE IF NOT EXISTS part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, data TEXT);
             INSERT OR IGNORE INTO session VALUES ('ses_1', 1700000000000, 1700000000000);",
        )
        .unwrap();
    store
}

fn types(store: &Connection, id: &str) {
    let data = json!({"role": "user", "time": {"created": 1_800_000_000_000_u64}}).to_string();
    let part = json!({"type": "text", "text": id}).to_string();
    store
        .execute(
            "INSERT INTO message VALUES (?1, 'ses_1', 1800000000000, ?2)",
            [id, &data],
        )
        .unwrap();
    store
        .execute(
            "INSERT INTO part VALUES ('prt_' || ?1, ?1, 'ses_1', ?2)",
            [id, &part],
        )
        .unwrap();
}

#[test]
fn a_linked_store_of_opencode_may_be_read_with_another_sqlite() {
    let Some(mut host) = Host::start() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("opencode.db");
    drop(opencode(&source));
    host.open("a", &folder.path().join("a.db"));
    let watch = json!({"watcherSessionKey": "agent:main:main", "targetSessionKey": SESSION});
    host.call("a", "watch", watch);
    let adopt = json!({"sessionKey": SESSION, "catalog": "opencode", "source": source,
                       "threadId": "ses_1", "baseline": "start"});
    host.call("a", "adopt", adopt);
    let scan = json!({});
    // From here on the library alone has it open, in the background, and mapped.
    let deadline = Instant::now() + Duration::from_secs(30);
    while host.call("a", "stats", json!({}))["scans"]["opencode"]["passes"] == 0 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    let mark = Mark::set(&source);
    assert_eq!(host.ask(json!(["other_reads", source])), 6);
    mark.assert_kept();
    host.ask(json!(["other_closes", source]));
    host.ask(json!(["other_storms", source, 300, "a", "scan", scan]));
    mark.assert_kept();

    // The agent is in nobody's way, and the library in none of its.
    let store = opencode(&source);
    types(&store, "msg_1");
    host.until_told(1);
    let (busy, left): (i64, i64) = store
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!((busy, left), (0, 0), "a checkpoint goes through");
    types(&store, "msg_2");
    host.until_told(2);
    assert_eq!(host.ask(json!(["close", "a"])), 0);
    drop(store);
    let left = |what: &str| folder.path().join(format!("opencode.db-{what}")).exists();
    assert!(!left("wal") && !left("shm"), "the agent took its log away");
    host.end();
}

const ANOTHER: &str = "another copy of SQLite";
const DROPPED: &str = "dropped the library's locks";

#[test]
fn another_sqlite_on_the_database_is_told_in_the_log_and_cuts_nothing() {
    let Some(mut host) = Host::start() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("a.db");
    host.open("a", &database);
    host.record("a");
    let mark = Mark::set(&database);
    // Handles of the library are not taken for others.
    host.open("b", &database);
    host.record("b");
    assert_eq!(host.ask(json!(["close", "b"])), 0);
    assert_eq!(host.said(ANOTHER) + host.said(DROPPED), 0);

    host.ask(json!(["other_reads", database]));
    mark.assert_kept();
    // Whoever opens next sees it at once, and who is there within seconds.
    host.open("c", &database);
    host.until_said(ANOTHER);
    assert_eq!(host.said(DROPPED), 0, "it has not closed the file yet");
    host.ask(json!(["other_closes", database]));
    host.until_said(DROPPED);
    host.record("a");
    mark.assert_kept();
    // It took nothing away when it closed the file: what is recorded now is there for others.
    let inspected = |host: &mut Host| {
        host.record("a");
        Connection::open(&database)
            .unwrap()
            .query_row("SELECT count(*) FROM session_state_events", [], |row| {
                row.get::<_, i64>(0)
            })
            .unwrap()
    };
    assert_eq!(inspected(&mut host), 4);
    assert_eq!(host.ask(json!(["close", "a"])), 0);
    assert_eq!(host.ask(json!(["close", "c"])), 0);
    host.end();
}

#[test]
fn who_opens_and_closes_the_database_file_is_told_in_the_log() {
    let Some(mut host) = Host::start() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("a.db");
    host.open("a", &database);
    host.ask(json!(["touch", database]));
    host.until_said(DROPPED);
    assert_eq!(host.said(ANOTHER), 0);
    // As it says: all handles closed and opened again, the locks are there again.
    assert_eq!(host.ask(json!(["close", "a"])), 0);
    host.open("a", &database);
    host.open("b", &database);
    host.record("b");
    assert_eq!(host.said(DROPPED), 1);
    host.end();
}
