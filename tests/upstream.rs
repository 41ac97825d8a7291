//! Upstream sessions through the Rust API, on files in the shapes that the
//! agents write.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use session_awareness::*;

mod agents;
mod opencode_store;

use agents::{MANAGER, Place, SESSION};

fn append(path: &Path, rows: &[Value]) {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
    file.write_all(text.as_bytes()).unwrap();
}

/// A number that no other call in this process was given.
fn fresh() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(1);
    LAST.fetch_add(1, Ordering::Relaxed)
}

fn claude(text: &str) -> Value {
    claude_row(&format!("u-{}", fresh()), text)
}

fn claude_row(uuid: &str, text: &str) -> Value {
    json!({"type": "user", "uuid": uuid, "sessionId": "s", "timestamp": now(), "origin": {"kind": "human"},
           "message": {"role": "user", "content": text}})
}

fn answer() -> Value {
    json!({"type": "assistant", "uuid": format!("a-{}", fresh()), "timestamp": now(),
           "message": {"role": "assistant", "content": [{"type": "text", "text": "done"}]}})
}

fn codex(kind: &str, payload: Value) -> Value {
    json!({"timestamp": now(), "type": kind, "payload": payload})
}

fn codex_prompt(text: &str) -> Value {
    codex(
        "event_msg",
        json!({"type": "user_message", "message": text}),
    )
}

fn codex_meta(thread: &str) -> Value {
    codex(
        "session_meta",
        json!({"id": thread, "source": "cli", "originator": "codex-tui", "cwd": "/home/dev"}),
    )
}

fn pi_header(version: u64) -> Value {
    json!({"type": "session", "version": version, "id": "p-1", "timestamp": now(), "cwd": "/home/dev"})
}

fn pi_prompt(text: &str) -> Value {
    json!({"type": "message", "id": format!("{:08x}", fresh()), "parentId": null, "timestamp": now(),
           "message": {"role": "user", "content": [{"type": "text", "text": text}]}})
}

/// Now, a moment later at each call, as the agents write it.
fn now() -> String {
    jiff::Timestamp::from_millisecond(now_ms())
        .unwrap()
        .to_string()
}

fn now_ms() -> i64 {
    use std::time::{SystemTime, UNIX_EPOCH};
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_millis() as i64 + fresh() as i64
}

fn adopt(aware: &Awareness, catalog: Catalog, source: &Path) -> Adopted {
    aware
        .adopt(Adopt::new(SESSION, catalog, source.to_str().unwrap()))
        .unwrap()
}

fn adopt_from_start(aware: &Awareness, key: &str, catalog: Catalog, source: &Path) -> Adopted {
    let request = Adopt {
        baseline: Some(Baseline::Start),
        ..Adopt::new(key, catalog, source.to_str().unwrap())
    };
    aware.adopt(request).unwrap()
}

fn scan(aware: &Awareness) -> Vec<(OutcomeKind, u64)> {
    let outcomes = aware.scan(Scan::default()).unwrap().outcomes;
    outcomes
        .iter()
        .map(|outcome| (outcome.outcome, outcome.human_turns))
        .collect()
}

fn kinds(aware: &Awareness) -> Vec<Kind> {
    aware
        .events(EventsRequest::default())
        .unwrap()
        .events
        .iter()
        .map(|event| event.kind)
        .collect()
}

/// How many human turns the log tells of.
fn told(aware: &Awareness) -> u64 {
    let request = EventsRequest {
        kinds: Some(vec![Kind::HumanDirectMessage]),
        limit: Some(1_000),
        ..Default::default()
    };
    let events = aware.events(request).unwrap().events;
    events
        .iter()
        .map(|event| {
            event
                .payload
                .as_ref()
                .and_then(PublicPayload::turns)
                .unwrap_or(1)
        })
        .sum()
}

