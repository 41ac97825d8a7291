//! Statements on the log and its heads.

use rusqlite::types::ToSql;
use rusqlite::{Connection, params, params_from_iter};

use super::values::{Seen, Values, first, only, rows};
use super::{Tx, fault, owed};
use crate::contract::text::EventView;
use crate::contract::{
    ActorType, Cause, Error, Event, Kind, MAX_NUMBER, PublicPayload, Result, SessionRow,
};
use crate::key::Session;

/// An event as it is stored; its sequence and recording time are the transaction's.
pub(crate) struct NewRow<'a> {
    pub session: &'a Session,
    pub session_id: Option<&'a str>,
    pub kind: Kind,
    pub actor_type: ActorType,
    pub actor_id: Option<&'a str>,
    pub run_id: Option<&'a str>,
    pub occurred_at: i64,
    pub summary: &'a str,
    pub payload_json: Option<&'a str>,
    pub public_json: Option<&'a str>,
    pub dedupe_key: Option<&'a str>,
}

/// Where a session's log stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub last: u64,
    /// The highest sequence that was pruned.
    pub pruned: u64,
}

/// Appends an event and moves its session's head; answers its sequence.
pub(crate) fn append(tx: &Tx<'_>, row: &NewRow<'_>) -> Result<u64> {
    let values = params![
        row.session.key,
        row.session.agent,
        row.session_id,
        row.kind.as_str(),
        row.actor_type.as_str(),
        row.actor_id,
        row.run_id,
        row.occurred_at,
        tx.now(),
        row.summary,
        row.payload_json,
        row.public_json,
        row.dedupe_key,
    ];
    tx.conn
        .with(
            "INSERT INTO session_state_events
           (session_key, agent_id, session_id, kind, actor_type, actor_id, run_id, occurred_at,
            recorded_at, summary, payload_json, public_json, dedupe_key)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            |append| append.execute(values),
        )
        .map_err(fault)
        .map_err(|error| exhausted(tx.conn).unwrap_or(error))?;
    let sequence = tx.conn.last_insert_rowid();
    if !(1..=MAX_NUMBER).contains(&sequence) {
        return Err(Error::damaged("the sequences of the log do not rise"));
    }
    let sequence = sequence.unsigned_abs();
    owed::move_head(tx, row.session, sequence)?;
    Ok(sequence)
}

/// SQLite calls it a full disk when there is no number left for another row.
fn exhausted(conn: &Connection) -> Option<Error> {
    let highest = only(
        conn,
        "SELECT max((SELECT ifnull(max(sequence), 0) FROM session_state_events),
                    (SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'session_state_events'))",
        [],
        |row| row.number(0),
    );
    highest.err().filter(|error| error.cause == Cause::Damage)
}

const EVENT: &str = "sequence, kind, actor_type, actor_id, run_id, occurred_at, summary, public_json, \
                     session_key, agent_id, session_id";

/// The event of this dedupe key.
pub(crate) fn of_dedupe_key(tx: &Tx<'_>, key: &str) -> Result<Option<Event>> {
    first(
        // What is owed is not of this table.
        tx.conn,
        &format!("SELECT {EVENT} FROM session_state_events WHERE dedupe_key = ?1"),
        [key],
        event,
    )
}

/// The event of this sequence.
pub(crate) fn of_sequence(conn: &Connection, sequence: u64) -> Result<Option<Event>> {
    first(
        conn,
        &format!("SELECT {EVENT} FROM session_state_events WHERE sequence = ?1"),
        [sequence as i64],
        event,
    )
}

/// Shows the events of one session above `after`, ascending, without what names
/// the session, until `show` has enough.
pub(crate) fn of_session(
    conn: &Connection,
    session: &Session,
    after: u64,
    most: usize,
    mut show: impl FnMut(EventView<'_>),
) -> Result<()> {
    let mut select = conn
        .prepare_cached(
            "SELECT sequence, kind, actor_type, actor_id, run_id, occurred_at, summary, public_json
             FROM session_state_events
             WHERE session_key = ?1 AND agent_id = ?2 AND sequence > ?3 ORDER BY sequence LIMIT ?4",
        )
        .map_err(fault)?;
    let values = params![session.key, session.agent, after as i64, most as i64];
    let mut rows = select.query(values).map_err(fault)?;
    let mut seen = Seen::default();
    while let Some(row) = rows.next().map_err(fault)? {
        show(nameless(&Values(row), &mut seen)?);
    }
    Ok(())
}

/// What narrows the log.
#[derive(Default)]
pub(crate) struct Filter<'a> {
    pub after: u64,
    pub key: Option<&'a str>,
    pub agent: Option<&'a str>,
    pub kinds: &'a [Kind],
}

