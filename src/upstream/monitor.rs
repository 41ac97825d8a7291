//! The background: one thread a catalog, so that a slow or hung store delays
//! only its own sessions.
//!
//! File events say which sources to look at now; they are hints. Every
//! interval all sources are looked at, which costs one look at each file that
//! was not touched. What is longer than a slice is read in turn with the others.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, Hash, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use super::pass::{self, Begun, Continuations, FilePass, Glance, Purpose, Step};
use super::room::{CatalogStats, Room};
use super::{file_agent, opencode, stores};
use crate::contract::{Catalog, Error, Outcome, OutcomeKind, Result};
use crate::files::{self, Group, Hint, Subscription};
use crate::store::Standing;
use crate::store::links::{self, Brief, FileStamp, LinkRow};

/// The shortest time between two rounds that hints lead to: a program writes its
/// rows in bursts, and the first of them is followed at once.
const GATHER: Duration = Duration::from_millis(2);

/// A look at a store takes in all of its sessions, and a busy one is written to all
/// the time: so many times as long as the last look took nothing is looked at.
const REST: u32 = 4;

/// The longest of such rests.
const LONGEST_REST: Duration = Duration::from_millis(50);

/// When a round that failed is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// So many passes fail in a row before the round is given up.
const FAILURES: usize = 8;

/// So many files are open at most.
const OPEN: usize = 8;

/// How long what a host's own calls lead to is gathered.
const CALLS: Duration = Duration::from_millis(10);

/// So many changed links are read at once.
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
    /// The link of this id came, went, was turned to another source, or is to
    /// be looked at.
    Link(i64),
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
        // A bounded channel would hold room for all of them from the start.
        if self.sender.len() < HINTS {
            self.send(told);
        } else {
            self.lose();
        }
    }

    fn send(&self, told: Told) {
        // Nobody is there to hear it when the monitor has ended.
        let _ = self.sender.send(told);
    }

    /// Has everything looked at.
    fn lose(&self) {
        // Seen by whoever takes what is in the box after this.
        self.lost.swap(true, Ordering::SeqCst);
        // A full box is emptied soon, and the flag read then.
        if self.sender.is_empty() {
            self.send(Told::Nothing);
        }
    }
}

/// A catalog's monitor; [`Monitor::run`] is the body of its thread.
pub(crate) struct Monitor {
    room: Arc<Room>,
    catalog: Catalog,
    settings: Settings,
    mailbox: Mailbox,
    told: Receiver<Told>,
    /// In the order of their adoption, which is mostly that of their files: looking
    /// at all of them then goes through memory, the system's too, in its order.
    links: BTreeMap<i64, Box<Linked>>,
    /// How the database stood when they were last taken in.
    standing: Option<Standing>,
    /// The links by what their sources are called in file events, and by their
    /// threads, of which a hash is enough: who is looked at in vain is not the
    /// worse for it.
    names: BTreeSet<(u64, i64)>,
    hasher: RandomState,
    folders: HashMap<Arc<Path>, Watched>,
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
    /// Its state at the last look, whatever came of that.
    seen: Option<opencode::State>,
    /// How often it was looked at since the last hint, and nothing more was written.
    in_vain: usize,
    /// When it is to be looked at again.
    again: Option<Instant>,
}

/// When a database is looked at again after a hint, in ms: the event of a write to
/// its log comes before what was written can be seen, by as long as the disk takes
/// when the log is synced.
const LOOK_AGAIN_MS: [u64; 5] = [2, 10, 50, 250, 1_000];

impl Kept {
    fn new(source: &Path) -> Kept {
        Kept {
            store: opencode::Store::new(source),
            folder: source.is_dir(),
            settled: None,
            seen: None,
            in_vain: 0,
            again: None,
        }
    }

