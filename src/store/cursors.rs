//! Statements on cursors.

use rusqlite::types::ToSql;
use rusqlite::{Connection, params, params_from_iter};

use super::values::{Values, first, only, rows};
use super::{Tx, fault, owed};
use crate::contract::{Error, Kind, KindSet, Provenance, Result};
use crate::key::Session;

/// What a watcher has seen of a target: `last_seen ≤ notified ≤ material`.
/// A notice is open while `notified > last_seen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub last_seen: u64,
    pub notified: u64,
    pub material: u64,
    pub provenance: Provenance,
    pub kinds: KindSet,
}

impl Cursor {
    pub(crate) fn is_pending(&self) -> bool {
        self.notified > self.last_seen
    }
}

/// A cursor as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CursorRow {
    pub id: i64,
    pub watcher: String,
    pub target: Session,
    pub cursor: Cursor,
    /// When its notice opened, ms since the epoch.
    pub opened_at: i64,
    /// The number of the wake that notice raised; 0 when it raised none.
    pub wake: u64,
}

const CURSOR: &str = "id, watcher_session_key, target_agent_id, target_session_key, last_seen, notified, \
                      material, provenance, notify_kinds, opened_at, wake";

/// The cursor of this pair.
pub(crate) fn of_pair(
    conn: &Connection,
    watcher: &str,
    target: &Session,
) -> Result<Option<CursorRow>> {
    first(
        conn,
        &format!(
            "SELECT {CURSOR} FROM session_watch_cursors
             WHERE watcher_session_key = ?1 AND target_agent_id = ?2 AND target_session_key = ?3"
        ),
        params![watcher, target.agent, target.key],
        cursor,
    )
}

/// Every cursor on this target.
pub(crate) fn of_target(conn: &Connection, target: &Session) -> Result<Vec<CursorRow>> {
    rows(
        conn,
        &format!(
            "SELECT {CURSOR} FROM session_watch_cursors WHERE target_session_key = ?1 AND target_agent_id = ?2"
        ),
        params![target.key, target.agent],
        cursor,
    )
}

/// Whether anybody watches this target.
pub(crate) fn is_watched(tx: &Tx<'_>, target: &Session) -> Result<bool> {
    // What is owed makes no cursor and takes none away.
    any_of_target(tx.conn, target)
}

/// As [`is_watched`], outside a write transaction.
pub(crate) fn any_of_target(conn: &Connection, target: &Session) -> Result<bool> {
    only(
        conn,
        "SELECT EXISTS (SELECT 1 FROM session_watch_cursors WHERE target_session_key = ?1 AND target_agent_id = ?2)",
        params![target.key, target.agent],
        |row| row.flag(0),
    )
}

/// The watcher's cursors with an open notice, oldest first.
pub(crate) fn pending_of(conn: &Connection, watcher: &str, most: usize) -> Result<Vec<CursorRow>> {
    rows(
        conn,
        &format!(
            "SELECT {CURSOR} FROM session_watch_cursors WHERE watcher_session_key = ?1 AND notified > last_seen
             ORDER BY notified, id LIMIT ?2"
        ),
        params![watcher, most as i64],
        cursor,
    )
}

/// Who of a target's watchers is told of an event.
pub(crate) struct Told<'a> {
    pub target: &'a Session,
    pub kind: Kind,
    /// Whoever did it.
    pub but: Option<&'a str>,
}

/// Moves `material` of those told whose notice is open, which no index holds:
/// the common case, another change under an open notice.
pub(crate) fn advance_open(tx: &Tx<'_>, told: &Told<'_>, sequence: u64) -> Result<()> {
    tx.conn
        .prepare_cached(
            "UPDATE session_watch_cursors SET material = ?5, touched_at = ?6
             WHERE target_session_key = ?1 AND target_agent_id = ?2 AND notify_kinds & ?3
               AND watcher_session_key IS NOT ?4 AND notified > last_seen",
        )
        .and_then(|mut update| {
            update.execute(params![
                told.target.key,
                told.target.agent,
                KindSet::of(&[told.kind]).bits(),
                told.but,
                sequence as i64,
                tx.now(),
            ])
        })
        .map_err(fault)?;
    Ok(())
}

/// Moves `material` of those told, each of whom is known to have a notice open:
/// what is known is not asked of each of many rows.
pub(super) fn advance_known(tx: &Tx<'_>, told: &Told<'_>, sequence: u64) -> Result<()> {
    let kinds = KindSet::of(&[told.kind]).bits();
    let Told { target, but, .. } = told;
    let moved = match but {
        None => tx.conn.with(
            "UPDATE session_watch_cursors SET material = ?4, touched_at = ?5
             WHERE target_session_key = ?1 AND target_agent_id = ?2 AND notify_kinds & ?3",
            |update| {
                update.execute(params![
                    target.key,
                    target.agent,
                    kinds,
                    sequence as i64,
                    tx.now()
                ])
            },
        ),
        Some(but) => tx.conn.with(
            "UPDATE session_watch_cursors SET material = ?4, touched_at = ?5
             WHERE target_session_key = ?1 AND target_agent_id = ?2 AND notify_kinds & ?3
               AND watcher_session_key <> ?6",
            |update| {
                let sequence = sequence as i64;
                update.execute(params![
                    target.key,
                    target.agent,
                    kinds,
                    sequence,
                    tx.now(),
                    but
                ])
            },
        ),
    };
    moved.map(drop).map_err(fault)
}

