//! The agents whose sessions are scanned while the library is killed. Each writes
//! as its program does: whole rows, at times one in two pieces, and at times it
//! writes anew what it had written. However it does, a turn is to be told once.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use rusqlite::{Connection, params};
use serde_json::{Value, json};
use session_awareness::{Adopt, Baseline, Catalog};

use crate::{Place, Rng, opencode_store};

/// The sessions, those of OpenCode in one store.
pub const SESSIONS: [(Catalog, &str); 5] = [
    (Catalog::Claude, "agent:main:claude"),
    (Catalog::Codex, "agent:main:codex"),
    (Catalog::Pi, "agent:main:pi"),
    (Catalog::Opencode, "agent:main:opencode"),
    (Catalog::Opencode, "agent:main:opencode-beside"),
];

/// One session, and who writes it.
pub struct Writer {
    pub session: &'static str,
    /// How many turns a person has typed into it, with one that was begun.
    typed: u64,
    begun: bool,
    kind: Kind,
}

enum Kind {
    File(Rows),
    Store(Store),
}

impl Writer {
    /// Makes what the agent writes to.
    pub fn new(place: &Place, catalog: Catalog, session: &'static str) -> Writer {
        let kind = match catalog {
            Catalog::Opencode => Kind::Store(Store::make(place, session)),
            _ => Kind::File(Rows::make(place, catalog)),
        };
        Writer {
            session,
            typed: 0,
            begun: false,
            kind,
        }
    }

    /// How the library is to find it.
    pub fn adoption(&self) -> Adopt {
        let (catalog, source, thread) = match &self.kind {
            Kind::File(rows) => (rows.catalog, &rows.path, None),
            Kind::Store(store) => (Catalog::Opencode, &store.path, Some(store.thread.clone())),
        };
        Adopt {
            baseline: Some(Baseline::Start),
            thread_id: thread,
            ..Adopt::new(self.session, catalog, source.to_str().unwrap())
        }
    }

    /// How many turns there are to be told of. Call when none is begun.
    pub fn typed(&self) -> u64 {
        assert!(!self.begun);
        self.typed
    }

    /// Ends what was begun, or does the next thing.
    pub fn step(&mut self, rng: &mut Rng) {
        if self.begun {
            return self.end();
        }
        match (rng.below(200), &mut self.kind) {
            (0, kind) => kind.write_anew(),
            (1..4, Kind::File(rows)) => {
                rows.cut(rng);
                self.begun = true;
            }
            (1..40, Kind::Store(store)) => store.answer(),
            (40..80, kind) => {
                self.typed += 1;
                kind.begin(self.typed, rng);
                self.begun = true;
            }
            (_, kind) => {
                self.typed += 1;
                kind.begin(self.typed, rng);
                kind.end();
            }
        }
    }

    /// Ends what was begun.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.begun) {
            self.kind.end();
        }
    }

    /// Has the person undo what was told already, where the agent then deletes it.
    pub fn undo(&mut self, rng: &mut Rng) {
        if let Kind::Store(store) = &mut self.kind {
            store.undo(rng.below(4));
        }
    }
}

impl Kind {
    fn begin(&mut self, number: u64, rng: &mut Rng) {
        match self {
            Kind::File(rows) => rows.begin(number, rng),
            Kind::Store(store) => store.begin(number, rng),
        }
    }

    fn end(&mut self) {
        match self {
            Kind::File(rows) => rows.end(),
            Kind::Store(store) => store.end(),
        }
    }

    fn write_anew(&mut self) {
        match self {
            Kind::File(rows) => rows.replace(),
            // Rows get other numbers.
            Kind::Store(store) => store.conn.execute_batch("VACUUM").unwrap(),
        }
    }
}

/// A file of rows.
struct Rows {
    catalog: Catalog,
    path: PathBuf,
    file: File,
    head: u64,
    /// What is still to be written.
    rest: Vec<u8>,
}

impl Rows {
    fn make(place: &Place, catalog: Catalog) -> Rows {
        let path = place.file(&format!("{}.jsonl", catalog.as_str()));
        let head = header(catalog);
        std::fs::write(&path, &head).unwrap();
        Rows {
            catalog,
            file: open(&path),
            path,
            head: head.len() as u64,
            rest: Vec::new(),
        }
    }

    /// Writes the next row up to any place in it.
    fn begin(&mut self, number: u64, rng: &mut Rng) {
        let row = format!("{}\n", turn(self.catalog, number)).into_bytes();
        let (now, rest) = row.split_at(rng.below(row.len() as u64) as usize);
        self.file.write_all(now).unwrap();
        self.rest = rest.to_vec();
    }

    fn end(&mut self) {
        let rest = std::mem::take(&mut self.rest);
        self.file.write_all(&rest).unwrap();
    }

    /// Cuts the file at any place in its last rows, or all of it, to write the same again.
    fn cut(&mut self, rng: &mut Rng) {
        let length = self.file.metadata().unwrap().len();
        let at = match rng.below(4) {
            0 => 0,
            _ => length.saturating_sub(rng.below(2_000)).max(self.head),
        };
        self.file.seek(SeekFrom::Start(at)).unwrap();
        self.file.read_to_end(&mut self.rest).unwrap();
        self.file.set_len(at).unwrap();
    }

