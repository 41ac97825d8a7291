//! What is found although nobody tells of it.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;

use super::*;
use crate::contract::{ActorType, Kind, MonitorConfig};
use crate::store::Step;

const WATCHER: &str = "agent:main:main";
const CHILD: &str = "agent:main:subagent:child";

/// As when a process is killed between its commit and its telling.
#[test]
fn a_wake_that_nobody_told_of_is_found_where_all_lay_still() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config {
        monitor: Some(MonitorConfig {
            enabled: Some(false),
            ..MonitorConfig::default()
        }),
        ..Config::new(folder.path().join("a.db").to_str().unwrap())
    };
    let armed = std::sync::Arc::new(AtomicBool::new(false));
    let (release, released) = mpsc::channel::<()>();
    let (is_armed, released) = (armed.clone(), std::sync::Mutex::new(released));
    let at = move |step| {
        if step == Step::HandOn && is_armed.swap(false, SeqCst) {
            // Ends with the sender.
            let _ = released.lock().unwrap().recv();
        }
    };
    let steps = Steps {
        at: Some(std::sync::Arc::new(at)),
    };
    let other = Awareness::open_by(config.clone(), Clock::default(), steps).unwrap();
    let aware = Awareness::open(config).unwrap();
    aware.watch(Watch::new(WATCHER, CHILD)).unwrap();
    let begin = Instant::now();
    while aware.inner.still.load(SeqCst) < 2 {
        assert!(begin.elapsed() < Duration::from_secs(60), "never still");
        std::thread::sleep(Duration::from_millis(20));
    }
    armed.store(true, SeqCst);
    let recording = std::thread::spawn(move || {
        let event = NewEvent::new(CHILD, Kind::HumanDirectMessage, ActorType::Human);
        other.record(event).unwrap();
        other.close().unwrap();
    });
    let stood = aware.inner.still.load(SeqCst);
    let found = aware.wait_wakes(WaitWakes {
        timeout_ms: 60_000,
        max: None,
    });
    assert_eq!(found.unwrap().wakes.len(), 1);
    let more = aware.inner.still.load(SeqCst) - stood;
    assert!(more <= 1, "{more} looks passed over it");
    drop(release);
    recording.join().unwrap();
}
