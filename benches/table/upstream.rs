//! The rows of upstream sessions.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use serde_json::{Value, json};

use crate::floor::{Floor, MANAGER, now_ms};
use crate::library::Handle;
use crate::measure::{self, Pair, Row, Table, Target, mib, time, timed};
use crate::{Effort, log};

/// A row that a person typed.
fn prompt(session: &str, n: usize) -> String {
    let row = json!({
        "parentUuid": null, "isSidechain": false, "userType": "external", "cwd": "/work/project",
        "sessionId": session, "version": "2.0.0", "gitBranch": "main", "type": "user",
        "message": {"role": "user", "content": format!("please look at the failing test number {n}, and mend it")},
        "uuid": format!("{n:08x}-0000-4000-8000-000000000000"), "timestamp": "2026-11-30T10:00:00.000Z",
    });
    format!("{row}\n")
}

/// What one turn writes: a prompt, and an agent that calls tools and is answered.
fn turn(session: &str, n: usize) -> String {
    let mut text = prompt(session, n);
    let code = "    let mut found = self.rows.iter().filter(|row| row.is_new());\n".repeat(60);
    for step in 0..8 {
        let uuid = format!("{n:08x}-{step:04x}-4000-9000-000000000000");
        let row = json!({
            "parentUuid": "p", "isSidechain": false, "userType": "external", "cwd": "/work/project",
            "sessionId": session, "version": "2.0.0", "gitBranch": "main", "type": "assistant",
            "message": {"id": uuid, "type": "message", "role": "assistant", "model": "m",
                "content": [{"type": "text", "text": "I read the file, then change the filter. ".repeat(12)},
                    {"type": "tool_use", "id": "t", "name": "Edit", "input": {"old": &code[..900], "new": &code[..1200]}}],
                "usage": {"input_tokens": 12345, "output_tokens": 678}},
            "uuid": uuid, "timestamp": "2026-11-30T10:00:01.000Z",
        });
        text += &format!("{row}\n");
        let row = json!({
            "parentUuid": "p", "isSidechain": false, "userType": "external", "cwd": "/work/project",
            "sessionId": session, "version": "2.0.0", "gitBranch": "main", "type": "user",
            "message": {"role": "user", "content": [{"tool_use_id": "t", "type": "tool_result", "content": &code}]},
            "uuid": format!("{n:08x}-{step:04x}-4000-a000-000000000000"), "timestamp": "2026-11-30T10:00:02.000Z",
            "toolUseResult": {"stdout": &code[..600], "stderr": "", "interrupted": false},
        });
        text += &format!("{row}\n");
    }
    text
}

/// A session file of at least `bytes`, made of turns.
fn session_file(path: &Path, bytes: u64) {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).unwrap());
    let turns: Vec<String> = (0..8).map(|n| turn("s", n)).collect();
    let mut written = 0;
    let mut n = 8;
    while written < bytes {
        // Most turns are the same but for their prompts, which is quicker to make.
        let typed = prompt("s", n);
        let rest = turns[n % 8].split_once('\n').unwrap().1;
        file.write_all(typed.as_bytes()).unwrap();
        file.write_all(rest.as_bytes()).unwrap();
        written += (typed.len() + rest.len()) as u64;
        n += 1;
    }
    file.flush().unwrap();
}

fn adopt(handle: &Handle, session: &str, source: &Path, baseline: &str) {
    let request =
        json!({"sessionKey": session, "catalog": "claude", "source": source, "baseline": baseline});
    assert_eq!(handle.ask("aware_adopt", request)["linked"], true);
}

/// Reads a file to its end by pieces, as somebody does who looks at no byte.
fn read_all(path: &Path, piece: &mut [u8]) -> u64 {
    let file = File::open(path).unwrap();
    let mut at = 0;
    loop {
        match file.read_at(piece, at).unwrap() {
            0 => return at,
            n => at += n as u64,
        }
    }
}

