//! What is found although nobody tells of it.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;

use super::*;
use crate::contract::{ActorType, Kind, MonitorConfig};
use crate::store::Step;

const WATCHER: &str = "agent:main:main";
const CHILD: &str = "agent:main:subagent:child";

fn config(folder: &tempfile::TempDir) -> Config {
    Config {
        monitor: Some(MonitorConfig {
            enabled: Some(false),
            ..MonitorConfig::default()
        }),
        ..Config::new(folder.path().join("a.db").to_str().unwrap())
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "never {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How many looks of the handle found all as it lay.
fn still(aware: &Awareness) -> u64 {
    aware.inner.looks.still.load(SeqCst)
}

/// Early in the second ten seconds, at the end of which all is looked at in any case.
fn until_still(aware: &Awareness) {
    until("still", || still(aware) >= 6);
}

fn step_in(aware: &Awareness) {
    let event = NewEvent::new(CHILD, Kind::HumanDirectMessage, ActorType::Human);
    aware.record(event).unwrap();
}

fn wakes(aware: &Awareness) -> usize {
    let wait = WaitWakes {
        timeout_ms: 60_000,
        max: None,
    };
    aware.wait_wakes(wait).unwrap().wakes.len()
}

/// As when a process is killed between its commit and its telling.
#[test]
fn a_wake_that_nobody_told_of_is_found_where_all_lay_still() {
    let folder = tempfile::tempdir().unwrap();
    let armed = std::sync::Arc::new(AtomicBool::new(false));
    let (commit, committed) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (is_armed, released) = (armed.clone(), std::sync::Mutex::new(released));
    let at = move |step| {
        if step == Step::HandOn && is_armed.swap(false, SeqCst) {
            commit.send(()).unwrap();
            // Ends with the sender.
            let _ = released.lock().unwrap().recv();
        }
    };
    let steps = Steps {
        at: Some(std::sync::Arc::new(at)),
    };
    let other = Awareness::open_by(config(&folder), Clock::default(), steps).unwrap();
    let aware = Awareness::open(config(&folder)).unwrap();
    aware.watch(Watch::new(WATCHER, CHILD)).unwrap();
    until_still(&aware);
    armed.store(true, SeqCst);
    let recording = std::thread::spawn(move || {
        step_in(&other);
        other.close().unwrap();
    });
    committed.recv().unwrap();
    let stood = still(&aware);
    assert_eq!(wakes(&aware), 1);
    let more = still(&aware) - stood;
    assert!(more <= 1, "{more} looks passed over it");
    drop(release);
    recording.join().unwrap();
}

#[test]
fn a_file_that_is_gone_is_there_again_where_all_lay_still() {
    let folder = tempfile::tempdir().unwrap();
    let aware = Awareness::open(config(&folder)).unwrap();
    until_still(&aware);
    let poked = aware.inner.wakes.poked_file();
    std::fs::remove_file(&poked).unwrap();
    let stood = still(&aware);
    until("there again", || poked.exists());
    let more = still(&aware) - stood;
    assert!(more <= 1, "{more} looks passed over it");
}

/// Its death changes no file.
#[test]
fn nothing_lies_still_while_another_handle_has_wakes_and_may_die() {
    let folder = tempfile::tempdir().unwrap();
    let other = Awareness::open(config(&folder)).unwrap();
    other.watch(Watch::new(WATCHER, CHILD)).unwrap();
    step_in(&other);
    let aware = Awareness::open(config(&folder)).unwrap();
    until("as it was", || aware.inner.store.stillness().is_some());
    let looks = &aware.inner.looks.whole;
    let before = looks.load(SeqCst);
    until("looked at", || looks.load(SeqCst) >= before + 3);
    assert_eq!(still(&aware), 0);
    drop(other);
    assert_eq!(wakes(&aware), 1);
}
