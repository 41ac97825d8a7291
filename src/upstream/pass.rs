//! A pass over a link: reads what its source holds beyond the position, and
//! stores position, turns and event in one transaction a slice.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::act::{Act, ActKind};
use super::agent::{self, Agent, Case, Judge};
use super::print::Secret;
use super::room::Room;
use super::rows::Slice;
use super::source::{Mark, OpenError, Source, Stamp};
use super::{file_agent, find, opencode};
use crate::contract::{
    ActorType, Catalog, Code, Error, Kind, NewEvent, Outcome, OutcomeKind, Payload, Result,
};
use crate::key::Session;
use crate::log::Draft;
use crate::signal;
use crate::store::Tx;
use crate::store::alive::is_alive;
use crate::store::links::{self, Brief, FileStamp, Known, LinkRow, Progress};
use crate::sys;

/// What one slice takes at most.
const SLICE_BYTES: u64 = 64 << 20;
const SLICE_TIME: Duration = Duration::from_millis(250);

/// What is looked at of a file that nothing was read of yet, in bytes.
const HEAD: u64 = 4_096;

/// File systems keep times by a clock that lags behind, in ms.
const COARSE_MS: i64 = 1_000;

/// So many misses in a row end a link.
const MISSES: u32 = 3;

/// How often a pass begins anew when another one changed the link meanwhile.
const TRIES: usize = 8;

/// The host of sessions on this machine.
pub(super) const LOCAL: &str = "local";

/// Why a pass is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To know the turns that are there at an adoption.
    Baseline,
    /// The host asked. A source that is not there is a miss each time.
    Scan,
    /// Of the library's own accord. A miss is counted at most once in an
    /// interval, over all processes.
    Background,
}

/// What a pass has found so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    prompts: u64,
    commands: u64,
    shells: u64,
}

impl Counts {
    fn add(&mut self, kind: ActKind) {
        match kind {
            ActKind::Prompt => self.prompts += 1,
            ActKind::Command => self.commands += 1,
            ActKind::Shell => self.shells += 1,
        }
    }

    fn join(&mut self, other: Counts) {
        self.prompts += other.prompts;
        self.commands += other.commands;
        self.shells += other.shells;
    }

    /// Whether anything was found.
    pub(super) fn any(&self) -> bool {
        self.turns() > 0
    }

    fn turns(&self) -> u64 {
        self.prompts + self.commands + self.shells
    }
}

/// The outcome with what was counted before it.
fn with(done: Outcome, before: Counts) -> Outcome {
    Outcome {
        human_turns: done.human_turns + before.turns(),
        prompts: done.prompts + before.prompts,
        commands: done.commands + before.commands,
        shells: done.shells + before.shells,
        outcome: match done.outcome {
            OutcomeKind::Unchanged if before.any() => OutcomeKind::Activity,
            kind => kind,
        },
        ..done
    }
}

pub(super) fn outcome(link: &LinkRow, kind: OutcomeKind, counts: Counts) -> Outcome {
    outcome_of(&link.session, link.catalog, kind, counts)
}

fn outcome_of(session: &Session, catalog: Catalog, kind: OutcomeKind, counts: Counts) -> Outcome {
    Outcome {
        session_key: session.key.clone(),
        agent_id: session.agent.clone(),
        catalog,
        outcome: kind,
        human_turns: counts.turns(),
        prompts: counts.prompts,
        commands: counts.commands,
        shells: counts.shells,
        message: None,
    }
}

fn failed(link: &LinkRow, message: String) -> Outcome {
    Outcome {
        message: Some(message),
        ..outcome(link, OutcomeKind::Error, Counts::default())
    }
}

/// A step of a pass.
pub(super) enum Step<T> {
    /// It is over.
    Done(Outcome),
    /// It is over, and the thread of this link goes on in another file.
    GoesOn(Outcome, i64),
    /// There is more to read.
    More(T),
    /// Another pass, or the host, changed the link of this id meanwhile: begin anew.
    Stale(i64),
}

/// Where the threads of one agent's store go on, looked up once a round.
#[derive(Default)]
pub(super) struct Continuations(HashMap<Vec<PathBuf>, HashMap<String, PathBuf>>);

impl Continuations {
    /// The file the thread goes on in, when it is another one.
    fn of(&mut self, agent: &dyn Agent, path: &Path, thread: &str) -> Option<PathBuf> {
        let folders = agent.siblings(path);
        if folders.is_empty() {
            return None;
        }
        let key = folders.iter().map(|folder| folder.path.clone()).collect();
        let live = self
            .0
            .entry(key)
            .or_insert_with(|| find::live_files_of(agent, &folders));
        live.get(thread).filter(|now| *now != path).cloned()
    }
}

