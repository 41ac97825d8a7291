//! `Awareness`: one open database, one method a verb.

use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, select};

use crate::contract::{
    AckNotices, Acknowledged, Backup, BackupReply, ChangesReply, ChangesSince, Code, Config,
    Deleted, DrainNotices, Drained, Error, EventsReply, EventsRequest, Maintained, NewEvent,
    Queued, Recorded, Reset, Result, SessionDelete, SessionReset, SessionsReply, SessionsRequest,
    StateVersions, StateVersionsReply, Stats, Unrecorded, Unwatch, Unwatched, WaitWakes, Wake,
    Wakes, Watch, WatchReply, Watches, WatchesReply,
};
use crate::files::{self, Subscription};
use crate::key::{self, Session};
use crate::log::{self as signals, Appended, Draft, Limits};
use crate::store::{Options, QUEUE_EVENTS, Store, Tx, cursors, events, lock, schema};
use crate::{sys, watch};

/// How often other processes' commits are looked for, beside file events.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often old events and cursors are pruned.
const PRUNE_EVERY: Duration = Duration::from_secs(60 * 60);

/// An open awareness database: the log, its watchers and their wakes.
///
/// Any thread may call any method at any time. A process may hold several, on
/// one database or on many, and several processes may share a database.
/// Dropping it closes it.
///
/// ```
/// use session_awareness::{ActorType, Awareness, ChangesSince, Config, DrainNotices, Kind, NewEvent, Watch};
///
/// # fn main() -> session_awareness::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("awareness.db");
/// let aware = Awareness::open(Config::new(path.to_str().unwrap()))?;
/// aware.watch(Watch::new("agent:main:main", "agent:main:subagent:child"))?;
///
/// // A person types straight into the child.
/// aware.record(NewEvent::new("agent:main:subagent:child", Kind::HumanDirectMessage, ActorType::Human))?;
///
/// // The manager is told once, and asks for exactly what it missed.
/// let drained = aware.drain_notices(DrainNotices::new("agent:main:main"))?;
/// let notice = &drained.notices[0];
/// let delta = aware.changes_since(ChangesSince::new(&notice.target_session_key, notice.changes_since))?;
/// assert_eq!(delta.state_changes.events[0].kind, Kind::HumanDirectMessage);
/// assert!(aware.drain_notices(DrainNotices::new("agent:main:main"))?.notices.is_empty());
/// # aware.close()
/// # }
/// ```
pub struct Awareness {
    inner: Arc<Inner>,
}

/// Called with each wake.
pub type WakeHandler = Box<dyn Fn(&Wake) + Send + Sync>;

struct Inner {
    /// A child of `fork` has another one: the threads and locks of this handle are not in it.
    process: u32,
    store: Store,
    wakes: Arc<watch::Wakes>,
    limits: Limits,
    calls: Calls,
    failed_appends: AtomicU64,
    shed_events: AtomicU64,
    threads: Mutex<Threads>,
}

#[derive(Default)]
struct Threads {
    running: Vec<JoinHandle<()>>,
    /// Dropped to stop those that wait on it.
    stop: Option<Sender<()>>,
    delivering: bool,
}

/// Calls in flight, so that closing can wait for them.
#[derive(Default)]
struct Calls {
    closing: AtomicBool,
    count: Mutex<usize>,
    ended: Condvar,
}

struct Call<'a>(&'a Calls);

impl Calls {
    fn begin(&self) -> Result<Call<'_>> {
        let mut count = lock(&self.count);
        if self.closing.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        *count += 1;
        Ok(Call(self))
    }

    /// Lets no more calls in; `false` when that was so before.
    fn close(&self) -> bool {
        let _count = lock(&self.count);
        !self.closing.swap(true, Ordering::AcqRel)
    }

    fn wait_for_end(&self) {
        let mut count = lock(&self.count);
        while *count > 0 {
            count = self
                .ended
                .wait(count)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut count = lock(&self.0.count);
        *count -= 1;
        if *count == 0 {
            self.0.ended.notify_all();
        }
    }
}

