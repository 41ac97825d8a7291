/// <reference lib="esnext.disposable" />

/**
 * The memory that lets the sessions of a multi-agent gateway notice when someone else stepped in.
 *
 * Everywhere below: keys are compared byte for byte, sequences and counts are whole numbers below 2^53, times are
 * milliseconds since the Unix epoch, and what ends in `Ms` are milliseconds. An absent field takes its default; an
 * unknown one is refused with `invalid_argument`. A later version of the library may add fields to replies.
 *
 * @module
 */

/** What kind of error a call answered; each has its own class. */
export type ErrorCode =
  | 'invalid_argument'
  | 'not_found'
  | 'storage'
  | 'busy'
  | 'closed'
  | 'unsupported'
  | 'internal';

/** What a failed call throws, or rejects with. Branch on the class or on `code`; `message` is for people. */
export class AwarenessError extends Error {
  protected constructor();
  /** What kind of error it is. */
  readonly code: ErrorCode;
  /** The request field at fault, as the request spells it (`events[3].kind`), where there is one. */
  readonly field: string | undefined;
}

/** The request is wrong; `field` names the part at fault. Nothing was stored. */
export class InvalidArgumentError extends AwarenessError {
  readonly code: 'invalid_argument';
}

/** What the request names does not exist. */
export class NotFoundError extends AwarenessError {
  readonly code: 'not_found';
}

/** The database could not be read or written. */
export class StorageError extends AwarenessError {
  readonly code: 'storage';
}

/** The call cannot be carried out now: another process held the database for longer than `busyTimeoutMs`. */
export class BusyError extends AwarenessError {
  readonly code: 'busy';
}

/** The handle is closed. */
export class ClosedError extends AwarenessError {
  readonly code: 'closed';
}

/** The library, this handle (`readOnly`) or this file system does not offer it. */
export class UnsupportedError extends AwarenessError {
  readonly code: 'unsupported';
}

/** A fault of the library itself; the handle stays usable. */
export class InternalError extends AwarenessError {
  readonly code: 'internal';
}

/** What happened to a session. The first three notify its watchers, unless those chose otherwise. */
export type Kind =
  | 'human_direct_message'
  | 'upstream_missing'
  | 'goal_changed'
  | 'child_spawned'
  | 'run_completed'
  | 'run_failed'
  | 'compacted'
  | 'adopted';

/** Who caused an event: a person, another session's agent, or the gateway itself. */
export type ActorType = 'human' | 'agent' | 'system';

/** Why a cursor exists: asked for or spawned, or a group of the watcher's agent, which raises no wakes. */
export type Provenance = 'explicit' | 'ambient-group';

/** The agent programs whose sessions can be adopted. */
export type Catalog = 'claude' | 'codex' | 'opencode' | 'pi';

/** How `Awareness.open` opens a database. */
export interface Config {
  /** The database file. Nothing else in this process may open it, not even to read: use `backup` for a copy. */
  database: string;
  /** Make the file when it is not there. Default true. */
  create?: boolean;
  /** Open for reading alone: no wakes, and what would change something is `unsupported`. Default false. */
  readOnly?: boolean;
  /** What a recorded event outlives: the death of the process (the default) or that of the machine too. */
  durability?: 'process' | 'power';
  /** How long events are kept: 30 days, and the newest 50,000. */
  retention?: { maxAgeMs?: number; maxEvents?: number };
  /** How adopted sessions are watched. */
  monitor?: {
    /** Watch in the background at all. Default true. */
    enabled?: boolean;
    /** Time between two passes. Default 60,000. */
    intervalMs?: number;
    /** Time from opening to the first pass. Default 15,000. */
    initialDelayMs?: number;
    /** Start passes from the file system's change events too. Default true. */
    fileEvents?: boolean;
    /**
     * The agents' own homes, where they are not the usual ones (`~/.claude`, `~/.codex`, `~/.local/share/opencode`,
     * `~/.pi/agent`): folders.
     */
    roots?: { [catalog in Catalog]?: string };
  };
  /** Offer this handle only the wakes for watchers of these agents. */
  wakes?: { agents?: readonly string[] };
  /** How long a call waits for another process's write before it is `busy`. Default 5,000. */
  busyTimeoutMs?: number;
}

