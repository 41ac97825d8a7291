//! `Awareness`: one open database, one method a verb.

use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, after, bounded, select};

use crate::contract::{
    AckNotices, Acknowledged, Adopt, Adopted, Backup, BackupReply, Catalog, CatalogScans,
    ChangesReply, ChangesSince, Code, Config, Deleted, Discover, Discovered, DrainNotices, Drained,
    Error, EventsReply, EventsRequest, Feed, FileEvents, Inspection, LinksReply, LinksRequest,
    Maintained, NewEvent, Outcome, OwnMessage, Queued, Recorded, Released, Remembered, Reset,
    Result, Roots, RunActive, Scan, Scanned, SessionDelete, SessionRef, SessionReset,
    SessionsReply, SessionsRequest, SetRunActive, StateVersions, StateVersionsReply, Stats,
    ToolSchemas, ToolSchemasReply, Unwatch, Unwatched, WaitWakes, Wake, Wakes, Watch, WatchReply,
    Watches, WatchesReply,
};
use crate::files::{self, Group, Subscription};
use crate::key::{self, Session};
use crate::log::{self as signals, Draft, Limits};
use crate::sharing::Danger;
use crate::store::inspect::{self, Counter};
use crate::store::{
    Clock, Options, QUEUE_EVENTS, Steps, Store, Tx, cursors, events, links, lock, schema,
};
use crate::sync::{Arc, Condvar, Mutex, wait, wait_up_to};
use crate::upstream::{Monitor, Room, Settings, discover, verbs};
use crate::{signal, sys, watch};

/// How often other processes' commits are looked for, beside file events.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether something else in the process endangers the
/// database, and at all of its files although their times say that nothing changed.
const DANGER_EVERY: Duration = Duration::from_secs(10);
/// How long closing waits for what is stuck in an agent's file.
const PATIENCE: Duration = Duration::from_secs(2);
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
    store: Arc<Store>,
    wakes: Arc<watch::Wakes>,
    room: Arc<Room>,
    limits: Limits,
    /// Whether agents' files are watched by the file system's own events.
    file_events: bool,
    calls: Calls,
    failed_appends: AtomicU64,
    shed_events: AtomicU64,
    /// What the database held when `stats` last read it.
    counts: Mutex<Counts>,
    lost: Lost,
    threads: Mutex<Threads>,
    #[cfg(test)]
    looks: Looks,
}

/// How many looks there were for what nobody told of.
#[cfg(test)]
#[derive(Default)]
struct Looks {
    whole: AtomicU64,
    /// That found all as it lay.
    still: AtomicU64,
}

#[derive(Clone, Debug, Default)]
struct Counts {
    /// Events and sessions.
    log: (u64, u64),
    /// Watches, and those of them that are pending.
    cursors: (u64, u64),
    links: u64,
    links_in_error: u64,
    schema: String,
}

#[derive(Default)]
struct Threads {
    running: Vec<JoinHandle<()>>,
    /// Those that read agents' files, each with a channel that ends with it.
    monitors: Vec<(JoinHandle<()>, Receiver<()>)>,
    /// Dropped to stop those that wait on it.
    stop: Option<Sender<()>>,
    delivering: bool,
}

/// What was lost and is not yet counted in the database.
#[derive(Default)]
struct Lost {
    failed: Uncounted,
    shed: Uncounted,
    /// A count is on its way.
    counting: AtomicBool,
}

#[derive(Default)]
struct Uncounted {
    events: AtomicU64,
    last_at: AtomicI64,
}

impl Uncounted {
    fn add(&self, events: u64, at: i64) {
        self.last_at.fetch_max(at, Ordering::Relaxed);
        self.events.fetch_add(events, Ordering::Release);
    }

    fn take(&self) -> (u64, i64) {
        let events = self.events.swap(0, Ordering::Acquire);
        (events, self.last_at.load(Ordering::Relaxed))
    }
}

/// Calls in flight, so that closing can wait for them.
#[derive(Default)]
struct Calls {
    closing: AtomicBool,
    count: Mutex<Count>,
    ended: Condvar,
}

#[derive(Default)]
struct Count {
    all: usize,
    /// Those of them that read agents' files, which may never come back.
    upstream: usize,
}

struct Call<'a> {
    calls: &'a Calls,
    upstream: bool,
}

