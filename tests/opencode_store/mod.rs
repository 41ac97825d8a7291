//! The database in which OpenCode keeps its sessions, as its newer versions make it.

use std::path::Path;

/// A store of OpenCode with one session that has nothing in it.
pub fn make(path: &Path, thread: &str) -> rusqlite::Connection {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.execute_batch(
        "CREATE TABLE session (id TEXT PRIMARY KEY, project_id TEXT, parent_id TEXT, slug TEXT, directory TEXT,
           title TEXT, version TEXT, revert TEXT, time_created INTEGER, time_updated INTEGER, time_archived INTEGER);
         CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT);
         CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, time_created INTEGER,
           time_updated INTEGER, data TEXT);
         CREATE INDEX message_session_time_created_id_idx ON message (session_id, time_created, id);
         CREATE INDEX part_message_id_id_idx ON part (message_id, id);",
    )
    .unwrap();
    add(&conn, thread);
    conn
}

/// Adds a session that has nothing in it.
pub fn add(conn: &rusqlite::Connection, thread: &str) {
    conn.execute(
        "INSERT INTO session(id, project_id, directory, title, version, time_created, time_updated)
         VALUES (?1, 'p', '/home/dev', 't', '1.18.33', 1700000000000, 1700000000000)",
        [thread],
    )
    .unwrap();
}