/// A link as a pass over it begins, all of one snapshot.
pub(super) struct Begun {
    pub link: LinkRow,
    is_running: bool,
    secret: Secret,
}

impl Begun {
    /// The link of this id; `None` when it is released.
    pub(super) fn of(room: &Room, id: i64) -> Result<Option<Begun>> {
        let found = room.store.read(|conn| {
            let Some(link) = links::of_id(conn, id)? else {
                return Ok(None);
            };
            let runs = links::runs(conn, &link.session)?;
            Ok(Some((link, runs, links::secret(conn)?)))
        })?;
        Ok(found.map(|(link, runs, secret)| Begun {
            is_running: any_alive(room, &runs),
            secret: Secret::new(secret),
            link,
        }))
    }
}

/// A pass over a file, between its slices.
pub(super) struct FilePass {
    link: LinkRow,
    secret: Secret,
    path: PathBuf,
    source: Source,
    judge: Box<dyn Judge>,
    position: u64,
    kind: OutcomeKind,
    counts: Counts,
}

impl FilePass {
    /// Looks at the link's source and opens it when there may be something to read.
    pub(super) fn begin(
        room: &Room,
        agent: &'static dyn Agent,
        begun: Begun,
        purpose: Purpose,
        on: &mut Continuations,
    ) -> Result<Step<FilePass>> {
        let Begun {
            link,
            is_running,
            secret,
        } = begun;
        if is_running {
            return Ok(Step::Done(outcome(
                &link,
                OutcomeKind::Deferred,
                Counts::default(),
            )));
        }
        let Some(linked) = link.source.clone() else {
            return Ok(Step::Done(failed(
                &link,
                "the link names no file".to_owned(),
            )));
        };
        let (path, stamp) = match Stamp::of(&linked) {
            Ok(stamp) => (linked, stamp),
            Err(OpenError::Missing) => match on.of(agent, &linked, &link.thread) {
                // A file that was moved, or another one of the thread.
                Some(now) => match Stamp::of(&now) {
                    Ok(stamp) if is_moved(agent, &link, &linked, &now, &stamp) => (now, stamp),
                    Ok(_) => return turn_to(room, &link, now).map(|()| Step::Stale(link.id)),
                    Err(_) => return miss(room, &link, purpose),
                },
                None => return miss(room, &link, purpose),
            },
            Err(error) => return Ok(Step::Done(failed(&link, error.to_string()))),
        };
        let moved = link.source.as_deref() != Some(&path);
        if !moved && link.baseline_end.is_none() && link.progress.stamp == Some(seen(&stamp)) {
            return match newer(agent, &path, &link.thread, link.adopted_at, on) {
                Some(newer) => turn_to(room, &link, newer).map(|()| Step::Stale(link.id)),
                None => found(room, &link).map(|()| {
                    Step::Done(outcome(&link, OutcomeKind::Unchanged, Counts::default()))
                }),
            };
        }
        let mut source = match Source::open(&path) {
            Ok(source) => source,
            Err(OpenError::Missing) => return miss(room, &link, purpose),
            Err(error) => return Ok(Step::Done(failed(&link, error.to_string()))),
        };
        let kept = match is_kept(&link.progress, &mut source, &secret) {
            Ok(kept) => kept,
            Err(error) => return Ok(Step::Done(failed(&link, unreadable(&error)))),
        };
        let case = Case {
            secret: &secret,
            thread: &link.thread,
            path: Some(&path),
        };
        let saved = link.progress.state.as_deref().filter(|_| kept);
        let (judge, position) = match agent.judge(case, saved) {
            Some(judge) if saved.is_some() => (judge, link.progress.position),
            Some(judge) => (judge, 0),
            None => match agent.judge(case, None) {
                Some(judge) => (judge, 0),
                None => {
                    return Ok(Step::Done(failed(
                        &link,
                        "the source cannot be judged".to_owned(),
                    )));
                }
            },
        };
        Ok(Step::More(FilePass {
            kind: if kept {
                OutcomeKind::Unchanged
            } else {
                OutcomeKind::Replaced
            },
            link,
            secret,
            path,
            source,
            judge,
            position,
            counts: Counts::default(),
        }))
    }

    /// The link that is passed over.
    pub(super) fn link_id(&self) -> i64 {
        self.link.id
    }

