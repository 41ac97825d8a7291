//! The exported functions. cbindgen makes the header from this file, comments and all.

use std::ffi::{c_char, c_void};

use serde::Serialize;

use super::guard::{
    FEED_BYTES, REQUEST_BYTES, answer, keep_in, read, status_of, verb, verb_of, verb_to_text,
};
use super::{logging, registry};
use crate::contract::{
    AckNotices, Adopt, Backup, Batch, ChangesSince, Config, Discover, DrainNotices, Error,
    EventsRequest, Feed, LinksRequest, Nothing, OwnMessage, RecordReply, RecordRequest, Result,
    Scan, SessionDelete, SessionRef, SessionReset, SessionsRequest, SetRunActive, StateVersions,
    ToolSchemas, Unwatch, WaitWakes, Wake, Watch, Watches,
};
use crate::engine::{Awareness, WakeHandler};

/// The number aware_abi_version answers: bumped when the ABI changes incompatibly.
pub const AWARE_ABI_VERSION: u32 = 1;

/// The call was carried out; the reply is its answer.
pub const AWARE_OK: i32 = 0;
/// `invalid_argument`: the request is wrong, nothing was stored; `field` names the part at fault.
pub const AWARE_INVALID_ARGUMENT: i32 = 1;
/// `not_found`: what the request names does not exist.
pub const AWARE_NOT_FOUND: i32 = 2;
/// `storage`: the database could not be read or written; the message says why. Reads go on where they can, and
/// writing goes on by itself when the fault has passed: a full disk has room again, the file is at its path
/// again, or another is (which is then used). Where the file holds what this library never wrote, the
/// handle writes nothing more to it, not even at aware_close, until it is opened anew or another file is
/// at the path; other handles and processes find out for themselves. A damaged file is never mended or
/// replaced by the library.
pub const AWARE_STORAGE: i32 = 3;
/// `busy`: another process held the database for longer than `busyTimeoutMs`, or the call cannot be
/// carried out from inside this callback. Nothing was done.
pub const AWARE_BUSY: i32 = 4;
/// `closed`: the handle is closed, was never opened, or was taken across a fork.
pub const AWARE_CLOSED: i32 = 5;
/// `unsupported`: the library, this handle or this file system does not offer it.
pub const AWARE_UNSUPPORTED: i32 = 6;
/// `internal`: a fault of the library; the handle stays usable.
pub const AWARE_INTERNAL: i32 = 7;

/// An open database. The pointer is a key, never dereferenced: a call with a
/// closed, foreign or inherited one answers `closed`.
#[allow(non_camel_case_types)]
pub struct aware_t {
    _opaque: (),
}

/// Called with each wake: `user` as it was set, `wake_json` as one element of
/// aware_wait_wakes' `wakes`, valid for the call. It must return: no exception,
/// longjmp or pthread_exit may leave it. A child of fork that returns from it ends.
#[allow(non_camel_case_types)]
pub type aware_wake_callback =
    Option<unsafe extern "C" fn(user: *mut c_void, wake_json: *const c_char)>;

/// Called with each line the library logs: `user` as it was set, `level` 1
/// error, 2 warn, 3 info, 4 debug, 5 trace; both strings are valid for the
/// call. It may call nothing of the library (every call answers `busy`), must
/// not wait for a thread that is inside the library, and must return: no
/// exception, longjmp or pthread_exit may leave it, and no child of fork.
#[allow(non_camel_case_types)]
pub type aware_log_callback = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        level: i32,
        target: *const c_char,
        message: *const c_char,
    ),
>;

/// The version of the ABI, AWARE_ABI_VERSION of the header it was built with.
/// A binding compares the two when it loads the library. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn aware_abi_version() -> u32 {
    AWARE_ABI_VERSION
}

/// The library's version, like "1.2.3": static, not to be freed. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn aware_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// What aware_open answers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Opened {
    opened: bool,
    abi_version: u32,
    version: &'static str,
}