impl Awareness {
    /// Opens a database: makes or migrates it, opens pending notices up to
    /// their newest change, raises their wakes, prunes up to 1,000 rows and
    /// starts the handle's threads.
    ///
    /// Errors: `invalid_argument` (the config), `not_found` (no file and
    /// `create` is false, or `readOnly`), `unsupported` (a database of a newer
    /// major version, a network file system), `storage`.
    pub fn open(config: Config) -> Result<Awareness> {
        let read_only = config.read_only.unwrap_or(false);
        let limits = Limits::check(config.retention.unwrap_or_default())?;
        check_monitor(&config)?;
        let agents = config.wakes.unwrap_or_default().agents;
        for (at, agent) in agents.iter().flatten().enumerate() {
            if !key::is_agent_id(agent) {
                return Err(Error::invalid(
                    format!("wakes.agents[{at}]"),
                    "not an agent id",
                ));
            }
        }
        let options = Options {
            path: database_path(&config.database)?,
            create: config.create.unwrap_or(true),
            read_only,
            durability: config.durability.unwrap_or_default(),
            // SQLite counts the wait in an int.
            busy_timeout: Duration::from_millis(
                config.busy_timeout_ms.unwrap_or(5_000).min(i32::MAX as u64),
            ),
        };
        let wakes = Arc::new(watch::Wakes::new(
            &options.path,
            agents.filter(|agents| !agents.is_empty()),
        ));
        let (collect, collecting) = bounded(1);
        let on_open = {
            let wakes = Arc::clone(&wakes);
            Box::new(move |tx: &Tx<'_>| {
                watch::sweep(tx)?;
                wakes.enroll(tx, limits.cutoff(tx.now))
            })
        };
        let on_commit = {
            let (wakes, collect) = (Arc::clone(&wakes), collect.clone());
            Box::new(move |raised| {
                if !wakes.committed(raised) {
                    // Full means that it will be looked anyway.
                    let _ = collect.try_send(());
                }
            })
        };
        let store = Store::open(options, on_open, on_commit)?;
        let aware = Awareness {
            inner: Arc::new(Inner {
                process: sys::process_id(),
                store,
                wakes,
                limits,
                calls: Calls::default(),
                failed_appends: AtomicU64::new(0),
                shed_events: AtomicU64::new(0),
                threads: Mutex::default(),
            }),
        };
        if !read_only {
            let (more, _) = aware.inner.prune_step()?;
            aware.start_threads(more, collect, collecting)?;
        }
        Ok(aware)
    }

    /// Writes what is queued, waits for calls in flight, ends waits for wakes,
    /// stops the handle's threads and closes the database. Every later call
    /// answers `closed`; so does a second `close`.
    ///
    /// From inside the handle's own wake handler it answers `busy` and closes nothing.
    pub fn close(&self) -> Result<()> {
        self.inner.close()
    }

    /// Whether this thread is inside the handle's wake handler.
    pub(crate) fn inside_handler(&self) -> bool {
        self.inner.wakes.inside_handler()
    }

    /// Records one event and tells its watchers, in one transaction.
    ///
    /// Errors: `invalid_argument`, `storage` (also logged and counted in
    /// [`Stats::failed_appends`]), `closed`, `unsupported` (read only).
    pub fn record(&self, event: NewEvent) -> Result<Recorded> {
        let _call = self.enter()?;
        let draft = Draft::check(event)?;
        let recorded = self.inner.store.write(move |tx| record_in(tx, &draft));
        self.inner.count_failure(1, recorded)
    }

    /// Records a batch of at most 1,000 events: in order, all or nothing.
    ///
    /// Errors: as [`Awareness::record`].
    pub fn record_batch(&self, batch: Vec<NewEvent>) -> Result<Vec<Recorded>> {
        let _call = self.enter()?;
        let drafts = signals::drafts(batch)?;
        let count = drafts.len() as u64;
        if count == 0 {
            return Ok(Vec::new());
        }
        let recorded = self
            .inner
            .store
            .write(move |tx| drafts.iter().map(|draft| record_in(tx, draft)).collect());
        self.inner.count_failure(count, recorded)
    }

    /// Checks the events and queues them for the background writer: all or
    /// nothing, after everything this thread queued before and before anything
    /// it records later. Never waits.
    ///
    /// Errors: `invalid_argument`, `closed`, `unsupported` (read only). What
    /// fails to store later is logged and counted in [`Stats::failed_appends`].
    pub fn record_queued(&self, batch: Vec<NewEvent>) -> Result<Queued> {
        let _call = self.enter()?;
        let drafts = signals::drafts(batch)?;
        let count = drafts.len();
        let inner = Arc::downgrade(&self.inner);
        let queued = self.inner.store.queue(
            count,
            move |tx| {
                drafts
                    .iter()
                    .try_for_each(|draft| record_in(tx, draft).map(|_| ()))
            },
            move |outcome| {
                if let Some(inner) = inner.upgrade() {
                    let _ = inner.count_failure(count as u64, outcome);
                }
            },
        )?;
        if !queued {
            self.inner
                .shed_events
                .fetch_add(count as u64, Ordering::Relaxed);
            log::warn!(target: "log", "the queue of {QUEUE_EVENTS} events is full: {count} shed");
        }
        Ok(Queued {
            queued,
            reason: (!queued).then_some("full"),
        })
    }

    /// The versions of up to 1,000 sessions.
    ///
    /// Errors: `invalid_argument`, `storage`, `closed`.
    pub fn state_versions(&self, request: StateVersions) -> Result<StateVersionsReply> {
        let _call = self.enter()?;
        self.inner.store.read(signals::state_versions(&request)?)
    }

    /// Registers a watch, starting at the target's present version.
    ///
    /// Errors: `invalid_argument`, `storage`, `closed`, `unsupported` (read only).
    pub fn watch(&self, request: Watch) -> Result<WatchReply> {
        let _call = self.enter()?;
        self.inner.store.write(watch::watch(request)?)
    }

    /// Ends a watch and its open notice.
    ///
    /// Errors: as [`Awareness::watch`].
    pub fn unwatch(&self, request: Unwatch) -> Result<Unwatched> {
        let _call = self.enter()?;
        self.inner.store.write(watch::unwatch(request)?)
    }

    /// Lists watches.
    ///
    /// Errors: `invalid_argument`, `storage`, `closed`.
    pub fn watches(&self, request: Watches) -> Result<WatchesReply> {
        let _call = self.enter()?;
        self.inner.store.read(watch::watches(request)?)
    }

    /// Forgets what a session watches, as when it begins anew; its own history stays.
    ///
    /// Errors: as [`Awareness::watch`].
    pub fn session_reset(&self, request: SessionReset) -> Result<Reset> {
        let _call = self.enter()?;
        self.inner.store.write(watch::reset(request)?)
    }

    /// Forgets a session: its events, its version, and every watch it has a part in.
    ///
    /// Errors: as [`Awareness::watch`].
    pub fn session_delete(&self, request: SessionDelete) -> Result<Deleted> {
        let _call = self.enter()?;
        let session = Session::of(&request.session_key, request.agent_id.as_deref())?;
        self.inner.store.write(move |tx| {
            let logged = events::delete(tx, &session)?;
            let watched = watch::session_deleted(tx, &session)? > 0;
            Ok(Deleted {
                deleted: logged || watched,
            })
        })
    }

    /// A watcher's open notices, oldest first; acknowledged in the same step
    /// unless `ack` is false.
    ///
    /// Errors: `invalid_argument`, `storage`, `closed`, `unsupported` (read only, unless `ack` is false).
    pub fn drain_notices(&self, request: DrainNotices) -> Result<Drained> {
        let _call = self.enter()?;
        let drain = watch::drain(&request)?;
        if !drain.ack {
            return self.inner.store.read(|conn| drain.peek(conn));
        }
        self.inner.store.write(move |tx| drain.take(tx))
    }

    /// Acknowledges notices that were read with `ack: false`.
    ///
    /// Errors: as [`Awareness::watch`].
    pub fn ack_notices(&self, request: AckNotices) -> Result<Acknowledged> {
        let _call = self.enter()?;
        self.inner.store.write(watch::ack(&request)?)
    }

    /// Waits up to `timeout_ms` for wakes and takes them. A handle with a wake
    /// handler, and one opened read only, has none to wait for.
    ///
    /// Errors: `invalid_argument`, `storage`, `closed` (also when the handle is closed meanwhile).
    pub fn wait_wakes(&self, request: WaitWakes) -> Result<Wakes> {
        let _call = self.enter()?;
        let most = match request.max {
            Some(0) => return Err(Error::invalid("max", "at least 1")),
            Some(max) => usize::try_from(max).unwrap_or(usize::MAX),
            None => usize::MAX,
        };
        let timeout = Duration::from_millis(request.timeout_ms);
        let wakes = self.inner.wakes.wait(&self.inner.store, timeout, most)?;
        Ok(Wakes { wakes })
    }

    /// The read end of a non-blocking pipe, readable while wakes wait; the
    /// library's, never to be closed by the caller. It lives as long as the handle.
    ///
    /// Errors: `closed`, `unsupported` (read only, or no descriptor is left).
    pub fn wake_fd(&self) -> Result<RawFd> {
        let _call = self.enter()?;
        if self.inner.store.is_read_only() {
            return Err(Error::unsupported("a read-only handle has no wakes"));
        }
        self.inner
            .wakes
            .fd()
            .map_err(|problem| Error::unsupported(format!("no pipe can be made: {problem}")))
    }

    /// Sets who is called with each wake, on a library thread, under no lock;
    /// while set, nobody else gets them. Returns when no call of the old one is
    /// running, at once from inside it. Every method but [`Awareness::close`]
    /// may be called from inside.
    ///
    /// Errors: `closed`, `internal` (no thread could be started).
    pub fn set_wake_handler(&self, handler: Option<WakeHandler>) -> Result<()> {
        let _call = self.enter()?;
        if handler.is_some() && !self.inner.store.is_read_only() {
            self.start_delivering()?;
        }
        self.inner.wakes.set_handler(handler.map(Arc::from));
        Ok(())
    }

    /// The changes of one session above a version, from one snapshot. Moves no cursor.
    ///
    /// Errors: `invalid_argument`, `storage` (never an empty delta), `closed`.
    pub fn changes_since(&self, request: ChangesSince) -> Result<ChangesReply> {
        let _call = self.enter()?;
        self.inner.store.read(signals::changes_since(&request)?)
    }

    /// Lists the sessions that have a log, in pages.
    ///
    /// Errors: `invalid_argument`, `storage`, `closed`.
    pub fn sessions(&self, request: SessionsRequest) -> Result<SessionsReply> {
        let _call = self.enter()?;
        self.inner.store.read(signals::sessions(&request)?)
    }

    /// The log over all sessions, in pages.
    ///
    /// Errors: `invalid_argument`, `storage`, `closed`.
    pub fn events(&self, request: EventsRequest) -> Result<EventsReply> {
        let _call = self.enter()?;
        self.inner.store.read(signals::events(request)?)
    }

    /// Writes a consistent copy of the database to a new file, mode 0600. The
    /// file appears under its name only when it is whole.
    ///
    /// Errors: `invalid_argument` (the file exists, or its folder does not), `storage`, `closed`.
    pub fn backup(&self, request: Backup) -> Result<BackupReply> {
        let _call = self.enter()?;
        crate::backup::write(&self.inner.store, &request.path)
    }

    /// Prunes what retention no longer keeps; returns when it is done.
    ///
    /// Errors: as [`Awareness::watch`].
    pub fn maintain(&self) -> Result<Maintained> {
        let _call = self.enter()?;
        self.inner.prune_all(|| false)
    }

    /// Counters of the handle and its database.
    ///
    /// Errors: `storage`, `closed`.
    pub fn stats(&self) -> Result<Stats> {
        let _call = self.enter()?;
        let inner = &self.inner;
        let path = inner.store.path();
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
        let mut wal = path.as_os_str().to_owned();
        wal.push("-wal");
        let ((events, sessions), (watches, pending), schema_version) =
            inner.store.read(|conn| {
                Ok((
                    events::counts(conn)?,
                    cursors::counts(conn)?,
                    schema::version(conn)?,
                ))
            })?;
        Ok(Stats {
            events,
            sessions,
            watches,
            links: 0,
            pending,
            failed_appends: inner.failed_appends.load(Ordering::Relaxed),
            shed_events: inner.shed_events.load(Ordering::Relaxed),
            queued_events: inner.store.queued_events() as u64,
            queued_wakes: inner.wakes.queued() as u64,
            schema_version,
            database: path.display().to_string(),
            database_bytes: size(path),
            wal_bytes: size(Path::new(&wal)),
            version: env!("CARGO_PKG_VERSION"),
        })
    }

    fn enter(&self) -> Result<Call<'_>> {
        // Before any lock: in a child of fork another thread may have left one locked.
        if self.inner.process != sys::process_id() {
            return Err(Error::new(
                Code::Closed,
                "the handle belongs to the process this one was forked from",
            ));
        }
        self.inner.calls.begin()
    }

    fn start_threads(
        &self,
        prune_more: bool,
        collect: Sender<()>,
        collecting: Receiver<()>,
    ) -> Result<()> {
        let (stop, stopped) = bounded(0);
        let mut threads = lock(&self.inner.threads);
        threads.stop = Some(stop);
        let writer = Arc::clone(&self.inner);
        threads.spawn("aware-writer", move || writer.store.write_queued())?;
        let upkeep = (Arc::clone(&self.inner), stopped.clone());
        threads.spawn("aware-upkeep", move || {
            upkeep.0.keep_up(prune_more, &upkeep.1)
        })?;
        let heard = files::listen(&self.inner.wakes.poked_file(), move |_| {
            let _ = collect.try_send(());
        });
        let heard = heard
            .inspect_err(|error| log::warn!(target: "wakes", "other processes' wakes come a second late: {error}"))
            .ok();
        let wakes = Arc::clone(&self.inner);
        threads.spawn("aware-wakes", move || {
            wakes.look_for_wakes(&collecting, &stopped, heard)
        })
    }

    fn start_delivering(&self) -> Result<()> {
        let mut threads = lock(&self.inner.threads);
        if !threads.delivering {
            let inner = Arc::clone(&self.inner);
            threads.spawn("aware-callback", move || inner.wakes.deliver(&inner.store))?;
            threads.delivering = true;
        }
        Ok(())
    }
}

