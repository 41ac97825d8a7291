//! Stores what a pass found: each function here is one transaction, which does
//! nothing when the link is no longer as it was read.

use std::path::{Path, PathBuf};

use super::act::Act;
use super::outcome::{Counts, outcome};
use super::pass::{LOCAL, Purpose, Step};
use super::print::Secret;
use super::room::Room;
use super::source::Source;
use crate::contract::{ActorType, Catalog, Kind, NewEvent, OutcomeKind, Payload, Result};
use crate::key::Session;
use crate::log::Draft;
use crate::signal;
use crate::store::Tx;
use crate::store::alive::is_alive;
use crate::store::links::{self, Known, LinkRow, Progress};
use crate::sys;

/// So many misses in a row end a link.
const MISSES: u32 = 3;

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
pub(super) fn found(room: &Room, link: &LinkRow) -> Result<()> {
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

/// Turns the link to another file of its thread, to be read from the start:
/// what was met is known, and what it holds from before the adoption is told
/// from the rest by its time.
pub(super) fn turn_to(room: &Room, link: &LinkRow, newer: PathBuf) -> Result<()> {
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

pub(super) fn path_text(path: Option<&Path>) -> Option<String> {
    path.and_then(Path::to_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::contract::Roots;
    use crate::store::links::{FileStamp, NewLink};
    use crate::store::{Options, Store};
    use crate::sync::Arc;
    use crate::watch::Wakes;

    #[test]
    fn a_slice_is_stored_once_and_by_the_database_whose_key_its_hashes_have() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::of_test(folder.path());
        let store = Store::open(options, Box::new(|_| Ok(())), Box::new(|_, _| ())).unwrap();
        let wakes = Arc::new(Wakes::new(store.path(), None));
        let room = Room::new(Arc::new(store), wakes, Roots::default(), Duration::ZERO);
        let link = room.store.write(|tx| {
            let session = Session::of("agent:main:a", None)?;
            links::adopt(
                tx,
                &NewLink {
                    session: &session,
                    catalog: Catalog::Claude,
                    thread: "t",
                    source: Some("/a.jsonl"),
                    host: LOCAL,
                    adopted_event: 1,
                    baseline_now: true,
                    baseline_end: Some(7),
                },
            )?;
            links::of_session(tx.conn()?, &session)
        });
        let link = link.unwrap().unwrap();
        let settle_by = |secret: Secret| {
            let slice = Settle {
                room_wants: true,
                acts: Vec::new(),
                skip: Skip::None,
                baseline_end: None,
                source: Some("/b.jsonl".to_owned()),
                source_id: [0; 16],
                secret,
                progress: Progress {
                    position: 7,
                    state: Some("{}".to_owned()),
                    stamp: Some(FileStamp {
                        device: u64::MAX,
                        inode: 2,
                        size: 7,
                        modified_ns: -1,
                    }),
                    mark: Some(([1; 16], [2; 16])),
                },
            };
            settle(&room, &link, slice).unwrap()
        };
        let other = Secret::new([1; 32]);
        assert!(matches!(settle_by(other), Settled::Stale));
        let Settled::Stored(_, now) = settle_by(room.secret().unwrap()) else {
            panic!("its own key");
        };
        let read = room.store.read(|conn| links::of_id(conn, link.id));
        assert_eq!(read.unwrap(), Some(*now), "as it is told it is stored");
        let again = settle_by(room.secret().unwrap());
        assert!(matches!(again, Settled::Stale));
    }

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
