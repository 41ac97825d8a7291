//! Statements on upstream links, and on what their turns are known by.

use std::collections::HashMap;
use std::path::PathBuf;

use rusqlite::types::ToSql;
use rusqlite::{Connection, params, params_from_iter};

use super::values::{Values, first, only, rows};
use super::{Tx, fault};
use crate::contract::{Catalog, LinkFault, MAX_NUMBER, Result};
use crate::key::Session;

/// A tie of a session to an upstream source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkRow {
    pub id: i64,
    pub session: Session,
    pub catalog: Catalog,
    pub thread: String,
    /// Where the session is now. Absent for a host that is not local.
    pub source: Option<PathBuf>,
    /// Where it was at the adoption.
    pub adopted_source: Option<PathBuf>,
    pub host: String,
    pub adopted_at: i64,
    pub adopted_event: u64,
    pub baseline_now: bool,
    pub baseline_end: Option<u64>,
    /// The source is not the adopted file, but one the thread went on in.
    pub followed: bool,
    pub progress: Progress,
    pub misses: u32,
    /// By [`crate::sys::uptime_ms`]: the clock may be set between two misses.
    pub missed_at: i64,
    /// Rises with every change: who read the link before one must read it again.
    pub revision: i64,
}

/// How far a source was judged, and what it looked like then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub position: u64,
    pub state: Option<String>,
    pub stamp: Option<FileStamp>,
    /// The hashes of the bytes at the head and before the position.
    pub mark: Option<([u8; 16], [u8; 16])>,
}

/// What tells that a file was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    pub modified_ns: i64,
}

/// What names a link to be made.
pub(crate) struct NewLink<'a> {
    pub session: &'a Session,
    pub catalog: Catalog,
    pub thread: &'a str,
    pub source: Option<&'a str>,
    pub host: &'a str,
    pub adopted_event: u64,
    pub baseline_now: bool,
    pub baseline_end: Option<u64>,
}

const LINK: &str = "id, session_key, agent_id, catalog, thread_id, source, host_id, adopted_at, adopted_event, \
                    baseline_now, baseline_end, position, state, device, inode, size, modified_ns, head, tail, \
                    misses, missed_at, revision, followed, adopted_source";

/// The session's link.
pub(crate) fn of_session(conn: &Connection, session: &Session) -> Result<Option<LinkRow>> {
    one(
        conn,
        "session_key = ?1 AND agent_id = ?2",
        params![session.key, session.agent],
    )
}

/// The link of this id.
pub(crate) fn of_id(conn: &Connection, id: i64) -> Result<Option<LinkRow>> {
    one(conn, "id = ?1", params![id])
}

fn one(conn: &Connection, which: &str, values: &[&dyn ToSql]) -> Result<Option<LinkRow>> {
    first(
        conn,
        &format!("SELECT {LINK} FROM session_upstream_links WHERE {which} AND released_at IS NULL"),
        values,
        link,
    )
}

/// Those of the links that there still are, as they are now.
pub(crate) fn of_ids(conn: &Connection, ids: &[i64]) -> Result<Vec<LinkRow>> {
    let links = ids.iter().map(|id| of_id(conn, *id));
    links.filter_map(Result::transpose).collect()
}

/// A page of the links, by session key and agent.
pub(crate) fn page(conn: &Connection, most: usize, offset: u64) -> Result<Vec<LinkRow>> {
    let page = [
        i64::try_from(most).unwrap_or(i64::MAX),
        i64::try_from(offset).unwrap_or(i64::MAX),
    ];
    rows(
        conn,
        &format!(
            "SELECT {LINK} FROM session_upstream_links WHERE released_at IS NULL
             ORDER BY session_key, agent_id LIMIT ?1 OFFSET ?2"
        ),
        page,
        link,
    )
}

/// What of a link whose source is on this machine a look at that source needs.
pub(crate) struct Brief {
    pub id: i64,
    pub session: Session,
    pub catalog: Catalog,
    pub thread: String,
    pub source: PathBuf,
    pub adopted_at: i64,
    /// `None` when there is something to do whatever the source looks like.
    pub stamp: Option<FileStamp>,
    pub revision: i64,
}

const BRIEF: &str = "id, session_key, agent_id, catalog, thread_id, source, adopted_at, revision,
                     iif(baseline_end IS NULL AND misses = 0, device, NULL), inode, size, modified_ns";