impl Drop for Awareness {
    fn drop(&mut self) {
        // Closed already, or of another process: nothing is left to do here.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Awareness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Awareness")
            .field("database", &self.inner.store.path())
            .finish_non_exhaustive()
    }
}

impl Threads {
    fn spawn(&mut self, name: &'static str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let guarded = move || {
            let body = std::panic::AssertUnwindSafe(body);
            if std::panic::catch_unwind(body).is_err() {
                log::error!(target: "engine", "the thread {name} ended by a fault of the library");
            }
        };
        let started = sys::spawn(name, guarded).map_err(|problem| {
            Error::new(
                Code::Internal,
                format!("a thread cannot be started: {problem}"),
            )
        })?;
        self.running.push(started);
        Ok(())
    }
}

impl Inner {
    fn close(&self) -> Result<()> {
        if self.process != sys::process_id() {
            return Err(Error::closed());
        }
        if self.wakes.inside_handler() {
            return Err(Error::new(
                Code::Busy,
                "a handle cannot be closed from inside its own wake callback",
            ));
        }
        if !self.calls.close() {
            return Err(Error::closed());
        }
        self.wakes.close();
        self.calls.wait_for_end();
        self.wakes.leave(&self.store);
        self.store.stop();
        let threads = {
            let mut threads = lock(&self.threads);
            threads.stop = None;
            std::mem::take(&mut threads.running)
        };
        for thread in threads {
            // Each catches its own panics.
            let _ = thread.join();
        }
        self.store.close();
        Ok(())
    }

