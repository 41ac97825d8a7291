//! `aware` from outside: what it prints, that it disturbs nobody, and that
//! `doctor` sees each fault and no other.
#![cfg(target_os = "linux")]

#[allow(dead_code)]
mod native;
mod opencode_store;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use native::{leave_out, shared_library, told};
use serde_json::{Value, json};
use session_awareness::*;
use tempfile::TempDir;
use unicode_width::UnicodeWidthStr;

const MANAGER: &str = "agent:main:main";
const CHILD: &str = "agent:main:subagent:child";
const PATIENCE: Duration = Duration::from_secs(30);
/// Turns the line, hides, moves the cursor in a careless terminal (C1), and is wide.
const HOSTILE: &str = "a\u{202e}b\u{200b}c\u{feff} 日本 <b>";

struct Db {
    folder: TempDir,
}

impl Db {
    fn new() -> Db {
        Db {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn path(&self) -> PathBuf {
        self.at("awareness.db")
    }

    fn config(&self) -> Config {
        let monitor = MonitorConfig {
            enabled: Some(false),
            ..MonitorConfig::default()
        };
        Config {
            monitor: Some(monitor),
            ..Config::new(self.path().to_str().unwrap())
        }
    }

    /// A gateway: a child with a watcher that has not looked yet, and a group.
    fn gateway(&self) -> Awareness {
        let aware = Awareness::open(self.config()).unwrap();
        aware
            .record(NewEvent {
                watcher_session_keys: Some(vec![MANAGER.into()]),
                ..NewEvent::new(CHILD, Kind::ChildSpawned, ActorType::Agent)
            })
            .unwrap();
        aware.record(human(CHILD)).unwrap();
        aware.record(human("global")).unwrap();
        aware.record(human(HOSTILE)).unwrap();
        aware
            .watch(Watch::new("agent:main:other", HOSTILE))
            .unwrap();
        aware
    }

    fn sql(&self, statements: &str) {
        // The same copy of SQLite as the library's: it is linked into this program once.
        let conn = rusqlite::Connection::open(self.path()).unwrap();
        conn.execute_batch(statements).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_aware"));
        command
            .args(args)
            .env("SESSION_AWARENESS_DATABASE", self.path())
            .env_remove("NO_COLOR")
            .env("TZ", "UTC")
            .env("HOME", self.folder.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// What a command that goes well prints.
    fn text(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", told(&output));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        let text = self.text(&[args, &["--json"][..]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
    }

    /// The names of the checks that doctor finds a problem by, each once, and all of them sound.
    fn ails(&self, args: &[&str]) -> Vec<String> {
        let output = self.run(&[&["doctor", "--json"][..], args].concat());
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", told(&output)));
        let problems = report["problems"].as_array().unwrap();
        for problem in problems {
            for field in ["found", "cause", "run"] {
                assert!(
                    problem[field].as_str().is_some_and(|text| !text.is_empty()),
                    "{problem}"
                );
            }
        }
        assert_eq!(
            output.status.code(),
            Some(i32::from(!problems.is_empty())),
            "{report:#}"
        );
        assert_eq!(report["ok"], json!(problems.is_empty()));
        // The table tells the same.
        let table = self.run(&[&["doctor"][..], args].concat());
        let table = String::from_utf8(table.stdout).unwrap();
        for problem in problems {
            assert!(
                table.contains(problem["check"].as_str().unwrap()),
                "{table}"
            );
        }
        let mut names: Vec<String> = problems
            .iter()
            .map(|problem| problem["check"].as_str().unwrap().to_owned())
            .collect();
        names.dedup();
        names
    }
}

fn human(key: &str) -> NewEvent {
    NewEvent::new(key, Kind::HumanDirectMessage, ActorType::Human)
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn without_colour(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain += before;
        rest = after.split_once('m').unwrap().1;
    }
    plain + rest
}

// ---- what it prints ---------------------------------------------------------

#[test]
fn every_command_has_a_table_and_a_document() {
    let db = Db::new();
    let gateway = db.gateway();
    let status = db.json(&["status"]);
    assert_eq!(
        [
            &status["sessions"],
            &status["events"],
            &status["watches"],
            &status["pending"],
            &status["links"]
        ],
        [&json!(3), &json!(4), &json!(2), &json!(1), &json!(0)]
    );
    assert_eq!(status["schemaVersion"], "1.3");
    assert_eq!(status["handles"][0]["version"], env!("CARGO_PKG_VERSION"));
    assert!(status["handles"][0]["openedAt"].as_i64().unwrap() > 0);
    assert_eq!(status["failedAppends"], json!({"total": 0, "lastAt": 0}));

    let log = db.json(&["log", CHILD, "--since", "1"]);
    assert_eq!(log["events"].as_array().unwrap().len(), 1);
    assert_eq!(log["events"][0]["kind"], "human_direct_message");
    assert_eq!(
        (&log["stateVersion"], &log["historyGap"]),
        (&json!(2), &json!(false))
    );
    assert_eq!(
        db.json(&["log", CHILD, "--since", "9"])["futureCursor"],
        true
    );
    let all = db.json(&["log"]);
    assert_eq!(all["events"].as_array().unwrap().len(), 4);
    assert_eq!(all["events"][3]["sessionKey"], HOSTILE);
    assert_eq!(db.json(&["log", "--last", "1"])["events"][0]["sequence"], 4);
    assert_eq!(
        db.json(&["log", "--kind", "child_spawned"])["events"]
            .as_array()
            .unwrap()
            .len(),
        1
    );

    assert_eq!(
        db.json(&["watches"])["watches"].as_array().unwrap().len(),
        2
    );
    assert_eq!(
        db.json(&["watches", "--watcher", MANAGER])["watches"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let pending = &db.json(&["pending"])["pending"];
    assert_eq!(pending.as_array().unwrap().len(), 1);
    assert_eq!(
        (&pending[0]["watcherSessionKey"], &pending[0]["notified"]),
        (&json!(MANAGER), &json!(2))
    );
    assert!(
        pending[0]["ageMs"].as_i64().unwrap() >= 0
            && pending[0]["pendingSince"].as_i64().unwrap() > 0
    );
    assert_eq!(db.json(&["links"]), json!({"links": []}));
    assert_eq!(
        db.json(&["discover"]),
        json!({"sessions": [], "more": false})
    );

    for (args, words) in [
        (
            vec!["status"],
            vec!["awareness.db", "open by", "with a log", "events"],
        ),
        (vec!["log"], vec!["SEQ", "SESSION", CHILD, "global (main)"]),
        (vec!["log", CHILD], vec!["SUMMARY", "child session spawned"]),
        (
            vec!["log", "agent:main:mistyped"],
            vec![
                "nothing was ever logged of this session",
                "aware log --last",
            ],
        ),
        (
            vec!["log", CHILD, "--kind", "adopted"],
            vec!["nothing is logged"],
        ),
        (
            vec!["watches"],
            vec!["WATCHER", "pending", "in sync", "the usual"],
        ),
        (vec!["pending"], vec!["HAS NOT SEEN", MANAGER]),
        (vec!["links"], vec!["no session is tied"]),
        (vec!["discover"], vec!["no session is found"]),
        (vec!["doctor"], vec!["CHECK", "integrity", "ok"]),
    ] {
        let plain = db.text(&args);
        assert!(!plain.contains('\u{1b}'), "{args:?}: colour in a pipe");
        for word in words {
            assert!(plain.contains(word), "{args:?} without {word}: {plain}");
        }
        let coloured = db.text(&[args.as_slice(), &["--color", "always"]].concat());
        assert!(coloured.contains('\u{1b}'), "{args:?}: no colour");
        // These tell ages and counts that pass on.
        if !["status", "pending", "doctor"].contains(&args[0]) {
            let coloured = without_colour(&coloured);
            let lines: Vec<&str> = coloured.lines().map(str::trim_end).collect();
            assert_eq!(lines.join("\n"), plain.trim_end(), "{args:?}");
        }
    }
    gateway.close().unwrap();
}

#[test]
fn columns_are_aligned_and_no_key_reaches_the_terminal_as_it_is() {
    let db = Db::new();
    db.gateway().close().unwrap();
    let table = db.text(&["log"]);
    // The summary begins at one place of the screen on every line, whatever stands before it.
    let places: Vec<usize> = table
        .lines()
        .map(|line| {
            let at = line
                .find("SUMMARY")
                .or(line.find("human message"))
                .or(line.find("child session"))
                .unwrap();
            line[..at].width()
        })
        .collect();
    assert!(
        places.iter().all(|place| *place == places[0]),
        "{places:?}\n{table}"
    );
    let shown = r"a\u{202e}b\u{200b}c\u{feff} 日本 <b>";
    assert!(table.contains(shown), "{table}");
    let json = db.text(&["log", "--json"]);
    for text in [&table, &json] {
        assert!(
            !text
                .chars()
                .any(|c| "\u{202e}\u{200b}\u{feff}\u{1b}".contains(c)),
            "{text:?}"
        );
    }
}

#[test]
fn errors_are_one_line_that_says_what_to_do() {
    let db = Db::new();
    for (args, words) in [
        (
            vec!["status"],
            "there is no database at this path; name the gateway's by --database PATH",
        ),
        (vec!["doctor"], "there is no database"),
        (vec!["status", "--database", ""], "--database"),
    ] {
        let output = db.run(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", told(&output));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.starts_with("aware: ") && said.contains(words) && said.lines().count() == 1,
            "{args:?}: {said}"
        );
    }
    let output = db
        .command(&["status"])
        .env_remove("SESSION_AWARENESS_DATABASE")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        told(&output).contains("aware: no database: name the gateway's by --database"),
        "{}",
        told(&output)
    );
    assert!(!db.path().exists(), "looking made a database");

    db.gateway().close().unwrap();
    for args in [
        vec!["nonsense"],
        vec!["log", "--since", "-1"],
        vec!["log", "--kind", "nonsense"],
        vec!["log", "agent:main"],
        vec!["follow", "agent:main"],
        vec!["discover", "--root", "nonsense"],
        vec!["timeline"],
        vec!["timeline", "--out", "/nowhere/page.html"],
    ] {
        let output = db.run(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", told(&output));
        let said = String::from_utf8(output.stderr.clone()).unwrap();
        assert!(
            said.starts_with("aware: ") && said.lines().count() == 1 && output.stdout.is_empty(),
            "{args:?}: {}",
            told(&output)
        );
    }
    for args in [vec!["--help"], vec!["doctor", "--help"], vec!["--version"]] {
        assert!(db.run(&args).status.success(), "{args:?}");
    }
    assert!(db.text(&["--help"]).contains("Exit codes:"));
}

/// What a command prints on a terminal, standard error with it.
fn on_a_terminal(db: &Db, args: &[&str], colour: Option<&str>) -> Option<String> {
    let mut terminal = Command::new("python3");
    terminal
        .args(["-c", "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))"])
        .arg(env!("CARGO_BIN_EXE_aware"))
        .args(args)
        .env("SESSION_AWARENESS_DATABASE", db.path())
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null());
    if let Some(set) = colour {
        terminal.env("NO_COLOR", set);
    }
    match terminal.output() {
        Ok(output) => Some(String::from_utf8(output.stdout).unwrap()),
        Err(error) => {
            leave_out("colours on a terminal", &format!("python3: {error}"));
            None
        }
    }
}

#[test]
fn on_a_terminal_there_is_colour_unless_it_is_refused_and_progress() {
    let db = Db::new();
    db.gateway().close().unwrap();
    let Some(coloured) = on_a_terminal(&db, &["log"], None) else {
        return;
    };
    assert!(
        coloured.contains("\u{1b}[") && coloured.contains("child_spawned"),
        "{coloured:?}"
    );
    for (args, no_color) in [
        (&["log"][..], Some("1")),
        (&["log", "--color", "never"], None),
    ] {
        let plain = on_a_terminal(&db, args, no_color).unwrap();
        assert!(
            !plain.contains("\u{1b}[3") && plain.contains("child_spawned"),
            "{plain:?}"
        );
    }
    let out = db.at("page.html");
    let told = on_a_terminal(&db, &["timeline", "--out", out.to_str().unwrap()], None).unwrap();
    assert!(told.contains("reading events"), "{told:?}");
}

#[test]
fn who_stops_reading_ends_it_quietly() {
    let db = Db::new();
    let gateway = db.gateway();
    let many = (0..900).map(|_| human(CHILD)).collect();
    gateway.record_batch(many).unwrap();
    for args in [
        &["log"][..],
        &["log", "--json"],
        &["follow", "--since", "0"],
    ] {
        let mut child = db
            .command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut one = [0; 1];
        let mut reader = child.stdout.take().unwrap();
        reader.read_exact(&mut one).unwrap();
        drop(reader);
        // Follow notices when it has something to say.
        gateway.record(human(CHILD)).unwrap();
        let status = until("the end of it", || child.try_wait().unwrap());
        assert_eq!(status.code(), Some(0), "{args:?}");
        let mut said = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        assert_eq!(said, "", "{args:?}");
    }
}

/// A child process that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn follow_tells_what_happens_and_goes_over_to_a_file_of_another_making() {
    let db = Db::new();
    let gateway = db.gateway();
    let mut follow = Running(
        db.command(&["follow", "--json", "--since", "3"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(follow.0.stdout.take().unwrap()).lines();
    let mut next = move || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["sequence"], 4);
    gateway.record(human(CHILD)).unwrap();
    assert_eq!(next()["sequence"], 5);
    gateway.close().unwrap();
    for name in ["awareness.db", "awareness.db-wal", "awareness.db-shm"] {
        let _ = fs::remove_file(db.at(name));
    }
    // There is none for a while: it waits.
    let other = Db::new();
    other.gateway().close().unwrap();
    fs::rename(other.path(), db.path()).unwrap();
    let next = next();
    assert_eq!(
        (&next["sequence"], &next["kind"]),
        (&json!(1), &json!("child_spawned"))
    );
}

#[test]
fn a_gateway_is_not_disturbed() {
    let db = Db::new();
    let gateway = db.gateway();
    let files = || {
        let mut files: Vec<(String, u32, Vec<u8>)> = fs::read_dir(db.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            // SQLite's readers have their marks in this one.
            .filter(|entry| !entry.file_name().to_string_lossy().ends_with("-shm"))
            .map(|entry| {
                let mode = entry.metadata().unwrap().permissions().mode();
                // The database's own bytes are read by another process: closing it here would drop the library's locks.
                let bytes = Command::new("cat")
                    .arg(entry.path())
                    .output()
                    .unwrap()
                    .stdout;
                (entry.file_name().into_string().unwrap(), mode, bytes)
            })
            .collect();
        files.sort();
        files
    };
    let before = files();
    for args in [
        &["status"][..],
        &["log"],
        &["log", CHILD],
        &["watches"],
        &["pending"],
        &["links"],
        &["discover"],
        &["doctor"],
        &["timeline", "--out", "/dev/null", "--json"],
    ] {
        let _ = db.run(args);
    }
    assert_eq!(files(), before);
    // The wake is still there to take, and the notice to drain.
    assert_eq!(
        gateway
            .wait_wakes(WaitWakes {
                timeout_ms: 0,
                max: None
            })
            .unwrap()
            .wakes
            .len(),
        1
    );
    assert_eq!(
        gateway
            .drain_notices(DrainNotices::new(MANAGER))
            .unwrap()
            .notices
            .len(),
        1
    );
    gateway.close().unwrap();
}

// ---- doctor -----------------------------------------------------------------

#[test]
fn a_sound_database_has_nothing_wrong_with_it() {
    let db = Db::new();
    let gateway = db.gateway();
    let none: Vec<String> = Vec::new();
    assert_eq!(db.ails(&[]), none);
    let report = db.json(&["doctor"]);
    let checks = report["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 11);
    assert!(
        checks.iter().all(|check| check["state"] == "ok"),
        "{report:#}"
    );
    gateway.close().unwrap();
    assert_eq!(db.ails(&[]), none);
}

#[test]
fn doctor_sees_what_is_wrong_with_the_schema_and_the_version() {
    let db = Db::new();
    let gateway = db.gateway();
    db.sql("UPDATE session_aware_handles SET version = '0.0.9'");
    assert_eq!(db.ails(&[]), ["schema"]);
    gateway.close().unwrap();
    db.sql("DELETE FROM session_aware_schema WHERE minor = 3");
    assert_eq!(db.ails(&[]), ["schema"]);
    db.sql("INSERT INTO session_aware_schema VALUES (2, 0, 0)");
    assert_eq!(db.ails(&[]), ["schema"]);
    fs::remove_file(db.path()).unwrap();
    db.sql("CREATE TABLE other (x)");
    fs::set_permissions(db.path(), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(db.ails(&[]), ["schema"]);
}

#[test]
fn doctor_sees_a_damaged_file() {
    let db = Db::new();
    let gateway = db.gateway();
    gateway
        .record_batch((0..900).map(|_| human(CHILD)).collect())
        .unwrap();
    gateway.close().unwrap();
    let (page, size): (u64, u64) = {
        let conn = rusqlite::Connection::open(db.path()).unwrap();
        let page = "SELECT rootpage FROM sqlite_schema WHERE name = 'session_state_events_session'";
        let number =
            |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap() as u64;
        (number(page), number("PRAGMA page_size"))
    };
    let sound = fs::read(db.path()).unwrap();
    let mut broken = sound.clone();
    let at = ((page - 1) * size) as usize;
    broken[at..at + 64].fill(0xff);
    fs::write(db.path(), &broken).unwrap();
    assert_eq!(db.ails(&[]), ["integrity"]);
    // Not a database at all.
    fs::write(db.path(), vec![b'x'; 8192]).unwrap();
    assert_eq!(db.ails(&[]), ["integrity"]);
    fs::write(db.path(), &sound).unwrap();
    assert!(db.ails(&[]).is_empty());
}

#[test]
fn doctor_sees_files_that_are_open_to_others() {
    let db = Db::new();
    let gateway = db.gateway();
    let set =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for name in ["awareness.db", "awareness.db-wal", "awareness.db-handle-1"] {
        set(&db.at(name), 0o640);
        assert_eq!(db.ails(&[]), ["modes"], "{name}");
        let run = db.run(&["doctor", "--json"]).stdout;
        let run = serde_json::from_slice::<Value>(&run).unwrap()["problems"][0]["run"].clone();
        assert!(run.as_str().unwrap().starts_with("chmod 600 /"), "{run}");
        let repaired = Command::new("sh")
            .args(["-c", run.as_str().unwrap()])
            .status()
            .unwrap();
        assert!(repaired.success());
        assert!(db.ails(&[]).is_empty(), "{name}");
    }
    set(db.folder.path(), 0o777);
    assert_eq!(db.ails(&[]), ["modes"]);
    // As /tmp is.
    set(db.folder.path(), 0o1777);
    assert!(db.ails(&[]).is_empty());
    gateway.close().unwrap();
}

/// A Python that runs `script`, says a line when it has, and waits.
fn python(db: &Db, script: &str) -> Option<Running> {
    let script = format!(
        "import ctypes, os, sqlite3, sys\n{script}\nprint('there', flush=True)\nsys.stdin.read()"
    );
    let spawned = Command::new("python3")
        .args(["-c", &script])
        .env("DATABASE", db.path())
        .env("LIBRARY", shared_library())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => Running(child),
        Err(error) => {
            leave_out("a foreign SQLite on the file", &format!("python3: {error}"));
            return None;
        }
    };
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "there\n");
    Some(child)
}

const OPEN_LIBRARY: &str = r#"
library = ctypes.CDLL(os.environ["LIBRARY"])
handle = ctypes.c_void_p()
config = '{"database": "%s", "readOnly": %s, "monitor": {"enabled": false}}'
assert library.aware_open((config % (os.environ["DATABASE"], READ_ONLY)).encode(), ctypes.byref(handle), None) == 0
"#;
const OPEN_SQLITE: &str = r#"
foreign = sqlite3.connect(os.environ["DATABASE"])
foreign.execute("SELECT count(*) FROM session_state_events").fetchall()
"#;

#[test]
fn doctor_sees_a_foreign_sqlite_and_knows_the_library() {
    let db = Db::new();
    let gateway = db.gateway();
    let Some(foreign) = python(&db, OPEN_SQLITE) else {
        return;
    };
    assert_eq!(db.ails(&[]), ["foreign"]);
    drop(foreign);
    assert!(db.ails(&[]).is_empty());
    for read_only in ["true", "false"] {
        let opened = OPEN_LIBRARY.replace("READ_ONLY", &format!("\"{read_only}\""));
        let library = python(&db, &opened).unwrap();
        assert!(db.ails(&[]).is_empty(), "readOnly {read_only}");
        drop(library);
        let both = python(&db, &(opened + OPEN_SQLITE)).unwrap();
        assert_eq!(db.ails(&[]), ["foreign"], "readOnly {read_only}");
        drop(both);
    }
    // Another one that looks is no fault.
    let _follow = Running(
        db.command(&["follow"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    assert!(db.ails(&[]).is_empty());
    gateway.close().unwrap();
}

#[test]
fn doctor_sees_a_long_write_ahead_log() {
    let db = Db::new();
    db.gateway().close().unwrap();
    let log = fs::File::create(db.at("awareness.db-wal")).unwrap();
    log.set_permissions(fs::Permissions::from_mode(0o600))
        .unwrap();
    log.set_len(64 << 20).unwrap();
    assert!(db.ails(&[]).is_empty());
    log.set_len((64 << 20) + 1).unwrap();
    assert_eq!(db.ails(&[]), ["wal"]);
}

/// Adopts a Claude session in a folder of its own.
fn adopt(db: &Db, gateway: &Awareness, name: &str) -> PathBuf {
    let source = db.at(name).join("session.jsonl");
    fs::create_dir_all(source.parent().unwrap()).unwrap();
    let row = json!({"type": "user", "uuid": name, "sessionId": name, "timestamp": "2026-01-01T00:00:00.000Z",
                     "origin": {"kind": "human"}, "message": {"role": "user", "content": "hello"}});
    fs::write(&source, format!("{row}\n")).unwrap();
    let key = format!("agent:main:{name}");
    let adopted = gateway
        .adopt(Adopt::new(key, Catalog::Claude, source.to_str().unwrap()))
        .unwrap();
    assert!(adopted.linked);
    source
}

#[test]
fn doctor_sees_limits_of_file_watches_that_do_not_do() {
    let db = Db::new();
    let gateway = db.gateway();
    let inotify = db.at("proc/sys/fs/inotify");
    fs::create_dir_all(&inotify).unwrap();
    let proc = db.at("proc");
    let ails = |watches: &str, instances: &str| {
        fs::write(inotify.join("max_user_watches"), watches).unwrap();
        fs::write(inotify.join("max_user_instances"), instances).unwrap();
        db.ails(&["--proc", proc.to_str().unwrap()])
    };
    assert!(ails("0\n", "0\n").is_empty(), "nothing is to be watched");
    adopt(&db, &gateway, "one");
    adopt(&db, &gateway, "two");
    assert!(ails("2\n", "128\n").is_empty());
    assert_eq!(ails("1\n", "128\n"), ["file-watches"]);
    assert_eq!(ails("2\n", "4\n"), ["file-watches"]);
    // What others of the user have counts too.
    for (name, text) in [
        ("fd/3", ""),
        (
            "fdinfo/3",
            "pos: 0\ninotify wd:1 ino:2\ninotify wd:2 ino:3\n",
        ),
    ] {
        let path = proc.join("77").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if text.is_empty() {
            std::os::unix::fs::symlink("anon_inode:inotify", path).unwrap();
        } else {
            fs::write(path, text).unwrap();
        }
    }
    assert_eq!(ails("2\n", "128\n"), ["file-watches"]);
    assert!(ails("3\n", "128\n").is_empty());
    gateway.close().unwrap();
}

#[test]
fn doctor_sees_links_that_lead_nowhere() {
    let db = Db::new();
    let gateway = db.gateway();
    let source = adopt(&db, &gateway, "one");
    let aside = db.at("aside");
    assert!(db.ails(&[]).is_empty());
    fs::rename(&source, &aside).unwrap();
    assert_eq!(db.ails(&[]), ["links"]);
    let scanned = gateway.scan(Scan::default()).unwrap();
    assert_eq!(scanned.outcomes[0].outcome, OutcomeKind::Missing);
    fs::rename(&aside, &source).unwrap();
    assert_eq!(
        db.ails(&[]),
        ["links"],
        "it was missing when the gateway looked"
    );
    gateway.scan(Scan::default()).unwrap();
    assert!(db.ails(&[]).is_empty());
    fs::rename(&source, &aside).unwrap();
    fs::create_dir(&source).unwrap();
    assert_eq!(db.ails(&[]), ["links"], "a folder is at its path");
    gateway.close().unwrap();
}

/// The file is there and may be read; what the gateway met in it only the gateway knows.
#[test]
fn doctor_and_links_tell_of_a_source_that_the_gateway_cannot_read() {
    let db = Db::new();
    let store = db.at("opencode.db");
    opencode_store::make(&store, "ses_1");
    for background in [false, true] {
        let mut config = db.config();
        let monitor = config.monitor.as_mut().unwrap();
        monitor.enabled = Some(background);
        (monitor.initial_delay_ms, monitor.interval_ms) = (Some(0), Some(50));
        let gateway = Awareness::open(config).unwrap();
        let look = || {
            if !background {
                gateway.scan(Scan::default()).unwrap();
            }
        };
        gateway
            .adopt(Adopt {
                thread_id: Some("ses_1".into()),
                ..Adopt::new(CHILD, Catalog::Opencode, store.to_str().unwrap())
            })
            .unwrap();
        look();
        let links = || db.json(&["links"])["links"][0].clone();
        assert_eq!(links().get("fault"), None);
        assert!(db.ails(&[]).is_empty());

        let sound = fs::read(&store).unwrap();
        fs::write(&store, vec![b'x'; 8192]).unwrap();
        look();
        let since = until("the fault", || links()["fault"]["since"].as_i64());
        assert_eq!(db.ails(&[]), ["links"]);
        assert!(db.text(&["links"]).contains("in error: "));
        assert_eq!(db.json(&["status"])["linksInError"], 1);
        // Looking again does not make it younger, nor write anything.
        let written = || fs::metadata(db.at("awareness.db-wal")).unwrap().len();
        let before = written();
        gateway.scan(Scan::default()).unwrap();
        assert_eq!(
            (links()["fault"]["since"].as_i64(), written()),
            (Some(since), before)
        );

        // Another gateway finds it noted, and that it is over.
        gateway.close().unwrap();
        assert_eq!(db.ails(&[]), ["links"]);
        fs::write(&store, sound).unwrap();
        let mut config = db.config();
        config.monitor = Some(MonitorConfig {
            enabled: Some(background),
            initial_delay_ms: Some(0),
            ..MonitorConfig::default()
        });
        let gateway = Awareness::open(config).unwrap();
        if !background {
            gateway.scan(Scan::default()).unwrap();
        }
        until("the end of the fault", || {
            links().get("fault").is_none().then_some(())
        });
        assert!(db.ails(&[]).is_empty());
        gateway.close().unwrap();
    }
}

#[test]
fn discover_finds_a_session_of_opencode_and_says_whether_it_is_adopted() {
    let db = Db::new();
    let home = db.at("opencode");
    fs::create_dir_all(&home).unwrap();
    opencode_store::make(&home.join("opencode.db"), "ses_1");
    let gateway = db.gateway();
    let root = format!("opencode={}", home.display());
    let args = ["discover", "--catalog", "opencode", "--root", &root];
    let found = db.json(&args);
    assert_eq!(found["sessions"].as_array().unwrap().len(), 1, "{found}");
    let session = &found["sessions"][0];
    assert_eq!(
        (
            &session["catalog"],
            &session["threadId"],
            &session["cwd"],
            &session["adopted"]
        ),
        (
            &json!("opencode"),
            &json!("ses_1"),
            &json!("/home/dev"),
            &json!(false)
        )
    );
    assert_eq!(session["updatedAt"], 1_700_000_000_000_i64);
    // What it names can be adopted as it is, and is then marked; a name without "=" is told.
    let source = session["source"].as_str().unwrap();
    gateway
        .adopt(Adopt {
            thread_id: Some("ses_1".into()),
            ..Adopt::new(CHILD, Catalog::Opencode, source)
        })
        .unwrap();
    assert_eq!(db.json(&args)["sessions"][0]["adopted"], true);
    let table = db.text(&args);
    assert!(
        table.contains("ses_1") && table.contains("2023-11-14"),
        "{table}"
    );
    // As the program itself finds it, by the environment.
    let data = db.at(".local/share");
    fs::create_dir_all(&data).unwrap();
    fs::rename(&home, data.join("opencode")).unwrap();
    let by_home = db
        .command(&["discover", "--json"])
        .env_remove("XDG_DATA_HOME")
        .output()
        .unwrap();
    let by_home: Value = serde_json::from_slice(&by_home.stdout).unwrap();
    assert_eq!(by_home["sessions"][0]["threadId"], "ses_1");
    gateway.close().unwrap();
}

#[test]
fn doctor_sees_marks_of_runs_and_notices_that_are_old() {
    let db = Db::new();
    let gateway = db.gateway();
    let mark = SetRunActive {
        session_key: CHILD.into(),
        agent_id: None,
        active: true,
    };
    gateway.set_run_active(mark.clone()).unwrap();
    assert!(db.ails(&[]).is_empty());
    let aged =
        |hours: f64| format!("CAST(unixepoch('subsec') * 1000 - {hours} * 3600000 AS INTEGER)");
    db.sql(&format!(
        "UPDATE session_aware_runs SET set_at = {}",
        aged(23.9)
    ));
    assert!(db.ails(&[]).is_empty());
    db.sql(&format!(
        "UPDATE session_aware_runs SET set_at = {}",
        aged(24.1)
    ));
    assert_eq!(db.ails(&[]), ["runs"]);
    assert!(db.text(&["status"]).contains("1d 0h"));
    // Setting it again does not make it younger; taking it back ends it.
    gateway.set_run_active(mark.clone()).unwrap();
    assert_eq!(db.ails(&[]), ["runs"]);
    gateway
        .set_run_active(SetRunActive {
            active: false,
            ..mark
        })
        .unwrap();
    assert!(db.ails(&[]).is_empty());

    db.sql(&format!(
        "UPDATE session_watch_cursors SET opened_at = {} WHERE notified > last_seen",
        aged(0.9)
    ));
    assert!(db.ails(&[]).is_empty());
    db.sql(&format!(
        "UPDATE session_watch_cursors SET opened_at = {} WHERE notified > last_seen",
        aged(1.1)
    ));
    assert_eq!(db.ails(&[]), ["notices"]);
    gateway.drain_notices(DrainNotices::new(MANAGER)).unwrap();
    assert!(db.ails(&[]).is_empty());
    gateway.close().unwrap();
}

/// Holds the database's write lock until dropped.
fn hold(db: &Db) -> rusqlite::Connection {
    let conn = rusqlite::Connection::open(db.path()).unwrap();
    conn.busy_timeout(PATIENCE).unwrap();
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    conn
}

#[test]
fn doctor_sees_what_failed_to_be_stored_and_what_was_shed() {
    let db = Db::new();
    db.gateway().close().unwrap();
    let open = |busy_timeout_ms| {
        Awareness::open(Config {
            busy_timeout_ms: Some(busy_timeout_ms),
            ..db.config()
        })
        .unwrap()
    };
    let total = |field: &str, wanted: u64| {
        until(field, || {
            (db.json(&["status"])[field]["total"] == wanted).then_some(())
        });
    };
    let gateway = open(1);
    let held = hold(&db);
    assert_eq!(gateway.record(human(CHILD)).unwrap_err().code, Code::Busy);
    drop(held);
    total("failedAppends", 1);
    assert_eq!(db.ails(&[]), ["failed"]);
    // It is told by whoever looks, also when the handle is gone, and for a day.
    gateway.close().unwrap();
    assert_eq!(db.ails(&[]), ["failed"]);
    db.sql("UPDATE session_aware_counters SET value = value - 90000000 WHERE name = 'failed_appends_at'");
    assert!(db.ails(&[]).is_empty());
    assert_eq!(db.json(&["status"])["failedAppends"]["total"], 1);

    let gateway = open(PATIENCE.as_millis() as u64);
    let held = hold(&db);
    let mut shed = 0;
    while shed == 0 {
        let queued = gateway
            .record_queued((0..1_000).map(|_| human(CHILD)).collect())
            .unwrap();
        shed += u64::from(!queued.queued) * 1_000;
    }
    drop(held);
    // Closing counts what nobody had the time to count.
    gateway.close().unwrap();
    total("shedEvents", shed);
    assert_eq!(db.ails(&[]), ["shed"]);
}

#[test]
fn the_timeline_is_written_whole_for_its_owner_alone() {
    let db = Db::new();
    db.gateway().close().unwrap();
    let out = db.at("page.html");
    fs::File::create(&out).unwrap().write_all(b"old").unwrap();
    let told = db.json(&["timeline", "--out", out.to_str().unwrap(), "--title", "<b>"]);
    assert_eq!((&told["events"], &told["pending"]), (&json!(4), &json!(1)));
    let page = fs::read_to_string(&out).unwrap();
    assert_eq!(told["bytes"], page.len());
    assert_eq!(
        fs::metadata(&out).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert!(page.contains("<title>&lt;b&gt;</title>") && !page.contains("<b>"));
    assert!(!page.chars().any(|c| "\u{202e}\u{200b}\u{feff}".contains(c)));
    let left: Vec<_> = fs::read_dir(db.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().ends_with(".part")),
        "{left:?}"
    );
}
