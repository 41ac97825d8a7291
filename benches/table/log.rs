//! The rows of the log, its watchers and its notices.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::floor::{Floor, MANAGER};
use crate::library::{Call, Handle};
use crate::measure::{Pair, Row, Samples, Side, Table, Target, time, timed};
use crate::{Effort, shared_memory};

pub const CHILD: &str = "agent:main:subagent:child";

pub fn event(session: &str) -> Value {
    json!({
        "sessionKey": session, "kind": "human_direct_message", "actorType": "human",
        "payload": {"channel": "telegram"},
    })
}

fn watch(handle: &Handle, watcher: &str, target: &str) {
    let request = json!({"watcherSessionKey": watcher, "targetSessionKey": target});
    handle.ask("aware_watch", request);
}

/// Records `count` events in batches.
pub fn fill(handle: &Handle, session: &str, count: usize) {
    let mut left = count;
    while left > 0 {
        let now = left.min(1_000);
        handle.ask("aware_record", json!({"events": vec![event(session); now]}));
        left -= now;
    }
}

/// A folder of its own, as a gateway's database has.
pub fn own(folder: &Path, name: &str) -> PathBuf {
    let own = folder.join(name);
    std::fs::create_dir(&own).unwrap();
    own
}

/// Waits until a folder's last change is old enough for the library to rely on
/// its time: what a gateway has behind it a few seconds after its start.
pub fn settle() {
    std::thread::sleep(Duration::from_secs(5));
}

/// A database of the library and one by hand, with `watchers` watchers of the child.
fn both(folder: &Path, durability: &str, watchers: usize) -> (Handle, Floor) {
    let name = format!("{durability}-{watchers}");
    let handle = Handle::with(json!({
        "database": own(folder, &name).join("a.db"), "durability": durability, "monitor": {"enabled": false},
    }));
    let synchronous = if durability == "power" {
        "FULL"
    } else {
        "NORMAL"
    };
    let mut floor = Floor::open(&folder.join(format!("{name}-floor.db")), synchronous);
    for n in 0..watchers {
        let watcher = format!("{MANAGER}:{n}");
        watch(&handle, &watcher, CHILD);
        floor.watch(&watcher, CHILD);
    }
    // Until each log was moved once, and is written over from then on: a flush of
    // a file that grows takes the file system as long again.
    for _ in 0..500 {
        handle.ask("aware_record", event(CHILD));
        floor.record(CHILD);
    }
    settle();
    (handle, floor)
}

fn record_pair(rounds: usize, handle: &Handle, floor: &mut Floor, calls: usize) -> Pair {
    let record = handle.call("aware_record", &event(CHILD));
    Pair::measure(
        rounds,
        calls,
        || timed(|| record.make()),
        || timed(|| floor.record(CHILD)),
    )
}

pub fn rows(table: &mut Table, folder: &Path, effort: Effort) {
    table.head("Recording");
    if table.wants("record") {
        for (watchers, what) in [(1, "`record`, 1 watcher"), (50, "`record`, 50 watchers")] {
            let (handle, mut floor) = both(folder, "process", watchers);
            let pair = record_pair(effort.rounds(20), &handle, &mut floor, 300);
            table.row(Row::times(what, &pair, Target::Times(1.3)));
        }
        let (handle, mut floor) = both(folder, "power", 1);
        let pair = record_pair(effort.rounds(120), &handle, &mut floor, 10);
        table.row(Row::times(
            "`record`, 1 watcher, `power`",
            &pair,
            Target::Times(1.1),
        ));
    }
    if table.wants("unwatched") {
        unwatched(table, folder, effort);
    }
    if table.wants("batch") {
        let (handle, mut floor) = both(folder, "process", 2);
        let batch = handle.call("aware_record", &json!({"events": vec![event(CHILD); 64]}));
        let pair = Pair::measure(
            effort.rounds(20),
            20,
            || timed(|| batch.make()),
            || timed(|| floor.records(CHILD, 64)),
        );
        let what = "batch of 64, 2 watchers: events a second";
        table.row(Row::rates(what, &pair, 64.0, "/s", Some(0.8)));
    }
    if table.wants("threads") {
        threads(table, folder, effort);
    }
    if table.wants("queue") {
        queued(table, folder, effort);
    }
    table.head("Reading, draining, opening");
    if table.wants("changes") {
        changes(table, folder, effort);
    }
    if table.wants("versions") {
        versions(table, folder, effort);
    }
    if table.wants("drain") {
        let (handle, mut floor) = both(folder, "process", 0);
        watch(&handle, MANAGER, CHILD);
        floor.watch(MANAGER, CHILD);
        let pair = drain_pair(effort, &handle, &mut floor);
        table.row(Row::times(
            "drain and ack one notice",
            &pair,
            Target::Times(1.5),
        ));
    }
    if table.wants("open") {
        open(table, folder, effort);
    }
    if table.wants("prune") {
        prune(table, folder, effort);
    }
}