/// The links whose source is on this machine, of a catalog and a session key
/// where they are given, by session key and agent.
pub(crate) fn local(
    conn: &Connection,
    catalog: Option<Catalog>,
    key: Option<&str>,
) -> Result<Vec<Brief>> {
    let catalog = catalog.map(Catalog::as_str);
    let mut values: Vec<&dyn ToSql> = Vec::new();
    let mut sql = format!(
        "SELECT {BRIEF} FROM session_upstream_links WHERE released_at IS NULL AND source IS NOT NULL"
    );
    if let Some(catalog) = &catalog {
        sql += " AND catalog = ?";
        values.push(catalog);
    }
    if let Some(key) = &key {
        sql += " AND session_key = ?";
        values.push(key);
    }
    sql += " ORDER BY session_key, agent_id";
    rows(conn, &sql, params_from_iter(values), brief)
}

/// As [`local`], those of these ids.
pub(crate) fn local_of_ids(conn: &Connection, ids: &[i64]) -> Result<Vec<Brief>> {
    let sql = format!(
        "SELECT {BRIEF} FROM session_upstream_links
         WHERE id = ?1 AND released_at IS NULL AND source IS NOT NULL"
    );
    let links = ids.iter().map(|id| first(conn, &sql, [id], brief));
    links.filter_map(Result::transpose).collect()
}

/// The ids of a catalog's links with a source on this machine, in their order,
/// and their revisions.
pub(crate) fn revisions(conn: &Connection, catalog: Catalog) -> Result<Vec<(i64, i64)>> {
    rows(
        conn,
        "SELECT id, revision FROM session_upstream_links
         WHERE released_at IS NULL AND catalog = ?1 AND source IS NOT NULL ORDER BY id",
        [catalog.as_str()],
        |row| Ok((row.any(0)?, row.any(1)?)),
    )
}

/// How many links there are.
pub(crate) fn count(conn: &Connection) -> Result<u64> {
    only(
        conn,
        "SELECT count(*) FROM session_upstream_links WHERE released_at IS NULL",
        [],
        |row| row.number(0),
    )
}

/// Whether a session has adopted this thread.
pub(crate) fn is_adopted(conn: &Connection, catalog: Catalog, thread: &str) -> Result<bool> {
    only(
        conn,
        "SELECT EXISTS (SELECT 1 FROM session_upstream_links
                        WHERE catalog = ?1 AND thread_id = ?2 AND released_at IS NULL)",
        params![catalog.as_str(), thread],
        |row| row.flag(0),
    )
}

/// Makes the session's link, or turns the one it has, or had, to a new source:
/// what its turns are known by stays.
pub(crate) fn adopt(tx: &Tx<'_>, new: &NewLink<'_>) -> Result<()> {
    forget_fault(tx, new.session)?;
    tx.conn
        .prepare_cached(
            "INSERT INTO session_upstream_links
               (session_key, agent_id, catalog, thread_id, source, adopted_source, host_id, adopted_at,
                adopted_event, baseline_now, baseline_end)
             VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?8, ?9, ?10)
             ON CONFLICT DO UPDATE SET
               catalog = excluded.catalog, thread_id = excluded.thread_id, source = excluded.source,
               adopted_source = excluded.adopted_source,
               host_id = excluded.host_id, adopted_at = excluded.adopted_at,
               adopted_event = excluded.adopted_event, baseline_now = excluded.baseline_now,
               baseline_end = excluded.baseline_end, followed = 0, position = 0, state = NULL, device = NULL,
               inode = NULL, size = NULL, modified_ns = NULL, head = NULL, tail = NULL, misses = 0,
               missed_at = 0, released_at = NULL, revision = revision + 1",
        )
        .and_then(|mut upsert| {
            upsert.execute(params![
                new.session.key,
                new.session.agent,
                new.catalog.as_str(),
                new.thread,
                new.source,
                new.host,
                tx.now(),
                new.adopted_event as i64,
                new.baseline_now,
                new.baseline_end.map(signed),
            ])
        })
        .map_err(fault)?;
    Ok(())
}

