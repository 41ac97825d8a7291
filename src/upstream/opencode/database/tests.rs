//! What holds for databases alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

use rusqlite::{Connection, params};
use serde_json::{Value, json};

use super::{Database, PATIENCE};
use crate::upstream::act::Act;
use crate::upstream::opencode::fixture::*;
use crate::upstream::opencode::{Error, Home, Look, Store, discover, find};
use crate::upstream::rows::Slice;

const S: &str = "ses_dd3890f00ffeSQ1NLJzx7ES6gt";

/// The files of a folder, without those that only hold locks.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let name = |entry: &fs::DirEntry| entry.file_name().into_string().unwrap();
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.path().is_file() && !name(entry).ends_with("-shm"));
    files
        .map(|entry| (name(&entry), fs::read(entry.path()).unwrap()))
        .collect()
}

fn read_all(source: &Path) -> Vec<Act> {
    let mut store = Store::new(source);
    let found = store.discover(100).unwrap();
    found
        .iter()
        .flat_map(|found| Watch::new(&found.thread).pass(&mut store))
        .collect()
}

#[test]
fn a_store_that_is_all_in_its_log_is_read_and_left_as_it_is() {
    let lab = Lab::database();
    lab.sql("PRAGMA wal_autocheckpoint = 0");
    lab.session(S, None);
    lab.say(S, &[text("one")]);
    // What a process leaves that ends without a checkpoint: here the copy of one that runs.
    let left = tempfile::TempDir::new().unwrap();
    for (name, bytes) in files(lab.folder.path()) {
        fs::write(left.path().join(name), bytes).unwrap();
    }
    let before = files(left.path());
    assert_eq!(
        before.keys().collect::<Vec<_>>(),
        ["opencode.db", "opencode.db-wal"]
    );
    assert!(before["opencode.db"].len() <= 4096);
    assert_eq!(read_all(&left.path().join("opencode.db")).len(), 1);
    assert_eq!(files(left.path()), before);
}

#[test]
fn the_last_to_close_takes_no_log_away() {
    let mut lab = Lab::database();
    lab.session(S, None);
    let (mut store, mut watch) = (lab.store(), Watch::new(S));
    lab.say(S, &[text("one")]);
    assert_eq!(watch.told(&mut store), prints(&["one"]));
    let log = lab.folder.path().join("opencode.db-wal");
    let before = fs::read(&log).unwrap();
    lab.db = None;
    drop(store);
    assert_eq!(fs::read(&log).unwrap(), before);
}

#[test]
fn a_store_without_a_log_stays_without() {
    let lab = Lab::database();
    lab.sql("PRAGMA journal_mode = DELETE");
    lab.session(S, None);
    lab.say(S, &[text("one")]);
    let before = files(lab.folder.path());
    assert_eq!(read_all(&lab.source()).len(), 1);
    assert_eq!(files(lab.folder.path()), before);
    let count = fs::read_dir(lab.folder.path()).unwrap().count();
    assert_eq!(
        count,
        before.len() + 1,
        "the database and the empty storage/"
    );
}

#[test]
fn a_real_store_that_is_all_in_its_log() {
    let Some(real) = shared("real/opencode-1.18.33") else {
        return;
    };
    let typed: usize = driven(&real).iter().map(Driven::prompts).sum();
    let real = real.join("wal-only");
    for names in [
        vec!["opencode.db", "opencode.db-wal"],
        vec!["opencode.db", "opencode.db-wal", "opencode.db-shm"],
    ] {
        let folder = tempfile::TempDir::new().unwrap();
        for name in names {
            fs::write(folder.path().join(name), fs::read(real.join(name)).unwrap()).unwrap();
        }
        let before = files(folder.path());
        assert_eq!(read_all(&folder.path().join("opencode.db")).len(), typed);
        assert_eq!(files(folder.path()), before);
    }
}

