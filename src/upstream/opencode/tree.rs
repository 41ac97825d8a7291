//! Sessions in the JSON files of OpenCode before 1.2, under `storage/`.
//!
//! `session/<project>/<session>.json`, `message/<session>/<message>.json` and
//! `part/<message>/<part>.json`. Files are written in place and many times, so
//! one may be met half written; of an undone message the parts stay behind.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::copies::{Origin, origin};
use super::position::{Parts, Position, Roll, Said, mark};
use super::words::{INFO, PART, Words};
use super::{Budget, Error, Found, Link, Look, Reading, Result, is_name, sift};
use crate::upstream::act::{Act, Names};
use crate::upstream::print::Secret;
use crate::upstream::rows::Slice;
use crate::upstream::sift::{Value, Want};
use crate::upstream::source::{OpenError, open_regular};

/// The time of a folder tells of every new file only when it is older than this
/// when the folder is listed: clocks have a grain.
const GRAIN: Duration = Duration::from_secs(2);

static SESSION: Want = Want::Fields(&[
    ("parentID", Want::Scalar),
    ("directory", Want::Scalar),
    (
        "time",
        Want::Fields(&[("created", Want::Scalar), ("updated", Want::Scalar)]),
    ),
]);

/// A data folder with `storage/` in it.
pub(super) struct Tree {
    root: PathBuf,
    known: HashMap<String, Known>,
}

/// What is known of a session.
#[derive(Default)]
struct Known {
    /// `session/<project>/<session>.json`.
    file: PathBuf,
    /// The time of the folder of its messages, when that told everything.
    listed: Option<SystemTime>,
    /// The messages that were there then.
    roll: Roll,
    /// The marks of the messages met, and their roll.
    met: (Roll, HashSet<u64>),
}

impl Tree {
    pub(super) fn new(root: &Path) -> Tree {
        Tree {
            root: root.to_owned(),
            known: HashMap::new(),
        }
    }

    pub(super) fn storage(&self) -> PathBuf {
        self.root.join("storage")
    }