/// How many rounds the background has made for the catalog.
fn passes(aware: &Awareness, catalog: &str) -> u64 {
    aware
        .stats()
        .unwrap()
        .scans
        .get(catalog)
        .map_or(0, |scans| scans.passes)
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

fn drain(aware: &Awareness) -> usize {
    aware
        .drain_notices(DrainNotices::new(MANAGER))
        .unwrap()
        .notices
        .len()
}

fn until(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "it did not come to that in 20 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

use OutcomeKind::{Activity, Deferred, Missing, Replaced, Unchanged};

// ---- turns -----------------------------------------------------------------

#[test]
fn what_was_there_at_the_adoption_is_not_told_and_what_comes_is_once() {
    let place = Place::new();
    let aware = place.open();
    for (catalog, file, head, prompt) in [
        (
            Catalog::Claude,
            "a.jsonl",
            vec![],
            claude as fn(&str) -> Value,
        ),
        (
            Catalog::Codex,
            "rollout-1.jsonl",
            vec![codex_meta("t-1")],
            codex_prompt,
        ),
        (Catalog::Pi, "p.jsonl", vec![pi_header(3)], pi_prompt),
    ] {
        let path = place.path(file);
        append(&path, &head);
        append(&path, &[prompt("before")]);
        adopt(&aware, catalog, &path);
        assert_eq!(scan(&aware), [(Unchanged, 0)], "{catalog:?}");
        append(&path, &[prompt("after")]);
        assert_eq!(scan(&aware), [(Activity, 1)], "{catalog:?}");
        assert_eq!(scan(&aware), [(Unchanged, 0)], "{catalog:?}");
        assert_eq!(drain(&aware), 1, "{catalog:?}");
        append(&path, &[prompt("one"), prompt("two")]);
        assert_eq!(scan(&aware), [(Activity, 2)], "{catalog:?}");
        assert_eq!(drain(&aware), 1, "{catalog:?}");
        // However many they are.
        let many: Vec<Value> = (0..1_500).map(|n| prompt(&format!("no {n}"))).collect();
        append(&path, &many);
        assert_eq!(scan(&aware), [(Activity, 1_500)], "{catalog:?}");
        assert_eq!(drain(&aware), 1, "{catalog:?}");
        aware.release(SessionRef::new(SESSION)).unwrap();
    }
    assert_eq!(told(&aware), 3 * (3 + 1_500));
}

#[test]
fn a_copy_in_another_file_is_told_once_and_two_links_on_one_file_are_each_told() {
    let place = Place::new();
    let aware = place.open();
    let (first, fork) = (place.path("first.jsonl"), place.path("fork.jsonl"));
    let rows = [claude("one"), claude("two")];
    append(&first, &rows);
    append(&fork, &rows);
    append(&fork, &[claude("of the fork")]);
    for key in ["agent:main:a", "agent:main:c", "agent:main:b"] {
        aware.watch(Watch::new(MANAGER, key)).unwrap();
    }
    adopt_from_start(&aware, "agent:main:a", Catalog::Claude, &first);
    assert_eq!(scan(&aware), [(Activity, 2)]);
    adopt_from_start(&aware, "agent:main:b", Catalog::Claude, &fork);
    assert_eq!(scan(&aware), [(Unchanged, 0), (Activity, 1)]);
    adopt_from_start(&aware, "agent:main:c", Catalog::Claude, &first);
    assert_eq!(
        scan(&aware),
        [(Unchanged, 0), (Unchanged, 0), (Activity, 2)]
    );
    // A session that is forgotten takes its own memory along, not that of others.
    aware
        .session_delete(SessionDelete {
            session_key: "agent:main:b".into(),
            agent_id: None,
        })
        .unwrap();
    aware.watch(Watch::new(MANAGER, "agent:main:b")).unwrap();
    adopt_from_start(&aware, "agent:main:b", Catalog::Claude, &fork);
    assert_eq!(scan(&aware)[1], (Activity, 1));
}

#[test]
fn a_link_that_is_made_again_tells_nothing_twice() {
    let place = Place::new();
    let aware = place.open();
    let path = place.path("a.jsonl");
    append(&path, &[claude("one")]);
    let first = adopt_from_start(&aware, SESSION, Catalog::Claude, &path);
    assert_eq!(scan(&aware), [(Activity, 1)]);
    let again = adopt_from_start(&aware, SESSION, Catalog::Claude, &path);
    assert_eq!(again.event, first.event);
    assert_eq!(scan(&aware), [(Unchanged, 0)]);
    assert!(aware.release(SessionRef::new(SESSION)).unwrap().released);
    assert!(!aware.release(SessionRef::new(SESSION)).unwrap().released);
    append(&path, &[claude("two")]);
    let anew = adopt_from_start(&aware, SESSION, Catalog::Claude, &path);
    assert!(anew.event.sequence > first.event.sequence);
    assert_eq!(scan(&aware), [(Activity, 1)]);
    assert_eq!(told(&aware), 2);
}

#[test]
fn the_hosts_own_messages_are_known_the_newest_ten_of_them() {
    let place = Place::new();
    let aware = place.open();
    let path = place.path("a.jsonl");
    append(&path, &[]);
    adopt(&aware, Catalog::Claude, &path);
    let own = |text: &str| {
        let request = OwnMessage {
            session_key: SESSION.into(),
            agent_id: None,
            text: text.into(),
        };
        assert!(aware.own_message(request).unwrap().remembered);
    };
    (0..11).for_each(|n| own(&format!("message  {n}\n")));
    append(
        &path,
        &[
            claude("message 0"),
            claude(" message 1"),
            claude("message 1"),
            claude("message 10"),
        ],
    );
    // The oldest of eleven is forgotten; a match does not use a message up.
    assert_eq!(scan(&aware), [(Activity, 1)]);
    assert_eq!(told(&aware), 1);
}

#[test]
fn nobody_watching_nothing_is_recorded_and_nothing_told_later() {
    let place = Place::new();
    let aware = Awareness::open(place.config()).unwrap();
    let path = place.path("a.jsonl");
    append(&path, &[]);
    adopt(&aware, Catalog::Claude, &path);
    append(&path, &[claude("one")]);
    assert_eq!(scan(&aware), [(Activity, 1)]);
    aware.watch(Watch::new(MANAGER, SESSION)).unwrap();
    assert_eq!(scan(&aware), [(Unchanged, 0)]);
    assert_eq!(kinds(&aware), [Kind::Adopted]);
}

#[test]
fn a_turn_of_a_long_past_is_stored_with_the_clamped_time() {
    let place = Place::new();
    let aware = place.open();
    let path = place.path("a.jsonl");
    let mut row = claude("one");
    row["timestamp"] = json!("2020-01-01T00:00:00.000Z");
    append(&path, &[row]);
    adopt_from_start(&aware, SESSION, Catalog::Claude, &path);
    scan(&aware);
    let events = aware.events(EventsRequest::default()).unwrap().events;
    assert!(events[1].occurred_at > 1_700_000_000_000);
}

// ---- the file ----------------------------------------------------------------

#[test]
fn a_file_that_was_rewritten_or_cut_tells_nothing_twice_and_loses_nothing() {
    let place = Place::new();
    let aware = place.open();
    let path = place.path("a.jsonl");
    let rows = [claude("one"), answer(), claude("two"), answer()];
    append(&path, &rows);
    adopt_from_start(&aware, SESSION, Catalog::Claude, &path);
    assert_eq!(scan(&aware), [(Activity, 2)]);
    // Cut in place.
    std::fs::write(&path, format!("{}\n", rows[0])).unwrap();
    assert_eq!(scan(&aware), [(Replaced, 0)]);
    // The same size, another content.
    append(&path, &[claude("three")]);
    assert_eq!(scan(&aware), [(Activity, 1)]);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        text.replace("three", "seven").replace("\"u-", "\"v-"),
    )
    .unwrap();
    assert_eq!(scan(&aware), [(Replaced, 2)]);
    // Another file at the same path.
    let other = place.path("other.jsonl");
    append(&other, &[rows[0].clone(), claude("four")]);
    std::fs::rename(&other, &path).unwrap();
    assert_eq!(scan(&aware), [(Replaced, 1)]);
    assert_eq!(scan(&aware), [(Unchanged, 0)]);
}

#[test]
fn a_file_rewritten_in_place_while_it_is_read_is_read_anew() {
    let place = Place::new();
    let aware = place.open();
    let path = place.path("a.jsonl");
    let row = format!("{}\n", answer());
    std::fs::write(&path, row.repeat((160 << 20) / row.len())).unwrap();
    adopt_from_start(&aware, SESSION, Catalog::Claude, &path);
    std::thread::scope(|scope| {
        let scanning = scope.spawn(|| aware.scan(Scan::default()).unwrap());
        // The first slice of several is stored.
        until(|| scanning.is_finished() || aware.stats().unwrap().wal_bytes > 0);
        let rows: String = (0..5).map(|_| format!("{}\n", claude("typed"))).collect();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, rows.as_bytes(), 0).unwrap();
        scanning.join().unwrap();
    });
    scan(&aware);
    assert_eq!(told(&aware), 5);
}

#[test]
fn a_file_of_codex_is_followed_to_the_archive_and_into_its_compressed_form() {
    let place = Place::new();
    let aware = place.open();
    let thread = "01a22c79-48ed-7480-a102-2d91c8ce991a";
    let name = format!("rollout-2026-11-30T12-41-15-{thread}.jsonl");
    let live = place.path(&format!("codex/sessions/2026/11/30/{name}"));
    let archived = place.path(&format!("codex/archived_sessions/{name}"));
    append(&live, &[codex_meta(thread), codex_prompt("one")]);
    adopt_from_start(&aware, SESSION, Catalog::Codex, &live);
    assert_eq!(scan(&aware), [(Activity, 1)]);
    std::fs::rename(&live, &archived).unwrap();
    assert_eq!(scan(&aware), [(Unchanged, 0)]);
    append(&archived, &[codex_prompt("two")]);
    assert_eq!(scan(&aware), [(Activity, 1)]);
    let links = aware.links(LinksRequest::default()).unwrap().links;
    assert_eq!(links[0].source.as_deref(), archived.to_str());
    let packed = zstd::encode_all(std::fs::File::open(&archived).unwrap(), 3).unwrap();
    std::fs::write(archived.with_extension("jsonl.zst"), packed).unwrap();
    std::fs::remove_file(&archived).unwrap();
    let outcome = scan(&aware);
    assert_eq!(outcome[0].1, 0, "{outcome:?}");
    assert_ne!(outcome[0].0, Missing);
    assert_eq!(told(&aware), 2);
}

#[test]
fn a_thread_of_codex_that_goes_on_in_another_file_is_followed() {
    let place = Place::new();
    let aware = place.open();
    let thread = "01a22c79-48ed-7480-a102-2d91c8ce991a";
    let folder = "codex/sessions/2026/11/30";
    let first = place.path(&format!(
        "{folder}/rollout-2026-11-30T12-41-15-{thread}.jsonl"
    ));
    append(&first, &[codex_meta(thread), codex_prompt("one")]);
    let adopted = adopt(&aware, Catalog::Codex, &first);
    let segment = place.path(&format!(
        "{folder}/rollout-2026-11-30T12-50-00-{thread}_01a22c79-e5e6-7ec1-b702-5e5662169828.jsonl"
    ));
    let mut meta = codex_meta(thread);
    meta["payload"]["history_base"] = json!({"thread_id": thread, "end_ordinal_exclusive": 3});
    append(&segment, &[meta, codex_prompt("edited")]);
    assert_eq!(scan(&aware), [(Activity, 1)]);
    append(&segment, &[codex_prompt("and on")]);
    // The host names it as it did before: it is the same session.
    let again = adopt(&aware, Catalog::Codex, &first);
    assert_eq!(again.event.sequence, adopted.event.sequence);
    assert_eq!(scan(&aware), [(Activity, 1)]);
    std::fs::remove_file(&first).unwrap();
    assert_eq!(adopt(&aware, Catalog::Codex, &first).event, again.event);
}