#[test]
fn the_samples_hold_what_their_manifest_says() {
    let Some(samples) = shared("samples/opencode") else {
        return;
    };
    // Of `synth_v1` the manifest counts an image, a command for a sub-agent and a
    // shell input, the contract does not.
    for (sample, prompts) in [
        ("ocmanager_test_db", 5),
        ("deja_registry_opencode", 1),
        ("synth_v1_opencode_db", 3),
    ] {
        let folder = tempfile::TempDir::new().unwrap();
        let source = folder.path().join("opencode.db");
        let dump = fs::read_to_string(samples.join(format!("{sample}.dump.sql"))).unwrap();
        Connection::open(&source)
            .unwrap()
            .execute_batch(&dump)
            .unwrap();
        assert_eq!(read_all(&source).len(), prompts, "{sample}");
    }
}

#[test]
fn a_locked_store_is_busy_and_then_read() {
    let lab = Lab::database();
    lab.session(S, None);
    lab.sql("PRAGMA journal_mode = DELETE");
    let (mut store, mut watch) = (lab.store(), Watch::new(S));
    lab.say(S, &[text("one")]);
    lab.sql("BEGIN EXCLUSIVE");
    let begun = Instant::now();
    assert_eq!(store.look(&[watch.link()]), Err(Error::Busy));
    assert!(begun.elapsed() >= PATIENCE);
    lab.sql("COMMIT");
    assert_eq!(watch.told(&mut store), prints(&["one"]));
}

#[test]
fn a_store_may_get_its_tables_later() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("opencode.db");
    let db = Connection::open(&path).unwrap();
    db.execute_batch("CREATE TABLE unrelated (x)").unwrap();
    let (mut store, mut watch) = (Store::new(&path), Watch::new(S));
    assert!(matches!(
        store.look(&[watch.link()]),
        Err(Error::Unreadable(_))
    ));
    db.execute_batch(
        "CREATE TABLE session (id TEXT PRIMARY KEY, directory TEXT);
         CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, data TEXT);
         CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, data TEXT)",
    )
    .unwrap();
    assert_eq!(watch.look(&mut store), Look::Gone);
    db.execute_batch(
        "INSERT INTO session VALUES ('ses_dd3890f00ffeSQ1NLJzx7ES6gt', NULL);
         INSERT INTO message VALUES ('m', 'ses_dd3890f00ffeSQ1NLJzx7ES6gt', '{\"role\":\"user\"}');
         INSERT INTO message VALUES (NULL, 'ses_dd3890f00ffeSQ1NLJzx7ES6gt', '{\"role\":\"user\"}');
         INSERT INTO message VALUES ('n', 'ses_dd3890f00ffeSQ1NLJzx7ES6gt', NULL);
         INSERT INTO message VALUES (x'ff', 7, 1.5);
         INSERT INTO part VALUES ('p', 'm', x'7b2274797065223a2274657874222c2274657874223a226f6e65227d');
         INSERT INTO part VALUES ('q', 'm', NULL)",
    )
    .unwrap();
    assert_eq!(watch.told(&mut store), prints(&["one"]));
    assert_eq!(watch.look(&mut store), Look::Same);
    db.execute_batch("ALTER TABLE session ADD COLUMN parent_id TEXT; DROP TABLE part")
        .unwrap();
    assert_eq!(watch.look(&mut store), Look::Same);
    assert!(matches!(
        store.read(S, &watch.position, &secret(), Slice::WHOLE),
        Ok(Some(_))
    ));
    db.execute_batch(
        "INSERT INTO message VALUES ('o', 'ses_dd3890f00ffeSQ1NLJzx7ES6gt', '{\"role\":\"user\"}')",
    )
    .unwrap();
    assert!(matches!(
        store.read(S, &watch.position, &secret(), Slice::WHOLE),
        Err(Error::Unreadable(_))
    ));
}