/// Stores how far the link's source was judged; its misses are over. The link as
/// it is then.
pub(crate) fn advance(
    tx: &Tx<'_>,
    link: LinkRow,
    source: Option<&str>,
    progress: Progress,
    baseline_end: Option<u64>,
) -> Result<LinkRow> {
    let stamp = progress.stamp;
    tx.conn
        .prepare_cached(
            "UPDATE session_upstream_links SET source = ?2, position = ?3, state = ?4, device = ?5, inode = ?6,
               size = ?7, modified_ns = ?8, head = ?9, tail = ?10, baseline_end = ?11, followed = ?12, misses = 0,
               missed_at = 0, revision = revision + 1 WHERE id = ?1",
        )
        .and_then(|mut update| {
            update.execute(params![
                link.id,
                source,
                signed(progress.position),
                progress.state,
                // Kept as they are, whatever their sign: they are only compared.
                stamp.map(|stamp| stamp.device as i64),
                stamp.map(|stamp| stamp.inode as i64),
                stamp.map(|stamp| signed(stamp.size)),
                stamp.map(|stamp| stamp.modified_ns),
                progress.mark.map(|(head, _)| head),
                progress.mark.map(|(_, tail)| tail),
                baseline_end.map(signed),
                link.followed,
            ])
        })
        .map_err(fault)?;
    Ok(LinkRow {
        source: source.map(PathBuf::from),
        progress,
        baseline_end,
        misses: 0,
        missed_at: 0,
        revision: link.revision + 1,
        ..link
    })
}

/// Stores how often in a row the source was not there, and the uptime at the last time.
pub(crate) fn set_misses(tx: &Tx<'_>, id: i64, misses: u32, missed_at: i64) -> Result<()> {
    tx.conn
        .prepare_cached(
            "UPDATE session_upstream_links SET misses = ?2, missed_at = ?3, revision = revision + 1 WHERE id = ?1",
        )
        .and_then(|mut update| update.execute(params![id, misses, missed_at]))
        .map_err(fault)?;
    Ok(())
}

/// What is noted of what keeps the session's source from being read.
pub(crate) fn noted_fault(conn: &Connection, session: &Session) -> Result<Option<String>> {
    first(
        conn,
        "SELECT message FROM session_upstream_faults WHERE link =
           (SELECT id FROM session_upstream_links WHERE session_key = ?1 AND agent_id = ?2)",
        params![session.key, session.agent],
        |row| row.any(0),
    )
}

/// Notes what keeps the session's source from being read, or that nothing does.
/// A fault that goes on keeps its time.
pub(crate) fn note_fault(tx: &Tx<'_>, session: &Session, message: Option<&str>) -> Result<()> {
    let Some(message) = message else {
        return forget_fault(tx, session);
    };
    tx.conn
        .prepare_cached(
            "INSERT INTO session_upstream_faults(link, since, message)
             SELECT id, ?3, ?4 FROM session_upstream_links
              WHERE session_key = ?1 AND agent_id = ?2 AND released_at IS NULL
             ON CONFLICT DO UPDATE SET message = excluded.message",
        )
        .and_then(|mut upsert| {
            upsert.execute(params![session.key, session.agent, tx.now(), message])
        })
        .map_err(fault)?;
    Ok(())
}

fn forget_fault(tx: &Tx<'_>, session: &Session) -> Result<()> {
    tx.conn
        .prepare_cached(
            "DELETE FROM session_upstream_faults WHERE link =
               (SELECT id FROM session_upstream_links WHERE session_key = ?1 AND agent_id = ?2)",
        )
        .and_then(|mut delete| delete.execute(params![session.key, session.agent]))
        .map_err(fault)?;
    Ok(())
}

/// The catalog's links of which a fault is noted.
pub(crate) fn faulty(conn: &Connection, catalog: Catalog) -> Result<Vec<i64>> {
    rows(
        conn,
        // From the faults, of which there are few: a cross join is not turned round.
        "SELECT links.id FROM session_upstream_faults CROSS JOIN session_upstream_links AS links ON links.id = link
         WHERE links.catalog = ?1 AND links.released_at IS NULL",
        [catalog.as_str()],
        |row| row.any(0),
    )
}

/// What keeps linked sources from being read, by the link's id.
pub(crate) fn faults(conn: &Connection) -> Result<HashMap<i64, LinkFault>> {
    let noted = rows(
        conn,
        "SELECT link, since, message FROM session_upstream_faults",
        [],
        |row| {
            let fault = LinkFault {
                since: row.time(1)?,
                message: row.any(2)?,
            };
            Ok((row.any(0)?, fault))
        },
    )?;
    Ok(noted.into_iter().collect())
}

/// Of how many links a fault is noted.
pub(crate) fn count_faulty(conn: &Connection) -> Result<u64> {
    only(
        conn,
        "SELECT count(*) FROM session_upstream_faults CROSS JOIN session_upstream_links AS links ON links.id = link
         WHERE links.released_at IS NULL",
        [],
        |row| row.number(0),
    )
}