#[test]
fn three_misses_in_a_row_end_a_link_and_are_counted_over_restarts() {
    let place = Place::new();
    let mut aware = place.open();
    let path = place.path("a.jsonl");
    let away = place.path("away");
    append(&path, &[claude("one")]);
    adopt(&aware, Catalog::Claude, &path);
    let missing =
        |aware: &Awareness| aware.links(LinksRequest::default()).unwrap().links[0].missing;
    std::fs::rename(&path, &away).unwrap();
    assert_eq!(scan(&aware), [(Missing, 0)]);
    assert_eq!(scan(&aware), [(Missing, 0)]);
    assert_eq!(missing(&aware), 2);
    std::fs::rename(&away, &path).unwrap();
    assert_eq!(scan(&aware), [(Unchanged, 0)]);
    assert_eq!(missing(&aware), 0);
    std::fs::rename(&path, &away).unwrap();
    for _ in 0..2 {
        assert_eq!(scan(&aware), [(Missing, 0)]);
        aware.close().unwrap();
        aware = place.open();
    }
    assert_eq!(scan(&aware), [(Missing, 0)]);
    assert_eq!(kinds(&aware), [Kind::Adopted, Kind::UpstreamMissing]);
    assert!(scan(&aware).is_empty());
    assert_eq!(drain(&aware), 1);
    // Resumed later, it is a new link with a count of its own.
    std::fs::rename(&away, &path).unwrap();
    adopt(&aware, Catalog::Claude, &path);
    assert_eq!(missing(&aware), 0);
}

#[test]
fn a_source_that_cannot_be_read_is_an_error_and_no_miss() {
    let place = Place::new();
    let aware = place.open();
    let path = place.path("folder/a.jsonl");
    append(&path, &[claude("one")]);
    adopt(&aware, Catalog::Claude, &path);
    // Not even root can look into what is no folder, or follow a link to itself.
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(path.parent().unwrap(), path.parent().unwrap()).unwrap();
    let outcome = &aware.scan(Scan::default()).unwrap().outcomes[0];
    assert_eq!(outcome.outcome, OutcomeKind::Error);
    assert!(outcome.message.is_some());
    assert_eq!(
        aware.links(LinksRequest::default()).unwrap().links[0].missing,
        0
    );
}

#[test]
fn a_link_in_error_is_told_with_its_cause_until_it_can_be_read() {
    let place = Place::new();
    let aware = place.open();
    let path = place.path("folder/a.jsonl");
    let folder = path.parent().unwrap();
    append(&path, &[claude("one")]);
    append(&place.path("b.jsonl"), &[claude("one")]);
    adopt(&aware, Catalog::Claude, &path);
    // Another link, which is well, and before it in the list.
    let well = Adopt::new(
        "agent:a:a",
        Catalog::Claude,
        place.path("b.jsonl").to_str().unwrap(),
    );
    aware.adopt(well).unwrap();
    let links = |aware: &Awareness| {
        let links = aware.links(LinksRequest::default()).unwrap().links;
        let in_error = aware.stats().unwrap().links_in_error;
        let faults = links.iter().filter(|link| link.fault.is_some()).count();
        assert_eq!(in_error, faults as u64);
        assert_eq!(links.len(), 2);
        assert_eq!(links[0].fault, None);
        links[1].fault.clone()
    };
    assert_eq!(scan(&aware), [(Unchanged, 0); 2]);
    assert_eq!(links(&aware), None);

    let aside = place.path("aside");
    std::fs::rename(folder, &aside).unwrap();
    std::os::unix::fs::symlink(folder, folder).unwrap();
    let before = now_ms();
    let outcomes = aware.scan(Scan::default()).unwrap().outcomes;
    let fault = links(&aware).unwrap();
    assert_eq!(Some(&fault.message), outcomes[1].message.as_ref());
    assert!((before - 10_000..=now_ms()).contains(&fault.since));
    // It goes on, is not made younger, and is told by every handle.
    scan(&aware);
    let reader = Awareness::open(Config {
        read_only: Some(true),
        ..place.config()
    });
    assert_eq!(links(&reader.unwrap()), Some(fault.clone()));
    aware.close().unwrap();
    let aware = place.open();
    assert_eq!(links(&aware), Some(fault));

    std::fs::remove_file(folder).unwrap();
    std::fs::rename(&aside, folder).unwrap();
    assert_eq!(scan(&aware), [(Unchanged, 0); 2]);
    assert_eq!(links(&aware), None);
}

// ---- runs, other hosts ---------------------------------------------------------

#[test]
fn while_the_host_runs_a_session_it_is_deferred_and_nothing_is_lost() {
    let place = Place::new();
    let aware = place.open();
    let other = Awareness::open(place.config()).unwrap();
    let path = place.path("a.jsonl");
    append(&path, &[]);
    adopt(&aware, Catalog::Claude, &path);
    let run = |handle: &Awareness, active| {
        let request = SetRunActive {
            session_key: SESSION.into(),
            agent_id: None,
            active,
        };
        assert_eq!(handle.set_run_active(request).unwrap().active, active);
    };
    run(&other, true);
    append(&path, &[claude("one")]);
    assert_eq!(scan(&aware), [(Deferred, 0)]);
    // Another handle's mark is not this one's to take away.
    let request = SetRunActive {
        session_key: SESSION.into(),
        agent_id: None,
        active: false,
    };
    assert!(aware.set_run_active(request).unwrap().active);
    assert_eq!(scan(&aware), [(Deferred, 0)]);
    other.close().unwrap();
    assert_eq!(scan(&aware), [(Activity, 1)]);
}

#[test]
fn rows_of_another_host_are_told_once_and_not_those_before_the_adoption() {
    let place = Place::new();
    let aware = place.open();
    let remote = |baseline| Adopt {
        source: None,
        thread_id: Some("t-9".into()),
        host_id: Some("node:n1".into()),
        baseline: Some(baseline),
        ..Adopt::new(SESSION, Catalog::Claude, "")
    };
    aware.adopt(remote(Baseline::Now)).unwrap();
    let feed = |rows: &[&Value]| {
        let rows = rows
            .iter()
            .map(|row| serde_json::value::to_raw_value(row).unwrap())
            .collect();
        let request = Feed {
            session_key: SESSION.into(),
            agent_id: None,
            rows: Some(rows),
            missing: None,
        };
        let outcome = aware.feed(request).unwrap();
        (outcome.outcome, outcome.human_turns)
    };
    let mut old = claude("old");
    old["timestamp"] = json!("2020-01-01T00:00:00.000Z");
    let new = claude("new");
    assert_eq!(feed(&[&old]).1, 0);
    assert_eq!(feed(&[&old, &new]), (Activity, 1));
    assert_eq!(feed(&[&old, &new]).1, 0);
    let gone = || {
        let request = Feed {
            session_key: SESSION.into(),
            agent_id: None,
            rows: None,
            missing: Some(true),
        };
        aware.feed(request).map(|outcome| outcome.outcome)
    };
    assert_eq!(gone().unwrap(), Missing);
    assert_eq!(gone().unwrap(), Missing);
    feed(&[]);
    for _ in 0..3 {
        assert_eq!(gone().unwrap(), Missing);
    }
    assert_eq!(gone().unwrap_err().code, Code::NotFound);
    assert_eq!(kinds(&aware).last(), Some(&Kind::UpstreamMissing));
}