impl Calls {
    fn begin(&self, upstream: bool) -> Result<Call<'_>> {
        let mut count = lock(&self.count);
        if self.closing.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        count.all += 1;
        count.upstream += usize::from(upstream);
        Ok(Call {
            calls: self,
            upstream,
        })
    }

    /// Lets no more calls in; `false` when that was so before.
    fn close(&self) -> bool {
        let _count = lock(&self.count);
        !self.closing.swap(true, Ordering::AcqRel)
    }

    /// Waits for every call, for those that read agents' files until `deadline`.
    fn wait_for_end(&self, deadline: Instant) {
        let mut count = lock(&self.count);
        while count.all > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if count.all > count.upstream {
                count = wait(&self.ended, count);
            } else if left.is_zero() {
                return;
            } else {
                count = wait_up_to(&self.ended, count, left);
            }
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut count = lock(&self.calls.count);
        count.all -= 1;
        count.upstream -= usize::from(self.upstream);
        // Telling costs a system call, and only closing waits.
        if self.calls.closing.load(Ordering::Acquire) {
            self.calls.ended.notify_all();
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
    /// major version, a network file system), `storage`, `busy`.
    pub fn open(config: Config) -> Result<Awareness> {
        Awareness::open_by(config, Clock::default(), Steps::default())
    }

    /// As [`Awareness::open`], with the time of `clock` and what a test has fail.
    pub(crate) fn open_by(config: Config, clock: Clock, steps: Steps) -> Result<Awareness> {
        let read_only = config.read_only.unwrap_or(false);
        let limits = Limits::check(config.retention.unwrap_or_default())?;
        let monitor = config.monitor.clone().unwrap_or_default();
        if monitor.interval_ms == Some(0) {
            return Err(Error::invalid("monitor.intervalMs", "at least 1"));
        }
        let roots = absolute_roots(&monitor.roots.clone().unwrap_or_default())?;
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
            clock,
            steps,
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
                wakes.enroll(tx, limits.cutoff(tx.now()))
            })
        };
        let on_commit = {
            let (wakes, collect) = (Arc::clone(&wakes), collect.clone());
            Box::new(move |raised, heard| {
                if !wakes.committed(raised, heard) {
                    // Full means that it will be looked anyway.
                    let _ = collect.try_send(());
                }
            })
        };
        let store = Arc::new(Store::open(options, on_open, on_commit)?);
        let room = Arc::new(Room::new(
            Arc::clone(&store),
            Arc::clone(&wakes),
            roots,
            Duration::from_millis(monitor.interval_ms.unwrap_or(60_000)),
        ));
        let aware = Awareness {
            inner: Arc::new(Inner {
                process: sys::process_id(),
                store,
                wakes,
                room,
                limits,
                file_events: !read_only
                    && monitor.enabled.unwrap_or(true)
                    && monitor.file_events.unwrap_or(true),
                calls: Calls::default(),
                failed_appends: AtomicU64::new(0),
                shed_events: AtomicU64::new(0),
                counts: Mutex::default(),
                lost: Lost::default(),
                threads: Mutex::default(),
                #[cfg(test)]
                looks: Looks::default(),
            }),
        };
        if !read_only {
            let (more, _) = aware.inner.prune_step()?;
            aware.start_threads(more, collect, collecting)?;
            if monitor.enabled.unwrap_or(true) {
                aware.start_monitors(Settings {
                    initial_delay: Duration::from_millis(
                        monitor.initial_delay_ms.unwrap_or(15_000),
                    ),
                    file_events: monitor.file_events.unwrap_or(true),
                })?;
            }
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
    /// Errors: `invalid_argument`, `storage` and `busy` (also logged and counted in
    /// [`Stats::failed_appends`]), `closed`, `unsupported` (read only).
    pub fn record(&self, event: NewEvent) -> Result<Recorded> {
        let _call = self.enter()?;
        let draft = Draft::check(event)?;
        if self.inner.is_unwatched(&draft)? {
            return Ok(Recorded::UNWATCHED);
        }
        let recorded = self
            .inner
            .store
            .write_repeatable(move |tx| signal::record(tx, &draft));
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
        let recorded = self.inner.store.write_repeatable(move |tx| {
            drafts
                .iter()
                .map(|draft| signal::record(tx, draft))
                .collect()
        });
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
                    .try_for_each(|draft| signal::record(tx, draft).map(|_| ()))
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
            self.inner
                .lost
                .shed
                .add(count as u64, self.inner.store.now_ms());
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
        let asked = signals::asked(&request)?;
        self.inner
            .store
            .read(|conn| signals::state_versions(conn, &asked))
    }

    /// As [`Awareness::state_versions`], to JSON text.
    pub(crate) fn write_state_versions(
        &self,
        request: &StateVersions,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let _call = self.enter()?;
        let asked = signals::asked(request)?;
        let write = |conn: &Connection| signals::write_state_versions(conn, &asked, out);
        match asked.len() {
            0 | 1 => self.inner.store.look(write),
            _ => self.inner.store.read(write),
        }
    }

    /// Registers a watch, starting at the target's present version.
    ///
    /// Errors: `invalid_argument`, `storage`, `busy`, `closed`, `unsupported` (read only).
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
        let wakes = Arc::clone(&self.inner.wakes);
        self.inner.store.write(move |tx| {
            wakes.forget_run(&session);
            let logged = events::delete(tx, &session)?;
            let watched = watch::session_deleted(tx, &session)? > 0;
            let linked = links::delete(tx, &session)?;
            Ok(Deleted {
                deleted: logged || watched || linked,
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
        self.inner.store.write_repeatable(move |tx| drain.take(tx))
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
        let changes = signals::changes_since(&request)?;
        self.inner.store.read(|conn| changes.read(conn))
    }

    /// As [`Awareness::changes_since`], to JSON text.
    pub(crate) fn write_changes_since(
        &self,
        request: &ChangesSince,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let _call = self.enter()?;
        let changes = signals::changes_since(request)?;
        self.inner.store.read(|conn| changes.write(conn, out))
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

    /// The session tools that this library backs, as a model API takes them,
    /// with a paragraph for the agents' prompt. Reads nothing.
    ///
    /// Errors: `closed`.
    pub fn tool_schemas(&self, request: ToolSchemas) -> Result<ToolSchemasReply> {
        let _call = self.enter()?;
        crate::tools::schemas(request)
    }

    /// Links a session to its upstream source, and begins to watch that. With
    /// baseline `now` it reads the source to its end first, to know the turns it skips.
    ///
    /// Errors: `invalid_argument`, `not_found` (the source), `storage`, `busy`, `closed`, `unsupported` (read only).
    pub fn adopt(&self, request: Adopt) -> Result<Adopted> {
        let _call = self.enter_upstream()?;
        verbs::adopt(&self.inner.room, request)
    }

    /// Ends a session's upstream link.
    ///
    /// Errors: `invalid_argument`, `storage`, `busy`, `closed`, `unsupported` (read only).
    pub fn release(&self, request: SessionRef) -> Result<Released> {
        let _call = self.enter()?;
        verbs::release(&self.inner.room, &request)
    }

    /// Lists the upstream links.
    ///
    /// Errors: `invalid_argument`, `storage`, `closed`.
    pub fn links(&self, request: LinksRequest) -> Result<LinksReply> {
        let _call = self.enter()?;
        verbs::list(&self.inner.room, &request)
    }

    /// Lists the sessions in the agents' own stores.
    ///
    /// Errors: `invalid_argument`, `storage`, `closed`.
    pub fn discover(&self, request: Discover) -> Result<Discovered> {
        let _call = self.enter_upstream()?;
        discover::discover(&self.inner.room, &request)
    }

    /// Reads the linked sources now, on the calling thread, each to the end it
    /// has when its turn comes.
    ///
    /// Errors: `invalid_argument`, `storage`, `closed` (also when the handle is
    /// closed meanwhile), `unsupported` (read only).
    pub fn scan(&self, request: Scan) -> Result<Scanned> {
        let _call = self.enter_upstream()?;
        self.inner.writable()?;
        verbs::scan(&self.inner.room, &request)
    }

    /// Says that the host itself runs a session now, or no longer: until then
    /// its source is not read. The mark ends with the handle or its process.
    ///
    /// Errors: `invalid_argument`, `storage`, `busy`, `closed`, `unsupported` (read only).
    pub fn set_run_active(&self, request: SetRunActive) -> Result<RunActive> {
        let _call = self.enter()?;
        verbs::set_run_active(&self.inner.room, &request)
    }

    /// Says what the host itself is about to send to an upstream session, so
    /// that it is not taken for a person's turn. Only a keyed hash of it is kept.
    ///
    /// Errors: `invalid_argument`, `storage`, `busy`, `closed`, `unsupported` (read only).
    pub fn own_message(&self, request: OwnMessage) -> Result<Remembered> {
        let _call = self.enter()?;
        verbs::own_message(&self.inner.room, &request)
    }

    /// Hands over an upstream's rows that the host read on another machine, or
    /// that it found the session gone there.
    ///
    /// Errors: `invalid_argument`, `not_found` (no link), `storage`, `busy`, `closed`, `unsupported` (read only).
    pub fn feed(&self, request: Feed) -> Result<Outcome> {
        let _call = self.enter()?;
        self.inner.writable()?;
        verbs::feed(&self.inner.room, &request)
    }

    /// Counters of the handle and its database; also while that cannot be read.
    ///
    /// Errors: `closed`.
    pub fn stats(&self) -> Result<Stats> {
        let _call = self.enter()?;
        let inner = &self.inner;
        let path = inner.store.path();
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
        let mut wal = path.as_os_str().to_owned();
        wal.push("-wal");
        let scanned = inner.room.stats();
        let watched: u64 = scanned.values().map(|stats| stats.watched as u64).sum();
        let unwatched: u64 = scanned.values().map(|stats| stats.unwatched as u64).sum();
        let counted = inner.store.read(|conn| {
            Ok(Counts {
                log: events::counts(conn)?,
                cursors: cursors::counts(conn)?,
                links: links::count(conn)?,
                links_in_error: links::count_faulty(conn)?,
                schema: schema::version(conn)?,
            })
        });
        let (counts, unreadable) = match counted {
            Ok(counts) => {
                lock(&inner.counts).clone_from(&counts);
                (counts, None)
            }
            // What the handle itself knows is wanted most when the disk fails.
            Err(error) if error.code == Code::Storage => {
                (lock(&inner.counts).clone(), Some(error.message))
            }
            Err(error) => return Err(error),
        };
        let health = inner.store.report();
        Ok(Stats {
            events: counts.log.0,
            sessions: counts.log.1,
            watches: counts.cursors.0,
            links: counts.links,
            links_in_error: counts.links_in_error,
            pending: counts.cursors.1,
            storage_faults: health.faults,
            last_fault: health.last,
            unreadable,
            damaged: health.damage.is_some(),
            damage: health.damage,
            failed_appends: inner.failed_appends.load(Ordering::Relaxed),
            shed_events: inner.shed_events.load(Ordering::Relaxed),
            queued_events: inner.store.queued_events() as u64,
            queued_wakes: inner.wakes.queued() as u64,
            schema_version: counts.schema,
            database: path.display().to_string(),
            database_bytes: size(path),
            wal_bytes: size(Path::new(&wal)),
            version: env!("CARGO_PKG_VERSION"),
            file_events: match (inner.file_events, unwatched) {
                (false, _) => FileEvents::Off,
                (true, 0) => FileEvents::Full,
                (true, _) => FileEvents::Partial,
            },
            watched_folders: watched,
            unwatched_folders: unwatched,
            scans: scanned
                .into_iter()
                .map(|(catalog, stats)| {
                    (
                        catalog.as_str(),
                        CatalogScans {
                            passes: stats.passes,
                            last_pass_ms: stats.last_pass_ms,
                            lag_ms: stats.lag_ms,
                        },
                    )
                })
                .collect(),
        })
    }

    /// What is in the database beside its log, over all its handles: for tools
    /// that look in beside a gateway, on a read-only handle too.
    ///
    /// Errors: `storage`, `closed`.
    pub fn inspect(&self) -> Result<Inspection> {
        let _call = self.enter()?;
        let store = &self.inner.store;
        let (handles, mut run_marks, failed_appends, shed_events) = store.read(|conn| {
            Ok((
                inspect::live_handles(conn, store.path())?,
                inspect::run_marks(conn)?,
                inspect::lost(conn, Counter::FailedAppends)?,
                inspect::lost(conn, Counter::ShedEvents)?,
            ))
        })?;
        // A mark ends with its handle, whether or not somebody has swept it up.
        run_marks.retain(|mark| handles.iter().any(|handle| handle.id == mark.handle));
        Ok(Inspection {
            handles,
            run_marks,
            failed_appends,
            shed_events,
        })
    }

    /// Has SQLite check the whole file (`quick_check`): what is wrong with it, a
    /// line each and at most 20; none when it is sound. Takes as long as it takes
    /// to read the file, while others write.
    ///
    /// Errors: `storage` (also when the file is too broken to be checked), `closed`.
    pub fn check(&self) -> Result<Vec<String>> {
        let _call = self.enter()?;
        self.inner.store.read(|conn| inspect::quick_check(conn, 20))
    }

    fn enter(&self) -> Result<Call<'_>> {
        // Before any lock: in a child of fork another thread may have left one locked.
        if self.inner.process != sys::process_id() {
            return Err(Error::new(
                Code::Closed,
                "the handle belongs to the process this one was forked from",
            ));
        }
        self.inner.calls.begin(false)
    }

    /// As [`Awareness::enter`], for a call that reads agents' files.
    fn enter_upstream(&self) -> Result<Call<'_>> {
        drop(self.enter()?);
        self.inner.calls.begin(true)
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
            // The store of a handle that writes has a writer.
            let _ = upkeep.0.keep_up(prune_more, &upkeep.1);
        })?;
        let wakes = Arc::clone(&self.inner);
        threads.spawn("aware-wakes", move || {
            wakes.look_for_wakes(&collect, &collecting, &stopped)
        })
    }

    /// One thread a catalog: a hung store delays only its own sessions.
    fn start_monitors(&self, settings: Settings) -> Result<()> {
        let mut threads = lock(&self.inner.threads);
        for catalog in Catalog::ALL {
            let monitor = Monitor::new(Arc::clone(&self.inner.room), catalog, settings);
            let name = format!("aware-{}", catalog.as_str());
            threads.spawn_monitor(&name, move || monitor.run())?;
        }
        Ok(())
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
    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let started = Threads::start(name, body)?;
        self.running.push(started);
        Ok(())
    }

    fn spawn_monitor(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let (running, ended) = bounded(0);
        let started = Threads::start(name, move || {
            let _running: Sender<()> = running;
            body();
        })?;
        self.monitors.push((started, ended));
        Ok(())
    }

    fn start(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
        let told = name.to_owned();
        let guarded = move || {
            let body = std::panic::AssertUnwindSafe(body);
            if std::panic::catch_unwind(body).is_err() {
                log::error!(target: "engine", "the thread {told} ended by a fault of the library");
            }
        };
        sys::spawn(name, guarded).map_err(|problem| {
            Error::new(
                Code::Internal,
                format!("a thread cannot be started: {problem}"),
            )
        })
    }
}