/** What belongs to this process alone, and not to the library. */
export interface Options {
  /**
   * Told when `record` could not store: it then resolves with null. By default the error becomes a process warning.
   * What this throws, `record` rejects with.
   */
  onError?: (error: StorageError | BusyError) => void;
}

/** A session: its key, and its agent (default `main`) when the key is bare, that is, not `agent:<agentId>:<rest>`. */
export interface SessionRef {
  sessionKey: string;
  agentId?: string;
}

/** An event to record. */
export interface NewEvent extends SessionRef {
  kind: Kind;
  actorType: ActorType;
  /** Who exactly: for an agent its session key. A watcher is never told of what it did itself. At most 512 bytes. */
  actorId?: string;
  /** The host's own id of the session's transcript. At most 512 bytes. */
  sessionId?: string;
  /** The run it belongs to. At most 512 bytes. */
  runId?: string;
  /** One line of at most 200 characters; a text for the kind when absent. Never message text. */
  summary?: string;
  /** An object of at most 4 KiB of JSON. Only `outcome`, `channel` and `turns` come out again. */
  payload?: { [name: string]: unknown };
  /** A second event with this key is not stored. A run's terminal event has `run-terminal:<runId>`. */
  dedupeKey?: string;
  /** When it happened, taken into the last 24 hours; now when absent. */
  occurredAt?: number;
  /** Watchers to tell beside the registered ones; for `child_spawned`, the parents whose cursors it seeds. */
  watcherSessionKeys?: readonly string[];
  /** Store nothing when nobody watches the session. Default false. */
  onlyIfWatched?: boolean;
}

/** Events that are stored together or not at all: at most 1,000. */
export interface NewEvents {
  events: readonly NewEvent[];
}

/** Wait until it is stored: the default. */
export interface Waiting {
  wait?: true;
}

/** Queue it for the library's background writer and return at once. */
export interface NotWaiting {
  wait: false;
}

/** What of a payload comes out. */
export interface Payload {
  outcome?: 'error' | 'timeout' | 'cancelled';
  channel?: string;
  turns?: number;
}

/** An event of one session's changes. */
export interface Change {
  /** Its place in the log: unique and rising. */
  sequence: number;
  kind: Kind;
  actorType: ActorType;
  actorId?: string;
  runId?: string;
  occurredAt: number;
  summary: string;
  payload?: Payload;
}

/** An event of the log. */
export interface LogEvent extends Change {
  sessionKey: string;
  agentId: string;
  sessionId?: string;
}

/** What recording one event came to. A duplicate answers the first event of its `dedupeKey`. */
export type Recorded =
  | { recorded: true; duplicate: boolean; event: LogEvent }
  | { recorded: false; reason: 'unwatched' };

/** One result an event, in their order. */
export interface RecordedBatch {
  results: Recorded[];
}

/** Whether the background writer has it; a full queue (8,192 events) turns it away. */
export type Queued = { queued: true } | { queued: false; reason: 'full' };

/** A watcher and what it watches. */
export interface Watch {
  /** An agent-qualified key. */
  watcherSessionKey: string;
  targetSessionKey: string;
  /** The target's agent when its key is bare. Default `main`. */
  targetAgentId?: string;
}

/** What became of a `watch`. `created` is false when it was there before. */
export type Watched =
  | { watched: true; created: boolean; stateVersion: number }
  | { watched: false; reason: 'self' | 'unqualified_watcher' };

/** A cursor: what a watcher has seen of a target. */
export interface WatchRow extends Required<Watch> {
  provenance: Provenance;
  notifyKinds: Kind[];
  /** What the watcher has acknowledged. */
  lastSeen: number;
  /** Where its open notice, or its last one, stands. */
  notified: number;
  /** The newest event that matters to it. */
  material: number;
  /** Whether a notice is open. */
  pending: boolean;
  /** Since when, in ms since the epoch; absent when none is open. */
  pendingSince?: number;
}