    /// The mark of what stands before the position, at the start of the file's
    /// head; `None` for a compressed file, which nobody writes to.
    fn anchor(&mut self) -> std::io::Result<Option<StoredMark>> {
        let end = self.source.end();
        if end == u64::MAX {
            return Ok(None);
        }
        let place = if self.position > 0 {
            self.position
        } else {
            end.min(HEAD)
        };
        Ok(self.source.mark(place, &self.secret)?.map(as_stored))
    }

    /// Reads and stores one slice.
    pub(super) fn slice(
        mut self,
        room: &Room,
        agent: &'static dyn Agent,
        on: &mut Continuations,
    ) -> Result<Step<FilePass>> {
        let baseline = self
            .link
            .baseline_end
            .filter(|end| self.kind != OutcomeKind::Replaced && *end > self.position);
        let slice = Slice {
            bytes: baseline.map_or(SLICE_BYTES, |end| SLICE_BYTES.min(end - self.position)),
            until: Some(Instant::now() + SLICE_TIME),
            stop: Some(&room.stop),
        };
        // What is rewritten in place while it is read is read anew. What stands before
        // the position must be what it was when the slice before ended.
        let before = if self.position > 0 && self.source.end() < u64::MAX {
            self.link.progress.mark
        } else {
            match self.anchor() {
                Ok(before) => before,
                Err(error) => return Ok(Step::Done(failed(&self.link, unreadable(&error)))),
            }
        };
        let mut acts = Vec::new();
        let read = agent::scan(
            &mut self.source,
            self.position,
            slice,
            &self.secret,
            self.judge.as_mut(),
            |act| acts.push(act),
        );
        let reached = match read {
            Ok(reached) => reached,
            Err(error) => return Ok(Step::Done(failed(&self.link, unreadable(&error)))),
        };
        if room.is_stopped() {
            return Err(Error::closed());
        }
        match self.anchor() {
            // Still in search of the end of one row: there is nothing to store.
            Ok(after) if after == before && reached.more && reached.position == self.position => {
                return Ok(Step::More(self));
            }
            Ok(after) if after == before => {}
            Ok(_) => return Ok(Step::Stale(self.link.id)),
            Err(error) => return Ok(Step::Done(failed(&self.link, unreadable(&error)))),
        }
        let mark = match self.source.mark(reached.position, &self.secret) {
            Ok(mark) => mark,
            Err(error) => return Ok(Step::Done(failed(&self.link, unreadable(&error)))),
        };
        // The end of the baseline ends a slice, not the file.
        let at_baseline = baseline.is_some_and(|end| reached.position >= end);
        let more = reached.more && !(at_baseline && reached.position >= self.source.end());
        let mut stamp = seen(&self.source.stamp());
        if more {
            // Not read to its end: it must not look unchanged.
            stamp.modified_ns = i64::MIN;
        }
        let progress = Progress {
            position: reached.position,
            state: Some(self.judge.save()),
            stamp: Some(stamp),
            mark: mark.map(as_stored),
        };
        if self.kind == OutcomeKind::Unchanged && reached.position > self.position {
            self.kind = OutcomeKind::Activity;
        }
        let settled = Settle {
            room_wants: self.kind != OutcomeKind::Unchanged
                || self.link.source.as_deref() != Some(&self.path)
                || progress.stamp != self.link.progress.stamp
                || self.link.misses > 0,
            acts,
            skip: match baseline {
                Some(_) if self.link.followed => Skip::Before(self.link.adopted_at),
                Some(_) => Skip::All,
                None => Skip::None,
            },
            baseline_end: baseline.filter(|_| more && !at_baseline),
            source: path_text(Some(&self.path)),
            source_id: source_id(&self.secret, &self.link, Some(&self.path)),
            secret: self.secret.clone(),
            progress,
        };
        match settle(room, &self.link, settled)? {
            Settled::Stale => return Ok(Step::Stale(self.link.id)),
            Settled::Deferred => {
                return Ok(Step::Done(outcome(
                    &self.link,
                    OutcomeKind::Deferred,
                    self.counts,
                )));
            }
            Settled::Stored(counts, link) => {
                self.counts.join(counts);
                self.link = *link;
            }
        }
        self.position = reached.position;
        if more {
            return Ok(Step::More(self));
        }
        let done = outcome(&self.link, self.kind, self.counts);
        let Self { link, path, .. } = &self;
        match newer(agent, path, &link.thread, link.adopted_at, on) {
            Some(newer) => {
                turn_to(room, &self.link, newer).map(|()| Step::GoesOn(done, self.link.id))
            }
            None => Ok(Step::Done(done)),
        }
    }
}

