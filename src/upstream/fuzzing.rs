//! What holds for any bytes in an agent's files.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::act::Act;
use super::agent::{self, Case, Judge, scan};
use super::opencode;
use super::print::{Key, Secret};
use super::rows::{self, Query, Slice};
use super::sift::{End, Sifter, Value, Want};
use super::source::Source;

const THREAD: &str = "ses_fuzz";

/// More is not saved with a position, in bytes.
const STATE: usize = 64 * 1024;

/// A folder for the time of one run.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("session-awareness-fuzz-{}-{number}", std::process::id());
        // In memory where that is to be had: a run makes more files than a disk likes.
        let memory = Path::new("/dev/shm").to_owned();
        let folders = [memory, std::env::temp_dir()].map(|parent| parent.join(&name));
        let made = folders.into_iter().find(|at| fs::create_dir(at).is_ok());
        Scratch(made.expect("a folder for the run"))
    }

    /// A file in it with these bytes.
    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).expect("a folder of the run's own");
        }
        fs::write(&path, bytes).expect("a file of the run's own");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn secret() -> Secret {
    Secret::new([7; 32])
}

fn slice(bytes: u64) -> Slice<'static> {
    Slice {
        bytes,
        ..Slice::WHOLE
    }
}

/// Sizes of pieces that differ from input to input, and are the same each time; of a
/// long one they are larger, so that there are not too many.
fn sizes(data: &[u8]) -> impl Iterator<Item = usize> {
    let mut seed = data.iter().fold(data.len() as u32, |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(u32::from(*byte))
    });
    let most = 90.max(data.len() / 64);
    std::iter::repeat_with(move || {
        seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        1 + (seed >> 16) as usize % most
    })
}

/// Cuts bytes into such pieces.
fn pieces(data: &[u8]) -> Vec<&[u8]> {
    let mut rest = data;
    let mut pieces = Vec::new();
    for size in sizes(data) {
        if rest.is_empty() {
            break;
        }
        let (piece, left) = rest.split_at(size.min(rest.len()));
        pieces.push(piece);
        rest = left;
    }
    pieces
}

pub(crate) fn claude(data: &[u8]) {
    rows_of("claude", data);
}

pub(crate) fn codex(data: &[u8]) {
    rows_of("codex", data);
}

pub(crate) fn pi(data: &[u8]) {
    rows_of("pi", data);
}

/// A judge that has every row read.
pub(super) struct Thorough(pub Box<dyn Judge>);

impl Judge for Thorough {
    fn want(&self) -> &'static Want {
        self.0.want()
    }

    fn judge(&mut self, row: &Value) -> Option<Act> {
        self.0.judge(row)
    }

    fn save(&self) -> String {
        self.0.save()
    }

    fn renew(&mut self) {
        self.0.renew();
    }
}

/// Whether the bytes begin as those of a compressed file do.
fn is_packed(data: &[u8]) -> bool {
    data.starts_with(b"\x28\xb5\x2f\xfd")
        || data.len() >= 4 && data[0] & 0xf0 == 0x50 && data[1..4] == *b"\x2a\x4d\x18"
}

