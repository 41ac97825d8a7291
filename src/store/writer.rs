//! The one way into the database. Who wants to write leaves a task in a queue;
//! the first to find nobody writing leads: it carries out all that is queued in
//! one transaction, while the others wait for their answers. Contention so
//! turns into batching, and who leads waits a moment for those of the last group.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use rusqlite::Connection;

use super::alive::Turn;
use super::checkpoints::Checkpoints;
use super::faults::{Health, explain, fault};
use super::offers::Raised;
use super::open::{self, Files, Log, OpenFile, Place, Stillness};
use super::owed::{self, Owed};
use super::power::Moves;
use super::readers::Readers;
use super::steps::Step;
use super::{OnCommit, OnOpen, Options, Steps, lock};
use crate::contract::{Cause, Code, Error, Result};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, thread, try_lock, wait};
use crate::sys::{self, Kept};

/// How many events may wait for the background writer.
pub(crate) const QUEUE_EVENTS: usize = 8_192;

/// How many tasks one transaction takes, so that none waits for an endless one.
const GROUP: usize = 256;

/// A write transaction.
pub(crate) struct Tx<'a> {
    /// For the statements of this room.
    pub(super) conn: &'a Kept,
    now: Cell<i64>,
    pub(super) raised: RefCell<Vec<Raised>>,
    /// Whether a wake was raised that other handles are to hear of.
    pub(super) heard: Cell<bool>,
    pub(super) owed: Owed,
    checkpoints: Option<&'a Checkpoints>,
}

impl Tx<'_> {
    /// The time of the task, ms since the epoch; tasks that came together have the same.
    pub(crate) fn now(&self) -> i64 {
        self.now.get()
    }

    /// Leaves the write-ahead log as it is after this transaction, for who
    /// checkpoints on a connection of their own, where nobody waits for it.
    pub(crate) fn leave_log(&self) {
        if let Some(checkpoints) = self.checkpoints {
            checkpoints.set_quiet(true);
        }
    }

    /// For reading in the transaction what the reading functions of this room read.
    pub(crate) fn conn(&self) -> Result<&Connection> {
        owed::settle(self)?;
        Ok(self.conn)
    }
}

pub(super) struct Writer {
    options: Options,
    on_open: OnOpen,
    on_commit: OnCommit,
    place: Place,
    readers: Arc<Readers>,
    health: Arc<Health>,
    file: Mutex<Slot>,
    /// The files that are open, for readers, which must not wait for a write.
    current: Mutex<Option<Files>>,
    queue: Mutex<Queue>,
    log_due: (Sender<()>, Receiver<()>),
    /// Tells the background writer, when it is asleep, of tasks that nobody
    /// else will carry out, and that writing stops.
    called: Condvar,
}

/// How a database stands: as long as it is the same, nothing was written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    files: Files,
    /// What other connections did.
    others: i64,
    own: u64,
}

/// Where the writing connection is.
#[derive(Default)]
struct Slot {
    open: Option<OpenFile>,
    /// What was left and is still to be cleared away, and whether it is damaged.
    left: Option<(Files, bool)>,
    closed: bool,
}

impl Slot {
    fn file(&self) -> Result<&OpenFile> {
        self.open.as_ref().ok_or_else(Error::closed)
    }
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Box<dyn Task>>,
    /// Whether a thread is at the database.
    leading: bool,
    /// Whether the background writer waits to be called.
    asleep: bool,
    /// How many threads were told or left waiting after the last group, when it
    /// was one of several.
    expected: usize,
    /// Whether the last group took so long that nobody is to look out for the next.
    slow: bool,
    /// Events queued that nobody waits for.
    events: usize,
    stopped: bool,
}

/// For how long a thread looks out, and how often at most. It gives its processor
/// away between two looks, which costs less than to sleep: to wake a thread takes
/// both sides as long as a transaction takes.
#[derive(Clone, Copy)]
struct Patience(Duration, usize);

/// For an outcome: as long as a group takes with a flush by a quick disk.
const FOR_OUTCOME: Patience = Patience::of(600);

/// For tasks on their way.
const FOR_TASKS: Patience = Patience::of(200);

/// For others who glance at the connection, as all do whose intervals end together.
const FOR_GLANCES: Patience = Patience::of(100);

impl Patience {
    const fn of(micros: u64) -> Patience {
        if cfg!(all(test, feature = "models")) {
            // Without a clock, which no model has.
            Patience(Duration::MAX, 2)
        } else {
            Patience(Duration::from_micros(micros), 3 * micros as usize)
        }
    }

    /// Tries until there is something or patience ends, `since` when it counts.
    fn look_out<T>(self, since: Instant, attempt: impl Fn() -> Option<T>) -> Option<T> {
        for _ in 0..self.1 {
            let found = attempt();
            if found.is_some() || since.elapsed() >= self.0 {
                return found;
            }
            thread::yield_now();
        }
        None
    }

    /// What `lock` answers when it `is_there`, or when patience ends.
    fn look_at<'a, T>(
        self,
        since: Instant,
        lock: impl Fn() -> MutexGuard<'a, T>,
        is_there: impl Fn(&T) -> bool,
    ) -> MutexGuard<'a, T> {
        let look = || Some(lock()).filter(|now| is_there(now));
        self.look_out(since, look).unwrap_or_else(&lock)
    }
}

/// Something to do in a transaction, and what to do with the outcome after it.
trait Task: Send {
    /// How many events of the background queue it stands for.
    fn events(&self) -> usize;
    fn run(&mut self, tx: &Tx<'_>) -> Result<()>;
    /// Whether it may be carried out again after it was undone.
    fn repeats(&self) -> bool;
    /// Tells of the outcome; a second time does nothing.
    fn finish(&mut self, committed: Result<()>);
    /// Has whoever waits for it try to lead; false when nobody waits.
    fn hand_over(&self) -> bool;
    fn is_waited_for(&self) -> bool;
}

/// What a task does.
trait Job<T>: Send {
    const REPEATS: bool;
    /// Does it; `None` when that was done and cannot be done again.
    fn carry_out(&mut self, tx: &Tx<'_>) -> Option<Result<T>>;
}

struct Once<W>(Option<W>);

impl<T, W: FnOnce(&Tx<'_>) -> Result<T> + Send> Job<T> for Once<W> {
    const REPEATS: bool = false;

    fn carry_out(&mut self, tx: &Tx<'_>) -> Option<Result<T>> {
        self.0.take().map(|work| work(tx))
    }
}

struct Again<W>(W);

impl<T, W: Fn(&Tx<'_>) -> Result<T> + Send> Job<T> for Again<W> {
    const REPEATS: bool = true;

    fn carry_out(&mut self, tx: &Tx<'_>) -> Option<Result<T>> {
        Some((self.0)(tx))
    }
}

/// Whom a task tells.
trait Asker<T>: Send {
    const WAITS: bool;
    fn tell(&mut self, outcome: Result<T>);
    fn hand_over(&self) -> bool;
}

/// Nobody waits; `done` is told.
struct Nobody<D>(Option<D>);

impl<T, D: FnOnce(Result<T>) + Send> Asker<T> for Nobody<D> {
    const WAITS: bool = false;