/// What of a link tells at a glance that a pass over its file would find nothing.
pub(super) struct Glance<'a> {
    pub source: &'a Path,
    pub thread: &'a str,
    pub adopted_at: i64,
    /// `None` when a pass has something to do whatever the file looks like.
    pub stamp: Option<FileStamp>,
}

impl Glance<'_> {
    /// Whether the file is as it was, and the thread goes on in no other one.
    pub(super) fn is_untouched(&self, agent: &dyn Agent, on: &mut Continuations) -> bool {
        self.stamp.is_some()
            && Stamp::of(self.source).is_ok_and(|stamp| self.stamp == Some(seen(&stamp)))
            && newer(agent, self.source, self.thread, self.adopted_at, on).is_none()
    }
}

/// The outcome of a link to a file that is as it was, which needs no pass to
/// see; `None` when it takes one.
pub(super) fn unchanged(link: &Brief, on: &mut Continuations) -> Option<Outcome> {
    let agent = file_agent(link.catalog).ok()?;
    let glance = Glance {
        source: &link.source,
        thread: &link.thread,
        adopted_at: link.adopted_at,
        stamp: link.stamp,
    };
    let unchanged = || {
        outcome_of(
            &link.session,
            link.catalog,
            OutcomeKind::Unchanged,
            Counts::default(),
        )
    };
    glance.is_untouched(agent, on).then(unchanged)
}

/// Passes over a file's link to its end.
pub(super) fn whole_file(
    room: &Room,
    agent: &'static dyn Agent,
    link: LinkRow,
    purpose: Purpose,
    on: &mut Continuations,
) -> Result<Outcome> {
    let mut counts = Counts::default();
    for _ in 0..TRIES {
        let Some(begun) = Begun::of(room, link.id)? else {
            // Released meanwhile: there is nothing to pass over.
            return Ok(outcome(&link, OutcomeKind::Unchanged, counts));
        };
        let mut step = FilePass::begin(room, agent, begun, purpose, on)?;
        loop {
            match step {
                Step::More(pass) => {
                    let so_far = pass.counts;
                    step = pass.slice(room, agent, on)?;
                    if matches!(step, Step::Stale(_)) {
                        counts.join(so_far);
                    }
                }
                Step::Done(done) => return Ok(with(done, counts)),
                Step::GoesOn(done, _) => {
                    counts = Counts {
                        prompts: counts.prompts + done.prompts,
                        commands: counts.commands + done.commands,
                        shells: counts.shells + done.shells,
                    };
                    break;
                }
                Step::Stale(_) => break,
            }
        }
    }
    Ok(failed(
        &link,
        "other passes over the link were always faster".to_owned(),
    ))
}

/// What a pass over a store of OpenCode leaves to do.
#[derive(Default)]
pub(super) struct Left {
    /// The links of which there is more to read.
    pub more: Vec<i64>,
    /// The links of which something could not be stored.
    pub failed: Vec<(i64, Error)>,
}