/// A session file of the agent: a pass in slices, stopped and begun again after each,
/// tells what one pass tells; so does one that skips no row unread; and rows handed
/// over again are known.
fn rows_of(catalog: &str, data: &[u8]) {
    let scratch = Scratch::new();
    let path = scratch.file("rollout-session.jsonl", data);
    let secret = secret();
    let of = |path| Case {
        secret: &secret,
        thread: THREAD,
        path,
    };
    let known = super::agent(catalog).expect("an agent of this name");
    let judge = |path, saved: Option<&str>| {
        let judge = known.judge(of(path), saved);
        judge.expect("what a judge saved is understood")
    };
    if is_packed(data) {
        // Any bytes for a compressed file: an error or an end.
        if let Ok(mut source) = Source::open(&path) {
            let mut judge = judge(Some(&path), None);
            drop(scan(
                &mut source,
                0,
                slice(1 << 20),
                &secret,
                &mut *judge,
                drop,
            ));
        }
        drop(agent::head(known, &path));
        return;
    }
    let mut source = Source::open(&path).expect("a file of the run's own");
    let mut pass = |judge: &mut dyn Judge, from, slice| {
        let mut acts = Vec::new();
        let reached = scan(&mut source, from, slice, &secret, judge, |act| {
            acts.push(act)
        });
        (acts, reached.expect("a file that can be read"))
    };
    let (whole, reached) = pass(&mut *judge(Some(&path), None), 0, Slice::WHOLE);
    assert!(!reached.more);
    let end = data.iter().rposition(|byte| *byte == b'\n');
    assert_eq!(reached.position, end.map_or(0, |at| at as u64 + 1));

    let mut thorough = Thorough(judge(Some(&path), None));
    assert_eq!(
        pass(&mut thorough, 0, Slice::WHOLE).0,
        whole,
        "every row read"
    );

    let (mut sliced, mut saved, mut position) = (Vec::new(), None::<String>, 0);
    for size in sizes(data) {
        let mut judge = judge(Some(&path), saved.as_deref());
        let (acts, reached) = pass(&mut *judge, position, slice(size as u64));
        sliced.extend(acts);
        let state = judge.save();
        assert!(state.len() < STATE, "{} bytes are saved", state.len());
        saved = Some(state);
        assert!(
            reached.position > position || !reached.more,
            "no way is made"
        );
        position = reached.position;
        if !reached.more {
            break;
        }
    }
    assert_eq!((position, sliced), (reached.position, whole), "in slices");

    let lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let mut judge = judge(None, None);
    let mut feed = || -> Vec<Act> {
        judge.renew();
        let acts = lines.iter();
        acts.filter_map(|line| agent::feed(line, &secret, &mut *judge))
            .collect()
    };
    // A header may come behind rows that it names, and headers that contradict
    // each other are taken in one after another: what is told comes to an end.
    if lines.len() <= 64 {
        let mut told: Vec<Key> = Vec::new();
        let settles = (0..8).any(|_| {
            let acts = feed();
            let known = acts
                .iter()
                .all(|act| act.keys().any(|key| told.contains(&key)));
            told.extend(acts.iter().flat_map(Act::keys));
            known
        });
        assert!(settles, "turns are told again and again");
    }
    drop(agent::head(known, &path));
}

static WANT: Want = Want::Fields(&[
    ("type", Want::Scalar),
    ("n", Want::Scalar),
    ("s", Want::Scalar),
    ("p", Want::Presence),
    ("l", Want::Items(&Want::Scalar)),
    ("o", Want::Fields(&[("n", Want::Scalar)])),
]);

/// The rows of a file from a position on, how many lines were damaged, and where the
/// reading ended.
fn read(source: &mut Source, from: u64, bytes: u64) -> (Vec<Value>, u64, u64, bool) {
    let mut rows = Vec::new();
    let secret = secret();
    let query = Query {
        secret: &secret,
        want: &WANT,
        needles: &[],
    };
    let reached = rows::read(source, from, slice(bytes), query, |row| {
        rows.push(row);
        true
    });
    let reached = reached.expect("a file that can be read");
    (rows, reached.damaged, reached.position, reached.more)
}

