//! A process that is stopped, or killed, while it is inside its transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::*;

/// `busyTimeoutMs` of who meets a stopped process.
const PATIENCE: Duration = Duration::from_millis(400);
/// What a machine that does other things too may add to a wait.
const SLACK: Duration = Duration::from_secs(2);

/// Writes all the time: most of it inside a transaction.
pub fn write_on() {
    let aware = open(&own_database());
    say("ready");
    loop {
        aware
            .record_batch(vec![human("agent:main:other"); 200])
            .unwrap();
    }
}

/// A process of the library that is stopped inside its transaction.
struct Stopped(Child);

impl Stopped {
    fn new(database: &Path) -> Stopped {
        let probe = open_with(database, Duration::from_millis(1));
        let (child, mut lines) = play("write_on", database);
        let stopped = Stopped(child);
        lines.read_line(&mut String::new()).unwrap();
        let given_up = Instant::now() + Duration::from_secs(30);
        loop {
            stopped.signal(libc::SIGSTOP);
            let mut status = 0;
            // SAFETY: waits for a child of this process, with room for its status.
            unsafe { libc::waitpid(stopped.0.id() as i32, &mut status, libc::WUNTRACED) };
            assert!(libc::WIFSTOPPED(status));
            match probe.record(human("agent:main:probe")) {
                Err(error) if error.code == Code::Busy => return stopped,
                _ => assert!(Instant::now() < given_up, "never met inside a transaction"),
            }
            stopped.signal(libc::SIGCONT);
            std::thread::yield_now();
        }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a child of this process that was not waited for yet, so its number is its own.
        unsafe { libc::kill(self.0.id() as i32, signal) };
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn open_with(database: &Path, patience: Duration) -> Awareness {
    Awareness::open(config(database, patience)).unwrap()
}

fn config(database: &Path, patience: Duration) -> Config {
    Config {
        busy_timeout_ms: Some(patience.as_millis() as u64),
        // Nothing is read before it is asked for.
        monitor: Some(MonitorConfig {
            enabled: Some(false),
            ..MonitorConfig::default()
        }),
        ..Config::new(database.to_str().unwrap())
    }
}

fn request<T: serde::de::DeserializeOwned>(request: Value) -> T {
    serde_json::from_value(request).unwrap()
}

/// Does it, which must answer `busy` after the timeout; how long it took.
fn is_busy<T: std::fmt::Debug>(what: &str, call: impl FnOnce() -> Result<T>) -> Duration {
    let began = Instant::now();
    let answer = call();
    let took = began.elapsed();
    match &answer {
        Err(error) => assert_eq!(error.code, Code::Busy, "{what}: {error}"),
        Ok(_) => panic!("{what}: {answer:?}"),
    }
    assert!(
        took >= PATIENCE && took < PATIENCE + SLACK,
        "{what}: {took:?}"
    );
    took
}

pub fn a_stopped_writer_yields_busy() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("a.db");
    let source = folder.path().join("s.jsonl");
    std::fs::write(&source, "").unwrap();
    let aware = open_with(&database, PATIENCE);
    watch(&aware);
    aware.record(human(CHILD)).unwrap();
    let adopt = Adopt::new("agent:main:up", Catalog::Claude, source.to_str().unwrap());
    aware.adopt(adopt.clone()).unwrap();
    aware
        .adopt(request(
            json!({"sessionKey": "agent:main:far", "catalog": "claude",
                              "hostId": "far", "threadId": "t"}),
        ))
        .unwrap();
    let notice = aware
        .drain_notices(request(json!({"watcherSessionKey": MANAGER, "ack": false})))
        .unwrap()
        .notices
        .remove(0);
    let row = json!({"type": "user", "uuid": "u", "origin": {"kind": "human"},
                     "message": {"role": "user", "content": "typed"}});
    std::fs::write(&source, format!("{row}\n")).unwrap();

    let stopped = Stopped::new(&database);
    reads_go_on(&aware, folder.path());
    let up = || json!({"sessionKey": "agent:main:up"});
    let took = [
        is_busy("record", || aware.record(human(CHILD))),
        is_busy("record_batch", || aware.record_batch(vec![human(CHILD); 3])),
        is_busy("watch", || aware.watch(Watch::new(MANAGER, "agent:main:x"))),
        is_busy("unwatch", || {
            aware.unwatch(request(
                json!({"watcherSessionKey": MANAGER, "targetSessionKey": CHILD}),
            ))
        }),
        is_busy("session_reset", || {
            aware.session_reset(request(json!({"sessionKey": MANAGER})))
        }),
        is_busy("session_delete", || {
            aware.session_delete(request(json!({"sessionKey": CHILD})))
        }),
        is_busy("drain_notices", || {
            aware.drain_notices(DrainNotices::new(MANAGER))
        }),
        is_busy("ack_notices", || {
            aware.ack_notices(request(json!({"watcherSessionKey": MANAGER, "notices": [
                {"targetSessionKey": CHILD, "notified": notice.notified}]})))
        }),
        is_busy("maintain", || aware.maintain()),
        is_busy("adopt", || aware.adopt(adopt)),
        is_busy("release", || aware.release(request(up()))),
        is_busy("scan", || aware.scan(Scan::default())),
        is_busy("set_run_active", || {
            aware.set_run_active(request(
                json!({"sessionKey": "agent:main:up", "active": true}),
            ))
        }),
        is_busy("own_message", || {
            aware.own_message(request(
                json!({"sessionKey": "agent:main:up", "text": "mine"}),
            ))
        }),
        is_busy("feed", || {
            aware.feed(request(
                json!({"sessionKey": "agent:main:far", "rows": [row]}),
            ))
        }),
        is_busy("open", || {
            Awareness::open(config(&database, PATIENCE)).map(drop)
        }),
    ];
    let longest = took.iter().max().unwrap();
    println!(
        "busyTimeoutMs 400: {} writing verbs beside a stopped writer answer busy within {longest:?}",
        took.len()
    );
    reads_go_on(&aware, folder.path());
    assert_eq!(
        aware.stats().unwrap().failed_appends,
        4,
        "one record and a batch of three"
    );

    stopped.signal(libc::SIGCONT);
    // It records on; this one waits longer than for a turn of it.
    let patient = open_with(&database, Duration::from_secs(20));
    patient.record(human(CHILD)).unwrap();
    drop(stopped);
    assert_eq!(
        aware.scan(Scan::default()).unwrap().outcomes[0].human_turns,
        1
    );
    assert_eq!(
        aware
            .drain_notices(DrainNotices::new(MANAGER))
            .unwrap()
            .notices
            .len(),
        1
    );
}

/// No reading verb waits for a writer.
fn reads_go_on(aware: &Awareness, folder: &Path) {
    let began = Instant::now();
    let copy = folder.join(format!("copy-{}.db", aware.stats().unwrap().wal_bytes));
    let _ = std::fs::remove_file(&copy);
    aware
        .backup(Backup {
            path: copy.to_str().unwrap().to_owned(),
        })
        .unwrap();
    aware.events(EventsRequest::default()).unwrap();
    aware.sessions(SessionsRequest::default()).unwrap();
    aware.watches(Watches::default()).unwrap();
    aware.links(LinksRequest::default()).unwrap();
    aware.changes_since(ChangesSince::new(CHILD, 0)).unwrap();
    let sessions = vec![SessionRef::new(CHILD)];
    aware.state_versions(StateVersions { sessions }).unwrap();
    let peek = request(json!({"watcherSessionKey": MANAGER, "ack": false}));
    assert_eq!(aware.drain_notices(peek).unwrap().notices.len(), 1);
    wakes(aware, 0);
    assert!(began.elapsed() < SLACK, "{:?}", began.elapsed());
}

pub fn nobody_waits_for_a_stopped_writer_more_than_twice() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("a.db");
    let aware = Arc::new(open_with(&database, PATIENCE));
    let _stopped = Stopped::new(&database);
    let bound = PATIENCE * 2 + SLACK;

