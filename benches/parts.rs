//! Parts of the table by criterion: `record` with one watcher and a page of changes
//! through the C ABI, beside the same rows written by hand: `make bench-parts`.
//! Only the ratio of one run says anything, since machines differ and are noisy.
#![allow(unsafe_code, missing_docs)]

use std::ffi::{CString, c_char};
use std::hint::black_box;
use std::ptr::null_mut;

use criterion::{Criterion, criterion_group, criterion_main};
use rusqlite::{Connection, params};
use session_awareness::abi;

const CHILD: &str = "agent:main:subagent:child";
const MANAGER: &str = "agent:main:main";

type Verb = unsafe extern "C" fn(*mut abi::aware_t, *const c_char, *mut *mut c_char) -> i32;

fn call(verb: Verb, handle: *mut abi::aware_t, request: &CString) {
    let mut reply = null_mut();
    // SAFETY: NUL-terminated, with room for the reply, which is freed once.
    unsafe {
        assert_eq!(verb(handle, request.as_ptr(), &mut reply), abi::AWARE_OK);
        abi::aware_string_free(black_box(reply));
    }
}

fn text(json: &serde_json::Value) -> CString {
    CString::new(json.to_string()).unwrap()
}

fn through_the_abi(c: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let config = text(&serde_json::json!({"database": folder.path().join("a.db")}));
    let mut handle = null_mut();
    // SAFETY: NUL-terminated, with room for the handle.
    unsafe { abi::aware_open(config.as_ptr(), &mut handle, null_mut()) };
    let watch = serde_json::json!({"watcherSessionKey": MANAGER, "targetSessionKey": CHILD});
    call(abi::aware_watch, handle, &text(&watch));
    let event = text(&serde_json::json!({
        "sessionKey": CHILD, "kind": "human_direct_message", "actorType": "human", "payload": {"channel": "telegram"},
    }));
    c.bench_function("record/abi", |b| {
        b.iter(|| call(abi::aware_record, handle, &event))
    });
    let reply = text(&serde_json::json!({"sessionKey": CHILD, "changesSince": 0}));
    c.bench_function("changes_since/abi, 200 events", |b| {
        b.iter(|| call(abi::aware_changes_since, handle, &reply))
    });
    assert_eq!(abi::aware_close(handle), abi::AWARE_OK);
}

/// The library's tables and rows, by somebody who knows exactly what he wants.
fn by_hand(c: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let conn = Connection::open(folder.path().join("a.db")).unwrap();
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -2000;",
    )
    .unwrap();
    conn.execute_batch(include_str!("../src/store/schema-1.0.sql"))
        .unwrap();
    conn.execute(
        "INSERT INTO session_watch_cursors(watcher_session_key, target_agent_id, target_session_key, last_seen,
           notified, material, provenance, notify_kinds, touched_at) VALUES (?1, 'main', ?2, 0, 1, 1, 'explicit', 7, 0)",
        [MANAGER, CHILD],
    )
    .unwrap();
    c.bench_function("record/by hand", |b| {
        b.iter(|| {
            let run = |sql: &str| conn.prepare_cached(sql).unwrap().execute([]).unwrap();
            run("BEGIN IMMEDIATE");
            conn.prepare_cached(
                "INSERT INTO session_state_events(session_key, agent_id, kind, actor_type, occurred_at, recorded_at,
                   summary, payload_json, public_json) VALUES (?1, 'main', 'human_direct_message', 'human', ?2, ?2,
                   'human message via telegram', ?3, ?3)",
            )
            .unwrap()
            .execute(params![CHILD, 1_790_000_000_000_i64, r#"{"channel":"telegram"}"#])
            .unwrap();
            let sequence = conn.last_insert_rowid();
            conn.prepare_cached(
                "INSERT INTO session_state_heads(agent_id, session_key, last_sequence) VALUES ('main', ?1, ?2)
                 ON CONFLICT DO UPDATE SET last_sequence = excluded.last_sequence",
            )
            .unwrap()
            .execute(params![CHILD, sequence])
            .unwrap();
            conn.prepare_cached(
                "UPDATE session_watch_cursors SET material = ?2, touched_at = ?3
                 WHERE target_session_key = ?1 AND target_agent_id = 'main' AND notify_kinds & 1",
            )
            .unwrap()
            .execute(params![CHILD, sequence, 1_790_000_000_000_i64])
            .unwrap();
            run("COMMIT");
        });
    });
}

criterion_group!(benches, through_the_abi, by_hand);
criterion_main!(benches);