/// The reader of files: the same rows in one go, in slices, from a file that grows
/// between two readings, and from a compressed one; and whatever the pieces are that a
/// row comes in, the same of it. What another reader of JSON takes is taken too.
pub(crate) fn tail(data: &[u8]) {
    let scratch = Scratch::new();
    let plain = scratch.file("plain", data);
    let open = |path: &Path| Source::open(path).expect("a file of the run's own");
    if is_packed(data) {
        // Any bytes for a compressed file: an error or an end.
        let secret = secret();
        let query = Query {
            secret: &secret,
            want: &WANT,
            needles: &[],
        };
        if let Ok(mut source) = Source::open(&plain) {
            drop(rows::read(&mut source, 0, slice(1 << 20), query, |_| true));
            drop(source.mark(4, &secret));
        }
        return;
    }
    let whole = read(&mut open(&plain), 0, u64::MAX);
    assert!(!whole.3);
    let end = data.iter().rposition(|byte| *byte == b'\n');
    assert_eq!(whole.2, end.map_or(0, |at| at as u64 + 1));

    let mut joined = (Vec::new(), 0, 0, true);
    let mut take = |part: (Vec<Value>, u64, u64, bool)| {
        joined.0.extend(part.0);
        joined.1 += part.1;
        (joined.2, joined.3) = (part.2, part.3);
        (part.2, part.3)
    };
    let mut source = open(&plain);
    let mut position = 0;
    for size in sizes(data) {
        let (reached, more) = take(read(&mut source, position, size as u64));
        assert!(reached > position || !more, "no way is made");
        position = reached;
        if !more {
            break;
        }
    }
    assert_eq!(joined, whole, "in slices");

    let mut grown = (Vec::new(), 0, 0, false);
    let path = scratch.file("grown", b"");
    let file = fs::OpenOptions::new().append(true).open(&path);
    let mut file = file.expect("a file of the run's own");
    for piece in pieces(data) {
        file.write_all(piece).expect("a file of the run's own");
        let part = read(&mut open(&path), grown.2, u64::MAX);
        grown.0.extend(part.0);
        grown.1 += part.1;
        (grown.2, grown.3) = (part.2, part.3);
    }
    assert_eq!(grown, whole, "from a file that grows");

    if !data.is_empty() {
        let frames = pieces(data).into_iter();
        let frames = frames.map(|piece| zstd::encode_all(piece, 1).expect("a frame"));
        let file = scratch.file("packed", &frames.collect::<Vec<_>>().concat());
        assert_eq!(read(&mut open(&file), 0, u64::MAX), whole, "compressed");
    }

    let secret = secret();
    for line in data.split(|byte| *byte == b'\n') {
        let sift = |pieces: &[&[u8]]| {
            let mut sifter = Sifter::new(&secret, &WANT);
            let fed = pieces.iter().try_for_each(|piece| sifter.feed(piece));
            fed.map(|()| sifter.end())
        };
        let at_once = sift(&[line]);
        assert_eq!(
            sift(&line.chunks(1).collect::<Vec<_>>()),
            at_once,
            "byte by byte"
        );
        assert_eq!(sift(&pieces(line)), at_once, "in pieces");
        if let Ok(json @ serde_json::Value::Object(_)) = serde_json::from_slice(line) {
            let Ok(End::Row(row)) = at_once else {
                panic!("a sound row is not read: {json}");
            };
            agrees(&row, &json);
        }
    }
}

/// Whether what was kept of a row is what another reader finds in it.
fn agrees(row: &Value, json: &serde_json::Value) {
    for (value, json) in [
        (row.get("n"), &json["n"]),
        (row.get("o").get("n"), &json["o"]["n"]),
    ] {
        if let Some(number) = json.as_i64().filter(|n| n.unsigned_abs() <= 1 << 53) {
            assert_eq!(value.integer(), Some(number));
        } else if json.is_u64() || json.is_i64() || json.is_string() {
            assert_eq!(value.integer(), None, "{json}");
        }
    }
    if let Some(text) = json["s"].as_str().filter(|text| text.len() <= 512) {
        assert_eq!(row.get("s").str(), Some(text));
    }
    assert_eq!(row.get("p").is_present(), !json["p"].is_null());
    if let Some(items) = json["l"].as_array().filter(|items| items.len() <= 4096) {
        assert_eq!(row.get("l").items().len(), items.len());
    }
}

const TABLES: &str = "PRAGMA synchronous = OFF;
    CREATE TABLE session (id text PRIMARY KEY, parent_id text, directory text, time_created, time_updated);
    CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created, data text);
    CREATE TABLE part (id text PRIMARY KEY, message_id text, time_updated, data text);
    INSERT INTO session VALUES ('ses_fuzz', NULL, '/', 0, 0);";

