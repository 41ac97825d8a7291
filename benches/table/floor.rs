//! The floor: the library's tables and rows, written and read by somebody who
//! knows exactly what he wants. The same settings, prepared statements that are
//! kept, and nothing checked.

use std::fmt::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, Statement, params};

pub const MANAGER: &str = "agent:main:main";
pub const PAYLOAD: &str = r#"{"channel":"telegram"}"#;
pub const SUMMARY: &str = "human message via telegram";

pub fn connect(path: &Path, synchronous: &str) -> Connection {
    let conn = Connection::open(path).unwrap();
    conn.busy_timeout(std::time::Duration::from_secs(5))
        .unwrap();
    // Or statements are prepared anew at each use, for the partial indexes' sake.
    conn.set_db_config(
        rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG,
        true,
    )
    .unwrap();
    conn.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; PRAGMA cache_size = -2000;
         PRAGMA trusted_schema = 0; PRAGMA temp_store = 2;"
    ))
    .unwrap();
    conn
}

pub fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis() as i64
}

pub struct Floor {
    pub conn: &'static Connection,
    begin: Statement<'static>,
    begin_write: Statement<'static>,
    commit: Statement<'static>,
    insert: Statement<'static>,
    head: Statement<'static>,
    advance: Statement<'static>,
    watched: Statement<'static>,
    version: Statement<'static>,
    changes: Statement<'static>,
    pending: Statement<'static>,
    acknowledge: Statement<'static>,
    delete_through: Statement<'static>,
    text: String,
}