#[test]
fn what_cannot_be_adopted_is_told_with_its_field() {
    let place = Place::new();
    let aware = place.open();
    let path = place.path("a.jsonl");
    append(&path, &[]);
    let source = path.to_str().unwrap();
    let folder = path.parent().unwrap().to_str().unwrap();
    let bare = |catalog| Adopt {
        source: None,
        ..Adopt::new(SESSION, catalog, "")
    };
    for (request, code, field) in [
        (
            Adopt::new(SESSION, Catalog::Claude, format!("{source}.none")),
            Code::NotFound,
            "source",
        ),
        (
            Adopt::new(SESSION, Catalog::Claude, folder),
            Code::NotFound,
            "source",
        ),
        (bare(Catalog::Claude), Code::InvalidArgument, "source"),
        (
            Adopt {
                thread_id: Some("none".into()),
                ..bare(Catalog::Pi)
            },
            Code::NotFound,
            "threadId",
        ),
        (
            Adopt::new(SESSION, Catalog::Opencode, source),
            Code::InvalidArgument,
            "threadId",
        ),
        (
            Adopt {
                thread_id: Some("x".repeat(513)),
                ..bare(Catalog::Pi)
            },
            Code::InvalidArgument,
            "threadId",
        ),
        (
            Adopt::new(SESSION, Catalog::Pi, "x".repeat(4_097)),
            Code::InvalidArgument,
            "source",
        ),
        (
            Adopt {
                host_id: Some("node".into()),
                ..bare(Catalog::Pi)
            },
            Code::InvalidArgument,
            "threadId",
        ),
        (
            Adopt::new("agent:", Catalog::Claude, source),
            Code::InvalidArgument,
            "sessionKey",
        ),
    ] {
        let error = aware.adopt(request).unwrap_err();
        assert_eq!(
            (error.code, error.field.as_deref()),
            (code, Some(field)),
            "{error}"
        );
    }
    assert!(
        aware
            .links(LinksRequest::default())
            .unwrap()
            .links
            .is_empty()
    );
    assert!(kinds(&aware).is_empty());
}

#[test]
fn an_old_file_of_pi_is_adopted_without_a_link() {
    let place = Place::new();
    let aware = place.open();
    let path = place.path("p.jsonl");
    append(&path, &[pi_header(2), pi_prompt("one")]);
    let adopted = adopt(&aware, Catalog::Pi, &path);
    assert_eq!(
        (adopted.linked, adopted.reason, adopted.link),
        (false, Some("legacy_format"), None)
    );
    assert_eq!(kinds(&aware), [Kind::Adopted]);
}

#[test]
fn the_stores_of_all_agents_are_searched_newest_first() {
    let place = Place::new();
    let aware = place.open();
    let thread = "01a22c79-48ed-7480-a102-2d91c8ce991a";
    let files = [
        (
            place.path("claude/projects/-home-dev/11111111-1111-4111-8111-111111111111.jsonl"),
            vec![claude("one")],
        ),
        (
            place.path(&format!(
                "codex/sessions/2026/11/30/rollout-2026-11-30T12-41-15-{thread}.jsonl"
            )),
            vec![codex_meta(thread)],
        ),
        (
            place.path("pi/sessions/--home-dev--/2026-11-30T12-00-00-000Z_p-1.jsonl"),
            vec![pi_header(3)],
        ),
    ];
    for (at, (path, rows)) in files.iter().enumerate() {
        append(path, rows);
        let time =
            std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000 + at as u64);
        OpenOptions::new()
            .append(true)
            .open(path)
            .unwrap()
            .set_modified(time)
            .unwrap();
    }
    // A file that does not say yet whose it is may be a sub-agent's.
    let silent = "01a22d1f-c0a5-71d1-aa37-ecfba80dda72";
    let name = format!("codex/sessions/2026/11/30/rollout-2026-11-30T15-43-05-{silent}.jsonl");
    append(&place.path(&name), &[]);
    let store = opencode_store(&place.path("opencode/opencode.db"));
    opencode_message(&store, "msg_1", "one");
    let found = aware.discover(Discover::default()).unwrap().sessions;
    let catalogs: Vec<Catalog> = found.iter().map(|session| session.catalog).collect();
    assert_eq!(
        catalogs,
        [
            Catalog::Opencode,
            Catalog::Pi,
            Catalog::Codex,
            Catalog::Claude
        ]
    );
    for session in &found {
        let request = Adopt::thread(SESSION, session.catalog, &session.thread_id);
        let link = aware.adopt(request).unwrap().link.unwrap();
        assert_eq!(link.source.as_deref(), Some(session.source.as_str()));
    }
    let page = aware
        .discover(Discover {
            limit: Some(1),
            offset: Some(3),
            ..Discover::default()
        })
        .unwrap();
    assert!(page.sessions[0].adopted && !page.more);
    assert!(
        !aware
            .discover(Discover {
                limit: Some(1),
                ..Discover::default()
            })
            .unwrap()
            .sessions[0]
            .adopted
    );
}

/// Links are read by other processes too, and after the host has changed its folder.
#[test]
fn what_is_found_under_a_relative_root_has_an_absolute_path() {
    let place = Place::new();
    append(
        &place.path("claude/projects/-home-dev/11111111-1111-4111-8111-111111111111.jsonl"),
        &[claude("one")],
    );
    append(
        &place
            .path("codex/sessions/2026/11/30/rollout-2026-11-30T12-41-15-01a22c79-48ed-7480-a102-2d91c8ce991a.jsonl"),
        &[codex_meta("01a22c79-48ed-7480-a102-2d91c8ce991a")],
    );
    append(
        &place.path("pi/sessions/--home-dev--/2026-11-30T12-00-00-000Z_p-1.jsonl"),
        &[pi_header(3)],
    );
    let store = opencode_store(&place.path("opencode/opencode.db"));
    opencode_message(&store, "msg_1", "one");

    let here = std::env::current_dir().unwrap();
    let up = "../".repeat(here.components().count() - 1);
    let mut config = place.config();
    let roots = config.monitor.as_mut().unwrap().roots.as_mut().unwrap();
    for root in [
        &mut roots.claude,
        &mut roots.codex,
        &mut roots.opencode,
        &mut roots.pi,
    ] {
        *root = root.take().map(|path| format!("{up}{}", &path[1..]));
    }
    let aware = Awareness::open(config).unwrap();
    let found = aware.discover(Discover::default()).unwrap().sessions;
    assert_eq!(found.len(), Catalog::ALL.len(), "{found:?}");
    for session in found {
        let key = format!("agent:main:{}", session.catalog.as_str());
        let adopt = Adopt::thread(key, session.catalog, session.thread_id);
        let link = aware.adopt(adopt).unwrap().link.unwrap();
        let source = link.source.unwrap();
        assert!(Path::new(&source).is_absolute(), "{source}");
        assert_eq!(source, session.source);
    }
}