    fn count_failure<T>(&self, events: u64, outcome: Result<T>) -> Result<T> {
        outcome.inspect_err(|error| {
            if error.code == Code::Storage || error.code == Code::Internal {
                self.failed_appends.fetch_add(events, Ordering::Relaxed);
                log::error!(target: "log", "{events} events were not recorded: {error}");
            }
        })
    }

    fn prune_step(&self) -> Result<(bool, Maintained)> {
        let limits = self.limits;
        self.store.write(move |tx| signals::prune_step(tx, &limits))
    }

    /// Prunes until nothing is left to prune, or `stop` says so.
    fn prune_all(&self, stop: impl Fn() -> bool) -> Result<Maintained> {
        let mut total = Maintained::default();
        loop {
            let (more, step) = self.prune_step()?;
            total.pruned_events += step.pruned_events;
            total.pruned_cursors += step.pruned_cursors;
            if !more || stop() {
                return Ok(total);
            }
            self.store.checkpoint()?;
        }
    }

    /// The body of the upkeep thread.
    fn keep_up(&self, mut now: bool, stopped: &Receiver<()>) {
        loop {
            if now && let Err(error) = self.prune_all(|| is_stopped(stopped)) {
                log::warn!(target: "retention", "pruning failed, it is tried again within an hour: {error}");
            }
            now = true;
            if stopped.recv_timeout(PRUNE_EVERY)
                != Err(crossbeam_channel::RecvTimeoutError::Timeout)
            {
                return;
            }
        }
    }