    fn tell(&mut self, outcome: Result<T>) {
        if let Some(done) = self.0.take() {
            done(outcome);
        }
    }

    fn hand_over(&self) -> bool {
        false
    }
}

/// Where a thread waits for its own task alone.
struct Ticket<T> {
    call: Call,
    /// There when `Done` was said.
    outcome: Mutex<Option<Result<T>>>,
}

/// What a waiting thread is told; apart from the outcome, so that it is one piece
/// of code for all of them.
#[derive(Default)]
struct Call {
    said: Mutex<Said>,
    told: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Said {
    /// Nothing yet, and the thread does not wait yet.
    #[default]
    Coming,
    /// Nothing yet, and the thread waits.
    Waiting,
    /// Nobody leads, so this thread may.
    Lead,
    Done,
}

impl Call {
    fn say(&self, said: Said) {
        let mut now = lock(&self.said);
        if *now == Said::Done {
            return;
        }
        let before = std::mem::replace(&mut *now, said);
        drop(now);
        // Telling costs a system call.
        if before == Said::Waiting {
            self.told.notify_one();
        }
    }

    /// Waits until `Lead` or `Done` is said; whether it is `Done`.
    fn wait(&self, looks_out: bool) -> bool {
        let look = || lock(&self.said);
        let mut said = if looks_out {
            FOR_OUTCOME.look_at(Instant::now(), look, |said| *said != Said::Coming)
        } else {
            look()
        };
        loop {
            match *said {
                Said::Coming | Said::Waiting => {
                    *said = Said::Waiting;
                    said = wait(&self.told, said);
                }
                Said::Lead => {
                    *said = Said::Coming;
                    return false;
                }
                Said::Done => return true,
            }
        }
    }
}

impl<T> Ticket<T> {
    fn new() -> Arc<Ticket<T>> {
        Arc::new(Ticket {
            call: Call::default(),
            outcome: Mutex::default(),
        })
    }

    /// The outcome; `None` when this thread may lead.
    fn wait(&self, looks_out: bool) -> Option<Result<T>> {
        let is_done = self.call.wait(looks_out);
        is_done.then(|| {
            let outcome = lock(&self.outcome).take();
            outcome.unwrap_or_else(|| Err(internal("an outcome was taken before")))
        })
    }
}

impl<T: Send> Asker<T> for Arc<Ticket<T>> {
    const WAITS: bool = true;

    fn tell(&mut self, outcome: Result<T>) {
        lock(&self.outcome).get_or_insert(outcome);
        self.call.say(Said::Done);
    }

    fn hand_over(&self) -> bool {
        self.call.say(Said::Lead);
        true
    }
}

struct Work<W, T, A> {
    events: usize,
    work: W,
    value: Option<T>,
    asker: A,
    told: bool,
}

/// What a transaction came to that was committed.
struct Stored {
    /// Each task's own.
    outcomes: Vec<Result<()>>,
    raised: Vec<Raised>,
    heard: bool,
}

impl<W, T, A> Task for Work<W, T, A>
where
    W: Job<T>,
    T: Send,
    A: Asker<T>,
{
    fn events(&self) -> usize {
        self.events
    }

    fn run(&mut self, tx: &Tx<'_>) -> Result<()> {
        if let Some(value) = self.work.carry_out(tx) {
            self.value = Some(value?);
        }
        Ok(())
    }

    fn repeats(&self) -> bool {
        W::REPEATS
    }

    fn finish(&mut self, committed: Result<()>) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        let value = self.value.take();
        self.asker.tell(
            committed.and_then(|()| value.ok_or_else(|| internal("a write was not carried out"))),
        );
    }

    fn hand_over(&self) -> bool {
        self.asker.hand_over()
    }

    fn is_waited_for(&self) -> bool {
        A::WAITS
    }
}

impl Writer {
    pub(super) fn open(
        options: Options,
        readers: Arc<Readers>,
        health: Arc<Health>,
        on_open: OnOpen,
        on_commit: OnCommit,
    ) -> Result<Writer> {
        let mut writer = Writer {
            place: Place::new(&options.path),
            options,
            on_open,
            on_commit,
            readers,
            health,
            file: Mutex::default(),
            current: Mutex::new(None),
            queue: Mutex::default(),
            log_due: bounded(1),
            called: Condvar::new(),
        };
        writer.reopen(&mut lock(&writer.file))?;
        // What is removed later is not made anew behind the host's back.
        writer.options.create = false;
        Ok(writer)
    }

    /// Runs `work` in a transaction and waits for its commit.
    pub(super) fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.carry_out(Once(Some(work)))
    }

    /// As [`Writer::write`], for work that can be undone and done again, which
    /// costs less among others.
    pub(super) fn write_repeatable<T: Send + 'static>(
        &self,
        work: impl Fn(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.carry_out(Again(work))
    }

    fn carry_out<T: Send + 'static>(&self, work: impl Job<T> + 'static) -> Result<T> {
        let ticket = Ticket::new();
        let task = Work {
            events: 0,
            work,
            value: None,
            asker: Arc::clone(&ticket),
            told: false,
        };
        let looks_out = {
            let mut queue = lock(&self.queue);
            if queue.stopped {
                return Err(Error::closed());
            }
            queue.tasks.push_back(Box::new(task));
            let quick = !queue.slow;
            self.try_to_lead(queue);
            quick
        };
        loop {
            match ticket.wait(looks_out) {
                Some(outcome) => return outcome,
                // More may be queued before it than one group holds, and who
                // came in between may lead already.
                None => self.try_to_lead(lock(&self.queue)),
            }
        }
    }