/// Opens a database: makes or migrates it, opens pending notices up to their
/// newest change, raises their wakes, prunes up to 1,000 rows and starts the
/// handle's threads.
///
/// `config_json`: `{"database": path (required), "create"?: true, "readOnly"?: false, "durability"?:
/// "process"|"power", "retention"?: {"maxAgeMs"?: 2592000000, "maxEvents"?: 50000}, "monitor"?:
/// {"enabled"?: true, "intervalMs"?: 60000, "initialDelayMs"?: 15000, "fileEvents"?: true, "roots"?:
/// {"claude"?, "codex"?, "opencode"?, "pi"?}}, "wakes"?: {"agents": [...]}, "busyTimeoutMs"?: 5000}`. `handle`
/// receives the handle, NULL on an error. `reply` receives `{"opened": true, "abiVersion", "version"}` or the
/// error; it may be NULL.
///
/// The file is made with mode 0600; its folder must be there. With `durability` `process` an event outlives the
/// death of the process, with `power` that of the machine. `retention` says what is kept. `monitor` is how
/// adopted sessions are watched: a pass starts within 50 ms of a file event, and every `intervalMs`; each
/// of `roots` is an agent's own home, where it is not the usual one (`~/.claude`, `~/.codex`,
/// `~/.local/share/opencode`, `~/.pi/agent`): a folder, a relative one from where the process is now.
/// `wakes.agents`: only wakes for watchers of these agents are offered to this handle. `readOnly` opens readers
/// alone: what would change something is `unsupported`, and no wakes come.
///
/// Any thread. Blocks for as long as another process migrates or writes, at
/// most `busyTimeoutMs` for each of both. The handle is closed with aware_close, the reply
/// freed with aware_string_free. Errors: invalid_argument, not_found (no file,
/// and none is to be made), unsupported (made by a newer version; a network
/// file system; a child of fork whose parent had handles open; another copy of
/// this library in this process has it open for writing, and so is this to be),
/// storage, busy, internal.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_open(
    config_json: *const c_char,
    handle: *mut *mut aware_t,
    reply: *mut *mut c_char,
) -> i32 {
    if !handle.is_null() {
        // SAFETY: not NULL, so room for a pointer, as promised by the caller.
        unsafe { handle.write(std::ptr::null_mut()) };
    }
    // SAFETY: as promised by the caller.
    unsafe {
        answer(reply, || {
            if handle.is_null() {
                return Err(Error::invalid(
                    "handle",
                    "the out pointer for the handle is NULL",
                ));
            }
            let config: Config =
                crate::contract::parse(read(config_json, "config", REQUEST_BYTES)?)?;
            let key = registry::add(Awareness::open(config)?);
            handle.write(key);
            Ok(Opened {
                opened: true,
                abi_version: AWARE_ABI_VERSION,
                version: env!("CARGO_PKG_VERSION"),
            })
        })
    }
}

/// Closes a handle: writes what is queued, waits for calls in flight, wakes a
/// blocked aware_wait_wakes (it answers `closed`), stops and joins the
/// handle's threads.
///
/// Any thread. Blocks until that is done: at most two seconds for what hangs in an agent's file, and
/// four times `busyTimeoutMs` when another process holds the database. Answers AWARE_OK; AWARE_CLOSED for a
/// handle that is NULL, closed already or was never open; AWARE_BUSY, closing
/// nothing, from inside the handle's own wake callback.
#[unsafe(no_mangle)]
pub extern "C" fn aware_close(handle: *mut aware_t) -> i32 {
    status_of(&keep_in(|| {
        if registry::get(handle)?.inside_handler() {
            return Err(Error::new(
                crate::contract::Code::Busy,
                "inside the handle's own wake callback",
            ));
        }
        registry::remove(handle)?.close()
    }))
}

/// Frees a reply of this library; NULL is fine. Any thread. Never free a reply
/// by other means, nor one twice.
///
/// # Safety
/// `reply_json` is NULL or a reply of this library that was not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_string_free(reply_json: *mut c_char) {
    if !reply_json.is_null() {
        // SAFETY: made by CString::into_raw in `answer`, freed once, as promised by the caller.
        drop(unsafe { std::ffi::CString::from_raw(reply_json) });
    }
}

/// The read end of a non-blocking pipe that is readable while wakes wait, for
/// event loops; -1 when there is none (closed, read only, no descriptor left).
///
/// It is the library's: never close it; it goes with the handle (who closes it
/// loses it alone). Reading its bytes is fine. When it is readable, call
/// aware_wait_wakes with `timeoutMs` 0 until the reply is empty. Any thread,
/// never blocks.
#[unsafe(no_mangle)]
pub extern "C" fn aware_wake_fd(handle: *mut aware_t) -> i32 {
    keep_in(|| registry::get(handle)?.wake_fd()).unwrap_or(-1)
}