/// The ids of the cursors of those told, `most` of them at most, and whether
/// each has an open notice.
pub(crate) fn some_told(
    conn: &Connection,
    told: &Told<'_>,
    most: usize,
) -> Result<Vec<(i64, bool)>> {
    let kinds = KindSet::of(&[told.kind]).bits();
    rows(
        conn,
        "SELECT id, last_seen, notified, material FROM session_watch_cursors
         WHERE target_session_key = ?1 AND target_agent_id = ?2 AND notify_kinds & ?3
           AND watcher_session_key IS NOT ?4 LIMIT ?5",
        params![
            told.target.key,
            told.target.agent,
            kinds,
            told.but,
            most as i64
        ],
        |row| {
            let (last_seen, notified) = (row.number(1)?, row.number(2)?);
            in_order(last_seen, notified, row.number(3)?)?;
            Ok((row.any(0)?, notified > last_seen))
        },
    )
}

/// The cursors of those told without an open notice.
pub(crate) fn without_notice(conn: &Connection, told: &Told<'_>) -> Result<Vec<CursorRow>> {
    let kinds = KindSet::of(&[told.kind]).bits();
    rows(
        conn,
        &format!(
            "SELECT {CURSOR} FROM session_watch_cursors
             WHERE target_session_key = ?1 AND target_agent_id = ?2 AND notify_kinds & ?3
               AND watcher_session_key IS NOT ?4 AND notified = last_seen"
        ),
        params![told.target.key, told.target.agent, kinds, told.but],
        cursor,
    )
}

/// Opens each notice that is open up to its newest change.
pub(crate) fn open_behind(tx: &Tx<'_>) -> Result<()> {
    owed::forget_told(tx)?;
    tx.conn
        .prepare_cached(
            "UPDATE session_watch_cursors SET notified = material, touched_at = ?1
             WHERE notified > last_seen AND material > notified",
        )
        .and_then(|mut update| update.execute([tx.now()]))
        .map_err(fault)?;
    Ok(())
}

/// The cursors whose open notice raised a wake above `number`, by that number.
pub(crate) fn woken_after(conn: &Connection, number: u64) -> Result<Vec<CursorRow>> {
    rows(
        conn,
        &format!(
            "SELECT {CURSOR} FROM session_watch_cursors WHERE wake > 0 AND wake > ?1 ORDER BY wake"
        ),
        [number as i64],
        cursor,
    )
}

/// Whether the notice that raised this wake is still open.
pub(crate) fn is_open(conn: &Connection, wake: u64) -> Result<bool> {
    only(
        conn,
        "SELECT EXISTS (SELECT 1 FROM session_watch_cursors WHERE wake = ?1 AND wake > 0)",
        [wake as i64],
        |row| row.flag(0),
    )
}

/// What narrows a list of watches.
#[derive(Default)]
pub(crate) struct Filter<'a> {
    pub watcher: Option<&'a str>,
    pub key: Option<&'a str>,
    pub agent: Option<&'a str>,
}

/// Cursors that pass the filter, by watcher, target agent and target key.
pub(crate) fn list(
    conn: &Connection,
    filter: &Filter<'_>,
    most: usize,
    offset: u64,
) -> Result<Vec<CursorRow>> {
    let page = (most as i64, offset.min(i64::MAX as u64) as i64);
    let mut values: Vec<&dyn ToSql> = Vec::new();
    let mut sql = format!("SELECT {CURSOR} FROM session_watch_cursors WHERE true");
    for (column, value) in [
        ("watcher_session_key", &filter.watcher),
        ("target_session_key", &filter.key),
        ("target_agent_id", &filter.agent),
    ] {
        if let Some(value) = value {
            sql += &format!(" AND {column} = ?");
            values.push(value);
        }
    }
    sql += " ORDER BY watcher_session_key, target_agent_id, target_session_key LIMIT ? OFFSET ?";
    values.extend([&page.0 as &dyn ToSql, &page.1]);
    rows(conn, &sql, params_from_iter(values), cursor)
}