    /// Leads if nobody does and something is queued.
    fn try_to_lead(&self, mut queue: MutexGuard<'_, Queue>) {
        if !queue.leading && !queue.tasks.is_empty() {
            queue.leading = true;
            self.lead(queue);
        }
    }

    /// Waits a little for more tasks while the group is smaller than was
    /// `expected`, and takes them into it; whether there are any. The threads of
    /// the last group are as often as not on their way to their next task, and one
    /// transaction for all of them costs little more than one for the first.
    fn gather(&self, group: &mut Vec<Box<dyn Task>>, expected: usize, since: Instant) -> bool {
        let gathered = guarded("gathering", || {
            self.steps().reach(Step::Gather);
            self.take_more(group, expected, since)
        });
        gathered == Some(true)
    }

    fn take_more(&self, group: &mut Vec<Box<dyn Task>>, expected: usize, since: Instant) -> bool {
        if group.len() >= expected {
            return false;
        }
        let come = |queue: &Queue| !queue.tasks.is_empty() || queue.stopped;
        let mut queue = FOR_TASKS.look_at(since, || lock(&self.queue), come);
        let missing = expected - group.len();
        let count = queue.tasks.len().min(missing);
        group.extend(queue.tasks.drain(..count));
        count > 0
    }

    /// Leaves `work` to the background writer; `false` when too many events wait already.
    pub(super) fn queue(
        &self,
        events: usize,
        work: impl Fn(&Tx<'_>) -> Result<()> + Send + 'static,
        done: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<bool> {
        let task = Box::new(Work {
            events,
            work: Again(work),
            value: None,
            asker: Nobody(Some(done)),
            told: false,
        });
        let mut queue = lock(&self.queue);
        if queue.stopped {
            return Err(Error::closed());
        }
        if queue.events + events > QUEUE_EVENTS {
            return Ok(false);
        }
        queue.events += events;
        queue.tasks.push_back(task);
        // Who leads looks for more when it is done.
        let call = !queue.leading && std::mem::take(&mut queue.asleep);
        drop(queue);
        if call {
            self.called.notify_one();
        }
        Ok(true)
    }

    pub(super) fn queued_events(&self) -> usize {
        lock(&self.queue).events
    }

    /// Leads whenever something is queued and nobody else does, until stopped and empty.
    pub(super) fn write_queued(&self) {
        sys::wait_for_a_turn();
        let mut queue = lock(&self.queue);
        loop {
            if !queue.tasks.is_empty() && !queue.leading {
                queue.leading = true;
                self.lead(queue);
                queue = lock(&self.queue);
            } else if queue.stopped && queue.tasks.is_empty() && !queue.leading {
                return;
            } else {
                queue.asleep = true;
                queue = wait(&self.called, queue);
                queue.asleep = false;
            }
        }
    }

    pub(super) fn stop(&self) {
        lock(&self.queue).stopped = true;
        self.called.notify_one();
    }

    pub(super) fn close(&self) {
        let mut slot = lock(&self.file);
        slot.closed = true;
        let Some(open) = slot.open.take() else {
            return;
        };
        // Damaged files are left as they are.
        if self.health.damage(open.files).is_some() {
            return;
        }
        open.mend();
        match self.place.files() {
            Ok(now) if now == open.files => {
                if !open.keeps_log() {
                    open.close_and_tidy();
                }
            }
            now => self.leave_for_good(open, now.ok()),
        }
    }

    /// Leaves files that are not those at the path, and nobody turned to these.
    fn leave_for_good(&self, open: OpenFile, now: Option<Files>) {
        let turn = Turn::take(&self.options.path, self.options.busy_timeout);
        let (old, damaged) = self.leave(open, now);
        if let (Some(_), Ok(_turn)) = (now, turn)
            && let Err(error) = self.place.clear(old, damaged)
        {
            log::error!(target: "store", "{error}");
        }
    }

    /// The files that are open.
    pub(super) fn current(&self) -> Option<Files> {
        *lock(&self.current)
    }

    /// Opens the path anew when `at_path`, the files there now, are not those
    /// that are open; which they are then.
    pub(super) fn follow(&self, at_path: Files) -> Result<Files> {
        if self.current() == Some(at_path) {
            return Ok(at_path);
        }
        let mut slot = lock(&self.file);
        let followed = self.ensure_current(&mut slot, at_path);
        drop(slot);
        self.health.note(Some(at_path), followed)?;
        self.place.files()
    }

    pub(super) fn data_version(&self) -> Result<Option<i64>> {
        self.glance(|open| owed::data_version(&open.conn))
    }

    pub(super) fn stillness(&self) -> Option<Stillness> {
        self.place.stillness()
    }

    pub(super) fn standing(&self) -> Result<Option<Standing>> {
        self.glance(|open| {
            Ok(Standing {
                files: open.files,
                others: owed::data_version(&open.conn)?,
                own: open.conn.total_changes(),
            })
        })
    }

    /// What the writing connection says, unless it is at work: who asks is not
    /// to wait as long as a write may, but a moment, as long as others' glances take.
    fn glance<T>(&self, ask: impl FnOnce(&OpenFile) -> Result<T>) -> Result<Option<T>> {
        let at_path = self.place.files()?;
        let Some(mut slot) = FOR_GLANCES.look_out(Instant::now(), || try_lock(&self.file)) else {
            return Ok(None);
        };
        let turned = self.ensure_current(&mut slot, at_path);
        self.health.note(Some(at_path), turned)?;
        ask(slot.file()?).map(Some)
    }

    /// Carries out one group and tells everybody whose task was in it. A panic
    /// on the way ends the step it came in, and never the leading: nobody is
    /// left waiting, and what was stored by then is told as stored.
    fn lead(&self, mut queue: MutexGuard<'_, Queue>) {
        let since = Instant::now();
        let expected = std::mem::take(&mut queue.expected);
        let count = queue.tasks.len().min(GROUP);
        let mut group: Vec<_> = queue.tasks.drain(..count).collect();
        let behind = queue.tasks.len();
        drop(queue);
        let mut stored = None;
        let carried_out = guarded("writing", || {
            self.steps().reach(Step::Led);
            self.transact(&mut group, expected, &mut stored)
        });
        let undone = |error, count| Stored {
            outcomes: vec![Err(error); count],
            raised: Vec::new(),
            heard: false,
        };
        let stored = match (stored, carried_out) {
            (Some(stored), _) => stored,
            (None, Some(Err(error))) => {
                if error.code == Code::Busy {
                    // Whoever is behind them waited as long, and is not to wait once more.
                    let mut queue = lock(&self.queue);
                    let behind = behind.min(queue.tasks.len());
                    group.extend(queue.tasks.drain(..behind));
                }
                undone(error, group.len())
            }
            (None, _) => {
                guarded("undoing", || self.roll_back());
                undone(
                    internal("the transaction was undone after a fault of the library"),
                    group.len(),
                )
            }
        };
        // Still leading: wakes are handed on in the order of their numbers.
        self.hand_on(stored.raised, stored.heard);
        guarded("leaving", || self.steps().reach(Step::Leave));
        if guarded("handing over", || self.end_leading(&group, since.elapsed())).is_none() {
            self.hand_over_to_all();
        }
        // The next group is under way meanwhile.
        debug_assert_eq!(group.len(), stored.outcomes.len());
        for (task, outcome) in group.iter_mut().zip(stored.outcomes) {
            let told = guarded("telling of a write", || {
                self.steps().reach(Step::Finish);
                task.finish(outcome.clone());
                self.steps().reach(Step::Finished);
            });
            if told.is_none() {
                guarded("telling of a write again", || task.finish(outcome));
            }
        }
    }

    /// Ends the leading of a group. The next to come leads, or the last of those
    /// that are gathered, so that nothing waits for a thread to wake; who waits for
    /// the first task is told in any case, or the background writer when nobody
    /// waits for any.
    fn end_leading(&self, group: &[Box<dyn Task>], took: Duration) {
        let mut queue = lock(&self.queue);
        queue.slow = took > FOR_OUTCOME.0;
        queue.leading = false;
        queue.events -= group.iter().map(|task| task.events()).sum::<usize>();
        self.steps().reach(Step::HandOver);
        let waited = |tasks: &mut dyn Iterator<Item = &Box<dyn Task>>| {
            tasks.filter(|task| task.is_waited_for()).count()
        };
        queue.expected = match waited(&mut group.iter()) {
            0 | 1 => 0,
            several => (several + waited(&mut queue.tasks.iter())).min(GROUP),
        };
        if queue.tasks.iter().any(|task| task.hand_over()) {
            return;
        }
        let call = queue.stopped || !queue.tasks.is_empty();
        let call = call && std::mem::take(&mut queue.asleep);
        drop(queue);
        if call {
            self.called.notify_one();
        }
    }

    /// Has whoever waits try to lead, when it is not known who was told.
    fn hand_over_to_all(&self) {
        let mut queue = lock(&self.queue);
        queue.asleep = false;
        for task in &queue.tasks {
            task.hand_over();
        }
        drop(queue);
        self.called.notify_one();
    }

    /// One transaction for the group; what it comes to is in `stored` as soon
    /// as it is stored.
    fn transact(
        &self,
        group: &mut Vec<Box<dyn Task>>,
        expected: usize,
        stored: &mut Option<Stored>,
    ) -> Result<()> {
        let now = self.health.note(None, self.place.files())?;
        let mut slot = lock(&self.file);
        self.steps().reach(Step::Current);
        let turned = self.ensure_current(&mut slot, now);
        self.health.note(Some(now), turned)?;
        let open = slot.file()?;
        let (conn, files) = (&open.conn, open.files);
        let checked = self.health.check(files);
        self.health.note(None, checked)?;
        let mut most = expected;
        // Others come to their turn while no transaction is open. What cannot be
        // read is met by the transaction.
        if group.len() < expected && open.company.is_there(conn).unwrap_or(false) {
            let since = Instant::now();
            while self.gather(group, expected, since) {}
            most = group.len();
        }
        // What SQLite met when it last moved the log, and passed over, is not this one's.
        sys::take_read_errno(conn);
        // Somebody may have seen damage meanwhile.
        let sound = || self.health.begin_commit(files);
        let first = in_transaction(open, &self.options, sound, |tx| {
            self.run_together(tx, group, most)
        });
        let done = match first {
            // One of them failed, which must leave the others' work as it is.
            Err(error)
                if group.len() > 1
                    && all_repeat(group)
                    && error.code != Code::Busy
                    && error.cause != Cause::Damage =>
            {
                in_transaction(open, &self.options, sound, |tx| {
                    let mut outcomes = Vec::with_capacity(group.len());
                    self.run_apart(tx, group, &mut outcomes)?;
                    Ok(outcomes)
                })
            }
            done => done,
        };
        let told = |error| explain(error, Some(conn), &self.options.path);
        let (outcomes, (raised, heard)) = self.health.note(Some(files), done.map_err(told))?;
        let outcomes = outcomes
            .into_iter()
            .map(|outcome| self.health.note(Some(files), outcome.map_err(told)))
            .collect();
        *stored = Some(Stored {
            outcomes,
            raised,
            heard,
        });
        self.steps().reach(Step::Committed);
        self.tell_of_log(open);
        open.mend();
        Ok(())
    }

    /// Ready when the log has become long.
    pub(super) fn log_is_due(&self) -> Receiver<()> {
        self.log_due.1.clone()
    }

    fn tell_of_log(&self, open: &OpenFile) {
        if open.checkpoints.as_ref().is_some_and(|c| c.take_due()) {
            // Full means that it is known.
            let _ = self.log_due.0.try_send(());
        }
    }

    /// How the log is moved, when that is taken care of.
    pub(super) fn moves(&self) -> Option<Arc<Moves>> {
        let slot = lock(&self.file);
        slot.open.as_ref()?.moves.clone()
    }

    fn hand_on(&self, raised: Vec<Raised>, heard: bool) {
        if raised.is_empty() {
            return;
        }
        let handed_on = guarded("handing on wakes", || {
            self.steps().reach(Step::HandOn);
            (self.on_commit)(raised, heard);
            self.steps().reach(Step::HandedOn);
        });
        if handed_on.is_none() {
            guarded("having wakes read", || (self.on_commit)(Vec::new(), true));
        }
    }

    fn steps(&self) -> &Steps {
        &self.options.steps
    }

    /// Carries out the tasks, and those that come meanwhile while they are fewer
    /// than was `expected`. Those that can be repeated are not kept apart: when one
    /// fails all are undone.
    fn run_together(
        &self,
        tx: &Tx<'_>,
        group: &mut Vec<Box<dyn Task>>,
        expected: usize,
    ) -> Result<Vec<Result<()>>> {
        let mut outcomes = Vec::with_capacity(group.len().max(expected));
        let since = Instant::now();
        loop {
            let new = outcomes.len();
            // Alone, a task's failure ends the transaction as well.
            if group.len() == 1 || all_repeat(group) {
                for task in &mut group[new..] {
                    outcomes.push(Ok(task.run(tx)?));
                    self.steps().reach(Step::Done);
                }
            } else {
                owed::settle(tx)?;
                self.run_apart(tx, &mut group[new..], &mut outcomes)?;
            }
            if !self.gather(group, expected, since) {
                return Ok(outcomes);
            }
            tx.now.set(self.options.clock.now_ms());
        }
    }

    /// Carries out each task so that its failure leaves the others' work as it was.
    fn run_apart(
        &self,
        tx: &Tx<'_>,
        tasks: &mut [Box<dyn Task>],
        outcomes: &mut Vec<Result<()>>,
    ) -> Result<()> {
        for task in tasks {
            let outcome = in_savepoint(tx, |tx| task.run(tx))?;
            self.steps().reach(Step::Done);
            match outcome {
                // Into a damaged file nothing of the others is written either.
                Err(error) if error.cause == Cause::Damage => return Err(error),
                outcome => outcomes.push(outcome),
            }
        }
        Ok(())
    }

    /// Makes sure that the open files are those at the path.
    fn ensure_current(&self, slot: &mut Slot, at_path: Files) -> Result<()> {
        if slot.closed {
            return Err(Error::closed());
        }
        match &slot.open {
            Some(open) if open.files == at_path => Ok(()),
            // Damaged, and so left alone whatever becomes of its log.
            Some(open)
                if open.files.same_main(at_path) && self.health.damage(at_path).is_some() =>
            {
                Ok(())
            }
            _ => self.turn_to_path(slot),
        }
    }

    /// Leaves the files that are open for those that are at the path now.
    fn turn_to_path(&self, slot: &mut Slot) -> Result<()> {
        let _turn = Turn::take(&self.options.path, self.options.busy_timeout)?;
        let now = self.place.files()?;
        self.health.check(now)?;
        // SQLite shares a log's index among the connections of a process.
        let retired = self.readers.retire();
        if let Some(open) = slot.open.take_if(|open| open.files != now) {
            *lock(&self.current) = None;
            slot.left = Some(self.leave(open, Some(now)));
        }
        if let Some((old, damaged)) = slot.left {
            self.place.clear(old, damaged)?;
            slot.left = None;
        }
        if slot.open.is_none() {
            if self.place.has_stale_connections() {
                return Err(open::stale());
            }
            self.reopen(slot)?;
        }
        drop(retired);
        Ok(())
    }

    /// Closes the files, `now` being those at the path if there are any; which they
    /// were, and whether they are damaged.
    fn leave(&self, open: OpenFile, now: Option<Files>) -> (Files, bool) {
        let old = open.files;
        let damaged = self.health.damage(old).is_some();
        let what = match now {
            Some(now) if now.same_main(old) => {
                "the database's -wal or -shm file was removed or replaced"
            }
            Some(_) => "the database file was replaced",
            None => "the database file is gone from its path",
        };
        let lost = match now.map_or(Log::Own, |now| now.log_of(old)) {
            _ if damaged => None,
            Log::Taken => None,
            // Into the file it belongs to, wherever that is now.
            Log::Own => open
                .empty_log(self.options.busy_timeout)
                .err()
                .map(|error| error.message),
            Log::Another => Some("another log is in its place".to_owned()),
        };
        match lost {
            None => log::warn!(target: "store", "{what}: it is left for what is there"),
            Some(why) => {
                log::error!(target: "store", "{what}: it is left for what is there, and what lay only in its log is lost: {why}");
            }
        }
        (old, damaged)
    }

    fn reopen(&self, slot: &mut Slot) -> Result<()> {
        let fresh = open::writer(&self.options)?;
        let begin = |tx: &Tx<'_>| {
            // Who opens does not wait for a log that others left long.
            tx.leave_log();
            (self.on_open)(tx)
        };
        // What opening raises is offered to this handle by `on_open` itself.
        in_transaction(&fresh, &self.options, || Ok(()), begin)
            .map_err(|error| explain(error, Some(&fresh.conn), &self.options.path))?;
        self.tell_of_log(&fresh);
        *lock(&self.current) = Some(fresh.files);
        slot.open = Some(fresh);
        Ok(())
    }

    fn roll_back(&self) {
        let slot = lock(&self.file);
        self.steps().reach(Step::Undo);
        let Some(open) = &slot.open else { return };
        if !open.conn.is_autocommit()
            && let Err(error) = open.conn.execute_batch("ROLLBACK")
        {
            log::error!(target: "store", "a rollback failed: {error}");
        }
    }
}

fn in_transaction<T, G>(
    open: &OpenFile,
    options: &Options,
    before_commit: impl FnOnce() -> Result<G>,
    work: impl FnOnce(&Tx<'_>) -> Result<T>,
) -> Result<(T, (Vec<Raised>, bool))> {
    let conn: &Kept = &open.conn;
    // Kept only by a transaction that ends well.
    let known = open.known.take();
    options.steps.reach(Step::Begin);
    if !conn.is_autocommit() {
        // A second fault kept it from being undone after the first.
        run(conn, "ROLLBACK")?;
    }
    run(conn, "BEGIN IMMEDIATE")?;
    let mut tx = Tx {
        conn,
        now: Cell::new(options.clock.now_ms()),
        raised: RefCell::default(),
        heard: Cell::new(false),
        owed: Owed::default(),
        checkpoints: open.checkpoints.as_deref(),
    };
    if let Some(checkpoints) = tx.checkpoints {
        // Whatever became of the transaction that was to leave the log alone.
        checkpoints.set_quiet(false);
    }
    options.steps.reach(Step::Begun);
    let outcome = Owed::begin(conn, known).and_then(|owed| {
        tx.owed = owed;
        let value = work(&tx)?;
        owed::settle(&tx)?;
        let _committing = before_commit()?;
        options.steps.reach(Step::Commit);
        run(conn, "COMMIT").map(|()| value)
    });
    if outcome.is_err() && !conn.is_autocommit() {
        run(conn, "ROLLBACK")?;
    }
    let value = outcome?;
    open.known.replace(tx.owed.into_known());
    Ok((value, (tx.raised.into_inner(), tx.heard.get())))
}

/// Runs `work` so that an error undoes what it did alone. Nothing is owed before
/// it, nor after it.
fn in_savepoint(tx: &Tx<'_>, work: impl FnOnce(&Tx<'_>) -> Result<()>) -> Result<Result<()>> {
    run(tx.conn, "SAVEPOINT task")?;
    let raised = tx.raised.borrow().len();
    let outcome = work(tx).and_then(|()| owed::settle(tx));
    if let Err(error) = &outcome {
        if tx.conn.is_autocommit() {
            // A full disk has undone the whole transaction, and the others' work.
            return Err(error.clone());
        }
        run(tx.conn, "ROLLBACK TO task")?;
        tx.owed.forget();
        tx.raised.borrow_mut().truncate(raised);
    }
    run(tx.conn, "RELEASE task")?;
    Ok(outcome)
}

fn run(conn: &Kept, sql: &'static str) -> Result<()> {
    conn.with(sql, |statement| statement.execute([]))
        .map(|_| ())
        .map_err(fault)
}

/// Runs a step of who leads: a panic in it, which others would wait for in
/// vain, is logged and ends it alone.
fn guarded<T>(what: &str, step: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(step));
    if done.is_err() {
        // The host's own logger may be what panicked.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            log::error!(target: "store", "a fault of the library while {what}");
        }));
    }
    done.ok()
}

