//! Calls, wakes and closing, in many orders of their threads.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;

use super::*;
use crate::contract::{ActorType, Kind};
use crate::store::Step;
use crate::sync::{explore, fail, folder, thread};

const WATCHER: &str = "agent:main:main";

fn session(n: usize) -> String {
    format!("agent:main:s{n}")
}

/// A fault at the `nth` time that `step` is reached, from when it is armed.
fn fault_at(step: Option<Step>, nth: u64) -> (Steps, std::sync::Arc<AtomicBool>) {
    let armed = std::sync::Arc::new(AtomicBool::new(false));
    let (reached, is_armed) = (AtomicU64::new(0), armed.clone());
    let at = move |here| {
        let counts = Some(here) == step && is_armed.load(SeqCst);
        if counts && reached.fetch_add(1, SeqCst) + 1 == nth {
            fail();
        }
    };
    let at: std::sync::Arc<dyn Fn(Step) + Send + Sync> = std::sync::Arc::new(at);
    (Steps { at: Some(at) }, armed)
}

/// A handle without its threads, which a model starts itself.
struct Machine {
    calls: Calls,
    wakes: Arc<watch::Wakes>,
    store: Store,
    /// Set when wakes are to be read.
    look: std::sync::Arc<AtomicBool>,
    /// The wakes that a host has got, by any of the ways.
    taken: Mutex<Vec<String>>,
    _folder: tempfile::TempDir,
}

impl Machine {
    fn open(faults: Steps) -> Machine {
        let folder = folder();
        let wakes = Arc::new(watch::Wakes::new(&folder.path().join("a.db"), None));
        let look = std::sync::Arc::new(AtomicBool::new(false));
        let (enrolling, committing, asked) = (Arc::clone(&wakes), Arc::clone(&wakes), look.clone());
        let options = Options {
            steps: faults,
            ..Options::of_test(folder.path())
        };
        let store = Store::open(
            options,
            Box::new(move |tx| enrolling.enroll(tx, 0)),
            Box::new(move |raised, heard| {
                if !committing.committed(raised, heard) {
                    asked.store(true, SeqCst);
                }
            }),
        )
        .unwrap();
        for n in 0..2 {
            let watch = watch::watch(Watch::new(WATCHER, session(n))).unwrap();
            store.write(watch).unwrap();
        }
        Machine {
            calls: Calls::default(),
            wakes,
            store,
            look,
            taken: Mutex::default(),
            _folder: folder,
        }
    }

    /// One event of each session.
    fn record(&self) -> Vec<Result<()>> {
        let record = |n| {
            let _call = self.calls.begin(false)?;
            let event = NewEvent::new(session(n), Kind::HumanDirectMessage, ActorType::Human);
            let draft = Draft::check(event)?;
            let recorded = self.store.write(move |tx| signal::record(tx, &draft));
            // As the thread for wakes does.
            if self.look.swap(false, SeqCst) {
                self.wakes.collect(&self.store)?;
            }
            recorded.map(|_| ())
        };
        (0..2).map(record).collect()
    }

    fn take(&self) -> Result<usize> {
        let _call = self.calls.begin(false)?;
        let wakes = self.wakes.wait(&self.store, Duration::MAX, 1)?;
        let count = wakes.len();
        lock(&self.taken).extend(wakes.into_iter().map(|wake| wake.target_session_key));
        Ok(count)
    }

    /// In the order of `Inner::close`.
    fn close(&self, background: thread::JoinHandle<()>) {
        assert!(self.calls.close());
        self.wakes.close();
        self.calls.wait_for_end(Instant::now());
        self.wakes.leave(&self.store);
        self.store.stop();
        background.join().unwrap();
        self.store.close();
        assert!(!self.calls.close());
    }

    fn is_closed(&self) {
        let closed = |outcome: Result<()>| assert_eq!(outcome.unwrap_err().code, Code::Closed);
        closed(self.calls.begin(false).map(|_| ()));
        closed(self.take().map(|_| ()));
        closed(self.store.write(|_| Ok(())));
        closed(self.store.queue(1, |_| Ok(()), |_| ()).map(|_| ()));
        closed(self.store.read(|_| Ok(())));
    }
}

fn background(machine: &Arc<Machine>) -> thread::JoinHandle<()> {
    let machine = Arc::clone(machine);
    thread::spawn(move || machine.store.write_queued())
}

fn start<T: Send + 'static>(
    machine: &Arc<Machine>,
    body: impl FnOnce(&Machine) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let machine = Arc::clone(machine);
    thread::spawn(move || body(&machine))
}

