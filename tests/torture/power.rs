//! The loss of power: from what was done to the files, and what of it was
//! synced, images of what a disk may hold then.
//!
//! Of what was not synced any part may be there: any subset of the writes, of
//! each write any of its sectors or a first part, and of what happened to a name
//! in the folder any first part. Where a file grew and its bytes did not get
//! there, zeroes or rubbish stand. What a failed sync left in the cache alone may
//! be there or not for ever, also after a later sync that did not fail, unless it
//! is written anew.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use serde_json::Value;

use crate::abi::Fault;
use crate::board::{Entry, entries};
use crate::model::Model;
use crate::{Place, Plan, Rng, number, seed};

const SECTOR: usize = 512;

#[derive(Clone)]
enum Change {
    Write { place: usize, bytes: Rc<[u8]> },
    Cut { length: usize },
}

#[derive(Default)]
struct Disk {
    files: Vec<Content>,
    /// The file of each number of the process.
    numbers: HashMap<u32, usize>,
    /// What each name stood for: first for certain, then perhaps, up to now.
    names: BTreeMap<String, Vec<Option<usize>>>,
}

#[derive(Default)]
struct Content {
    /// What is there for certain, but for what `limbo` says.
    synced: Vec<u8>,
    /// What a failed sync left behind and nothing has overwritten since.
    limbo: Vec<Change>,
    /// What was not synced yet, and when it was done.
    pending: Vec<(usize, Change)>,
}

impl Content {
    fn sync(&mut self) {
        for (_, change) in std::mem::take(&mut self.pending) {
            let overwritten = self.limbo.extract_if(.., |old| old.overlaps(&change));
            let left: Vec<Change> = overwritten.flat_map(|old| old.without(&change)).collect();
            self.limbo.extend(left);
            apply(&mut self.synced, &change);
        }
    }
}

fn apply(data: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write { place, bytes } => {
            let end = place + bytes.len();
            if data.len() < end {
                data.resize(end, 0);
            }
            data[*place..end].copy_from_slice(bytes);
        }
        Change::Cut { length } => data.resize(*length, 0),
    }
}

impl Change {
    /// Where it begins and ends.
    fn extent(&self) -> (usize, usize) {
        match self {
            Change::Write { place, bytes } => (*place, place + bytes.len()),
            Change::Cut { length } => (*length, usize::MAX),
        }
    }

    fn overlaps(&self, other: &Change) -> bool {
        let ((from, to), (begin, end)) = (self.extent(), other.extent());
        from < end && begin < to
    }

    /// What is left of a write where another change has not overwritten it.
    fn without(&self, other: &Change) -> Vec<Change> {
        let Change::Write { place, bytes } = self else {
            return Vec::new();
        };
        let ((begin, end), (from, to)) = (self.extent(), other.extent());
        [(begin, from.clamp(begin, end)), (to.clamp(begin, end), end)]
            .into_iter()
            .filter(|(from, to)| from < to)
            .map(|(from, to)| Change::Write {
                place: from,
                bytes: bytes[from - place..to - place].into(),
            })
            .collect()
    }
}

impl Disk {
    fn name(&mut self, name: &str, file: Option<usize>) {
        self.names
            .entry(name.to_owned())
            .or_insert_with(|| vec![None])
            .push(file);
    }

    fn follow(&mut self, when: usize, entry: &Entry) {
        match entry {
            Entry::Said(_) => {}
            Entry::Made { file, name } => {
                self.numbers.insert(*file, self.files.len());
                self.name(name, Some(self.files.len()));
                self.files.push(Content::default());
            }
            Entry::Met { file, name } => {
                let known = self.names.get(name).and_then(|history| *history.last()?);
                self.numbers.insert(*file, known.expect("made before"));
            }
            Entry::Removed { name } => self.name(name, None),
            Entry::Wrote { file, place, bytes } => self.change(
                when,
                *file,
                Change::Write {
                    place: *place as usize,
                    bytes: bytes[..].into(),
                },
            ),
            Entry::Cut { file, length } => self.change(
                when,
                *file,
                Change::Cut {
                    length: *length as usize,
                },
            ),
            Entry::Synced { file } => self.file(*file).sync(),
            Entry::SyncFailed { file } => {
                let file = self.file(*file);
                let left = file.pending.drain(..).map(|(_, change)| change);
                file.limbo.extend(left);
            }
            Entry::FolderSynced => {
                for history in self.names.values_mut() {
                    history.drain(..history.len() - 1);
                }
            }
        }
    }