fn all_repeat(group: &[Box<dyn Task>]) -> bool {
    group.iter().all(|task| task.repeats())
}

fn internal(message: &str) -> Error {
    Error::new(Code::Internal, message)
}

#[cfg(test)]
mod race_tests;

#[cfg(test)]
mod tests {
    use super::super::clock::Clock;
    use super::*;
    use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc;

    fn writer(folder: &tempfile::TempDir) -> Arc<Writer> {
        open(folder, Steps::default(), Box::new(|_, _| ()))
    }

    /// Opens a writer with a table of numbers.
    pub(super) fn open(
        folder: &tempfile::TempDir,
        steps: Steps,
        on_commit: OnCommit,
    ) -> Arc<Writer> {
        open_with(
            Options {
                steps,
                ..Options::of_test(folder.path())
            },
            on_commit,
        )
    }

    fn open_with(options: Options, on_commit: OnCommit) -> Arc<Writer> {
        let writer = Writer::open(
            options.clone(),
            Readers::new(options),
            Arc::default(),
            Box::new(|_| Ok(())),
            on_commit,
        )
        .unwrap();
        writer
            .write(|tx| {
                tx.conn
                    .execute_batch("CREATE TABLE t(n INTEGER PRIMARY KEY)")
                    .map_err(fault)
            })
            .unwrap();
        Arc::new(writer)
    }

