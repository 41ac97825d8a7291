//! Wakes: who is to be woken now. They live in memory, one queue a handle;
//! what they stand for is in the cursors, so that a lost one loses nothing.
//!
//! A transaction that opens a notice gives its wake a number. The handle that
//! committed it queues the wake at once; every other handle, of any process,
//! is poked by a byte written to a small file beside the database and reads
//! what was raised above the last number it knows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::contract::{Code, Error, Result, Wake};
use crate::files;
use crate::key::{self, Session};
use crate::store::alive::{Alive, beside, beside_path, is_alive, is_at, is_in_another_copy};
use crate::store::offers::{self, Handle, Raised};
use crate::store::{Store, Tx, cursors, links, lock};
use crate::sync::thread::{self, ThreadId};
use crate::sync::{Arc, Condvar, Mutex, wait, wait_up_to};
use crate::sys::{self, Pipe};

/// Called with each wake, on a library thread, under no lock.
pub(crate) type Handler = Arc<dyn Fn(&Wake) + Send + Sync>;

/// When a wake that could not be checked is checked again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// The wakes of one handle.
pub(crate) struct Wakes {
    state: Mutex<State>,
    /// Told when a wake comes, when the handler changes or returns, and at close.
    changed: Condvar,
    /// Only wakes for watchers of these agents.
    agents: Option<Vec<String>>,
    /// A database's files beside it begin with this.
    database: PathBuf,
    poke: Mutex<Option<File>>,
}

#[derive(Default)]
struct State {
    /// By number; at most one a cursor.
    queue: BTreeMap<u64, Raised>,
    newest: HashMap<(String, Session), u64>,
    /// Every wake up to this number was offered, or lies in `withheld`.
    known: u64,
    withheld: Vec<Withheld>,
    /// How often the handle was registered with a database, and which that is.
    enrolled: u64,
    file: Option<files::Identity>,
    alive: Option<Alive>,
    /// The sessions that the host runs, by this handle: they are marked anew
    /// whenever it is registered.
    runs: BTreeSet<Session>,
    pipe: Option<Pipe>,
    handler: Option<Handler>,
    /// How often the handler was set.
    generation: u64,
    /// The thread that is inside a handler, and of which generation that is.
    inside: Option<(ThreadId, u64)>,
    closed: bool,
}

/// How a handle comes to the database at its path.
enum Opened {
    /// It is new.
    First,
    /// It was on another database there.
    Another,
    /// It was on this one.
    Again(Before),
}

/// What a handle was offered of the database it was on before.
struct Before {
    file: Option<files::Identity>,
    known: u64,
    waiting: BTreeMap<u64, Raised>,
    withheld: Vec<u64>,
}

/// A wake other handles were offered before this one was opened.
struct Withheld {
    wake: Raised,
    holders: Vec<i64>,
}

impl Wakes {
    pub(crate) fn new(database: &Path, agents: Option<Vec<String>>) -> Wakes {
        Wakes {
            state: Mutex::default(),
            changed: Condvar::new(),
            agents,
            database: database.to_owned(),
            poke: Mutex::new(None),
        }
    }

