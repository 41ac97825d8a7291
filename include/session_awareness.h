/*
 * session-awareness: the memory that lets sessions of a multi-agent gateway
 * notice when someone else stepped in.
 *
 * One shape for every verb: aware_VERB(handle, request_json, &reply_json).
 *
 *   Strings    UTF-8, NUL-terminated, JSON. An unknown request field is
 *              refused; null is the same as absent. Unknown reply fields are
 *              to be ignored. Numbers stay below 2^53; times are ms since the
 *              Unix epoch.
 *   Status     AWARE_OK (0) or one of the AWARE_* error numbers. On an error
 *              the reply is {"error":{"code","message","field"?}}; there is no
 *              "last error" to ask for.
 *   Ownership  The library reads a request during the call only. It always
 *              sets the reply, also on an error; the caller frees it with
 *              aware_string_free. A NULL out pointer for the reply means that
 *              the status alone is wanted. Handles are closed with aware_close.
 *   Threads    Any thread may call anything at any time, on one handle too.
 *              The library's own threads block all signals, so the host's
 *              handlers never run on them. A handler itself may call nothing
 *              of it. A pthread_cancel takes effect when the call is over. The
 *              library is never unloaded.
 *   Limits     A request is at most 16 MiB; sessionId, actorId, runId and
 *              dedupeKey at most 512 bytes, a session key 1 to 512; a batch at
 *              most 1,000 events. A limit below 1 is refused, one above the
 *              maximum is cut to it. An empty list is legal and does nothing.
 *   Faults     A panic never crosses the boundary: it becomes `internal`, and
 *              the handle stays usable. NULL, bad UTF-8 and bad JSON are
 *              `invalid_argument`; a handle that is closed or was never open
 *              is `closed`.
 *   Busy       What writes waits for the write of another process, at most for
 *              `busyTimeoutMs`; a call that comes during such a wait of other
 *              calls waits twice as long at most. Then it is `busy`, and nothing
 *              of it was done. So is aware_open. Reads wait for nobody's write.
 *   fork       A handle taken across fork() answers `closed` in the child. A
 *              child whose parent had handles open at the fork can open none
 *              itself (`unsupported`), since SQLite's locks do not survive a
 *              fork: use exec (Python: multiprocessing's "spawn").
 *   The file   Never open the database file from the host's own process by
 *              any other means, not even to copy or to hash it: a second copy
 *              of SQLite (the host's sqlite3, node:sqlite, better-sqlite3), or
 *              any open and close of the file, drops this library's locks and
 *              can delete its live write-ahead log. Everything a host wants to
 *              read has a verb, and aware_backup copies the file. Other
 *              processes may use this library on it at the same time; a second
 *              copy of it in the same process is refused (`unsupported`) where
 *              the system tells, unless one of them only reads. It must
 *              be on a local disk: NFS, SMB and 9p are refused. Beside it lie
 *              DATABASE-wal and -shm (SQLite's), DATABASE-wake and
 *              DATABASE-handle-N (the library's), all with mode 0600.
 *              What the system shows of it is said in the log, as a warning: a
 *              second SQLite that has the file mapped (every ten seconds it is
 *              looked for, and when a handle is opened), and locks that are gone.
 *              Reading the store of an adopted session (opencode.db) with another
 *              SQLite in this process drops the library's locks on it too, so
 *              that it may read it half written, and read it again: better do so
 *              in a child process.
 *   Static     The static library of `make install` shows the functions below
 *              alone. The one cargo builds shows SQLite's symbols (sqlite3_*)
 *              too: link that into no program that has another SQLite.
 *
 * The README tells the story; every request and reply is described below.
 */


#ifndef SESSION_AWARENESS_H
#define SESSION_AWARENESS_H

/* Made by `BLESS=1 cargo test --test header` from src/abi; do not edit. */

#include <stdint.h>

/**
 * The number aware_abi_version answers: bumped when the ABI changes incompatibly.
 */
#define AWARE_ABI_VERSION 1