fn unwatched(table: &mut Table, folder: &Path, effort: Effort) {
    let (handle, floor) = both(folder, "process", 3);
    let floor = RefCell::new(floor);
    let mut request = event("agent:main:subagent:nobody");
    request["onlyIfWatched"] = true.into();
    let record = handle.call("aware_record", &request);
    let pair = Pair::measure(
        effort.rounds(20),
        2_000,
        || timed(|| record.make()),
        || timed(|| floor.borrow_mut().watched("agent:main:subagent:nobody")),
    );
    let what = "`record` with `onlyIfWatched`, nobody watching (floor: a snapshot and one look)";
    table.row(Row::times(what, &pair, Target::there(3.5, 1.23)));
}

fn drain_pair(effort: Effort, handle: &Handle, floor: &mut Floor) -> Pair {
    let record = handle.call("aware_record", &event(CHILD));
    let drain = handle.call(
        "aware_drain_notices",
        &json!({"watcherSessionKey": MANAGER}),
    );
    // One notice at a time: what piled up would open another one at each drain.
    for _ in 0..3 {
        drain.make();
    }
    Pair::measure(
        effort.rounds(20),
        200,
        || {
            record.make();
            timed(|| drain.make())
        },
        || {
            floor.reopen(MANAGER);
            timed(|| assert_eq!(floor.drain(MANAGER), 1))
        },
    )
}

/// How long `threads` threads take for `each` calls each.
fn race(calls: Vec<Call>, each: usize) -> u64 {
    let barrier = Arc::new(Barrier::new(calls.len() + 1));
    let threads: Vec<_> = calls
        .into_iter()
        .map(|call| {
            let barrier = Arc::clone(&barrier);
            std::thread::spawn(move || {
                barrier.wait();
                (0..each).for_each(|_| call.make());
            })
        })
        .collect();
    barrier.wait();
    timed(|| {
        for thread in threads {
            thread.join().unwrap();
        }
    })
}

fn threads(table: &mut Table, folder: &Path, effort: Effort) {
    for (durability, all, rounds) in [("process", 4_000, 11), ("power", 800, 31)] {
        let (handle, mut floor) = both(folder, durability, 4);
        let calls = |threads: usize| -> Vec<Call> {
            (0..threads)
                .map(|_| handle.call("aware_record", &event(CHILD)))
                .collect()
        };
        let pair = Pair::measure(
            effort.rounds(rounds),
            1,
            || race(calls(8), all / 8),
            || timed(|| (0..all / 8).for_each(|_| floor.records(CHILD, 8))),
        );
        let what = format!("8 threads recording, `{durability}` (floor: one thread, groups of 8)");
        table.row(Row::rates(what, &pair, all as f64, "/s", Some(0.7)));
        let pair = Pair::measure(
            effort.rounds(rounds),
            1,
            || race(calls(2), all / 2),
            || race(calls(1), all),
        );
        let what = format!("2 threads recording, `{durability}` (floor: the library with one)");
        table.row(Row::rates(what, &pair, all as f64, "/s", Some(0.85)));
    }
}

/// What queueing costs by hand: a text copied into a queue that a thread empties.
#[derive(Default)]
struct Queue {
    texts: Mutex<VecDeque<String>>,
    told: Condvar,
    stopped: AtomicBool,
}

