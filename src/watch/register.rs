//! Cursors in the database: each change is a step of the pure machine.

use std::collections::HashSet;

use rusqlite::Connection;

use super::cursor::{Input, Step, step};
use crate::contract::{
    Error, Kind, KindSet, Provenance, Reset, Result, SessionReset, Unwatch, Unwatched, Watch,
    WatchReply, WatchRow, Watches, WatchesReply,
};
use crate::key::{self, Session, Watcher};
use crate::log::page_size;
use crate::store::cursors::{self, CursorRow};
use crate::store::owed::{self, Whom};
use crate::store::{Tx, events, offers};

const MOST_ROWS: usize = 1_000;

/// Carries out a step: stores the cursor, and raises its wake when one is due.
/// Nothing is written when nothing is touched.
pub(super) fn apply(
    tx: &Tx<'_>,
    watcher: &str,
    target: &Session,
    row: Option<CursorRow>,
    step: Step,
) -> Result<()> {
    let Some(cursor) = step.cursor.filter(|_| step.touched) else {
        return Ok(());
    };
    let wake = if step.wake && !key::is_subagent(watcher) {
        Some(offers::raise(tx, watcher, target)?)
    } else {
        None
    };
    let Some(old) = row else {
        let opened_at = if step.opened { tx.now() } else { 0 };
        cursors::insert(tx, watcher, target, &cursor, opened_at, wake.unwrap_or(0))?;
        return Ok(());
    };
    let only_material = cursors::Cursor {
        material: cursor.material,
        ..old.cursor
    };
    if cursor == only_material && wake.is_none() {
        return cursors::update_material(tx, old.id, cursor.material);
    }
    cursors::update(
        tx,
        &CursorRow {
            cursor,
            opened_at: if step.opened { tx.now() } else { old.opened_at },
            wake: match wake {
                Some(number) => number,
                // A notice taken takes its wake along.
                None if step.opened || !cursor.is_pending() => 0,
                None => old.wake,
            },
            ..old
        },
    )
}

/// Tells the watchers of `session` of an event of it: the registered ones and
/// those the event names, which are seeded when it spawned the session.
pub(crate) fn announce(
    tx: &Tx<'_>,
    session: &Session,
    sequence: u64,
    kind: Kind,
    actor_id: Option<&str>,
    named: &[String],
) -> Result<()> {
    if named.is_empty() {
        return announce_to_registered(tx, session, sequence, kind, actor_id);
    }
    let mut unseen: HashSet<&str> = named.iter().map(String::as_str).collect();
    let input = |watcher: &str, named: bool| match kind {
        Kind::ChildSpawned if named => Input::Seed { sequence },
        _ => Input::Event {
            sequence,
            kind,
            own: actor_id == Some(watcher),
            named,
        },
    };
    for row in cursors::of_target(tx.conn()?, session)? {
        let named = unseen.remove(row.watcher.as_str());
        let next = step(Some(row.cursor), input(&row.watcher, named));
        apply(tx, &row.watcher.clone(), session, Some(row), next)?;
    }
    for watcher in named
        .iter()
        .filter(|watcher| unseen.contains(watcher.as_str()))
    {
        apply(tx, watcher, session, None, step(None, input(watcher, true)))?;
    }
    Ok(())
}

/// So many cursors are looked at one by one; more are moved by one statement.
const FEW: usize = 3;