    fn file(&mut self, number: u32) -> &mut Content {
        &mut self.files[self.numbers[&number]]
    }

    fn change(&mut self, when: usize, number: u32, change: Change) {
        self.file(number).pending.push((when, change));
    }

    /// What the process itself sees.
    fn now(&self) -> BTreeMap<String, Vec<u8>> {
        self.image(
            |_, _| Some(usize::MAX),
            |data, _, change| apply(data, change),
        )
    }

    /// The files, each name at the point of its history that `at` chooses of
    /// its length, with what `put` makes of each change that was not synced.
    fn image(
        &self,
        mut at: impl FnMut(&str, usize) -> Option<usize>,
        mut put: impl FnMut(&mut Vec<u8>, Option<(usize, usize)>, &Change),
    ) -> BTreeMap<String, Vec<u8>> {
        let mut image = BTreeMap::new();
        for (name, history) in &self.names {
            let last = history.len() - 1;
            let Some(file) = history[at(name, last).unwrap_or(last).min(last)] else {
                continue;
            };
            let content = &self.files[file];
            let mut data = content.synced.clone();
            for change in &content.limbo {
                put(&mut data, None, change);
            }
            for (when, change) in &content.pending {
                put(&mut data, Some((file, *when)), change);
            }
            image.insert(name.clone(), data);
        }
        image
    }

    /// One of the images that a loss of power now may leave.
    fn lose_power(&self, rng: &mut Rng) -> BTreeMap<String, Vec<u8>> {
        let manner = rng.below(7);
        let when = |content: &Content| content.pending.last().map_or(0, |(when, _)| *when);
        let first = self
            .files
            .iter()
            .filter_map(|content| content.pending.first());
        let first = first.map(|(when, _)| *when).min().unwrap_or(0);
        let last = self.files.iter().map(when).max().unwrap_or(0);
        let cut = first + rng.below((last - first + 1) as u64) as usize;
        let alone = rng.below(self.files.len().max(1) as u64) as usize;
        let rubbish = rng.below(2) == 0;
        let mut names = Rng(rng.next());
        let mut writes = Rng(rng.next());
        self.image(
            |_, last| match manner {
                0 => Some(0),
                1 => None,
                _ => Some(names.below(last as u64 + 1) as usize),
            },
            |data, done, change| match (manner, done) {
                (0, _) => {}
                (1, Some(_)) => apply(data, change),
                // As one queue that was cut off, its last write torn.
                (2, Some((_, when))) if when < cut => apply(data, change),
                (2, Some((_, when))) if when > cut => {}
                (2, Some(_)) => tear(data, change, &mut writes),
                // One file's writes got there and no other's.
                (3, Some((file, _))) if file == alone => apply(data, change),
                (3, Some(_)) => {}
                (4, _) if writes.below(2) == 0 => apply(data, change),
                (4, _) => {}
                (5, _) => tear(data, change, &mut writes),
                _ => scatter(data, change, rubbish, &mut writes),
            },
        )
    }
}

/// The first part of a write.
fn tear(data: &mut Vec<u8>, change: &Change, rng: &mut Rng) {
    match change {
        Change::Write { place, bytes } => {
            let length = rng.below(bytes.len() as u64 + 1) as usize;
            let part = Change::Write {
                place: *place,
                bytes: bytes[..length].into(),
            };
            apply(data, &part);
        }
        cut if rng.below(2) == 0 => apply(data, cut),
        _ => {}
    }
}

