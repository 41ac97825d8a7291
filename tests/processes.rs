//! What holds between processes, and when one is killed at any instant.
//!
//! This program is its own child: with a role in the environment it plays it.
#![allow(unsafe_code)]

#[path = "processes/crowd.rs"]
mod crowd;
#[path = "processes/inspector.rs"]
mod inspector;
#[allow(dead_code)]
mod own_child;
#[path = "processes/stopped.rs"]
mod stopped;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command};
use std::time::{Duration, Instant};

use own_child::{own_database, say};
use session_awareness::*;

const MANAGER: &str = "agent:main:main";
const CHILD: &str = "agent:main:subagent:child";

fn main() {
    match own_child::role().as_deref() {
        Some("storm") => return storm(),
        Some("hold") => return hold(),
        Some("record") => return record_once(),
        Some("scan") => return scan_storm(),
        Some("write_on") => return stopped::write_on(),
        Some("record_and_drain") => return crowd::record_and_drain(),
        Some("hear_and_record") => return crowd::hear_and_record(),
        Some("inspect") => return inspector::inspect(),
        Some("record_and_die") => return inspector::record_and_die(),
        _ => {}
    }
    let tests: [(&str, fn()); 13] = [
        (
            "killed_at_any_instant_nothing_is_lost_or_told_twice",
            killed_at_any_instant,
        ),
        ("a_wake_crosses_processes_at_once", a_wake_crosses_processes),
        (
            "a_killed_process_leaves_its_wakes_to_the_next",
            a_killed_process_leaves_its_wakes,
        ),
        (
            "killed_in_the_middle_of_scans_no_turn_is_lost_or_repeated",
            killed_in_the_middle_of_scans,
        ),
        ("processes_write_side_by_side", processes_write_side_by_side),
        (
            "four_processes_every_notice_goes_to_exactly_one_drain",
            crowd::every_notice_goes_to_exactly_one_drain,
        ),
        (
            "four_processes_wakes_arrive_in_the_others_at_once",
            crowd::wakes_arrive_in_the_others_at_once,
        ),
        (
            "a_stopped_writer_yields_busy",
            stopped::a_stopped_writer_yields_busy,
        ),
        (
            "nobody_waits_for_a_stopped_writer_more_than_twice",
            stopped::nobody_waits_for_a_stopped_writer_more_than_twice,
        ),
        (
            "signals_do_not_cut_the_wait_short",
            stopped::signals_do_not_cut_the_wait_short,
        ),
        (
            "a_writer_killed_inside_its_transaction_blocks_nobody",
            stopped::a_writer_killed_inside_its_transaction_blocks_nobody,
        ),
        (
            "an_inspector_changes_nothing",
            inspector::an_inspector_changes_nothing,
        ),
        (
            "an_inspector_sees_who_comes_later",
            inspector::an_inspector_sees_who_comes_later,
        ),
    ];
    own_child::run(&tests);
}

fn open(database: &Path) -> Awareness {
    Awareness::open(Config::new(database.to_str().unwrap())).unwrap()
}

fn human(key: &str) -> NewEvent {
    NewEvent::new(key, Kind::HumanDirectMessage, ActorType::Human)
}

fn watch(aware: &Awareness) {
    aware.watch(Watch::new(MANAGER, CHILD)).unwrap();
}

fn wakes(aware: &Awareness, timeout_ms: u64) -> usize {
    aware
        .wait_wakes(WaitWakes {
            timeout_ms,
            max: None,
        })
        .unwrap()
        .wakes
        .len()
}

fn play(role: &str, database: &Path) -> (Child, BufReader<ChildStdout>) {
    let mut child = own_child::player(role, database).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    (child, lines)
}

/// Records and drains as fast as it can, and says what was answered.
fn storm() {
    let aware = open(&own_database());
    loop {
        let event = aware.record(human(CHILD)).unwrap();
        say(&format!("recorded {}", event.event().unwrap().sequence));
        let batch = aware
            .record_batch(vec![human(CHILD), human("agent:main:other")])
            .unwrap();
        for event in batch.iter().filter_map(Recorded::event) {
            say(&format!("recorded {}", event.sequence));
        }
        for notice in aware
            .drain_notices(DrainNotices::new(MANAGER))
            .unwrap()
            .notices
        {
            say(&format!(
                "drained {} {}",
                notice.changes_since, notice.notified
            ));
        }
    }
}