/// Passes over the links of one OpenCode store, which are looked at all at once.
/// Each is read slice by slice in turn, in the background one slice alone; `done`
/// gets their ids and outcomes. In the background what fails for one link ends its pass alone.
pub(super) fn whole_store(
    room: &Room,
    store: &mut opencode::Store,
    links: Vec<LinkRow>,
    purpose: Purpose,
    mut done: impl FnMut(i64, Outcome),
) -> Result<Left> {
    let (runs, secret) = room
        .store
        .read(|conn| Ok((links::all_runs(conn)?, links::secret(conn)?)))?;
    let secret = Secret::new(secret);
    let is_running = |session: &Session| {
        runs.iter()
            .any(|(of, handle)| of == session && is_alive(room.store.path(), *handle))
    };
    let mut asked = Vec::new();
    for link in links {
        if is_running(&link.session) {
            let deferred = outcome(&link, OutcomeKind::Deferred, Counts::default());
            done(link.id, deferred);
        } else {
            let position = position_of(&link);
            asked.push((link, position));
        }
    }
    let wanted: Vec<_> = asked
        .iter()
        .map(|(link, position)| opencode::Link {
            thread: &link.thread,
            position,
        })
        .collect();
    let looks = match store.look(&wanted) {
        Ok(looks) => looks,
        Err(opencode::Error::Missing) => vec![opencode::Look::Gone; asked.len()],
        Err(opencode::Error::Stopped) => return Err(Error::closed()),
        Err(error) => {
            asked
                .iter()
                .for_each(|(link, _)| done(link.id, failed(link, error.to_string())));
            return Ok(Left::default());
        }
    };
    let mut left = Left::default();
    let mut open = std::collections::VecDeque::new();
    for ((link, position), look) in asked.into_iter().zip(looks) {
        match look {
            opencode::Look::Gone => done(link.id, gone(room, link, purpose)?),
            opencode::Look::Same => {
                match link.baseline_end {
                    // There was nothing to remember.
                    Some(_) => drop(settle(room, &link, end_of_baseline(&secret, &link))?),
                    None => found(room, &link)?,
                }
                let unchanged = outcome(&link, OutcomeKind::Unchanged, Counts::default());
                done(link.id, unchanged);
            }
            opencode::Look::Moved => {
                open.push_back((link, position, Counts::default(), OutcomeKind::Unchanged, 0))
            }
        }
    }
    while let Some((link, position, mut counts, mut kind, tries)) = open.pop_front() {
        let slice = Slice {
            bytes: SLICE_BYTES,
            until: Some(Instant::now() + SLICE_TIME),
            stop: Some(&room.stop),
        };
        let reading = match store.read(&link.thread, &position, &secret, slice) {
            Ok(Some(reading)) => reading,
            Ok(None) | Err(opencode::Error::Missing) => {
                done(link.id, gone(room, link, purpose)?);
                continue;
            }
            Err(opencode::Error::Stopped) => return Err(Error::closed()),
            Err(error) => {
                done(link.id, failed(&link, error.to_string()));
                continue;
            }
        };
        let moved = reading.position != position;
        if moved {
            kind = OutcomeKind::Activity;
        }
        let settled = Settle {
            room_wants: moved || link.misses > 0 || link.baseline_end.is_some(),
            acts: reading.acts,
            skip: match (purpose, link.skip_before()) {
                // What is read in the adoption's own call was there in its millisecond.
                (Purpose::Baseline, Skip::Before(adopted_at)) => Skip::Before(adopted_at + 1),
                (_, skip) => skip,
            },
            baseline_end: link.baseline_end.filter(|_| reading.more),
            source: path_text(link.source.as_deref()),
            source_id: source_id(&secret, &link, link.source.as_deref()),
            secret: secret.clone(),
            progress: Progress {
                state: serde_json::to_string(&reading.position).ok(),
                ..Progress::default()
            },
        };
        let settled = match settle(room, &link, settled) {
            Err(error) if purpose == Purpose::Background && !is_closed(&error) => {
                left.failed.push((link.id, error));
                continue;
            }
            settled => settled?,
        };
        match settled {
            Settled::Stored(told, link) => {
                counts.join(told);
                if reading.more && purpose == Purpose::Background {
                    left.more.push(link.id);
                    done(link.id, outcome(&link, kind, counts));
                } else if reading.more {
                    open.push_back((*link, reading.position, counts, kind, tries));
                } else {
                    done(link.id, outcome(&link, kind, counts));
                }
            }
            Settled::Deferred => done(link.id, outcome(&link, OutcomeKind::Deferred, counts)),
            Settled::Stale => match room.store.read(|conn| links::of_id(conn, link.id))? {
                Some(now) if tries < TRIES => {
                    let position = position_of(&now);
                    open.push_back((now, position, counts, kind, tries + 1));
                }
                _ => done(link.id, outcome(&link, kind, counts)),
            },
        }
    }
    Ok(left)
}

/// Counts a miss of a session of OpenCode, whatever else changes its link meanwhile.
fn gone(room: &Room, mut link: LinkRow, purpose: Purpose) -> Result<Outcome> {
    for _ in 0..TRIES {
        if let Step::Done(gone) = miss::<()>(room, &link, purpose)? {
            return Ok(gone);
        }
        link = match room.store.read(|conn| links::of_id(conn, link.id))? {
            Some(now) => now,
            None => break,
        };
    }
    Ok(outcome(&link, OutcomeKind::Unchanged, Counts::default()))
}

/// Ends the baseline of a session of OpenCode that has nothing to read.
fn end_of_baseline(secret: &Secret, link: &LinkRow) -> Settle {
    Settle {
        room_wants: true,
        acts: Vec::new(),
        skip: Skip::None,
        baseline_end: None,
        source: path_text(link.source.as_deref()),
        source_id: source_id(secret, link, link.source.as_deref()),
        secret: secret.clone(),
        progress: link.progress.clone(),
    }
}

