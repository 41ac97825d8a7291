//! A damaged file: never a crash, a hang, a reply that is none, or a value
//! outside its type; and nothing more is written to it once that was seen.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use session_awareness::*;

use crate::own_child::{Rng, Test, heed, say};
use crate::verbs::{Handle, requests};
use crate::{CHILD, MANAGER, Player, Role};

pub const ROLES: &[Role] = &[("fill", fill), ("sweep", sweep), ("meet", meet)];

pub const TESTS: &[Test] = &[
    ("any_corruption_is_met_without_harm", any_corruption),
    (
        "each_value_outside_its_type_is_storage_and_the_end_of_writing",
        each_wrong_value,
    ),
    (
        "a_corrupt_file_is_not_opened_and_not_touched",
        not_opened_not_touched,
    ),
    (
        "damage_ends_with_a_sound_file_in_its_place",
        a_sound_file_in_its_place,
    ),
];

/// Seeds of the short form; `make corruption` tries more.
const SEEDS: u64 = 60;

// ---- the database that is damaged -------------------------------------------

/// Fills a database with some of everything, the newest of it in the log alone, and ends without closing.
fn fill(database: &Path) {
    let config = json!({"database": database, "monitor": {"enabled": false}});
    for life in 0..2 {
        let handle = Handle::open(&config).unwrap();
        let call = |name: &str, request: Value| handle.call(name, &request).unwrap();
        for n in 0..20 {
            let watcher = format!("agent:main:w-{n}");
            call(
                "watch",
                json!({"watcherSessionKey": watcher, "targetSessionKey": CHILD}),
            );
            call(
                "watch",
                json!({"watcherSessionKey": MANAGER, "targetSessionKey": format!("agent:main:s-{n}"),
                "provenance": if n % 3 == 0 { "ambient-group" } else { "explicit" }}),
            );
        }
        call(
            "watch",
            json!({"watcherSessionKey": MANAGER, "targetSessionKey": CHILD}),
        );
        for n in 0..150 {
            let session = format!("agent:main:s-{}", n % 30);
            call(
                "record",
                json!({"sessionKey": session, "kind": "human_direct_message", "actorType": "human",
                "actorId": "u-1", "runId": format!("r-{n}"), "sessionId": "t-1", "payload": {"channel": "web", "turns": n + 1}}),
            );
            call(
                "record",
                json!({"sessionKey": CHILD, "kind": "run_completed", "actorType": "system",
                "dedupeKey": format!("run-terminal:{n}")}),
            );
            call(
                "record",
                json!({"sessionKey": "global", "kind": "goal_changed", "actorType": "agent"}),
            );
        }
        for n in 0..5 {
            let source = database.with_file_name(format!("source-{n}.jsonl"));
            let turns: String = (0..10)
                .map(|turn| {
                    let row = json!({"type": "user", "uuid": format!("u-{n}-{turn}"), "origin": {"kind": "human"},
                        "message": {"role": "user", "content": "x"}});
                    format!("{row}\n")
                })
                .collect();
            fs::write(&source, turns).unwrap();
            let key = format!("agent:main:up-{n}");
            call(
                "adopt",
                json!({"sessionKey": key, "catalog": "claude", "source": source, "baseline": "start"}),
            );
            call("own_message", json!({"sessionKey": key, "text": "hello"}));
            call(
                "set_run_active",
                json!({"sessionKey": key, "active": n == 4}),
            );
        }
        call(
            "adopt",
            json!({"sessionKey": "agent:main:far", "catalog": "pi", "hostId": "node", "threadId": "t"}),
        );
        call("feed", fed("1"));
        call(
            "own_message",
            json!({"sessionKey": "agent:main:far", "text": "hello"}),
        );
        call("scan", json!({}));
        call(
            "record",
            json!({"sessionKey": CHILD, "kind": "human_direct_message", "actorType": "human"}),
        );
        if life == 0 {
            handle.close();
        }
    }
    // SAFETY: ends the process; no destructor of it is wanted.
    unsafe { libc::_exit(0) };
}