#[test]
fn a_root_without_a_path_is_told_with_its_field() {
    let place = Place::new();
    let mut config = place.config();
    let roots = config.monitor.as_mut().unwrap().roots.as_mut().unwrap();
    roots.pi = Some(String::new());
    let error = Awareness::open(config).err().unwrap();
    assert_eq!(error.code, Code::InvalidArgument);
    assert_eq!(error.field.as_deref(), Some("monitor.roots.pi"));
    assert!(!place.database().exists());
}

// ---- OpenCode -------------------------------------------------------------------

const OPENCODE_THREAD: &str = "ses_1";

fn opencode_store(path: &Path) -> rusqlite::Connection {
    let conn = opencode_store::make(path, OPENCODE_THREAD);
    conn.execute_batch("PRAGMA journal_mode = WAL").unwrap();
    conn
}

fn opencode_message(conn: &rusqlite::Connection, id: &str, text: &str) {
    opencode_message_at(conn, id, text, now_ms());
}

fn opencode_message_at(conn: &rusqlite::Connection, id: &str, text: &str, time: i64) {
    let data = json!({"role": "user", "time": {"created": time}}).to_string();
    conn.execute(
        "INSERT INTO message VALUES (?1, ?2, ?3, ?3, ?4)",
        rusqlite::params![id, OPENCODE_THREAD, time, data],
    )
    .unwrap();
    let part = json!({"type": "text", "text": text}).to_string();
    conn.execute(
        "INSERT INTO part VALUES ('prt_' || ?1, ?1, ?2, ?3, ?3, ?4)",
        rusqlite::params![id, OPENCODE_THREAD, time, part],
    )
    .unwrap();
    conn.execute("UPDATE session SET time_updated = ?1", [time])
        .unwrap();
}

#[test]
fn a_session_of_opencode_is_told_once_with_what_is_only_in_the_wal() {
    let place = Place::new();
    let aware = place.open();
    let source = place.path("opencode/opencode.db");
    let store = opencode_store(&source);
    opencode_message_at(&store, "msg_1", "before", now_ms() - 60_000);
    let request = Adopt {
        thread_id: Some(OPENCODE_THREAD.into()),
        ..Adopt::new(SESSION, Catalog::Opencode, source.to_str().unwrap())
    };
    aware.adopt(request.clone()).unwrap();
    assert_eq!(scan(&aware), [(Unchanged, 0)]);
    opencode_message(&store, "msg_2", "after");
    assert_eq!(scan(&aware), [(Activity, 1)]);
    assert_eq!(scan(&aware), [(Unchanged, 0)]);
    aware
        .own_message(OwnMessage {
            session_key: SESSION.into(),
            agent_id: None,
            text: "run the tests".into(),
        })
        .unwrap();
    opencode_message(&store, "msg_3", "\"run the tests\"");
    assert_eq!(scan(&aware), [(Activity, 0)]);
    // Adopted while the host runs it: the baseline waits, and what is typed then is no part of it.
    let run = |active| {
        let request = SetRunActive {
            session_key: SESSION.into(),
            agent_id: None,
            active,
        };
        aware.set_run_active(request).unwrap();
    };
    aware.release(SessionRef::new(SESSION)).unwrap();
    run(true);
    aware.adopt(request.clone()).unwrap();
    opencode_message(&store, "msg_4", "meanwhile");
    run(false);
    aware.adopt(request.clone()).unwrap();
    scan(&aware);
    assert_eq!(told(&aware), 2);
    store.execute("DELETE FROM session", []).unwrap();
    for _ in 0..3 {
        assert_eq!(scan(&aware), [(Missing, 0)]);
    }
    assert_eq!(told(&aware), 2);
    let error = aware.adopt(request).unwrap_err();
    assert_eq!(error.code, Code::NotFound);
}

// ---- the background ---------------------------------------------------------------

#[test]
fn the_background_is_told_by_file_events_of_every_agent() {
    let place = Place::new();
    let aware = place.open_watching(3_600_000, true);
    let thread = "01a22c79-48ed-7480-a102-2d91c8ce991a";
    for (catalog, file, head, prompt) in [
        (
            Catalog::Claude,
            "a.jsonl".to_owned(),
            vec![],
            claude as fn(&str) -> Value,
        ),
        (
            Catalog::Codex,
            format!("codex/sessions/2026/11/30/rollout-2026-11-30T12-41-15-{thread}.jsonl"),
            vec![codex_meta(thread)],
            codex_prompt,
        ),
        (
            Catalog::Pi,
            "p.jsonl".to_owned(),
            vec![pi_header(3)],
            pi_prompt,
        ),
    ] {
        let path = place.path(&file);
        append(&path, &head);
        adopt(&aware, catalog, &path);
        for _ in 0..3 {
            append(&path, &[prompt("typed")]);
            assert_eq!(
                wakes(&aware, 20_000),
                1,
                "{catalog:?} {:?} {:?}",
                aware.stats(),
                aware.links(LinksRequest::default())
            );
            assert_eq!(drain(&aware), 1);
        }
    }
    let source = place.path("opencode/opencode.db");
    let store = opencode_store(&source);
    let request = Adopt {
        thread_id: Some(OPENCODE_THREAD.into()),
        ..Adopt::new(SESSION, Catalog::Opencode, source.to_str().unwrap())
    };
    aware.adopt(request).unwrap();
    for n in 0..3 {
        opencode_message(&store, &format!("msg_{n}"), &format!("typed {n}"));
        assert_eq!(wakes(&aware, 20_000), 1);
        assert_eq!(drain(&aware), 1);
    }
    let stats = aware.stats().unwrap();
    assert_eq!((stats.file_events, stats.links), (FileEvents::Full, 1));
    assert!(passes(&aware, "claude") >= 1);
}

#[test]
fn a_session_of_a_quiet_store_that_another_handle_adopted_is_looked_at() {
    let place = Place::new();
    let source = place.path("opencode/opencode.db");
    let store = opencode_store(&source);
    opencode_message(&store, "msg_1", "typed");
    let aware = place.open_watching(100, true);
    let adopt = |handle: &Awareness, key: &str, baseline| {
        let request = Adopt {
            thread_id: Some(OPENCODE_THREAD.into()),
            baseline: Some(baseline),
            ..Adopt::new(key, Catalog::Opencode, source.to_str().unwrap())
        };
        handle.adopt(request).unwrap();
    };
    adopt(&aware, SESSION, Baseline::Now);
    // Looked at and found well: nothing is written to the store any more.
    until(|| passes(&aware, "opencode") > 0);
    let other = Awareness::open(place.config()).unwrap();
    let key = "agent:main:b";
    other.watch(Watch::new(MANAGER, key)).unwrap();
    adopt(&other, key, Baseline::Start);
    until(|| told(&aware) == 1);
}

#[test]
fn reading_a_store_of_opencode_does_not_wake_the_background() {
    let place = Place::new();
    let aware = place.open_watching(3_600_000, true);
    let source = place.path("opencode/opencode.db");
    let store = opencode_store(&source);
    let request = Adopt {
        thread_id: Some(OPENCODE_THREAD.into()),
        ..Adopt::new(SESSION, Catalog::Opencode, source.to_str().unwrap())
    };
    aware.adopt(request).unwrap();
    opencode_message(&store, "msg_1", "typed");
    assert_eq!(wakes(&aware, 20_000), 1);
    let passes = || passes(&aware, "opencode");
    // Quiet when two readings a second apart say the same; a store that woke itself would never be.
    let mut last = passes();
    until(|| {
        std::thread::sleep(Duration::from_secs(1));
        std::mem::replace(&mut last, passes()) == last
    });
}

