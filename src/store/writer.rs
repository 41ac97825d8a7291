//! The one way into the database. Who wants to write leaves a task in a queue;
//! the first to find nobody writing leads: it carries out all that is queued in
//! one transaction, while the others wait for their answers. Contention so
//! turns into batching.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};

use rusqlite::Connection;

use super::offers::Raised;
use super::{Identity, OnCommit, OnOpen, OpenFile, Options, fault, lock, now_ms, open};
use crate::contract::{Code, Error, Result};

/// How many events may wait for the background writer.
pub(crate) const QUEUE_EVENTS: usize = 8_192;

/// How many tasks one transaction takes, so that none waits for an endless one.
const GROUP: usize = 256;

/// A write transaction.
pub(crate) struct Tx<'a> {
    /// For the statements of this room.
    pub(super) conn: &'a Connection,
    /// The time of the transaction, ms since the epoch.
    pub(crate) now: i64,
    pub(super) raised: RefCell<Vec<Raised>>,
}

impl Tx<'_> {
    /// For reading in the transaction what the reading functions of this room read.
    pub(crate) fn conn(&self) -> &Connection {
        self.conn
    }
}

pub(super) struct Writer {
    options: Options,
    on_open: OnOpen,
    on_commit: OnCommit,
    file: Mutex<Option<OpenFile>>,
    /// The file that is open, for readers, which must not wait for a write.
    current: Mutex<Option<Identity>>,
    queue: Mutex<Queue>,
    /// Told when a group is done, when a task comes, and when writing stops.
    turned: Condvar,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Box<dyn Task>>,
    /// Whether a thread is at the database.
    leading: bool,
    /// Events queued that nobody waits for.
    events: usize,
    stopped: bool,
}

/// Something to do in a transaction, and what to do with the outcome after it.
trait Task: Send {
    /// How many events of the background queue it stands for.
    fn events(&self) -> usize;
    fn run(&mut self, tx: &Tx<'_>) -> Result<()>;
    fn finish(self: Box<Self>, committed: Result<()>);
}

struct Work<W, T, D> {
    events: usize,
    work: Option<W>,
    value: Option<T>,
    done: D,
}

impl<W, T, D> Task for Work<W, T, D>
where
    W: FnOnce(&Tx<'_>) -> Result<T> + Send,
    T: Send,
    D: FnOnce(Result<T>) + Send,
{
    fn events(&self) -> usize {
        self.events
    }

    fn run(&mut self, tx: &Tx<'_>) -> Result<()> {
        if let Some(work) = self.work.take() {
            self.value = Some(work(tx)?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, committed: Result<()>) {
        let value = self.value;
        (self.done)(
            committed.and_then(|()| value.ok_or_else(|| internal("a write was not carried out"))),
        );
    }
}

impl Writer {
    pub(super) fn open(options: Options, on_open: OnOpen, on_commit: OnCommit) -> Result<Writer> {
        let writer = Writer {
            options,
            on_open,
            on_commit,
            file: Mutex::new(None),
            current: Mutex::new(None),
            queue: Mutex::default(),
            turned: Condvar::new(),
        };
        writer.reopen(&mut lock(&writer.file))?;
        Ok(writer)
    }

    /// Runs `work` in a transaction and waits for its commit.
    pub(super) fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let answer = Arc::new(Mutex::new(None));
        let put = Arc::clone(&answer);
        let task = Work {
            events: 0,
            work: Some(work),
            value: None,
            done: move |outcome| *lock(&put) = Some(outcome),
        };
        let mut queue = lock(&self.queue);
        if queue.stopped {
            return Err(Error::closed());
        }
        queue.tasks.push_back(Box::new(task));
        loop {
            if let Some(outcome) = lock(&answer).take() {
                return outcome;
            }
            queue = if queue.leading {
                self.wait(queue)
            } else {
                self.lead(queue)
            };
        }
    }

    /// Leaves `work` to the background writer; `false` when too many events wait already.
    pub(super) fn queue(
        &self,
        events: usize,
        work: impl FnOnce(&Tx<'_>) -> Result<()> + Send + 'static,
        done: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<bool> {
        let mut queue = lock(&self.queue);
        if queue.stopped {
            return Err(Error::closed());
        }
        if queue.events + events > QUEUE_EVENTS {
            return Ok(false);
        }
        queue.events += events;
        queue.tasks.push_back(Box::new(Work {
            events,
            work: Some(work),
            value: None,
            done,
        }));
        drop(queue);
        self.turned.notify_all();
        Ok(true)
    }

    pub(super) fn queued_events(&self) -> usize {
        lock(&self.queue).events
    }

    /// Leads whenever something is queued and nobody else does, until stopped and empty.
    pub(super) fn write_queued(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if !queue.tasks.is_empty() && !queue.leading {
                queue = self.lead(queue);
            } else if queue.stopped && queue.tasks.is_empty() && !queue.leading {
                return;
            } else {
                queue = self.wait(queue);
            }
        }
    }

    pub(super) fn stop(&self) {
        lock(&self.queue).stopped = true;
        self.turned.notify_all();
    }

    pub(super) fn close(&self) {
        lock(&self.file).take();
    }

    /// Opens the path anew when `at_path`, the file there now, is not the one that is open.
    pub(super) fn follow(&self, at_path: Identity) -> Result<()> {
        if *lock(&self.current) == Some(at_path) {
            return Ok(());
        }
        let mut file = lock(&self.file);
        self.ensure_current(&mut file, Some(at_path))
    }

    pub(super) fn data_version(&self) -> Result<i64> {
        let file = lock(&self.file);
        let open = file.as_ref().ok_or_else(Error::closed)?;
        open.conn
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut ask| ask.query_row([], |row| row.get(0)))
            .map_err(fault)
    }

    fn wait<'a>(
        &'a self,
        queue: std::sync::MutexGuard<'a, Queue>,
    ) -> std::sync::MutexGuard<'a, Queue> {
        self.turned
            .wait(queue)
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Carries out one group and tells everybody whose task was in it.
    fn lead<'a>(
        &'a self,
        mut queue: std::sync::MutexGuard<'a, Queue>,
    ) -> std::sync::MutexGuard<'a, Queue> {
        let count = queue.tasks.len().min(GROUP);
        let mut group: Vec<_> = queue.tasks.drain(..count).collect();
        queue.leading = true;
        drop(queue);
        let outcome = catch_unwind(AssertUnwindSafe(|| self.transact(&mut group)));
        let outcomes = match outcome {
            Ok(Ok(outcomes)) => outcomes,
            Ok(Err(error)) => vec![Err(error); count],
            Err(_) => {
                self.roll_back();
                vec![
                    Err(internal(
                        "the transaction was undone after a fault of the library"
                    ));
                    count
                ]
            }
        };
        let events: usize = group.iter().map(|task| task.events()).sum();
        for (task, outcome) in group.into_iter().zip(outcomes) {
            task.finish(outcome);
        }
        let mut queue = lock(&self.queue);
        queue.leading = false;
        queue.events -= events;
        self.turned.notify_all();
        queue
    }