/** One line for a watcher's next prompt. */
export interface Notice {
  /** The line, the same to the byte as long as the notice is open. */
  text: string;
  targetSessionKey: string;
  targetAgentId: string;
  /** Where the watcher's knowledge ends: ask `changesSince` with it. */
  changesSince: number;
  /** What an acknowledgement names. */
  notified: number;
  /** A stable id of the target, for a host that keeps notices in a queue of its own. */
  contextKey: string;
}

/** A nudge: this watcher has a notice to drain. */
export interface Wake {
  /** The watcher to wake. */
  sessionKey: string;
  targetSessionKey: string;
  targetAgentId: string;
  reason: 'session-state';
}

/** What changed in a session, ascending, from one snapshot. */
export interface Changes {
  stateVersion: number;
  stateChanges: {
    events: Change[];
    /** An event above `changesSince` was pruned: this is no whole delta, read the session anew. */
    historyGap: boolean;
    /** `limit` left some out. */
    truncated: boolean;
    /** What to ask with next. */
    nextChangesSince: number;
    /** `changesSince` is above the version: the store was replaced. */
    futureCursor?: true;
  };
}

/** A session that has a log. */
export interface SessionRow {
  sessionKey: string;
  agentId: string;
  stateVersion: number;
  /** The highest sequence of it that was pruned, or 0. */
  prunedBelow: number;
}

/** What the background did for the sessions of one agent program since the handle was opened. */
export interface CatalogScans {
  /** Rounds in which something was looked at. */
  passes: number;
  /** How long the last one took. */
  lastPassMs: number;
  /** How long after its first sign the last activity was stored. */
  lagMs: number;
}

/** Counters of the handle and its database. */
export interface Stats {
  events: number;
  /** Sessions that have a log. */
  sessions: number;
  watches: number;
  links: number;
  /** Those of them that have a `fault`. */
  linksInError: number;
  /** Open notices. */
  pending: number;
  /** Records of this handle that failed to store. */
  failedAppends: number;
  /** How often this handle could not read or write its database. */
  storageFaults: number;
  /** Why, the last time. */
  lastFault?: string;
  /** Why the database cannot be read now; what is counted in it is then what it was before. */
  unreadable?: string;
  /** Whether damage was seen in the database: this handle writes nothing more to it. */
  damaged: boolean;
  /** What is damaged. */
  damage?: string;
  /** Events this handle's full queue turned away. */
  shedEvents: number;
  /** Events this handle queued and did not store yet. */
  queuedEvents: number;
  /** Wakes this handle was offered and that nobody took yet. */
  queuedWakes: number;
  schemaVersion: string;
  /** The database file, as an absolute path. */
  database: string;
  databaseBytes: number;
  walBytes: number;
  /** The library's version. */
  version: string;
  /** Whether changes of the agents' files are seen at once: in all folders of linked sources, in some, in none. */
  fileEvents: 'full' | 'partial' | 'off';
  /** Folders of linked sources whose changes are seen. */
  watchedFolders: number;
  /** Those the system would not watch: what is in them is looked at every interval. */
  unwatchedFolders: number;
  scans: { [catalog in Catalog]?: CatalogScans };
  [more: string]: unknown;
}

/** A session and the session of another agent program that it was adopted from. */
export interface Link extends Required<SessionRef> {
  catalog: Catalog;
  threadId: string;
  /** Its file; absent when it is on another host. */
  source?: string;
  hostId: string;
  adoptedAt: number;
  /** How many checks in a row found the source gone; the third drops the link. */
  missing: number;
  /** There while its file cannot be read; `links` alone tells it. */
  fault?: LinkFault;
}

/** What keeps the file of a link from being read. */
export interface LinkFault {
  /** Since when. */
  since: number;
  /** Why, the last time. */
  message: string;
}