    // Many at once are one group, and who comes during its wait is in the next.
    let threads: Vec<_> = (0..16)
        .map(|at| {
            let aware = Arc::clone(&aware);
            std::thread::spawn(move || {
                std::thread::sleep(PATIENCE / 16 * at);
                let began = Instant::now();
                let error = aware.record(human(CHILD)).unwrap_err();
                assert_eq!(error.code, Code::Busy);
                began.elapsed()
            })
        })
        .collect();
    let longest = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .max();
    println!(
        "busyTimeoutMs 400: of 16 threads the longest waits {:?}",
        longest.unwrap()
    );
    assert!(longest.unwrap() < bound, "{longest:?}");

    // So is who comes behind a queue of many groups.
    for _ in 0..6_000 {
        assert!(aware.record_queued(vec![human(CHILD)]).unwrap().queued);
    }
    let began = Instant::now();
    let error = aware.record(human(CHILD)).unwrap_err();
    assert_eq!(error.code, Code::Busy);
    println!(
        "busyTimeoutMs 400: behind 6,000 queued events it is {:?}",
        began.elapsed()
    );
    assert!(began.elapsed() < bound, "{:?}", began.elapsed());

    // Closing waits for what is queued, and for no more.
    for _ in 0..6_000 {
        assert!(aware.record_queued(vec![human(CHILD)]).unwrap().queued);
    }
    let began = Instant::now();
    aware.close().unwrap();
    println!("busyTimeoutMs 400: closing takes {:?}", began.elapsed());
    assert!(
        began.elapsed() < PATIENCE * 3 + SLACK,
        "{:?}",
        began.elapsed()
    );
}