#[test]
fn what_is_no_database_is_unreadable() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("opencode.db");
    fs::write(&path, "a canary that is no database, and as long as a header would have to be ........................").unwrap();
    let failed = Store::new(&path).look(&[]).unwrap_err();
    assert!(matches!(failed, Error::Unreadable(_)));
    assert!(!failed.to_string().contains("canary"));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(Database::new(&path).look(&[]), Err(Error::Missing));
}

#[test]
fn another_file_at_the_path_is_read_instead() {
    let (one, other) = (Lab::database(), Lab::database());
    for (lab, said) in [(&one, "one"), (&other, "other")] {
        lab.session(S, None);
        lab.say(S, &[text(said)]);
        lab.sql("PRAGMA journal_mode = DELETE");
    }
    let (mut store, mut watch) = (one.store(), Watch::new(S));
    assert_eq!(watch.told(&mut store), prints(&["one"]));
    fs::rename(other.source(), one.source()).unwrap();
    // The other's message has the same id, so its turn is known.
    assert_eq!(watch.told(&mut store), []);
    assert_eq!(Watch::new(S).told(&mut store), prints(&["other"]));
}

#[test]
fn a_state_lasts_until_something_is_written() {
    let (one, other) = (Lab::database(), Lab::database());
    for lab in [&one, &other] {
        lab.session(S, None);
        lab.sql("PRAGMA journal_mode = DELETE");
    }
    let mut store = one.store();
    let state = store.state().unwrap();
    assert!(state.is_some());
    Watch::new(S).pass(&mut store);
    assert_eq!(store.state(), Ok(state));
    one.sql("UPDATE session SET title = 'another'");
    let then = store.state().unwrap();
    assert_ne!(then, state);
    fs::rename(other.source(), one.source()).unwrap();
    let replaced = store.state().unwrap();
    assert!(replaced != state && replaced != then);
    assert_eq!(Lab::tree().store().state(), Ok(None));
}

#[test]
fn rows_may_get_other_numbers() {
    let lab = Lab::database();
    lab.session(S, None);
    let (mut store, mut watch) = (lab.store(), Watch::new(S));
    let ids: Vec<String> = (0..10)
        .map(|n| lab.say(S, &[text(&format!("text {n}"))]))
        .collect();
    assert_eq!(watch.told(&mut store).len(), 10);
    for id in &ids[..5] {
        lab.delete(S, id);
    }
    lab.sql("VACUUM");
    assert_eq!(watch.told(&mut store), []);
    lab.say(S, &[text("new")]);
    assert_eq!(watch.told(&mut store), prints(&["new"]));
}

#[test]
fn a_number_given_again_in_another_session_is_a_new_row() {
    let lab = Lab::database();
    lab.session(S, None);
    lab.session("ses_other", None);
    let (mut store, mut one, mut other) = (lab.store(), Watch::new(S), Watch::new("ses_other"));
    lab.say("ses_other", &[text("old")]);
    let undone = lab.say(S, &[text("undone")]);
    assert_eq!(one.told(&mut store).len() + other.told(&mut store).len(), 2);
    assert_eq!(
        store.look(&[one.link(), other.link()]),
        Ok(vec![Look::Same, Look::Same])
    );
    lab.delete(S, &undone);
    lab.say("ses_other", &[text("new")]);
    assert_eq!(
        store.look(&[one.link(), other.link()]),
        Ok(vec![Look::Moved, Look::Moved])
    );
    assert_eq!(other.told(&mut store), prints(&["new"]));
    assert_eq!(one.told(&mut store), []);
    assert_eq!(
        store.look(&[one.link(), other.link()]),
        Ok(vec![Look::Same, Look::Same])
    );
}