#[test]
fn the_interval_finds_what_no_event_told_and_counts_one_miss_each() {
    let place = Place::new();
    let aware = place.open_watching(300, false);
    let path = place.path("a.jsonl");
    append(&path, &[]);
    adopt(&aware, Catalog::Claude, &path);
    append(&path, &[claude("one")]);
    assert_eq!(wakes(&aware, 20_000), 1);
    assert_eq!(aware.stats().unwrap().file_events, FileEvents::Off);
    // A second process, with rounds of its own, does not double the misses.
    let _other = place.open_watching(300, false);
    let began = Instant::now();
    std::fs::remove_file(&path).unwrap();
    until(|| kinds(&aware).contains(&Kind::UpstreamMissing));
    assert!(
        began.elapsed() >= Duration::from_millis(600),
        "three misses are at least two intervals"
    );
}

#[test]
fn a_run_that_ends_has_its_session_looked_at() {
    let place = Place::new();
    let aware = place.open_watching(3_600_000, true);
    let path = place.path("a.jsonl");
    append(&path, &[]);
    adopt(&aware, Catalog::Claude, &path);
    let run = |active| {
        let request = SetRunActive {
            session_key: SESSION.into(),
            agent_id: None,
            active,
        };
        aware.set_run_active(request).unwrap();
    };
    run(true);
    let passes = || passes(&aware, "claude");
    let before = passes();
    append(&path, &[claude("one")]);
    until(|| passes() > before);
    assert_eq!(told(&aware), 0);
    run(false);
    assert_eq!(wakes(&aware, 20_000), 1);
}

#[test]
fn closing_does_not_wait_for_a_long_reading() {
    let place = Place::new();
    let aware = place.open_watching(3_600_000, true);
    let path = place.path("a.jsonl");
    let row = format!("{}\n", answer());
    std::fs::write(&path, row.repeat((256 << 20) / row.len())).unwrap();
    adopt_from_start(&aware, SESSION, Catalog::Claude, &path);
    std::thread::scope(|scope| {
        let scanning = scope.spawn(|| aware.scan(Scan::default()));
        until(|| {
            aware
                .stats()
                .is_ok_and(|stats| stats.scans.contains_key("claude"))
        });
        aware.close().unwrap();
        // It came to an end, or was told to stop; both are answers.
        if let Err(error) = scanning.join().unwrap() {
            assert_eq!(error.code, Code::Closed);
        }
    });
}

// ---- several handles, and folders that come and go -------------------------------------

#[test]
fn two_scans_that_meet_on_a_missing_session_of_opencode_both_count() {
    let place = Place::new();
    let source = place.path("opencode/opencode.db");
    let store = opencode_store(&source);
    let handles = [place.open(), Awareness::open(place.config()).unwrap()];
    adopt_opencode(
        &handles[0],
        SESSION,
        OPENCODE_THREAD,
        &source,
        Baseline::Now,
    );
    let misses = || handles[0].links(LinksRequest::default()).unwrap().links[0].missing;
    let rename = |from: &str, to: &str| {
        store
            .execute("UPDATE session SET id = ?2 WHERE id = ?1", [from, to])
            .unwrap();
    };
    for round in 0..40 {
        rename(OPENCODE_THREAD, "ses_away");
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let scans = handles.each_ref().map(|handle| {
                scope.spawn(|| {
                    start.wait();
                    scan(handle)
                })
            });
            for scanned in scans {
                assert_eq!(scanned.join().unwrap(), [(Missing, 0)], "round {round}");
            }
        });
        assert_eq!(misses(), 2, "round {round}");
        rename("ses_away", OPENCODE_THREAD);
        assert_eq!(scan(&handles[0]), [(Unchanged, 0)]);
        assert_eq!(misses(), 0);
    }
}

#[test]
fn a_folder_that_two_handles_watch_is_watched_again_when_it_was_made_anew() {
    let interval = Duration::from_secs(3);
    let place = Place::new();
    let path = place.path("folder/a.jsonl");
    append(&path, &[]);
    let handles = [0, 1].map(|_| place.open_watching(interval.as_millis() as u64, true));
    adopt(&handles[0], Catalog::Claude, &path);
    let mut typed = 0;
    // Each handle looks at what an event tells it of, whoever stores it: well before its next round.
    let mut is_told_by_events = || {
        let looks = || handles.each_ref().map(|handle| passes(handle, "claude"));
        let (began, before) = (Instant::now(), looks());
        append(&path, &[claude("typed")]);
        typed += 1;
        loop {
            if looks()
                .iter()
                .zip(before)
                .all(|(now, before)| *now > before)
            {
                return true;
            }
            if began.elapsed() > interval / 2 {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    // The second handle learns of the link in a round.
    until(&mut is_told_by_events);
    for _ in 0..2 {
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        // Once can be by a round that came by chance, but three times in a row cannot.
        until(|| (0..3).all(|_| is_told_by_events()));
    }
    until(|| told(&handles[0]) == typed);
}

#[test]
fn a_folder_that_changes_itself_is_heard_of_no_less() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let aware = place.open_watching(3_600_000, true);
    let path = place.path("folder/a.jsonl");
    append(&path, &[]);
    adopt(&aware, Catalog::Claude, &path);
    for mode in [0o700, 0o755, 0o700] {
        let folder = path.parent().unwrap();
        std::fs::set_permissions(folder, PermissionsExt::from_mode(mode)).unwrap();
        append(&path, &[claude("typed")]);
        assert_eq!(wakes(&aware, 20_000), 1, "after mode {mode:o}");
        assert_eq!(drain(&aware), 1);
    }
}

#[test]
fn each_row_wakes_beside_a_busy_store_of_another_agent() {
    const LINKS: usize = 20;
    const ROWS: usize = 200;
    let place = Place::new();
    let aware = place.open_watching(3_600_000, true);
    let source = place.path("opencode/opencode.db");
    let store = opencode_store(&source);
    adopt_opencode(
        &aware,
        "agent:main:busy",
        OPENCODE_THREAD,
        &source,
        Baseline::Now,
    );
    let linked: Vec<_> = (0..LINKS)
        .map(|n| {
            let key = format!("agent:main:linked-{n}");
            let path = place.path(&format!("folder-{}/{n}.jsonl", n % 4));
            append(&path, &[]);
            aware.watch(Watch::new(MANAGER, &*key)).unwrap();
            aware
                .adopt(Adopt::new(&*key, Catalog::Claude, path.to_str().unwrap()))
                .unwrap();
            (key, path)
        })
        .collect();
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                opencode_message(&store, &format!("msg_{n:08}"), &format!("typed {n}"));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let ends = Ends(done);
        for n in 0..ROWS {
            let (key, path) = &linked[n * 7 % LINKS];
            append(path, &[claude("typed")]);
            let wait = WaitWakes {
                timeout_ms: 20_000,
                max: None,
            };
            let wakes = aware.wait_wakes(wait).unwrap().wakes;
            let targets: Vec<_> = wakes.iter().map(|wake| &wake.target_session_key).collect();
            assert_eq!(targets, [key], "row {n}");
            assert_eq!(drain(&aware), 1);
        }
        drop(ends);
    });
    assert_eq!(told(&aware), ROWS as u64);
    assert!(passes(&aware, "opencode") > 1);
}

#[test]
fn a_link_that_is_turned_to_another_source_is_heard_of_there() {
    for by_itself in [true, false] {
        let place = Place::new();
        // What other handles do is seen in a round; its own calls are heard at once.
        let interval_ms = if by_itself { 3_600_000 } else { 100 };
        let aware = place.open_watching(interval_ms, true);
        let other = place.open();
        for turned in 0..3 {
            let path = place.path(&format!("folder-{turned}/{turned}.jsonl"));
            append(&path, &[]);
            let adopts = if by_itself { &aware } else { &other };
            adopt(adopts, Catalog::Claude, &path);
            for typed in 1..=2 {
                append(&path, &[claude("typed")]);
                until(|| told(&aware) == turned * 2 + typed);
            }
        }
    }
}