impl Floor {
    /// Makes a database at `path`, or opens the library's own there.
    pub fn open(path: &Path, synchronous: &str) -> Floor {
        let fresh = !path.exists();
        let conn = connect(path, synchronous);
        if fresh {
            conn.execute_batch(include_str!("../../src/store/schema-1.0.sql"))
                .unwrap();
        }
        let conn: &'static Connection = Box::leak(Box::new(conn));
        let prepare = |sql: &str| conn.prepare(sql).unwrap();
        Floor {
            conn,
            begin: prepare("BEGIN"),
            begin_write: prepare("BEGIN IMMEDIATE"),
            commit: prepare("COMMIT"),
            insert: prepare(
                "INSERT INTO session_state_events(session_key, agent_id, kind, actor_type, occurred_at, recorded_at,
                   summary, payload_json, public_json)
                 VALUES (?1, 'main', 'human_direct_message', 'human', ?2, ?2, ?3, ?4, ?4)",
            ),
            head: prepare(
                "INSERT INTO session_state_heads(agent_id, session_key, last_sequence) VALUES ('main', ?1, ?2)
                 ON CONFLICT DO UPDATE SET last_sequence = excluded.last_sequence",
            ),
            advance: prepare(
                "UPDATE session_watch_cursors SET material = ?2, touched_at = ?3
                 WHERE target_session_key = ?1 AND target_agent_id = 'main' AND notify_kinds & 1",
            ),
            watched: prepare(
                "SELECT EXISTS (SELECT 1 FROM session_watch_cursors WHERE target_session_key = ?1 AND target_agent_id = 'main')",
            ),
            version: prepare(
                "SELECT last_sequence FROM session_state_heads WHERE agent_id = 'main' AND session_key = ?1",
            ),
            changes: prepare(
                "SELECT sequence, kind, actor_type, actor_id, run_id, occurred_at, summary, public_json
                 FROM session_state_events
                 WHERE session_key = ?1 AND agent_id = 'main' AND sequence > ?2 ORDER BY sequence LIMIT 201",
            ),
            pending: prepare(
                "SELECT id, target_session_key, last_seen, notified FROM session_watch_cursors
                 WHERE watcher_session_key = ?1 AND notified > last_seen ORDER BY notified, id LIMIT 101",
            ),
            acknowledge: prepare(
                "UPDATE session_watch_cursors SET last_seen = ?2, notified = ?2, material = ?2, opened_at = 0, wake = 0, touched_at = ?3
                 WHERE id = ?1",
            ),
            delete_through: prepare("DELETE FROM session_state_events WHERE sequence <= ?1"),
            text: String::new(),
        }
    }

    /// A watch with an open notice.
    pub fn watch(&self, watcher: &str, target: &str) {
        self.conn
            .execute(
                "INSERT INTO session_watch_cursors(watcher_session_key, target_agent_id, target_session_key, last_seen,
                   notified, material, provenance, notify_kinds, touched_at) VALUES (?1, 'main', ?2, 0, 1, 1, 'explicit', 7, 0)",
                [watcher, target],
            )
            .unwrap();
    }

    fn run(statement: &mut Statement<'_>) {
        statement.execute([]).unwrap();
    }

    pub fn begin(&mut self) {
        Self::run(&mut self.begin_write);
    }

    pub fn commit(&mut self) {
        Self::run(&mut self.commit);
    }

    /// Appends an event inside a transaction.
    pub fn append(&mut self, session: &str) {
        let now = now_ms();
        self.insert
            .execute(params![session, now, SUMMARY, PAYLOAD])
            .unwrap();
        let sequence = self.conn.last_insert_rowid();
        self.head.execute(params![session, sequence]).unwrap();
        self.advance
            .execute(params![session, sequence, now])
            .unwrap();
    }

    pub fn record(&mut self, session: &str) {
        self.begin();
        self.append(session);
        self.commit();
    }

    pub fn records(&mut self, session: &str, count: usize) {
        self.begin();
        (0..count).for_each(|_| self.append(session));
        self.commit();
    }

    /// Whether anybody watches, by a snapshot of its own.
    pub fn watched(&mut self, session: &str) -> bool {
        Self::run(&mut self.begin);
        let watched = self.watched.query_row([session], |row| row.get(0)).unwrap();
        Self::run(&mut self.commit);
        watched
    }

    pub fn versions(&mut self, sessions: &[String]) -> usize {
        self.text.clear();
        self.text.push_str(r#"{"versions":["#);
        Self::run(&mut self.begin);
        for session in sessions {
            let mut rows = self.version.query([session]).unwrap();
            let version: i64 = match rows.next().unwrap() {
                Some(row) => row.get(0).unwrap(),
                None => 0,
            };
            let _ = write!(
                self.text,
                r#"{{"sessionKey":"{session}","agentId":"main","stateVersion":{version}}},"#
            );
        }
        Self::run(&mut self.commit);
        self.text.len()
    }

    /// A page of changes as JSON text; its length.
    pub fn changes(&mut self, session: &str, since: i64) -> usize {
        self.text.clear();
        Self::run(&mut self.begin);
        let head: i64 = self.version.query_row([session], |row| row.get(0)).unwrap();
        let _ = write!(
            self.text,
            r#"{{"stateVersion":{head},"stateChanges":{{"events":["#
        );
        let mut rows = self.changes.query(params![session, since]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let text = |at| row.get_ref(at).unwrap().as_str_or_null().unwrap();
            let _ = write!(
                self.text,
                r#"{{"sequence":{},"kind":"{}","actorType":"{}""#,
                row.get_ref(0).unwrap().as_i64().unwrap(),
                text(1).unwrap(),
                text(2).unwrap(),
            );
            for (name, at) in [("actorId", 3), ("runId", 4)] {
                if let Some(id) = text(at) {
                    let _ = write!(self.text, r#","{name}":{}"#, quoted(id));
                }
            }
            let _ = write!(
                self.text,
                r#","occurredAt":{},"summary":{}"#,
                row.get_ref(5).unwrap().as_i64().unwrap(),
                quoted(text(6).unwrap()),
            );
            if let Some(payload) = text(7) {
                let _ = write!(self.text, r#","payload":{payload}"#);
            }
            self.text.push_str("},");
        }
        drop(rows);
        Self::run(&mut self.commit);
        let _ = write!(
            self.text,
            r#"],"historyGap":false,"truncated":false,"nextChangesSince":{head}}}}}"#
        );
        self.text.len()
    }

    /// Opens the watcher's notices, as an event does that finds none open.
    pub fn reopen(&mut self, watcher: &str) {
        self.conn
            .execute(
                "UPDATE session_watch_cursors SET notified = material + 1, material = material + 1, wake = id
                 WHERE watcher_session_key = ?1",
                [watcher],
            )
            .unwrap();
    }

    /// Reads and acknowledges a watcher's notices; how many.
    pub fn drain(&mut self, watcher: &str) -> usize {
        self.text.clear();
        Self::run(&mut self.begin_write);
        let mut found = Vec::new();
        let mut rows = self.pending.query([watcher]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let key = row.get_ref(1).unwrap().as_str().unwrap();
            let (id, notified): (i64, i64) = (row.get(0).unwrap(), row.get(3).unwrap());
            let _ = write!(
                self.text,
                "Session \"{key}\" changed (other actor). Reconcile before acting: session_status sessionKey \"{key}\" changesSince {}.",
                row.get_ref(2).unwrap().as_i64().unwrap()
            );
            found.push((id, notified));
        }
        drop(rows);
        let now = now_ms();
        for (id, notified) in &found {
            self.acknowledge
                .execute(params![id, notified, now])
                .unwrap();
        }
        Self::run(&mut self.commit);
        found.len()
    }

    /// Deletes the events up to a sequence.
    pub fn delete_through(&mut self, sequence: i64) {
        self.begin();
        self.delete_through.execute([sequence]).unwrap();
        self.commit();
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}