impl Queue {
    fn put(&self, text: &str, tell: bool) {
        self.texts.lock().unwrap().push_back(text.to_owned());
        if tell {
            self.told.notify_one();
        }
    }

    fn empty(&self) {
        let mut texts = self.texts.lock().unwrap();
        while !self.stopped.load(Ordering::Relaxed) {
            texts.clear();
            texts = self.told.wait(texts).unwrap();
        }
    }
}

fn queued(table: &mut Table, folder: &Path, effort: Effort) {
    let (handle, mut floor) = both(folder, "process", 5);
    let mut request = event(CHILD);
    request["wait"] = false.into();
    let queue = handle.call("aware_record", &request);
    let text = request.to_string();
    let stats = handle.call("aware_stats", &json!({}));
    let drained = || while stats.answer()["queuedEvents"] != 0 {};
    let by_hand = Arc::new(Queue::default());
    let emptying = {
        let by_hand = Arc::clone(&by_hand);
        std::thread::spawn(move || by_hand.empty())
    };
    let in_burst = Cell::new(0);
    let pair = Pair::measure(
        effort.rounds(20),
        2_000,
        || {
            if in_burst.replace((in_burst.get() + 1) % 2_000) == 0 {
                drained();
                queue.make();
            }
            timed(|| queue.make())
        },
        || timed(|| by_hand.put(&text, false)),
    );
    let what = "`wait:false`, the writer awake (floor: a text copied into a locked queue)";
    table.row(Row::times(what, &pair, Target::there(2.0, 0.064)));
    drained();
    // Until whoever empties the queue sleeps, while this thread stays at work.
    let busy = || {
        drained();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_micros(500) {
            std::hint::spin_loop();
        }
    };
    // Long enough for the processor to sleep too.
    let idle = || std::thread::sleep(Duration::from_millis(1));
    let woken = |before: &dyn Fn()| {
        let call = || {
            before();
            timed(|| queue.make())
        };
        let floor = || {
            before();
            timed(|| by_hand.put(&text, true))
        };
        Pair::measure(effort.rounds(10), 50, call, floor)
    };
    let (busy, idle) = (woken(&busy), woken(&idle));
    by_hand.stopped.store(true, Ordering::Relaxed);
    by_hand.told.notify_all();
    emptying.join().unwrap();
    let what = "`wait:false`, the writer to be woken (floor: the same, and a thread woken)";
    table.row(Row::times(what, &busy, Target::Either(2.0, 4.0)));
    let what = "`wait:false`, after a millisecond in which the caller slept too (floor: the same)";
    table.row(Row::times(what, &idle, Target::None));
    // 100 events a millisecond.
    drained();
    let seconds = effort.seconds(10);
    let before = stats.answer()["shedEvents"].as_u64().unwrap();
    let begin = Instant::now();
    let mut most = 0;
    for slot in 0..seconds * 1_000 {
        let start = begin + Duration::from_millis(slot);
        while Instant::now() < start {
            std::hint::spin_loop();
        }
        (0..100).for_each(|_| queue.make());
        if slot % 50 == 0 {
            most = most.max(stats.answer()["queuedEvents"].as_u64().unwrap());
        }
    }
    let took = begin.elapsed();
    let shed = stats.answer()["shedEvents"].as_u64().unwrap() - before;
    drained();
    let all = begin.elapsed();
    let by_hand = timed(|| (0..200).for_each(|_| floor.records(CHILD, 256)));
    let sent = seconds * 100_000;
    table.row(Row::figure(
        format!(
            "`wait:false`, 100,000 events a second for {seconds} s (floor: groups of 256 by hand)"
        ),
        format!(
            "{shed} of {sent} shed, {most} waited at most, sent in {:.1} s, stored in {:.1} s",
            took.as_secs_f64(),
            all.as_secs_f64()
        ),
        format!("{:.0} k/s", 200.0 * 256.0 / (by_hand as f64 / 1e9) / 1e3),
        "none shed",
        Some(shed == 0),
    ));
}