/** What became of an `adopt`. `event` is the first one, when the same source was adopted before. */
export type Adopted =
  | { adopted: true; linked: true; link: Link; event: LogEvent }
  | { adopted: true; linked: false; reason: 'legacy_format'; event: LogEvent };

/** A session that `discover` found: `adopt` takes its `catalog`, `threadId` and `source`. */
export interface DiscoveredSession {
  catalog: Catalog;
  threadId: string;
  source: string;
  cwd?: string;
  updatedAt: number;
  adopted: boolean;
}

/**
 * What one pass over an adopted session found. `humanTurns` is the sum of the three after it; `message` says why it is
 * an `error`.
 */
export interface ScanOutcome extends Required<SessionRef> {
  catalog: Catalog;
  /** `activity` when there were new rows, whoever wrote them. */
  outcome: 'unchanged' | 'activity' | 'missing' | 'deferred' | 'replaced' | 'error';
  humanTurns: number;
  prompts: number;
  commands: number;
  shells: number;
  message?: string;
}

/** The wakes of a handle, for `for await`. Several `next()` may be pending; they are answered in their order. */
export interface WakeIterator extends AsyncIterableIterator<Wake> {
  /** Ends the iteration and what is pending of it. A wake that was on its way still goes to who asked for it. */
  return(): Promise<IteratorReturnResult<undefined>>;
  [Symbol.asyncIterator](): this;
  /** `return`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** Which library is in use. */
export interface LibraryInfo {
  /** Its file. */
  path: string;
  /** Its version. */
  version: string;
  /** The version of its C ABI. */
  abiVersion: number;
}

/**
 * Loads the library, if it is not loaded yet, and tells which one it is. It is the file that `SESSION_AWARENESS_LIB`
 * names; else the one of the package for this platform, or beside this package; else the one that a checkout has built.
 *
 * @throws {Error} when there is none, or one with another ABI version; the message tells what was tried.
 */
export function libraryInfo(): LibraryInfo;

/** A tool, by the format that is asked for. */
export interface ToolShapes {
  openai: {
    type: 'function';
    function: { name: string; description: string; parameters: Record<string, unknown> };
  };
  anthropic: { name: string; description: string; input_schema: Record<string, unknown> };
  'json-schema': Record<string, unknown>;
}

/**
 * An open database.
 *
 * A method that returns a promise runs on a thread of Node's pool and leaves the event loop free. Two calls that are
 * not awaited may be carried out in either order. A failed call rejects with the `AwarenessError` of its code; what
 * JSON cannot carry (a BigInt, a cycle) is a `TypeError`. After `close()` every call is `closed`.
 *
 * Close it before the process or its worker ends, or events that were only queued may be lost. An object belongs to
 * the thread that opened it; each worker opens its own, on the same file if it likes.
 */
export class Awareness {
  private constructor();

  /**
   * Opens a database, making or migrating it as needed.
   *
   * @throws {AwarenessError} `invalid_argument`, `not_found`, `storage` or `unsupported`.
   * @throws {Error} when the library cannot be loaded; see `libraryInfo`.
   */
  static open(config: Config, options?: Options): Promise<Awareness>;

  /** As `open`, on the calling thread, for scripts: the event loop stands still meanwhile. */
  static openSync(config: Config, options?: Options): Awareness;

  /**
   * Records that something happened to a session.
   *
   * Signalling never fails the turn that caused it: what cannot be stored (`storage`, `busy`) is told to `onError` and
   * resolves with null. Other errors reject. With `wait: false` the event is checked and queued on the calling
   * thread, which does not block; such events are stored in the order of the calls, and before what is recorded later.
   */
  record(request: NewEvent & NotWaiting): Promise<Queued | null>;
  record(request: NewEvents & NotWaiting): Promise<Queued | null>;
  record(request: NewEvent & Waiting): Promise<Recorded | null>;
  record(request: NewEvents & Waiting): Promise<RecordedBatch | null>;

