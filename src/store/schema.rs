//! The tables, and how a database comes to have them.
//!
//! | pragma | value | why |
//! |---|---|---|
//! | `journal_mode` | WAL | readers never wait for the writer; a kill at any instant loses nothing committed |
//! | `synchronous` | NORMAL, or FULL for `durability: "power"` | NORMAL outlives the process, FULL the machine |
//! | `application_id` | `AwSe` | tells our file from another program's |
//! | `trusted_schema` | off | the file is data, it runs nothing |
//! | `busy_timeout` | `busyTimeoutMs` | other processes write too |
//! | `cache_size` | 2 MB writer, 512 KiB readers | ten thousand sessions fit, a gateway's memory is its own |

use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::fault;
use super::values::{first, only};
use crate::contract::{Error, Result};

/// "AwSe", in the database's header.
const APPLICATION_ID: i32 = 0x4177_5365;

/// A step that brings a database from the version before to this one.
struct Migration {
    major: u32,
    minor: u32,
    sql: &'static str,
}

/// A new minor only adds what older code can pass over; a new major does not.
const MIGRATIONS: &[Migration] = &[
    Migration {
        major: 1,
        minor: 0,
        sql: include_str!("schema-1.0.sql"),
    },
    Migration {
        major: 1,
        minor: 1,
        sql: include_str!("schema-1.1.sql"),
    },
    Migration {
        major: 1,
        minor: 2,
        sql: include_str!("schema-1.2.sql"),
    },
    Migration {
        major: 1,
        minor: 3,
        sql: include_str!("schema-1.3.sql"),
    },
];

/// The version this code makes.
fn newest() -> (u32, u32) {
    let last = &MIGRATIONS[MIGRATIONS.len() - 1];
    (last.major, last.minor)
}

/// What kind of file a connection found.
enum Found {
    Empty,
    Ours { major: u32, minor: u32 },
}

fn examine(conn: &Connection) -> Result<Found> {
    let id: i32 = conn
        .query_row("PRAGMA application_id", [], |row| row.get(0))
        .map_err(fault)?;
    let pages: i64 = conn
        .query_row("PRAGMA page_count", [], |row| row.get(0))
        .map_err(fault)?;
    let (tables, own) = only(
        conn,
        "SELECT count(*), count(*) FILTER (WHERE name = 'session_aware_schema') FROM sqlite_schema",
        [],
        |row| Ok((row.number(0)?, row.number(1)?)),
    )?;
    match (tables, id) {
        // What is more than one page was not always empty.
        (0, 0) if pages <= 1 => return Ok(Found::Empty),
        (0, 0 | APPLICATION_ID) => return Err(Error::damaged("the list of its tables is empty")),
        (_, APPLICATION_ID) => {}
        _ if own > 0 => {
            return Err(Error::damaged(
                "its tables are this library's and its head is not",
            ));
        }
        _ => {
            return Err(Error::invalid(
                "database",
                "the file is another program's SQLite database",
            ));
        }
    }
    let version = first(
        conn,
        "SELECT major, minor FROM session_aware_schema ORDER BY major DESC, minor DESC LIMIT 1",
        [],
        |row| {
            Ok(Found::Ours {
                major: row.any(0)?,
                minor: row.any(1)?,
            })
        },
    )?;
    version.ok_or_else(|| Error::damaged("it holds no schema version"))
}

fn refuse_newer(major: u32, minor: u32) -> Result<()> {
    let (own, _) = newest();
    if major > own {
        return Err(Error::unsupported(format!(
            "the database was made by a newer version of the library (schema {major}.{minor}, this one knows {own}.x); it was left untouched"
        )));
    }
    Ok(())
}

