//! The background: one thread a catalog, so that a slow or hung store delays
//! only its own sessions.
//!
//! File events say which sources to look at now; they are hints. Every
//! interval all sources are looked at, which costs one look at each file that
//! was not touched. What is longer than a slice is read in turn with the others.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};

use super::pass::{self, Continuations, FilePass, Purpose, Step};
use super::room::{CatalogStats, Room};
use super::{file_agent, opencode};
use crate::contract::{Catalog, Error, Outcome, OutcomeKind, Result};
use crate::files::{self, Group, Hint, Subscription};
use crate::key::Session;
use crate::store::links::{self, LinkRow};

/// The shortest time between two rounds that hints lead to: a program writes its
/// rows in bursts, and the first of them is followed at once.
const GATHER: Duration = Duration::from_millis(2);

/// When a round that failed is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// So many passes fail in a row before the round is given up.
const FAILURES: usize = 8;

/// So many files are open at most.
const OPEN: usize = 8;

/// How long what a host's own calls lead to is gathered.
const CALLS: Duration = Duration::from_millis(10);

/// When more links than that changed they are listed rather than asked for one by one.
const AT_ONCE: usize = 64;

/// So many hints wait at most; beyond that everything is looked at.
const HINTS: usize = 4_096;

/// When and by what the background looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub initial_delay: Duration,
    pub file_events: bool,
}

/// What a catalog's monitor is told.
#[derive(Clone, Debug)]
pub(super) enum Told {
    /// The link of this id came, went, or was turned to another source.
    Link(i64),
    /// The session's source is to be looked at.
    Session(Session),
    /// A file changed, came or went.
    File(PathBuf),
    /// Only to wake it: it sees for itself.
    Nothing,
}

/// Where a monitor is told things. Telling never waits.
#[derive(Clone)]
pub(super) struct Mailbox {
    sender: Sender<Told>,
    /// Something could not be told: anything may have changed.
    lost: Arc<AtomicBool>,
}

impl Mailbox {
    pub(super) fn tell(&self, told: Told) {
        match self.sender.try_send(told) {
            // A full box is emptied soon, and the flag read then.
            Err(TrySendError::Full(_)) => self.lose(),
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
        }
    }

    /// Has everything looked at.
    fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
        // Full is awake.
        let _ = self.sender.try_send(Told::Nothing);
    }
}

/// A catalog's monitor; [`Monitor::run`] is the body of its thread.
pub(crate) struct Monitor {
    room: Arc<Room>,
    catalog: Catalog,
    settings: Settings,
    mailbox: Mailbox,
    told: Receiver<Told>,
    links: HashMap<i64, Linked>,
    /// The links by the paths their sources are seen under, of which a hash is
    /// enough: who is looked at in vain is not the worse for it.
    by_path: HashMap<u64, Vec<i64>>,
    hasher: RandomState,
    folders: HashMap<PathBuf, Watched>,
    stores: HashMap<PathBuf, Kept>,
    due: Due,
    /// Those whose pass failed, and when they are due again.
    put_off: VecDeque<(Instant, i64)>,
    /// How many passes failed one after the other.
    failed: usize,
}

/// A store of OpenCode that is kept open between passes.
struct Kept {
    store: opencode::Store,
    /// Whether it was a folder when it was made: the older tree, and no database.
    folder: bool,
    /// Its state when all of its links were last looked at and found well.
    settled: Option<opencode::State>,
}

impl Kept {
    fn new(source: &Path) -> Kept {
        Kept {
            store: opencode::Store::new(source),
            folder: source.is_dir(),
            settled: None,
        }
    }

    fn state(&mut self) -> Option<opencode::State> {
        self.store.state().ok().flatten()
    }

    /// Whether anything may have been written since all was looked at.
    fn is_moved(&mut self) -> bool {
        let now = self.state();
        now.is_none() || now != self.settled
    }
}

struct Linked {
    /// As it was when the links were last listed, but for what nobody asks for
    /// here: there may be many.
    row: LinkRow,
    /// The hashes of what its source is called in file events.
    paths: Vec<u64>,
    /// Whose events can tell of it.
    folders: Vec<PathBuf>,
}