#[test]
fn more_undone_than_remembered_is_judged_anew() {
    let lab = Lab::database();
    lab.session(S, None);
    let (mut store, mut watch) = (lab.store(), Watch::new(S));
    let ids: Vec<String> = (0..130)
        .map(|n| lab.say(S, &[text(&format!("text {n}"))]))
        .collect();
    let told = watch.pass(&mut store);
    assert_eq!(told.len(), 130);
    for id in &ids[20..] {
        lab.delete(S, id);
    }
    lab.say(S, &[text("new")]);
    let again = watch.pass(&mut store);
    assert_eq!(again.last().unwrap().text, secret().print("new"));
    // The same keys as before: those who store what was told know it.
    assert_eq!(again[..20], told[..20]);
    assert_eq!(again.len(), 21);
}

#[test]
fn a_copy_with_an_id_of_another_make_is_known_by_its_twin() {
    let lab = Lab::database();
    let message = |session: &str, id: &str, created: i64, said: &str| {
        lab.message(session, id, created, json!({ "role": "user" }));
        lab.part(session, id, &format!("prt_{id}"), &text(said));
    };
    lab.session(S, None);
    message(S, "msg_a1", BEGIN + 500, "one");
    message(S, "msg_a2", BEGIN + 600, "two");
    lab.session("ses_fork", None);
    message("ses_fork", "msg_f1", BEGIN + 500, "one");
    message(
        "ses_fork",
        "msg_f2",
        BEGIN + 600,
        "another at the same time",
    );
    message("ses_fork", "msg_f3", BEGIN + 700, "two");
    let mut store = lab.store();
    assert_eq!(Watch::new(S).told(&mut store), prints(&["one", "two"]));
    let told = Watch::new("ses_fork").told(&mut store);
    assert_eq!(told, prints(&["another at the same time", "two"]));
}

#[test]
fn rows_of_the_second_version_are_read_where_there_are_none_of_the_first() {
    let lab = Lab::database();
    lab.sql(
        "CREATE TABLE session_message (
             id text PRIMARY KEY, session_id text NOT NULL, type text NOT NULL, seq integer NOT NULL,
             time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL)",
    );
    let row = |session: &str, kind: &str, seq: i64, data: Value| {
        let now = lab.now();
        let db = lab.db.as_ref().unwrap();
        let row = params![id(now), session, kind, seq, now, data.to_string()];
        db.execute(
            "INSERT INTO session_message VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6)",
            row,
        )
        .unwrap();
    };
    lab.session(S, None);
    lab.session("ses_both", None);
    let (mut store, mut watch, mut both) = (lab.store(), Watch::new(S), Watch::new("ses_both"));
    assert_eq!(
        store.look(&[watch.link(), both.link()]),
        Ok(vec![Look::Same, Look::Same])
    );
    row(S, "user", 1, json!({ "text": "one" }));
    row(S, "synthetic", 2, json!({ "text": "a note" }));
    row(S, "shell", 3, json!({ "command": "ls" }));
    row(
        S,
        "user",
        4,
        json!({ "text": "@a.txt", "files": [{ "source": { "start": 0, "end": 6, "text": "@a.txt" } }] }),
    );
    lab.say("ses_both", &[text("both")]);
    row("ses_both", "user", 1, json!({ "text": "both" }));
    assert_eq!(watch.told(&mut store), prints(&["one"]));
    assert_eq!(both.told(&mut store), prints(&["both"]));
    row(S, "user", 5, json!({ "text": "two" }));
    assert_eq!(
        store.look(&[watch.link(), both.link()]),
        Ok(vec![Look::Moved, Look::Same])
    );
    assert_eq!(watch.told(&mut store), prints(&["two"]));
    assert_eq!(watch.look(&mut store), Look::Same);
}