/// As [`announce`], for an event that names nobody: what the machine does to
/// every cursor with an open notice is to move `material`.
fn announce_to_registered(
    tx: &Tx<'_>,
    session: &Session,
    sequence: u64,
    kind: Kind,
    actor_id: Option<&str>,
) -> Result<()> {
    let told = cursors::Told {
        target: session,
        kind,
        but: actor_id,
    };
    if owed::move_known(tx, &told, sequence) {
        return Ok(());
    }
    let some = cursors::some_told(tx.conn()?, &told, FEW + 1)?;
    if some.len() > FEW {
        cursors::advance_open(tx, &told, sequence)?;
    } else {
        for (id, pending) in &some {
            if *pending {
                cursors::update_material(tx, *id, sequence)?;
            }
        }
        if some.iter().all(|(_, pending)| *pending) {
            let ids = some.into_iter().map(|(id, _)| id).collect();
            return owed::know(tx, &told, Whom::Each(ids));
        }
    }
    let unaware = cursors::without_notice(tx.conn()?, &told)?;
    if unaware.is_empty() {
        return owed::know(tx, &told, Whom::Many);
    }
    for row in unaware {
        let event = Input::Event {
            sequence,
            kind,
            own: false,
            named: false,
        };
        let next = step(Some(row.cursor), event);
        apply(tx, &row.watcher.clone(), session, Some(row), next)?;
    }
    Ok(())
}

/// Opens each pending notice up to its newest change, as the opening of a database does.
pub(crate) fn sweep(tx: &Tx<'_>) -> Result<()> {
    // What the machine does at `Input::Opened`, to all at once.
    cursors::open_behind(tx)
}

pub(crate) fn watch(request: Watch) -> Result<impl FnOnce(&Tx<'_>) -> Result<WatchReply>> {
    let watcher = Watcher::read(&request.watcher_session_key, "watcherSessionKey")?;
    let target = Session::target(
        &request.target_session_key,
        request.target_agent_id.as_deref(),
    )?;
    let kinds = request.notify_kinds.filter(|kinds| !kinds.is_empty());
    let provenance = request.provenance.unwrap_or(Provenance::Explicit);
    Ok(move |tx: &Tx<'_>| {
        let Watcher::Qualified(watcher) = watcher else {
            return Ok(WatchReply::Not {
                watched: false,
                reason: "unqualified_watcher",
            });
        };
        if watcher == target.key {
            return Ok(WatchReply::Not {
                watched: false,
                reason: "self",
            });
        }
        let version = events::head(tx.conn()?, &target)?.last;
        let row = cursors::of_pair(tx.conn()?, &watcher, &target)?;
        let created = row.is_none();
        let next = step(
            row.as_ref().map(|row| row.cursor),
            Input::Watch {
                version,
                provenance,
                kinds: kinds.as_deref().map(KindSet::of),
            },
        );
        apply(tx, &watcher, &target, row, next)?;
        Ok(WatchReply::Watched {
            watched: true,
            created,
            state_version: version,
        })
    })
}

pub(crate) fn unwatch(request: Unwatch) -> Result<impl FnOnce(&Tx<'_>) -> Result<Unwatched>> {
    let watcher = Watcher::read(&request.watcher_session_key, "watcherSessionKey")?;
    let target = Session::target(
        &request.target_session_key,
        request.target_agent_id.as_deref(),
    )?;
    Ok(move |tx: &Tx<'_>| {
        Ok(Unwatched {
            unwatched: match watcher {
                Watcher::Qualified(watcher) => cursors::delete_pair(tx, &watcher, &target)?,
                Watcher::Bare => false,
            },
        })
    })
}

pub(crate) fn watches(
    request: Watches,
) -> Result<impl FnOnce(&Connection) -> Result<WatchesReply>> {
    let most = page_size(request.limit, MOST_ROWS, MOST_ROWS)?;
    let watcher = request.watcher_session_key;
    if let Some(watcher) = &watcher {
        Watcher::read(watcher, "watcherSessionKey")?;
    }
    let (key, agent) = match (request.target_session_key, request.target_agent_id) {
        (Some(key), agent) => {
            let target = Session::target(&key, agent.as_deref())?;
            (Some(target.key), Some(target.agent))
        }
        (None, Some(agent)) if !key::is_agent_id(&agent) => {
            return Err(Error::invalid("targetAgentId", "not an agent id"));
        }
        (None, agent) => (None, agent),
    };
    let offset = request.offset.unwrap_or(0);
    Ok(move |conn: &Connection| {
        let filter = cursors::Filter {
            watcher: watcher.as_deref(),
            key: key.as_deref(),
            agent: agent.as_deref(),
        };
        let mut rows = cursors::list(conn, &filter, most + 1, offset)?;
        let more = rows.len() > most;
        rows.truncate(most);
        Ok(WatchesReply {
            watches: rows.into_iter().map(row_of).collect(),
            more,
        })
    })
}

