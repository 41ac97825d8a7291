// Calls of the Node binding for the table: `WHAT COUNT` on standard input, nanoseconds on standard output.

import { createInterface } from 'node:readline';
import koffi from '../bindings/node/node_modules/koffi/index.js';
import { Awareness } from '../bindings/node/index.js';

const CHILD = 'agent:main:subagent:child';
const watch = { watcherSessionKey: 'agent:main:main', targetSessionKey: CHILD };
const event = {
  sessionKey: CHILD,
  kind: 'human_direct_message',
  actorType: 'human',
  payload: { channel: 'telegram' },
};
const queued = { ...event, wait: false };

const [database, databaseByHand] = process.argv.slice(2);
const awareness = Awareness.openSync({ database, monitor: { enabled: false } });
await awareness.watch(watch);

// By hand, and so in a database of its own: a handle of the binding's is nobody else's.
const library = koffi.load(process.env.SESSION_AWARENESS_LIB);
const handle = koffi.pointer(koffi.opaque());
const free = library.func('aware_string_free', 'void', ['void *']);
const text = koffi.disposable('str', free);
const reply = koffi.out(koffi.pointer(text));
const verb = (name) => library.func(name, 'int32_t', [handle, 'str', reply]);
const [record, watchByHand, stats] = ['aware_record', 'aware_watch', 'aware_stats'].map(verb);
const empty = library.func('uint32_t aware_abi_version(void)');
const opened = [null];
library.func('aware_open', 'int32_t', ['str', koffi.out(koffi.pointer(handle)), reply])(
  JSON.stringify({ database: databaseByHand, monitor: { enabled: false } }),
  opened,
  [null],
);
const [own] = opened;
watchByHand(own, JSON.stringify(watch), [null]);

// The reply stays where it is: a call of C alone.
const rawReply = koffi.out(koffi.pointer('void *'));
const rawRecord = library.func('aware_record', 'int32_t', [handle, 'str', rawReply]);
const c = (text) => () => {
  const out = [null];
  rawRecord(own, text, out);
  free(out[0]);
};
const byHand = (event) => () => {
  const out = [null];
  record(own, JSON.stringify(event), out);
  JSON.parse(out[0]);
};
const promiseByHand = async () => {
  const out = [null];
  await new Promise((resolve) => record.async(own, JSON.stringify(event), out, resolve));
  JSON.parse(out[0]);
};

const calls = {
  record: () => awareness.recordSync(event),
  recordC: c(JSON.stringify(event)),
  recordHand: byHand(event),
  queue: () => awareness.recordSync(queued),
  queueC: c(JSON.stringify(queued)),
  queueHand: byHand(queued),
  promise: () => awareness.record(event),
  promiseC: c(JSON.stringify(event)),
  promiseHand: promiseByHand,
  // What any call takes that goes the same way.
  empty: () => empty(),
};

function queuedByHand() {
  const out = [null];
  stats(own, '{}', out);
  return JSON.parse(out[0]).queuedEvents;
}

console.log('ready');
for await (const line of createInterface({ input: process.stdin })) {
  const [what, count] = line.split(' ');
  const taken = [];
  for (let n = 0; n < Number(count); n += 1) {
    const begin = process.hrtime.bigint();
    const pending = calls[what]();
    if (pending instanceof Promise) await pending;
    taken.push(Number(process.hrtime.bigint() - begin));
  }
  while ((await awareness.stats()).queuedEvents + queuedByHand() > 0);
  console.log(JSON.stringify(taken));
}
await awareness.close();
process.exit();