pub fn rows(table: &mut Table, folder: &Path, effort: Effort) {
    table.head("Upstream sessions");
    if table.wants("pass") {
        full_pass(table, folder, effort);
    }
    if table.wants("gigabyte") {
        one_new_row(table, folder, effort);
    }
    if table.wants("idle") {
        idle(table, effort);
    }
    if table.wants("wake") {
        wakes(table, folder, effort);
    }
    if table.wants("process") {
        wake_in_another_process(table, folder, effort);
    }
    if table.wants("opencode") {
        opencode(table, folder, effort);
    }
}

fn full_pass(table: &mut Table, folder: &Path, effort: Effort) {
    let path = folder.join("session.jsonl");
    session_file(&path, 100 << 20);
    let handle = Handle::open(&folder.join("pass.db"));
    let mut piece = vec![0; 256 << 10];
    let mut n = 0;
    let pair = Pair::measure(
        effort.rounds(7),
        1,
        || {
            n += 1;
            let session = format!("agent:main:pass:{n}");
            adopt(&handle, &session, &path, "start");
            let scan = handle.call("aware_scan", &json!({"sessionKey": session}));
            timed(|| scan.make())
        },
        || timed(|| read_all(&path, &mut piece)),
    );
    let bytes = fs::metadata(&path).unwrap().len() as f64;
    let rate = bytes / pair.library.p50();
    let share = 1.0 / pair.ratio();
    let row = Row::figure(
        "full pass over 100 MB of Claude rows in the page cache (floor: a read() of each byte)",
        format!("{rate:.2} GB/s"),
        format!("{:.2} GB/s", bytes / pair.floor.p50()),
        "1.5 GB/s or ≥ 0.18 ×",
        Some(rate >= 1.5 || share >= 0.18),
    );
    table.row(row.at_ratio(share));
    let grown = child("scan", &[path.to_str().unwrap()])["peakBytes"]
        .as_f64()
        .unwrap();
    table.row(Row::figure(
        "memory of that pass, at its peak",
        mib(grown),
        String::new(),
        "16 MB",
        Some(grown <= 16e6),
    ));
    fs::remove_file(&path).unwrap();
}

fn append(path: &Path, row: &str) {
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(row.as_bytes()).unwrap();
}

fn one_new_row(table: &mut Table, folder: &Path, effort: Effort) {
    let path = folder.join("long.jsonl");
    session_file(&path, 1 << 30);
    let handle = Handle::open(&folder.join("gigabyte.db"));
    let mut floor = Floor::open(&folder.join("gigabyte-floor.db"), "NORMAL");
    adopt(&handle, log::CHILD, &path, "now");
    handle.ask(
        "aware_watch",
        json!({"watcherSessionKey": MANAGER, "targetSessionKey": log::CHILD}),
    );
    floor.watch(MANAGER, log::CHILD);
    let scan = handle.call("aware_scan", &json!({}));
    let mut n = 1 << 30;
    let mut next = || {
        n += 1;
        prompt("s", n)
    };
    let added = std::cell::RefCell::new(&mut next);
    let pair = Pair::measure(
        effort.rounds(10),
        20,
        || {
            append(&path, &(added.borrow_mut())());
            timed(|| scan.make())
        },
        || {
            let before = fs::metadata(&path).unwrap().len();
            append(&path, &(added.borrow_mut())());
            let took = timed(|| {
                let file = File::open(&path).unwrap();
                let mut bytes = [0; 4_096];
                file.read_at(&mut bytes, 0).unwrap();
                file.read_at(&mut bytes, before - 4_096).unwrap();
                let found = file.metadata().unwrap().size();
                let mut new = vec![0; (found - before) as usize];
                file.read_exact_at(&mut new, before).unwrap();
                let row: Value = serde_json::from_slice(&new).unwrap();
                assert_eq!(row["type"], "user");
                floor.record(log::CHILD);
            });
            // The library takes this row in before it is measured again.
            scan.make();
            took
        },
    );
    let what =
        "pass over a file of 1 GB with one new row (floor: its blocks read, one event written)";
    table.row(Row::times(what, &pair, Target::Micros(300.0)));
    fs::remove_file(&path).unwrap();
}

