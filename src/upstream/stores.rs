//! A pass over a store of OpenCode: over all of its links at once.

use std::collections::VecDeque;
use std::time::Instant;

use super::opencode;
use super::outcome::{Counts, failed, outcome};
use super::pass::{Purpose, SLICE_BYTES, SLICE_TIME, Step, TRIES, is_closed};
use super::print::Secret;
use super::room::Room;
use super::rows::Slice;
use super::settle::{Settle, Settled, Skip, found, miss, path_text, settle, source_id};
use crate::contract::{Error, Outcome, OutcomeKind, Result};
use crate::key::Session;
use crate::store::alive::is_alive;
use crate::store::links::{self, LinkRow, Progress};

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
    let mut open = VecDeque::new();
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

/// How far a session of OpenCode was judged; its start when that cannot be understood.
pub(super) fn position_of(link: &LinkRow) -> opencode::Position {
    let state = link.progress.state.as_deref();
    state
        .and_then(|state| serde_json::from_str(state).ok())
        .unwrap_or_default()
}