/// Opens and stays until its standard input ends.
fn hold() {
    let aware = open(&own_database());
    say(&format!("wakes {}", wakes(&aware, 0)));
    std::io::stdin()
        .lock()
        .read_line(&mut String::new())
        .unwrap();
}

/// Opens, and records one event for each line of its standard input.
fn record_once() {
    let aware = open(&own_database());
    say("ready");
    for _ in std::io::stdin().lock().lines() {
        let event = aware.record(human(CHILD)).unwrap();
        say(&event.event().unwrap().sequence.to_string());
    }
}

/// Scans as fast as it can.
fn scan_storm() {
    let aware = open(&own_database());
    say("ready");
    loop {
        aware.scan(Scan::default()).unwrap();
    }
}

fn killed_in_the_middle_of_scans() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("a.db");
    let source = folder.path().join("s.jsonl");
    std::fs::write(&source, "").unwrap();
    let aware = open(&database);
    aware.watch(Watch::new(MANAGER, "agent:main:up")).unwrap();
    let path = source.to_str().unwrap();
    aware
        .adopt(Adopt::new("agent:main:up", Catalog::Claude, path))
        .unwrap();
    aware.close().unwrap();
    let mut typed = 0u64;
    for round in 0..200u64 {
        let (mut child, mut lines) = play("scan", &database);
        lines.read_line(&mut String::new()).unwrap();
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(&source)
            .unwrap();
        // The kill falls after more or fewer rows, and some time after the last.
        for _ in 0..=round % 4 {
            typed += 1;
            let row = serde_json::json!({
                "type": "user", "uuid": format!("u-{typed}"), "origin": {"kind": "human"},
                "message": {"role": "user", "content": format!("turn {typed}")},
            });
            file.write_all(format!("{row}\n").as_bytes()).unwrap();
        }
        let pause = Instant::now() + Duration::from_micros(round * 37 % 700);
        while Instant::now() < pause {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let aware = open(&database);
    aware.scan(Scan::default()).unwrap();
    let mut told = 0;
    let mut request = EventsRequest {
        kinds: Some(vec![Kind::HumanDirectMessage]),
        limit: Some(1_000),
        ..Default::default()
    };
    loop {
        let page = aware.events(request.clone()).unwrap();
        let turns = |event: &Event| {
            event
                .payload
                .as_ref()
                .and_then(PublicPayload::turns)
                .unwrap_or(1)
        };
        told += page.events.iter().map(turns).sum::<u64>();
        request.after = page.events.last().map(|event| event.sequence);
        if !page.more {
            break;
        }
    }
    assert_eq!(told, typed, "turns told beside turns typed");
    assert_integrity(&aware, folder.path());
}

fn killed_at_any_instant() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("a.db");
    watch(&open(&database));
    let mut said_recorded = BTreeSet::new();
    let mut last_notified = 0;
    let mut lives = 0;
    for round in 0..25u64 {
        let (mut child, lines) = play("storm", &database);
        let mut lines = lines.lines().map_while(std::result::Result::ok);
        // The instant moves through the storm's steps from life to life.
        let enough = (round * 7 % 40) as usize;
        let mut heard: Vec<String> = lines.by_ref().take(enough + 1).collect();
        let pause = Instant::now() + Duration::from_micros(round * 131 % 900);
        while Instant::now() < pause {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it still had in its mouth; a torn last line was never heard.
        heard.extend(lines.filter(|line| line.split(' ').count() >= 2));
        lives += usize::from(!heard.is_empty());
        for line in &heard {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            match words[0] {
                "recorded" => assert!(said_recorded.insert(number(1)), "{line}: a sequence twice"),
                "drained" if words.len() == 3 => {
                    // Each notice begins where the one before ended, or later when that one's answer was lost.
                    assert!(
                        number(1) >= last_notified,
                        "{line}: told twice, {last_notified} was taken before"
                    );
                    assert!(number(2) > number(1), "{line}: a notice of nothing");
                    last_notified = number(2);
                }
                _ => {}
            }
        }
        let aware = open(&database);
        let stored: BTreeSet<u64> = everything(&aware);
        let lost: Vec<_> = said_recorded.difference(&stored).collect();
        assert!(lost.is_empty(), "recorded, and gone: {lost:?}");
        let version = aware
            .state_versions(StateVersions {
                sessions: vec![SessionRef::new(CHILD)],
            })
            .unwrap()
            .versions[0]
            .state_version;
        let row = &aware.watches(Watches::default()).unwrap().watches[0];
        assert!(
            row.last_seen <= row.notified
                && row.notified <= row.material
                && row.material == version,
            "{row:?}"
        );
        assert_eq!(row.pending, row.material > row.last_seen);
    }
    assert!(lives >= 20, "only {lives} of the storms said anything");
    let aware = open(&database);
    let others = everything_of(&aware, "agent:main:other").len();
    let storms = everything_of(&aware, CHILD).len();
    // Per turn one single event and a batch of two: a torn batch would break the count.
    assert!(
        storms >= 2 * others && storms <= 2 * others + 25,
        "{storms} beside {others}"
    );
    assert_integrity(&aware, folder.path());
}

fn assert_integrity(aware: &Awareness, folder: &Path) {
    let copy = folder.join("copy.db");
    aware
        .backup(Backup {
            path: copy.to_str().unwrap().to_owned(),
        })
        .unwrap();
    let conn = rusqlite::Connection::open(&copy).unwrap();
    let verdict: String = conn
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(verdict, "ok");
}

fn everything(aware: &Awareness) -> BTreeSet<u64> {
    pages(aware, EventsRequest::default())
}

fn everything_of(aware: &Awareness, key: &str) -> BTreeSet<u64> {
    pages(
        aware,
        EventsRequest {
            session_key: Some(key.to_owned()),
            ..Default::default()
        },
    )
}

fn pages(aware: &Awareness, mut request: EventsRequest) -> BTreeSet<u64> {
    let mut all = BTreeSet::new();
    request.limit = Some(1_000);
    loop {
        let page = aware.events(request.clone()).unwrap();
        all.extend(page.events.iter().map(|event| event.sequence));
        request.after = all.last().copied();
        if !page.more {
            return all;
        }
    }
}

fn a_wake_crosses_processes() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("a.db");
    let aware = open(&database);
    watch(&aware);
    let (mut child, mut lines) = play("record", &database);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    for _ in 0..5 {
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        assert_eq!(wakes(&aware, 10_000), 1);
        assert_eq!(wakes(&aware, 0), 0);
        assert_eq!(
            aware
                .drain_notices(DrainNotices::new(MANAGER))
                .unwrap()
                .notices
                .len(),
            1
        );
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

fn a_killed_process_leaves_its_wakes() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("a.db");
    {
        let aware = open(&database);
        watch(&aware);
        aware.record(human(CHILD)).unwrap();
    }
    let heard = |lines: &mut BufReader<ChildStdout>| {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        line.trim().to_owned()
    };
    let (mut first, mut lines) = play("hold", &database);
    assert_eq!(heard(&mut lines), "wakes 1");
    let aware = open(&database);
    assert_eq!(wakes(&aware, 0), 0, "a live process was offered it");
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(wakes(&aware, 10_000), 1, "its lock went with it");
    let (mut second, mut lines) = play("hold", &database);
    assert_eq!(heard(&mut lines), "wakes 0", "this process was offered it");
    drop(second.stdin.take());
    second.wait().unwrap();
}

fn processes_write_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("a.db");
    open(&database).close().unwrap();
    let mut children: Vec<_> = (0..4).map(|_| play("record", &database)).collect();
    let mut sequences = BTreeSet::new();
    for (_, lines) in &mut children {
        lines.read_line(&mut String::new()).unwrap();
    }
    for (child, _) in &mut children {
        child.stdin.take().unwrap().write_all(&[b'\n'; 50]).unwrap();
    }
    for (child, lines) in &mut children {
        for line in lines.lines() {
            assert!(
                sequences.insert(line.unwrap().parse::<u64>().unwrap()),
                "a sequence twice"
            );
        }
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(sequences, (1..=200).collect());
}