    /// Registers the handle in a transaction that opens the database, and
    /// offers it the wakes of what is pending: of no notice opened before
    /// `cutoff`, and of none that another live handle was offered. When the
    /// database is opened anew, all that the handle was not offered before.
    pub(crate) fn enroll(&self, tx: &Tx<'_>, cutoff: i64) -> Result<()> {
        let before = {
            let mut state = lock(&self.state);
            // The lock of a handle on the file that was here before must go first.
            state.alive = None;
            (state.enrolled > 0).then(|| Before {
                file: state.file,
                known: state.known,
                waiting: state.queue.clone(),
                withheld: state.withheld.iter().map(|each| each.wake.number).collect(),
            })
        };
        let alive = Alive::register(tx, &self.database, self.agents.as_deref())?;
        let mut others = offers::handles(tx.conn()?)?;
        others.retain(|other| other.id != alive.id);
        for dead in others.extract_if(.., |other| !is_alive(&self.database, other.id)) {
            offers::remove_handle(tx, dead.id)?;
        }
        if is_in_another_copy(&self.database, others.iter().map(|other| other.id)) {
            return Err(Error::new(
                Code::Unsupported,
                "another copy of this library in this process has the database open: neither would see \
                 the other's locks; load one copy",
            ));
        }
        let known = offers::last_wake(tx.conn()?)?;
        // Another one counts by itself, a copy of an earlier day from where it was.
        let file = files::identity(&self.database);
        let goes_on = |before: &Before| before.file == file && before.known <= known;
        let opened = match before {
            None => Opened::First,
            Some(before) if goes_on(&before) => Opened::Again(before),
            Some(_) => Opened::Another,
        };
        let mut offered = Vec::new();
        let mut withheld = Vec::new();
        let mut held = Vec::new();
        let mut all = true;
        for row in cursors::woken_after(tx.conn()?, 0)? {
            if !self.wants(&row.watcher) {
                continue;
            }
            if row.opened_at < cutoff {
                all = false;
                continue;
            }
            let holders = holders(tx, &others, row.wake, &row.watcher)?;
            let (is_new, is_others) = match &opened {
                Opened::First => (holders.is_empty(), true),
                Opened::Another => (true, false),
                Opened::Again(before) => (
                    row.wake > before.known || before.waiting.contains_key(&row.wake),
                    before.withheld.contains(&row.wake),
                ),
            };
            if is_new || !is_others {
                held.push(row.wake);
            }
            if is_new {
                offered.push(Raised::from(row));
            } else if is_others {
                withheld.push(Withheld {
                    wake: row.into(),
                    holders,
                });
            }
        }
        if all && withheld.is_empty() {
            offers::add_all_offers(tx, alive.id)?;
        } else {
            for wake in held {
                offers::add_offer(tx, alive.id, wake)?;
            }
        }
        self.mark_runs(tx, alive.id)?;
        *lock(&self.poke) = Some(beside(&self.database, "wake")?);
        let mut state = lock(&self.state);
        state.alive = Some(alive);
        state.enrolled += 1;
        state.file = file;
        state.known = known;
        state.withheld = withheld;
        state.queue.clear();
        state.newest.clear();
        self.offer(&mut state, offered);
        Ok(())
    }

    /// Registers the handle again, and pokes by the file that is there now, when
    /// those beside the database were removed or replaced.
    pub(crate) fn stay(self: &Arc<Self>, store: &Store) -> Result<()> {
        if self.is_lost() {
            let wakes = Arc::clone(self);
            store.write(move |tx| wakes.enroll_again(tx))?;
            log::warn!(target: "wakes", "the handle's file beside the database was removed: it is made anew");
        }
        let mut poke = lock(&self.poke);
        if poke
            .as_ref()
            .is_some_and(|file| !is_at(file, &self.poked_file()))
        {
            *poke = Some(beside(&self.database, "wake")?);
        }
        Ok(())
    }

    fn is_lost(&self) -> bool {
        let state = lock(&self.state);
        state.alive.as_ref().is_some_and(|alive| !alive.is_found())
    }

    fn enroll_again(&self, tx: &Tx<'_>) -> Result<()> {
        // The database may have been opened anew meanwhile.
        let Some(id) = self.handle().filter(|_| self.is_lost()) else {
            return Ok(());
        };
        let agents = self.agents.as_deref();
        let alive = Alive::register_again(tx, &self.database, id, agents)?;
        self.mark_runs(tx, id)?;
        lock(&self.state).alive = Some(alive);
        Ok(())
    }

    /// Marks the session as one that the host runs, or no longer.
    pub(crate) fn set_run(&self, tx: &Tx<'_>, session: &Session, active: bool) -> Result<()> {
        // Asked here: the transaction may be the first on another file.
        let handle = self.handle().ok_or_else(Error::closed)?;
        links::set_run(tx, session, handle, active)?;
        let runs = &mut lock(&self.state).runs;
        if active {
            runs.insert(session.clone());
        } else {
            runs.remove(session);
        }
        Ok(())
    }

    /// Forgets that the host runs the session, whose marks are gone.
    pub(crate) fn forget_run(&self, session: &Session) {
        lock(&self.state).runs.remove(session);
    }

    fn mark_runs(&self, tx: &Tx<'_>, handle: i64) -> Result<()> {
        let runs = lock(&self.state).runs.clone();
        runs.iter()
            .try_for_each(|session| links::set_run(tx, session, handle, true))
    }

    /// Whether there are wakes that other handles have, who may die.
    pub(crate) fn withholds(&self) -> bool {
        !lock(&self.state).withheld.is_empty()
    }

    /// The file other processes write to when they raise a wake.
    pub(crate) fn poked_file(&self) -> PathBuf {
        beside_path(&self.database, "wake")
    }