fn changes(table: &mut Table, folder: &Path, effort: Effort) {
    let (handle, mut floor) = both(folder, "process", 6);
    for n in 0..5 {
        for session in [CHILD, "agent:main:subagent:other"] {
            fill(&handle, session, 100);
            floor.records(session, 100);
        }
        let _ = n;
    }
    let changes = changes_call(&handle, CHILD, 200);
    let floors: i64 = floor
        .conn
        .query_row(
            "SELECT sequence FROM session_state_events WHERE session_key = ?1 ORDER BY sequence DESC LIMIT 1 OFFSET 200",
            [CHILD],
            |row| row.get(0),
        )
        .unwrap();
    let pair = Pair::measure(
        effort.rounds(20),
        100,
        || timed(|| changes.make()),
        || timed(|| floor.changes(CHILD, floors)),
    );
    const TIME: Target = Target::there(110.0, 107.0);
    let what = "`changes_since`, 200 events to JSON text";
    table.row(Row::times(what, &pair, Target::Both(1.2, &TIME)));
}

/// Asks for the newest `count` events of a session.
fn changes_call(handle: &Handle, session: &str, count: usize) -> Call {
    let mut since = 0;
    let mut sequences = VecDeque::new();
    loop {
        let reply = handle.ask(
            "aware_changes_since",
            json!({"sessionKey": session, "changesSince": since}),
        );
        let page = &reply["stateChanges"];
        for event in page["events"].as_array().unwrap() {
            sequences.push_back(event["sequence"].as_u64().unwrap());
            if sequences.len() > count + 1 {
                sequences.pop_front();
            }
        }
        since = page["nextChangesSince"].as_u64().unwrap();
        if page["truncated"] == false {
            break;
        }
    }
    assert_eq!(sequences.len(), count + 1);
    handle.call(
        "aware_changes_since",
        &json!({"sessionKey": session, "changesSince": sequences[0]}),
    )
}

fn versions(table: &mut Table, folder: &Path, effort: Effort) {
    let (handle, mut floor) = both(folder, "process", 7);
    let keys: Vec<String> = (0..500)
        .map(|n| format!("agent:main:session:{n}"))
        .collect();
    for key in &keys {
        handle.ask("aware_record", event(key));
        floor.record(key);
    }
    for (count, target) in [
        (1, Target::there(3.0, 1.41)),
        (500, Target::there(300.0, 212.0)),
    ] {
        let asked: Vec<_> = keys[..count]
            .iter()
            .map(|key| json!({"sessionKey": key}))
            .collect();
        let call = handle.call("aware_state_versions", &json!({"sessions": asked}));
        let pair = Pair::measure(
            effort.rounds(20),
            if count == 1 { 2_000 } else { 50 },
            || timed(|| call.make()),
            || timed(|| floor.versions(&keys[..count])),
        );
        let plural = if count == 1 { "" } else { "s" };
        let what = format!("`state_versions`, {count} key{plural}");
        table.row(Row::times(what, &pair, target));
    }
}

/// Copies a database and its log, as a kill leaves them.
fn copy(from: &Path, into: &Path) {
    let _ = std::fs::remove_dir_all(into);
    std::fs::create_dir(into).unwrap();
    for end in ["", "-wal"] {
        let mut name = from.file_name().unwrap().to_owned();
        name.push(end);
        if from.with_file_name(&name).exists() {
            std::fs::copy(from.with_file_name(&name), into.join(&name)).unwrap();
        }
    }
}