/// A store of OpenCode: rows that are handed over, one by one or at once, and the same
/// rows as a database and as a tree of files, read in slices or at once, tell the same.
pub(crate) fn opencode(data: &[u8]) {
    let secret = secret();
    let lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let start = opencode::Position::default;
    let at_once = opencode::feed(THREAD, &start(), lines.iter().copied(), &secret);
    let mut position = start();
    let mut acts = Vec::new();
    for line in &lines {
        let reading = opencode::feed(THREAD, &position, [*line], &secret);
        acts.extend(reading.acts);
        position = saved(&reading.position);
    }
    assert_eq!(
        (acts, position),
        (at_once.acts, at_once.position),
        "one by one"
    );

    let scratch = Scratch::new();
    let database = scratch.0.join("opencode.db");
    let conn = rusqlite::Connection::open(&database).expect("a database of the run's own");
    conn.execute_batch(TABLES).expect("its tables");
    let _ = conn.execute_batch("BEGIN");
    scratch.file(
        "storage/session/p/ses_fuzz.json",
        br#"{"id":"ses_fuzz","time":{"created":0}}"#,
    );
    for (nth, line) in lines.iter().take(64).enumerate() {
        let Ok(json) = serde_json::from_slice::<serde_json::Value>(line) else {
            // A cell need be no JSON.
            let id = format!("m{nth}");
            let insert = "INSERT INTO message VALUES (?1, 'ses_fuzz', NULL, ?2)";
            let _ = conn.execute(insert, rusqlite::params![id, line]);
            scratch.file(&format!("storage/message/ses_fuzz/{id}.json"), line);
            continue;
        };
        let (info, parts) = (&json["info"], &json["parts"]);
        let id = info["id"].as_str().map_or(format!("m{nth}"), str::to_owned);
        let time = info["time"]["created"].as_i64();
        let insert = "INSERT OR IGNORE INTO message VALUES (?1, 'ses_fuzz', ?2, ?3)";
        let _ = conn.execute(insert, rusqlite::params![id, time, info.to_string()]);
        let plain =
            |id: &str| id.len() < 200 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if plain(&id) {
            let info = info.to_string();
            scratch.file(
                &format!("storage/message/ses_fuzz/{id}.json"),
                info.as_bytes(),
            );
        }
        for (at, part) in parts.as_array().into_iter().flatten().take(16).enumerate() {
            let name = format!("p{nth}_{at:02}");
            let insert = "INSERT OR IGNORE INTO part VALUES (?1, ?2, ?3, ?4)";
            let _ = conn.execute(insert, rusqlite::params![name, id, time, part.to_string()]);
            if plain(&id) {
                let part = part.to_string();
                scratch.file(&format!("storage/part/{id}/{name}.json"), part.as_bytes());
            }
        }
    }
    let _ = conn.execute_batch("COMMIT");
    drop(conn);
    for source in [&database, &scratch.0] {
        let whole = read_store(source, u64::MAX).expect("a store that can be read");
        let sliced = read_store(source, 1).expect("a store that can be read");
        assert_eq!(sliced, whole, "in slices");
    }
}

/// A position after it was stored.
fn saved(position: &opencode::Position) -> opencode::Position {
    let json = serde_json::to_string(position).expect("a position is JSON");
    assert!(json.len() < STATE, "{} bytes are saved", json.len());
    serde_json::from_str(&json).expect("what was saved is understood")
}

/// Reads the session in slices of so many bytes.
fn read_store(source: &Path, bytes: u64) -> opencode::Result<Vec<Act>> {
    let mut store = opencode::Store::new(source);
    let mut position = opencode::Position::default();
    let mut acts = Vec::new();
    // Each slice takes in one message at least.
    for _ in 0..1_000 {
        let Some(reading) = store.read(THREAD, &position, &secret(), slice(bytes))? else {
            break;
        };
        acts.extend(reading.acts);
        position = saved(&reading.position);
        if !reading.more {
            break;
        }
    }
    Ok(acts)
}

/// Any bytes for an `opencode.db`: it is read, or it is an error.
pub(crate) fn opencode_file(data: &[u8]) {
    let scratch = Scratch::new();
    // What stands behind this is its log.
    let mark = b"--wal--";
    let cut = data.windows(mark.len()).position(|bytes| bytes == mark);
    let (file, log) = match cut {
        Some(at) => (&data[..at], &data[at + mark.len()..]),
        None => (data, &b""[..]),
    };
    let path = scratch.file("opencode.db", file);
    if !log.is_empty() {
        scratch.file("opencode.db-wal", log);
    }
    let mut store = opencode::Store::new(&path);
    let position = opencode::Position::default();
    let mut threads = vec![THREAD.to_owned()];
    if let Ok(found) = store.discover(3) {
        assert!(found.len() <= 3);
        threads.extend(found.into_iter().map(|found| found.thread));
    }
    for thread in &threads {
        let link = opencode::Link {
            thread,
            position: &position,
        };
        let _ = store.look(&[link]);
        let _ = store.holds(thread);
    }
    let _ = read_store(&path, 1 << 16);
}