    /// Queues what a transaction of this handle raised, and pokes the others if
    /// there are any;
    /// `false` when wakes of others came before it, which are to be collected
    /// first, or when nothing is given, since it was lost on the way.
    pub(crate) fn committed(&self, raised: Vec<Raised>, heard: bool) -> bool {
        let follows = {
            let mut state = lock(&self.state);
            let follows = raised
                .first()
                .is_some_and(|first| first.number == state.known + 1);
            if follows {
                let count = raised.len() as u64;
                self.offer(&mut state, raised);
                state.known += count;
            }
            follows
        };
        if heard
            && let Some(file) = &*lock(&self.poke)
            && let Err(error) = file.write_at(b".", 0)
        {
            log::warn!(target: "wakes", "other handles look for wakes a second late: {error}");
        }
        follows
    }

    /// Reads what was raised by others, and offers it.
    pub(crate) fn collect(&self, store: &Store) -> Result<()> {
        let (known, enrolled) = {
            let state = lock(&self.state);
            (state.known, state.enrolled)
        };
        let (rows, last) = store
            .read(|conn| Ok((cursors::woken_after(conn, known)?, offers::last_wake(conn)?)))?;
        let found = rows.into_iter().map(Raised::from).collect();
        self.take_in(enrolled, found, last);
        Ok(())
    }

    /// Offers what was found above the number that was known, up to `last`.
    fn take_in(&self, enrolled: u64, found: Vec<Raised>, last: u64) {
        let mut state = lock(&self.state);
        // Another database may be at the path since, which counts by itself, and
        // whose wakes were offered when it was opened.
        if state.enrolled != enrolled {
            return;
        }
        // A transaction of this handle may have come in between.
        let is_fresh = |wake: &Raised| wake.number > state.known;
        let fresh = found.into_iter().filter(is_fresh).collect();
        self.offer(&mut state, fresh);
        state.known = state.known.max(last);
    }

    /// Offers the withheld wakes whose last holder has gone without taking its notice.
    pub(crate) fn inherit(&self, store: &Store) -> Result<()> {
        let mut withheld = std::mem::take(&mut lock(&self.state).withheld);
        if withheld.is_empty() {
            return Ok(());
        }
        for each in &mut withheld {
            each.holders
                .retain(|holder| is_alive(&self.database, *holder));
        }
        let (orphans, held): (Vec<_>, Vec<_>) = withheld
            .into_iter()
            .partition(|each| each.holders.is_empty());
        lock(&self.state).withheld.extend(held);
        let Some(handle) = self.handle().filter(|_| !orphans.is_empty()) else {
            return Ok(());
        };
        // Written down before it is offered: who opens meanwhile, or has the
        // same one withheld, must find a holder.
        let wakes: Vec<Raised> = orphans.into_iter().map(|each| each.wake).collect();
        let (database, asked) = (self.database.clone(), wakes.clone());
        let shared = store.write(move |tx| {
            let mut others = offers::handles(tx.conn()?)?;
            others.retain(|other| other.id != handle && is_alive(&database, other.id));
            asked
                .iter()
                .map(|wake| {
                    let holders = holders(tx, &others, wake.number, &wake.watcher)?;
                    if holders.is_empty() {
                        offers::add_offer(tx, handle, wake.number)?;
                    }
                    Ok(holders)
                })
                .collect::<Result<Vec<_>>>()
        });
        let (holders, outcome) = match shared {
            Ok(holders) => (holders, Ok(())),
            // Kept for the next time.
            Err(error) => (vec![Vec::new(); wakes.len()], Err(error)),
        };
        let mut state = lock(&self.state);
        let mut offered = Vec::new();
        for (wake, holders) in wakes.into_iter().zip(holders) {
            if outcome.is_ok() && holders.is_empty() {
                offered.push(wake);
            } else {
                state.withheld.push(Withheld { wake, holders });
            }
        }
        self.offer(&mut state, offered);
        outcome
    }

