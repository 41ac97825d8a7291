//! Statements on the log and its heads.

use rusqlite::types::ToSql;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::{Tx, fault};
use crate::contract::{ActorType, Error, Event, Kind, PublicPayload, Result, SessionRow};
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
    tx.conn
        .prepare_cached(
            "INSERT INTO session_state_events
               (session_key, agent_id, session_id, kind, actor_type, actor_id, run_id, occurred_at,
                recorded_at, summary, payload_json, public_json, dedupe_key)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )
        .and_then(|mut insert| {
            insert.execute(params![
                row.session.key,
                row.session.agent,
                row.session_id,
                row.kind.as_str(),
                row.actor_type.as_str(),
                row.actor_id,
                row.run_id,
                row.occurred_at,
                tx.now,
                row.summary,
                row.payload_json,
                row.public_json,
                row.dedupe_key,
            ])
        })
        .map_err(fault)?;
    let sequence = tx.conn.last_insert_rowid();
    tx.conn
        .prepare_cached(
            "INSERT INTO session_state_heads(agent_id, session_key, last_sequence) VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET last_sequence = excluded.last_sequence",
        )
        .and_then(|mut upsert| upsert.execute(params![row.session.agent, row.session.key, sequence]))
        .map_err(fault)?;
    Ok(sequence as u64)
}

const EVENT: &str = "sequence, session_key, agent_id, session_id, kind, actor_type, actor_id, run_id, \
                     occurred_at, summary, public_json";

/// The event of this dedupe key.
pub(crate) fn of_dedupe_key(conn: &Connection, key: &str) -> Result<Option<Event>> {
    conn.prepare_cached(&format!(
        "SELECT {EVENT} FROM session_state_events WHERE dedupe_key = ?1"
    ))
    .and_then(|mut select| select.query_row([key], event).optional())
    .map_err(fault)?
    .transpose()
}

/// The event of this sequence.
pub(crate) fn of_sequence(conn: &Connection, sequence: u64) -> Result<Option<Event>> {
    conn.prepare_cached(&format!(
        "SELECT {EVENT} FROM session_state_events WHERE sequence = ?1"
    ))
    .and_then(|mut select| select.query_row([sequence as i64], event).optional())
    .map_err(fault)?
    .transpose()
}

/// Events of one session above `after`, ascending, without what names the session.
pub(crate) fn of_session(
    conn: &Connection,
    session: &Session,
    after: u64,
    most: usize,
) -> Result<Vec<Event>> {
    let mut select = conn
        .prepare_cached(
            "SELECT sequence, NULL, NULL, NULL, kind, actor_type, actor_id, run_id, occurred_at, summary, public_json
             FROM session_state_events
             WHERE session_key = ?1 AND agent_id = ?2 AND sequence > ?3 ORDER BY sequence LIMIT ?4",
        )
        .map_err(fault)?;
    let rows = select
        .query_map(
            params![session.key, session.agent, after as i64, most as i64],
            event,
        )
        .map_err(fault)?;
    collect(rows)
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
    let mut select = conn.prepare_cached(&sql).map_err(fault)?;
    let rows = select
        .query_map(params_from_iter(values), event)
        .map_err(fault)?;
    collect(rows)
}

/// A session's head; zeroes when nothing is logged.
pub(crate) fn head(conn: &Connection, session: &Session) -> Result<Head> {
    conn.prepare_cached(
        "SELECT last_sequence, pruned_sequence FROM session_state_heads
         WHERE agent_id = ?1 AND session_key = ?2",
    )
    .and_then(|mut select| {
        select
            .query_row(params![session.agent, session.key], |row| {
                Ok(Head {
                    last: number(row, 0)?,
                    pruned: number(row, 1)?,
                })
            })
            .optional()
    })
    .map_err(fault)
    .map(Option::unwrap_or_default)
}