fn fed(id: &str) -> Value {
    let message = json!({"role": "user", "content": "x"});
    json!({"sessionKey": "agent:main:far", "rows": [
        {"type": "message", "id": id, "parentId": null, "timestamp": "2026-01-01T00:00:00Z", "message": message},
    ]})
}

/// A folder with such a database, copied for each use.
struct Template {
    folder: tempfile::TempDir,
}

impl Template {
    fn new() -> Template {
        let folder = tempfile::tempdir().unwrap();
        Player::start("fill", &folder.path().join("a.db")).end();
        Template { folder }
    }

    fn source(&self) -> PathBuf {
        self.folder.path().join("source-0.jsonl")
    }

    /// A copy of it: the folder, and the database in it.
    fn copy(&self) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        for file in ["a.db", "a.db-wal"] {
            fs::copy(self.folder.path().join(file), folder.path().join(file)).unwrap();
        }
        let database = folder.path().join("a.db");
        (folder, database)
    }
}

fn wal(database: &Path) -> PathBuf {
    database.with_file_name("a.db-wal")
}

/// What the files hold: the library's index of the log is not part of it.
fn contents(database: &Path) -> (Vec<u8>, Vec<u8>) {
    (
        fs::read(database).unwrap(),
        fs::read(wal(database)).unwrap_or_default(),
    )
}

// ---- random corruption -------------------------------------------------------

/// What is done with a seed.
struct Dice(Rng);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0.below(most as u64) as usize
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.0.next() as u8).collect()
    }

    /// 1 to 4,096, small ones as often as large ones.
    fn size(&mut self) -> usize {
        let bits = self.below(13);
        1 + self.below(1 << bits)
    }
}

/// Damages the files as the seed says; how, in words.
fn damage(database: &Path, seed: u64, live: bool) -> String {
    let mut dice = Dice(Rng(seed));
    let kinds = 11;
    let kind = (seed / 2) % kinds;
    let wal = wal(database);
    let shm = database.with_file_name("a.db-shm");
    let over = |path: &Path, at: usize, bytes: &[u8]| {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(bytes, at as u64).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        format!("{} bytes of {name} at {at}", bytes.len())
    };
    let length = |path: &Path| fs::metadata(path).map_or(0, |found| found.len() as usize);
    let (size, log) = (length(database), length(&wal));
    match kind {
        0 => {
            let (at, count) = (dice.below(size), dice.size());
            over(database, at, &dice.bytes(count.min(size - at)))
        }
        1 => {
            let (at, count) = (dice.below(100), 1 + dice.below(8));
            over(database, at, &dice.bytes(count))
        }
        // The heads of b-tree pages.
        2 => {
            let mut said = String::new();
            for _ in 0..4 {
                let page = dice.below(size / 4096);
                let at = page * 4096 + if page == 0 { 100 } else { 0 } + dice.below(12);
                let count = 1 + dice.below(4);
                said = over(database, at, &dice.bytes(count));
            }
            said
        }
        // Their cells, which lie at the end of a page.
        3 => {
            let mut said = String::new();
            for _ in 0..8 {
                let at = dice.below(size / 4096) * 4096 + 2048 + dice.below(2040);
                let count = 1 + dice.below(6);
                said = over(database, at, &dice.bytes(count));
            }
            said
        }
        // What the rows say.
        4 | 5 => {
            let words: [&[u8]; 8] = [
                b"human_direct_message",
                b"agent:main:",
                b"explicit",
                b"ambient-group",
                b"channel",
                b"system",
                b"claude",
                b"global",
            ];
            let path = if kind == 4 { database } else { &wal };
            let held = fs::read(path).unwrap();
            let word = words[dice.below(words.len())];
            let found: Vec<usize> = memchr::memmem::find_iter(&held, word).collect();
            let mut said = "nothing".to_owned();
            for _ in 0..found.len().min(40) {
                let at = found[dice.below(found.len())] + dice.below(word.len());
                let byte = [0xff, 0, b'\n', b'x', b':'][dice.below(5)];
                said = over(path, at, &[byte]);
            }
            said
        }
        6 => {
            let (at, count) = (dice.below(log), dice.size());
            over(&wal, at, &dice.bytes(count.min(log - at)))
        }
        // The heads of the log and of its frames.
        7 => {
            let at = match dice.below(3) {
                0 => dice.below(32),
                _ => 32 + dice.below((log / 4120).max(1)) * 4120 + dice.below(24),
            };
            over(&wal, at, &dice.bytes(4))
        }
        8 if live => {
            let (at, count) = (dice.below(length(&shm)), dice.size());
            over(&shm, at, &dice.bytes(count))
        }
        8 | 9 => {
            let to = dice.below(size) / if dice.below(2) == 0 { 4096 } else { 1 };
            let file = OpenOptions::new().write(true).open(database).unwrap();
            file.set_len(to as u64).unwrap();
            format!("cut to {to}")
        }
        _ => {
            let to = dice.below(log);
            let file = OpenOptions::new().write(true).open(&wal).unwrap();
            file.set_len(to as u64).unwrap();
            format!("log cut to {to}")
        }
    }
}