#[test]
fn a_pass_beside_a_writer_loses_and_repeats_nothing() {
    let lab = Lab::database();
    lab.session(S, None);
    let source = lab.source();
    let writer = thread::spawn(move || {
        for n in 0..300 {
            let asked = lab.say(S, &[synthetic("a note"), text(&format!("text {n}"))]);
            lab.answer(S, &asked);
        }
        lab
    });
    let (mut store, mut watch) = (Store::new(&source), Watch::new(S));
    let mut told = Vec::new();
    while !writer.is_finished() {
        told.extend(watch.told(&mut store));
    }
    let _lab = writer.join().unwrap();
    told.extend(watch.told(&mut store));
    let expected: Vec<String> = (0..300).map(|n| format!("text {n}")).collect();
    assert_eq!(
        told,
        prints(&expected.iter().map(String::as_str).collect::<Vec<_>>())
    );
}

#[test]
fn only_commits_concern() {
    let lab = Lab::database();
    let link = lab.folder.path().join("link.db");
    std::os::unix::fs::symlink(lab.source(), &link).unwrap();
    let folder = fs::canonicalize(lab.folder.path()).unwrap();
    for store in [lab.store(), Store::new(&link)] {
        assert_eq!(
            store.folders(&Watch::new(S).link()),
            std::slice::from_ref(&folder)
        );
        for (name, concerns) in [
            ("opencode.db", true),
            ("opencode.db-wal", true),
            ("opencode.db-shm", false),
            ("opencode.db-journal", false),
            ("auth.json", false),
        ] {
            assert_eq!(store.concerns(&folder.join(name)), concerns, "{name}");
        }
    }
}

#[test]
fn the_store_in_use_comes_first() {
    let lab = Lab::database();
    lab.session(S, None);
    fs::create_dir_all(lab.file("session/p/x").parent().unwrap()).unwrap();
    for thread in [S, "ses_old"] {
        fs::write(
            lab.file(&format!("session/p/{thread}")),
            "{\"directory\":\"/old\"}",
        )
        .unwrap();
    }
    let home = Home::new(Some(lab.folder.path()), &|_| None).unwrap();
    assert_eq!(find(&home, S), Ok(Some(lab.source())));
    assert_eq!(
        find(&home, "ses_old"),
        Ok(Some(lab.folder.path().to_owned()))
    );
    let (found, _) = discover(&home, 10);
    let found: Vec<_> = found
        .iter()
        .map(|(_, found)| (found.thread.as_str(), found.cwd.as_deref()))
        .collect();
    assert_eq!(found, [(S, Some("/home/dev")), ("ses_old", Some("/old"))]);
}

/// A part of 64 MiB, read by a process of its own that tells its peak of memory.
#[test]
fn a_part_of_any_length_is_judged_in_little_memory() {
    const ASKED: &str = "TEST_READ_LARGE_PART";
    let peak = || {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmHWM"))
            .unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    if let Some(source) = std::env::var_os(ASKED) {
        let mut store = Store::new(Path::new(&source));
        let mut small = Watch::new("ses_small");
        assert_eq!(small.pass(&mut store).len(), 1);
        let before = peak();
        let large = Watch::new(S).told(&mut store);
        println!("{} KiB", peak().saturating_sub(before));
        assert_eq!(large, prints(&[&"word".repeat(16 << 20), "look"]));
        return;
    }
    let lab = Lab::database();
    lab.session("ses_small", None);
    lab.say("ses_small", &[text("one")]);
    lab.session(S, None);
    let large = "word".repeat(16 << 20);
    lab.say(S, &[text(&large)]);
    lab.say(
        S,
        &[
            json!({ "type": "file", "mime": "image/png", "url": large }),
            text("look"),
        ],
    );
    let name = "a_part_of_any_length_is_judged_in_little_memory";
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            &format!("{}::{name}", module_path!().split_once("::").unwrap().1),
            "--exact",
            "--nocapture",
        ])
        .env(ASKED, lab.source())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(
        child.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&child.stderr)
    );
    let line = said.lines().find(|line| line.ends_with(" KiB")).unwrap();
    let added: u64 = line.split(' ').rev().nth(1).unwrap().parse().unwrap();
    println!("64 MiB added {added} KiB");
    assert!(added < 8 << 10, "{added} KiB");
}