/**
 * The call was carried out; the reply is its answer.
 */
#define AWARE_OK 0

/**
 * `invalid_argument`: the request is wrong, nothing was stored; `field` names the part at fault.
 */
#define AWARE_INVALID_ARGUMENT 1

/**
 * `not_found`: what the request names does not exist.
 */
#define AWARE_NOT_FOUND 2

/**
 * `storage`: the database could not be read or written; the message says why. Reads go on where they can, and
 * writing goes on by itself when the fault has passed: a full disk has room again, the file is at its path
 * again, or another is (which is then used). Where the file holds what this library never wrote, the
 * handle writes nothing more to it, not even at aware_close, until it is opened anew or another file is
 * at the path; other handles and processes find out for themselves. A damaged file is never mended or
 * replaced by the library.
 */
#define AWARE_STORAGE 3

/**
 * `busy`: another process held the database for longer than `busyTimeoutMs`, or the call cannot be
 * carried out from inside this callback. Nothing was done.
 */
#define AWARE_BUSY 4

/**
 * `closed`: the handle is closed, was never opened, or was taken across a fork.
 */
#define AWARE_CLOSED 5

/**
 * `unsupported`: the library, this handle or this file system does not offer it.
 */
#define AWARE_UNSUPPORTED 6

/**
 * `internal`: a fault of the library; the handle stays usable.
 */
#define AWARE_INTERNAL 7

/**
 * An open database. The pointer is a key, never dereferenced: a call with a
 * closed, foreign or inherited one answers `closed`.
 */
typedef struct aware_t aware_t;

/**
 * Called with each wake: `user` as it was set, `wake_json` as one element of
 * aware_wait_wakes' `wakes`, valid for the call. It must return: no exception,
 * longjmp or pthread_exit may leave it. A child of fork that returns from it ends.
 */
typedef void (*aware_wake_callback)(void *user, const char *wake_json);

/**
 * Called with each line the library logs: `user` as it was set, `level` 1
 * error, 2 warn, 3 info, 4 debug, 5 trace; both strings are valid for the
 * call. It may call nothing of the library (every call answers `busy`), must
 * not wait for a thread that is inside the library, and must return: no
 * exception, longjmp or pthread_exit may leave it, and no child of fork.
 */
typedef void (*aware_log_callback)(void *user, int32_t level, const char *target, const char *message);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the ABI, AWARE_ABI_VERSION of the header it was built with.
 * A binding compares the two when it loads the library. Any thread.
 */
uint32_t aware_abi_version(void);

/**
 * The library's version, like "1.2.3": static, not to be freed. Any thread.
 */
const char *aware_version(void);

/**
 * Opens a database: makes or migrates it, opens pending notices up to their
 * newest change, raises their wakes, prunes up to 1,000 rows and starts the
 * handle's threads.
 *
 * `config_json`: `{"database": path (required), "create"?: true, "readOnly"?: false, "durability"?:
 * "process"|"power", "retention"?: {"maxAgeMs"?: 2592000000, "maxEvents"?: 50000}, "monitor"?:
 * {"enabled"?: true, "intervalMs"?: 60000, "initialDelayMs"?: 15000, "fileEvents"?: true, "roots"?:
 * {"claude"?, "codex"?, "opencode"?, "pi"?}}, "wakes"?: {"agents": [...]}, "busyTimeoutMs"?: 5000}`. `handle`
 * receives the handle, NULL on an error. `reply` receives `{"opened": true, "abiVersion", "version"}` or the
 * error; it may be NULL.
 *
 * The file is made with mode 0600; its folder must be there. With `durability` `process` an event outlives the
 * death of the process, with `power` that of the machine. `retention` says what is kept. `monitor` is how
 * adopted sessions are watched: a pass starts within 50 ms of a file event, and every `intervalMs`; each
 * of `roots` is an agent's own home, where it is not the usual one (`~/.claude`, `~/.codex`,
 * `~/.local/share/opencode`, `~/.pi/agent`): a folder, a relative one from where the process is now.
 * `wakes.agents`: only wakes for watchers of these agents are offered to this handle. `readOnly` opens readers
 * alone: what would change something is `unsupported`, and no wakes come.
 *
 * Any thread. Blocks for as long as another process migrates or writes, at
 * most `busyTimeoutMs` for each of both. The handle is closed with aware_close, the reply
 * freed with aware_string_free. Errors: invalid_argument, not_found (no file,
 * and none is to be made), unsupported (made by a newer version; a network
 * file system; a child of fork whose parent had handles open; another copy of
 * this library in this process has it open for writing, and so is this to be),
 * storage, busy, internal.
 */