  /** As `record`, on the calling thread, for scripts: it waits for the disk, and the event loop with it. */
  recordSync(request: NewEvent & NotWaiting): Queued | null;
  recordSync(request: NewEvents & NotWaiting): Queued | null;
  recordSync(request: NewEvent & Waiting): Recorded | null;
  recordSync(request: NewEvents & Waiting): RecordedBatch | null;

  /** How far the logs of up to 1,000 sessions have come: 0 when nothing is logged. */
  stateVersions(request: {
    sessions: readonly SessionRef[];
  }): Promise<{ versions: (Required<SessionRef> & { stateVersion: number })[] }>;

  /**
   * The rows of a gateway's list of sessions, each with `stateVersion` added where something is logged. A row has a
   * `sessionKey` and may have an `agentId`; what else is in it stays, and `rows` themselves are not changed.
   */
  withStateVersions<Row extends SessionRef>(rows: Iterable<Row>): Promise<(Row & { stateVersion?: number })[]>;

  /**
   * Makes a session a watcher of another, from the target's version now. Watching again keeps the watermarks;
   * `notifyKinds`, when given, replaces the kinds it is told of (by default the three notifying ones).
   */
  watch(request: Watch & { provenance?: Provenance; notifyKinds?: readonly Kind[] }): Promise<Watched>;

  /** Ends a watch. */
  unwatch(request: Watch): Promise<{ unwatched: boolean }>;

  /** Lists watches; each given field narrows the list. `limit` is at most 1,000, which is the default. */
  watches(
    request?: Partial<Watch> & { limit?: number; offset?: number },
  ): Promise<{ watches: WatchRow[]; more: boolean }>;

  /** Forgets what a watcher watches; the targets' history stays. */
  sessionReset(request: { sessionKey: string }): Promise<{ removedWatches: number }>;

  /** Forgets a session: its events, its version, its link and every cursor it has a part in. */
  sessionDelete(request: SessionRef): Promise<{ deleted: boolean }>;

  /**
   * Takes a watcher's notices, oldest first, `limit` (default 100) at most. They are acknowledged in the same step
   * unless `ack` is false; then they stay open until `ackNotices`.
   */
  drainNotices(request: {
    watcherSessionKey: string;
    ack?: boolean;
    limit?: number;
  }): Promise<{ notices: Notice[]; more: boolean }>;

  /** Acknowledges what was drained with `ack: false`. `reopened` counts the new notices, for what came in between. */
  ackNotices(request: {
    watcherSessionKey: string;
    notices: readonly { targetSessionKey: string; targetAgentId?: string; notified: number }[];
  }): Promise<{ acknowledged: number; reopened: number }>;

  /**
   * Waits up to `timeoutMs` for wakes and takes up to `max` of them (by default all there are): none when the time
   * is over; 0 asks without waiting. Waiting takes no thread; it keeps the process alive until it ends, which `close`
   * does at once, with `closed`. For a loop use `wakes`.
   */
  waitWakes(request: { timeoutMs: number; max?: number }): Promise<{ wakes: Wake[] }>;

  /**
   * The wakes of this handle as they come: `for await (const wake of awareness.wakes())`.
   *
   * Waiting blocks nothing. It does not keep the process alive, unless `keepAlive` is true: a program that does nothing
   * but wait for wakes needs that, else it ends. Each wake goes to one of those who wait, on this handle
   * or another of the same database that is offered it. The loop ends with `break`, when the handle is closed, and when
   * `signal` aborts; any other error is thrown into it. A `readOnly` handle is offered none.
   */
  wakes(options?: { signal?: AbortSignal; keepAlive?: boolean }): WakeIterator;

  /** What changed in a session above `changesSince`, at most `limit` events (200, the default). Moves no cursor. */
  changesSince(request: SessionRef & { changesSince: number; limit?: number }): Promise<Changes>;

  /** The sessions that have a log, by (agentId, sessionKey); `after` is the last one of the page before. */
  sessions(request?: {
    after?: Required<SessionRef>;
    limit?: number;
  }): Promise<{ sessions: SessionRow[]; more: boolean }>;