fn row_of(row: CursorRow) -> WatchRow {
    WatchRow {
        watcher_session_key: row.watcher,
        target_session_key: row.target.key,
        target_agent_id: row.target.agent,
        provenance: row.cursor.provenance,
        notify_kinds: row.cursor.kinds.kinds(),
        last_seen: row.cursor.last_seen,
        notified: row.cursor.notified,
        material: row.cursor.material,
        pending: row.cursor.is_pending(),
        pending_since: row.cursor.is_pending().then_some(row.opened_at),
    }
}

pub(crate) fn reset(request: SessionReset) -> Result<impl FnOnce(&Tx<'_>) -> Result<Reset>> {
    let watcher = Watcher::read(&request.session_key, "sessionKey")?;
    Ok(move |tx: &Tx<'_>| {
        Ok(Reset {
            removed_watches: match watcher {
                Watcher::Qualified(watcher) => cursors::delete_watcher(tx, &watcher)? as u64,
                Watcher::Bare => 0,
            },
        })
    })
}

/// Ends every watch a deleted session has a part in; how many.
pub(crate) fn session_deleted(tx: &Tx<'_>, session: &Session) -> Result<usize> {
    let mut gone = cursors::delete_target(tx, session)?;
    if session.is_qualified() {
        gone += cursors::delete_watcher(tx, &session.key)?;
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::super::notice;
    use super::*;
    use crate::contract::{ActorType, Cause, Code, DrainNotices, NewEvent};
    use crate::log::Draft;
    use crate::signal;
    use crate::store::cursors::Cursor;
    use crate::store::{Options, Store, lock};
    use crate::sync::{Arc, Mutex};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn store(folder: &tempfile::TempDir) -> Store {
        let options = Options::of_test(folder.path());
        Store::open(options, Box::new(|_| Ok(())), Box::new(|_, _| ())).unwrap()
    }

    fn watcher(n: usize) -> String {
        // Every other one is never woken.
        let sub = if n.is_multiple_of(2) { "" } else { "subagent:" };
        format!("agent:main:{sub}{n}")
    }

    fn any_cursor() -> impl Strategy<Value = Cursor> {
        let ambient = prop::sample::select(vec![Provenance::Explicit, Provenance::AmbientGroup]);
        let kinds = prop::sample::select(vec![
            KindSet::NOTIFYING,
            KindSet::of(&[Kind::GoalChanged]),
            KindSet::of(&Kind::ALL),
        ]);
        (0..3_u64, 0..3_u64, 0..3_u64, ambient, kinds).prop_map(
            |(last_seen, open, behind, provenance, kinds)| Cursor {
                last_seen,
                notified: last_seen + open,
                material: last_seen + open + if open > 0 { behind } else { 0 },
                provenance,
                kinds,
            },
        )
    }

    fn cursors_of(tx: &Tx<'_>, target: &Session) -> Result<Vec<(String, Cursor)>> {
        let mut rows: Vec<_> = cursors::of_target(tx.conn()?, target)?
            .into_iter()
            .map(|row| (row.watcher, row.cursor))
            .collect();
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(rows)
    }

    fn make(tx: &Tx<'_>, target: &Session, made: &[Cursor]) -> Result<()> {
        for (n, cursor) in made.iter().enumerate() {
            cursors::insert(tx, &watcher(n), target, cursor, 0, 0)?;
        }
        Ok(())
    }

    /// What can be done in a transaction.
    #[derive(Clone, Debug)]
    enum Op {
        Event {
            target: usize,
            kind: Kind,
            actor: Option<usize>,
        },
        Watch {
            watcher: usize,
            target: usize,
        },
        /// Everybody watches it.
        Crowd {
            target: usize,
        },
        Unwatch {
            watcher: usize,
            target: usize,
        },
        Drain {
            watcher: usize,
        },
    }

    /// Beyond those who are told one by one, also when one of them did it.
    const WATCHERS: usize = FEW + 4;

    /// The last of them listens to one kind alone.
    fn kinds_of(watcher: usize) -> Option<Vec<Kind>> {
        (watcher == WATCHERS - 1).then(|| vec![Kind::GoalChanged])
    }

    /// The cursors and heads as the machine has them.
    #[derive(Clone, Debug, Default, PartialEq)]
    struct Model {
        sequence: u64,
        heads: [u64; 2],
        cursors: BTreeMap<(usize, usize), Cursor>,
    }

    fn target(n: usize) -> Session {
        Session::of(&format!("agent:main:child:{n}"), None).unwrap()
    }

    fn any_op() -> impl Strategy<Value = Op> {
        let kind = prop::sample::select(vec![
            Kind::HumanDirectMessage,
            Kind::HumanDirectMessage,
            Kind::GoalChanged,
            Kind::RunCompleted,
        ]);
        let pair = || (0..WATCHERS, 0..2_usize);
        prop_oneof![
            6 => (0..2_usize, kind, prop::option::of(0..WATCHERS))
                .prop_map(|(target, kind, actor)| Op::Event { target, kind, actor }),
            1 => (0..2_usize).prop_map(|target| Op::Crowd { target }),
            2 => pair().prop_map(|(watcher, target)| Op::Watch { watcher, target }),
            1 => pair().prop_map(|(watcher, target)| Op::Unwatch { watcher, target }),
            2 => (0..WATCHERS).prop_map(|watcher| Op::Drain { watcher }),
        ]
    }

    /// Whether it is undone in the end and looked at within, and what is done, each
    /// a few times.
    fn any_task() -> impl Strategy<Value = (bool, bool, Vec<(Op, usize)>)> {
        let ops = prop::collection::vec((any_op(), 1..4_usize), 1..4);
        (prop::bool::weighted(0.2), prop::bool::weighted(0.3), ops)
    }

    /// Does it to the model and in the transaction.
    fn carry_out(tx: &Tx<'_>, model: &mut Model, op: &Op) -> Result<()> {
        match *op {
            Op::Event {
                target: to,
                kind,
                actor,
            } => {
                model.sequence += 1;
                model.heads[to] = model.sequence;
                for ((watcher, _), cursor) in model.cursors.iter_mut().filter(|(of, _)| of.1 == to)
                {
                    let input = Input::Event {
                        sequence: model.sequence,
                        kind,
                        own: actor == Some(*watcher),
                        named: false,
                    };
                    *cursor = step(Some(*cursor), input).cursor.unwrap();
                }
                let draft = Draft::check(NewEvent {
                    actor_id: actor.map(watcher),
                    ..NewEvent::new(target(to).key, kind, ActorType::Agent)
                })?;
                let recorded = signal::record(tx, &draft)?;
                assert_eq!(recorded.event().unwrap().sequence, model.sequence);
            }
            Op::Watch {
                watcher: by,
                target: to,
            } => {
                let input = Input::Watch {
                    version: model.heads[to],
                    provenance: Provenance::Explicit,
                    kinds: kinds_of(by).as_deref().map(KindSet::of),
                };
                let old = model.cursors.get(&(by, to)).copied();
                model
                    .cursors
                    .insert((by, to), step(old, input).cursor.unwrap());
                let request = Watch {
                    notify_kinds: kinds_of(by),
                    ..Watch::new(watcher(by), target(to).key)
                };
                watch(request)?(tx)?;
            }
            Op::Crowd { target } => {
                for watcher in 0..WATCHERS {
                    carry_out(tx, model, &Op::Watch { watcher, target })?;
                }
            }
            Op::Unwatch {
                watcher: by,
                target: to,
            } => {
                model.cursors.remove(&(by, to));
                unwatch(Unwatch {
                    watcher_session_key: watcher(by),
                    target_session_key: target(to).key,
                    target_agent_id: None,
                })?(tx)?;
            }
            Op::Drain { watcher: by } => {
                for (_, cursor) in model.cursors.iter_mut().filter(|(of, _)| of.0 == by) {
                    let input = Input::Ack {
                        through: cursor.notified,
                    };
                    *cursor = step(Some(*cursor), input).cursor.unwrap();
                }
                notice::drain(&DrainNotices::new(watcher(by)))?.take(tx)?;
            }
        }
        Ok(())
    }

    /// What the database holds of it.
    fn held(tx: &Tx<'_>, sequence: u64) -> Result<Model> {
        let mut model = Model {
            sequence,
            ..Model::default()
        };
        for to in 0..2 {
            model.heads[to] = events::head(tx.conn()?, &target(to))?.last;
            for row in cursors::of_target(tx.conn()?, &target(to))? {
                let by = (0..WATCHERS).find(|n| watcher(*n) == row.watcher).unwrap();
                model.cursors.insert((by, to), row.cursor);
            }
        }
        Ok(model)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        /// What is written late and what is remembered is never seen: whatever the
        /// transactions of two connections hold, and whichever of them are undone.
        #[test]
        fn what_is_owed_is_seen_by_nobody(
            transactions in prop::collection::vec(
                (any::<bool>(), any::<bool>(), any::<bool>(), prop::collection::vec(any_task(), 1..4)),
                1..12,
            ),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let stores = [store(&folder), store(&folder)];
            let model = Arc::new(Mutex::new(Model::default()));
            for (which, seen_by_other, apart, tasks) in transactions {
                let store = &stores[usize::from(which)];
                // Queued while nobody leads: all are carried out as one group.
                let before = lock(&model).clone();
                let last = tasks.len() - 1;
                for (at, (undone, looked_at, ops)) in tasks.into_iter().enumerate() {
                    let (model, before) = (Arc::clone(&model), before.clone());
                    let task = move |tx: &Tx<'_>| {
                        // Carried out again, one by one, when one of them failed.
                        let mut now = if at == 0 { before.clone() } else { lock(&model).clone() };
                        lock(&model).clone_from(&now);
                        for (op, times) in &ops {
                            for _ in 0..*times {
                                carry_out(tx, &mut now, op)?;
                            }
                            if looked_at {
                                assert_eq!(held(tx, now.sequence)?, now, "within");
                            }
                        }
                        if undone {
                            return Err(Error::storage("undone"));
                        }
                        *lock(&model) = now;
                        Ok(())
                    };
                    if at < last {
                        prop_assert!(store.queue(0, task, |_| ()).unwrap());
                    } else if apart {
                        // Which keeps the tasks of the group apart from the start.
                        let _ = store.write(task);
                    } else {
                        let _ = store.write_repeatable(task);
                    }
                }
                if seen_by_other {
                    let expected = lock(&model).clone();
                let sequence = expected.sequence;
                    let held = stores[usize::from(!which)].write(move |tx| held(tx, sequence)).unwrap();
                    prop_assert_eq!(held, expected);
                }
            }
            let expected = lock(&model).clone();
                let sequence = expected.sequence;
            prop_assert_eq!(stores[0].write(move |tx| held(tx, sequence)).unwrap(), expected);
        }
    }

    /// Does each in one transaction, in the database and by the machine; when it is
    /// `undone`, the machine is as it was.
    fn in_one(store: &Store, model: &mut Model, ops: Vec<Op>, undone: bool) {
        let mut now = model.clone();
        let done = store.write(move |tx| {
            for op in &ops {
                carry_out(tx, &mut now, op)?;
            }
            if undone {
                return Err(Error::storage("undone"));
            }
            Ok(now)
        });
        assert_eq!(done.is_err(), undone, "{done:?}");
        if let Ok(now) = done {
            *model = now;
        }
        let expected = model.clone();
        let sequence = expected.sequence;
        let held = store.write(move |tx| held(tx, sequence)).unwrap();
        assert_eq!(held, expected);
    }

    /// For two cursors and for many: those with an open notice are known in two ways.
    #[test]
    fn what_an_undone_transaction_opened_is_open_to_nobody_after_it() {
        let event = || Op::Event {
            target: 0,
            kind: Kind::GoalChanged,
            actor: None,
        };
        for watchers in [1, FEW + 2] {
            let folder = tempfile::tempdir().unwrap();
            let store = store(&folder);
            let mut model = Model::default();
            let watch = |watcher| Op::Watch { watcher, target: 0 };
            in_one(
                &store,
                &mut model,
                (0..watchers).map(watch).collect(),
                false,
            );
            in_one(&store, &mut model, vec![event(), event(), event()], true);
            in_one(&store, &mut model, vec![event()], false);
            in_one(&store, &mut model, vec![event(), event()], false);
            assert!(model.cursors.values().all(|cursor| cursor.notified == 1));
        }
    }

    #[test]
    fn a_head_above_the_log_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder);
        let record = || {
            store.write(|tx| {
                let event = NewEvent::new(target(0).key, Kind::GoalChanged, ActorType::Agent);
                signal::record(tx, &Draft::check(event)?)
            })
        };
        record().unwrap();
        let other = rusqlite::Connection::open(store.path()).unwrap();
        other
            .execute("UPDATE session_state_heads SET last_sequence = 2", [])
            .unwrap();
        let error = record().unwrap_err();
        assert_eq!((error.code, error.cause), (Code::Storage, Cause::Damage));
        let events = "SELECT count(*) FROM session_state_events";
        let events: i64 = other.query_row(events, [], |row| row.get(0)).unwrap();
        assert_eq!(events, 1, "nothing of it is stored");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// What statements do to many cursors is what the machine does to each.
        #[test]
        fn the_registered_are_told_by_the_machine_s_rules(
            made in prop::collection::vec(any_cursor(), 0..8),
            kind in prop::sample::select(Kind::ALL.to_vec()),
            actor in prop::option::of(0..8_usize),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let store = store(&folder);
            let target = Session::of("agent:main:subagent:child", None).unwrap();
            let actor = actor.map(watcher);
            let mut wakes = 0;
            let mut expected: Vec<_> = made
                .iter()
                .enumerate()
                .map(|(n, cursor)| {
                    let own = actor.as_deref() == Some(&watcher(n));
                    let input = Input::Event { sequence: 100, kind, own, named: false };
                    let next = step(Some(*cursor), input);
                    wakes += usize::from(next.wake && !key::is_subagent(&watcher(n)));
                    (watcher(n), next.cursor.unwrap())
                })
                .collect();
            expected.sort_by(|a, b| a.0.cmp(&b.0));
            let (found, raised) = store
                .write(move |tx| {
                    make(tx, &target, &made)?;
                    let before = offers::last_wake(tx.conn()?)?;
                    announce(tx, &target, 100, kind, actor.as_deref(), &[])?;
                    let raised = offers::last_wake(tx.conn()?)? - before;
                    Ok((cursors_of(tx, &target)?, raised as usize))
                })
                .unwrap();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(raised, wakes);
        }

        #[test]
        fn opening_does_to_all_cursors_what_the_machine_does_to_each(
            made in prop::collection::vec(any_cursor(), 0..8),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let store = store(&folder);
            let target = Session::of("agent:main:subagent:child", None).unwrap();
            let mut expected: Vec<_> = made
                .iter()
                .enumerate()
                .map(|(n, cursor)| (watcher(n), step(Some(*cursor), Input::Opened).cursor.unwrap()))
                .collect();
            expected.sort_by(|a, b| a.0.cmp(&b.0));
            let found = store
                .write(move |tx| {
                    make(tx, &target, &made)?;
                    sweep(tx)?;
                    cursors_of(tx, &target)
                })
                .unwrap();
            prop_assert_eq!(found, expected);
        }
    }
}