/// Sets who is called with each wake, on a library thread, under no lock; NULL
/// for nobody. While set, it alone gets the wakes.
///
/// Every verb may be called from it; aware_close of the same handle answers
/// `busy` there. Returns when no call of the old callback is running, at once
/// from inside it; after that the old `user` may go. Any thread. Answers
/// AWARE_OK, AWARE_CLOSED or AWARE_INTERNAL.
///
/// # Safety
/// `callback` is NULL or such a function, callable from any thread; `user` is
/// what it expects until it is replaced or the handle is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_set_wake_callback(
    handle: *mut aware_t,
    callback: aware_wake_callback,
    user: *mut c_void,
) -> i32 {
    struct Host {
        callback: unsafe extern "C" fn(*mut c_void, *const c_char),
        user: *mut c_void,
    }
    // SAFETY: `user` is only handed back to the host, whose callback may be called from any thread.
    unsafe impl Send for Host {}
    // SAFETY: as above; nothing here reads through it.
    unsafe impl Sync for Host {}
    impl Host {
        fn call(&self, wake: &Wake) {
            let json = serde_json::to_vec(wake).unwrap_or_default();
            let text = std::ffi::CString::new(json).unwrap_or_default();
            // SAFETY: the host promised both; the text lives for the call.
            unsafe { (self.callback)(self.user, text.as_ptr()) };
        }
    }
    let host = callback.map(|callback| Host { callback, user });
    status_of(&keep_in(|| {
        let handler = host.map(|host| Box::new(move |wake: &Wake| host.call(wake)) as WakeHandler);
        registry::get(handle)?.set_wake_handler(handler)
    }))
}

/// Sets who is told what the library logs up to `max_level` (1 error to 5
/// trace), for the whole process; NULL for nobody. No line ever holds message text.
///
/// Returns when no call of the old callback is running, at once from inside
/// it; after that the old `user` may go. Any thread.
///
/// # Safety
/// `callback` is NULL or such a function, callable from any thread; `user` is
/// what it expects until it is replaced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_set_log_callback(
    callback: aware_log_callback,
    user: *mut c_void,
    max_level: i32,
) {
    logging::set(callback, user, max_level);
}

fn record(aware: &Awareness, request: RecordRequest) -> Result<RecordReply> {
    let wait = request.wait.unwrap_or(true);
    match request.into_batch()? {
        Batch::One(event) if wait => aware.record(*event).map(RecordReply::One),
        Batch::Many(events) if wait => aware
            .record_batch(events)
            .map(|results| RecordReply::Batch { results }),
        Batch::One(event) => aware.record_queued(vec![*event]).map(RecordReply::Queued),
        Batch::Many(events) => aware.record_queued(events).map(RecordReply::Queued),
    }
}

/// Records an event, or a batch of them, and tells the watchers.
///
/// Request: `{"sessionKey", "agentId"?, "sessionId"?, "kind", "actorType": "human"|"agent"|"system",
/// "actorId"?, "runId"?, "summary"?, "payload"?, "dedupeKey"?, "occurredAt"?, "watcherSessionKeys"?,
/// "onlyIfWatched"?, "wait"?}` or `{"events": [...], "wait"?}` with up to 1,000 of these (all or
/// nothing). `kind` is one of `human_direct_message`, `upstream_missing`, `goal_changed` (these notify),
/// `child_spawned` (seeds the cursors of `watcherSessionKeys`), `run_completed`, `run_failed`,
/// `compacted`, `adopted`. `summary` is one line of at most 200 characters, `payload` an object of at
/// most 4 KiB; never put message text in either. `occurredAt` is in ms since the epoch, clamped to the
/// last 24 hours.
///
/// Reply: `{"recorded": true, "duplicate": false, "event": {...}}`; a known `dedupeKey` answers the first
/// event with `"duplicate": true`; `{"recorded": false, "reason": "unwatched"}`; for a batch
/// `{"results": [...]}`; with `"wait": false` `{"queued": true}` or `{"queued": false, "reason": "full"}`.
///
/// Blocks: until the commit; with `"wait": false` never. Errors: invalid_argument, storage and busy (logged
/// and counted in stats), closed, unsupported (read only), internal. A failing record must not fail the
/// turn that caused it.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_record(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb_to_text(handle, request_json, reply_json, |aware, request, out| {
            record(aware, request).map(|reply| reply.write(out))
        })
    }
}