/// Some of a write's sectors; where the others would be, what was there.
fn scatter(data: &mut Vec<u8>, change: &Change, rubbish: bool, rng: &mut Rng) {
    let Change::Write { place, bytes } = change else {
        return tear(data, change, rng);
    };
    let mut at = 0;
    while at < bytes.len() {
        let from = place + at;
        let length = (SECTOR - from % SECTOR).min(bytes.len() - at);
        let sector = &bytes[at..at + length];
        if rng.below(2) == 0 {
            apply(
                data,
                &Change::Write {
                    place: from,
                    bytes: sector.into(),
                },
            );
        } else if data.len() < from + length {
            let known = data.len();
            data.resize(from + length, 0);
            if rubbish {
                data[known..].fill_with(|| rng.next() as u8);
            }
        }
        at += length;
    }
}

/// A process that records and drains under the shim, and what it did.
fn run(retention: u64, rng: &mut Rng) -> Vec<Entry> {
    let place = Place::new();
    let mut config = place.config();
    config["durability"] = "power".into();
    config["retention"]["maxEvents"] = retention.into();
    let plan = Plan::new("sittings", config, 1, rng);
    // Before it others have died at some step of their opening, and left what they left.
    for _ in 0..rng.below(3) {
        let plan = Plan {
            role: "openings".to_owned(),
            ..plan.clone()
        };
        let (mut child, _board) = place.start_traced(&plan, Some(1 + rng.below(60)));
        assert!(child.wait().unwrap().success());
    }
    let (mut child, _board) = place.start_traced(&plan, Some(0));
    assert!(child.wait().unwrap().success());
    let entries = entries(&place.file("journal"));
    assert_complete(&place, &entries);
    entries
}

/// What was written down is all that was done.
pub fn assert_complete(place: &Place, entries: &[Entry]) {
    let mut disk = Disk::default();
    for (when, entry) in entries.iter().enumerate() {
        disk.follow(when, entry);
    }
    let written = disk.now();
    let there: BTreeMap<String, Vec<u8>> = std::fs::read_dir(place.data())
        .unwrap()
        .map(|file| {
            let file = file.unwrap();
            let name = file.file_name().into_string().unwrap();
            (name, std::fs::read(file.path()).unwrap())
        })
        .collect();
    assert!(
        there.keys().eq(written.keys()),
        "{:?} and {:?}",
        there.keys(),
        written.keys()
    );
    for (name, bytes) in there {
        assert!(written[&name] == bytes, "{name} was changed unseen");
    }
}

pub fn what_was_acknowledged_outlives_the_loss_of_power() {
    const RUNS: u64 = 4;
    let points = number("TORTURE_POINTS", 200);
    let mut rng = Rng(seed());
    let mut total = (0, 0);
    for number in 0..RUNS {
        let retention = if number % 2 == 0 { 50_000 } else { 400 };
        let entries = run(retention, &mut rng);
        let (made, events) = images(&entries, points.div_ceil(RUNS), &mut rng);
        total = (total.0 + made, total.1 + events);
    }
    println!("{} images, {} events found in them", total.0, total.1);
}

/// Whatever the first to open the database had done of it when it died: the next
/// one makes it good before it answers anything.
pub fn who_died_while_opening_leaves_nothing_that_is_not_on_the_disk() {
    let mut rng = Rng(seed());
    let mut deaths = 0;
    while after_another("power", Some(deaths + 1), &[], 0, &mut rng) {
        deaths += 1;
    }
    println!("{deaths} deaths in an opening");
    assert!(deaths > 20, "an opening is many changes");
}

/// In the first opening or the first record, of a file or of the folder: what was
/// answered in spite of it is there, and what the next process answers.
pub fn a_sync_that_failed_at_the_beginning_takes_nothing_with_it() {
    let mut rng = Rng(seed());
    for durability in ["power", "process"] {
        let mut failures = 0;
        let faults = [Fault::SyncFails];
        while after_another(durability, Some(0), &faults, failures, &mut rng) {
            failures += 1;
        }
        println!("{durability}: {failures} syncs that failed");
        assert!(failures > 3, "an opening syncs the database and its folder");
    }
}

