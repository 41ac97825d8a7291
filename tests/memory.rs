//! A row of any length is classified in bounded memory: 64 MiB of it add at
//! most 8 MiB. Alone in its program, since it reads the process's own peak.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use session_awareness::*;

const MIB: u64 = 1 << 20;
const ROW: u64 = 64 * MIB;
const MOST: u64 = 8 * MIB;

/// Writes a row: its begin, `filling` until it is long enough, its end.
fn row(path: &Path, begin: &str, filling: &str, end: &str) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    file.write_all(begin.as_bytes()).unwrap();
    for _ in 0..ROW / filling.len() as u64 {
        file.write_all(filling.as_bytes()).unwrap();
    }
    file.write_all(end.as_bytes()).unwrap();
    file.write_all(b"\n").unwrap();
    file.flush().unwrap();
}

/// The most memory the process held since the last call, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    kib * 1024
}

#[test]
fn a_row_of_64_mib_adds_at_most_8_mib() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("a.db");
    let monitor = Some(MonitorConfig {
        enabled: Some(false),
        ..MonitorConfig::default()
    });
    let config = Config {
        monitor,
        ..Config::new(database.to_str().unwrap())
    };
    let aware = Awareness::open(config).unwrap();
    let letters = "all work and no play ".repeat(50);
    let block = format!(r#"{{"type":"text","text":"{}"}},"#, &letters[..600]);
    let user = |content: &str| {
        format!(r#"{{"type":"user","uuid":"u","message":{{"role":"user","content":{content}"#)
    };
    let pi = r#"{"type":"session","version":3,"id":"p","timestamp":"2026-11-30T10:00:00.000Z","cwd":"/"}
{"type":"message","id":"00000001","timestamp":"2026-11-30T10:00:01.000Z","message":{"role":"user","content":""#;
    let codex = r#"{"type":"event_msg","payload":{"type":"user_message","message":""#;
    let small = folder.path().join("small");
    let rows = [
        (
            "a typed text",
            Catalog::Claude,
            user("\""),
            letters.as_str(),
            "\"}}",
            1,
        ),
        (
            "many blocks",
            Catalog::Claude,
            user("["),
            &block,
            r#"{"type":"text","text":"x"}]}}"#,
            1,
        ),
        (
            "an image",
            Catalog::Claude,
            user(r#"[{"type":"image","source":{"data":""#),
            &"A".repeat(1_000),
            "\"}}]}}",
            1,
        ),
        (
            "an answer",
            Catalog::Claude,
            r#"{"type":"assistant","message":""#.to_owned(),
            &letters,
            "\"}",
            0,
        ),
        (
            "damage",
            Catalog::Claude,
            "{\"type\":\"user\",".to_owned(),
            "\u{fffd}[[{",
            "",
            0,
        ),
        (
            "levels without end",
            Catalog::Claude,
            "{\"type\":\"user\",\"x\":".to_owned(),
            "[[[[[[[[",
            "",
            0,
        ),
        (
            "of Codex",
            Catalog::Codex,
            codex.to_owned(),
            &letters,
            "\"}}",
            1,
        ),
        ("of Pi", Catalog::Pi, pi.to_owned(), &letters, "\"}}", 1),
    ];
    for (at, (name, catalog, begin, filling, end, turns)) in rows.into_iter().enumerate() {
        let named = |id: &str| begin.replace(r#""u""#, &format!("\"{id}-{at}\""));
        let adopt = |path: &Path| {
            let request = Adopt {
                baseline: Some(Baseline::Start),
                ..Adopt::new("agent:main:up", catalog, path.to_str().unwrap())
            };
            aware.adopt(request).unwrap();
            aware.scan(Scan::default()).unwrap().outcomes.remove(0)
        };
        // What a pass needs for a short row of the kind is no part of it.
        let other = named("short").replace("00000001", "00000002");
        std::fs::write(&small, format!("{other}{filling}{end}\n")).unwrap();
        adopt(&small);
        let long = folder.path().join("long.jsonl");
        row(&long, &named("long"), filling, end);
        peak();
        let before = peak();
        let outcome = adopt(&long);
        let added = peak().saturating_sub(before);
        assert_eq!(outcome.human_turns, turns, "{name}: {outcome:?}");
        assert!(added <= MOST, "{name}: {} KiB were added", added / 1024);
        std::fs::remove_file(&long).unwrap();
    }
    // What never comes to the end of a line.
    let sparse = folder.path().join("sparse.jsonl");
    File::create(&sparse).unwrap().set_len(2 << 30).unwrap();
    // Cells that are long where short ones are meant.
    let store = folder.path().join("opencode.db");
    let conn = rusqlite::Connection::open(&store).unwrap();
    conn.execute_batch(
        "CREATE TABLE session (id text PRIMARY KEY, directory text);
         CREATE TABLE message (id text PRIMARY KEY, session_id text, data text);
         CREATE TABLE part (id text PRIMARY KEY, message_id text, data text);
         INSERT INTO session VALUES ('ses_1', hex(zeroblob(30000000)));
         INSERT INTO message VALUES (hex(zeroblob(30000000)), 'ses_1', '{}'), ('msg_1', 'ses_1', hex(zeroblob(30000000)));",
    )
    .unwrap();
    drop(conn);
    for (name, catalog, source) in [
        ("sparse gigabytes", Catalog::Claude, &sparse),
        ("long cells", Catalog::Opencode, &store),
    ] {
        peak();
        let before = peak();
        let request = Adopt {
            thread_id: (catalog == Catalog::Opencode).then(|| "ses_1".to_owned()),
            baseline: Some(Baseline::Start),
            ..Adopt::new("agent:main:up", catalog, source.to_str().unwrap())
        };
        aware.adopt(request).unwrap();
        let outcome = aware.scan(Scan::default()).unwrap().outcomes.remove(0);
        let added = peak().saturating_sub(before);
        assert_eq!(outcome.human_turns, 0, "{name}: {outcome:?}");
        assert!(added <= MOST, "{name}: {} KiB were added", added / 1024);
    }
}