/// Makes `count` session files in folders of ten.
fn session_files(folder: &Path, count: usize) -> Vec<PathBuf> {
    (0..count)
        .map(|n| {
            let project = folder.join("projects").join(format!("p{}", n / 10));
            if n % 10 == 0 {
                fs::create_dir_all(&project).unwrap();
            }
            let path = project.join(format!("{n:08x}.jsonl"));
            fs::write(&path, prompt("s", n)).unwrap();
            path
        })
        .collect()
}

fn idle(table: &mut Table, effort: Effort) {
    let seconds = effort.seconds(60);
    let told = child("idle", &["10000", &seconds.to_string()]);
    let share = |name: &str| told[name].as_f64().unwrap() * 100.0;
    let (ours, floor) = (share("cpuShare"), share("floorShare"));
    let row = Row::figure(
        format!(
            "10,000 links, nothing happening, {seconds} s (floor: a thread that looks at a file a second, and a stat() of each a minute)"
        ),
        format!("{ours:.3} % of a core"),
        format!("{floor:.3} %"),
        "0.05 % or 1.67 ×",
        Some(ours <= 0.05 || ours <= 1.67 * floor),
    );
    table.row(row.at_ratio(ours / floor));
    let (pass, stats) = (
        told["passNs"].as_f64().unwrap(),
        told["statNs"].as_f64().unwrap(),
    );
    let row = Row::figure(
        "an interval's pass over 10,000 links (floor: a stat() of each file)",
        time(pass),
        time(stats),
        "25 ms or 2.30 ×",
        Some(pass <= 25e6 || pass / stats <= 2.3),
    );
    table.row(row.at_ratio(pass / stats));
    let memory = told["memoryBytes"].as_f64().unwrap();
    table.row(Row::figure(
        "memory of the library with 10,000 links",
        mib(memory),
        String::new(),
        "20 MB",
        Some(memory <= 20e6),
    ));
}

/// Waits in a thread for a change of a folder, then reads what the file has more,
/// and tells by a pipe: what a wake costs by hand.
struct ByHand {
    told: File,
}

impl ByHand {
    fn new(path: &Path) -> ByHand {
        use std::os::fd::FromRawFd;
        let folder = std::ffi::CString::new(path.parent().unwrap().to_str().unwrap()).unwrap();
        let mut ends = [0; 2];
        // SAFETY: plain system calls on memory and descriptors of this function.
        let (events, read, write) = unsafe {
            let events = libc::inotify_init1(libc::IN_CLOEXEC);
            libc::inotify_add_watch(events, folder.as_ptr(), libc::IN_MODIFY);
            libc::pipe(ends.as_mut_ptr());
            (
                File::from_raw_fd(events),
                File::from_raw_fd(ends[0]),
                File::from_raw_fd(ends[1]),
            )
        };
        let path = path.to_owned();
        std::thread::spawn(move || {
            let mut known = fs::metadata(&path).unwrap().len();
            let mut buffer = [0; 4_096];
            let (mut events, mut write) = (events, write);
            while events.read(&mut buffer).is_ok_and(|n| n > 0) {
                let Ok(file) = File::open(&path) else { return };
                let size = file.metadata().unwrap().len();
                let mut new = vec![0; (size - known) as usize];
                file.read_exact_at(&mut new, known).unwrap();
                known = size;
                if write.write_all(b"x").is_err() {
                    return;
                }
            }
        });
        ByHand { told: read }
    }

    fn wait(&mut self) {
        self.told.read_exact(&mut [0]).unwrap();
    }
}