/// Tells how far the logs of up to 1,000 sessions have come.
///
/// Request: `{"sessions": [{"sessionKey", "agentId"?}]}`. Reply: `{"versions": [{"sessionKey", "agentId",
/// "stateVersion"}]}`, in the request's order, 0 when nothing is logged.
///
/// Blocks: for a read. Errors: invalid_argument, storage, closed, internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_state_versions(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb_to_text(
            handle,
            request_json,
            reply_json,
            |aware, request: StateVersions, out| aware.write_state_versions(&request, out),
        )
    }
}

/// Registers a watch, starting at the target's present version.
///
/// Request: `{"watcherSessionKey", "targetSessionKey", "targetAgentId"?, "provenance"?: "explicit"|"ambient-group",
/// "notifyKinds"?: [kind]}`. Reply: `{"watched": true, "created": true|false, "stateVersion"}`, or
/// `{"watched": false, "reason": "self"|"unqualified_watcher"}`.
///
/// Blocks: until the commit. Errors: invalid_argument, storage, busy, closed, unsupported (read only), internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_watch(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(handle, request_json, reply_json, |aware, request: Watch| {
            aware.watch(request)
        })
    }
}

/// Ends a watch and its open notice.
///
/// Request: `{"watcherSessionKey", "targetSessionKey", "targetAgentId"?}`. Reply: `{"unwatched": true|false}`.
///
/// Blocks: until the commit. Errors: invalid_argument, storage, busy, closed, unsupported (read only), internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_unwatch(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(
            handle,
            request_json,
            reply_json,
            |aware, request: Unwatch| aware.unwatch(request),
        )
    }
}

/// Lists watches, by watcher, then target agent and key.
///
/// Request: `{"watcherSessionKey"?, "targetSessionKey"?, "targetAgentId"?, "limit"?: 1000, "offset"?: 0}`.
/// Reply: `{"watches": [{"watcherSessionKey", "targetSessionKey", "targetAgentId", "provenance",
/// "notifyKinds", "lastSeen", "notified", "material", "pending", "pendingSince"?}], "more": false}`.
/// `pendingSince`, in ms since the epoch, is there while a notice is open.
///
/// Blocks: for a read. Errors: invalid_argument, storage, closed, internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_watches(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(
            handle,
            request_json,
            reply_json,
            |aware, request: Watches| aware.watches(request),
        )
    }
}

/// Forgets what a session watches, as when it begins anew; its own history stays.
///
/// Request: `{"sessionKey"}`. Reply: `{"removedWatches": n}`.
///
/// Blocks: until the commit. Errors: invalid_argument, storage, busy, closed, unsupported (read only), internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_session_reset(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(
            handle,
            request_json,
            reply_json,
            |aware, request: SessionReset| aware.session_reset(request),
        )
    }
}

/// Forgets a session: its events, its version, and every watch it has a part in.
///
/// Request: `{"sessionKey", "agentId"?}`. Reply: `{"deleted": true|false}`.
///
/// Blocks: until the commit. Errors: invalid_argument, storage, busy, closed, unsupported (read only), internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_session_delete(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(
            handle,
            request_json,
            reply_json,
            |aware, request: SessionDelete| aware.session_delete(request),
        )
    }
}

/// Takes a watcher's open notices, oldest first.
///
/// Request: `{"watcherSessionKey", "ack"?: true, "limit"?: 100}`, `limit` at most 1,000. Reply: `{"notices":
/// [{"text", "targetSessionKey", "targetAgentId", "changesSince", "notified", "contextKey"}], "more": false}`.
/// `text` is the line for the watcher's prompt; `changesSince` what to ask aware_changes_since with, `notified`
/// the version the notice covers, `contextKey` one name for all notices of a target, by which a host may put
/// the newest in place of an older one. With `"ack": false` the notices stay open, with the same text, until
/// aware_ack_notices.
///
/// Blocks: until the commit. Errors: invalid_argument, storage, busy, closed, unsupported (read only,
/// unless `ack` is false), internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_drain_notices(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(
            handle,
            request_json,
            reply_json,
            |aware, request: DrainNotices| aware.drain_notices(request),
        )
    }
}