#[test]
fn a_file_behind_a_link_is_heard_of_by_both_its_names() {
    let place = Place::new();
    let aware = place.open_watching(3_600_000, true);
    let (file, other) = (place.path("real/a.jsonl"), place.path("real/other.jsonl"));
    let (link, turned) = (place.path("links/a.jsonl"), place.path("links/turned"));
    append(&file, &[]);
    append(&other, &[claude("elsewhere")]);
    std::os::unix::fs::symlink(&file, &link).unwrap();
    adopt(&aware, Catalog::Claude, &link);
    for _ in 0..2 {
        append(&file, &[claude("typed")]);
        assert_eq!(wakes(&aware, 20_000), 1);
        assert_eq!(drain(&aware), 1);
    }
    std::os::unix::fs::symlink(&other, &turned).unwrap();
    std::fs::rename(&turned, &link).unwrap();
    assert_eq!(wakes(&aware, 20_000), 1);
}

#[test]
fn a_thread_that_goes_on_in_another_file_is_heard_of() {
    let place = Place::new();
    let aware = place.open_watching(3_600_000, true);
    let thread = "01a22c79-48ed-7480-a102-2d91c8ce991a";
    let named = |name: &str| {
        place.path(&format!(
            "codex/sessions/2026/11/30/rollout-2026-11-30T{name}.jsonl"
        ))
    };
    let first = named(&format!("12-41-15-{thread}"));
    append(&first, &[codex_meta(thread)]);
    adopt(&aware, Catalog::Codex, &first);
    append(&first, &[codex_prompt("one")]);
    assert_eq!(wakes(&aware, 20_000), 1);
    assert_eq!(drain(&aware), 1);
    let segment = named(&format!(
        "12-50-00-{thread}_01a22c79-e5e6-7ec1-b702-5e5662169828"
    ));
    let mut meta = codex_meta(thread);
    meta["payload"]["history_base"] = json!({"thread_id": thread, "end_ordinal_exclusive": 2});
    append(&segment, &[meta, codex_prompt("edited")]);
    for words in ["and on", "and on again"] {
        assert_eq!(wakes(&aware, 20_000), 1, "before {words}");
        assert_eq!(drain(&aware), 1);
        append(&segment, &[codex_prompt(words)]);
    }
    assert_eq!(wakes(&aware, 20_000), 1);
}

/// Whether one does or so many that the round is given up.
#[test]
fn a_pass_that_could_not_be_stored_is_made_again() {
    for (catalog, links) in [
        (Catalog::Claude, 1),
        (Catalog::Claude, 12),
        (Catalog::Opencode, 1),
    ] {
        let place = Place::new();
        let mut config = place.config();
        config.busy_timeout_ms = Some(50);
        let monitor = config.monitor.as_mut().unwrap();
        monitor.enabled = Some(true);
        monitor.interval_ms = Some(3_600_000);
        monitor.initial_delay_ms = Some(0);
        let aware = Awareness::open(config).unwrap();
        let source = place.path("opencode/opencode.db");
        let store = opencode_store(&source);
        let paths: Vec<_> = (0..links)
            .map(|n| {
                let key = format!("agent:main:linked-{n}");
                aware.watch(Watch::new(MANAGER, &*key)).unwrap();
                let path = place.path(&format!("{n}.jsonl"));
                append(&path, &[]);
                if catalog == Catalog::Opencode {
                    adopt_opencode(&aware, &key, OPENCODE_THREAD, &source, Baseline::Now);
                } else {
                    aware
                        .adopt(Adopt::new(&*key, catalog, path.to_str().unwrap()))
                        .unwrap();
                }
                path
            })
            .collect();
        // Each was looked at, and what comes is by its event.
        until(|| passes(&aware, catalog.as_str()) > 0);
        let holder = rusqlite::Connection::open(place.database()).unwrap();
        holder.execute_batch("BEGIN IMMEDIATE").unwrap();
        match catalog {
            Catalog::Opencode => opencode_message(&store, "msg_1", "typed"),
            _ => paths
                .iter()
                .for_each(|path| append(path, &[claude("typed")])),
        }
        // As long as these are refused, so is what the background has to store.
        for _ in 0..20 {
            let event = NewEvent::new("agent:main:own", Kind::GoalChanged, ActorType::Agent);
            assert_eq!(aware.record(event).unwrap_err().code, Code::Busy);
        }
        holder.execute_batch("COMMIT").unwrap();
        until(|| told(&aware) == links);
    }
}

#[test]
fn a_run_whose_handle_has_gone_defers_a_session_of_a_store_no_more() {
    let place = Place::new();
    let source = place.path("opencode/opencode.db");
    let store = opencode_store(&source);
    let runs = place.open();
    let aware = place.open_watching(100, true);
    adopt_opencode(&aware, SESSION, OPENCODE_THREAD, &source, Baseline::Now);
    let request = SetRunActive {
        session_key: SESSION.into(),
        agent_id: None,
        active: true,
    };
    runs.set_run_active(request).unwrap();
    opencode_message(&store, "msg_1", "typed");
    // Longer than a write is looked for after its event: it is asked for in rounds.
    let before = passes(&aware, "opencode");
    until(|| passes(&aware, "opencode") > before + 20);
    assert_eq!(told(&aware), 0);
    runs.close().unwrap();
    until(|| told(&aware) == 1);
}

#[test]
fn without_file_events_the_interval_alone_finds_what_is_written() {
    let place = Place::new();
    let aware = place.open_watching(100, false);
    let path = place.path("a.jsonl");
    append(&path, &[]);
    adopt(&aware, Catalog::Claude, &path);
    for typed in 1..=2 {
        append(&path, &[claude("typed")]);
        until(|| told(&aware) == typed);
    }
    let stats = aware.stats().unwrap();
    assert_eq!(stats.file_events, FileEvents::Off);
    assert_eq!(stats.watched_folders, 0, "{stats:?}");
}

#[test]
fn what_can_be_seen_only_after_its_event_is_told_too() {
    let place = Place::new();
    let source = place.path("opencode/opencode.db");
    let store = opencode_store(&source);
    opencode_message_at(&store, "msg_0", "before", now_ms() - 60_000);
    // By these names the folder that is watched hears nothing of a write.
    let elsewhere = place.path("elsewhere/opencode.db");
    for end in ["", "-wal", "-shm"] {
        let name = |path: &Path| format!("{}{end}", path.display());
        std::fs::hard_link(name(&source), name(&elsewhere)).unwrap();
    }
    let unheard = rusqlite::Connection::open(&elsewhere).unwrap();
    let aware = place.open_watching(3_600_000, true);
    adopt_opencode(&aware, SESSION, OPENCODE_THREAD, &source, Baseline::Now);
    opencode_message(&store, "msg_1", "heard");
    until(|| told(&aware) == 1);
    let quiet = || {
        // Two readings a second and a half apart say the same.
        let mut last = passes(&aware, "opencode");
        until(|| {
            std::thread::sleep(Duration::from_millis(1_500));
            std::mem::replace(&mut last, passes(&aware, "opencode")) == last
        });
        last
    };
    let before = quiet();
    // The event, and a look in vain.
    let log = std::fs::File::open(format!("{}-wal", source.display())).unwrap();
    log.set_modified(std::time::SystemTime::now()).unwrap();
    until(|| passes(&aware, "opencode") > before);
    opencode_message(&unheard, "msg_2", "seen");
    until(|| told(&aware) == 2);
}

