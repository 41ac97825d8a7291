//! Statements on wakes: their numbers, and which open handles were offered them.

use rusqlite::{Connection, params};

use super::cursors::CursorRow;
use super::values::{only, rows};
use super::{Tx, fault};
use crate::contract::{Error, MAX_NUMBER, Result};
use crate::key::Session;

/// A wake that a transaction raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Raised {
    /// Rising without holes over all processes, by one a wake.
    pub number: u64,
    pub watcher: String,
    pub target: Session,
}

impl From<CursorRow> for Raised {
    fn from(row: CursorRow) -> Raised {
        Raised {
            number: row.wake,
            watcher: row.watcher,
            target: row.target,
        }
    }
}

/// An open handle.
pub(crate) struct Handle {
    pub id: i64,
    /// It was offered every wake above this one,
    pub first_wake: u64,
    /// for watchers of these agents; of all when absent.
    pub agents: Option<Vec<String>>,
}

/// Raises a wake: gives it its number, and has it handed on after the commit.
pub(crate) fn raise(tx: &Tx<'_>, watcher: &str, target: &Session) -> Result<u64> {
    // Read before it is counted up: SQLite would count up from anything.
    let number = last_wake(tx.conn)? + 1;
    if number > MAX_NUMBER.unsigned_abs() {
        return Err(Error::damaged("there is no number left for a wake"));
    }
    tx.conn
        .prepare_cached("UPDATE session_aware_counters SET value = ?1 WHERE name = 'last_wake'")
        .and_then(|mut update| update.execute([number as i64]))
        .map_err(fault)?;
    if tx.raised.borrow().is_empty() {
        tx.heard.set(are_several(tx.conn)?);
    }
    tx.raised.borrow_mut().push(Raised {
        number,
        watcher: watcher.to_owned(),
        target: target.clone(),
    });
    Ok(number)
}

/// The number of the newest wake.
pub(crate) fn last_wake(conn: &Connection) -> Result<u64> {
    only(
        conn,
        "SELECT value FROM session_aware_counters WHERE name = 'last_wake'",
        [],
        |row| row.number(0),
    )
}

/// Whether more than one handle is registered.
fn are_several(conn: &Connection) -> Result<bool> {
    only(
        conn,
        "SELECT count(*) > 1 FROM (SELECT 1 FROM session_aware_handles LIMIT 2)",
        [],
        |row| row.flag(0),
    )
}

/// Registers a handle that is offered every wake from now on; answers its id.
pub(crate) fn add_handle(tx: &Tx<'_>, agents: Option<&[String]>) -> Result<i64> {
    let agents = listed(agents)?;
    tx.conn
        .prepare_cached(
            "INSERT INTO session_aware_handles(first_wake, agents, opened_at, version)
             SELECT value, ?1, ?2, ?3 FROM session_aware_counters WHERE name = 'last_wake'",
        )
        .and_then(|mut insert| insert.execute(params![agents, tx.now(), env!("CARGO_PKG_VERSION")]))
        .map_err(fault)?;
    Ok(tx.conn.last_insert_rowid())
}

/// Registers a handle under its number if it no longer is; it was offered every open wake.
pub(crate) fn keep_handle(tx: &Tx<'_>, id: i64, agents: Option<&[String]>) -> Result<()> {
    let agents = listed(agents)?;
    tx.conn
        .prepare_cached(
            "INSERT OR IGNORE INTO session_aware_handles(id, first_wake, agents, opened_at, version)
             VALUES (?1, 0, ?2, ?3, ?4)",
        )
        .and_then(|mut insert| {
            insert.execute(params![id, agents, tx.now(), env!("CARGO_PKG_VERSION")])
        })
        .map_err(fault)?;
    Ok(())
}

fn listed(agents: Option<&[String]>) -> Result<Option<String>> {
    agents
        .map(serde_json::to_string)
        .transpose()
        .map_err(|_| Error::storage("the agents cannot be written down"))
}

/// Every registered handle, alive or not.
pub(crate) fn handles(conn: &Connection) -> Result<Vec<Handle>> {
    rows(
        conn,
        "SELECT id, first_wake, agents FROM session_aware_handles",
        [],
        |row| {
            let agents: Option<String> = row.any(2)?;
            Ok(Handle {
                id: row.any(0)?,
                first_wake: row.number(1)?,
                agents: agents
                    .map(|list| serde_json::from_str(&list).map_err(|_| row.wrong(2)))
                    .transpose()?,
            })
        },
    )
}

/// Forgets a handle, what it was offered, and the runs it announced.
pub(crate) fn remove_handle(tx: &Tx<'_>, id: i64) -> Result<()> {
    for sql in [
        "DELETE FROM session_aware_handles WHERE id = ?1",
        "DELETE FROM session_aware_offers WHERE handle = ?1",
        "DELETE FROM session_aware_runs WHERE handle = ?1",
    ] {
        tx.conn
            .prepare_cached(sql)
            .and_then(|mut delete| delete.execute([id]))
            .map_err(fault)?;
    }
    Ok(())
}

/// Notes that the handle was offered an older wake than those it is offered anyway.
pub(crate) fn add_offer(tx: &Tx<'_>, handle: i64, wake: u64) -> Result<()> {
    tx.conn
        .prepare_cached("INSERT OR IGNORE INTO session_aware_offers(handle, wake) VALUES (?1, ?2)")
        .and_then(|mut insert| insert.execute(params![handle, wake as i64]))
        .map_err(fault)?;
    Ok(())
}

/// Notes that the handle was offered every open wake for watchers of its agents.
pub(crate) fn add_all_offers(tx: &Tx<'_>, handle: i64) -> Result<()> {
    tx.conn
        .prepare_cached("UPDATE session_aware_handles SET first_wake = 0 WHERE id = ?1")
        .and_then(|mut update| update.execute([handle]))
        .map_err(fault)?;
    Ok(())
}

/// Whether the handle was offered this older wake.
pub(crate) fn was_offered(conn: &Connection, handle: i64, wake: u64) -> Result<bool> {
    only(
        conn,
        "SELECT EXISTS (SELECT 1 FROM session_aware_offers WHERE handle = ?1 AND wake = ?2)",
        params![handle, wake as i64],
        |row| row.flag(0),
    )
}