/// Acknowledges notices that were read with `"ack": false`.
///
/// Request: `{"watcherSessionKey", "notices": [{"targetSessionKey", "targetAgentId"?, "notified"}]}`, at most
/// 1,000. Reply: `{"acknowledged": n, "reopened": n}`. Repeating one changes nothing.
///
/// Blocks: until the commit. Errors: invalid_argument, storage, busy, closed, unsupported (read only), internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_ack_notices(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(
            handle,
            request_json,
            reply_json,
            |aware, request: AckNotices| aware.ack_notices(request),
        )
    }
}

/// Waits for wakes and takes them.
///
/// Request: `{"timeoutMs", "max"?}`; a `timeoutMs` of 0 asks without waiting, without `max` all that are there are
/// taken. Reply: `{"wakes": [{"sessionKey", "targetSessionKey", "targetAgentId", "reason": "session-state"}]}`,
/// oldest first, empty when the time was over. `sessionKey` is the watcher: give it a turn; the target is what
/// changed. While a wake callback is set, and on a read-only handle, there are none.
///
/// Blocks: up to `timeoutMs`. Errors: invalid_argument, storage, closed (also when the handle is closed
/// meanwhile), internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_wait_wakes(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(
            handle,
            request_json,
            reply_json,
            |aware, request: WaitWakes| aware.wait_wakes(request),
        )
    }
}

/// Tells what changed in one session above a version, from one snapshot. Moves no cursor.
///
/// Request: `{"sessionKey", "agentId"?, "changesSince", "limit"?: 200}`, at most 200. Reply: `{"stateVersion",
/// "stateChanges": {"events": [{"sequence", "kind", "actorType", "actorId"?, "runId"?, "occurredAt",
/// "summary", "payload"?}], "historyGap", "truncated", "nextChangesSince", "futureCursor"?}}`. With
/// `historyGap` an event above `changesSince` was pruned: read the whole session anew. `futureCursor` is
/// there, and true, when `changesSince` is above the version: the store was replaced.
///
/// Blocks: for a read. Errors: invalid_argument, storage (never an empty delta), closed, internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_changes_since(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb_to_text(
            handle,
            request_json,
            reply_json,
            |aware, request: ChangesSince, out| aware.write_changes_since(&request, out),
        )
    }
}

/// Lists the sessions that have a log, by agent, then key.
///
/// Request: `{"after"?: {"agentId", "sessionKey"}, "limit"?: 200}`, at most 1,000; `after` is the last session
/// of the page before. Reply: `{"sessions": [{"sessionKey", "agentId", "stateVersion", "prunedBelow"}],
/// "more": false}`; a `changesSince` below `prunedBelow` has a history gap.
///
/// Blocks: for a read. Errors: invalid_argument, storage, closed, internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_sessions(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(
            handle,
            request_json,
            reply_json,
            |aware, request: SessionsRequest| aware.sessions(request),
        )
    }
}

/// Reads the log over all sessions, ascending.
///
/// Request: `{"after"?: 0, "sessionKey"?, "agentId"?, "kinds"?: [kind], "limit"?: 200}`, at most 1,000. Reply:
/// `{"events": [{"sequence", "sessionKey", "agentId", ...}], "more": false}`, the rest as in
/// aware_changes_since.
///
/// Blocks: for a read. Errors: invalid_argument, storage, closed, internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_events(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(
            handle,
            request_json,
            reply_json,
            |aware, request: EventsRequest| aware.events(request),
        )
    }
}

/// Writes a consistent copy of the database to a new file, mode 0600.
///
/// Request: `{"path"}`; a path that exists is invalid_argument. Reply: `{"bytes": n}`. The file appears under
/// its name only when it is whole.
///
/// Blocks: for as long as the copy takes; other calls go on. Errors: invalid_argument, storage, closed, internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_backup(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(
            handle,
            request_json,
            reply_json,
            |aware, request: Backup| aware.backup(request),
        )
    }
}

/// Prunes what retention no longer keeps; returns when it is done.
///
/// Request: `{}`. Reply: `{"prunedEvents": n, "prunedCursors": n}`.
///
/// Blocks: until all is pruned, in steps between which others write. Errors: invalid_argument, storage,
/// busy, closed, unsupported (read only), internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_maintain(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(handle, request_json, reply_json, |aware, Nothing {}| {
            aware.maintain()
        })
    }
}