impl Inner {
    fn close(self: &Arc<Self>) -> Result<()> {
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
        let deadline = Instant::now() + PATIENCE;
        self.wakes.close();
        self.room.stop();
        self.calls.wait_for_end(deadline);
        let (threads, monitors) = {
            let mut threads = lock(&self.threads);
            threads.stop = None;
            (
                std::mem::take(&mut threads.running),
                std::mem::take(&mut threads.monitors),
            )
        };
        for (thread, ended) in monitors {
            // One that is stuck in a system call on an agent's file is left
            // behind: what it finds when it wakes is a closed store.
            if ended.recv_deadline(deadline) == Err(RecvTimeoutError::Disconnected) {
                let _ = thread.join();
            } else {
                log::warn!(target: "engine", "a thread is left behind, stuck in an agent's file");
            }
        }
        self.wakes.leave(&self.store);
        self.count_lost();
        self.store.stop();
        for thread in threads {
            // Each catches its own panics.
            let _ = thread.join();
        }
        self.store.close();
        Ok(())
    }

    fn writable(&self) -> Result<()> {
        if self.store.is_read_only() {
            return Err(Error::unsupported("the handle was opened with readOnly"));
        }
        Ok(())
    }

    /// Whether an event that is only for watched sessions is of one that nobody
    /// watches, told without a turn at writing.
    fn is_unwatched(&self, draft: &Draft) -> Result<bool> {
        // What is queued may make watchers, and comes before.
        if !draft.only_if_watched
            || !draft.watchers.is_empty()
            || self.store.is_read_only()
            || self.store.queued_events() > 0
        {
            return Ok(false);
        }
        let watched = self
            .store
            .look(|conn| cursors::any_of_target(conn, &draft.session))?;
        Ok(!watched)
    }