    pub(super) fn insert(n: i64) -> impl Fn(&Tx<'_>) -> Result<()> + Send + 'static {
        move |tx| {
            tx.conn
                .execute("INSERT INTO t VALUES (?1)", [n])
                .map(|_| ())
                .map_err(fault)
        }
    }

    pub(super) fn rows(writer: &Writer) -> Vec<i64> {
        writer
            .write(|tx| {
                let mut select = tx
                    .conn
                    .prepare("SELECT n FROM t ORDER BY n")
                    .map_err(fault)?;
                select
                    .query_map([], |row| row.get(0))
                    .and_then(Iterator::collect)
                    .map_err(fault)
            })
            .unwrap()
    }

    /// A task of either kind that nobody waits for.
    fn boxed(
        repeats: bool,
        work: impl Fn(&Tx<'_>) -> Result<()> + Send + 'static,
        done: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Box<dyn Task> {
        fn of<W: Job<()> + 'static>(
            work: W,
            done: impl FnOnce(Result<()>) + Send + 'static,
        ) -> Box<dyn Task> {
            Box::new(Work {
                events: 0,
                work,
                value: None,
                asker: Nobody(Some(done)),
                told: false,
            })
        }
        if repeats {
            of(Again(work), done)
        } else {
            of(Once(Some(work)), done)
        }
    }

    /// Holds the writer inside a transaction while `meanwhile` queues tasks, so
    /// that they are carried out as one group.
    fn as_one_group(writer: &Arc<Writer>, meanwhile: impl FnOnce()) {
        let (entered, enter) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let holder = {
            let writer = Arc::clone(writer);
            std::thread::spawn(move || {
                writer.write(move |_| {
                    entered.send(()).unwrap();
                    released.recv().unwrap();
                    Ok(())
                })
            })
        };
        enter.recv().unwrap();
        meanwhile();
        release.send(()).unwrap();
        holder.join().unwrap().unwrap();
    }

    #[test]
    fn a_task_that_fails_undoes_its_own_work_alone() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(&folder);
        let (told, outcomes) = mpsc::channel();
        as_one_group(&writer, || {
            for n in 1..=3 {
                let told = told.clone();
                let work = move |tx: &Tx<'_>| {
                    insert(n)(tx)?;
                    insert(n + 10)(tx)?;
                    if n == 2 {
                        Err(Error::storage("no"))
                    } else {
                        Ok(())
                    }
                };
                assert!(
                    writer
                        .queue(1, work, move |outcome| told
                            .send((n, outcome.is_ok()))
                            .unwrap())
                        .unwrap()
                );
            }
        });
        assert_eq!(rows(&writer), [1, 3, 11, 13]);
        assert_eq!(
            outcomes.try_iter().collect::<Vec<_>>(),
            [(1, true), (2, false), (3, true)]
        );
        assert_eq!(writer.queued_events(), 0);
    }