/// The session tools that this library backs, for the agents of the host: `session_status` with
/// `changesSince`, answered by aware_changes_since, and `sessions_send` with `watch`, for which the host
/// calls aware_watch once the message was taken. A host may add properties of its own to them.
///
/// Request: `{"format": "openai"|"anthropic"|"json-schema"}`. Reply: `{"format", "tools": [tool], "prompt"}`. A
/// tool is `{"type": "function", "function": {"name", "description", "parameters"}}`, or `{"name",
/// "description", "input_schema"}`, or a JSON Schema (draft 2020-12) with its name in `title`. `prompt`
/// is a paragraph on what a notice means, for the agents' system prompt.
///
/// Blocks: never. Errors: invalid_argument, closed, internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_tool_schemas(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(
            handle,
            request_json,
            reply_json,
            |aware, request: ToolSchemas| aware.tool_schemas(request),
        )
    }
}

/// Counters of the handle and its database.
///
/// Request: `{}`. Reply: `{"events", "sessions", "watches", "links", "linksInError", "pending", "failedAppends",
/// "storageFaults", "lastFault"?, "unreadable"?, "damaged": true|false, "damage"?, "shedEvents", "queuedEvents",
/// "queuedWakes", "schemaVersion", "database", "databaseBytes", "walBytes", "version", "fileEvents":
/// "full"|"partial"|"off", "watchedFolders", "unwatchedFolders", "scans": {catalog: {"passes", "lastPassMs",
/// "lagMs"}}}`. `linksInError` counts the links that have a `fault` in aware_links. `storageFaults` counts how often the handle, its background too, could not
/// read or write the database since it was opened, and `lastFault` says why the last time. It answers while
/// the database cannot be read: then `unreadable` says why, and what is counted in the database (`events` to
/// `pending`, `schemaVersion`) is what it was the last time. `damaged`: see the storage error; `damage` says what.
/// `fileEvents` is `partial` when some folders cannot be watched and are looked at every interval alone. `passes`
/// counts the rounds in which something was looked at, `lagMs` is how long after the first hint the last
/// activity was stored.
///
/// Blocks: for a read. Errors: invalid_argument, closed, internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_stats(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(handle, request_json, reply_json, |aware, Nothing {}| {
            aware.stats()
        })
    }
}

/// Links a session to its upstream source, a session of Claude Code, Codex, OpenCode or Pi on disk,
/// and begins to watch that: what a person types there reaches the log like any other human turn.
///
/// Request: `{"sessionKey", "agentId"?, "catalog": "claude"|"codex"|"opencode"|"pi", "threadId"?, "source"?,
/// "hostId"?: "local", "baseline"?: "now"|"start"}`. `source` is the session's file, for `opencode` an
/// `opencode.db` or the data folder with `storage/` in it (then `threadId` is required); `threadId` alone
/// is looked up in the agent's own store. For a `hostId` other than `local` nothing is looked up, and the
/// rows come by aware_feed. Reply: `{"adopted": true, "linked": true, "link": {"sessionKey", "agentId",
/// "catalog", "threadId", "source"?, "hostId", "adoptedAt", "missing"}, "event": {...}}`, or `"linked": false,
/// "reason": "legacy_format"` for a Pi file older than version 3. The same source again keeps its
/// position; another one begins anew.
///
/// Blocks: for as long as it takes to read the source once, with baseline `now`. Errors:
/// invalid_argument, not_found (the source), storage, busy, closed, unsupported (read only), internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_adopt(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(handle, request_json, reply_json, |aware, request: Adopt| {
            aware.adopt(request)
        })
    }
}

/// Ends a session's upstream link.
///
/// Request: `{"sessionKey", "agentId"?}`. Reply: `{"released": true|false}`.
///
/// Blocks: until the commit. Errors: invalid_argument, storage, busy, closed, unsupported (read only), internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_release(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(
            handle,
            request_json,
            reply_json,
            |aware, request: SessionRef| aware.release(request),
        )
    }
}

