//! OpenCode: an `opencode.db`, or the older tree of JSON files.
//!
//! A store holds many sessions. A pass asks [`Store::look`] about all linked ones
//! at once, and has [`Store::read`] those that moved:
//!
//! ```text
//! look(links) ─► Gone: a miss
//!             ─► Same: unchanged
//!             ─► Moved: read(thread, position), again until there is no more
//! ```
//!
//! The acts of a reading and its position are to be stored in one transaction. If
//! that fails, the same position is read from again. A reading that leaves the
//! position as it was found nothing new.
//!
//! OpenCode does not say who wrote a message, so it is judged with caution. What
//! counts is text typed into the session itself, and not one that comes again
//! within 50 user messages, as a replay after a compaction does. A command whose
//! template OpenCode has expanded cannot be told from typing, and counts.
//!
//! What `own_message` must match: `opencode run` joins its arguments with spaces,
//! and puts double quotes around each that holds a space, with a backslash before
//! each quote in it; [`Act::unquoted`] is the print of what one such argument was.
//! Standard input is appended after a line feed. A command's text is stored
//! expanded.

mod copies;
mod database;
#[cfg(test)]
mod fixture;
mod home;
#[cfg(test)]
mod passes;
mod position;
#[cfg(test)]
mod tests;
mod tree;
mod words;

use std::cell::Cell;
use std::cmp::Ordering;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

pub use home::{Home, discover, find};
pub use position::Position;

use self::copies::{Origin, origin};
use self::database::Database;
use self::position::{Parts, Said};
use self::tree::Tree;
use self::words::{ROW, Words};
use super::act::{Act, Names};
use super::print::Secret;
use super::rows::{Slice, read_value};
use super::sift::{End, Sifter, Value, Want};

const CATALOG: &str = "opencode";

/// The most that is held of a cell or file at once, in bytes.
const PIECE: usize = 16 * 1024;

/// Why a store cannot be read. No message holds any text of a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is none: no file, or no `storage/`. All its sessions are gone.
    #[error("there is no such store of OpenCode")]
    Missing,
    /// It is locked; later it can be read.
    #[error("the store of OpenCode is locked")]
    Busy,
    /// It is there but cannot be read.
    #[error("the store of OpenCode cannot be read: {0}")]
    Unreadable(String),
    /// The slice was told to stop before anything was read.
    #[error("the reading was stopped")]
    Stopped,
}

pub(super) type Result<T> = std::result::Result<T, Error>;

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Error::Missing,
            kind => Error::Unreadable(kind.to_string()),
        }
    }
}

/// A session to be looked at.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    /// The session's id.
    pub thread: &'a str,
    /// How far it was judged.
    pub position: &'a Position,
}

/// What became of a session since its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The store does not hold it any more.
    Gone,
    /// Nothing that could change its position.
    Same,
    /// It has to be read.
    Moved,
}

/// What was read of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What a person did, in order. Copies and replays are not among them.
    pub acts: Vec<Act>,
    /// How far the session is judged now.
    pub position: Position,
    /// Whether the slice ended before the session did.
    pub more: bool,
}

/// A session of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The session's id.
    pub thread: String,
    /// The folder it works in.
    pub cwd: Option<String>,
    /// When OpenCode last touched it, in milliseconds since the epoch.
    pub updated_ms: i64,
}

impl Found {
    fn newest_first(&self, other: &Found) -> Ordering {
        let by_time = other.updated_ms.cmp(&self.updated_ms);
        by_time.then_with(|| self.thread.cmp(&other.thread))
    }
}

/// A state of a database, comparable with others that the same [`Store`] answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    opening: u64,
    version: i64,
}

/// A store of OpenCode. It is worth keeping between passes: what it knows of the
/// sessions makes the next look cheap. It may be dropped at any time.
pub struct Store(Kind);

enum Kind {
    Database(Box<Database>),
    Tree(Tree),
}

impl Store {
    /// The store at `source`: an `opencode.db`, or a data folder with `storage/`
    /// in it. Nothing is opened yet, and it need not be there.
    pub fn new(source: &Path) -> Store {
        Store(if source.is_dir() {
            Kind::Tree(Tree::new(source))
        } else {
            Kind::Database(Box::new(Database::new(source)))
        })
    }

    /// Whether it is of the kind that is at `source` now.
    pub fn fits(&self, source: &Path) -> bool {
        matches!(self.0, Kind::Tree(_)) == source.is_dir()
    }

    /// The state of what is stored: when it is the same as before, nothing was
    /// written since. `None` for a store of files, which tells nothing at that cost.
    pub fn state(&mut self) -> Result<Option<State>> {
        match &mut self.0 {
            Kind::Database(database) => database.state().map(Some),
            Kind::Tree(_) => Ok(None),
        }
    }