    /// Puts another file with the same rows in its place.
    fn replace(&mut self) {
        let other = self.path.with_extension("other");
        std::fs::copy(&self.path, &other).unwrap();
        std::fs::rename(&other, &self.path).unwrap();
        self.file = open(&self.path);
    }
}

fn open(path: &std::path::Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).append(true).open(path).unwrap()
}

/// A row of something a person typed.
fn turn(catalog: Catalog, number: u64) -> Value {
    let now = jiff::Timestamp::now().to_string();
    let text = format!("turn {number}");
    match catalog {
        Catalog::Claude => json!({
            "type": "user", "uuid": format!("u-{number}"), "sessionId": "s", "timestamp": now,
            "origin": {"kind": "human"}, "message": {"role": "user", "content": text}}),
        Catalog::Codex => json!({
            "timestamp": now, "type": "event_msg", "payload": {"type": "user_message", "message": text}}),
        _ => json!({
            "type": "message", "id": format!("{number:08x}"), "parentId": null, "timestamp": now,
            "message": {"role": "user", "content": [{"type": "text", "text": text}]}}),
    }
}

/// What stands at the head of an agent's file.
fn header(catalog: Catalog) -> String {
    let now = jiff::Timestamp::now().to_string();
    match catalog {
        Catalog::Claude => String::new(),
        Catalog::Codex => format!(
            "{}\n",
            json!({"timestamp": now, "type": "session_meta",
                   "payload": {"id": "c-1", "source": "cli", "originator": "codex-tui", "cwd": "/"}})
        ),
        _ => format!(
            "{}\n",
            json!({"type": "session", "version": 3, "id": "p-1", "timestamp": now, "cwd": "/"})
        ),
    }
}

/// A session in the database of OpenCode.
struct Store {
    path: PathBuf,
    conn: Connection,
    thread: String,
    /// How many messages were written.
    count: u64,
    /// The message whose text is still to be written, and the text.
    rest: Option<(String, String)>,
}

impl Store {
    fn make(place: &Place, session: &str) -> Store {
        let path = place.file("opencode.db");
        let thread = format!("ses_{}", session.rsplit(':').next().unwrap());
        let conn = if path.exists() {
            let conn = Connection::open(&path).unwrap();
            opencode_store::add(&conn, &thread);
            conn
        } else {
            let conn = opencode_store::make(&path, &thread);
            conn.pragma_update(None, "journal_mode", "WAL").unwrap();
            conn
        };
        conn.pragma_update(None, "synchronous", "OFF").unwrap();
        // Two sessions are written, and what a kill left is recovered.
        conn.busy_timeout(std::time::Duration::from_secs(20))
            .unwrap();
        Store {
            path,
            conn,
            thread,
            count: 0,
            rest: None,
        }
    }

    /// Writes a message; its id, which tells when it was made, as OpenCode's do.
    fn message(&mut self, role: &str) -> String {
        self.count += 1;
        let now = jiff::Timestamp::now().as_millisecond();
        let made = now.rem_euclid(1 << 36) << 12 | self.count as i64 & 0xfff;
        let id = format!("msg_{made:012x}{:04}{:010}", self.thread.len(), self.count);
        let data = json!({"role": role, "time": {"created": now}}).to_string();
        let mut insert = self
            .conn
            .prepare_cached("INSERT INTO message VALUES (?1, ?2, ?3, ?3, ?4)")
            .unwrap();
        insert.execute(params![id, self.thread, now, data]).unwrap();
        id
    }

    fn part(&self, message: &str, text: &str) {
        let now = jiff::Timestamp::now().as_millisecond();
        let data = json!({"type": "text", "text": text}).to_string();
        let mut insert = self
            .conn
            .prepare_cached("INSERT INTO part VALUES ('prt' || substr(?1, 4), ?1, ?2, ?3, ?3, ?4)")
            .unwrap();
        insert
            .execute(params![message, self.thread, now, data])
            .unwrap();
    }

    /// Writes a message whose text comes later, or is there at once.
    fn begin(&mut self, number: u64, rng: &mut Rng) {
        let text = format!("turn {number}");
        if rng.below(2) == 0 {
            let id = self.message("user");
            self.rest = Some((id, text));
            return;
        }
        self.conn.execute_batch("BEGIN").unwrap();
        let id = self.message("user");
        self.part(&id, &text);
        self.conn.execute_batch("COMMIT").unwrap();
    }

    fn end(&mut self) {
        if let Some((message, text)) = self.rest.take() {
            self.part(&message, &text);
        }
    }

    /// What the model says, which nobody typed.
    fn answer(&mut self) {
        let id = self.message("assistant");
        self.part(&id, "an answer");
    }

    /// Deletes the newest messages: the next ones get the numbers of their rows.
    fn undo(&self, most: u64) {
        let sql = "DELETE FROM message WHERE id IN
                   (SELECT id FROM message WHERE session_id = ?1 ORDER BY rowid DESC LIMIT ?2)";
        self.conn
            .execute(sql, params![self.thread, most as i64])
            .unwrap();
        let sql = "DELETE FROM part WHERE message_id NOT IN (SELECT id FROM message)";
        self.conn.execute(sql, []).unwrap();
    }
}