pub fn signals_do_not_cut_the_wait_short() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("a.db");
    let aware = open_with(&database, PATIENCE);
    let _stopped = Stopped::new(&database);
    extern "C" fn nothing(_: i32) {}
    // SAFETY: the action is plain data with a handler that does nothing; no SA_RESTART.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
        libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut());
    }
    // SAFETY: answers this thread's own id.
    let waiting = unsafe { libc::pthread_self() } as usize;
    let done = Arc::new(AtomicBool::new(false));
    let storm = {
        let done = Arc::clone(&done);
        std::thread::spawn(move || {
            let mut sent = 0u32;
            while !done.load(Ordering::Relaxed) {
                // SAFETY: the thread joins this one before it ends.
                unsafe { libc::pthread_kill(waiting as libc::pthread_t, libc::SIGUSR2) };
                sent += 1;
                std::thread::sleep(Duration::from_micros(500));
            }
            sent
        })
    };
    is_busy("record", || aware.record(human(CHILD)));
    is_busy("open", || {
        Awareness::open(config(&database, PATIENCE)).map(drop)
    });
    done.store(true, Ordering::Relaxed);
    assert!(storm.join().unwrap() > 50, "a storm of signals");
}

pub fn a_writer_killed_inside_its_transaction_blocks_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("a.db");
    let aware = open_with(&database, Duration::from_secs(20));
    let mut longest = Duration::ZERO;
    for _ in 0..10 {
        let stopped = Stopped::new(&database);
        let before = everything_of(&aware, "agent:main:other").len();
        stopped.signal(libc::SIGKILL);
        let began = Instant::now();
        aware.record(human(CHILD)).unwrap();
        longest = longest.max(began.elapsed());
        assert_eq!(
            everything_of(&aware, "agent:main:other").len(),
            before,
            "what it had not committed is gone"
        );
        assert_eq!(before % 200, 0, "a batch is whole or not there");
    }
    println!(
        "10 writers killed inside their transactions: the next record is stored {longest:?} after at the latest"
    );
    assert!(longest < SLACK, "{longest:?}");
    assert_integrity(&aware, folder.path());
}