int32_t aware_open(const char *config_json,
                   aware_t **handle,
                   char **reply);

/**
 * Closes a handle: writes what is queued, waits for calls in flight, wakes a
 * blocked aware_wait_wakes (it answers `closed`), stops and joins the
 * handle's threads.
 *
 * Any thread. Blocks until that is done: at most two seconds for what hangs in an agent's file, and
 * four times `busyTimeoutMs` when another process holds the database. Answers AWARE_OK; AWARE_CLOSED for a
 * handle that is NULL, closed already or was never open; AWARE_BUSY, closing
 * nothing, from inside the handle's own wake callback.
 */
int32_t aware_close(aware_t *handle);

/**
 * Frees a reply of this library; NULL is fine. Any thread. Never free a reply
 * by other means, nor one twice.
 */
void aware_string_free(char *reply_json);

/**
 * The read end of a non-blocking pipe that is readable while wakes wait, for
 * event loops; -1 when there is none (closed, read only, no descriptor left).
 *
 * It is the library's: never close it; it goes with the handle (who closes it
 * loses it alone). Reading its bytes is fine. When it is readable, call
 * aware_wait_wakes with `timeoutMs` 0 until the reply is empty. Any thread,
 * never blocks.
 */
int32_t aware_wake_fd(aware_t *handle);

/**
 * Sets who is called with each wake, on a library thread, under no lock; NULL
 * for nobody. While set, it alone gets the wakes.
 *
 * Every verb may be called from it; aware_close of the same handle answers
 * `busy` there. Returns when no call of the old callback is running, at once
 * from inside it; after that the old `user` may go. Any thread. Answers
 * AWARE_OK, AWARE_CLOSED or AWARE_INTERNAL.
 */
int32_t aware_set_wake_callback(aware_t *handle, aware_wake_callback callback, void *user);

/**
 * Sets who is told what the library logs up to `max_level` (1 error to 5
 * trace), for the whole process; NULL for nobody. No line ever holds message text.
 *
 * Returns when no call of the old callback is running, at once from inside
 * it; after that the old `user` may go. Any thread.
 */
void aware_set_log_callback(aware_log_callback callback, void *user, int32_t max_level);