/// Lists the upstream links, by session key and agent.
///
/// Request: `{"limit"?: 1000, "offset"?: 0}`. Reply: `{"links": [as in aware_adopt, and "fault"?: {"since",
/// "message"}], "more": false}`. `fault` is there while the source cannot be read (damage, another format, no
/// permission): since when, in ms since the epoch, and why. It is kept in the database, and ends with the
/// first look that can read the source; a source that is gone counts in `missing` instead.
///
/// Blocks: for a read. Errors: invalid_argument, storage, closed, internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_links(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(
            handle,
            request_json,
            reply_json,
            |aware, request: LinksRequest| aware.links(request),
        )
    }
}

/// Lists the sessions in the agents' own stores, newest first, then by thread id.
///
/// Request: `{"catalog"?, "limit"?: 100, "offset"?: 0}`, at most 1,000. Reply: `{"sessions": [{"catalog",
/// "threadId", "source", "cwd"?, "updatedAt", "adopted"}], "more": false}`. The stores are those of
/// `monitor.roots` in the config, else those the agents' environment variables name, else the usual ones.
///
/// Blocks: for as long as it takes to walk the stores. Errors: invalid_argument, storage, closed, internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_discover(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(
            handle,
            request_json,
            reply_json,
            |aware, request: Discover| aware.discover(request),
        )
    }
}

/// Reads the linked sources now, each to the end it has when its turn comes.
///
/// Request: `{"catalog"?, "sessionKey"?}`. Reply: `{"outcomes": [{"sessionKey", "agentId", "catalog",
/// "outcome": "unchanged"|"activity"|"missing"|"deferred"|"replaced"|"error", "humanTurns", "prompts",
/// "commands", "shells", "message"?}]}`, by session key and agent. Each call that finds a source gone is a
/// miss; the third in a row records `upstream_missing` and ends the link.
///
/// Blocks: for as long as it takes to read what is new. Errors: invalid_argument, storage, busy, closed
/// (also when the handle is closed meanwhile), unsupported (read only), internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_scan(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(handle, request_json, reply_json, |aware, request: Scan| {
            aware.scan(request)
        })
    }
}

/// Says that the host itself runs a session now, or no longer: until then its source is not read,
/// and nothing is lost.
///
/// Request: `{"sessionKey", "agentId"?, "active"}`. Reply: `{"active": true|false}`. The mark is seen by
/// every process on the database, and ends with the handle that set it, or its process; the reply
/// says whether the session is run now, by this handle's mark or another's.
///
/// Blocks: until the commit. Errors: invalid_argument, storage, busy, closed, unsupported (read only), internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_set_run_active(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(
            handle,
            request_json,
            reply_json,
            |aware, request: SetRunActive| aware.set_run_active(request),
        )
    }
}

/// Says what the host itself is about to send to an upstream session, so that it is not taken for
/// a person's turn. Call it before sending.
///
/// Request: `{"sessionKey", "agentId"?, "text"}`. Reply: `{"remembered": true}`. Kept is a keyed hash of the
/// text, white space collapsed; of a session the newest 10.
///
/// Blocks: until the commit. Errors: invalid_argument, storage, busy, closed, unsupported (read only), internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_own_message(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb(
            handle,
            request_json,
            reply_json,
            |aware, request: OwnMessage| aware.own_message(request),
        )
    }
}

/// Hands over an upstream's rows that the host read on another machine, or says that it found the
/// session gone there, for links whose `hostId` is not `local`.
///
/// Request: `{"sessionKey", "agentId"?, "rows": [the upstream's own JSON rows, in order; OpenCode: {"info",
/// "parts"}]}` or `{..., "missing": true}`; at most 64 MiB. Reply: one outcome as in aware_scan. Rows handed
/// over before may come again; they are not told again.
///
/// Blocks: until the commit. Errors: invalid_argument, not_found (no link), storage, busy (other calls
/// changed the link all the while), closed, unsupported (read only), internal.
///
/// Any thread. The reply is freed with aware_string_free.
///
/// # Safety
/// As in the header's conventions: strings are NUL-terminated or NULL, out pointers have room or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aware_feed(
    handle: *mut aware_t,
    request_json: *const c_char,
    reply_json: *mut *mut c_char,
) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        verb_of(
            handle,
            request_json,
            reply_json,
            FEED_BYTES,
            |aware, request: Feed| aware.feed(request),
        )
    }
}