fn any_corruption() {
    let template = Template::new();
    let number = |name: &str, default| {
        std::env::var(name).map_or(default, |text| text.parse::<u64>().unwrap())
    };
    let first = number("AWARE_CORRUPTION_FIRST", 0);
    let seeds = number("AWARE_CORRUPTION_SEEDS", SEEDS);
    let mut met: BTreeMap<String, u64> = BTreeMap::new();
    let mut player: Option<Player> = None;
    for seed in first..first + seeds {
        let (_folder, database) = template.copy();
        let live = seed % 2 == 1;
        let mut said = String::new();
        if !live {
            said = damage(&database, seed, false);
        }
        let own = player.get_or_insert_with(|| Player::start("sweep", &template.source()));
        own.tell(database.to_str().unwrap());
        let (mut before, mut seen) = (None, String::new());
        loop {
            let Some(line) = own.hear() else {
                panic!(
                    "seed {seed} ({said}): the child ended: {:?}",
                    own.child.wait()
                );
            };
            match line.as_str() {
                "open" if live => said = damage(&database, seed, true),
                "open" => {}
                "damaged" => before = Some(contents(&database)),
                "closed" => break,
                other => seen = other.to_owned(),
            }
            own.tell("");
        }
        if let Some(before) = before {
            let same = before == contents(&database);
            assert!(
                same,
                "seed {seed} ({said}): written to after damage was seen"
            );
        }
        if std::env::var_os("AWARE_CORRUPTION_TELL").is_some() {
            println!("seed {seed}: {said}: {seen}");
        }
        *met.entry(seen).or_default() += 1;
        // A child that has met much is as good as a fresh one, but not for ever.
        if seed % 25 == 24 {
            player.take().unwrap().end();
        }
    }
    if let Some(player) = player {
        player.end();
    }
    println!("{seeds} corruptions: {met:?}");
    let count = |what: &str| met.get(what).copied().unwrap_or(0);
    let noticed = count("damage at open") + count("damage");
    assert!(
        noticed * 3 >= seeds,
        "the corruptions hardly hit anything: {met:?}"
    );
}

/// Calls every verb on each database it is told of, and says what it met.
fn sweep(source: &Path) {
    loop {
        let database = PathBuf::from(heed());
        if database.as_os_str().is_empty() {
            return;
        }
        let met = sweep_one(&database, source);
        say(met);
        heed();
        say("closed");
    }
}