/// Events of all sessions that pass the filter, ascending.
pub(crate) fn filtered(conn: &Connection, filter: &Filter<'_>, most: usize) -> Result<Vec<Event>> {
    let after = filter.after as i64;
    let most = most as i64;
    let kinds: Vec<&str> = filter.kinds.iter().map(|kind| kind.as_str()).collect();
    let mut values: Vec<&dyn ToSql> = vec![&after];
    let mut sql = format!("SELECT {EVENT} FROM session_state_events WHERE sequence > ?");
    if let Some(key) = &filter.key {
        sql += " AND session_key = ?";
        values.push(key);
    }
    if let Some(agent) = &filter.agent {
        sql += " AND agent_id = ?";
        values.push(agent);
    }
    if !kinds.is_empty() {
        sql += &format!(" AND kind IN ({})", vec!["?"; kinds.len()].join(","));
        values.extend(kinds.iter().map(|kind| kind as &dyn ToSql));
    }
    sql += " ORDER BY sequence LIMIT ?";
    values.push(&most);
    rows(conn, &sql, params_from_iter(values), event)
}

/// Shows how far the log of each session has come, in their order: 0 when nothing is logged.
pub(crate) fn versions<'s>(
    conn: &Connection,
    sessions: impl Iterator<Item = (&'s str, &'s str)>,
    mut show: impl FnMut(&str, &str, u64),
) -> Result<()> {
    let mut select = conn
        .prepare_cached(
            "SELECT last_sequence, pruned_sequence FROM session_state_heads
             WHERE agent_id = ?1 AND session_key = ?2",
        )
        .map_err(fault)?;
    let mut bound = None;
    for (agent, key) in sessions {
        // Most are of one agent, and each binding is a copy.
        if bound.replace(agent) != Some(agent) {
            select.raw_bind_parameter(1, agent).map_err(fault)?;
        }
        select.raw_bind_parameter(2, key).map_err(fault)?;
        let mut rows = select.raw_query();
        let version = match rows.next().map_err(fault)? {
            Some(row) => head_at(&Values(row), 0)?.last,
            None => 0,
        };
        show(agent, key, version);
    }
    Ok(())
}

/// A session's head; zeroes when nothing is logged.
pub(crate) fn head(conn: &Connection, session: &Session) -> Result<Head> {
    first(
        conn,
        "SELECT last_sequence, pruned_sequence FROM session_state_heads
         WHERE agent_id = ?1 AND session_key = ?2",
        params![session.agent, session.key],
        |row| head_at(row, 0),
    )
    .map(Option::unwrap_or_default)
}

/// The sessions that have a head, by agent and key, after the given pair.
pub(crate) fn heads(
    conn: &Connection,
    after: Option<(&str, &str)>,
    most: usize,
) -> Result<Vec<SessionRow>> {
    let (agent, key) = after.unwrap_or(("", ""));
    rows(
        conn,
        "SELECT session_key, agent_id, last_sequence, pruned_sequence FROM session_state_heads
         WHERE (agent_id, session_key) > (?1, ?2) ORDER BY agent_id, session_key LIMIT ?3",
        params![agent, key, most as i64],
        |row| {
            let session = row.session(0, 1)?;
            let head = head_at(row, 2)?;
            Ok(SessionRow {
                session_key: session.key,
                agent_id: session.agent,
                state_version: head.last,
                pruned_below: head.pruned,
            })
        },
    )
}

/// Deletes a session's events and head; whether there was anything.
pub(crate) fn delete(tx: &Tx<'_>, session: &Session) -> Result<bool> {
    owed::settle(tx)?;
    let mut gone = 0;
    for sql in [
        "DELETE FROM session_state_events WHERE session_key = ?1 AND agent_id = ?2",
        "DELETE FROM session_state_heads WHERE session_key = ?1 AND agent_id = ?2",
    ] {
        gone += tx
            .conn
            .prepare_cached(sql)
            .and_then(|mut delete| delete.execute(params![session.key, session.agent]))
            .map_err(fault)?;
    }
    Ok(gone > 0)
}