    pub(super) fn look(&mut self, links: &[Link<'_>]) -> Result<Vec<Look>> {
        self.check()?;
        // A session that cannot be looked at is read, and says why not.
        let look = |link| self.look_at(link).unwrap_or(Look::Moved);
        Ok(links.iter().map(look).collect())
    }

    fn look_at(&mut self, link: &Link<'_>) -> Result<Look> {
        let folder = self.messages(link.thread);
        let Some(known) = self.locate(link.thread)? else {
            return Ok(Look::Gone);
        };
        let time = modified(&folder)?;
        if known.listed.is_none() || known.listed != time {
            let now = SystemTime::now();
            known.roll = Roll::of(stems(&folder)?.iter().map(|id| mark(id)));
            known.listed = time.filter(|time| is_settled(*time, now));
        }
        if known.roll != link.position.roll {
            return Ok(Look::Moved);
        }
        for open in &link.position.open {
            if self.parts(&open.id)?.1 != open.parts {
                return Ok(Look::Moved);
            }
        }
        Ok(Look::Same)
    }

    pub(super) fn read(
        &mut self,
        thread: &str,
        from: &Position,
        names: &Names,
        slice: Slice<'_>,
    ) -> Result<Option<Reading>> {
        self.check()?;
        let Some(known) = self.locate(thread)? else {
            return Ok(None);
        };
        let (file, met) = (known.file.clone(), known.met.clone());
        let budget = Budget::new(slice);
        let session = match value(&file, &SESSION, names.secret(), &budget)? {
            Some(session @ Value::Object(_)) => session,
            // Without it a sub-agent's session looks like a person's.
            Some(_) => {
                return Err(Error::Unreadable(
                    "the session's file is not whole".to_owned(),
                ));
            }
            None => return Ok(None),
        };
        let folder = self.messages(thread);
        let mut ids = stems(&folder)?;
        ids.sort();
        let there: HashSet<u64> = ids.iter().map(|id| mark(id)).collect();
        let (met, mut position) = met_at(from, met, &there);
        position.keep(&there);
        ids.retain(|id| !met.contains(&mark(id)));
        let mut reader = Reader {
            tree: self,
            folder,
            names,
            created: session.get("time").get("created").integer(),
            sub_agent: is_sub_agents(&session),
            budget,
            position,
            met,
            acts: Vec::new(),
        };
        let more = match reader.read(&ids) {
            Err(Error::Stopped) => true,
            more => more?,
        };
        let Reader {
            mut position,
            met,
            acts,
            ..
        } = reader;
        position.roll = Roll::of(met.iter().copied());
        if let Some(known) = self.known.get_mut(thread) {
            known.met = (position.roll, met);
        }
        Ok(Some(Reading {
            acts,
            position,
            more,
        }))
    }

    /// The sessions that are no sub-agents', newest first.
    pub(super) fn discover(&mut self, limit: usize) -> Result<Vec<Found>> {
        self.check()?;
        // No text is asked for, so that no print is made.
        let secret = Secret::new([0; 32]);
        let mut found = Vec::new();
        for project in folders(&self.storage().join("session"))? {
            for thread in stems(&project)? {
                let budget = Budget::new(Slice::WHOLE);
                let session = value(&file(&project, &thread), &SESSION, &secret, &budget);
                let Ok(Some(session @ Value::Object(_))) = session else {
                    continue;
                };
                if !is_sub_agents(&session) {
                    found.push(Found {
                        thread,
                        cwd: session.get("directory").str().map(str::to_owned),
                        updated_ms: session.get("time").get("updated").integer().unwrap_or(0),
                    });
                }
            }
        }
        found.sort_by(Found::newest_first);
        found.truncate(limit);
        Ok(found)
    }

    pub(super) fn holds(&mut self, thread: &str) -> Result<bool> {
        self.check()?;
        Ok(self.locate(thread)?.is_some())
    }

    /// The folder of a session's messages tells of new and deleted ones, `part/`
    /// of a message's first part, and a folder in it of the others.
    pub(super) fn folders(&self, link: &Link<'_>) -> Vec<PathBuf> {
        // A store that was a database before has positions with names of any kind.
        if !is_name(link.thread) {
            return Vec::new();
        }
        let parts = self.storage().join("part");
        let mut folders = vec![self.messages(link.thread), parts.clone()];
        if !folders[0].is_dir() {
            folders[0].pop();
        }
        let open = link.position.open.iter().map(|open| &open.id);
        folders.extend(open.filter(|id| is_name(id)).map(|id| parts.join(id)));
        folders.retain(|folder| folder.is_dir());
        folders
    }

    /// The folder of a session's messages.
    fn messages(&self, thread: &str) -> PathBuf {
        self.storage().join("message").join(thread)
    }

    fn check(&self) -> Result<()> {
        match fs::metadata(self.storage()) {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => Err(Error::Missing),
            Err(e) => Err(e.into()),
        }
    }

    /// Finds a session, whatever project it is in.
    fn locate(&mut self, thread: &str) -> Result<Option<&mut Known>> {
        let found = match self.known.get(thread) {
            Some(known) if known.file.is_file() => Some(known.file.clone()),
            _ if !is_name(thread) => None,
            _ => {
                let projects = folders(&self.storage().join("session"))?.into_iter();
                let mut files = projects.map(|project| file(&project, thread));
                files.find(|file| file.is_file())
            }
        };
        let Some(file) = found else {
            self.known.remove(thread);
            return Ok(None);
        };
        let known = self.known.entry(thread.to_owned()).or_default();
        known.file = file;
        Ok(Some(known))
    }

    /// The files of a message's parts in order, and what tells them from those it
    /// has at another time.
    fn parts(&self, message: &str) -> Result<(Vec<PathBuf>, Parts)> {
        if !is_name(message) {
            return Ok(Default::default());
        }
        let folder = self.storage().join("part").join(message);
        let mut ids = stems(&folder)?;
        ids.sort();
        let mut files = Vec::new();
        let mut parts = Parts::default();
        for id in ids {
            let file = file(&folder, &id);
            if let Ok(found) = fs::metadata(&file) {
                let seconds = found.mtime().wrapping_mul(1_000_000_000);
                let modified = seconds.wrapping_add(found.mtime_nsec());
                parts.add(&id, found.size() as i64, modified);
                files.push(file);
            }
        }
        Ok((files, parts))
    }
}

/// Which messages were met at a position, and the position to go on from. `known`
/// are those met when this process last read the session, and their roll.
fn met_at(
    from: &Position,
    (roll, known): (Roll, HashSet<u64>),
    there: &HashSet<u64>,
) -> (HashSet<u64>, Position) {
    let all = || there.iter().copied();
    let met = if Roll::of(all()) == from.roll {
        there.clone()
    } else if roll == from.roll {
        all().filter(|mark| known.contains(mark)).collect()
    } else if !from.forgetful {
        // Which messages of the assistant were met is not known. They are read again.
        all().filter(|mark| from.met(*mark)).collect()
    } else {
        // Nor which old ones of the user. What was told of them is known by its keys.
        return (HashSet::new(), Position::default());
    };
    (met, from.clone())
}

/// One session, while it is read.
struct Reader<'a> {
    tree: &'a Tree,
    /// The folder of its messages.
    folder: PathBuf,
    names: &'a Names,
    /// When it began, in milliseconds since the epoch.
    created: Option<i64>,
    sub_agent: bool,
    budget: Budget<'a>,
    position: Position,
    /// The marks of the messages met.
    met: HashSet<u64>,
    acts: Vec<Act>,
}