/// A process that makes the database and records, and ends after so many changes
/// or has a fault after so many that were none; then another that records. Looks
/// at what each leaves; false when there was neither.
fn after_another(
    durability: &str,
    changes: Option<u64>,
    faults: &[Fault],
    skip: u64,
    rng: &mut Rng,
) -> bool {
    let place = Place::new();
    let mut config = place.config();
    config["durability"] = durability.into();
    let first = Plan {
        faults: faults.to_vec(),
        rounds: skip,
        ..Plan::new("record", config, 1, rng)
    };
    let next = Plan {
        life: 2,
        faults: Vec::new(),
        ..first.clone()
    };
    for (plan, changes) in [(&first, changes), (&next, Some(0))] {
        let (mut child, _board) = place.start_traced(plan, changes);
        assert!(child.wait().unwrap().success());
        let mut said = place.said();
        let came_through = |said: &Value| said[0] == "faults" && said[1] == 0;
        if plan.life == 1 && said.last().is_some_and(came_through) {
            return false;
        }
        said.retain(|said| said[0] != "faults");
        let is_answer = |said: &Value| said[0] == "record!";
        if said.iter().any(is_answer) {
            look_at_all(&place, durability == "power", &said, rng);
        } else {
            assert_eq!(plan.life, 1, "the next one records");
        }
    }
    true
}

/// Looks at what is there, and at what losses of power leave of it.
fn look_at_all(place: &Place, loses_power: bool, said: &[Value], rng: &mut Rng) {
    const IMAGES: u64 = 6;
    let mut disk = Disk::default();
    let entries = entries(&place.file("journal"));
    for (when, entry) in entries.iter().enumerate() {
        disk.follow(when, entry);
    }
    let is_log = |entry: &Entry| matches!(entry, Entry::Made { name, .. } if name == "a.db-wal");
    assert!(entries.iter().any(is_log), "it is used without a log");
    look_at(disk.now(), said, rng);
    for _ in 0..if loses_power { IMAGES } else { 0 } {
        look_at(disk.lose_power(rng), said, rng);
    }
}

/// Loses power at random points of what was done, and looks at what is left;
/// how many images, and how many events were found in them.
pub fn images(entries: &[Entry], points: u64, rng: &mut Rng) -> (u64, u64) {
    let mut chosen: Vec<usize> = (0..points)
        .map(|number| match number % 8 {
            // The first of them while the tables are made.
            0 => rng.below(200.min(entries.len() as u64)) as usize,
            _ => rng.below(entries.len() as u64) as usize,
        })
        .collect();
    chosen.sort_unstable();
    let mut disk = Disk::default();
    let mut said: Vec<Value> = Vec::new();
    let mut done = 0;
    let mut events = 0;
    for point in chosen {
        for (when, entry) in entries.iter().enumerate().take(point).skip(done) {
            disk.follow(when, entry);
            if let Entry::Said(text) = entry {
                said.push(serde_json::from_str(text).unwrap());
            }
        }
        done = point;
        events += look_at(disk.lose_power(rng), &said, rng);
    }
    (points, events)
}

/// Opens what a loss of power left, and compares; how many events were found.
fn look_at(image: BTreeMap<String, Vec<u8>>, said: &[Value], rng: &mut Rng) -> u64 {
    let place = Place::new();
    for (name, bytes) in image {
        std::fs::write(place.data().join(name), bytes).unwrap();
    }
    if rng.below(3) == 0 {
        // The WAL's index is no part of what is kept: it may say anything.
        let rubbish: Vec<u8> = (0..32_768).map(|_| rng.next() as u8).collect();
        std::fs::write(place.data().join("a.db-shm"), rubbish).unwrap();
    }
    let mut model = Model::new(&place);
    model.check(said);
    model.size()
}