    /// The body of the wakes thread.
    fn look_for_wakes(
        &self,
        poked: &Receiver<()>,
        stopped: &Receiver<()>,
        heard: Option<Subscription>,
    ) {
        let mut version = self.store.data_version().ok();
        loop {
            let looked = select! {
                recv(stopped) -> _ => return drop(heard),
                recv(poked) -> _ => self.wakes.collect(&self.store),
                default(LOOK_EVERY) => self.look_at_version(&mut version),
            };
            if let Err(error) = looked {
                log::debug!(target: "wakes", "other processes' wakes are looked for again in a second: {error}");
            }
        }
    }

    fn look_at_version(&self, version: &mut Option<i64>) -> Result<()> {
        let now = self.store.data_version()?;
        if version.replace(now) != Some(now) {
            self.wakes.collect(&self.store)?;
        }
        self.wakes.inherit(&self.store)
    }
}

fn is_stopped(stopped: &Receiver<()>) -> bool {
    stopped.try_recv() == Err(crossbeam_channel::TryRecvError::Disconnected)
}

/// Appends one event and tells its watchers.
fn record_in(tx: &Tx<'_>, draft: &Draft) -> Result<Recorded> {
    let unwatched = draft.only_if_watched && !is_watched(tx, draft)?;
    if unwatched {
        return Ok(Recorded::Not {
            recorded: false,
            reason: Unrecorded::Unwatched,
        });
    }
    let (event, duplicate) = match signals::append(tx, draft)? {
        Appended::New(event) => {
            watch::announce(
                tx,
                &draft.session,
                event.sequence,
                draft.kind,
                draft.actor_id.as_deref(),
                &draft.watchers,
            )?;
            (event, false)
        }
        Appended::Known(event) => (event, true),
    };
    Ok(Recorded::Stored {
        recorded: true,
        duplicate,
        event,
    })
}