fn open(table: &mut Table, folder: &Path, effort: Effort) {
    let image = folder.join("pending.db");
    {
        let handle = Handle::open(&image);
        fill(&handle, CHILD, 49_990);
        for n in 0..1_000 {
            watch(&handle, &format!("agent:main:watcher:{n}"), CHILD);
        }
        // One opens the notices, the others come behind.
        fill(&handle, CHILD, 10);
        assert_eq!(handle.ask("aware_stats", json!({}))["pending"], 1_000);
    }
    let row = open_pair(folder, &image, effort.rounds(11));
    let what =
        "open with 1,000 pending and 50,000 events (floor: a connection, and the same statements)";
    table.row(Row::times(what, &row, Target::there(5_000.0, 2_410.0)));

    let image = folder.join("killed.db");
    {
        drop(Handle::open(&image));
        let mut floor = Floor::open(&image, "NORMAL");
        floor
            .conn
            .execute_batch(
                "PRAGMA wal_autocheckpoint = 0; CREATE TABLE session_aware_bench(filling BLOB)",
            )
            .unwrap();
        floor.records(CHILD, 40_000);
        let log = folder.join("killed.db-wal");
        while std::fs::metadata(&log).unwrap().len() < 64 << 20 {
            floor
                .conn
                .execute(
                    "INSERT INTO session_aware_bench VALUES (randomblob(60000))",
                    [],
                )
                .unwrap();
            floor.record(CHILD);
        }
        copy(&image, &folder.join("killed"));
    }
    let row = open_pair(
        folder,
        &folder.join("killed").join("killed.db"),
        effort.rounds(7),
    );
    let what = "open after a kill with a log of 64 MiB";
    table.row(Row::times(what, &row, Target::Micros(40_000.0)));
}

fn open_pair(folder: &Path, image: &Path, rounds: usize) -> Pair {
    let place = folder.join("copy");
    let path: PathBuf = place.join(image.file_name().unwrap());
    let config = std::ffi::CString::new(json!({"database": path}).to_string()).unwrap();
    Pair::measure(
        rounds,
        1,
        || {
            copy(image, &place);
            let mut handle = None;
            let took = timed(|| handle = Some(Handle::open_raw(&config)));
            drop(handle);
            took
        },
        || {
            copy(image, &place);
            timed(|| {
                let conn = crate::floor::connect(&path, "NORMAL");
                conn.execute_batch(
                    "BEGIN IMMEDIATE;
                     UPDATE session_watch_cursors SET notified = material, touched_at = 0
                       WHERE notified > last_seen AND material > notified;
                     INSERT INTO session_aware_handles(first_wake)
                       SELECT value FROM session_aware_counters WHERE name = 'last_wake';",
                )
                .unwrap();
                let mut woken = conn
                    .prepare("SELECT * FROM session_watch_cursors WHERE wake > 0 ORDER BY wake")
                    .unwrap();
                let mut rows = woken.query([]).unwrap();
                let mut count = 0;
                while rows.next().unwrap().is_some() {
                    count += 1;
                }
                drop(rows);
                drop(woken);
                conn.execute_batch("COMMIT").unwrap();
                (conn, count)
            })
        },
    )
}

/// Records beside a prune, or beside nothing, until `enough` says so.
fn records_beside(handle: &Handle, mut enough: impl FnMut() -> bool) -> Samples {
    let record = handle.call("aware_record", &event("agent:main:beside"));
    let mut samples = Samples::default();
    while !enough() {
        (0..20).for_each(|_| samples.add(timed(|| record.make())));
    }
    samples
}