#[test]
fn every_wake_is_taken_once_whatever_fails_after_the_commit() {
    for step in [
        None,
        Some(Step::Committed),
        Some(Step::HandOn),
        Some(Step::HandedOn),
        Some(Step::Finish),
        Some(Step::Leave),
    ] {
        explore(30, 5, move || {
            let (faults, armed) = fault_at(step, 1);
            let machine = Arc::new(Machine::open(faults));
            armed.store(true, SeqCst);
            let writing = background(&machine);
            let recording = start(&machine, Machine::record);
            let taking: Vec<_> = (0..2).map(|_| start(&machine, Machine::take)).collect();
            for stored in recording.join().unwrap() {
                stored.unwrap();
            }
            for taken in taking {
                assert_eq!(taken.join().unwrap().unwrap(), 1);
            }
            let mut taken = lock(&machine.taken).clone();
            taken.sort();
            assert_eq!(taken, [session(0), session(1)]);
            machine.close(writing);
            machine.is_closed();
        });
    }
}

#[test]
fn closing_ends_whoever_waits_and_lets_nobody_in() {
    for step in [
        None,
        Some(Step::Begun),
        Some(Step::HandOn),
        Some(Step::Finished),
    ] {
        explore(30, 5, move || {
            let (faults, armed) = fault_at(step, 1);
            let machine = Arc::new(Machine::open(faults));
            armed.store(true, SeqCst);
            let writing = background(&machine);
            let recording = start(&machine, Machine::record);
            let taking: Vec<_> = (0..2)
                .map(|_| start(&machine, |machine| while machine.take().is_ok() {}))
                .collect();
            machine.close(writing);
            for answer in recording.join().unwrap() {
                let code = answer.err().map(|error| error.code);
                let fair = matches!(code, None | Some(Code::Closed))
                    || (step == Some(Step::Begun) && code == Some(Code::Internal));
                assert!(fair, "{code:?}");
            }
            taking.into_iter().for_each(|one| one.join().unwrap());
            let taken = lock(&machine.taken).clone();
            let distinct: BTreeSet<_> = taken.iter().collect();
            assert_eq!(distinct.len(), taken.len(), "a wake came twice");
            machine.is_closed();
        });
    }
}

#[test]
fn a_handler_that_was_replaced_runs_no_more_and_none_misses_a_wake() {
    explore(100, 20, || {
        let machine = Arc::new(Machine::open(Steps::default()));
        let writing = background(&machine);
        let delivering = start(&machine, |machine| machine.wakes.deliver(&machine.store));
        let recording = start(&machine, Machine::record);
        let late = std::sync::Arc::new(AtomicBool::new(false));
        let mut gone: Vec<std::sync::Arc<AtomicBool>> = Vec::new();
        for _ in 0..2 {
            let is_gone = std::sync::Arc::new(AtomicBool::new(false));
            let (seen, to) = (is_gone.clone(), Arc::clone(&machine));
            let late = late.clone();
            machine.wakes.set_handler(Some(Arc::new(move |wake: &Wake| {
                // Called after it was replaced, or replaced while it runs.
                late.fetch_or(seen.load(SeqCst), SeqCst);
                thread::yield_now();
                lock(&to.taken).push(wake.target_session_key.clone());
                late.fetch_or(seen.load(SeqCst), SeqCst);
            })));
            // The one before is gone when this one is set.
            if let Some(before) = gone.last() {
                before.store(true, SeqCst);
            }
            gone.push(is_gone);
        }
        recording.join().unwrap();
        machine.wakes.set_handler(None);
        gone.iter().for_each(|one| one.store(true, SeqCst));
        // What the handlers did not get is still there for who asks.
        while lock(&machine.taken).len() < 2 {
            machine.take().unwrap();
        }
        let mut taken = lock(&machine.taken).clone();
        taken.sort();
        assert_eq!(taken, [session(0), session(1)]);
        machine.close(writing);
        delivering.join().unwrap();
        machine.is_closed();
        assert!(!late.load(SeqCst), "a handler runs beyond its end");
    });
}