/// Ends the session's link; what its turns are known by stays for a while.
pub(crate) fn release(tx: &Tx<'_>, session: &Session) -> Result<()> {
    forget_fault(tx, session)?;
    tx.conn
        .prepare_cached(
            "UPDATE session_upstream_links SET released_at = ?3, revision = revision + 1
             WHERE session_key = ?1 AND agent_id = ?2 AND released_at IS NULL",
        )
        .and_then(|mut update| update.execute(params![session.key, session.agent, tx.now()]))
        .map_err(fault)?;
    Ok(())
}

/// Deletes all that is known of the session's link; whether there was one.
pub(crate) fn delete(tx: &Tx<'_>, session: &Session) -> Result<bool> {
    let values = params![session.key, session.agent];
    let run = |sql: &str| {
        tx.conn
            .prepare_cached(sql)
            .and_then(|mut delete| delete.execute(values))
            .map_err(fault)
    };
    run("DELETE FROM session_aware_turns WHERE link IN
           (SELECT id FROM session_upstream_links WHERE session_key = ?1 AND agent_id = ?2)")?;
    forget_fault(tx, session)?;
    run("DELETE FROM session_aware_own_messages WHERE session_key = ?1 AND agent_id = ?2")?;
    run("DELETE FROM session_aware_runs WHERE session_key = ?1 AND agent_id = ?2")?;
    run("DELETE FROM session_upstream_links WHERE session_key = ?1 AND agent_id = ?2")
        .map(|gone| gone > 0)
}

/// Deletes up to `most` turns of links released before `cutoff`, and the links
/// that have none left; how many rows.
pub(crate) fn prune(tx: &Tx<'_>, cutoff: i64, most: usize) -> Result<usize> {
    let values = params![cutoff, most as i64];
    let turns = tx
        .conn
        .prepare_cached(
            "DELETE FROM session_aware_turns WHERE (key, link) IN
               (SELECT key, link FROM session_aware_turns WHERE link IN
                  (SELECT id FROM session_upstream_links WHERE released_at < ?1) LIMIT ?2)",
        )
        .and_then(|mut delete| delete.execute(values))
        .map_err(fault)?;
    if turns >= most {
        return Ok(turns);
    }
    tx.conn
        .prepare_cached("DELETE FROM session_upstream_links WHERE released_at < ?1")
        .and_then(|mut delete| delete.execute([cutoff]))
        .map_err(fault)
}

/// What is known of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The link has met it.
    Met,
    /// Another source has told it, or skipped it by its baseline.
    Elsewhere,
    No,
}

/// What is known of the turn of this key to this link on this source.
pub(crate) fn known(tx: &Tx<'_>, key: &[u8; 16], link: i64, source: &[u8; 16]) -> Result<Known> {
    let met = rows(
        tx.conn,
        "SELECT link, source, copy FROM session_aware_turns WHERE key = ?1",
        [key],
        |row| Ok((row.any::<i64>(0)?, row.any::<[u8; 16]>(1)?, row.flag(2)?)),
    )?;
    if met.iter().any(|(of, _, _)| *of == link) {
        return Ok(Known::Met);
    }
    let elsewhere = met.iter().any(|(_, on, copy)| !copy && on != source);
    Ok(if elsewhere {
        Known::Elsewhere
    } else {
        Known::No
    })
}

/// Remembers a turn.
pub(crate) fn remember(
    tx: &Tx<'_>,
    key: &[u8; 16],
    link: i64,
    source: &[u8; 16],
    copy: bool,
) -> Result<()> {
    tx.conn
        .prepare_cached("INSERT OR IGNORE INTO session_aware_turns(key, link, source, copy) VALUES (?1, ?2, ?3, ?4)")
        .and_then(|mut insert| insert.execute(params![key, link, source, copy]))
        .map_err(fault)?;
    Ok(())
}

/// Keeps the print of what the host sends to the session, and of those before it the newest `keep` in all.
pub(crate) fn add_own_message(
    tx: &Tx<'_>,
    session: &Session,
    print: &[u8; 16],
    keep: u32,
) -> Result<()> {
    tx.conn
        .prepare_cached("INSERT INTO session_aware_own_messages(session_key, agent_id, print) VALUES (?1, ?2, ?3)")
        .and_then(|mut insert| insert.execute(params![session.key, session.agent, print]))
        .map_err(fault)?;
    tx.conn
        .prepare_cached(
            "DELETE FROM session_aware_own_messages WHERE id IN
               (SELECT id FROM session_aware_own_messages WHERE session_key = ?1 AND agent_id = ?2
                ORDER BY id DESC LIMIT -1 OFFSET ?3)",
        )
        .and_then(|mut delete| delete.execute(params![session.key, session.agent, keep]))
        .map_err(fault)?;
    Ok(())
}