    fn count_failure<T>(&self, events: u64, outcome: Result<T>) -> Result<T> {
        outcome.inspect_err(|error| {
            if matches!(error.code, Code::Storage | Code::Busy | Code::Internal) {
                self.failed_appends.fetch_add(events, Ordering::Relaxed);
                self.lost.failed.add(events, self.store.now_ms());
                log::error!(target: "log", "{events} events were not recorded: {error}");
            }
        })
    }

    /// Has the background writer count in the database what was lost since the
    /// last time, for who looks in from another process. Never waits; what
    /// cannot be counted now is counted later.
    fn count_lost(self: &Arc<Self>) {
        if self.lost.counting.swap(true, Ordering::AcqRel) {
            return;
        }
        let (failed, shed) = (self.lost.failed.take(), self.lost.shed.take());
        if failed.0 == 0 && shed.0 == 0 {
            self.lost.counting.store(false, Ordering::Release);
            return;
        }
        let count = move |tx: &Tx<'_>| {
            inspect::add_lost(tx, Counter::FailedAppends, failed.0, failed.1)?;
            inspect::add_lost(tx, Counter::ShedEvents, shed.0, shed.1)
        };
        let inner = Arc::downgrade(self);
        let counted = move |outcome: Result<()>| {
            let Some(inner) = inner.upgrade() else { return };
            if outcome.is_err() {
                inner.lost.failed.add(failed.0, failed.1);
                inner.lost.shed.add(shed.0, shed.1);
            }
            inner.lost.counting.store(false, Ordering::Release);
        };
        // An error means that the handle is closed.
        let _ = self.store.queue(0, count, counted);
    }

    fn prune_step(&self) -> Result<(bool, Maintained)> {
        let limits = self.limits;
        // Counting takes longer than pruning, and needs no turn at writing.
        let floor = self
            .store
            .look(|conn| events::beyond(conn, limits.max_events))?;
        self.store
            .write(move |tx| signals::prune_step(tx, &limits, floor))
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
    fn keep_up(&self, now: bool, stopped: &Receiver<()>) -> Result<()> {
        let log_is_due = self.store.log_is_due()?;
        let mut prune = after(if now { Duration::ZERO } else { PRUNE_EVERY });
        loop {
            select! {
                recv(stopped) -> _ => return Ok(()),
                recv(log_is_due) -> _ => {
                    if let Err(error) = self.store.checkpoint() {
                        log::debug!(target: "store", "the log is moved later: {error}");
                    }
                }
                recv(prune) -> _ => {
                    if let Err(error) = self.prune_all(|| is_stopped(stopped)) {
                        log::warn!(target: "retention", "pruning failed, it is tried again within an hour: {error}");
                    }
                    prune = after(PRUNE_EVERY);
                }
            }
        }
    }

    /// The body of the wakes thread.
    fn look_for_wakes(
        self: &Arc<Self>,
        collect: &Sender<()>,
        poked: &Receiver<()>,
        stopped: &Receiver<()>,
    ) {
        let mut heard = self.listen_to_others(collect);
        // What was raised before others could tell this handle of it is not known yet.
        let mut version = self.store.data_version().ok().flatten();
        let mut looked = self.wakes.collect(&self.store);
        let mut said = Danger::default();
        let (mut next_danger, mut next_look) = (Instant::now(), Instant::now() + LOOK_EVERY);
        // How the database lay when all was looked at and well.
        let mut still = None;
        loop {
            if let Err(error) = looked {
                log::debug!(target: "wakes", "other processes' wakes are looked for again in a second: {error}");
                (version, still) = (None, None);
            }
            if Instant::now() >= next_danger {
                self.tell_danger(&mut said);
                next_danger = Instant::now() + DANGER_EVERY;
                // All is looked at as often, whatever the times say.
                still = None;
            }
            looked = if Instant::now() >= next_look {
                next_look = Instant::now() + LOOK_EVERY;
                self.count_lost();
                // Asked before the looking: what happens meanwhile moves it.
                let now = self.store.stillness();
                let is_heard = heard.as_ref().is_some_and(|heard| !heard.was_told());
                if is_heard && now.is_some() && now == still {
                    #[cfg(test)]
                    self.looks.still.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                } else {
                    #[cfg(test)]
                    self.looks.whole.fetch_add(1, Ordering::SeqCst);
                    if heard.as_ref().is_none_or(Heard::may_be_over) {
                        heard = self.listen_to_others(collect);
                    }
                    let looked = self.look_at_version(&mut version);
                    let is_well = looked.is_ok() && version.is_some() && !self.wakes.withholds();
                    still = now.filter(|_| is_well);
                    looked
                }
            } else {
                select! {
                    recv(stopped) -> _ => return,
                    recv(poked) -> _ => self.wakes.collect(&self.store),
                    default(next_look.saturating_duration_since(Instant::now())) => Ok(()),
                }
            };
        }
    }

    /// Says what endangers the database, each once a handle.
    fn tell_danger(&self, said: &mut Danger) {
        let found = self.store.danger();
        if found.another_sqlite && !said.another_sqlite {
            said.another_sqlite = true;
            log::warn!(target: "store", "another copy of SQLite has the database open in this process: neither sees the other's locks, and the file can be corrupted; read it by the library's verbs, or in another process");
        }
        if found.locks_dropped && !said.locks_dropped {
            said.locks_dropped = true;
            log::warn!(target: "store", "something in this process opened and closed the database file, which dropped the library's locks on it; close all handles on it and open them again");
        }
    }

    fn look_at_version(&self, version: &mut Option<i64>) -> Result<()> {
        let now = self.store.data_version()?;
        // Unknown while the writer is at work.
        if now.is_none() || now != *version {
            self.wakes.collect(&self.store)?;
        }
        *version = now;
        self.wakes.inherit(&self.store)?;
        self.wakes.stay(&self.store)
    }

    /// Has what other processes write to the file of their wakes lead to a look.
    fn listen_to_others(&self, collect: &Sender<()>) -> Option<Heard> {
        let (path, collect) = (self.wakes.poked_file(), collect.clone());
        let (file, told) = (files::identity(&path), Arc::<AtomicBool>::default());
        let telling = Arc::clone(&told);
        let heard = files::listen(Group::Wakes, &path, move |_| {
            telling.store(true, Ordering::Relaxed);
            let _ = collect.try_send(());
        });
        heard
            .inspect_err(|error| log::warn!(target: "wakes", "other processes' wakes come a second late: {error}"))
            .ok()
            .map(|subscription| Heard { path, file, told, _subscription: subscription })
    }
}