fn wakes(table: &mut Table, folder: &Path, effort: Effort) {
    let home = folder.join("claude");
    let files = session_files(&home, 1_000);
    let store = folder.join("opencode");
    fs::create_dir(&store).unwrap();
    let threads = opencode_store(&store.join("opencode.db"), 100, 20_000);
    // A row's id is its turn's: one that is there at the adoption is told no more.
    let mut n = 0;
    for busy in [false, true] {
        let handle = Handle::with(json!({
            "database": folder.join(format!("wakes-{busy}.db")),
            "monitor": {"initialDelayMs": 0, "roots": {"claude": home, "opencode": store}},
        }));
        for (n, path) in files.iter().enumerate() {
            let session = format!("agent:main:linked:{n}");
            adopt(&handle, &session, path, "now");
            handle.ask(
                "aware_watch",
                json!({"watcherSessionKey": MANAGER, "targetSessionKey": session}),
            );
        }
        // What was adopted is looked at once more.
        settle();
        let mut writer = None;
        if busy {
            for (n, thread) in threads.iter().enumerate() {
                handle.ask(
                    "aware_adopt",
                    json!({
                        "sessionKey": format!("agent:main:opencode:{n}"), "catalog": "opencode",
                        "source": store.join("opencode.db"), "threadId": thread,
                    }),
                );
            }
            writer = Some(Role::start(
                "opencode",
                &[store.join("opencode.db").to_str().unwrap()],
            ));
        }
        let floor_file = folder.join(format!("by-hand-{busy}")).join("a.jsonl");
        fs::create_dir(floor_file.parent().unwrap()).unwrap();
        fs::write(&floor_file, "").unwrap();
        let mut by_hand = ByHand::new(&floor_file);
        let wait = handle.call("aware_wait_wakes", &json!({"timeoutMs": 30_000}));
        let drain = handle.call(
            "aware_drain_notices",
            &json!({"watcherSessionKey": MANAGER}),
        );
        let pair = Pair::measure(
            effort.rounds(10),
            60,
            || {
                n += 1;
                let row = prompt("s", 5_000_000 + n);
                std::thread::sleep(Duration::from_millis(3));
                let path = &files[n * 7 % files.len()];
                let took = timed(|| {
                    append(path, &row);
                    assert_eq!(wait.answer()["wakes"].as_array().unwrap().len(), 1);
                });
                drain.make();
                took
            },
            || {
                std::thread::sleep(Duration::from_millis(3));
                timed(|| {
                    append(&floor_file, "x");
                    by_hand.wait();
                })
            },
        );
        drop(writer);
        let beside = if busy {
            ", beside a busy store of OpenCode"
        } else {
            ""
        };
        let what = format!(
            "a row appended among 1,000 links until the wake{beside} (floor: inotify, a read, a pipe)"
        );
        table.row(Row::times(what, &pair, Target::P99Micros(5_000.0)));
    }
}

fn wake_in_another_process(table: &mut Table, folder: &Path, effort: Effort) {
    let database = folder.join("process.db");
    let handle = Handle::open(&database);
    handle.ask(
        "aware_watch",
        json!({"watcherSessionKey": MANAGER, "targetSessionKey": log::CHILD}),
    );
    let record = handle.call("aware_record", &log::event(log::CHILD));
    let mut waiting = Role::start("wait", &[database.to_str().unwrap()]);
    let mut echo = Role::start("echo", &[]);
    waiting.line();
    echo.line();
    let pair = Pair::measure(
        effort.rounds(10),
        15,
        || {
            std::thread::sleep(Duration::from_millis(4));
            let took = timed(|| {
                record.make();
                waiting.line();
            });
            // It has drained the notice.
            waiting.line();
            took
        },
        || {
            std::thread::sleep(Duration::from_millis(4));
            timed(|| {
                echo.say("x");
                echo.line();
            })
        },
    );
    let what =
        "a record until the wake in another process has told (floor: two pipes there and back)";
    table.row(Row::times(what, &pair, Target::P99Micros(20_000.0)));
}

