//! What the room knows of an agent: one trait, and how to add to it.
//!
//! # Adding an agent whose sessions are files of JSON rows
//!
//! 1. Write one file beside `claude.rs` with a type that is an [`Agent`], and name
//!    it in the list in `mod.rs`, in `Catalog` and in `Roots`; the compiler names
//!    what is left. Nothing else knows what the agents write.
//! 2. [`Agent::store`] says which folders hold sessions, [`Agent::named`] which of
//!    the files there are sessions, and whose.
//! 3. List in a [`Want`] the fields that decide. What is not listed is never
//!    kept in memory, so a row of any length is safe.
//! 4. Decide in [`Judge::judge`], in this order: what the row says of where it came
//!    from; then its text, for rows that say nothing. A row that only looks like a
//!    person's is the common case: list those first. When nothing tells a copy from
//!    the row it was copied from, find what the two have in common and make that
//!    the id in the [`Marks`](super::act::Marks).
//! 5. What must be remembered from one row to the next goes into a small state of
//!    its own, saved with the position: a pass may stop after any row. The tests
//!    of the other agents show how that is proved, in any chunks.
//!
//! # What the command lines add
//!
//! `own_message` must be given what is stored. Pi puts
//! `<file name="…">…</file>` and a line feed before the words for an `@file`, and
//! standard input in front of them without a gap. Codex puts standard input after
//! them, in `<stdin>` tags and after an empty line. What these tell of a text
//! otherwise (reminders, editor context, skills) is taken off before the
//! comparison.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::act::Act;
use super::print::Secret;
use super::rows::{self, Query, Reached, Slice};
use super::sift::{Value, Want};
use super::source::{OpenError, Source};

/// An agent whose sessions are files of JSON rows.
pub trait Agent: Send + Sync {
    /// The agent's name in requests: `claude`, `codex`, `pi`.
    fn catalog(&self) -> &'static str;

    /// The folders that hold sessions: those under `root` if the host named the
    /// agent's home, else those that the environment says, else the usual ones.
    /// None of them need be there.
    fn store(&self, root: Option<&Path>, env: Env<'_>) -> Vec<Folder>;

    /// What the path of a file in such a folder says; `None` when it is no session.
    fn named(&self, path: &Path) -> Option<Named>;

    /// What is wanted of the first rows.
    fn head_want(&self) -> &'static Want;

    /// Learns from one of the first rows; false when no more are needed.
    fn head_row(&self, row: &Value, head: &mut Head) -> bool;

    /// A judge of the rows of one source. `saved` is what an earlier one saved at
    /// the position where this one goes on, `None` at the start. The answer is
    /// `None` when what was saved cannot be understood: begin at the start then.
    fn judge(&self, case: Case<'_>, saved: Option<&str>) -> Option<Box<dyn Judge>>;

    /// Whether the first rows of a file may name another thread than its path.
    fn head_names_thread(&self) -> bool {
        false
    }

    /// The folders in which a session may go on that was in `source`: in the same
    /// file under another name, or in a file begun later. None by default.
    fn siblings(&self, _source: &Path) -> Vec<Folder> {
        Vec::new()
    }
}

/// Reads variables of the environment.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A folder with sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Where it is.
    pub path: PathBuf,
    /// How many levels below it the files lie at most; 1 is directly in it.
    pub depth: usize,
}

/// What the path of a session's file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The thread.
    pub thread: String,
    /// Orders the files of one thread; the last one is live.
    pub order: String,
}

/// What the first rows of a session's file say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The thread.
    pub thread: Option<String>,
    /// The working directory.
    pub cwd: Option<String>,
    /// Another agent wrote the prompts.
    pub sub_agent: bool,
    /// The file is of a version whose rows have no lasting identity yet.
    pub legacy: bool,
    /// There is a whole row: without one nothing is known of the file yet.
    pub begun: bool,
}

/// The source that a judge judges.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// The key of the database's hashes.
    pub secret: &'a Secret,
    /// The thread as the link names it, for rows that do not name one.
    pub thread: &'a str,
    /// The file; `None` for rows handed over by the host.
    pub path: Option<&'a Path>,
}

