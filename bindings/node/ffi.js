import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import koffi from 'koffi';
import { awarenessError } from './errors.js';
import { platformPackage } from './platform.js';

const ABI_VERSION = 1;

const handle = koffi.pointer(koffi.opaque());
// koffi copies a reply into a JavaScript string, then gives its pointer to the function here, once.
const text = koffi.disposable('str', (pointer) => native().functions.aware_string_free(pointer));
const reply = koffi.out(koffi.pointer(text));
const verb = ['int32_t', [handle, 'str', reply]];

/** All that this package calls of the C ABI: what it returns, and what it takes. */
const FUNCTIONS = {
  aware_abi_version: ['uint32_t', []],
  aware_version: ['str', []],
  aware_string_free: ['void', ['void *']],
  aware_open: ['int32_t', ['str', koffi.out(koffi.pointer(handle)), reply]],
  aware_close: ['int32_t', [handle]],
  aware_wake_fd: ['int32_t', [handle]],

  aware_record: verb,
  aware_state_versions: verb,
  aware_watch: verb,
  aware_unwatch: verb,
  aware_watches: verb,
  aware_session_reset: verb,
  aware_session_delete: verb,
  aware_drain_notices: verb,
  aware_ack_notices: verb,
  aware_wait_wakes: verb,
  aware_changes_since: verb,
  aware_sessions: verb,
  aware_events: verb,
  aware_backup: verb,
  aware_maintain: verb,
  aware_tool_schemas: verb,
  aware_stats: verb,
  aware_adopt: verb,
  aware_release: verb,
  aware_links: verb,
  aware_discover: verb,
  aware_scan: verb,
  aware_set_run_active: verb,
  aware_own_message: verb,
  aware_feed: verb,
};

/** Where the library may be, best first. One that is named must do; the others are looked for. */
function locate() {
  const named = process.env.SESSION_AWARENESS_LIB;
  if (named) return named;
  const file = `libsession_awareness${koffi.extension}`;
  try {
    return createRequire(import.meta.url).resolve(`${platformPackage()}/${file}`);
  } catch {
    // Not installed: a checkout, or a platform that none is packed for.
  }
  const tried = [`./${file}`, `../../target/release/${file}`, `../../target/debug/${file}`].map(
    (path) => fileURLToPath(new URL(path, import.meta.url)),
  );
  const found = tried.find((path) => existsSync(path));
  if (found) return found;
  throw new Error(
    `cannot find ${file}: SESSION_AWARENESS_LIB is not set, the package ${platformPackage()} is not installed, ` +
      `and there is none at ${tried.join(', ')}`,
  );
}

function load() {
  const path = locate();
  let bind;
  let abiVersion;
  try {
    const library = koffi.load(path);
    bind = (name) => library.func(name, ...FUNCTIONS[name]);
    abiVersion = bind('aware_abi_version')();
  } catch (cause) {
    throw new Error(`cannot load the session-awareness library ${path}: ${cause.message}`, { cause });
  }
  // Checked before the rest is bound, which a library of another ABI may lack.
  if (abiVersion !== ABI_VERSION) {
    throw new Error(`${path} has ABI version ${abiVersion}, this package needs ${ABI_VERSION}`);
  }
  const functions = Object.fromEntries(Object.keys(FUNCTIONS).map((name) => [name, bind(name)]));
  return { path, abiVersion, functions };
}

let loaded;

/** The library, loaded by the first that asks: importing the package never fails. */
function native() {
  return (loaded ??= load());
}

/** Which library is in use: its file, its version and that of its ABI. */
export function libraryInfo() {
  const { path, abiVersion, functions } = native();
  return { path, version: functions.aware_version(), abiVersion };
}

// The threads behind `.async` are libuv's few, which serve the host's files and name look-ups too, and koffi throws
// when more than 256 calls wait. So only a few are given to them at a time, and the others wait here in their order.
const MAX_IN_FLIGHT = 8;
const waiting = [];
let inFlight = 0;

function startWaiting() {
  while (inFlight < MAX_IN_FLIGHT && waiting.length > 0) waiting.shift()();
}

/** Calls a function on a thread of the pool; resolves with what it returns. */
function run(name, args) {
  const { async } = native().functions[name];
  return new Promise((resolve, reject) => {
    waiting.push(() => {
      inFlight += 1;
      const settle = (error, status) => {
        inFlight -= 1;
        if (error) reject(error);
        else resolve(status);
        startWaiting();
      };
      try {
        async(...args, settle);
      } catch (error) {
        settle(error);
      }
    });
    startWaiting();
  });
}

function answer(status, json) {
  const content = JSON.parse(json);
  if (status === 0) return content;
  const { code, message, field } = content.error;
  throw awarenessError(code, message, field);
}

/** Calls a verb on the calling thread. */
export function callSync(name, handle, request) {
  const out = [null];
  const status = native().functions[name](handle, JSON.stringify(request), out);
  return answer(status, out[0]);
}

/** Calls a verb on a thread of the pool. */
export async function call(name, handle, request) {
  const out = [null];
  const status = await run(name, [handle, JSON.stringify(request), out]);
  return answer(status, out[0]);
}

export function openSync(config) {
  const opened = [null];
  const out = [null];
  answer(native().functions.aware_open(JSON.stringify(config), opened, out), out[0]);
  return opened[0];
}

export async function open(config) {
  const opened = [null];
  const out = [null];
  answer(await run('aware_open', [JSON.stringify(config), opened, out]), out[0]);
  return opened[0];
}

/** Closes on a thread of the pool, since closing waits for calls that run there. */
export async function close(handle) {
  const status = await run('aware_close', [handle]);
  if (status !== 0) throw awarenessError('internal', `closing answered status ${status}`);
}

export function wakeFd(handle) {
  return native().functions.aware_wake_fd(handle);
}

const F_DUPFD_CLOEXEC = { linux: 1030, darwin: 67 }[process.platform];

/**
 * A descriptor of our own on the same pipe, for a socket to close. Node has no `dup`, and `/proc/self/fd` is not
 * there everywhere, nor readable any more once a process has changed its user; `fcntl` always is. Other than by
 * `dup`, the programs that the host starts do not inherit it.
 */
export function duplicate(fd) {
  const fcntl = koffi.load(null).func('int fcntl(int fd, int command, ...)');
  const copy = fcntl(fd, F_DUPFD_CLOEXEC, 'int', 0);
  if (copy < 0) throw awarenessError('internal', `cannot duplicate the wake descriptor: errno ${koffi.errno()}`);
  return copy;
}
