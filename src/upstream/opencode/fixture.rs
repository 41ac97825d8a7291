//! Writes stores as OpenCode does, for the tests.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::upstream::print::Print;

/// When the sessions of the tests begin, in milliseconds since the epoch.
pub(super) const BEGIN: i64 = 1_796_042_322_000;

const TABLES: &str = include_str!("fixture.sql");

pub(super) fn secret() -> Secret {
    Secret::new([7; 32])
}

pub(super) fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

pub(super) fn synthetic(text: &str) -> Value {
    json!({ "type": "text", "synthetic": true, "text": text })
}

/// A store in a folder of its own, and who writes it.
pub(super) struct Lab {
    pub(super) folder: TempDir,
    /// Without one the store is a tree of files.
    pub(super) db: Option<Connection>,
    clock: Cell<i64>,
}

/// One store of either kind.
pub(super) fn labs() -> [Lab; 2] {
    [Lab::database(), Lab::tree()]
}

impl Lab {
    pub(super) fn database() -> Lab {
        let lab = Lab::tree();
        let db = Connection::open(lab.folder.path().join("opencode.db")).unwrap();
        db.execute_batch(TABLES).unwrap();
        Lab {
            db: Some(db),
            ..lab
        }
    }

    pub(super) fn tree() -> Lab {
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("storage")).unwrap();
        Lab {
            folder,
            db: None,
            clock: Cell::new(BEGIN),
        }
    }

    pub(super) fn source(&self) -> PathBuf {
        let folder = self.folder.path();
        self.db
            .as_ref()
            .map_or(folder.to_owned(), |_| folder.join("opencode.db"))
    }

    pub(super) fn store(&self) -> Store {
        Store::new(&self.source())
    }

    pub(super) fn sql(&self, sql: &str) {
        self.db.as_ref().unwrap().execute_batch(sql).unwrap();
    }

    /// The next moment.
    pub(super) fn now(&self) -> i64 {
        self.clock.set(self.clock.get() + 10);
        self.clock.get()
    }

    pub(super) fn file(&self, path: &str) -> PathBuf {
        self.folder
            .path()
            .join("storage")
            .join(path)
            .with_added_extension("json")
    }

    fn write(&self, path: &str, value: &Value) {
        let file = self.file(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, value.to_string()).unwrap();
    }

    pub(super) fn session(&self, id: &str, parent: Option<&str>) {
        let now = self.now();
        match &self.db {
            Some(db) => {
                db.execute(
                    "INSERT INTO session VALUES (?1, 'p', ?2, '/home/dev', 't', '1.18.33', NULL, ?3, ?3, NULL)",
                    params![id, parent, now],
                )
                .unwrap();
            }
            None => {
                let mut session = json!({
                    "id": id, "projectID": "p", "directory": "/home/dev", "title": "t",
                    "time": { "created": now, "updated": now }
                });
                if let Some(parent) = parent {
                    session["parentID"] = parent.into();
                }
                self.write(&format!("session/p/{id}"), &session);
            }
        }
    }

    /// Writes a message, or writes it again.
    pub(super) fn message(&self, session: &str, id: &str, created: i64, mut data: Value) {
        data["time"] = json!({ "created": created });
        match &self.db {
            Some(db) => {
                db.execute(
                    "INSERT INTO message VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT (id) DO UPDATE SET data = excluded.data, time_updated = excluded.time_updated",
                    params![id, session, created, self.now(), data.to_string()],
                )
                .unwrap();
            }
            None => self.write(&format!("message/{session}/{id}"), &data),
        }
    }

    pub(super) fn part(&self, session: &str, message: &str, id: &str, data: &Value) {
        match &self.db {
            Some(db) => {
                db.execute(
                    "INSERT INTO part VALUES (?1, ?2, ?3, ?4, ?4, ?5)
                     ON CONFLICT (id) DO UPDATE SET data = excluded.data, time_updated = excluded.time_updated",
                    params![id, message, session, self.now(), data.to_string()],
                )
                .unwrap();
            }
            None => self.write(&format!("part/{message}/{id}"), data),
        }
    }

    /// Writes a user message without its parts; its id.
    pub(super) fn ask(&self, session: &str) -> String {
        let now = self.now();
        let id = id(now);
        self.message(
            session,
            &id,
            now,
            json!({ "role": "user", "agent": "build" }),
        );
        id
    }

    /// Writes a user message and its parts; its id.
    pub(super) fn say(&self, session: &str, parts: &[Value]) -> String {
        let message = self.ask(session);
        for part in parts {
            self.part(session, &message, &part_id(self.now()), part);
        }
        message
    }

    /// Writes the assistant's answer; its id.
    pub(super) fn answer(&self, session: &str, to: &str) -> String {
        let now = self.now();
        let id = id(now);
        self.message(
            session,
            &id,
            now,
            json!({ "role": "assistant", "parentID": to }),
        );
        self.part(session, &id, &part_id(self.now()), &text("an answer"));
        id
    }

    /// Deletes a message, as it happens to undone ones.
    pub(super) fn delete(&self, session: &str, message: &str) {
        match &self.db {
            Some(db) => {
                db.execute("DELETE FROM message WHERE id = ?1", [message])
                    .unwrap();
            }
            None => fs::remove_file(self.file(&format!("message/{session}/{message}"))).unwrap(),
        }
    }

    pub(super) fn delete_session(&self, session: &str) {
        match &self.db {
            Some(db) => {
                db.execute("DELETE FROM session WHERE id = ?1", [session])
                    .unwrap();
            }
            None => {
                fs::remove_file(self.file(&format!("session/p/{session}"))).unwrap();
                let _ =
                    fs::remove_dir_all(self.folder.path().join("storage/message").join(session));
            }
        }
    }
}