/// Tells the acts of a person from everything else, row after row.
///
/// Where a reading stops and another judge goes on with what was saved makes no
/// difference to what is told.
pub trait Judge: Send {
    /// What is wanted of a row.
    fn want(&self) -> &'static Want;

    /// Bytes of which a row must have some to be of interest to this judge, in what
    /// it tells or in what it remembers; none when every row is. They are ASCII and
    /// stand in no JSON string that could be written otherwise but with `\u00…`.
    /// They hold for rows judged from now on.
    fn needles(&self) -> &'static [&'static str] {
        &[]
    }

    /// What a row says, if it is a person's act and not by its own fields a copy.
    fn judge(&mut self, row: &Value) -> Option<Act>;

    /// What is to be saved with the position; a few KiB at most.
    fn save(&self) -> String;

    /// Forgets how often equal rows were met: they may be handed over again.
    fn renew(&mut self);
}

/// Reads a slice of a source and judges its rows; `act` gets the acts in order.
pub fn scan(
    source: &mut Source,
    position: u64,
    slice: Slice<'_>,
    secret: &Secret,
    judge: &mut dyn Judge,
    mut act: impl FnMut(Act),
) -> io::Result<Reached> {
    let mut all = Reached {
        position,
        more: true,
        damaged: 0,
    };
    loop {
        let needles = judge.needles();
        let query = Query {
            secret,
            want: judge.want(),
            needles,
        };
        let rest = Slice {
            bytes: slice.bytes.saturating_sub(all.position - position),
            ..slice
        };
        let part = rows::read(source, all.position, rest, query, |row| {
            judge.judge(&row).into_iter().for_each(&mut act);
            // Once the judge knows more it may be content with less.
            judge.needles().len() == needles.len()
        })?;
        let moved = part.position > all.position;
        all.position = part.position;
        all.more = part.more;
        all.damaged += part.damaged;
        if !part.more || !moved || judge.needles().len() == needles.len() {
            return Ok(all);
        }
    }
}

/// Judges a row handed over by the host, as JSON.
pub fn feed(json: &[u8], secret: &Secret, judge: &mut dyn Judge) -> Option<Act> {
    let row = rows::read_value(json, secret, judge.want())?;
    judge.judge(&row)
}

/// How far into a file its head may reach, in bytes and rows.
const HEAD_BYTES: u64 = 1 << 20;
const HEAD_ROWS: u32 = 200;

/// Reads the head of a session's file.
pub fn head(agent: &dyn Agent, path: &Path) -> Result<Head, OpenError> {
    let mut source = Source::open(path)?;
    let mut head = Head::default();
    let mut rows = 0;
    let slice = Slice {
        bytes: HEAD_BYTES,
        ..Slice::WHOLE
    };
    // Nothing of what a head is read for is kept as a print.
    let secret = Secret::new([0; 32]);
    let query = Query {
        secret: &secret,
        want: agent.head_want(),
        needles: &[],
    };
    rows::read(&mut source, 0, slice, query, |row| {
        rows += 1;
        agent.head_row(&row, &mut head) && rows < HEAD_ROWS
    })
    .map_err(OpenError::Unreadable)?;
    head.begun = rows > 0;
    if let (None, Some(named)) = (&head.thread, agent.named(path)) {
        head.thread = Some(named.thread);
    }
    Ok(head)
}

/// The state that a judge saved, or its first one.
pub(super) fn restore<S: Default + DeserializeOwned>(saved: Option<&str>) -> Option<S> {
    match saved {
        None => Some(S::default()),
        Some(saved) => serde_json::from_str(saved).ok(),
    }
}

/// A judge's state as it is saved.
pub(super) fn save<S: Serialize>(state: &S) -> String {
    // A state of numbers, hashes and short strings always has a JSON form.
    serde_json::to_string(state).unwrap_or_default()
}

/// A name out of a row as a state keeps it.
pub(super) fn short(name: &str) -> String {
    name.chars().take(128).collect()
}