fn path_text(path: Option<&Path>) -> Option<String> {
    path.and_then(Path::to_str).map(str::to_owned)
}

/// How far a session of OpenCode was judged; its start when that cannot be understood.
pub(super) fn position_of(link: &LinkRow) -> opencode::Position {
    let state = link.progress.state.as_deref();
    state
        .and_then(|state| serde_json::from_str(state).ok())
        .unwrap_or_default()
}

impl LinkRow {
    /// Which of the turns of a store, or of rows handed over, were there at the adoption.
    pub(super) fn skip_before(&self) -> Skip {
        let in_baseline = self.host != LOCAL || self.baseline_end.is_some();
        if self.baseline_now && in_baseline {
            Skip::Before(self.adopted_at)
        } else {
            Skip::None
        }
    }
}

/// Which turns are remembered and not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skip {
    None,
    All,
    /// Those whose own time lies before this one, ms since the epoch.
    Before(i64),
}

/// What a slice is to store.
pub(super) struct Settle {
    /// Whether there is anything to store but acts.
    pub room_wants: bool,
    pub acts: Vec<Act>,
    pub skip: Skip,
    pub baseline_end: Option<u64>,
    pub source: Option<String>,
    pub source_id: [u8; 16],
    /// What all hashes were made with.
    pub secret: Secret,
    pub progress: Progress,
}

/// What storing a slice came to.
pub(super) enum Settled {
    Stored(Counts, Box<LinkRow>),
    /// The host began to run the session meanwhile.
    Deferred,
    Stale,
}

/// Stores a slice: position, turns and event in one transaction, if the link
/// is still as it was read, and the database the same one.
pub(super) fn settle(room: &Room, link: &LinkRow, slice: Settle) -> Result<Settled> {
    if slice.acts.is_empty() && !slice.room_wants {
        return Ok(Settled::Stored(Counts::default(), Box::new(link.clone())));
    }
    let (id, revision) = (link.id, link.revision);
    let database = room.store.path().to_owned();
    room.store.write(move |tx| {
        let Some(link) = links::of_id(tx.conn()?, id)?.filter(|now| now.revision == revision)
        else {
            return Ok(Settled::Stale);
        };
        if Secret::new(links::secret(tx.conn()?)?) != slice.secret {
            return Ok(Settled::Stale);
        }
        if links::runs(tx.conn()?, &link.session)?
            .iter()
            .any(|handle| is_alive(&database, *handle))
        {
            return Ok(Settled::Deferred);
        }
        let counts = take_in(tx, &link, &slice)?;
        let now = links::advance(
            tx,
            link,
            slice.source.as_deref(),
            slice.progress,
            slice.baseline_end,
        )?;
        Ok(Settled::Stored(counts, Box::new(now)))
    })
}

/// Remembers the acts, and tells of those that are human turns.
///
/// What the host sent is looked for among its messages to this session alone. A fork of
/// Claude Code that does not say `forkedFrom` holds its parent's rows under its own
/// session id: should it be read before the parent, a prompt of the host's to the parent
/// is told for it. Nothing in such a row says whose it is, and a person may well type in
/// one session what the host sends to another: comparing with the messages to all
/// sessions would lose turns, which is worse.
fn take_in(tx: &Tx<'_>, link: &LinkRow, slice: &Settle) -> Result<Counts> {
    let mut counts = Counts::default();
    if slice.acts.is_empty() {
        return Ok(counts);
    }
    let own = links::own_messages(tx.conn()?, &link.session)?;
    let mut last = None;
    for act in &slice.acts {
        let keys: Vec<_> = act.keys().map(|key| *key.as_bytes()).collect();
        let mut known = Known::No;
        for key in &keys {
            match links::known(tx, key, link.id, &slice.source_id)? {
                Known::Met => known = Known::Met,
                Known::Elsewhere if known == Known::No => known = Known::Elsewhere,
                _ => {}
            }
        }
        for key in &keys {
            links::remember(
                tx,
                key,
                link.id,
                &slice.source_id,
                known == Known::Elsewhere,
            )?;
        }
        let skipped = match slice.skip {
            Skip::None => false,
            Skip::All => true,
            Skip::Before(adopted_at) => act.time_ms.is_some_and(|time| time < adopted_at),
        };
        let echo = act.prints().any(|print| own.contains(print.as_bytes()));
        if known == Known::No && !skipped && !echo && !act.again {
            counts.add(act.kind);
            last = act.time_ms.or(last);
        }
    }
    if counts.turns() > 0 {
        let turns = (counts.turns() > 1).then_some(counts.turns());
        tell(
            tx,
            &link.session,
            Kind::HumanDirectMessage,
            ActorType::Human,
            link.catalog,
            turns,
            last,
            true,
        )?;
    }
    Ok(counts)
}