fn sweep_one(database: &Path, source: &Path) -> &'static str {
    let folder = database.parent().unwrap();
    let config = json!({
        "database": database, "busyTimeoutMs": 1000, "retention": {"maxEvents": 400},
        "monitor": {"initialDelayMs": 0, "intervalMs": 20, "roots": {"claude": folder, "codex": folder, "opencode": folder, "pi": folder}},
    });
    let handle = match Handle::open(&config) {
        Ok(handle) => handle,
        Err(error) => {
            say("open");
            heed();
            let told = error["message"].as_str().unwrap().contains("damaged");
            return if told {
                "damage at open"
            } else {
                "refused at open"
            };
        }
    };
    say("open");
    heed();
    let is_damaged = || handle.call("stats", &json!({})).unwrap()["damaged"] == json!(true);
    let mut damaged = false;
    let mut failed = false;
    for round in 0..3 {
        for (name, request) in requests(folder, source, round) {
            failed |= handle.call(name, &request).is_err();
            if !damaged && is_damaged() {
                damaged = true;
                // What was under way is over when this is refused.
                let event =
                    json!({"sessionKey": CHILD, "kind": "compacted", "actorType": "system"});
                handle.call("record", &event).unwrap_err();
                say("damaged");
                heed();
            }
        }
    }
    handle.close();
    match (damaged, failed) {
        (true, _) => "damage",
        (false, true) => "failures",
        (false, false) => "nothing",
    }
}

// ---- values that SQL can write -------------------------------------------------

