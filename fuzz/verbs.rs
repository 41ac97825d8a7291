//! The target of the verbs: requests of any bytes through the C ABI, on a database of
//! their own. Shared by the fuzzer and by `tests/fuzz.rs`.
//!
//! An input is lines of `<verb> <request>`; in a request `@/` stands for the folder of
//! the run.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char};
use std::fs;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use session_awareness::abi::*;

pub type Verb = unsafe extern "C" fn(*mut aware_t, *const c_char, *mut *mut c_char) -> i32;

/// Every verb, by the name that an input calls it.
pub const VERBS: [(&str, Verb); 25] = [
    ("record", aware_record),
    ("state_versions", aware_state_versions),
    ("watch", aware_watch),
    ("unwatch", aware_unwatch),
    ("watches", aware_watches),
    ("session_reset", aware_session_reset),
    ("session_delete", aware_session_delete),
    ("drain_notices", aware_drain_notices),
    ("ack_notices", aware_ack_notices),
    ("wait_wakes", aware_wait_wakes),
    ("changes_since", aware_changes_since),
    ("sessions", aware_sessions),
    ("events", aware_events),
    ("backup", aware_backup),
    ("maintain", aware_maintain),
    ("stats", aware_stats),
    ("adopt", aware_adopt),
    ("release", aware_release),
    ("links", aware_links),
    ("discover", aware_discover),
    ("scan", aware_scan),
    ("set_run_active", aware_set_run_active),
    ("own_message", aware_own_message),
    ("tool_schemas", aware_tool_schemas),
    ("feed", aware_feed),
];

/// The codes of the contract by their numbers.
const CODES: [&str; 8] = [
    "",
    "invalid_argument",
    "not_found",
    "storage",
    "busy",
    "closed",
    "unsupported",
    "internal",
];

/// More lines are not carried out.
const LINES: usize = 24;

/// A folder for the time of one run.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Keeps a handle of another database open as long as the process lives. The thread for
/// file events ends with the last handle, which takes the system longer than a whole run.
#[allow(dead_code)] // A test does without.
pub fn keep_awake() {
    static KEPT: std::sync::Once = std::sync::Once::new();
    KEPT.call_once(|| {
        let folder = std::env::temp_dir().join("session-awareness-verbs-kept");
        fs::create_dir_all(&folder).unwrap();
        let config = json!({"database": folder.join("a.db"), "monitor": {"enabled": false}});
        let config = CString::new(config.to_string()).expect("JSON escapes NUL");
        open(&config).expect("a database of its own");
    });
}

/// Panics when a reply is not what the contract says of any reply.
pub fn run(data: &[u8]) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let name = format!("session-awareness-verbs-{}-{number}", std::process::id());
    // In memory where that is to be had: a run makes more files than a disk likes.
    let memory = Path::new("/dev/shm").to_owned();
    let folders = [memory, std::env::temp_dir()].map(|parent| parent.join(&name));
    let made = folders.into_iter().find(|at| fs::create_dir(at).is_ok());
    let scratch = Scratch(made.expect("a folder for the run"));
    let folder = &scratch.0;
    fs::write(
        folder.join("claude.jsonl"),
        "{\"type\":\"user\",\"uuid\":\"u\",\"message\":{\"content\":\"x\"}}\n",
    )
    .unwrap();
    fs::write(
        folder.join("pi.jsonl"),
        "{\"type\":\"session\",\"version\":3,\"id\":\"p\"}\n",
    )
    .unwrap();
    let root = folder.join("agents");
    let config = json!({
        "database": folder.join("a.db"),
        "monitor": {"enabled": false, "roots": {"claude": root, "codex": root, "opencode": root, "pi": root}},
    });
    let config = CString::new(config.to_string()).expect("JSON escapes NUL");
    let handle = open(&config).expect("a database in a new folder");
    for line in data.split(|byte| *byte == b'\n').take(LINES) {
        let at = line.iter().position(|byte| *byte == b' ');
        let (verb, request) = line.split_at(at.unwrap_or(line.len()));
        let request = placed(request, folder);
        let Ok(request) = CString::new(request) else {
            continue;
        };
        if !may_run(request.as_bytes(), folder) {
            continue;
        }
        let verb = String::from_utf8_lossy(verb);
        match VERBS.into_iter().find(|(name, _)| *name == verb) {
            Some((_, call)) => {
                let (status, reply) = ask(call, handle, &request);
                checked(&verb, status, &reply);
            }
            None if verb == "open" => {
                if let Some(other) = open(&request) {
                    assert_eq!(aware_close(other), AWARE_OK);
                }
            }
            None => {}
        }
    }
    invariants(handle);
    assert_eq!(aware_close(handle), AWARE_OK);
}

/// The request with the folder in its place.
fn placed(request: &[u8], folder: &Path) -> Vec<u8> {
    let folder = format!("{}/", folder.display());
    let mut placed = Vec::new();
    let mut rest = request;
    while let Some(at) = rest.windows(2).position(|two| two == b"@/") {
        placed.extend_from_slice(&rest[..at]);
        placed.extend_from_slice(folder.as_bytes());
        rest = &rest[at + 2..];
    }
    placed.extend_from_slice(rest);
    placed
}