    /// Waits up to `timeout` for a wake and takes up to `most`.
    pub(crate) fn wait(&self, store: &Store, timeout: Duration, most: usize) -> Result<Vec<Wake>> {
        // A wait longer than the clock can count is one without end.
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let taken = self.pop(most, deadline)?;
            if taken.is_empty() {
                return Ok(Vec::new());
            }
            let wakes = self.still_open(store, taken)?;
            if !wakes.is_empty() {
                return Ok(wakes);
            }
        }
    }

    /// Calls the handler with each wake that comes; the body of its thread, until close.
    pub(crate) fn deliver(&self, store: &Store) {
        let process = sys::process_id();
        let mut state = lock(&self.state);
        while !state.closed {
            let Some(handler) = state.handler.clone().filter(|_| !state.queue.is_empty()) else {
                state = wait(&self.changed, state);
                continue;
            };
            let taken = state.take(1);
            // From here on a change of the handler waits until this call is over.
            state.inside = Some((thread::current().id(), state.generation));
            drop(state);
            let checked = self.still_open(store, taken);
            for wake in checked.iter().flatten() {
                if catch_unwind(AssertUnwindSafe(|| handler(wake))).is_err() {
                    log::error!(target: "wakes", "the wake handler panicked");
                }
                if sys::process_id() != process {
                    // It forked, and the child returned: nothing of the handle is its own.
                    return;
                }
            }
            if let Err(error) = &checked {
                log::warn!(target: "wakes", "a wake could not be checked: {error}");
            }
            drop(handler);
            state = lock(&self.state);
            state.inside = None;
            self.changed.notify_all();
            if checked.is_err() && !state.closed {
                // The wake waits again, and so does this thread: what ails the
                // database does not pass at once.
                state = wait_up_to(&self.changed, state, TRY_AGAIN);
            }
        }
    }

    /// Sets who is called with the wakes. Returns when no call of the old
    /// handler is running, at once from inside it.
    pub(crate) fn set_handler(&self, handler: Option<Handler>) {
        let mut state = lock(&self.state);
        let old = std::mem::replace(&mut state.handler, handler);
        state.generation += 1;
        let mine = state.generation;
        state.show();
        self.changed.notify_all();
        let here = thread::current().id();
        let is_old = |(thread, generation)| thread != here && generation < mine;
        while state.inside.is_some_and(is_old) {
            state = wait(&self.changed, state);
        }
        drop(state);
        drop(old);
    }

    /// The handle's number among those of the database; `None` when it is read only or has left.
    pub(crate) fn handle(&self) -> Option<i64> {
        lock(&self.state).alive.as_ref().map(|alive| alive.id)
    }

    /// Whether this thread is inside the handler.
    pub(crate) fn inside_handler(&self) -> bool {
        lock(&self.state)
            .inside
            .is_some_and(|(thread, _)| thread == thread::current().id())
    }

    /// The read end of a pipe that is readable while wakes wait.
    pub(crate) fn fd(&self) -> io::Result<RawFd> {
        let mut state = lock(&self.state);
        if state.pipe.is_none() {
            state.pipe = Some(Pipe::new()?);
            state.show();
        }
        Ok(state.pipe.as_ref().map_or(-1, Pipe::fd))
    }

    /// How many wakes wait.
    pub(crate) fn queued(&self) -> usize {
        lock(&self.state).queue.len()
    }

    /// Ends every wait and the delivery. Who polls the pipe learns of it by a
    /// byte: its end may be kept open by a child that was forked.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.show();
        drop(state);
        self.changed.notify_all();
    }

    /// Takes the handle out of the database's list, while that can still be written.
    pub(crate) fn leave(&self, store: &Store) {
        let alive = lock(&self.state).alive.take();
        if let Some(alive) = alive {
            let id = alive.id;
            // Who stays is found dead by its lock; the list is only tidier so.
            if let Err(error) = store.write(move |tx| offers::remove_handle(tx, id)) {
                log::debug!(target: "wakes", "the handle stays listed: {error}");
            }
        }
    }

    fn wants(&self, watcher: &str) -> bool {
        wants(self.agents.as_deref(), watcher)
    }

    fn offer(&self, state: &mut State, wakes: Vec<Raised>) {
        state.newest.reserve(wakes.len());
        for wake in wakes {
            if !self.wants(&wake.watcher) {
                continue;
            }
            let pair = (wake.watcher.clone(), wake.target.clone());
            // The notice of an older wake of the pair is gone. One that was left by
            // another handle may come after a newer one.
            let newest = state.newest.entry(pair).or_insert(wake.number);
            if *newest > wake.number {
                continue;
            }
            let older = std::mem::replace(newest, wake.number);
            state.queue.remove(&older);
            state.queue.insert(wake.number, wake);
        }
        state.show();
        self.changed.notify_all();
    }

    fn pop(&self, most: usize, deadline: Option<Instant>) -> Result<Vec<Raised>> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return Err(Error::closed());
            }
            if state.handler.is_none() && !state.queue.is_empty() {
                let taken = state.take(most);
                state.show();
                return Ok(taken);
            }
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return Ok(Vec::new()),
                Some(left) => {
                    state = wait_up_to(&self.changed, state, left);
                }
                None => state = wait(&self.changed, state),
            }
        }
    }

    /// Of these wakes those whose notice nobody has taken meanwhile.
    fn still_open(&self, store: &Store, taken: Vec<Raised>) -> Result<Vec<Wake>> {
        let read = || {
            store.read(|conn| {
                taken
                    .iter()
                    .map(|wake| cursors::is_open(conn, wake.number))
                    .collect::<Result<Vec<_>>>()
            })
        };
        // Whatever happens, a wake that was taken is told or waits again.
        let open = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
            let message = "a wake could not be checked after a fault of the library";
            Err(Error::new(Code::Internal, message))
        });
        match open {
            Ok(open) => Ok(taken
                .into_iter()
                .zip(open)
                .filter(|(_, open)| *open)
                .map(|(wake, _)| told(wake))
                .collect()),
            Err(error) => {
                self.offer(&mut lock(&self.state), taken);
                Err(error)
            }
        }
    }
}

