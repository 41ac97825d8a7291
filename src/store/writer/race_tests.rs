//! Leader and followers, with a fault in each step of the leader: nobody hangs,
//! every answer is true, the next one leads, and closing ends.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use super::tests::{insert, open, rows};
use super::*;
use crate::key::Session;
use crate::sync::{explore, fail, folder, thread};

/// Where the fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Step(Step),
    /// Inside a task.
    Task,
    /// In who hands on the wakes.
    OnCommit,
    /// In who is told of a queued write.
    Told,
    Nowhere,
}

const OTHERS: [At; 4] = [At::Nowhere, At::Task, At::OnCommit, At::Told];

/// One fault, when its place is reached the nth time.
struct Fault {
    at: At,
    nth: usize,
    armed: AtomicBool,
    reached: AtomicUsize,
}

impl Fault {
    fn reach(&self, at: At) {
        if !self.armed.load(SeqCst) {
            return;
        }
        if self.at == At::Step(Step::Undo) {
            // Undone is only what another fault ended.
            match at {
                At::Task => {}
                _ if self.at == at => fail(),
                _ => return,
            }
        } else if self.at != at {
            return;
        }
        if self.reached.fetch_add(1, SeqCst) + 1 == self.nth {
            fail();
        }
    }
}

/// What the threads were told, and what wakes were handed on.
#[derive(Default)]
struct Heard {
    answers: Mutex<Vec<(i64, Result<()>)>>,
    wakes: Mutex<Vec<u64>>,
    /// Wakes were lost on the way, and who hears so reads them.
    look: AtomicBool,
}

fn raise(tx: &Tx<'_>, n: i64) {
    tx.raised.borrow_mut().push(Raised {
        number: n as u64,
        watcher: "agent:main:main".to_owned(),
        target: Session {
            key: "agent:main:x".to_owned(),
            agent: "main".to_owned(),
        },
    });
}

fn run(at: At, nth: usize) {
    let folder = folder();
    let fault = Arc::new(Fault {
        at,
        nth,
        armed: AtomicBool::new(false),
        reached: AtomicUsize::new(0),
    });
    let heard = Arc::new(Heard::default());
    let on_commit = {
        let (fault, heard) = (Arc::clone(&fault), Arc::clone(&heard));
        move |raised: Vec<Raised>, _| {
            if raised.is_empty() {
                return heard.look.store(true, SeqCst);
            }
            fault.reach(At::OnCommit);
            lock(&heard.wakes).extend(raised.iter().map(|wake| wake.number));
        }
    };
    let faults = {
        let fault = Arc::clone(&fault);
        Steps {
            at: Some(Arc::new(move |step| fault.reach(At::Step(step)))),
        }
    };
    let writer = open(&folder, faults, Box::new(on_commit));
    fault.armed.store(true, SeqCst);
    let background = {
        let writer = Arc::clone(&writer);
        thread::spawn(move || writer.write_queued())
    };
    let work = |n: i64| {
        let fault = Arc::clone(&fault);
        move |tx: &Tx<'_>| {
            fault.reach(At::Task);
            insert(n)(tx)?;
            raise(tx, n);
            Ok(())
        }
    };
    let hosts: Vec<_> = (0..2)
        .map(|host| {
            let n = host * 10;
            let works = [work(n + 1), work(n + 2), work(n + 3)];
            let (writer, fault, heard) =
                (Arc::clone(&writer), Arc::clone(&fault), Arc::clone(&heard));
            thread::spawn(move || {
                let [first, second, third] = works;
                let told = |n, answer| lock(&heard.answers).push((n, answer));
                told(n + 1, writer.write(first));
                let also = Arc::clone(&heard);
                let done = move |answer| {
                    lock(&also.answers).push((n + 2, answer));
                    fault.reach(At::Told);
                };
                assert!(writer.queue(1, second, done).unwrap());
                told(n + 3, writer.write(third));
            })
        })
        .collect();
    hosts.into_iter().for_each(|host| host.join().unwrap());
    fault.armed.store(false, SeqCst);
    // Whoever comes next leads.
    writer.write(insert(99)).unwrap();
    let stored = rows(&writer);
    writer.stop();
    background.join().unwrap();
    assert_eq!(
        writer.write(insert(100)).unwrap_err().code,
        Code::Closed,
        "nothing is let in"
    );
    assert_eq!(writer.queued_events(), 0);
    {
        let queue = lock(&writer.queue);
        assert!(queue.tasks.is_empty() && !queue.leading);
    }
    writer.close();

    let answers = lock(&heard.answers);
    let wakes = lock(&heard.wakes);
    let mut asked: Vec<i64> = answers.iter().map(|(n, _)| *n).collect();
    asked.sort();
    assert_eq!(asked, [1, 2, 3, 11, 12, 13], "each has one answer");
    for (n, answer) in answers.iter() {
        match answer {
            Ok(()) => {
                assert!(stored.contains(n), "{n} was said to be stored");
                let handed_on = wakes.iter().filter(|wake| **wake == *n as u64).count();
                assert!(handed_on == 1 || heard.look.load(SeqCst), "wake of {n}");
            }
            Err(error) => {
                assert_eq!(error.code, Code::Internal);
                assert!(!stored.contains(n), "{n} was said not to be stored");
                assert!(!wakes.contains(&(*n as u64)), "a wake of {n}");
            }
        }
    }
    // What was committed is never told as lost: only a fault before may do that.
    let before_commit = matches!(
        at,
        At::Task
            | At::Step(
                Step::Led
                    | Step::Current
                    | Step::Begin
                    | Step::Begun
                    | Step::Done
                    | Step::Commit
                    | Step::Undo
            )
    );
    let failed = answers.iter().any(|(_, answer)| answer.is_err());
    let happened = fault.reached.load(SeqCst) >= nth;
    assert_eq!(failed, before_commit && happened, "{at:?}, {nth}");
}

#[test]
fn a_fault_in_any_step_of_the_leader_ends_that_step_alone() {
    for at in OTHERS.into_iter().chain(Step::ALL.map(At::Step)) {
        for nth in 1..=3 {
            explore(10, 3, move || run(at, nth));
        }
    }
}