/// What another program does to the database, and the verb that meets it.
fn wrong_values() -> Vec<(&'static str, String, &'static str, Value)> {
    let changes = (
        "changes_since",
        json!({"sessionKey": CHILD, "changesSince": 0}),
    );
    let events = ("events", json!({"limit": 1000}));
    let sessions = ("sessions", json!({"limit": 1000}));
    let watches = ("watches", json!({}));
    let links = ("links", json!({}));
    let record = (
        "record",
        json!({"sessionKey": CHILD, "kind": "human_direct_message", "actorType": "human"}),
    );
    let scan = ("scan", json!({}));
    let (feed, more) = (("feed", fed("1")), ("feed", fed("2")));
    let mut all = Vec::new();
    let mut add = |table: &'static str, set: &str, verb: &(&'static str, Value)| {
        all.push((
            table,
            format!("UPDATE {table} SET {set}"),
            verb.0,
            verb.1.clone(),
        ));
    };
    let log = "session_state_events";
    for set in [
        "kind = 'unknown'",
        "kind = 7",
        "kind = NULL",
        "actor_type = 'robot'",
        "actor_type = x'00ff'",
        "actor_id = CAST(x'61ff62' AS TEXT)",
        "actor_id = hex(zeroblob(300))",
        "run_id = x'00'",
        "occurred_at = 9007199254740992",
        "occurred_at = 'soon'",
        "occurred_at = -9223372036854775808",
        "summary = CAST(x'ff' AS TEXT)",
        "summary = 'a' || char(10) || 'b'",
        "summary = hex(zeroblob(1000))",
        "summary = NULL",
        "public_json = '{'",
        "public_json = '[]'",
        "public_json = '7'",
        "public_json = '{\"turns\":0}'",
        "public_json = '{\"turns\":9007199254740992}'",
        "public_json = '{\"text\":\"x\"}'",
        "public_json = '{\"outcome\":null}'",
        "public_json = '{\"channel\":\"a\\nb\"}'",
        "public_json = '{\"channel\":\"\"}'",
        "public_json = x'7b7d'",
    ] {
        add(
            log,
            &format!("{set} WHERE session_key = '{CHILD}'"),
            &changes,
        );
    }
    // One is within SQLite's limit of this library, the other not.
    for size in [4_000_000, 9_000_000] {
        add(
            log,
            &format!("summary = hex(zeroblob({size})) WHERE sequence = 2"),
            &changes,
        );
    }
    for set in [
        "session_key = ''",
        "session_key = 'agent:'",
        "session_key = 'a' || char(0) || 'b'",
        "session_key = x'61'",
        "session_key = hex(zeroblob(300))",
        "agent_id = ''",
        "agent_id = 'other'",
        "agent_id = 'a b'",
        "session_id = hex(zeroblob(300))",
        "session_id = x'04'",
    ] {
        add(log, &format!("{set} WHERE sequence % 7 = 1"), &events);
    }
    add(log, "sequence = -sequence", &("maintain", json!({})));
    for set in ["recorded_at = 'then'", "recorded_at = 9223372036854775807"] {
        add(log, set, &("maintain", json!({})));
    }
    add(
        log,
        "sequence = 9007199254740993 WHERE sequence = (SELECT max(sequence) FROM session_state_events)",
        &record,
    );
    add(
        log,
        "sequence = 9223372036854775807 WHERE sequence = (SELECT max(sequence) FROM session_state_events)",
        &record,
    );
    let heads = "session_state_heads";
    for set in [
        "last_sequence = -1",
        "last_sequence = 9007199254740992",
        "last_sequence = 'x'",
        "last_sequence = 2.5",
        "pruned_sequence = last_sequence + 1",
        "pruned_sequence = -1",
        "pruned_sequence = x'01'",
    ] {
        add(heads, set, &sessions);
        add(heads, set, &changes);
        add(
            heads,
            set,
            &(
                "state_versions",
                json!({"sessions": [{"sessionKey": CHILD}]}),
            ),
        );
    }
    add(heads, "last_sequence = 9007199254740991", &record);
    add(
        heads,
        "session_key = 'agent:main:' || char(10) || session_key",
        &sessions,
    );
    add(heads, "agent_id = '-'", &sessions);
    let cursors = "session_watch_cursors";
    for set in [
        "last_seen = notified + 1",
        "notified = material + 1",
        "last_seen = material + 1, notified = material + 2",
        "last_seen = -1",
        "material = 9007199254740992",
        "notified = 'x', material = 'y'",
        "provenance = 'other'",
        "provenance = NULL",
        "notify_kinds = -1",
        "notify_kinds = 65536",
        "notify_kinds = 'all'",
        "opened_at = 'x'",
        "wake = -1",
        "wake = x'05'",
        "watcher_session_key = 'bare' || id",
        "watcher_session_key = CAST(x'ff' AS TEXT) || id",
        "target_session_key = 'agent:x' || id",
        "target_agent_id = 'b' || id",
        "target_session_key = ''||id||char(7)",
    ] {
        add(cursors, set, &watches);
    }
    for set in [
        "last_seen = notified - 1, material = notified - 1",
        "provenance = 'x'",
        "wake = 'w'",
    ] {
        let set = format!("{set} WHERE notified > last_seen");
        add(
            cursors,
            &set,
            &(
                "drain_notices",
                json!({"watcherSessionKey": MANAGER, "ack": false}),
            ),
        );
        add(
            cursors,
            &set,
            &("drain_notices", json!({"watcherSessionKey": MANAGER})),
        );
        add(
            cursors,
            &set,
            &(
                "ack_notices",
                json!({"watcherSessionKey": MANAGER, "notices": [{"targetSessionKey": CHILD, "notified": 5}]}),
            ),
        );
    }
    let far = format!(
        "notified = 9007199254740991, material = 9007199254740991 WHERE target_session_key = '{CHILD}'"
    );
    add(cursors, &far, &record);
    let ties = "session_upstream_links";
    for set in [
        "catalog = 'vim'",
        "catalog = 3",
        "thread_id = x'61'",
        "thread_id = CAST(x'fe' AS TEXT)",
        "source = ''",
        "source = 'a' || char(0)",
        "host_id = ''",
        "adopted_at = 'x'",
        "adopted_at = 9007199254740992",
        "adopted_event = -1",
        "baseline_now = 2",
        "baseline_now = 'y'",
        "baseline_end = -1",
        "position = -5",
        "position = 1.5",
        "device = 1, inode = 'x'",
        "device = 1, inode = 1, size = -1",
        "device = 1, inode = 1, size = 1, modified_ns = 'x'",
        "head = x'00', tail = x'00'",
        "head = 'text', tail = x'00'",
        "misses = -1",
        "misses = 4294967296",
        "missed_at = 'x'",
        "revision = 'x'",
        "followed = 2",
        "adopted_source = x'00'",
        "session_key = char(1) || session_key",
        "agent_id = ''",
    ] {
        add(ties, set, &links);
        add(ties, set, &scan);
    }
    for set in ["state = '{'", "state = x'7b7d'", "state = 'nothing'"] {
        add(ties, set, &scan);
    }
    for set in [
        "source = zeroblob(16)||zeroblob(1)",
        "source = 'x'",
        "copy = 2",
        "link = 'x'",
    ] {
        let all_known = format!(
            "{set} WHERE link = (SELECT id FROM {ties} WHERE session_key = 'agent:main:far')"
        );
        add("session_aware_turns", &all_known, &feed);
    }
    add("session_aware_own_messages", "print = x'00'", &more);
    add("session_aware_own_messages", "print = 'x'", &more);
    add("session_aware_runs", "handle = 'x'", &scan);
    add(
        "session_aware_secret",
        "value = x'00'",
        &("own_message", json!({"sessionKey": CHILD, "text": "x"})),
    );
    add("session_aware_secret", "value = 'text'", &feed);
    let delete = |all: &mut Vec<_>, table: &'static str, verb: (&'static str, Value)| {
        all.push((table, format!("DELETE FROM {table}"), verb.0, verb.1));
    };
    delete(
        &mut all,
        "session_aware_secret",
        ("own_message", json!({"sessionKey": CHILD, "text": "x"})),
    );
    let spawned = (
        "record",
        json!({"sessionKey": CHILD, "kind": "goal_changed", "actorType": "human", "watcherSessionKeys": ["agent:main:fresh"]}),
    );
    for sql in [
        "UPDATE session_aware_counters SET value = -1",
        "UPDATE session_aware_counters SET value = 9007199254740991",
        "UPDATE session_aware_counters SET value = 9223372036854775807",
        "UPDATE session_aware_counters SET value = 'x'",
        "DELETE FROM session_aware_counters",
        "DROP TABLE session_aware_counters",
        "UPDATE sqlite_sequence SET seq = 9223372036854775807",
        "UPDATE sqlite_sequence SET seq = 9007199254740991",
        "UPDATE sqlite_sequence SET seq = 0; DELETE FROM session_state_events",
        "DROP TABLE session_watch_cursors",
        "ALTER TABLE session_state_events RENAME COLUMN summary TO title",
    ] {
        let counters = "session_aware_counters";
        let table = if sql.contains(counters) && !sql.contains("DROP") {
            counters
        } else {
            ""
        };
        all.push((table, sql.to_owned(), spawned.0, spawned.1.clone()));
    }
    all
}