impl Reader<'_> {
    /// Reads the open messages and those of `ids`; whether there is more than the
    /// slice had room for.
    fn read(&mut self, ids: &[String]) -> Result<bool> {
        for open in self.position.open.clone() {
            if self.tree.parts(&open.id)?.1 != open.parts {
                self.message(&open.id)?;
            }
        }
        // A file that is not whole is none of the messages a slice takes in: it is met
        // again by the next one, which would come no further.
        let mut moved = false;
        for id in ids {
            if moved && self.budget.is_spent() {
                return Ok(true);
            }
            if self.sub_agent || self.message(id)? {
                self.met.insert(mark(id));
                moved = true;
            }
        }
        Ok(false)
    }

    /// Takes in a message; `false` when its file is not whole.
    fn message(&mut self, id: &str) -> Result<bool> {
        if !is_name(id) {
            return Ok(false);
        }
        let secret = self.names.secret();
        let info = value(&file(&self.folder, id), &INFO, secret, &self.budget)?;
        let Some(info @ Value::Object(_)) = info else {
            return Ok(false);
        };
        if let Some(answered) = info.get("parentID").str() {
            self.position.answered(answered);
        }
        if info.get("role").str() != Some("user") {
            return Ok(true);
        }
        // What tells the parts apart is asked for first: what is written while
        // they are read then makes a difference.
        let (files, parts) = self.tree.parts(id)?;
        let mut words = Words::new(secret);
        for file in files {
            if let Some(part) = value(&file, &PART, secret, &self.budget)? {
                words.part(&part);
            }
        }
        let time_ms = info.get("time").get("created").integer();
        let said = Said {
            id,
            time_ms,
            copy: origin(id, time_ms, self.created) == Origin::Copy,
            parts,
            verdict: words.verdict(),
        };
        self.acts.extend(self.position.take(said, self.names));
        Ok(true)
    }
}

fn is_sub_agents(session: &Value) -> bool {
    let parent = session.get("parentID").str();
    parent.is_some_and(|parent| !parent.is_empty())
}

/// The JSON file of this name.
fn file(folder: &Path, id: &str) -> PathBuf {
    folder.join(id).with_added_extension("json")
}

/// What is wanted of a JSON file: null when it is not whole. `None` without a file.
fn value(
    file: &Path,
    want: &'static Want,
    secret: &Secret,
    budget: &Budget<'_>,
) -> Result<Option<Value>> {
    let (mut opened, meta) = match open_regular(file) {
        Ok(opened) => opened,
        Err(OpenError::Missing) => return Ok(None),
        Err(OpenError::Unreadable(error)) => return Err(error.into()),
    };
    budget.spend(meta.len());
    // No more than there was: it may grow faster than it is read.
    let mut opened = (&mut opened).take(meta.len());
    sift(&mut opened, want, secret, budget).map(Some)
}

/// The names of the JSON files in a folder, without their ending; none without a folder.
fn stems(folder: &Path) -> Result<Vec<String>> {
    let mut stems = Vec::new();
    for entry in entries(folder)? {
        let name = entry?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(".json"));
        stems.extend(stem.filter(|stem| is_name(stem)).map(str::to_owned));
    }
    Ok(stems)
}

/// The folders in a folder.
fn folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in entries(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

fn entries(folder: &Path) -> Result<impl Iterator<Item = io::Result<fs::DirEntry>> + use<>> {
    match fs::read_dir(folder) {
        Ok(entries) => Ok(Some(entries).into_iter().flatten()),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None.into_iter().flatten())
        }
        Err(e) => Err(e.into()),
    }
}

/// Whether a change after `now` would give the folder another time than this.
/// Of a time to come, or one that no clock will show, that is not known.
fn is_settled(time: SystemTime, now: SystemTime) -> bool {
    time.checked_add(GRAIN)
        .is_some_and(|settled| settled <= now)
}

/// When a folder was modified; `None` without a folder.
fn modified(folder: &Path) -> Result<Option<SystemTime>> {
    match fs::metadata(folder) {
        Ok(found) => Ok(Some(found.modified()?)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests;