/// The whole handle with real threads, under faults in all steps of the leader.
#[cfg(not(feature = "models"))]
#[test]
fn a_handle_under_faults_answers_truly_and_closes() {
    const THREADS: usize = 8;
    // A double fault has its own test.
    let steps: Vec<Step> = Step::ALL
        .into_iter()
        .filter(|step| *step != Step::Undo)
        .collect();
    let enough = 7 * steps.len() as u64 * 20;
    let folder = tempfile::tempdir().unwrap();
    let config = || Config {
        monitor: Some(crate::contract::MonitorConfig {
            enabled: Some(false),
            ..Default::default()
        }),
        ..Config::new(folder.path().join("a.db").to_str().unwrap())
    };
    let (armed, reached) = (
        std::sync::Arc::new(AtomicBool::new(false)),
        std::sync::Arc::new(AtomicU64::new(0)),
    );
    let faults = {
        let (armed, reached) = (armed.clone(), reached.clone());
        // Each in turn, and hundreds of each.
        let at = move |here| {
            if armed.load(SeqCst)
                && here == steps[(reached.load(SeqCst) / 7) as usize % steps.len()]
            {
                let nth = reached.fetch_add(1, SeqCst);
                if nth % 7 == 6 {
                    fail();
                }
            }
        };
        Steps {
            at: Some(std::sync::Arc::new(at)),
        }
    };
    let aware = Awareness::open_by(config(), Clock::default(), faults).unwrap();
    for n in 0..THREADS {
        aware.watch(Watch::new(WATCHER, session(n))).unwrap();
    }
    armed.store(true, SeqCst);
    let answers: Vec<(String, Result<Recorded>)> = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let wait = WaitWakes {
                timeout_ms: 60_000,
                max: None,
            };
            while aware.wait_wakes(wait.clone()).is_ok() {}
        });
        let hosts: Vec<_> = (0..THREADS)
            .map(|n| {
                let aware = &aware;
                scope.spawn(move || {
                    let mut answers = Vec::new();
                    for nth in 0.. {
                        let key = format!("{n}-{nth}");
                        let event = NewEvent {
                            dedupe_key: Some(key.clone()),
                            ..NewEvent::new(session(n), Kind::GoalChanged, ActorType::Agent)
                        };
                        let answer = aware.record(event);
                        let closed = matches!(&answer, Err(error) if error.code == Code::Closed);
                        answers.push((key, answer));
                        if closed {
                            break;
                        }
                        let queued = NewEvent::new(session(n), Kind::Compacted, ActorType::Agent);
                        let _ = aware.record_queued(vec![queued]);
                        let _ = aware.drain_notices(DrainNotices::new(WATCHER));
                    }
                    answers
                })
            })
            .collect();
        // So many faults that each step had its share.
        let deadline = Instant::now() + Duration::from_secs(60);
        while reached.load(SeqCst) < enough {
            assert!(Instant::now() < deadline, "nobody leads any more");
            std::thread::sleep(Duration::from_millis(1));
        }
        aware.close().unwrap();
        waiting.join().unwrap();
        hosts
            .into_iter()
            .flat_map(|host| host.join().unwrap())
            .collect()
    });

    let aware = Awareness::open(config()).unwrap();
    let mut internal = 0;
    for (key, answer) in answers {
        let event = NewEvent {
            dedupe_key: Some(key.clone()),
            ..NewEvent::new(session(0), Kind::GoalChanged, ActorType::Agent)
        };
        // Told again, it is known exactly when it was said to be stored.
        let known = match aware.record(event).unwrap() {
            Recorded::Stored { duplicate, .. } => duplicate,
            other => panic!("{other:?}"),
        };
        match answer {
            Ok(_) => assert!(known, "{key} was said to be stored"),
            Err(error) => {
                assert!(!known, "{key} was said not to be stored: {error}");
                assert!(
                    matches!(error.code, Code::Internal | Code::Closed),
                    "{error}"
                );
                internal += usize::from(error.code == Code::Internal);
            }
        }
    }
    assert!(internal > 0, "no fault was met");
}

/// Two handles that were opened beside a third, which had a wake and goes
/// without it: one of them is offered it, and when that one goes the other.
#[cfg(not(feature = "models"))]
#[test]
fn of_two_handles_one_inherits_a_wake() {
    let folder = tempfile::tempdir().unwrap();
    let open =
        || Awareness::open(Config::new(folder.path().join("a.db").to_str().unwrap())).unwrap();
    let first = open();
    first.watch(Watch::new(WATCHER, session(0))).unwrap();
    first
        .record(NewEvent::new(
            session(0),
            Kind::GoalChanged,
            ActorType::Agent,
        ))
        .unwrap();
    let heirs = [open(), open()];
    let waiting = || heirs.each_ref().map(|heir| heir.inner.wakes.queued());
    let look = |at: usize| {
        heirs[at]
            .inner
            .wakes
            .inherit(&heirs[at].inner.store)
            .unwrap()
    };
    assert_eq!(waiting(), [0, 0]);
    first.close().unwrap();
    look(0);
    look(1);
    // Their own threads may have come first.
    let heir = waiting().iter().position(|wakes| *wakes == 1).unwrap();
    assert_eq!(waiting().iter().sum::<usize>(), 1);
    let third = open();
    assert_eq!(third.inner.wakes.queued(), 0);
    heirs[heir].close().unwrap();
    third.close().unwrap();
    look(1 - heir);
    assert_eq!(heirs[1 - heir].inner.wakes.queued(), 1);
}