    /// Who else writes would otherwise find the lock free only between two groups.
    #[test]
    fn who_has_company_gathers_before_the_transaction_and_who_has_none_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let other = Arc::new(Mutex::new(None::<Connection>));
        let free = Arc::new(Mutex::new(Vec::new()));
        let steps = {
            let (other, free) = (Arc::clone(&other), Arc::clone(&free));
            move |step| {
                if step == Step::Gather
                    && let Some(other) = &*lock(&other)
                {
                    let begun = other.execute_batch("BEGIN IMMEDIATE; ROLLBACK");
                    lock(&free).push(begun.is_ok());
                }
            }
        };
        let steps = Steps {
            at: Some(std::sync::Arc::new(steps)),
        };
        let writer = open(&folder, steps, Box::new(|_, _| ()));
        let conn = Connection::open(folder.path().join("a.db")).unwrap();
        conn.busy_timeout(Duration::ZERO).unwrap();
        lock(&other).replace(conn);
        let group = |n| {
            lock(&writer.queue).expected = 2;
            writer.write(insert(n)).unwrap();
            std::mem::take(&mut *lock(&free))
        };
        assert_eq!((group(1), group(2)), (vec![false], vec![false]));
        let conn = lock(&other).take().unwrap();
        conn.execute_batch("INSERT INTO t VALUES (3)").unwrap();
        lock(&other).replace(conn);
        // Before it, and once more in it, where nobody is waited for.
        assert_eq!((group(4), group(5)), (vec![true, false], vec![true, false]));
        assert_eq!(rows(&writer), [1, 2, 3, 4, 5]);
    }

    /// Tasks on their way to a transaction that is open: each kind of them to each.
    #[test]
    fn who_comes_while_the_transaction_is_open_is_in_it_and_fails_alone() {
        for (first, second) in [(true, true), (true, false), (false, true), (false, false)] {
            let folder = tempfile::tempdir().unwrap();
            let coming: Arc<Mutex<Vec<Box<dyn Task>>>> = Arc::default();
            let commits = Arc::new(AtomicUsize::new(0));
            let clock = std::sync::Arc::new(AtomicI64::new(0));
            let held: Arc<std::sync::OnceLock<std::sync::Weak<Writer>>> = Arc::default();
            let steps = {
                let (coming, commits) = (Arc::clone(&coming), Arc::clone(&commits));
                let (held, hands) = (Arc::clone(&held), std::sync::Arc::clone(&clock));
                move |step| match step {
                    // One at each look, the first while another thread waits for it.
                    Step::Gather => {
                        hands.fetch_add(1, SeqCst);
                        if let Some(task) = lock(&coming).pop() {
                            let writer = held.get().unwrap().upgrade().unwrap();
                            lock(&writer.queue).tasks.push_back(task);
                        }
                    }
                    Step::Committed => {
                        commits.fetch_add(1, SeqCst);
                    }
                    _ => {}
                }
            };
            let steps = Steps {
                at: Some(std::sync::Arc::new(steps)),
            };
            let options = Options {
                steps,
                clock: Clock {
                    hands: Some(std::sync::Arc::clone(&clock)),
                },
                ..Options::of_test(folder.path())
            };
            let writer = open_with(options, Box::new(|_, _| ()));
            held.set(Arc::downgrade(&writer)).unwrap();
            let (told, outcomes) = mpsc::channel();
            let task = |n: i64, repeats: bool, fails: bool| -> Box<dyn Task> {
                let (told, hands) = (told.clone(), std::sync::Arc::clone(&clock));
                let done = move |outcome: Result<()>| told.send((n, outcome.is_ok())).unwrap();
                let work = move |tx: &Tx<'_>| {
                    assert_eq!(tx.now(), hands.load(SeqCst), "the time it came at");
                    insert(n)(tx)?;
                    let session = crate::key::Session {
                        key: format!("agent:main:{n}"),
                        agent: "main".to_owned(),
                    };
                    owed::move_head(tx, &session, n as u64)?;
                    match fails {
                        true => Err(Error::storage("no")),
                        false => Ok(()),
                    }
                };
                boxed(repeats, work, done)
            };
            {
                let mut queue = lock(&writer.queue);
                queue.expected = 4;
                // The last first.
                lock(&coming).extend([
                    task(4, second, false),
                    task(3, second, false),
                    task(2, second, true),
                ]);
                queue.tasks.push_back(task(1, first, false));
                let before = commits.swap(0, SeqCst);
                assert!(before > 0);
                writer.try_to_lead(queue);
            }
            assert_eq!(commits.load(SeqCst), 1);
            // Who comes after a failure that had all of them done again is in the next.
            for _ in 0..4 {
                writer.write(|_| Ok(())).unwrap();
            }
            assert_eq!(
                outcomes.try_iter().collect::<Vec<_>>(),
                [(1, true), (2, false), (3, true), (4, true)],
                "{first} {second}"
            );
            assert_eq!(rows(&writer), [1, 3, 4]);
            let heads = writer.write(|tx| {
                let heads = "SELECT last_sequence FROM session_state_heads ORDER BY last_sequence";
                let mut select = tx.conn()?.prepare(heads).map_err(fault)?;
                select
                    .query_map([], |row| row.get::<_, i64>(0))
                    .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
                    .map_err(fault)
            });
            assert_eq!(heads.unwrap(), [1, 3, 4], "what each owed is written");
        }
    }

    /// SQLite then undoes the whole transaction, and no savepoint is left to go back to.
    #[test]
    fn a_full_disk_in_a_savepoint_is_told_as_that_to_all_and_is_no_damage() {
        for repeats in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let writer = writer(&folder);
            let most = |pages: i64| {
                writer.write(move |tx| {
                    tx.conn
                        .query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))
                        .map_err(fault)
                })
            };
            writer
                .write(|tx| {
                    let table = "CREATE TABLE long(bytes)";
                    tx.conn.execute_batch(table).map_err(fault)
                })
                .unwrap();
            // At least as many as there are.
            most(1).unwrap();
            let (told, outcomes) = mpsc::channel();
            as_one_group(&writer, || {
                for n in 1..=3 {
                    let told = told.clone();
                    let done = move |outcome| told.send((n, outcome)).unwrap();
                    let work = move |tx: &Tx<'_>| {
                        insert(n)(tx)?;
                        if n != 2 {
                            return Ok(());
                        }
                        tx.conn
                            .execute_batch("INSERT INTO long VALUES (zeroblob(1000000))")
                            .map_err(fault)
                    };
                    lock(&writer.queue)
                        .tasks
                        .push_back(boxed(repeats, work, done));
                }
            });
            // Who leads them is in their group, and of their kind.
            let own = if repeats {
                writer.write_repeatable(|_| Ok(()))
            } else {
                writer.write(|_| Ok(()))
            };
            let mut told: Vec<_> = outcomes.try_iter().collect();
            told.push((4, own));
            assert_eq!(told.len(), 4);
            for (n, outcome) in told {
                let error = outcome.unwrap_err();
                assert!(error.message.contains("no room"), "{n} {repeats}: {error}");
                assert_ne!(error.cause, Cause::Damage, "{n} {repeats}");
            }
            assert_eq!(rows(&writer), [0i64; 0]);
            most(1_000_000).unwrap();
            writer.write(insert(7)).unwrap();
            assert_eq!(rows(&writer), [7]);
        }
    }

    #[test]
    fn a_panic_undoes_the_group_and_the_next_one_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(&folder);
        let (told, outcomes) = mpsc::channel();
        as_one_group(&writer, || {
            for n in 1..=3 {
                let told = told.clone();
                let work = move |tx: &Tx<'_>| {
                    assert!(n != 2, "a fault in the middle of a transaction");
                    insert(n)(tx)
                };
                let done = move |outcome: Result<()>| told.send(outcome.unwrap_err().code).unwrap();
                assert!(writer.queue(1, work, done).unwrap());
            }
        });
        // Who leads them is in their group.
        assert_eq!(writer.write(|_| Ok(())).unwrap_err().code, Code::Internal);
        assert_eq!(rows(&writer), [0i64; 0]);
        assert_eq!(outcomes.try_iter().collect::<Vec<_>>(), [Code::Internal; 3]);
        writer.write(insert(7)).unwrap();
        assert_eq!(rows(&writer), [7]);
    }

    #[test]
    fn a_fault_while_the_path_is_opened_anew_ends_that_alone() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::of_test(folder.path());
        let opened = std::sync::atomic::AtomicUsize::new(0);
        let on_open = move |_: &Tx<'_>| {
            let nth = opened.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            assert!(nth != 1, "a fault in the middle of an opening");
            Ok(())
        };
        let writer = Writer::open(
            options.clone(),
            Readers::new(options.clone()),
            Arc::default(),
            Box::new(on_open),
            Box::new(|_, _| ()),
        )
        .unwrap();
        writer.write(|_| Ok(())).unwrap();
        let other = tempfile::tempdir().unwrap();
        self::writer(&other).close();
        std::fs::rename(other.path().join("a.db"), &options.path).unwrap();
        assert_eq!(writer.write(|_| Ok(())).unwrap_err().code, Code::Internal);
        writer.write(|_| Ok(())).unwrap();
        writer.close();
    }

    #[test]
    fn a_full_queue_sheds_the_newcomer_and_keeps_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(&folder);
        as_one_group(&writer, || {
            assert!(writer.queue(QUEUE_EVENTS - 1, insert(1), |_| ()).unwrap());
            assert!(!writer.queue(2, insert(2), |_| ()).unwrap());
            assert!(writer.queue(1, insert(3), |_| ()).unwrap());
            assert!(!writer.queue(1, insert(4), |_| ()).unwrap());
            assert_eq!(writer.queued_events(), QUEUE_EVENTS);
        });
        assert_eq!(rows(&writer), [1, 3]);
        assert!(writer.queue(QUEUE_EVENTS, insert(5), |_| ()).unwrap());
        // Queued first, stored first, though it is this thread that leads.
        assert_eq!(rows(&writer), [1, 3, 5]);
    }

    #[test]
    fn stopping_writes_what_is_queued_and_lets_nothing_more_in() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(&folder);
        as_one_group(&writer, || {
            assert!(writer.queue(1, insert(1), |_| ()).unwrap());
            writer.stop();
            assert_eq!(writer.write(insert(2)).unwrap_err().code, Code::Closed);
            assert_eq!(
                writer.queue(1, insert(3), |_| ()).unwrap_err().code,
                Code::Closed
            );
        });
        writer.write_queued();
        let file = lock(&writer.file);
        let count: i64 = file
            .file()
            .unwrap()
            .conn
            .query_row("SELECT count(*) FROM t", [], |row| row.get(0))
            .unwrap();
        assert_eq!(count, 1);
    }

    /// Whatever becomes of that one.
    #[test]
    fn a_commit_moves_a_long_log_after_one_that_was_to_leave_it_alone() {
        const COMMIT: usize = 100;
        type Work = fn(&Tx<'_>) -> Result<()>;
        let ends: [(&str, Work); 3] = [
            ("well", |_| Ok(())),
            ("undone", |_| Err(Error::storage("no"))),
            ("panic", |_| {
                panic!("a fault in the middle of a transaction")
            }),
        ];
        for (end, work) in ends {
            let folder = tempfile::tempdir().unwrap();
            let writer = writer(&folder);
            let left = writer.write(move |tx| {
                tx.leave_log();
                work(tx)
            });
            assert_eq!(left.is_ok(), end == "well");
            let pages = super::super::checkpoints::MOST_PAGES as usize;
            for n in 0..(pages + pages / 2) / COMMIT {
                let long = move |tx: &Tx<'_>| {
                    let table = "CREATE TABLE IF NOT EXISTS long(bytes)";
                    let row = format!("INSERT INTO long VALUES (zeroblob({}))", COMMIT * 4_096);
                    tx.conn
                        .execute_batch(&format!("{table}; {row}"))
                        .map_err(fault)
                };
                writer
                    .write(long)
                    .unwrap_or_else(|error| panic!("{n}: {error}"));
            }
            let log = std::fs::metadata(folder.path().join("a.db-wal")).unwrap();
            let most = (pages + 2 * COMMIT) * (4_096 + 24);
            assert!(log.len() <= most as u64, "{end}: {} bytes", log.len());
        }
    }

    #[test]
    fn patience_ends_when_there_is_something_and_at_its_end() {
        let tries = Cell::new(0);
        let third = || {
            tries.set(tries.get() + 1);
            (tries.get() == 3).then_some(())
        };
        let now = Instant::now();
        assert_eq!(Patience::of(1_000_000).look_out(now, third), Some(()));
        assert_eq!(tries.get(), 3);
        assert_eq!(Patience::of(100).look_out(now, || None::<()>), None);
    }

    #[test]
    fn many_threads_meet_in_few_transactions_and_none_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(&folder);
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let writer = Arc::clone(&writer);
                std::thread::spawn(move || {
                    (0..50).for_each(|n| writer.write(insert(thread * 50 + n)).unwrap())
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(rows(&writer), (0..400).collect::<Vec<_>>());
    }
}