/// The id of a message made at a time.
pub(super) fn id(made: i64) -> String {
    format!(
        "msg_{:012x}hHR1j0stW6IuV0",
        made.rem_euclid(1 << 36) << 12 | 1
    )
}

fn part_id(made: i64) -> String {
    id(made).replace("msg_", "prt_")
}

/// A link, and the passes over it.
pub(super) struct Watch {
    pub(super) thread: String,
    pub(super) position: Position,
}

impl Watch {
    pub(super) fn new(thread: &str) -> Watch {
        Watch {
            thread: thread.to_owned(),
            position: Position::default(),
        }
    }

    pub(super) fn link(&self) -> Link<'_> {
        Link {
            thread: &self.thread,
            position: &self.position,
        }
    }

    pub(super) fn look(&self, store: &mut Store) -> Look {
        store.look(&[self.link()]).unwrap()[0]
    }

    /// Looks, and reads if that is due. The position is stored and read back.
    pub(super) fn pass(&mut self, store: &mut Store) -> Vec<Act> {
        match self.look(store) {
            Look::Gone => panic!("the session is gone"),
            Look::Same => Vec::new(),
            Look::Moved => {
                let reading = store.read(&self.thread, &self.position, &secret(), Slice::WHOLE);
                let reading = reading.unwrap().unwrap();
                assert!(!reading.more);
                let stored = serde_json::to_string(&reading.position).unwrap();
                self.position = serde_json::from_str(&stored).unwrap();
                assert_eq!(self.position, reading.position);
                reading.acts
            }
        }
    }

    /// The prints of what a pass tells.
    pub(super) fn told(&mut self, store: &mut Store) -> Vec<Print> {
        self.pass(store).into_iter().map(|act| act.text).collect()
    }
}

pub(super) fn prints(texts: &[&str]) -> Vec<Print> {
    texts.iter().map(|text| secret().print(text)).collect()
}

/// The folder beside the repository that holds samples; says when it is missing.
pub(super) fn shared(part: &str) -> Option<PathBuf> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared")).join(part);
    if folder.exists() {
        return Some(folder);
    }
    println!("left out: ../shared/{part} is not there");
    None
}

/// What `expected.json` says of one session of a real store.
#[derive(serde::Deserialize)]
pub(super) struct Driven {
    pub(super) file: String,
    pub(super) human: Vec<Typed>,
    pub(super) note: String,
    slash_prompts: Vec<String>,
}

#[derive(serde::Deserialize)]
pub(super) struct Typed {
    pub(super) text: String,
    pub(super) how: String,
}

impl Driven {
    /// The prompts as they are stored: a command's expanded text is one.
    pub(super) fn prompts(&self) -> usize {
        self.human.len() + self.slash_prompts.len()
    }
}

pub(super) fn driven(store: &Path) -> Vec<Driven> {
    serde_json::from_slice(&fs::read(store.join("expected.json")).unwrap()).unwrap()
}