    /// Sets when to look again after a look that finds it in this state.
    fn look_again(&mut self, state: Option<opencode::State>) {
        if self.seen != state {
            self.in_vain = 0;
        }
        self.seen = state;
        let delay = LOOK_AGAIN_MS.get(self.in_vain).filter(|_| state.is_some());
        self.again = delay.map(|ms| Instant::now() + Duration::from_millis(*ms));
        self.in_vain += 1;
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

/// What is kept of a link; there may be many.
struct Linked {
    revision: i64,
    source: Box<Path>,
    thread: Box<str>,
    adopted_at: i64,
    stamp: Option<FileStamp>,
    /// Whose events can tell of it.
    folders: Box<[Arc<Path>]>,
    /// The hashes it is found by; some may be the same.
    names: [u64; 3],
}

impl Linked {
    fn glance(&self) -> Glance<'_> {
        Glance {
            source: &self.source,
            thread: &self.thread,
            adopted_at: self.adopted_at,
            stamp: self.stamp,
        }
    }
}

/// How a folder is watched.
enum Watched {
    /// Not yet.
    Not,
    /// The system refused it, or it was not there.
    Refused,
    Yes {
        /// The folder it was; another one at the same path is watched anew.
        folder: Option<files::Identity>,
        /// Dropped to end the watching.
        _subscription: Subscription,
    },
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
        let (sender, told) = unbounded();
        let mailbox = Mailbox {
            sender,
            lost: Arc::default(),
        };
        room.add_monitor(catalog, mailbox.clone());
        // Counted from the start, so that every catalog is there to be asked for.
        room.count(catalog, |_| ());
        Monitor {
            room,
            catalog,
            settings,
            mailbox,
            told,
            links: BTreeMap::new(),
            standing: None,
            names: BTreeSet::new(),
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
        // Until then hints are gathered.
        let mut rested = Instant::now();
        self.refresh();
        while !self.room.is_stopped() {
            // What a busy round left over goes on at once.
            if self.due.queue.is_empty() {
                let again = self.put_off.front().map(|(when, _)| *when);
                let stores = self.stores.values().filter_map(|kept| kept.again);
                let stores = stores.map(|when| when.max(rested));
                let wait = stores.chain(again).fold(next_round, Instant::min);
                match self.told.recv_deadline(wait) {
                    Ok(told) => self.gather(told, rested),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
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
            if Instant::now() >= rested {
                self.look_at_stores_again();
            }
            let began = Instant::now();
            if let Err(error) = self.follow_up(next_round) {
                if pass::is_closed(&error) {
                    return;
                }
                self.due = Due::default();
                self.put_off.clear();
                next_round = next_round.min(Instant::now() + TRY_AGAIN);
                log::warn!(target: "upstream", "{} sessions are looked at again later: {error}", self.catalog.as_str());
            }
            let rest = match self.catalog {
                Catalog::Opencode => (began.elapsed() * REST).clamp(GATHER, LONGEST_REST),
                _ => GATHER,
            };
            rested = Instant::now() + rest;
        }
    }

    /// Takes in a hint and those that come close to it: a file's at `soon`
    /// already, what a host's own call leads to after a while, since its next
    /// call may be to look for itself.
    fn gather(&mut self, first: Told, soon: Instant) {
        let is_file = |told: &Told| matches!(told, Told::File(_));
        let mut end = if is_file(&first) {
            soon
        } else {
            Instant::now() + CALLS
        };
        let mut next = Some(first);
        while let Some(told) = next {
            if is_file(&told) {
                end = end.min(soon);
            }
            self.take(told);
            if self.room.is_stopped() {
                return;
            }
            // Asking the channel to wait until a time that is over gives the
            // processor away to others first.
            next = if Instant::now() < end {
                self.told.recv_deadline(end).ok()
            } else {
                None
            };
        }
        self.take_waiting();
    }

    fn take_waiting(&mut self) {
        while let Ok(told) = self.told.try_recv() {
            self.take(told);
        }
        if self.mailbox.lost.swap(false, Ordering::SeqCst) {
            self.refresh();
            self.look_around();
        }
    }

    fn take(&mut self, told: Told) {
        match told {
            Told::Link(id) => self.link_changed(id),
            Told::File(path) => self.file_changed(&path),
            Told::Nothing => {}
        }
    }

    fn look_at_stores_again(&mut self) {
        let now = Instant::now();
        for (source, kept) in &mut self.stores {
            if kept.again.take_if(|when| *when <= now).is_none() {
                continue;
            }
            let state = kept.state();
            if state.is_some() && state == kept.settled {
                kept.look_again(state);
                continue;
            }
            let of_store = self
                .links
                .iter()
                .filter(|(_, link)| *link.source == **source);
            of_store.for_each(|(id, _)| self.due.add(*id));
        }
    }

    fn file_changed(&mut self, path: &Path) {
        if let Some((folder, _)) = self.folders.get_key_value(path) {
            // The folder itself: what is watched may be gone, and another one come
            // under its number too, with files nobody heard of.
            let folder = Arc::clone(folder);
            self.folders.insert(Arc::clone(&folder), Watched::Not);
            self.watch([Arc::clone(&folder)]);
            let links = self.links.iter();
            let in_it = links.filter(|(_, link)| link.folders.contains(&folder));
            in_it.for_each(|(id, _)| self.due.add(*id));
            return;
        }
        if self.named(self.hash(path)) {
            return;
        }
        if self.catalog == Catalog::Opencode {
            for (source, kept) in &mut self.stores {
                if kept.store.concerns(path) {
                    kept.in_vain = 0;
                    let of_store = self
                        .links
                        .iter()
                        .filter(|(_, link)| *link.source == **source);
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
            self.named(self.hash(&*named.thread));
        }
    }

    fn hash<T: Hash + ?Sized>(&self, name: &T) -> u64 {
        self.hasher.hash_one(name)
    }

    /// Has the links of the name looked at; false when there are none.
    fn named(&mut self, name: u64) -> bool {
        let of_name = self.names.range((name, i64::MIN)..=(name, i64::MAX));
        of_name.fold(false, |_, (_, id)| {
            self.due.add(*id);
            true
        })
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
            let of_moved = links.filter(|(_, link)| moved.contains(&*link.source));
            of_moved.for_each(|(id, _)| self.due.add(*id));
            return;
        }
        let Ok(agent) = file_agent(self.catalog) else {
            return;
        };
        let mut on = Continuations::default();
        for (id, link) in &self.links {
            if !link.glance().is_untouched(agent, &mut on) {
                self.due.add(*id);
            }
        }
    }

    /// Reads the list of links anew; forgets those that are gone.
    fn refresh(&mut self) {
        if let Err(error) = self.learn_changed() {
            return unreadable(&error);
        }
        // Named by no link any more.
        self.folders.retain(|path, _| Arc::strong_count(path) > 1);
        // A folder that came again, or was refused before, is tried anew.
        for (path, watched) in &mut self.folders {
            if !matches!(watched, Watched::Yes { folder: seen, .. } if *seen == files::identity(path))
            {
                *watched = Watched::Not;
            }
        }
        let all: Vec<_> = self.folders.keys().cloned().collect();
        self.watch(all);
    }

    /// Takes in the links that changed since they were taken in.
    fn learn_changed(&mut self) -> Result<()> {
        let catalog = self.catalog;
        // Asked before the reading: what is written meanwhile is a change.
        let standing = self.room.store.standing()?;
        if standing.is_some() && standing == self.standing {
            return Ok(());
        }
        self.standing = None;
        let now = self
            .room
            .store
            .look(|conn| links::revisions(conn, catalog))?;
        let mut known = 0;
        let mut changed = Vec::new();
        for (id, revision) in &now {
            let link = self.links.get(id);
            known += usize::from(link.is_some());
            if link.is_none_or(|link| link.revision != *revision) {
                changed.push(*id);
            }
        }
        if known < self.links.len() {
            let is_gone = |id: &i64| now.binary_search_by_key(id, |(id, _)| *id).is_err();
            let gone: Vec<i64> = self.links.keys().copied().filter(is_gone).collect();
            gone.into_iter().for_each(|id| self.forget(id));
        }
        for some in changed.chunks(AT_ONCE) {
            for link in self.briefs(some)? {
                self.learn(link)?;
            }
        }
        self.standing = standing;
        Ok(())
    }

    /// Takes in a link as it is now.
    fn learn(&mut self, link: Brief) -> Result<()> {
        let (id, source) = (link.id, link.source.as_path());
        let mut linked = Linked {
            revision: link.revision,
            source: source.into(),
            thread: link.thread.as_str().into(),
            adopted_at: link.adopted_at,
            stamp: link.stamp,
            folders: Box::default(),
            names: [0; 3],
        };
        let known = self.links.get_mut(&id);
        if self.catalog == Catalog::Opencode {
            if known.is_some_and(|known| known.revision == link.revision) {
                return Ok(());
            }
            // Where it is read from says which folders tell of it.
            let whole = self.room.store.look(|conn| links::of_id(conn, id))?;
            let Some(whole) = whole else {
                return Ok(());
            };
            let kept = self
                .stores
                .entry(source.to_owned())
                .or_insert_with(|| Kept::new(source));
            // Something of the store was not looked at as it is now.
            kept.settled = None;
            let folders = kept.store.folders(&opencode::Link {
                thread: &link.thread,
                position: &stores::position_of(&whole),
            });
            linked.folders = folders.iter().map(|path| self.folder(path)).collect();
        } else if let Some(known) = known.filter(|known| *known.source == *source) {
            linked.folders = std::mem::take(&mut known.folders);
            linked.names = known.names;
        } else {
            self.forget(id);
            // Events name a file by the folder that is watched, be it behind a link or not.
            let real = source.canonicalize().ok();
            let real = real.as_deref().unwrap_or(source);
            linked.names = [self.hash(source), self.hash(real), self.hash(&*link.thread)];
            self.names.extend(linked.names.map(|name| (name, id)));
            let mut folders = vec![source.parent(), real.parent()];
            folders.dedup();
            let folders = folders.into_iter().flatten();
            linked.folders = folders.map(|path| self.folder(path)).collect();
        }
        self.links.insert(id, Box::new(linked));
        Ok(())
    }

    /// The folder at the path, which many links may have in common.
    fn folder(&mut self, path: &Path) -> Arc<Path> {
        if let Some((known, _)) = self.folders.get_key_value(path) {
            return Arc::clone(known);
        }
        let path: Arc<Path> = path.into();
        self.folders.insert(Arc::clone(&path), Watched::Not);
        path
    }

    fn forget(&mut self, id: i64) {
        let Some(link) = self.links.remove(&id) else {
            return;
        };
        for name in link.names {
            self.names.remove(&(name, id));
        }
        if self.catalog == Catalog::Opencode
            && !self.links.values().any(|other| other.source == link.source)
        {
            self.stores.remove(&*link.source);
        }
    }

    /// Takes in one link, watches its folders, and has it looked at: it may have
    /// been written to before they were watched.
    fn link_changed(&mut self, id: i64) {
        match self.relearn(id) {
            Ok(true) => self.due.add(id),
            Ok(false) => self.forget(id),
            Err(error) => unreadable(&error),
        }
    }

    /// Takes in one link and watches its folders; false when it is none of ours
    /// any more.
    fn relearn(&mut self, id: i64) -> Result<bool> {
        let Some(link) = self.briefs(&[id])?.pop() else {
            return Ok(false);
        };
        self.learn(link)?;
        if let Some(link) = self.links.get(&id) {
            self.watch(link.folders.to_vec());
        }
        Ok(true)
    }

    /// Watches those of the folders that were not yet tried.
    fn watch(&mut self, folders: impl IntoIterator<Item = Arc<Path>>) {
        if !self.settings.file_events {
            return;
        }
        for path in folders {
            if !matches!(self.folders.get(&path), None | Some(Watched::Not)) {
                continue;
            }
            let mailbox = self.mailbox.clone();
            let listening =
                files::listen(Group::Agent(self.catalog), &path, move |hint| match hint {
                    Hint::Changed(file) => mailbox.tell(Told::File(file.to_owned())),
                    Hint::Lost => mailbox.lose(),
                });
            let watched = match listening {
                Ok(subscription) => Watched::Yes {
                    folder: files::identity(&path),
                    _subscription: subscription,
                },
                Err(error) => {
                    if matches!(error.kind, notify::ErrorKind::MaxFilesWatch) {
                        self.room.watch_limit_met();
                    }
                    Watched::Refused
                }
            };
            self.folders.insert(path, watched);
        }
        let is_watched = |watched: &&Watched| matches!(watched, Watched::Yes { .. });
        let watched = self.folders.values().filter(is_watched).count();
        self.room
            .set_watched(self.catalog, watched, self.folders.len() - watched);
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
                let step = match Begun::of(&self.room, id) {
                    Ok(Some(found)) if self.is_mine(&found.link) => {
                        FilePass::begin(&self.room, agent, found, Purpose::Background, &mut on)
                    }
                    Ok(_) => continue,
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
        let ids: Vec<i64> = self.due.queue.iter().copied().collect();
        let looked = ids.len();
        let since_of = std::mem::take(&mut self.due).since;
        for link in self.rows(&ids)? {
            if let (Some(since), Some(source)) = (since_of.get(&link.id), link.source.clone()) {
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
            let of_store = self.links.values().filter(|link| *link.source == *source);
            let all = links.len() == of_store.count();
            let asked: Vec<i64> = links.iter().map(|link| link.id).collect();
            // Asked before the looking: what is written meanwhile is a move.
            let state = kept.state();
            kept.look_again(state);
            let mut outcomes = Vec::new();
            let passed = stores::whole_store(
                &self.room,
                &mut kept.store,
                links,
                Purpose::Background,
                |id, outcome| outcomes.push((id, outcome)),
            );
            let (left, failed) = match passed {
                Ok(left) => (left.more, left.failed),
                Err(error) if pass::is_closed(&error) => return Err(error),
                Err(error) => (Vec::new(), vec![(asked[0], error)]),
            };
            let well = |(_, outcome): &(i64, Outcome)| {
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
            for (id, outcome) in &outcomes {
                // A message brings a folder of its own in the older tree.
                if outcome.outcome == OutcomeKind::Activity {
                    self.relearn(*id)?;
                }
                self.done(outcome, since);
            }
            if failed.is_empty() {
                self.failed = 0;
            }
            for (id, error) in failed {
                self.put_off(id, error)?;
            }
        }
        Ok(looked)
    }

    /// Those of the links that are still the catalog's, with a source on this machine.
    fn briefs(&self, ids: &[i64]) -> Result<Vec<Brief>> {
        let mut links = self
            .room
            .store
            .read(|conn| links::local_of_ids(conn, ids))?;
        links.retain(|link| link.catalog == self.catalog);
        Ok(links)
    }

    /// As [`Monitor::briefs`], all of them.
    fn rows(&self, ids: &[i64]) -> Result<Vec<LinkRow>> {
        let mut rows = self.room.store.read(|conn| links::of_ids(conn, ids))?;
        rows.retain(|link| self.is_mine(link));
        Ok(rows)
    }

    fn is_mine(&self, link: &LinkRow) -> bool {
        link.catalog == self.catalog && link.source.is_some()
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

fn unreadable(error: &Error) {
    log::debug!(target: "upstream", "the links cannot be read now: {error}");
}

#[cfg(test)]
mod tests {
    use super::super::pass::LOCAL;
    use super::*;
    use crate::contract::Roots;
    use crate::key::Session;
    use crate::store::links::NewLink;
    use crate::store::{Options, Store};
    use crate::watch::Wakes;

    const LONG: Duration = Duration::from_secs(3_600);

    /// More hints than a box holds, or that the system lost some.
    #[test]
    fn after_hints_were_lost_everything_is_looked_at() {
        for box_is_full in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.jsonl");
            std::fs::write(&path, "{}\n").unwrap();
            let options = Options::of_test(folder.path());
            let store = Store::open(options, Box::new(|_| Ok(())), Box::new(|_, _| ())).unwrap();
            let wakes = crate::sync::Arc::new(Wakes::new(store.path(), None));
            let store = crate::sync::Arc::new(store);
            let room = Arc::new(Room::new(store, wakes, Roots::default(), LONG));
            let settings = Settings {
                initial_delay: LONG,
                file_events: false,
            };
            let monitor = Monitor::new(Arc::clone(&room), Catalog::Claude, settings);
            let mailbox = monitor.mailbox.clone();
            if box_is_full {
                for _ in 0..=HINTS {
                    mailbox.tell(Told::File(folder.path().join("another.jsonl")));
                }
            }
            let session = Session::of("agent:main:a", None).unwrap();
            let (of, source) = (session.clone(), path.to_str().unwrap().to_owned());
            // As another process does, of whose links nobody tells.
            room.store
                .write(move |tx| {
                    let link = NewLink {
                        session: &of,
                        catalog: Catalog::Claude,
                        thread: "t",
                        source: Some(&source),
                        host: LOCAL,
                        adopted_event: 1,
                        baseline_now: false,
                        baseline_end: None,
                    };
                    links::adopt(tx, &link)
                })
                .unwrap();
            std::thread::scope(|threads| {
                threads.spawn(|| monitor.run());
                if !box_is_full {
                    mailbox.lose();
                }
                let begin = Instant::now();
                let position = || {
                    let link = room.store.read(|conn| links::of_session(conn, &session));
                    link.unwrap().unwrap().progress.position
                };
                while position() == 0 && begin.elapsed() < Duration::from_secs(20) {
                    std::thread::sleep(Duration::from_millis(2));
                }
                let position = position();
                room.stop();
                assert_eq!(position, 3, "full: {box_is_full}");
            });
        }
    }
}