impl Linked {
    fn source(&self) -> &Path {
        // Links without one are not listed.
        self.row.source.as_deref().unwrap_or(Path::new(""))
    }
}

struct Watched {
    /// Dropped to end the watching; `None` when the system refused it.
    subscription: Option<Subscription>,
    /// The folder it was; another one at the same path is watched anew.
    folder: Option<(u64, u64)>,
}

/// What is to be looked at, each once, and since when.
#[derive(Default)]
struct Due {
    queue: VecDeque<i64>,
    since: HashMap<i64, Instant>,
}

impl Due {
    fn add(&mut self, id: i64) {
        self.since.entry(id).or_insert_with(|| {
            self.queue.push_back(id);
            Instant::now()
        });
    }

    fn next(&mut self) -> Option<(i64, Instant)> {
        let id = self.queue.pop_front()?;
        Some((id, self.since.remove(&id).unwrap_or_else(Instant::now)))
    }
}

impl Monitor {
    /// A monitor of the catalog, which is told things from now on.
    pub(crate) fn new(room: Arc<Room>, catalog: Catalog, settings: Settings) -> Monitor {
        let (sender, told) = bounded(HINTS);
        let mailbox = Mailbox {
            sender,
            lost: Arc::default(),
        };
        room.add_monitor(mailbox.clone());
        // Counted from the start, so that every catalog is there to be asked for.
        room.count(catalog, |_| ());
        Monitor {
            room,
            catalog,
            settings,
            mailbox,
            told,
            links: HashMap::new(),
            by_path: HashMap::new(),
            hasher: RandomState::new(),
            folders: HashMap::new(),
            stores: HashMap::new(),
            due: Due::default(),
            put_off: VecDeque::new(),
            failed: 0,
        }
    }