/// The sessions that have a head, by agent and key, after the given pair.
pub(crate) fn heads(
    conn: &Connection,
    after: Option<(&str, &str)>,
    most: usize,
) -> Result<Vec<SessionRow>> {
    let (agent, key) = after.unwrap_or(("", ""));
    let mut select = conn
        .prepare_cached(
            "SELECT session_key, agent_id, last_sequence, pruned_sequence FROM session_state_heads
             WHERE (agent_id, session_key) > (?1, ?2) ORDER BY agent_id, session_key LIMIT ?3",
        )
        .map_err(fault)?;
    select
        .query_map(params![agent, key, most as i64], |row| {
            Ok(SessionRow {
                session_key: row.get(0)?,
                agent_id: row.get(1)?,
                state_version: number(row, 2)?,
                pruned_below: number(row, 3)?,
            })
        })
        .and_then(Iterator::collect)
        .map_err(fault)
}

/// Deletes a session's events and head; whether there was anything.
pub(crate) fn delete(tx: &Tx<'_>, session: &Session) -> Result<bool> {
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
    let mut rows = select.query([most as i64]).map_err(fault)?;
    let mut found = (0, 0);
    while let Some(row) = rows.next().map_err(fault)? {
        let sequence = number(row, 0).map_err(fault)?;
        let recorded_at: i64 = row.get(1).map_err(fault)?;
        if recorded_at >= cutoff && sequence > floor {
            break;
        }
        found = (sequence, found.1 + 1);
    }
    Ok(found)
}

/// The highest sequence beyond the newest `keep` events; 0 when there are no more than that.
pub(crate) fn beyond(conn: &Connection, keep: u64) -> Result<u64> {
    conn.prepare_cached(
        "SELECT sequence FROM session_state_events ORDER BY sequence DESC LIMIT 1 OFFSET ?1",
    )
    .and_then(|mut select| {
        select
            .query_row([keep.min(i64::MAX as u64) as i64], |row| number(row, 0))
            .optional()
    })
    .map_err(fault)
    .map(Option::unwrap_or_default)
}

/// Deletes the events up to `sequence` and stamps their sessions' heads with
/// what went; how many.
pub(crate) fn prune_through(tx: &Tx<'_>, sequence: u64) -> Result<usize> {
    let through = sequence as i64;
    tx.conn
        .prepare_cached(
            "UPDATE session_state_heads SET pruned_sequence = max(pruned_sequence, gone.last)
             FROM (SELECT agent_id, session_key, max(sequence) AS last FROM session_state_events
                   WHERE sequence <= ?1 GROUP BY agent_id, session_key) AS gone
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
    conn.query_row(
        "SELECT (SELECT count(*) FROM session_state_events), (SELECT count(*) FROM session_state_heads)",
        [],
        |row| Ok((number(row, 0)?, number(row, 1)?)),
    )
    .map_err(fault)
}

/// A sequence or count, which the database holds as a signed number.
pub(super) fn number(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(at).map(|n| n.max(0) as u64)
}

/// One row of [`EVENT`]'s columns. What is no kind or actor of ours is a fault
/// of the file, told as such rather than passed over.
fn event(row: &Row<'_>) -> rusqlite::Result<Result<Event>> {
    let kind: String = row.get(4)?;
    let actor: String = row.get(5)?;
    let actor_type = match actor.as_str() {
        "human" => ActorType::Human,
        "agent" => ActorType::Agent,
        "system" => ActorType::System,
        _ => {
            return Ok(Err(Error::storage(
                "the log holds an actor type this version does not know",
            )));
        }
    };
    let Some(kind) = Kind::from_name(&kind) else {
        return Ok(Err(Error::storage(
            "the log holds a kind this version does not know",
        )));
    };
    Ok(Ok(Event {
        sequence: number(row, 0)?,
        session_key: row.get(1)?,
        agent_id: row.get(2)?,
        session_id: row.get(3)?,
        kind,
        actor_type,
        actor_id: row.get(6)?,
        run_id: row.get(7)?,
        occurred_at: row.get(8)?,
        summary: row.get(9)?,
        payload: row
            .get::<_, Option<String>>(10)?
            .and_then(PublicPayload::from_json),
    }))
}

fn collect(rows: impl Iterator<Item = rusqlite::Result<Result<Event>>>) -> Result<Vec<Event>> {
    rows.map(|row| row.map_err(fault)?).collect()
}