/// Runs SQL as another program would that knows no rules: types and checks are off.
fn without_rules(database: &Path, table: &str, sql: &str) {
    let conn = rusqlite::Connection::open(database).unwrap();
    let as_it_was: Vec<(String, String)> = conn
        .prepare(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name LIKE 'session_%'",
        )
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<rusqlite::Result<_>>()
        .unwrap();
    drop(conn);
    let edit = |change: &dyn Fn(&rusqlite::Connection)| {
        let conn = rusqlite::Connection::open(database).unwrap();
        conn.execute_batch("PRAGMA writable_schema = ON; PRAGMA ignore_check_constraints = ON")
            .unwrap();
        change(&conn);
    };
    if !table.is_empty() {
        edit(&|conn| {
            conn.execute(
                "UPDATE sqlite_schema SET sql = replace(replace(replace(sql, ' NOT NULL', ''), 'STRICT, ', ''), 'STRICT', '')
                 WHERE type = 'table' AND name = ?1",
                [table],
            )
            .unwrap();
        });
    }
    edit(&|conn| {
        conn.execute_batch(sql)
            .unwrap_or_else(|problem| panic!("{sql}: {problem}"))
    });
    if !table.is_empty() {
        edit(&|conn| {
            for (name, was) in as_it_was.iter().filter(|(name, _)| name == table) {
                conn.execute(
                    "UPDATE sqlite_schema SET sql = ?1 WHERE name = ?2",
                    [was, name],
                )
                .unwrap();
            }
        });
    }
}