/**
 * Records an event, or a batch of them, and tells the watchers.
 *
 * Request: `{"sessionKey", "agentId"?, "sessionId"?, "kind", "actorType": "human"|"agent"|"system",
 * "actorId"?, "runId"?, "summary"?, "payload"?, "dedupeKey"?, "occurredAt"?, "watcherSessionKeys"?,
 * "onlyIfWatched"?, "wait"?}` or `{"events": [...], "wait"?}` with up to 1,000 of these (all or
 * nothing). `kind` is one of `human_direct_message`, `upstream_missing`, `goal_changed` (these notify),
 * `child_spawned` (seeds the cursors of `watcherSessionKeys`), `run_completed`, `run_failed`,
 * `compacted`, `adopted`. `summary` is one line of at most 200 characters, `payload` an object of at
 * most 4 KiB; never put message text in either. `occurredAt` is in ms since the epoch, clamped to the
 * last 24 hours.
 *
 * Reply: `{"recorded": true, "duplicate": false, "event": {...}}`; a known `dedupeKey` answers the first
 * event with `"duplicate": true`; `{"recorded": false, "reason": "unwatched"}`; for a batch
 * `{"results": [...]}`; with `"wait": false` `{"queued": true}` or `{"queued": false, "reason": "full"}`.
 *
 * Blocks: until the commit; with `"wait": false` never. Errors: invalid_argument, storage and busy (logged
 * and counted in stats), closed, unsupported (read only), internal. A failing record must not fail the
 * turn that caused it.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_record(aware_t *handle, const char *request_json, char **reply_json);

/**
 * Tells how far the logs of up to 1,000 sessions have come.
 *
 * Request: `{"sessions": [{"sessionKey", "agentId"?}]}`. Reply: `{"versions": [{"sessionKey", "agentId",
 * "stateVersion"}]}`, in the request's order, 0 when nothing is logged.
 *
 * Blocks: for a read. Errors: invalid_argument, storage, closed, internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_state_versions(aware_t *handle, const char *request_json, char **reply_json);

/**
 * Registers a watch, starting at the target's present version.
 *
 * Request: `{"watcherSessionKey", "targetSessionKey", "targetAgentId"?, "provenance"?: "explicit"|"ambient-group",
 * "notifyKinds"?: [kind]}`. Reply: `{"watched": true, "created": true|false, "stateVersion"}`, or
 * `{"watched": false, "reason": "self"|"unqualified_watcher"}`.
 *
 * Blocks: until the commit. Errors: invalid_argument, storage, busy, closed, unsupported (read only), internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_watch(aware_t *handle,
                    const char *request_json,
                    char **reply_json);

/**
 * Ends a watch and its open notice.
 *
 * Request: `{"watcherSessionKey", "targetSessionKey", "targetAgentId"?}`. Reply: `{"unwatched": true|false}`.
 *
 * Blocks: until the commit. Errors: invalid_argument, storage, busy, closed, unsupported (read only), internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_unwatch(aware_t *handle,
                      const char *request_json,
                      char **reply_json);

/**
 * Lists watches, by watcher, then target agent and key.
 *
 * Request: `{"watcherSessionKey"?, "targetSessionKey"?, "targetAgentId"?, "limit"?: 1000, "offset"?: 0}`.
 * Reply: `{"watches": [{"watcherSessionKey", "targetSessionKey", "targetAgentId", "provenance",
 * "notifyKinds", "lastSeen", "notified", "material", "pending", "pendingSince"?}], "more": false}`.
 * `pendingSince`, in ms since the epoch, is there while a notice is open.
 *
 * Blocks: for a read. Errors: invalid_argument, storage, closed, internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_watches(aware_t *handle, const char *request_json, char **reply_json);

/**
 * Forgets what a session watches, as when it begins anew; its own history stays.
 *
 * Request: `{"sessionKey"}`. Reply: `{"removedWatches": n}`.
 *
 * Blocks: until the commit. Errors: invalid_argument, storage, busy, closed, unsupported (read only), internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_session_reset(aware_t *handle,
                            const char *request_json,
                            char **reply_json);

/**
 * Forgets a session: its events, its version, and every watch it has a part in.
 *
 * Request: `{"sessionKey", "agentId"?}`. Reply: `{"deleted": true|false}`.
 *
 * Blocks: until the commit. Errors: invalid_argument, storage, busy, closed, unsupported (read only), internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_session_delete(aware_t *handle,
                             const char *request_json,
                             char **reply_json);

/**
 * Takes a watcher's open notices, oldest first.
 *
 * Request: `{"watcherSessionKey", "ack"?: true, "limit"?: 100}`, `limit` at most 1,000. Reply: `{"notices":
 * [{"text", "targetSessionKey", "targetAgentId", "changesSince", "notified", "contextKey"}], "more": false}`.
 * `text` is the line for the watcher's prompt; `changesSince` what to ask aware_changes_since with, `notified`
 * the version the notice covers, `contextKey` one name for all notices of a target, by which a host may put
 * the newest in place of an older one. With `"ack": false` the notices stay open, with the same text, until
 * aware_ack_notices.
 *
 * Blocks: until the commit. Errors: invalid_argument, storage, busy, closed, unsupported (read only,
 * unless `ack` is false), internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_drain_notices(aware_t *handle,
                            const char *request_json,
                            char **reply_json);

/**
 * Acknowledges notices that were read with `"ack": false`.
 *
 * Request: `{"watcherSessionKey", "notices": [{"targetSessionKey", "targetAgentId"?, "notified"}]}`, at most
 * 1,000. Reply: `{"acknowledged": n, "reopened": n}`. Repeating one changes nothing.
 *
 * Blocks: until the commit. Errors: invalid_argument, storage, busy, closed, unsupported (read only), internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_ack_notices(aware_t *handle,
                          const char *request_json,
                          char **reply_json);

/**
 * Waits for wakes and takes them.
 *
 * Request: `{"timeoutMs", "max"?}`; a `timeoutMs` of 0 asks without waiting, without `max` all that are there are
 * taken. Reply: `{"wakes": [{"sessionKey", "targetSessionKey", "targetAgentId", "reason": "session-state"}]}`,
 * oldest first, empty when the time was over. `sessionKey` is the watcher: give it a turn; the target is what
 * changed. While a wake callback is set, and on a read-only handle, there are none.
 *
 * Blocks: up to `timeoutMs`. Errors: invalid_argument, storage, closed (also when the handle is closed
 * meanwhile), internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_wait_wakes(aware_t *handle,
                         const char *request_json,
                         char **reply_json);

/**
 * Tells what changed in one session above a version, from one snapshot. Moves no cursor.
 *
 * Request: `{"sessionKey", "agentId"?, "changesSince", "limit"?: 200}`, at most 200. Reply: `{"stateVersion",
 * "stateChanges": {"events": [{"sequence", "kind", "actorType", "actorId"?, "runId"?, "occurredAt",
 * "summary", "payload"?}], "historyGap", "truncated", "nextChangesSince", "futureCursor"?}}`. With
 * `historyGap` an event above `changesSince` was pruned: read the whole session anew. `futureCursor` is
 * there, and true, when `changesSince` is above the version: the store was replaced.
 *
 * Blocks: for a read. Errors: invalid_argument, storage (never an empty delta), closed, internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_changes_since(aware_t *handle, const char *request_json, char **reply_json);

/**
 * Lists the sessions that have a log, by agent, then key.
 *
 * Request: `{"after"?: {"agentId", "sessionKey"}, "limit"?: 200}`, at most 1,000; `after` is the last session
 * of the page before. Reply: `{"sessions": [{"sessionKey", "agentId", "stateVersion", "prunedBelow"}],
 * "more": false}`; a `changesSince` below `prunedBelow` has a history gap.
 *
 * Blocks: for a read. Errors: invalid_argument, storage, closed, internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_sessions(aware_t *handle, const char *request_json, char **reply_json);

/**
 * Reads the log over all sessions, ascending.
 *
 * Request: `{"after"?: 0, "sessionKey"?, "agentId"?, "kinds"?: [kind], "limit"?: 200}`, at most 1,000. Reply:
 * `{"events": [{"sequence", "sessionKey", "agentId", ...}], "more": false}`, the rest as in
 * aware_changes_since.
 *
 * Blocks: for a read. Errors: invalid_argument, storage, closed, internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_events(aware_t *handle, const char *request_json, char **reply_json);

/**
 * Writes a consistent copy of the database to a new file, mode 0600.
 *
 * Request: `{"path"}`; a path that exists is invalid_argument. Reply: `{"bytes": n}`. The file appears under
 * its name only when it is whole.
 *
 * Blocks: for as long as the copy takes; other calls go on. Errors: invalid_argument, storage, closed, internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_backup(aware_t *handle,
                     const char *request_json,
                     char **reply_json);

/**
 * Prunes what retention no longer keeps; returns when it is done.
 *
 * Request: `{}`. Reply: `{"prunedEvents": n, "prunedCursors": n}`.
 *
 * Blocks: until all is pruned, in steps between which others write. Errors: invalid_argument, storage,
 * busy, closed, unsupported (read only), internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_maintain(aware_t *handle, const char *request_json, char **reply_json);

/**
 * The session tools that this library backs, for the agents of the host: `session_status` with
 * `changesSince`, answered by aware_changes_since, and `sessions_send` with `watch`, for which the host
 * calls aware_watch once the message was taken. A host may add properties of its own to them.
 *
 * Request: `{"format": "openai"|"anthropic"|"json-schema"}`. Reply: `{"format", "tools": [tool], "prompt"}`. A
 * tool is `{"type": "function", "function": {"name", "description", "parameters"}}`, or `{"name",
 * "description", "input_schema"}`, or a JSON Schema (draft 2020-12) with its name in `title`. `prompt`
 * is a paragraph on what a notice means, for the agents' system prompt.
 *
 * Blocks: never. Errors: invalid_argument, closed, internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_tool_schemas(aware_t *handle,
                           const char *request_json,
                           char **reply_json);

/**
 * Counters of the handle and its database.
 *
 * Request: `{}`. Reply: `{"events", "sessions", "watches", "links", "linksInError", "pending", "failedAppends",
 * "storageFaults", "lastFault"?, "unreadable"?, "damaged": true|false, "damage"?, "shedEvents", "queuedEvents",
 * "queuedWakes", "schemaVersion", "database", "databaseBytes", "walBytes", "version", "fileEvents":
 * "full"|"partial"|"off", "watchedFolders", "unwatchedFolders", "scans": {catalog: {"passes", "lastPassMs",
 * "lagMs"}}}`. `linksInError` counts the links that have a `fault` in aware_links. `storageFaults` counts how often the handle, its background too, could not
 * read or write the database since it was opened, and `lastFault` says why the last time. It answers while
 * the database cannot be read: then `unreadable` says why, and what is counted in the database (`events` to
 * `pending`, `schemaVersion`) is what it was the last time. `damaged`: see the storage error; `damage` says what.
 * `fileEvents` is `partial` when some folders cannot be watched and are looked at every interval alone. `passes`
 * counts the rounds in which something was looked at, `lagMs` is how long after the first hint the last
 * activity was stored.
 *
 * Blocks: for a read. Errors: invalid_argument, closed, internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_stats(aware_t *handle,
                    const char *request_json,
                    char **reply_json);

/**
 * Links a session to its upstream source, a session of Claude Code, Codex, OpenCode or Pi on disk,
 * and begins to watch that: what a person types there reaches the log like any other human turn.
 *
 * Request: `{"sessionKey", "agentId"?, "catalog": "claude"|"codex"|"opencode"|"pi", "threadId"?, "source"?,
 * "hostId"?: "local", "baseline"?: "now"|"start"}`. `source` is the session's file, for `opencode` an
 * `opencode.db` or the data folder with `storage/` in it (then `threadId` is required); `threadId` alone
 * is looked up in the agent's own store. For a `hostId` other than `local` nothing is looked up, and the
 * rows come by aware_feed. Reply: `{"adopted": true, "linked": true, "link": {"sessionKey", "agentId",
 * "catalog", "threadId", "source"?, "hostId", "adoptedAt", "missing"}, "event": {...}}`, or `"linked": false,
 * "reason": "legacy_format"` for a Pi file older than version 3. The same source again keeps its
 * position; another one begins anew.
 *
 * Blocks: for as long as it takes to read the source once, with baseline `now`. Errors:
 * invalid_argument, not_found (the source), storage, busy, closed, unsupported (read only), internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_adopt(aware_t *handle, const char *request_json, char **reply_json);

/**
 * Ends a session's upstream link.
 *
 * Request: `{"sessionKey", "agentId"?}`. Reply: `{"released": true|false}`.
 *
 * Blocks: until the commit. Errors: invalid_argument, storage, busy, closed, unsupported (read only), internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_release(aware_t *handle,
                      const char *request_json,
                      char **reply_json);

/**
 * Lists the upstream links, by session key and agent.
 *
 * Request: `{"limit"?: 1000, "offset"?: 0}`. Reply: `{"links": [as in aware_adopt, and "fault"?: {"since",
 * "message"}], "more": false}`. `fault` is there while the source cannot be read (damage, another format, no
 * permission): since when, in ms since the epoch, and why. It is kept in the database, and ends with the
 * first look that can read the source; a source that is gone counts in `missing` instead.
 *
 * Blocks: for a read. Errors: invalid_argument, storage, closed, internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_links(aware_t *handle, const char *request_json, char **reply_json);

/**
 * Lists the sessions in the agents' own stores, newest first, then by thread id.
 *
 * Request: `{"catalog"?, "limit"?: 100, "offset"?: 0}`, at most 1,000. Reply: `{"sessions": [{"catalog",
 * "threadId", "source", "cwd"?, "updatedAt", "adopted"}], "more": false}`. The stores are those of
 * `monitor.roots` in the config, else those the agents' environment variables name, else the usual ones.
 *
 * Blocks: for as long as it takes to walk the stores. Errors: invalid_argument, storage, closed, internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_discover(aware_t *handle, const char *request_json, char **reply_json);

/**
 * Reads the linked sources now, each to the end it has when its turn comes.
 *
 * Request: `{"catalog"?, "sessionKey"?}`. Reply: `{"outcomes": [{"sessionKey", "agentId", "catalog",
 * "outcome": "unchanged"|"activity"|"missing"|"deferred"|"replaced"|"error", "humanTurns", "prompts",
 * "commands", "shells", "message"?}]}`, by session key and agent. Each call that finds a source gone is a
 * miss; the third in a row records `upstream_missing` and ends the link.
 *
 * Blocks: for as long as it takes to read what is new. Errors: invalid_argument, storage, busy, closed
 * (also when the handle is closed meanwhile), unsupported (read only), internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_scan(aware_t *handle, const char *request_json, char **reply_json);

/**
 * Says that the host itself runs a session now, or no longer: until then its source is not read,
 * and nothing is lost.
 *
 * Request: `{"sessionKey", "agentId"?, "active"}`. Reply: `{"active": true|false}`. The mark is seen by
 * every process on the database, and ends with the handle that set it, or its process; the reply
 * says whether the session is run now, by this handle's mark or another's.
 *
 * Blocks: until the commit. Errors: invalid_argument, storage, busy, closed, unsupported (read only), internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_set_run_active(aware_t *handle,
                             const char *request_json,
                             char **reply_json);

/**
 * Says what the host itself is about to send to an upstream session, so that it is not taken for
 * a person's turn. Call it before sending.
 *
 * Request: `{"sessionKey", "agentId"?, "text"}`. Reply: `{"remembered": true}`. Kept is a keyed hash of the
 * text, white space collapsed; of a session the newest 10.
 *
 * Blocks: until the commit. Errors: invalid_argument, storage, busy, closed, unsupported (read only), internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_own_message(aware_t *handle,
                          const char *request_json,
                          char **reply_json);

/**
 * Hands over an upstream's rows that the host read on another machine, or says that it found the
 * session gone there, for links whose `hostId` is not `local`.
 *
 * Request: `{"sessionKey", "agentId"?, "rows": [the upstream's own JSON rows, in order; OpenCode: {"info",
 * "parts"}]}` or `{..., "missing": true}`; at most 64 MiB. Reply: one outcome as in aware_scan. Rows handed
 * over before may come again; they are not told again.
 *
 * Blocks: until the commit. Errors: invalid_argument, not_found (no link), storage, busy (other calls
 * changed the link all the while), closed, unsupported (read only), internal.
 *
 * Any thread. The reply is freed with aware_string_free.
 */
int32_t aware_feed(aware_t *handle, const char *request_json, char **reply_json);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SESSION_AWARENESS_H */