/// Whether anybody watches the session, or is named as a watcher by an event that makes watchers.
fn is_watched(tx: &Tx<'_>, draft: &Draft) -> Result<bool> {
    Ok(!draft.watchers.is_empty() || cursors::any_of_target(tx.conn(), &draft.session)?)
}

fn check_monitor(config: &Config) -> Result<()> {
    let monitor = config.monitor.clone().unwrap_or_default();
    if monitor.interval_ms == Some(0) {
        return Err(Error::invalid("monitor.intervalMs", "at least 1"));
    }
    Ok(())
}

/// The absolute path of the database, its folder's own links followed.
fn database_path(given: &str) -> Result<PathBuf> {
    let wrong = |message: &str| Err(Error::invalid("database", message));
    if given.is_empty() {
        return wrong("the path of a file");
    }
    if given.contains('\0') {
        return wrong("a path holds no NUL");
    }
    if given == ":memory:" || given.starts_with("file:") {
        return wrong("the path of a file on disk, no URI and no :memory:");
    }
    let path = std::path::absolute(given).map_err(|problem| {
        Error::invalid(
            "database",
            format!("the path cannot be resolved: {problem}"),
        )
    })?;
    // Symbolic links are followed, so that the files beside it are beside the file itself.
    Ok(path.canonicalize().unwrap_or(path))
}