/// Writes a store as OpenCode does; its sessions.
fn opencode_store(path: &Path, sessions: usize, parts: usize) -> Vec<String> {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch(concat!(
        include_str!("../../src/upstream/opencode/fixture.sql"),
        "BEGIN;"
    ))
    .unwrap();
    let begin = now_ms() - 86_400_000;
    let threads: Vec<String> = (0..sessions).map(|n| format!("ses_{n:026}")).collect();
    for thread in &threads {
        conn.execute(
            "INSERT INTO session VALUES (?1, 'p', NULL, '/w', 't', '1', NULL, ?2, ?2, NULL)",
            params![thread, begin],
        )
        .unwrap();
    }
    // Ten parts a message, every tenth message a person's.
    for n in 0..parts / 10 {
        write_message(
            &conn,
            &threads[n % sessions],
            n,
            begin + n as i64,
            n % 10 == 0,
            10,
        );
    }
    conn.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
    threads
}

fn write_message(conn: &Connection, thread: &str, n: usize, at: i64, person: bool, parts: usize) {
    let message = format!("msg_{n:026}");
    let role = if person { "user" } else { "assistant" };
    conn.prepare_cached("INSERT INTO message VALUES (?1, ?2, ?3, ?3, ?4)")
        .unwrap()
        .execute(params![
            message,
            thread,
            at,
            json!({"role": role, "time": {"created": at}}).to_string()
        ])
        .unwrap();
    for part in 0..parts {
        conn.prepare_cached("INSERT INTO part VALUES (?1, ?2, ?3, ?4, ?4, ?5)")
            .unwrap()
            .execute(params![
                format!("prt_{n:020}{part:06}"),
                message,
                thread,
                at,
                json!({"type": "text", "text": format!("part {part} of message {n}, as long as most of them are")})
                    .to_string()
            ])
            .unwrap();
    }
    conn.prepare_cached("UPDATE session SET time_updated = ?2 WHERE id = ?1")
        .unwrap()
        .execute(params![thread, at])
        .unwrap();
}

fn opencode(table: &mut Table, folder: &Path, effort: Effort) {
    let home = folder.join("large-opencode");
    fs::create_dir(&home).unwrap();
    let path = home.join("opencode.db");
    let threads = opencode_store(&path, 100, 500_000);
    let handle = Handle::open(&folder.join("large.db"));
    for (n, thread) in threads.iter().enumerate() {
        let session = format!("agent:main:opencode:{n}");
        handle.ask(
            "aware_adopt",
            json!({"sessionKey": session, "catalog": "opencode", "source": path, "threadId": thread}),
        );
        handle.ask(
            "aware_watch",
            json!({"watcherSessionKey": MANAGER, "targetSessionKey": session}),
        );
    }
    let scan = handle.call("aware_scan", &json!({"catalog": "opencode"}));
    scan.make();
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("PRAGMA synchronous = OFF").unwrap();
    let reader = Connection::open(&path).unwrap();
    let n = std::cell::Cell::new(1_000_000_usize);
    let write = || {
        n.set(n.get() + 1);
        write_message(&conn, &threads[n.get() % 100], n.get(), now_ms(), true, 1);
    };
    let mut since: Vec<i64> = vec![now_ms(); threads.len()];
    let pair = Pair::measure(
        effort.rounds(10),
        5,
        || {
            write();
            timed(|| scan.make())
        },
        || {
            write();
            let took = timed(|| {
                let mut messages = reader
                    .prepare_cached(
                        "SELECT id, time_created, data FROM message WHERE session_id = ?1 AND time_created > ?2",
                    )
                    .unwrap();
                for (thread, since) in threads.iter().zip(&mut since) {
                    let mut rows = messages.query(params![thread, *since]).unwrap();
                    while let Some(row) = rows.next().unwrap() {
                        let id: String = row.get(0).unwrap();
                        *since = row.get(1).unwrap();
                        let mut parts = reader
                            .prepare_cached("SELECT data FROM part WHERE message_id = ?1")
                            .unwrap();
                        let mut parts = parts.query([id]).unwrap();
                        while let Some(part) = parts.next().unwrap() {
                            std::hint::black_box(part.get_ref(0).unwrap());
                        }
                    }
                }
            });
            scan.make();
            took
        },
    );
    let what = "OpenCode, 100 links in one store of 500,000 parts, one moved (floor: 100 look-ups by index)";
    table.row(Row::times(what, &pair, Target::Micros(5_000.0)));
    drop(handle);
    fs::remove_dir_all(&home).unwrap();
}