fn each_wrong_value() {
    let template = Template::new();
    let mut player = Player::start("meet", &template.source());
    let cases = wrong_values();
    println!("{} wrong values", cases.len());
    for (table, sql, verb, request) in cases {
        let (_folder, database) = template.copy();
        player.tell(&json!({"database": database, "verb": verb, "request": request}).to_string());
        assert_eq!(player.hear().as_deref(), Some("open"), "{sql}");
        without_rules(&database, table, &sql);
        player.tell("");
        let met = player.hear().unwrap_or_default();
        assert_eq!(met, "storage", "{sql}: {verb}");
        let before = contents(&database);
        player.tell("");
        assert_eq!(player.hear().as_deref(), Some("closed"), "{sql}: {verb}");
        assert!(
            before == contents(&database),
            "{sql}: written to after damage was seen"
        );
    }
    player.end();
}

/// Opens a database, and says what a verb answers when the file was changed meanwhile.
fn meet(source: &Path) {
    loop {
        let Ok(case) = serde_json::from_str::<Value>(&heed()) else {
            return;
        };
        let database = PathBuf::from(case["database"].as_str().unwrap());
        let folder = database.parent().unwrap();
        let config = json!({"database": database, "retention": {"maxEvents": 100000}, "monitor": {"enabled": false,
            "roots": {"claude": folder, "codex": folder, "opencode": folder, "pi": folder}}});
        let handle = Handle::open(&config).unwrap();
        handle
            .call(
                "set_run_active",
                &json!({"sessionKey": "agent:main:up-3", "active": true}),
            )
            .unwrap();
        say("open");
        heed();
        let before = handle.call("stats", &json!({})).unwrap();
        let met = handle.call(case["verb"].as_str().unwrap(), &case["request"]);
        let stats = handle.call("stats", &json!({})).unwrap();
        let faults = |stats: &Value| stats["storageFaults"].as_u64().unwrap();
        say(match &met {
            Err(error)
                if error["code"] == "storage"
                    && stats["damaged"] == json!(true)
                    && faults(&stats) > faults(&before) =>
            {
                "storage"
            }
            Err(_) => "another error",
            Ok(_) => "no error",
        });
        heed();
        // From here on everything is tried, and nothing written.
        for (name, request) in requests(folder, source, 0) {
            let answer = handle.call(name, &request);
            let writes = [
                "record",
                "watch",
                "unwatch",
                "ack_notices",
                "session_reset",
                "session_delete",
                "maintain",
                "release",
            ];
            if writes.contains(&name) && request.get("wait").is_none() {
                let error = answer.expect_err(name);
                assert!(
                    error["message"].as_str().unwrap().contains("damaged"),
                    "{name}: {error}"
                );
            }
        }
        handle.close();
        say("closed");
    }
}

// ---- opening, and what an operator does ------------------------------------------

fn not_opened_not_touched() {
    let template = Template::new();
    let config = |database: &Path| Config {
        monitor: Some(MonitorConfig {
            enabled: Some(false),
            ..Default::default()
        }),
        ..Config::new(database.to_str().unwrap())
    };
    let zero = |path: &Path, at: u64, count: usize| {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&vec![0; count], at).unwrap();
    };
    type Harm<'a> = (&'a str, Box<dyn Fn(&Path) + 'a>);
    let harms: Vec<Harm<'_>> = vec![
        (
            "garbage",
            Box::new(|database| fs::write(database, b"not a database ".repeat(1000)).unwrap()),
        ),
        (
            "no head",
            Box::new(|database| {
                // The newest first page is in the log.
                fs::remove_file(wal(database)).unwrap();
                zero(database, 0, 100);
            }),
        ),
        (
            "no first page",
            Box::new(|database| {
                fs::remove_file(wal(database)).unwrap();
                zero(database, 100, 3996);
            }),
        ),
        (
            "emptied",
            Box::new(|database| fs::write(database, b"").unwrap()),
        ),
        (
            "cut",
            Box::new(|database| {
                fs::remove_file(wal(database)).unwrap();
                OpenOptions::new()
                    .write(true)
                    .open(database)
                    .unwrap()
                    .set_len(8192)
                    .unwrap();
            }),
        ),
        (
            "another's number",
            Box::new(|database| {
                without_rules(database, "", "PRAGMA application_id = 7");
            }),
        ),
        (
            "no version",
            Box::new(|database| without_rules(database, "", "DELETE FROM session_aware_schema")),
        ),
        (
            "a version of text",
            Box::new(|database| {
                without_rules(
                    database,
                    "session_aware_schema",
                    "UPDATE session_aware_schema SET major = 'x'",
                );
            }),
        ),
    ];
    for (name, harm) in harms {
        for read_only in [false, true] {
            let (_folder, database) = template.copy();
            harm(&database);
            let before = contents(&database);
            let config = Config {
                read_only: Some(read_only),
                ..config(&database)
            };
            let Err(error) = Awareness::open(config) else {
                panic!("{name}: opened");
            };
            assert_eq!(error.code, Code::Storage, "{name}: {error}");
            assert!(error.message.contains("damaged"), "{name}: {error}");
            assert!(before == contents(&database), "{name}: touched");
        }
    }
}