/// Ends what waits for the flag, also when a check fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A message of an older store of OpenCode, in files.
fn opencode_file(data: &Path, message: &str, text: &str) {
    let write = |path: String, value: Value| {
        let path = data.join("storage").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, value.to_string()).unwrap();
    };
    let time = now_ms();
    write(
        format!("session/p/{OPENCODE_THREAD}.json"),
        json!({"id": OPENCODE_THREAD, "projectID": "p", "directory": "/home/dev", "title": "t",
               "time": {"created": time, "updated": time}}),
    );
    write(
        format!("part/{message}/prt_{message}.json"),
        json!({"id": format!("prt_{message}"), "type": "text", "text": text}),
    );
    write(
        format!("message/{OPENCODE_THREAD}/{message}.json"),
        json!({"id": message, "role": "user", "time": {"created": time}}),
    );
}

#[test]
fn a_data_folder_of_opencode_that_is_away_when_its_link_is_learnt_may_come_back() {
    let place = Place::new();
    let data = place.path("opencode");
    let away = place.path("away");
    opencode_file(&data, "msg_1", "before");
    {
        let aware = place.open();
        adopt_opencode(&aware, SESSION, OPENCODE_THREAD, &data, Baseline::Now);
        assert_eq!(scan(&aware), [(Unchanged, 0)]);
    }
    std::fs::rename(&data, &away).unwrap();
    let aware = place.open_watching(3_000, true);
    let links = || aware.links(LinksRequest::default()).unwrap().links;
    until(|| links()[0].missing == 1);
    std::fs::rename(&away, &data).unwrap();
    opencode_file(&data, "msg_2", "after");
    until(|| told(&aware) == 1);
    assert_eq!(links()[0].missing, 0);
    opencode_file(&data, "msg_3", "once more");
    until(|| told(&aware) == 2);
    assert!(!kinds(&aware).contains(&Kind::UpstreamMissing));
}

#[test]
fn a_long_session_of_opencode_does_not_hold_up_the_others_of_its_store() {
    const LONG: &str = "ses_long";
    const TURNS: usize = 12_000;
    let place = Place::new();
    let source = place.path("opencode/opencode.db");
    let store = opencode_store(&source);
    store
        .execute_batch(&format!(
            "CREATE INDEX part_message ON part(message_id);
             CREATE INDEX message_session ON message(session_id);
             INSERT INTO session SELECT '{LONG}', project_id, parent_id, slug, directory, title, version, revert,
               time_created, time_updated, time_archived FROM session;
             WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {TURNS})
             INSERT INTO message SELECT printf('msg_%08d', n), '{LONG}', 1700000000000 + n, 0,
               printf('{{\"role\":\"user\",\"time\":{{\"created\":%d}}}}', 1700000000000 + n) FROM n;
             INSERT INTO part SELECT 'prt_' || id, id, session_id, time_created, 0,
               printf('{{\"type\":\"text\",\"text\":\"%s\"}}', hex(randomblob(100))) FROM message;"
        ))
        .unwrap();
    let aware = place.open_watching(3_600_000, true);
    let turns = |key: &str| -> u64 {
        let request = EventsRequest {
            session_key: Some(key.to_owned()),
            kinds: Some(vec![Kind::HumanDirectMessage]),
            limit: Some(1_000),
            ..Default::default()
        };
        let events = aware.events(request).unwrap().events;
        let turns = |event: &Event| event.payload.as_ref().and_then(PublicPayload::turns);
        events.iter().map(|event| turns(event).unwrap_or(1)).sum()
    };
    let long = "agent:main:long";
    aware.watch(Watch::new(MANAGER, long)).unwrap();
    adopt_opencode(&aware, SESSION, OPENCODE_THREAD, &source, Baseline::Now);
    adopt_opencode(&aware, long, LONG, &source, Baseline::Start);
    until(|| turns(long) > 0);
    opencode_message(&store, "msg_short", "typed");
    until(|| turns(SESSION) == 1);
    let of_long = turns(long);
    assert!(
        of_long < TURNS as u64,
        "the short one was told after the whole long one"
    );
    // Nothing of the long one is lost over it.
    let began = Instant::now();
    while turns(long) < TURNS as u64 {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", turns(long));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(turns(long), TURNS as u64);
}

fn adopt_opencode(aware: &Awareness, key: &str, thread: &str, source: &Path, baseline: Baseline) {
    let request = Adopt {
        thread_id: Some(thread.into()),
        baseline: Some(baseline),
        ..Adopt::new(key, Catalog::Opencode, source.to_str().unwrap())
    };
    aware.adopt(request).unwrap();
}

// ---- what must not get out -----------------------------------------------------------

static LINES: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());

struct Listening;

impl log::Log for Listening {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let mut lines = LINES.lock().unwrap();
        lines.push_str(&format!("{} {}\n", record.target(), record.args()));
    }

    fn flush(&self) {}
}

#[test]
fn text_of_a_transcript_reaches_no_database_no_log_line_and_no_error() {
    const CANARY: &str = "canary-9f3a";
    log::set_logger(&Listening).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    let place = Place::new();
    let aware = place.open();
    let mut said = String::new();
    for (at, (catalog, head, prompt)) in [
        (Catalog::Claude, vec![], claude as fn(&str) -> Value),
        (Catalog::Codex, vec![codex_meta("t-1")], codex_prompt),
        (Catalog::Pi, vec![pi_header(3)], pi_prompt),
    ]
    .into_iter()
    .enumerate()
    {
        let path = place.path(&format!("{at}.jsonl"));
        append(&path, &head);
        append(&path, &[prompt(CANARY)]);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(
            format!("{{\"type\":\"user\",\"message\":\"{CANARY}\u{7}\n\"{CANARY}\"\n[{CANARY}\n")
                .as_bytes(),
        )
        .unwrap();
        adopt_from_start(&aware, SESSION, catalog, &path);
        append(&path, &[prompt(CANARY), prompt(&format!("/{CANARY}"))]);
        said += &format!("{:?}", aware.scan(Scan::default()));
        append(&path, &[prompt(CANARY)]);
        said += &format!("{:?}", aware.scan(Scan::default()));
    }
    let source = place.path("opencode/opencode.db");
    let store = opencode_store(&source);
    opencode_message(&store, "msg_1", CANARY);
    let request = Adopt {
        thread_id: Some(OPENCODE_THREAD.into()),
        baseline: Some(Baseline::Start),
        ..Adopt::new(SESSION, Catalog::Opencode, source.to_str().unwrap())
    };
    aware.adopt(request).unwrap();
    said += &format!("{:?}", aware.scan(Scan::default()));
    store
        .execute(
            "UPDATE message SET data = ?1",
            [format!("{{\"role\": {CANARY}")],
        )
        .unwrap();
    opencode_message(&store, "msg_2", CANARY);
    said += &format!("{:?}", aware.scan(Scan::default()));
    aware
        .own_message(OwnMessage {
            session_key: SESSION.into(),
            agent_id: None,
            text: CANARY.into(),
        })
        .unwrap();
    said += &format!("{:?}", aware.events(EventsRequest::default()));
    assert!(told(&aware) >= 4, "{said}");
    assert!(!said.contains(CANARY), "{said}");
    for entry in std::fs::read_dir(place.folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes
                .windows(CANARY.len())
                .any(|window| window == CANARY.as_bytes());
            assert!(!found, "the canary is in {}", path.display());
        }
    }
    let lines = LINES.lock().unwrap();
    assert!(!lines.contains(CANARY), "{lines}");
}