  /** The log over all sessions, ascending, above `after`; each given field narrows the list. */
  events(
    request?: Partial<SessionRef> & { after?: number; kinds?: readonly Kind[]; limit?: number },
  ): Promise<{ events: LogEvent[]; more: boolean }>;

  /** Writes a consistent copy to `path`, which must not exist. */
  backup(request: { path: string }): Promise<{ bytes: number }>;

  /** Prunes what retention no longer keeps; resolves when that is done. */
  maintain(): Promise<{ prunedEvents: number; prunedCursors: number }>;

  /**
   * The session tools this library backs, in the shape a model API takes: `session_status` with `changesSince`, which
   * `changesSince` answers, and `sessions_send` with `watch`, for which the host calls `watch` once the message was
   * taken; a host may add properties of its own. `prompt` is a paragraph on notices for the agents' system prompt.
   */
  toolSchemas<Format extends keyof ToolShapes>(request: { format: Format }): Promise<{
    format: Format;
    tools: ToolShapes[Format][];
    prompt: string;
  }>;

  /** Counters of this handle and its database. */
  stats(): Promise<Stats>;

  /**
   * Links a session to the session of another agent program, to be watched for what people type there. `source` is
   * its file (OpenCode: its `opencode.db` or data folder, with `threadId` beside it); `threadId` alone is looked up.
   * `baseline` `now`, the default, tells only turns to come, for which the source is read once; `start` tells all.
   * With a `hostId` other than `local` nothing is looked up, and its rows come by `feed`. The same source again keeps
   * its position.
   */
  adopt(
    request: SessionRef & {
      catalog: Catalog;
      threadId?: string;
      source?: string;
      hostId?: string;
      baseline?: 'now' | 'start';
    },
  ): Promise<Adopted>;

  /** Ends a link. */
  release(request: SessionRef): Promise<{ released: boolean }>;

  /** The links, by session key and agent; `limit` is at most 1,000, which is the default. */
  links(request?: { limit?: number; offset?: number }): Promise<{ links: Link[]; more: boolean }>;

  /**
   * The agent programs' own sessions, newest first; `limit` (default 100) is at most 1,000. They are looked for in
   * `monitor.roots`, else where the programs themselves would keep them.
   */
  discover(request?: {
    catalog?: Catalog;
    limit?: number;
    offset?: number;
  }): Promise<{ sessions: DiscoveredSession[]; more: boolean }>;

  /**
   * One pass now over the linked sessions, or some of them; the outcomes by session key and agent. The background does
   * the same by itself as long as `monitor` is enabled.
   */
  scan(request?: { catalog?: Catalog; sessionKey?: string }): Promise<{ outcomes: ScanOutcome[] }>;

  /**
   * Says that the host itself runs the session now: until it ends its source is not read. Nothing is lost, what people
   * typed meanwhile is told afterwards. The mark ends with this handle, or its process, at the latest.
   */
  setRunActive(request: SessionRef & { active: boolean }): Promise<{ active: boolean }>;

  /**
   * Remembers what the host itself is about to send, which is then no person's turn. Call it before sending, with the
   * text as the agent program will store it. A keyed hash is kept, of the newest 10 messages a session.
   */
  ownMessage(request: SessionRef & { text: string }): Promise<{ remembered: true }>;

  /**
   * Hands over rows of a session on another machine, in order, or tells that it is gone. They are the agent program's
   * own (OpenCode: `{ info, parts }`); those handed over before may come again.
   */
  feed(request: SessionRef & ({ rows: readonly unknown[] } | { missing: true })): Promise<ScanOutcome>;

  /**
   * Ends every wait with `closed`, carries out the calls made before it, writes what is queued and closes. What reads
   * agents' files (`adopt`, `discover`, `scan`) is not waited for, and may be `closed`. Closing again gives the same
   * promise.
   */
  close(): Promise<void>;

  /** `close`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;

  /** Begins to `close` and does not wait for it, for `using`: a wait could stop the event loop for long. */
  [Symbol.dispose](): void;
}