/// Makes a cursor; answers its row's id.
pub(crate) fn insert(
    tx: &Tx<'_>,
    watcher: &str,
    target: &Session,
    cursor: &Cursor,
    opened_at: i64,
    wake: u64,
) -> Result<i64> {
    owed::forget_told(tx)?;
    tx.conn
        .prepare_cached(
            "INSERT INTO session_watch_cursors
               (watcher_session_key, target_agent_id, target_session_key, last_seen, notified, material,
                provenance, notify_kinds, opened_at, wake, touched_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )
        .and_then(|mut insert| {
            insert.execute(params![
                watcher,
                target.agent,
                target.key,
                cursor.last_seen as i64,
                cursor.notified as i64,
                cursor.material as i64,
                cursor.provenance.as_str(),
                cursor.kinds.bits(),
                opened_at,
                wake as i64,
                tx.now(),
            ])
        })
        .map_err(fault)?;
    Ok(tx.conn.last_insert_rowid())
}

/// Stores a cursor's new state and touches it.
pub(crate) fn update(tx: &Tx<'_>, row: &CursorRow) -> Result<()> {
    owed::forget_told(tx)?;
    tx.conn
        .prepare_cached(
            "UPDATE session_watch_cursors SET last_seen = ?2, notified = ?3, material = ?4, provenance = ?5,
               notify_kinds = ?6, opened_at = ?7, wake = ?8, touched_at = ?9 WHERE id = ?1",
        )
        .and_then(|mut update| {
            update.execute(params![
                row.id,
                row.cursor.last_seen as i64,
                row.cursor.notified as i64,
                row.cursor.material as i64,
                row.cursor.provenance.as_str(),
                row.cursor.kinds.bits(),
                row.opened_at,
                row.wake as i64,
                tx.now(),
            ])
        })
        .map_err(fault)?;
    Ok(())
}

/// Moves a cursor's `material` alone, which no index holds: the common case,
/// another change under an open notice.
pub(crate) fn update_material(tx: &Tx<'_>, id: i64, material: u64) -> Result<()> {
    tx.conn
        .with(
            "UPDATE session_watch_cursors SET material = ?2, touched_at = ?3 WHERE id = ?1",
            |update| update.execute(params![id, material as i64, tx.now()]),
        )
        .map_err(fault)?;
    Ok(())
}

/// Deletes the cursor of this pair; whether there was one.
pub(crate) fn delete_pair(tx: &Tx<'_>, watcher: &str, target: &Session) -> Result<bool> {
    owed::forget_told(tx)?;
    tx.conn
        .prepare_cached(
            "DELETE FROM session_watch_cursors
             WHERE watcher_session_key = ?1 AND target_agent_id = ?2 AND target_session_key = ?3",
        )
        .and_then(|mut delete| delete.execute(params![watcher, target.agent, target.key]))
        .map_err(fault)
        .map(|gone| gone > 0)
}

/// Deletes every cursor of this watcher; how many.
pub(crate) fn delete_watcher(tx: &Tx<'_>, watcher: &str) -> Result<usize> {
    owed::forget_told(tx)?;
    tx.conn
        .prepare_cached("DELETE FROM session_watch_cursors WHERE watcher_session_key = ?1")
        .and_then(|mut delete| delete.execute([watcher]))
        .map_err(fault)
}

/// Deletes every cursor on this target; how many.
pub(crate) fn delete_target(tx: &Tx<'_>, target: &Session) -> Result<usize> {
    owed::forget_told(tx)?;
    tx.conn
        .prepare_cached("DELETE FROM session_watch_cursors WHERE target_session_key = ?1 AND target_agent_id = ?2")
        .and_then(|mut delete| delete.execute(params![target.key, target.agent]))
        .map_err(fault)
}

/// Deletes up to `most` cursors without an open notice that were last touched before `cutoff`; how many.
pub(crate) fn prune(tx: &Tx<'_>, cutoff: i64, most: usize) -> Result<usize> {
    owed::forget_told(tx)?;
    tx.conn
        .prepare_cached(
            "DELETE FROM session_watch_cursors WHERE id IN
               (SELECT id FROM session_watch_cursors WHERE touched_at < ?1 AND notified <= last_seen LIMIT ?2)",
        )
        .and_then(|mut delete| delete.execute(params![cutoff, most as i64]))
        .map_err(fault)
}

/// How many cursors there are, and how many have an open notice.
pub(crate) fn counts(conn: &Connection) -> Result<(u64, u64)> {
    only(
        conn,
        "SELECT (SELECT count(*) FROM session_watch_cursors),
                (SELECT count(*) FROM session_watch_cursors WHERE notified > last_seen)",
        [],
        |row| Ok((row.number(0)?, row.number(1)?)),
    )
}

fn in_order(last_seen: u64, notified: u64, material: u64) -> Result<()> {
    if last_seen > notified || notified > material {
        return Err(Error::damaged("the watermarks of a watch are out of order"));
    }
    Ok(())
}

fn cursor(row: &Values<'_>) -> Result<CursorRow> {
    let cursor = Cursor {
        last_seen: row.number(4)?,
        notified: row.number(5)?,
        material: row.number(6)?,
        provenance: row.provenance(7)?,
        kinds: KindSet::from_bits(row.any(8)?),
    };
    in_order(cursor.last_seen, cursor.notified, cursor.material)?;
    Ok(CursorRow {
        id: row.any(0)?,
        watcher: row.watcher(1)?,
        target: row.session(3, 2)?,
        cursor,
        opened_at: row.time(9)?,
        wake: row.number(10)?,
    })
}