    /// What became of each of `links`, in their order. Costs one look at the
    /// store when nothing was written since the last one.
    pub fn look(&mut self, links: &[Link<'_>]) -> Result<Vec<Look>> {
        match &mut self.0 {
            Kind::Database(database) => database.look(links),
            Kind::Tree(tree) => tree.look(links),
        }
    }

    /// Reads a session on from a position; `None` when it is gone. A slice ends
    /// between two messages, and takes in one at least.
    pub fn read(
        &mut self,
        thread: &str,
        from: &Position,
        secret: &Secret,
        slice: Slice<'_>,
    ) -> Result<Option<Reading>> {
        let names = Names::new(secret, CATALOG, thread);
        match &mut self.0 {
            Kind::Database(database) => database.read(thread, from, &names, slice),
            Kind::Tree(tree) => tree.read(thread, from, &names, slice),
        }
    }

    /// The newest `limit` sessions, without those of sub-agents.
    pub fn discover(&mut self, limit: usize) -> Result<Vec<Found>> {
        match &mut self.0 {
            Kind::Database(database) => database.discover(limit),
            Kind::Tree(tree) => tree.discover(limit),
        }
    }

    /// Whether the store holds the session.
    pub fn holds(&mut self, thread: &str) -> Result<bool> {
        match &mut self.0 {
            Kind::Database(database) => database.holds(thread),
            Kind::Tree(tree) => tree.holds(thread),
        }
    }

    /// The folders, not those in them, whose changes can tell that the session
    /// at this position moved. A folder that is not there yet is left out, and
    /// may be asked for after each reading.
    pub fn folders(&self, link: &Link<'_>) -> Vec<PathBuf> {
        match &self.0 {
            Kind::Database(database) => database
                .file()
                .parent()
                .map(Path::to_owned)
                .into_iter()
                .collect(),
            Kind::Tree(tree) => tree.folders(link),
        }
    }

    /// Whether a change of the file at `path` can be one of the sessions. Reading
    /// a database changes its `-shm`, which therefore tells nothing.
    pub fn concerns(&self, path: &Path) -> bool {
        match &self.0 {
            Kind::Database(database) => database.concerns(path),
            Kind::Tree(tree) => path.starts_with(tree.storage()),
        }
    }
}

/// Judges rows that the host read elsewhere: each an `{info, parts}` of OpenCode
/// as JSON, in order. What is no such row is passed over.
pub fn feed<'r>(
    thread: &str,
    from: &Position,
    rows: impl IntoIterator<Item = &'r [u8]>,
    secret: &Secret,
) -> Reading {
    let names = Names::new(secret, CATALOG, thread);
    let mut position = from.clone();
    let mut acts = Vec::new();
    for row in rows {
        let row = read_value(row, secret, &ROW).unwrap_or_default();
        let info = row.get("info");
        let id = info.get("id").str();
        let Some(id) = id.filter(|id| id.len() <= LONGEST_ID) else {
            continue;
        };
        if let Some(answered) = info.get("parentID").str() {
            position.answered(answered);
        }
        if info.get("role").str() != Some("user") || position.judged(id) {
            continue;
        }
        let mut words = Words::new(secret);
        for part in row.get("parts").items() {
            words.part(part);
        }
        let time_ms = info.get("time").get("created").integer();
        let said = Said {
            id,
            time_ms,
            copy: origin(id, time_ms, None) == Origin::Copy,
            parts: Parts::default(),
            verdict: words.verdict(),
        };
        acts.extend(position.take(said, &names));
    }
    Reading {
        acts,
        position,
        more: false,
    }
}

/// The longest id of a message that is kept, in bytes; a message of a longer one is
/// passed over.
const LONGEST_ID: usize = 256;

/// Whether `name` can be the id of a session or message, and so a file's name.
fn is_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
    (1..=LONGEST_ID).contains(&name.len())
        && !name.starts_with(['-', '.'])
        && name.bytes().all(fits)
}

/// What is wanted of one JSON text; null when it is not whole or no JSON.
fn sift(
    input: &mut impl Read,
    want: &'static Want,
    secret: &Secret,
    budget: &Budget<'_>,
) -> Result<Value> {
    let mut sifter = Sifter::new(secret, want);
    let mut piece = [0; PIECE];
    loop {
        if budget.slice.stopped() {
            return Err(Error::Stopped);
        }
        let read = match input.read(&mut piece) {
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            break;
        }
        if sifter.feed(&piece[..read]).is_err() {
            return Ok(Value::Null);
        }
    }
    Ok(match sifter.end() {
        End::Row(value) => value,
        End::Blank | End::Torn { .. } => Value::Null,
    })
}

/// What is left of a slice.
struct Budget<'a> {
    slice: Slice<'a>,
    spent: Cell<u64>,
}

impl<'a> Budget<'a> {
    fn new(slice: Slice<'a>) -> Budget<'a> {
        Budget {
            slice,
            spent: Cell::new(0),
        }
    }

    fn spend(&self, bytes: u64) {
        self.spent.set(self.spent.get().saturating_add(bytes));
    }

    fn is_spent(&self) -> bool {
        let late = || {
            self.slice
                .until
                .is_some_and(|until| Instant::now() >= until)
        };
        self.spent.get() >= self.slice.bytes || late() || self.slice.stopped()
    }
}