/// The prints of what the host sent to the session itself.
pub(crate) fn own_messages(conn: &Connection, session: &Session) -> Result<Vec<[u8; 16]>> {
    rows(
        conn,
        "SELECT print FROM session_aware_own_messages WHERE session_key = ?1 AND agent_id = ?2",
        params![session.key, session.agent],
        |row| row.any(0),
    )
}

/// Sets or takes away this handle's mark that the host runs the session.
pub(crate) fn set_run(tx: &Tx<'_>, session: &Session, handle: i64, active: bool) -> Result<()> {
    let changed = if active {
        // A mark that is there keeps its time: since then the source is not read.
        tx.conn
            .prepare_cached(
                "INSERT OR IGNORE INTO session_aware_runs(session_key, agent_id, handle, set_at)
                 VALUES (?1, ?2, ?3, ?4)",
            )
            .and_then(|mut insert| {
                insert.execute(params![session.key, session.agent, handle, tx.now()])
            })
    } else {
        tx.conn
            .prepare_cached(
                "DELETE FROM session_aware_runs WHERE session_key = ?1 AND agent_id = ?2 AND handle = ?3",
            )
            .and_then(|mut delete| delete.execute(params![session.key, session.agent, handle]))
    };
    changed.map_err(fault)?;
    Ok(())
}

/// The handles that said the host runs the session, alive or not.
pub(crate) fn runs(conn: &Connection, session: &Session) -> Result<Vec<i64>> {
    rows(
        conn,
        "SELECT handle FROM session_aware_runs WHERE session_key = ?1 AND agent_id = ?2",
        params![session.key, session.agent],
        |row| row.any(0),
    )
}

/// Every session that a handle said the host runs, with the handle.
pub(crate) fn all_runs(conn: &Connection) -> Result<Vec<(Session, i64)>> {
    rows(
        conn,
        "SELECT session_key, agent_id, handle FROM session_aware_runs",
        [],
        |row| Ok((row.session(0, 1)?, row.any(2)?)),
    )
}

/// The key of all hashes of this database.
pub(crate) fn secret(conn: &Connection) -> Result<[u8; 32]> {
    only(conn, "SELECT value FROM session_aware_secret", [], |row| {
        row.any(0)
    })
}

/// A size or place in a file as the database holds it. A sparse file may claim
/// to be longer than numbers go; nothing is ever read so far.
fn signed(n: u64) -> i64 {
    i64::try_from(n).map_or(MAX_NUMBER, |n| n.min(MAX_NUMBER))
}

/// A file's stamp in four columns from this one on.
fn stamp(row: &Values<'_>, at: usize) -> Result<Option<FileStamp>> {
    Ok(
        match (row.any::<Option<i64>>(at)?, row.any::<Option<i64>>(at + 1)?) {
            (Some(device), Some(inode)) => Some(FileStamp {
                device: device as u64,
                inode: inode as u64,
                size: row.number(at + 2)?,
                modified_ns: row.any(at + 3)?,
            }),
            _ => None,
        },
    )
}

fn brief(row: &Values<'_>) -> Result<Brief> {
    Ok(Brief {
        id: row.any(0)?,
        session: row.session(1, 2)?,
        catalog: row.catalog(3)?,
        thread: row.any(4)?,
        source: row.maybe_path(5)?.ok_or_else(|| row.wrong(5))?,
        adopted_at: row.time(6)?,
        revision: row.any(7)?,
        stamp: stamp(row, 8)?,
    })
}

fn link(row: &Values<'_>) -> Result<LinkRow> {
    let mark = match (row.any(17)?, row.any(18)?) {
        (Some(head), Some(tail)) => Some((head, tail)),
        _ => None,
    };
    Ok(LinkRow {
        id: row.any(0)?,
        session: row.session(1, 2)?,
        catalog: row.catalog(3)?,
        thread: row.any(4)?,
        source: row.maybe_path(5)?,
        host: row.filled(6)?,
        adopted_at: row.time(7)?,
        adopted_event: row.number(8)?,
        baseline_now: row.flag(9)?,
        baseline_end: row.maybe_number(10)?,
        progress: Progress {
            position: row.number(11)?,
            state: row.maybe_json(12)?,
            stamp: stamp(row, 13)?,
            mark,
        },
        misses: row.any(19)?,
        missed_at: row.time(20)?,
        revision: row.any(21)?,
        followed: row.flag(22)?,
        adopted_source: row.maybe_path(23)?,
    })
}