/// Of the oldest `most` events, the sequence of the last one before the first
/// that was recorded at `cutoff` or later and lies above `floor`; and how many
/// they are. What is pruned is so always a prefix of the log.
pub(crate) fn prunable(
    conn: &Connection,
    cutoff: i64,
    floor: u64,
    most: usize,
) -> Result<(u64, usize)> {
    let mut select = conn
        .prepare_cached(
            "SELECT sequence, recorded_at FROM session_state_events ORDER BY sequence LIMIT ?1",
        )
        .map_err(fault)?;
    let mut log = select.query([most as i64]).map_err(fault)?;
    let mut found = (0, 0);
    while let Some(row) = log.next().map_err(fault)? {
        let row = Values(row);
        let (sequence, recorded_at) = (row.number(0)?, row.time(1)?);
        if recorded_at >= cutoff && sequence > floor {
            break;
        }
        found = (sequence, found.1 + 1);
    }
    Ok(found)
}

/// The highest sequence beyond the newest `keep` events; 0 when there are no more than that.
pub(crate) fn beyond(conn: &Connection, keep: u64) -> Result<u64> {
    let keep = keep.min(i64::MAX as u64) as i64;
    // As many as there are numbers at the most, which is known at once.
    let span: Option<i64> = only(
        conn,
        "SELECT (SELECT max(sequence) FROM session_state_events)
              - (SELECT min(sequence) FROM session_state_events)",
        [],
        |row| row.any(0),
    )?;
    if span.is_none_or(|span| span < keep) {
        return Ok(0);
    }
    first(
        conn,
        "SELECT sequence FROM session_state_events ORDER BY sequence DESC LIMIT 1 OFFSET ?1",
        [keep],
        |row| row.number(0),
    )
    .map(Option::unwrap_or_default)
}

/// Deletes the events up to `sequence` and stamps their sessions' heads with
/// what went; how many.
pub(crate) fn prune_through(tx: &Tx<'_>, sequence: u64) -> Result<usize> {
    // The plus signs keep SQLite from walking the whole log by its other index,
    // which comes in the order of the groups.
    let through = sequence as i64;
    owed::settle(tx)?;
    tx.conn
        .prepare_cached(
            "UPDATE session_state_heads SET pruned_sequence = max(pruned_sequence, gone.last)
             FROM (SELECT agent_id, session_key, max(sequence) AS last FROM session_state_events
                   WHERE sequence <= ?1 GROUP BY +agent_id, +session_key) AS gone
             WHERE session_state_heads.agent_id = gone.agent_id
               AND session_state_heads.session_key = gone.session_key",
        )
        .and_then(|mut stamp| stamp.execute([through]))
        .map_err(fault)?;
    tx.conn
        .prepare_cached("DELETE FROM session_state_events WHERE sequence <= ?1")
        .and_then(|mut delete| delete.execute([through]))
        .map_err(fault)
}

/// How many events and heads there are.
pub(crate) fn counts(conn: &Connection) -> Result<(u64, u64)> {
    only(
        conn,
        "SELECT (SELECT count(*) FROM session_state_events), (SELECT count(*) FROM session_state_heads)",
        [],
        |row| Ok((row.number(0)?, row.number(1)?)),
    )
}

fn head_at(row: &Values<'_>, at: usize) -> Result<Head> {
    let head = Head {
        last: row.number(at)?,
        pruned: row.number(at + 1)?,
    };
    if head.pruned > head.last {
        return Err(Error::damaged("more was pruned of a session than it had"));
    }
    Ok(head)
}

/// One row of [`EVENT`]'s columns.
fn event(row: &Values<'_>) -> Result<Event> {
    let session = row.session(8, 9)?;
    Ok(Event {
        session_key: Some(session.key),
        agent_id: Some(session.agent),
        session_id: row.maybe_id(10)?.map(str::to_owned),
        ..nameless(row, &mut Seen::default())?.into()
    })
}

/// As [`event`], without what names the session, and only to be looked at.
fn nameless<'r>(row: &'r Values<'_>, seen: &mut Seen) -> Result<EventView<'r>> {
    Ok(EventView {
        sequence: row.number(0)?,
        session_key: None,
        agent_id: None,
        session_id: None,
        kind: row.kind(1)?,
        actor_type: row.actor_type(2)?,
        actor_id: row.maybe_id(3)?,
        run_id: row.maybe_id(4)?,
        occurred_at: row.time(5)?,
        summary: row.line(6)?,
        payload: row.maybe_payload(7, seen)?,
    })
}

impl From<EventView<'_>> for Event {
    fn from(view: EventView<'_>) -> Event {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Event {
            sequence: view.sequence,
            session_key: owned(view.session_key),
            agent_id: owned(view.agent_id),
            session_id: owned(view.session_id),
            kind: view.kind,
            actor_type: view.actor_type,
            actor_id: owned(view.actor_id),
            run_id: owned(view.run_id),
            occurred_at: view.occurred_at,
            summary: view.summary.to_owned(),
            payload: owned(view.payload).map(PublicPayload::of_own),
        }
    }
}