/// The file by which other processes tell of their wakes, while it is listened to.
struct Heard {
    path: PathBuf,
    file: Option<files::Identity>,
    told: Arc<AtomicBool>,
    _subscription: Subscription,
}

impl Heard {
    fn was_told(&self) -> bool {
        self.told.load(Ordering::Relaxed)
    }

    /// Whether the file is another one now, or what was told may have been the end
    /// of one that was here before, with which the system's events end for both.
    fn may_be_over(&self) -> bool {
        self.was_told() || self.file != files::identity(&self.path)
    }
}

fn is_stopped(stopped: &Receiver<()>) -> bool {
    stopped.try_recv() == Err(crossbeam_channel::TryRecvError::Disconnected)
}

/// The agents' homes as absolute paths: what is found in them is written down,
/// for other processes and for later.
fn absolute_roots(given: &Roots) -> Result<Roots> {
    let mut roots = Roots::default();
    for catalog in Catalog::ALL {
        let Some(root) = given.of(catalog) else {
            continue;
        };
        let wrong =
            |why: String| Error::invalid(format!("monitor.roots.{}", catalog.as_str()), why);
        let path = std::path::absolute(root)
            .map_err(|problem| wrong(format!("the path cannot be resolved: {problem}")))?;
        // It was text, and so is the folder it is relative to as a rule.
        match path.into_os_string().into_string() {
            Ok(path) => roots.set(catalog, path),
            Err(_) => return Err(wrong("its absolute path is no UTF-8".to_owned())),
        }
    }
    Ok(roots)
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

#[cfg(test)]
mod race_tests;
#[cfg(test)]
mod still_tests;
#[cfg(test)]
mod time_tests;