fn a_sound_file_in_its_place() {
    let template = Template::new();
    let (folder, database) = template.copy();
    let config = Config {
        monitor: Some(MonitorConfig {
            enabled: Some(false),
            ..Default::default()
        }),
        ..Config::new(database.to_str().unwrap())
    };
    let human = || NewEvent::new(CHILD, Kind::HumanDirectMessage, ActorType::Human);
    let aware = Awareness::open(config.clone()).unwrap();
    let backup = folder.path().join("sound.db");
    aware
        .backup(Backup {
            path: backup.to_str().unwrap().to_owned(),
        })
        .unwrap();
    let version = |aware: &Awareness| {
        let changes = aware
            .changes_since(ChangesSince::new("global", u64::MAX >> 11))
            .unwrap();
        changes.state_version
    };
    let known = version(&aware);
    let hurt = |database: &Path| {
        let sql = format!(
            "UPDATE session_state_events SET kind = 'unknown' WHERE session_key = '{CHILD}'"
        );
        without_rules_of_another_process(database, &sql);
    };
    hurt(&database);
    assert_eq!(
        aware
            .changes_since(ChangesSince::new(CHILD, 0))
            .unwrap_err()
            .code,
        Code::Storage
    );
    let refused = aware.record(human()).unwrap_err();
    assert!(
        refused.message.contains("opened anew") && refused.message.contains("damaged"),
        "{refused}"
    );
    let queued = aware.record_queued(vec![human()]).unwrap();
    assert!(queued.queued);
    // Reads go on where they can.
    assert_eq!(version(&aware), known);
    assert!(
        !aware
            .watches(Watches::default())
            .unwrap()
            .watches
            .is_empty()
    );
    // Another handle finds out for itself, and one opened anew may write.
    let other = Awareness::open(config).unwrap();
    other.record(human()).unwrap();
    other.close().unwrap();
    assert!(aware.record(human()).is_err());
    let stats = aware.stats().unwrap();
    assert!(
        stats.damaged && stats.damage.is_some() && stats.failed_appends >= 2,
        "{stats:?}"
    );
    // The operator puts a sound file in its place; the log of the damaged one does not follow it.
    fs::rename(&database, folder.path().join("bad.db")).unwrap();
    fs::rename(&backup, &database).unwrap();
    aware.record(human()).unwrap();
    assert_eq!(version(&aware), known);
    let stats = aware.stats().unwrap();
    assert!(
        !stats.damaged && stats.damage.is_none() && stats.unreadable.is_none(),
        "{stats:?}"
    );
    assert!(
        folder.path().join("a.db-wal-of-damaged").exists(),
        "the log was not kept"
    );
    aware.close().unwrap();
    let conn = rusqlite::Connection::open(&database).unwrap();
    let verdict: String = conn
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(verdict, "ok");
}

/// Here the library has the file open, so that this process must not open it another way.
fn without_rules_of_another_process(database: &Path, sql: &str) {
    let script =
        "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1])\nc.execute(sys.argv[2])\nc.commit()";
    let run = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(database)
        .arg(sql)
        .status()
        .unwrap();
    assert!(run.success());
}