/// Records an event of the library's own about a linked session.
#[allow(clippy::too_many_arguments)]
pub(super) fn tell(
    tx: &Tx<'_>,
    session: &Session,
    kind: Kind,
    actor: ActorType,
    catalog: Catalog,
    turns: Option<u64>,
    occurred_at: Option<i64>,
    only_if_watched: bool,
) -> Result<crate::contract::Recorded> {
    let mut payload = Payload::new();
    payload.insert("channel".to_owned(), catalog.as_str().into());
    if let Some(turns) = turns {
        payload.insert("turns".to_owned(), turns.into());
    }
    let draft = Draft::check(NewEvent {
        agent_id: Some(session.agent.clone()),
        payload: Some(payload),
        occurred_at,
        only_if_watched: Some(only_if_watched),
        ..NewEvent::new(&session.key, kind, actor)
    })?;
    signal::record(tx, &draft)
}

/// Whether the host itself runs the session, by any living handle.
pub(super) fn is_running(room: &Room, session: &Session) -> Result<bool> {
    let handles = room.store.look(|conn| links::runs(conn, session))?;
    Ok(any_alive(room, &handles))
}

fn any_alive(room: &Room, handles: &[i64]) -> bool {
    let mut handles = handles.iter();
    handles.any(|handle| is_alive(room.store.path(), *handle))
}

/// Counts a miss; the third in a row is told, and ends the link.
pub(super) fn miss<T>(room: &Room, link: &LinkRow, purpose: Purpose) -> Result<Step<T>> {
    let (id, revision) = (link.id, link.revision);
    let pace = match purpose {
        Purpose::Scan => 0,
        Purpose::Baseline | Purpose::Background => {
            i64::try_from(room.interval.as_millis()).unwrap_or(i64::MAX)
        }
    };
    let current = room.store.write(move |tx| {
        let Some(link) = links::of_id(tx.conn()?, id)?.filter(|now| now.revision == revision)
        else {
            return Ok(false);
        };
        let uptime = sys::uptime_ms();
        if !may_miss(link.misses, link.missed_at, uptime, pace) {
            return Ok(true);
        }
        if link.misses + 1 < MISSES {
            links::set_misses(tx, id, link.misses + 1, uptime)?;
            return Ok(true);
        }
        tell(
            tx,
            &link.session,
            Kind::UpstreamMissing,
            ActorType::System,
            link.catalog,
            None,
            None,
            false,
        )?;
        links::release(tx, &link.session)?;
        Ok(true)
    })?;
    Ok(match current {
        true => Step::Done(outcome(link, OutcomeKind::Missing, Counts::default())),
        false => Step::Stale(link.id),
    })
}

/// Whether another miss may be counted, at most one a `pace`, by the uptime at
/// the last one and now. Of an uptime above the present one it is only sure
/// that the machine was started after it.
fn may_miss(misses: u32, missed_at: i64, uptime: i64, pace: i64) -> bool {
    let since = if missed_at <= uptime {
        uptime - missed_at
    } else {
        uptime
    };
    misses == 0 || since >= pace
}

/// The source is there: its misses are over.
fn found(room: &Room, link: &LinkRow) -> Result<()> {
    if link.misses == 0 {
        return Ok(());
    }
    let (id, revision) = (link.id, link.revision);
    room.store.write(move |tx| {
        match links::of_id(tx.conn()?, id)?.filter(|now| now.revision == revision) {
            Some(_) => links::set_misses(tx, id, 0, 0),
            None => Ok(()),
        }
    })
}

/// A file in which the thread goes on since the adoption.
fn newer(
    agent: &dyn Agent,
    path: &Path,
    thread: &str,
    adopted_at: i64,
    on: &mut Continuations,
) -> Option<PathBuf> {
    let now = on.of(agent, path, thread)?;
    let later = |path: &Path| agent.named(path).map(|named| named.order);
    let written = Stamp::of(&now).ok()?.modified_ms();
    // What was there at the adoption and lay still since is not where the person goes on.
    (later(&now) > later(path) && written.saturating_add(COARSE_MS) >= adopted_at).then_some(now)
}

