//! A pass over a link to a file: reads what the file holds beyond the position,
//! and has position, turns and event stored in one transaction a slice.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::agent::{self, Agent, Case, Judge};
use super::outcome::{Counts, failed, outcome, outcome_of, with};
use super::print::Secret;
use super::room::Room;
use super::rows::Slice;
use super::settle::{Settle, Settled, Skip, found, miss, path_text, settle, source_id, turn_to};
use super::source::{Mark, OpenError, Source, Stamp};
use super::{file_agent, find};
use crate::contract::{Code, Error, Outcome, OutcomeKind, Result};
use crate::key::Session;
use crate::store::alive::is_alive;
use crate::store::links::{self, Brief, FileStamp, LinkRow, Progress};

/// What one slice takes at most.
pub(super) const SLICE_BYTES: u64 = 64 << 20;
pub(super) const SLICE_TIME: Duration = Duration::from_millis(250);

/// What is looked at of a file that nothing was read of yet, in bytes.
const HEAD: u64 = 4_096;

/// File systems keep times by a clock that lags behind, in ms.
const COARSE_MS: i64 = 1_000;

/// How often a pass begins anew when another one changed the link meanwhile, or
/// goes on in the file after. Many: each time somebody else got on, and on a busy
/// machine the same one can lose eight times in a row.
pub(super) const TRIES: usize = 64;

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
                    counts.join(Counts::of(&done));
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

/// Whether the host itself runs the session, by any living handle.
pub(super) fn is_running(room: &Room, session: &Session) -> Result<bool> {
    let handles = room.store.look(|conn| links::runs(conn, session))?;
    Ok(any_alive(room, &handles))
}

pub(super) fn any_alive(room: &Room, handles: &[i64]) -> bool {
    let mut handles = handles.iter();
    handles.any(|handle| is_alive(room.store.path(), *handle))
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

/// Whether an error ends the whole round: the handle is closing.
pub(super) fn is_closed(error: &Error) -> bool {
    error.code == Code::Closed
}