/// Whether a request names no file outside of the folder, and waits for nothing.
fn may_run(request: &[u8], folder: &Path) -> bool {
    let Ok(request) = serde_json::from_slice::<Value>(request) else {
        // Nor can the library read it.
        return true;
    };
    let inside = |field: &str| match request.get(field).and_then(Value::as_str) {
        Some(path) => {
            let within = Path::new(path).strip_prefix(folder);
            within.is_ok_and(|rest| rest.components().count() <= 1 && !path.contains(".."))
        }
        None => true,
    };
    let waits = ["timeoutMs", "busyTimeoutMs"];
    waits.iter().all(|field| {
        let ms = request.get(field).and_then(Value::as_f64);
        ms.is_none_or(|ms| ms <= 2.0)
    }) && ["path", "source", "database"].into_iter().all(inside)
}

fn open(config: &CStr) -> Option<*mut aware_t> {
    let (mut handle, mut reply) = (null_mut(), null_mut());
    // SAFETY: NUL-terminated, with room for both.
    let status = unsafe { aware_open(config.as_ptr(), &mut handle, &mut reply) };
    checked("open", status, &taken(reply));
    assert_eq!(status == AWARE_OK, !handle.is_null());
    (status == AWARE_OK).then_some(handle)
}

fn ask(verb: Verb, handle: *mut aware_t, request: &CStr) -> (i32, String) {
    let mut reply = null_mut();
    // SAFETY: NUL-terminated, with room for the reply.
    let status = unsafe { verb(handle, request.as_ptr(), &mut reply) };
    (status, taken(reply))
}

fn taken(reply: *mut c_char) -> String {
    assert!(!reply.is_null(), "a reply is never left NULL");
    // SAFETY: a reply of the library, freed once.
    unsafe {
        let text = CStr::from_ptr(reply).to_str().expect("a reply is UTF-8");
        let text = text.to_owned();
        aware_string_free(reply);
        text
    }
}

/// Holds a reply to its status.
fn checked(verb: &str, status: i32, reply: &str) -> Value {
    let reply: Value = serde_json::from_str(reply).expect("a reply is JSON");
    let code = reply.pointer("/error/code");
    let expected = usize::try_from(status).ok().and_then(|at| CODES.get(at));
    match (status, code) {
        (AWARE_OK, None) => assert!(reply.is_object()),
        (_, Some(code)) => {
            assert_eq!(code.as_str(), expected.copied(), "{verb}: {reply}");
            let message = reply.pointer("/error/message").and_then(Value::as_str);
            assert!(message.is_some_and(|message| !message.is_empty()));
        }
        _ => panic!("{verb} answers {status} with {reply}"),
    }
    assert_ne!(status, AWARE_INTERNAL, "{verb}: {reply}");
    // Any file may be named as a database.
    assert!(status != AWARE_STORAGE || verb == "open", "{verb}: {reply}");
    bounded(&reply);
    reply
}

/// Numbers of replies stay below 2^53.
fn bounded(value: &Value) {
    match value {
        Value::Number(number) => {
            assert!(
                number
                    .as_f64()
                    .is_some_and(|n| n.abs() < 9_007_199_254_740_992.0),
                "{number}"
            );
        }
        Value::Array(items) => items.iter().for_each(bounded),
        Value::Object(fields) => fields.values().for_each(bounded),
        _ => {}
    }
}

/// What holds whatever was asked for.
fn invariants(handle: *mut aware_t) {
    let all = |verb: Verb| {
        let (status, reply) = ask(verb, handle, c"{}");
        assert_eq!(status, AWARE_OK, "{reply}");
        checked("list", status, &reply)
    };
    let number = |value: &Value| value.as_u64().expect("a whole number");
    for watch in all(aware_watches)["watches"].as_array().expect("a list") {
        let [seen, notified, material] =
            ["lastSeen", "notified", "material"].map(|at| number(&watch[at]));
        assert!(seen <= notified && notified <= material, "{watch}");
        assert_eq!(watch["pending"], notified > seen, "{watch}");
        let drain = json!({"watcherSessionKey": watch["watcherSessionKey"], "ack": false});
        let drain = CString::new(drain.to_string()).expect("no NUL");
        let (status, reply) = ask(aware_drain_notices, handle, &drain);
        for notice in checked("drain_notices", status, &reply)["notices"]
            .as_array()
            .expect("a list")
        {
            let text = notice["text"].as_str().expect("a text");
            let ends = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
            assert!(!text.contains(ends), "{text:?}");
        }
    }
    let mut last = 0;
    for event in all(aware_events)["events"].as_array().expect("a list") {
        assert!(number(&event["sequence"]) > last, "{event}");
        last = number(&event["sequence"]);
        let summary = event["summary"].as_str().expect("a summary");
        assert!(
            summary.chars().count() <= 200
                && !summary.contains(['\n', '\r', '\u{2028}', '\u{2029}'])
        );
    }
    all(aware_sessions);
    all(aware_links);
    all(aware_stats);
}