    /// One transaction for the group. Each task's own outcome, or one error for all.
    fn transact(&self, group: &mut [Box<dyn Task>]) -> Result<Vec<Result<()>>> {
        let now = Identity::of(&self.options.path);
        let mut file = lock(&self.file);
        self.ensure_current(&mut file, now)?;
        let conn = &file.as_ref().ok_or_else(Error::closed)?.conn;
        let (outcomes, raised) = in_transaction(conn, |tx| {
            // Alone, a task's failure ends the transaction; among others it
            // must leave theirs as they were.
            if let [only] = group {
                return only.run(tx).map(|()| vec![Ok(())]);
            }
            group
                .iter_mut()
                .map(|task| in_savepoint(tx, |tx| task.run(tx)))
                .collect()
        })?;
        // Still leading: wakes are handed on in the order of their numbers.
        drop(file);
        if !raised.is_empty() {
            // Stored is stored, whatever becomes of the wakes.
            let told = catch_unwind(AssertUnwindSafe(|| (self.on_commit)(raised)));
            if told.is_err() {
                log::error!(target: "store", "wakes were not handed on");
            }
        }
        Ok(outcomes)
    }

    fn ensure_current(&self, file: &mut Option<OpenFile>, at_path: Option<Identity>) -> Result<()> {
        let open = file.as_ref().ok_or_else(Error::closed)?;
        match at_path {
            Some(now) if now == open.identity => Ok(()),
            Some(_) => self.reopen(file),
            None => Err(super::gone()),
        }
    }

    fn reopen(&self, file: &mut Option<OpenFile>) -> Result<()> {
        let fresh = open::writer(&self.options)?;
        // What opening raises is offered to this handle by `on_open` itself.
        in_transaction(&fresh.conn, |tx| (self.on_open)(tx))?;
        *lock(&self.current) = Some(fresh.identity);
        *file = Some(fresh);
        Ok(())
    }

    fn roll_back(&self) {
        if let Some(open) = lock(&self.file).as_ref()
            && !open.conn.is_autocommit()
            && let Err(error) = open.conn.execute_batch("ROLLBACK")
        {
            log::error!(target: "store", "a rollback failed: {error}");
        }
    }
}

fn in_transaction<T>(
    conn: &Connection,
    work: impl FnOnce(&Tx<'_>) -> Result<T>,
) -> Result<(T, Vec<Raised>)> {
    run(conn, "BEGIN IMMEDIATE")?;
    let tx = Tx {
        conn,
        now: now_ms(),
        raised: RefCell::default(),
    };
    let outcome = work(&tx).and_then(|value| run(conn, "COMMIT").map(|()| value));
    if outcome.is_err() && !conn.is_autocommit() {
        run(conn, "ROLLBACK")?;
    }
    Ok((outcome?, tx.raised.into_inner()))
}

fn in_savepoint(tx: &Tx<'_>, work: impl FnOnce(&Tx<'_>) -> Result<()>) -> Result<Result<()>> {
    run(tx.conn, "SAVEPOINT task")?;
    let raised = tx.raised.borrow().len();
    let outcome = work(tx);
    if outcome.is_err() {
        // A full disk can have undone the whole transaction; then this fails too.
        run(tx.conn, "ROLLBACK TO task")?;
        tx.raised.borrow_mut().truncate(raised);
    }
    run(tx.conn, "RELEASE task")?;
    Ok(outcome)
}

fn run(conn: &Connection, sql: &str) -> Result<()> {
    conn.prepare_cached(sql)
        .and_then(|mut statement| statement.execute([]))
        .map(|_| ())
        .map_err(fault)
}

fn internal(message: &str) -> Error {
    Error::new(Code::Internal, message)
}