/// This program in another process, playing a role of [`play`].
pub struct Role {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Role {
    pub fn start(role: &str, words: &[&str]) -> Role {
        let program = std::env::current_exe().unwrap();
        let mut command = Command::new(program);
        command.arg("--role").arg(role).args(words);
        Role::of(command)
    }

    pub fn of(mut command: Command) -> Role {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Role {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(
            self.output.read_line(&mut line).unwrap() > 0,
            "a process ended early"
        );
        line
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn child(role: &str, words: &[&str]) -> Value {
    let line = Role::start(role, words).line();
    serde_json::from_str(&line).unwrap()
}

/// Plays a role in a process of its own.
pub fn play(role: &str, words: &[String]) {
    match role {
        "scan" => {
            let folder = tempfile::tempdir().unwrap();
            let handle = Handle::open(&folder.path().join("a.db"));
            adopt(&handle, log::CHILD, Path::new(&words[0]), "start");
            let before = memory("VmRSS:");
            fs::write("/proc/self/clear_refs", "5").unwrap();
            handle.ask("aware_scan", json!({}));
            println!("{}", json!({"peakBytes": memory("VmHWM:") - before}));
        }
        "idle" => idle_role(words[0].parse().unwrap(), words[1].parse().unwrap()),
        "wait" => {
            let handle = Handle::open(Path::new(&words[0]));
            let wait = handle.call("aware_wait_wakes", &json!({"timeoutMs": 60_000}));
            let drain = handle.call(
                "aware_drain_notices",
                &json!({"watcherSessionKey": MANAGER}),
            );
            println!("ready");
            loop {
                if wait.answer()["wakes"].as_array().unwrap().is_empty() {
                    continue;
                }
                println!("woken");
                drain.make();
                println!("drained");
            }
        }
        "echo" => {
            println!("ready");
            for line in std::io::stdin().lines() {
                println!("{}", line.unwrap());
            }
        }
        "opencode" => {
            let conn = Connection::open(&words[0]).unwrap();
            conn.execute_batch("PRAGMA synchronous = OFF").unwrap();
            for n in 2_000_000.. {
                write_message(
                    &conn,
                    &format!("ses_{:026}", n % 100),
                    n,
                    now_ms(),
                    n % 5 == 0,
                    3,
                );
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        _ => panic!("no role {role}"),
    }
}

fn idle_role(links: usize, seconds: u64) {
    let folder = tempfile::tempdir().unwrap();
    let files = session_files(folder.path(), links);
    let memory_before = memory("VmRSS:");
    let database = folder.path().join("a.db");
    let monitor = |interval: u64| {
        json!({
            "database": database,
            "monitor": {"initialDelayMs": 0, "intervalMs": interval, "roots": {"claude": folder.path()}},
        })
    };
    let handle = Handle::with(monitor(60_000));
    for (n, path) in files.iter().enumerate() {
        adopt(&handle, &format!("agent:main:linked:{n}"), path, "now");
    }
    drop(handle);
    let handle = Handle::with(monitor(60_000));
    // The first round, and the hints of the adoptions.
    settle();
    let memory_after = memory("VmRSS:");
    let others = tempfile::tempdir().unwrap();
    let others = session_files(others.path(), links);
    let begin = processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
    let floor = spent_by_looking(&database, &others, seconds);
    let idle = processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - begin - floor;
    drop(handle);
    // Rounds close together: what they cost above nothing happening.
    let handle = Handle::with(monitor(100));
    settle();
    let begin = (processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID), Instant::now());
    std::thread::sleep(Duration::from_secs(4));
    let spent = processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - begin.0;
    let rounds = begin.1.elapsed().as_nanos() as f64 / (100e6 + spent as f64 / 40.0);
    drop(handle);
    // As far from one another as those.
    let looking = measure::median(
        (0..9)
            .map(|_| {
                std::thread::sleep(Duration::from_millis(100));
                let begin = processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
                files.iter().for_each(|path| {
                    std::hint::black_box(fs::metadata(path).unwrap());
                });
                (processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - begin) as f64
            })
            .collect(),
    );
    println!(
        "{}",
        json!({
            "cpuShare": idle as f64 / (seconds as f64 * 1e9),
            "floorShare": floor as f64 / (seconds as f64 * 1e9),
            "passNs": spent as f64 / rounds,
            "statNs": looking,
            "memoryBytes": memory_after.saturating_sub(memory_before),
        })
    );
}

/// Waits until the process has nothing to do.
fn settle() {
    let mut calm = 0;
    for _ in 0..200 {
        let before = processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
        std::thread::sleep(Duration::from_millis(100));
        calm = if processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - before < 1_000_000 {
            calm + 1
        } else {
            0
        };
        if calm == 5 {
            return;
        }
    }
}

/// What this thread spends in nanoseconds when it looks at a file each second and
/// at all of them once a minute.
fn spent_by_looking(file: &Path, all: &[PathBuf], seconds: u64) -> u64 {
    let begin = processor_ns(libc::CLOCK_THREAD_CPUTIME_ID);
    for second in 1..=seconds {
        std::thread::sleep(Duration::from_secs(1));
        std::hint::black_box(fs::metadata(file).unwrap());
        if second % 60 == 30 && seconds >= 60 {
            all.iter().for_each(|path| {
                std::hint::black_box(fs::metadata(path).unwrap());
            });
        }
    }
    processor_ns(libc::CLOCK_THREAD_CPUTIME_ID) - begin
}

/// What the process or this thread has spent of a processor, in nanoseconds.
fn processor_ns(clock: libc::clockid_t) -> u64 {
    // SAFETY: the struct is plain data, and the call fills it.
    unsafe {
        let mut spent: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(clock, &mut spent);
        spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64
    }
}

/// A figure of this process's memory, in bytes.
pub fn memory(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1_024
}

/// How the cost of a link grows with the links there are.
pub fn growth(table: &mut Table, folder: &Path) {
    for links in [100, 1_000, 10_000] {
        let home = folder.join(format!("growth-{links}"));
        let files = session_files(&home, links);
        let handle = Handle::open(&folder.join(format!("growth-links-{links}.db")));
        for (n, path) in files.iter().enumerate() {
            adopt(&handle, &format!("agent:main:linked:{n}"), path, "now");
        }
        let one = handle.call("aware_scan", &json!({"sessionKey": "agent:main:linked:7"}));
        let all = handle.call("aware_scan", &json!({}));
        let pair = Pair::measure(
            5,
            5,
            || timed(|| one.make()),
            || timed(|| fs::metadata(&files[7]).unwrap()),
        );
        let what = format!("`scan` of one of {links} links (floor: a stat())");
        table.row(Row::times(what, &pair, Target::None));
        let pair = Pair::measure(
            3,
            1,
            || timed(|| all.make()),
            || {
                timed(|| {
                    files.iter().for_each(|path| {
                        std::hint::black_box(fs::metadata(path).unwrap());
                    })
                })
            },
        );
        let what = format!("`scan` of all {links} links, none moved (floor: a stat() of each)");
        table.row(Row::times(what, &pair, Target::None));
    }
}