    /// Watches until the handle closes.
    pub(crate) fn run(mut self) {
        let mut next_round = Instant::now() + self.settings.initial_delay;
        let mut gathered = Instant::now();
        self.refresh();
        while !self.room.is_stopped() {
            // What a busy round left over goes on at once.
            let wait = if self.due.queue.is_empty() {
                let again = self.put_off.front().map(|(when, _)| *when);
                again.map_or(next_round, |again| next_round.min(again))
            } else {
                Instant::now()
            };
            match self.told.recv_deadline(wait) {
                Ok(told) => {
                    self.gather(told, gathered);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // However much is told: the rounds behind it come in time.
            if Instant::now() >= next_round {
                next_round = Instant::now() + self.room.interval;
                self.refresh();
                self.look_around();
            }
            while let Some((_, id)) = self
                .put_off
                .pop_front_if(|(when, _)| *when <= Instant::now())
            {
                self.due.add(id);
            }
            if let Err(error) = self.follow_up(next_round) {
                if pass::is_closed(&error) {
                    return;
                }
                self.due = Due::default();
                self.put_off.clear();
                next_round = next_round.min(Instant::now() + TRY_AGAIN);
                log::warn!(target: "upstream", "{} sessions are looked at again later: {error}", self.catalog.as_str());
            }
            gathered = Instant::now() + GATHER;
        }
    }

    /// Takes in a hint and those that come close to it: a file's at `soon`
    /// already, what a host's own call leads to after a while, since its next
    /// call may be to look for itself.
    fn gather(&mut self, first: Told, soon: Instant) {
        let mut end = Instant::now() + CALLS;
        let mut next = Ok(first);
        while let Ok(told) = next {
            if matches!(told, Told::File(_)) {
                end = end.min(soon);
            }
            self.take(told);
            next = self.told.recv_deadline(end);
        }
        self.take_waiting();
    }

    fn take_waiting(&mut self) {
        while let Ok(told) = self.told.try_recv() {
            self.take(told);
        }
        if self.mailbox.lost.swap(false, Ordering::Relaxed) {
            self.refresh();
            self.look_around();
        }
    }

    fn take(&mut self, told: Told) {
        match told {
            Told::Link(id) => self.link_changed(id),
            Told::Session(session) => {
                let ids = self
                    .links
                    .iter()
                    .filter(|(_, link)| link.row.session == session)
                    .map(|(id, _)| *id);
                ids.for_each(|id| self.due.add(id));
            }
            Told::File(path) => self.file_changed(&path),
            Told::Nothing => {}
        }
    }

    fn file_changed(&mut self, path: &Path) {
        if let Some(watched) = self.folders.get_mut(path) {
            // The folder itself: what is watched may be gone, and another one come
            // under its number too. The next round watches it anew.
            watched.subscription = None;
        }
        if let Some(ids) = self.by_path.get(&self.hasher.hash_one(path)) {
            ids.iter().for_each(|id| self.due.add(*id));
            return;
        }
        if self.catalog == Catalog::Opencode {
            for (source, kept) in &self.stores {
                if kept.store.concerns(path) {
                    let of_store = self
                        .links
                        .iter()
                        .filter(|(_, link)| link.source() == source);
                    of_store.for_each(|(id, _)| self.due.add(*id));
                }
            }
            return;
        }
        // Another file of a linked thread.
        let named = file_agent(self.catalog)
            .ok()
            .and_then(|agent| agent.named(path));
        if let Some(named) = named {
            let of_thread = self
                .links
                .iter()
                .filter(|(_, link)| link.row.thread == named.thread);
            of_thread.for_each(|(id, _)| self.due.add(*id));
        }
    }

    /// What of all links was touched is due, and what could not be read before.
    /// Costs one look at each file, and for an agent whose threads go on in other
    /// files one at its store.
    fn look_around(&mut self) {
        let catalog = self.catalog;
        match self.room.store.look(|conn| links::faulty(conn, catalog)) {
            Ok(faulty) => {
                self.room.set_faulty(catalog, !faulty.is_empty());
                faulty
                    .into_iter()
                    .filter(|id| self.links.contains_key(id))
                    .for_each(|id| self.due.add(id));
            }
            Err(error) => {
                log::debug!(target: "upstream", "the links in error cannot be listed now: {error}");
            }
        }
        if self.catalog == Catalog::Opencode {
            let mut moved = HashSet::new();
            for (source, kept) in &mut self.stores {
                if kept.is_moved() {
                    moved.insert(source.as_path());
                }
            }
            let links = self.links.iter();
            let of_moved = links.filter(|(_, link)| moved.contains(link.source()));
            of_moved.for_each(|(id, _)| self.due.add(*id));
            return;
        }
        let Ok(agent) = file_agent(self.catalog) else {
            return;
        };
        let mut on = Continuations::default();
        for (id, link) in &self.links {
            if !pass::is_untouched(agent, &link.row, &mut on) {
                self.due.add(*id);
            }
        }
    }

    /// Reads the list of links anew; forgets those that are gone.
    fn refresh(&mut self) {
        if let Err(error) = self.learn_changed() {
            log::debug!(target: "upstream", "the links cannot be listed now: {error}");
            return;
        }
        let used: HashSet<&PathBuf> = self.links.values().flat_map(|link| &link.folders).collect();
        // A folder that came again, or was refused before, is tried anew.
        self.folders.retain(|path, watched| {
            used.contains(path) && watched.subscription.is_some() && watched.folder == folder(path)
        });
        let used: Vec<PathBuf> = used.into_iter().cloned().collect();
        self.watch(&used);
    }

    /// Takes in the links that changed since they were taken in.
    fn learn_changed(&mut self) -> Result<()> {
        let catalog = self.catalog;
        let now = self
            .room
            .store
            .look(|conn| links::revisions(conn, catalog))?;
        let gone = self.links.keys().filter(|id| !now.contains_key(*id));
        let gone: Vec<i64> = gone.copied().collect();
        gone.into_iter().for_each(|id| self.forget(id));
        let is_new = |links: &HashMap<i64, Linked>, id: i64, revision: i64| {
            links
                .get(&id)
                .is_none_or(|known| known.row.revision != revision)
        };
        let changed = now
            .iter()
            .filter(|(id, now)| is_new(&self.links, **id, **now));
        let changed: Vec<i64> = changed.map(|(id, _)| *id).collect();
        if changed.len() > AT_ONCE {
            for row in self.rows(false)? {
                if is_new(&self.links, row.id, row.revision) {
                    self.learn(row);
                }
            }
        } else {
            for id in changed {
                if let Some(row) = self.link(id)? {
                    self.learn(row);
                }
            }
        }
        Ok(())
    }

    /// Takes in a link as it is now.
    fn learn(&mut self, mut row: LinkRow) {
        let Some(source) = row.source.clone() else {
            return;
        };
        if self.catalog == Catalog::Opencode {
            if self
                .links
                .get(&row.id)
                .is_some_and(|known| known.row.revision == row.revision)
            {
                return;
            }
            let Ok(Some(whole)) = self.link(row.id) else {
                return;
            };
            let position = pass::position_of(&whole);
            let kept = self
                .stores
                .entry(source.clone())
                .or_insert_with(|| Kept::new(&source));
            // Something of the store was not looked at as it is now.
            kept.settled = None;
            let folders = kept.store.folders(&opencode::Link {
                thread: &row.thread,
                position: &position,
            });
            self.links.insert(
                row.id,
                Linked {
                    row,
                    paths: Vec::new(),
                    folders,
                },
            );
            return;
        }
        row.progress.state = None;
        row.adopted_source = None;
        row.host = String::new();
        if let Some(known) = self
            .links
            .get_mut(&row.id)
            .filter(|known| known.source() == source)
        {
            known.row = row;
            return;
        }
        self.forget(row.id);
        // Events name a file by the folder that is watched, be it behind a link or not.
        let mut paths = vec![source.clone()];
        paths.extend(source.canonicalize().ok().filter(|real| *real != source));
        let folders = paths
            .iter()
            .filter_map(|path| path.parent().map(Path::to_owned))
            .collect();
        let hash = |path: &PathBuf| self.hasher.hash_one(path.as_path());
        let paths: Vec<u64> = paths.iter().map(hash).collect();
        for path in &paths {
            self.by_path.entry(*path).or_default().push(row.id);
        }
        self.links.insert(
            row.id,
            Linked {
                row,
                paths,
                folders,
            },
        );
    }

    fn forget(&mut self, id: i64) {
        let Some(link) = self.links.remove(&id) else {
            return;
        };
        for path in &link.paths {
            if let Some(ids) = self.by_path.get_mut(path) {
                ids.retain(|known| *known != id);
                if ids.is_empty() {
                    self.by_path.remove(path);
                }
            }
        }
        if self.catalog == Catalog::Opencode
            && !self
                .links
                .values()
                .any(|other| other.source() == link.source())
        {
            self.stores.remove(link.source());
        }
    }

    /// Takes in one link, watches its folders, and has it looked at: it may have
    /// been written to before they were watched.
    fn link_changed(&mut self, id: i64) {
        match self.link(id) {
            Ok(Some(link)) => {
                self.learn(link);
                let folders = self.links.get(&id).map(|link| link.folders.clone());
                self.watch(&folders.unwrap_or_default());
                self.due.add(id);
            }
            Ok(None) => self.forget(id),
            Err(error) => log::debug!(target: "upstream", "a link cannot be read now: {error}"),
        }
    }

    /// Watches these folders too.
    fn watch(&mut self, wanted: &[PathBuf]) {
        if !self.settings.file_events {
            return;
        }
        for path in wanted {
            if self.folders.contains_key(path) {
                continue;
            }
            let mailbox = self.mailbox.clone();
            let listening =
                files::listen(Group::Agent(self.catalog), path, move |hint| match hint {
                    Hint::Changed(file) => mailbox.tell(Told::File(file.to_owned())),
                    Hint::Lost => mailbox.lose(),
                });
            if let Err(error) = &listening
                && matches!(error.kind, notify::ErrorKind::MaxFilesWatch)
            {
                self.room.watch_limit_met();
            }
            let watched = Watched {
                subscription: listening.ok(),
                folder: folder(path),
            };
            self.folders.insert(path.clone(), watched);
        }
        let unwatched = self
            .folders
            .values()
            .filter(|watched| watched.subscription.is_none())
            .count();
        self.room
            .set_watched(self.catalog, self.folders.len() - unwatched, unwatched);
    }

    /// Looks at what is due, a slice of each in turn.
    /// Ends at `until`, so that hints without end hold up no round.
    fn follow_up(&mut self, until: Instant) -> Result<()> {
        let began = Instant::now();
        let mut looked = 0;
        let mut turn = 0u32;
        let mut on = Continuations::default();
        let mut open: VecDeque<(FilePass, Instant)> = VecDeque::new();
        loop {
            self.take_waiting();
            if self.room.is_stopped() {
                return Err(Error::closed());
            }
            if looked > 0 && Instant::now() >= until {
                open.iter()
                    .for_each(|(pass, _)| self.due.add(pass.link_id()));
                break;
            }
            turn = turn.wrapping_add(1);
            if self.catalog == Catalog::Opencode {
                if self.due.queue.is_empty() {
                    break;
                }
                looked += self.stores_due()?;
                continue;
            }
            let agent = file_agent(self.catalog)?;
            // Begun passes and those to begin take turns; each begun one holds a file.
            let begun = if turn.is_multiple_of(2) || open.len() >= OPEN {
                open.pop_front()
            } else {
                None
            };
            let begun = match begun {
                None if self.due.queue.is_empty() => open.pop_front(),
                begun => begun,
            };
            let (id, step, since) = if let Some((pass, since)) = begun {
                let id = pass.link_id();
                (id, pass.slice(&self.room, agent, &mut on), since)
            } else if let Some((id, since)) = self.due.next() {
                looked += 1;
                let step = match self.link(id) {
                    Ok(None) => continue,
                    Ok(Some(link)) => {
                        FilePass::begin(&self.room, agent, link, Purpose::Background, &mut on)
                    }
                    Err(error) => Err(error),
                };
                (id, step, since)
            } else {
                break;
            };
            let step = match step {
                Ok(step) => step,
                Err(error) => {
                    self.put_off(id, error)?;
                    continue;
                }
            };
            self.failed = 0;
            match step {
                Step::Done(outcome) => self.done(&outcome, since),
                Step::GoesOn(outcome, id) => {
                    self.done(&outcome, since);
                    self.link_changed(id);
                }
                Step::More(pass) => open.push_back((pass, since)),
                Step::Stale(id) => self.due.add(id),
            }
        }
        if looked > 0 {
            self.room.count(self.catalog, |stats: &mut CatalogStats| {
                stats.passes += 1;
                stats.last_pass_ms = began.elapsed().as_millis() as u64;
            });
        }
        Ok(())
    }

    /// Puts off a link whose pass failed, so that it holds up no other; an error of
    /// one pass after the other is the database's, and ends the round.
    fn put_off(&mut self, id: i64, error: Error) -> Result<()> {
        self.failed += 1;
        if pass::is_closed(&error) || self.failed >= FAILURES {
            self.failed = 0;
            return Err(error);
        }
        log::warn!(target: "upstream", "a {} session is looked at again later: {error}", self.catalog.as_str());
        self.put_off.push_back((Instant::now() + TRY_AGAIN, id));
        Ok(())
    }

    /// Looks at the due sessions of each store together.
    fn stores_due(&mut self) -> Result<usize> {
        let mut by_source: HashMap<PathBuf, (Vec<LinkRow>, Instant)> = HashMap::new();
        let mut looked = 0;
        let mut since_of = HashMap::new();
        while let Some((id, since)) = self.due.next() {
            since_of.insert(id, since);
        }
        for link in self.rows(true)? {
            if let Some(since) = since_of.get(&link.id)
                && let Some(source) = link.source.clone()
            {
                looked += 1;
                let entry = by_source
                    .entry(source)
                    .or_insert_with(|| (Vec::new(), *since));
                entry.1 = entry.1.min(*since);
                entry.0.push(link);
            }
        }
        for (source, (links, since)) in by_source {
            let mut kept = match self.stores.remove(&source) {
                Some(kept) if kept.folder == source.is_dir() => kept,
                // It was not there before, or is of the other kind now.
                _ => Kept::new(&source),
            };
            let of_store = self.links.values().filter(|link| link.source() == source);
            let all = links.len() == of_store.count();
            let asked: Vec<i64> = links.iter().map(|link| link.id).collect();
            // Asked before the looking: what is written meanwhile is a move.
            let state = kept.state();
            let mut outcomes = Vec::new();
            let passed = pass::whole_store(
                &self.room,
                &mut kept.store,
                links,
                Purpose::Background,
                |outcome| outcomes.push(outcome),
            );
            let (left, failed) = match passed {
                Ok(left) => (left.more, left.failed),
                Err(error) if pass::is_closed(&error) => return Err(error),
                Err(error) => (Vec::new(), vec![(asked[0], error)]),
            };
            let well = |outcome: &Outcome| {
                matches!(
                    outcome.outcome,
                    OutcomeKind::Unchanged | OutcomeKind::Activity
                )
            };
            kept.settled = state.filter(|_| {
                all && failed.is_empty() && left.is_empty() && outcomes.iter().all(well)
            });
            self.stores.insert(source, kept);
            // What is longer than a slice goes on after what others have to tell.
            left.into_iter().for_each(|id| self.due.add(id));
            for outcome in outcomes
                .iter()
                .filter(|outcome| outcome.outcome == OutcomeKind::Activity)
            {
                // A message brings a folder of its own in the older tree.
                let is_it = |link: &Linked| {
                    let session = &link.row.session;
                    session.key == outcome.session_key && session.agent == outcome.agent_id
                };
                let id = self
                    .links
                    .iter()
                    .find(|(_, link)| is_it(link))
                    .map(|(id, _)| *id);
                if let Some(id) = id
                    && let Some(link) = self.link(id)?
                {
                    self.learn(link);
                    let folders = self.links.get(&id).map(|link| link.folders.clone());
                    self.watch(&folders.unwrap_or_default());
                }
            }
            outcomes
                .iter()
                .for_each(|outcome| self.done(outcome, since));
            if failed.is_empty() {
                self.failed = 0;
            }
            for (id, error) in failed {
                self.put_off(id, error)?;
            }
        }
        Ok(looked)
    }

    /// The catalog's links with a source on this machine.
    fn rows(&self, whole: bool) -> Result<Vec<LinkRow>> {
        let filter = links::Filter {
            catalog: Some(self.catalog),
            local: true,
            without_state: !whole,
            ..links::Filter::default()
        };
        self.room
            .store
            .read(|conn| links::list(conn, &filter, usize::MAX, 0))
    }

    /// The link as it is now; `None` when it ended, or was turned to another catalog.
    fn link(&self, id: i64) -> Result<Option<LinkRow>> {
        let link = self.room.store.read(|conn| links::of_id(conn, id))?;
        Ok(link.filter(|link| link.catalog == self.catalog && link.source.is_some()))
    }

    fn done(&self, outcome: &Outcome, since: Instant) {
        self.room.note(outcome);
        match outcome.outcome {
            OutcomeKind::Activity | OutcomeKind::Replaced => {
                let lag = since.elapsed().as_millis() as u64;
                self.room
                    .count(self.catalog, |stats: &mut CatalogStats| stats.lag_ms = lag);
            }
            OutcomeKind::Error => {
                let why = outcome.message.as_deref().unwrap_or_default();
                log::warn!(target: "upstream", "a {} session cannot be read now: {why}", self.catalog.as_str());
            }
            _ => {}
        }
    }
}

/// Which folder is at the path, whatever its name.
fn folder(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path)
        .ok()
        .map(|found| (found.dev(), found.ino()))
}