/// Whether what was at `before` is now at `now`: the same file, or the same
/// name in another form or folder.
fn is_moved(agent: &dyn Agent, link: &LinkRow, before: &Path, now: &Path, stamp: &Stamp) -> bool {
    let same_file = link
        .progress
        .stamp
        .is_some_and(|seen| (seen.device, seen.inode) == (stamp.device, stamp.inode));
    same_file || agent.named(before) == agent.named(now)
}

/// Turns the link to another file of its thread, to be read from the start:
/// what was met is known, and what it holds from before the adoption is told
/// from the rest by its time.
fn turn_to(room: &Room, link: &LinkRow, newer: PathBuf) -> Result<()> {
    let end = Source::open(&newer).map_or(0, |source| source.end());
    let (id, revision) = (link.id, link.revision);
    room.store.write(move |tx| {
        match links::of_id(tx.conn()?, id)?.filter(|now| now.revision == revision) {
            Some(now) => {
                let baseline = now.baseline_now.then_some(end);
                let turned = LinkRow {
                    followed: true,
                    ..now
                };
                links::advance(tx, turned, newer.to_str(), Progress::default(), baseline)?;
                Ok(())
            }
            None => Ok(()),
        }
    })
}

/// Whether what was read of the file is still there.
fn is_kept(progress: &Progress, source: &mut Source, secret: &Secret) -> std::io::Result<bool> {
    let Some(before) = progress.stamp else {
        return Ok(true);
    };
    let now = source.stamp();
    if (before.device, before.inode) != (now.device, now.inode) || source.end() < progress.position
    {
        return Ok(false);
    }
    // Without a mark the file was cut while it was read.
    let Some(before) = progress.mark else {
        return Ok(progress.position == 0);
    };
    let mark = source.mark(progress.position, secret)?;
    Ok(mark.is_some_and(|mark| as_stored(mark) == before))
}

/// A mark as the database holds it.
type StoredMark = ([u8; 16], [u8; 16]);

fn as_stored(mark: Mark) -> StoredMark {
    (*mark.head.as_bytes(), *mark.tail.as_bytes())
}

fn seen(stamp: &Stamp) -> FileStamp {
    FileStamp {
        device: stamp.device,
        inode: stamp.inode,
        size: stamp.size,
        modified_ns: i64::try_from(stamp.modified_ns).unwrap_or(i64::MAX),
    }
}

fn unreadable(error: &std::io::Error) -> String {
    format!("the session file cannot be read: {error}")
}

/// What a source is known by among those of its catalog: two links on one
/// source are each told, a copy in another one is not.
pub(super) fn source_id(secret: &Secret, link: &LinkRow, path: Option<&Path>) -> [u8; 16] {
    // The files of Codex come and go under a thread, OpenCode's threads share a store.
    let by_thread = matches!(link.catalog, Catalog::Codex | Catalog::Opencode);
    let path = path
        .filter(|_| !by_thread)
        .map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned()));
    let place = path.map_or_else(
        || link.thread.clone().into_bytes(),
        |path| path.into_os_string().into_encoded_bytes(),
    );
    *secret
        .key(&[
            b"source",
            link.catalog.as_str().as_bytes(),
            link.host.as_bytes(),
            &place,
        ])
        .as_bytes()
}

/// Whether an error ends the whole round: the handle is closing.
pub(super) fn is_closed(error: &Error) -> bool {
    error.code == Code::Closed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_are_paced_by_what_is_sure_from_uptimes_alone() {
        const PACE: i64 = 60_000;
        for (misses, missed_at, uptime, may) in [
            // The first one, also just after the machine was started.
            (0, 0, 0, true),
            (0, 0, 4, true),
            // In one run of the machine.
            (1, 1_000, 1_000, false),
            (1, 1_000, 60_999, false),
            (1, 1_000, 61_000, true),
            // In a later one.
            (1, 500_000, 4, false),
            (1, 500_000, 59_999, false),
            (1, 500_000, 60_000, true),
            (2, i64::MAX, 60_000, true),
            // Of a database in which misses bore the wall clock's time.
            (2, 1_796_029_200_000, 3_600_000, true),
        ] {
            assert_eq!(
                may_miss(misses, missed_at, uptime, PACE),
                may,
                "{missed_at}, {uptime}"
            );
        }
        // A scan counts each.
        assert!(may_miss(2, 1_000, 1_000, 0) && may_miss(2, 1_000, 0, 0));
    }
}