impl State {
    fn take(&mut self, most: usize) -> Vec<Raised> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some((_, wake)) = self.queue.pop_first()
        {
            self.newest
                .remove(&(wake.watcher.clone(), wake.target.clone()));
            taken.push(wake);
        }
        taken
    }

    /// Makes the pipe readable exactly while wakes wait for who polls it, and once closed.
    fn show(&self) {
        if let Some(pipe) = &self.pipe {
            if self.closed || (self.handler.is_none() && !self.queue.is_empty()) {
                pipe.signal();
            } else {
                pipe.clear();
            }
        }
    }
}

fn told(wake: Raised) -> Wake {
    Wake {
        session_key: wake.watcher,
        target_session_key: wake.target.key,
        target_agent_id: wake.target.agent,
        reason: "session-state",
    }
}

/// Which of these handles were offered the wake.
fn holders(tx: &Tx<'_>, handles: &[Handle], wake: u64, watcher: &str) -> Result<Vec<i64>> {
    let mut holders = Vec::new();
    for handle in handles {
        let offered = wake > handle.first_wake || offers::was_offered(tx.conn()?, handle.id, wake)?;
        if offered && wants(handle.agents.as_deref(), watcher) {
            holders.push(handle.id);
        }
    }
    Ok(holders)
}

fn wants(agents: Option<&[String]>, watcher: &str) -> bool {
    agents.is_none_or(|agents| {
        key::agent_of(watcher).is_some_and(|agent| agents.iter().any(|one| one == agent))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raised(number: u64) -> Raised {
        Raised {
            number,
            watcher: "agent:main:main".to_owned(),
            target: Session::of("agent:main:child", None).unwrap(),
        }
    }

    fn waiting(wakes: &Wakes) -> Vec<u64> {
        lock(&wakes.state).queue.keys().copied().collect()
    }

    #[test]
    fn what_was_found_in_a_database_that_was_replaced_meanwhile_counts_for_nothing() {
        let wakes = Wakes::new(Path::new("/nowhere/a.db"), None);
        wakes.take_in(0, vec![raised(7)], 9);
        assert_eq!((waiting(&wakes), lock(&wakes.state).known), (vec![7], 9));
        {
            let mut state = lock(&wakes.state);
            (state.enrolled, state.known) = (1, 3);
        }
        wakes.take_in(0, vec![raised(10)], 12);
        assert_eq!((waiting(&wakes), lock(&wakes.state).known), (vec![7], 3));
        wakes.take_in(1, vec![raised(8)], 8);
        assert_eq!((waiting(&wakes), lock(&wakes.state).known), (vec![8], 8));
    }

    #[test]
    fn of_a_pair_the_newest_wake_waits_in_whatever_order_they_are_offered() {
        for numbers in [[1, 2], [2, 1], [2, 2]] {
            let wakes = Wakes::new(Path::new("/nowhere/a.db"), None);
            for number in numbers {
                wakes.offer(&mut lock(&wakes.state), vec![raised(number)]);
            }
            assert_eq!(waiting(&wakes), [2], "{numbers:?}");
        }
    }
}
