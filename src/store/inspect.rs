//! Statements for people who look into the database beside its gateway.

use std::path::Path;

use rusqlite::{Connection, params};

use super::values::{only, rows};
use super::{Tx, alive, fault};
use crate::contract::{HandleRow, Result, RunMark, Tally};

/// Something that is counted in the database for good.
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    FailedAppends,
    ShedEvents,
}

impl Counter {
    /// The names of the number and of its last time.
    fn names(self) -> [&'static str; 2] {
        match self {
            Counter::FailedAppends => ["failed_appends", "failed_appends_at"],
            Counter::ShedEvents => ["shed_events", "shed_events_at"],
        }
    }
}

/// Adds what was lost, the last of it at `at`, ms since the epoch.
pub(crate) fn add_lost(tx: &Tx<'_>, counter: Counter, count: u64, at: i64) -> Result<()> {
    let [name, name_at] = counter.names();
    let run = |sql: &str, name: &str, value: i64| {
        tx.conn
            .prepare_cached(sql)
            .and_then(|mut update| update.execute(params![name, value]))
            .map_err(fault)
    };
    run(
        "UPDATE session_aware_counters SET value = value + ?2 WHERE name = ?1",
        name,
        i64::try_from(count).unwrap_or(i64::MAX),
    )?;
    run(
        "UPDATE session_aware_counters SET value = max(value, ?2) WHERE name = ?1",
        name_at,
        at,
    )?;
    Ok(())
}

/// What was lost, over all handles there ever were.
pub(crate) fn lost(conn: &Connection, counter: Counter) -> Result<Tally> {
    let sql = "SELECT coalesce(max(value), 0) FROM session_aware_counters WHERE name = ?1";
    let [name, name_at] = counter.names();
    Ok(Tally {
        total: only(conn, sql, [name], |row| row.number(0))?,
        last_at: only(conn, sql, [name_at], |row| row.time(0))?,
    })
}

/// The registered handles that are alive, oldest first.
pub(crate) fn live_handles(conn: &Connection, database: &Path) -> Result<Vec<HandleRow>> {
    let mut handles = rows(
        conn,
        "SELECT id, opened_at, version FROM session_aware_handles ORDER BY id",
        [],
        |row| {
            Ok(HandleRow {
                id: row.number(0)?,
                opened_at: row.time(1)?,
                version: row.any(2)?,
            })
        },
    )?;
    handles.retain(|handle| alive::is_locked(database, handle.id));
    Ok(handles)
}

/// The marks that the host runs a session, oldest first.
pub(crate) fn run_marks(conn: &Connection) -> Result<Vec<RunMark>> {
    rows(
        conn,
        "SELECT session_key, agent_id, handle, set_at FROM session_aware_runs ORDER BY set_at, session_key, agent_id",
        [],
        |row| {
            let session = row.session(0, 1)?;
            Ok(RunMark {
                session_key: session.key,
                agent_id: session.agent,
                handle: row.number(2)?,
                set_at: row.time(3)?,
            })
        },
    )
}

/// What SQLite finds wrong with the file, at most `most` lines; none when it is sound.
pub(crate) fn quick_check(conn: &Connection, most: u32) -> Result<Vec<String>> {
    let sql = format!("PRAGMA quick_check({most})");
    let mut lines: Vec<String> = rows(conn, &sql, [], |row| row.any(0))?;
    lines.retain(|line| line != "ok");
    Ok(lines)
}