/// Makes the tables or brings them up to date, in one transaction. A database
/// of a newer major version is `unsupported` and left untouched. `now` is the
/// time to note, `patience` how long to wait for others.
pub(super) fn migrate(conn: &Connection, now: i64, patience: Duration) -> Result<()> {
    if let Found::Ours { major, minor } = examine(conn)? {
        refuse_newer(major, minor)?;
    }
    let mode: String = super::retry_busy(conn, patience, |conn| {
        let mut switch = conn.prepare("PRAGMA journal_mode = WAL")?;
        let mut rows = switch.query([])?;
        let mode = match rows.next()? {
            Some(row) => row.get(0)?,
            None => return Err(rusqlite::Error::QueryReturnedNoRows),
        };
        // The mode is told first, and then written: that may fail.
        rows.next()?;
        Ok(mode)
    })?;
    if mode != "wal" {
        return Err(Error::unsupported(format!(
            "the file system does not offer SQLite's write-ahead log (journal mode stays {mode})"
        )));
    }
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate).map_err(fault)?;
    // Another process may have got here first.
    let has = match examine(&tx)? {
        Found::Empty => (0, 0),
        Found::Ours { major, minor } => {
            refuse_newer(major, minor)?;
            (major, minor)
        }
    };
    for step in MIGRATIONS
        .iter()
        .filter(|step| (step.major, step.minor) > has)
    {
        tx.execute_batch(step.sql).map_err(fault)?;
        tx.execute(
            "INSERT INTO session_aware_schema(major, minor, applied_at) VALUES (?1, ?2, ?3)",
            (step.major, step.minor, now),
        )
        .map_err(fault)?;
    }
    if has == (0, 0) {
        tx.pragma_update(None, "application_id", APPLICATION_ID)
            .map_err(fault)?;
    }
    tx.commit().map_err(fault)
}

/// Checks that a reader can use the database as it is.
pub(super) fn accept(conn: &Connection) -> Result<()> {
    match examine(conn)? {
        Found::Empty => Err(Error::unsupported(
            "the database has no tables yet; open it once without readOnly",
        )),
        Found::Ours { major, minor } => {
            refuse_newer(major, minor)?;
            if (major, minor) < newest() {
                return Err(Error::unsupported(
                    "the database is of an older version; open it once without readOnly",
                ));
            }
            Ok(())
        }
    }
}

/// The database's version, as `major.minor`.
pub(crate) fn version(conn: &Connection) -> Result<String> {
    match examine(conn)? {
        Found::Empty => Ok("0.0".to_owned()),
        Found::Ours { major, minor } => Ok(format!("{major}.{minor}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_database_of_an_older_minor_is_brought_up_to_date_and_older_code_still_writes_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let conn = Connection::open(folder.path().join("a.db")).unwrap();
        for step in &MIGRATIONS[..2] {
            conn.execute_batch(step.sql).unwrap();
            let noted = "INSERT INTO session_aware_schema VALUES (?1, ?2, 0)";
            conn.execute(noted, (step.major, step.minor)).unwrap();
        }
        conn.pragma_update(None, "application_id", APPLICATION_ID)
            .unwrap();
        let mark =
            "INSERT INTO session_aware_runs(session_key, agent_id, handle) VALUES (?1, 'main', 1)";
        let handle = "INSERT INTO session_aware_handles(first_wake, agents) VALUES (0, NULL)";
        let write_as_older_code = |conn: &Connection, key: &str| {
            conn.execute(mark, [key]).unwrap();
            conn.execute(handle, []).unwrap();
        };
        write_as_older_code(&conn, "before");
        migrate(&conn, 7, Duration::from_secs(1)).unwrap();
        write_as_older_code(&conn, "after");
        assert_eq!(version(&conn).unwrap(), "1.3");
        let unknown = "SELECT (SELECT count(*) FROM session_aware_runs WHERE set_at = 0)
                            + (SELECT count(*) FROM session_aware_handles WHERE opened_at = 0 AND version IS NULL)";
        let count: i64 = conn.query_row(unknown, [], |row| row.get(0)).unwrap();
        assert_eq!(count, 4);
        // What is up to date stays as it is.
        migrate(&conn, 8, Duration::from_secs(1)).unwrap();
    }
}