fn prune(table: &mut Table, folder: &Path, effort: Effort) {
    let (mut beside, mut alone, mut steps) = (Side::default(), Side::default(), Samples::default());
    let mut by_hand = Samples::default();
    for round in 0..effort.rounds(5) {
        let path = folder.join(format!("prune-{round}.db"));
        {
            let filling = Handle::with(json!({
                "database": path, "retention": {"maxEvents": 1_000_000}, "monitor": {"enabled": false},
            }));
            for n in 0..600 {
                fill(&filling, &format!("agent:main:session:{}", n % 60), 100);
            }
            alone.round(records_beside(&filling, {
                let end = Instant::now() + Duration::from_millis(400);
                move || Instant::now() >= end
            }));
        }
        {
            // The same rows by hand: one step of a thousand.
            let copied = folder.join("prune-by-hand");
            copy(&path, &copied);
            let mut floor = Floor::open(&copied.join(path.file_name().unwrap()), "NORMAL");
            for step in 1..=10 {
                by_hand.add(timed(|| floor.delete_through(step * 1_000)));
            }
        }
        let watching = shared_memory::WriteLock::of(&path);
        let handle = Handle::with(json!({
            "database": path, "retention": {"maxEvents": 50_000}, "monitor": {"enabled": false},
        }));
        let events = handle.call("aware_stats", &json!({}));
        let mut seen = 0u64;
        let watching = watching.start();
        let begin = Instant::now();
        beside.round(records_beside(&handle, || {
            seen += 1;
            // Counting rows is work of its own.
            seen.is_multiple_of(50)
                && (events.answer()["events"].as_u64().unwrap() < 50_900
                    || begin.elapsed() > Duration::from_secs(20))
        }));
        // Without records in between: what is held then are steps.
        drop(handle);
        drop(watching);
        let handle = Handle::with(json!({
            "database": path, "retention": {"maxEvents": 1_000_000}, "monitor": {"enabled": false},
        }));
        fill(&handle, CHILD, 10_000);
        drop(handle);
        let watching = shared_memory::WriteLock::of(&path);
        let handle = Handle::with(json!({
            "database": path, "retention": {"maxEvents": 50_000}, "monitor": {"enabled": false},
        }));
        let watching = watching.start();
        handle.ask("aware_maintain", json!({}));
        for held in watching.stop() {
            steps.add(held);
        }
    }
    let mut pair = Pair::default();
    pair.library.round(steps);
    pair.floor.round(by_hand);
    table.row(Row::figure(
        "prune 10,000 of 60,000: the write lock held by a step (floor: 1,000 rows deleted by hand)",
        format!(
            "{}, at most {}",
            time(pair.library.p50()),
            time(pair.library.max())
        ),
        format!(
            "{}, at most {}",
            time(pair.floor.p50()),
            time(pair.floor.max())
        ),
        "at most 10 ms",
        Some(pair.library.max() <= 10e6),
    ));
    let pair = Pair {
        library: beside,
        floor: alone,
    };
    let what = format!(
        "records beside that prune, at most {} (floor: beside nothing, at most {})",
        time(pair.library.max()),
        time(pair.floor.max())
    );
    table.row(Row::times(what, &pair, Target::P99Micros(10_000.0)));
}

/// How cost grows with the events, watches and links there are.
pub fn growth(table: &mut Table, folder: &Path, effort: Effort) {
    table.head("How cost grows: 500 events and 10 watches, 10 times and 100 times that");
    for times in [1, 10, 100] {
        let (events, watches) = (500 * times, 10 * times);
        let at = format!("{} events, {} watches", events, watches);
        let name = format!("growth-{times}");
        let handle = Handle::open(&own(folder, &name).join("a.db"));
        let mut floor = Floor::open(&folder.join(format!("{name}-floor.db")), "NORMAL");
        for n in 0..watches {
            let (watcher, target) = (
                format!("agent:main:watcher:{}", n % 7),
                format!("agent:main:session:{n}"),
            );
            watch(&handle, &watcher, &target);
            floor.watch(&watcher, &target);
        }
        watch(&handle, MANAGER, CHILD);
        floor.watch(MANAGER, CHILD);
        for n in 0..events / 100 {
            let session = format!("agent:main:session:{}", n % watches);
            fill(&handle, &session, 50);
            floor.records(&session, 50);
            fill(&handle, CHILD, 50);
            floor.records(CHILD, 50);
        }
        settle();
        let pair = record_pair(Effort::QUICK.rounds(20), &handle, &mut floor, 300);
        table.row(Row::times(
            format!("`record`, {at}"),
            &pair,
            Target::Times(1.3),
        ));
        let pair = drain_pair(Effort::QUICK, &handle, &mut floor);
        table.row(Row::times(
            format!("drain and ack, {at}"),
            &pair,
            Target::Times(1.5),
        ));
        let changes = changes_call(&handle, CHILD, 200);
        let since: i64 = floor
            .conn
            .query_row(
                "SELECT sequence FROM session_state_events WHERE session_key = ?1 ORDER BY sequence DESC LIMIT 1 OFFSET 200",
                [CHILD],
                |row| row.get(0),
            )
            .unwrap();
        let pair = Pair::measure(
            effort.rounds(8),
            50,
            || timed(|| changes.make()),
            || timed(|| floor.changes(CHILD, since)),
        );
        table.row(Row::times(
            format!("`changes_since`, {at}"),
            &pair,
            Target::Times(1.2),
        ));
    }
}
