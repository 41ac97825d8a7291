import { BusyError, StorageError, awarenessError } from './errors.js';
import * as ffi from './ffi.js';
import { WakeIterator, WakeQueue } from './wakes.js';

export { libraryInfo } from './ffi.js';
export {
  AwarenessError,
  BusyError,
  ClosedError,
  InternalError,
  InvalidArgumentError,
  NotFoundError,
  StorageError,
  UnsupportedError,
} from './errors.js';

/** The verbs that have nothing to add to the library's own; `record` and `waitWakes` do. */
const VERBS = {
  stateVersions: 'aware_state_versions',
  watch: 'aware_watch',
  unwatch: 'aware_unwatch',
  watches: 'aware_watches',
  sessionReset: 'aware_session_reset',
  sessionDelete: 'aware_session_delete',
  drainNotices: 'aware_drain_notices',
  ackNotices: 'aware_ack_notices',
  changesSince: 'aware_changes_since',
  sessions: 'aware_sessions',
  events: 'aware_events',
  backup: 'aware_backup',
  maintain: 'aware_maintain',
  toolSchemas: 'aware_tool_schemas',
  stats: 'aware_stats',
  adopt: 'aware_adopt',
  release: 'aware_release',
  links: 'aware_links',
  discover: 'aware_discover',
  scan: 'aware_scan',
  setRunActive: 'aware_set_run_active',
  ownMessage: 'aware_own_message',
  feed: 'aware_feed',
};

/** What reads agents' files, which may take long or hang: the library ends it, or leaves it behind, when it closes. */
const READING = new Set(['aware_adopt', 'aware_discover', 'aware_scan']);

/** What one `stateVersions` takes. */
const MOST_SESSIONS = 1000;

const MAX_TIMER_MS = 2 ** 31 - 1;

// A net, for hosts that forget to close. It holds the handle and its queue, never the object itself.
const forgotten = new FinalizationRegistry(({ handle, wakes }) => {
  wakes.close();
  ffi.close(handle).catch(process.emitWarning);
});

/** Each member is documented in `index.d.ts`. */
export class Awareness {
  #handle;
  #wakes;
  #onError;
  #calls = new Set();
  #closing;

  constructor(handle, { onError = process.emitWarning } = {}) {
    this.#handle = handle;
    this.#wakes = new WakeQueue(handle);
    this.#onError = onError;
    forgotten.register(this, { handle, wakes: this.#wakes }, this);
  }

  static async open(config, options) {
    return new Awareness(await ffi.open(config), options);
  }

  static openSync(config, options) {
    return new Awareness(ffi.openSync(config), options);
  }

  static {
    for (const [method, verb] of Object.entries(VERBS)) {
      this.prototype[method] = function (request = {}) {
        return this.#call(verb, request);
      };
    }
  }

  async record(request) {
    try {
      // What is only queued does not block, and a thread of the pool would lose the order of the caller's events.
      return request?.wait === false
        ? this.#callSync('aware_record', request)
        : await this.#call('aware_record', request);
    } catch (error) {
      return this.#notStored(error);
    }
  }

  recordSync(request) {
    try {
      return this.#callSync('aware_record', request);
    } catch (error) {
      return this.#notStored(error);
    }
  }

  async withStateVersions(rows) {
    const listed = Array.from(rows, (row) => ({ ...row }));
    // Asked once for none too, so that a closed handle says so.
    let start = 0;
    do {
      const part = listed.slice(start, start + MOST_SESSIONS);
      const sessions = part.map(({ sessionKey, agentId }) => ({ sessionKey, agentId }));
      const { versions } = await this.stateVersions({ sessions });
      versions.forEach(({ stateVersion }, at) => {
        if (stateVersion > 0) part[at].stateVersion = stateVersion;
      });
      start += MOST_SESSIONS;
    } while (start < listed.length);
    return listed;
  }

  async waitWakes(request) {
    const timeoutMs = request?.timeoutMs;
    const waits = Number.isSafeInteger(timeoutMs) && timeoutMs > 0;
    // Asked at once in any case, which also has the library check the request.
    const reply = await this.#call('aware_wait_wakes', waits ? { ...request, timeoutMs: 0 } : request);
    if (!waits || reply.wakes.length > 0) return reply;
    const taker = this.#wakes.take(request.max);
    const timer = setTimeout(taker.cancel, Math.min(timeoutMs, MAX_TIMER_MS));
    try {
      return { wakes: await taker.wakes };
    } finally {
      clearTimeout(timer);
    }
  }

  wakes({ signal, keepAlive = false } = {}) {
    // The iterator holds this object, so that it is not collected while someone waits.
    return new WakeIterator((max) => this.#wakes.take(max, keepAlive), signal);
  }

  close() {
    return (this.#closing ??= this.#close());
  }

  [Symbol.asyncDispose]() {
    return this.close();
  }

  [Symbol.dispose]() {
    this.close().catch(process.emitWarning);
  }

  async #close() {
    forgotten.unregister(this);
    this.#wakes.close();
    // What was called before goes first, even what has not reached a thread yet.
    await Promise.allSettled(this.#calls);
    await ffi.close(this.#handle);
  }

  async #call(verb, request) {
    this.#checkOpen();
    const call = ffi.call(verb, this.#handle, request);
    if (!READING.has(verb)) this.#calls.add(call);
    try {
      return await call;
    } finally {
      this.#calls.delete(call);
    }
  }

  #callSync(verb, request) {
    this.#checkOpen();
    return ffi.callSync(verb, this.#handle, request);
  }

  #checkOpen() {
    if (this.#closing) throw awarenessError('closed', 'the handle is closed');
  }

  /** Signalling must not fail the turn that caused it: what could not be stored is told, not thrown. */
  #notStored(error) {
    if (!(error instanceof StorageError || error instanceof BusyError)) throw error;
    this.#onError(error);
    return null;
  }
}
