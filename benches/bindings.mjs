// Calls of the Node binding for the table: `WHAT COUNT` on standard input, nanoseconds on standard output.

import { createInterface } from 'node:readline';
import koffi from '../bindings/node/node_modules/koffi/index.js';
import { Awareness } from '../bindings/node/index.js';

const CHILD = 'agent:main:subagent:child';
const event = {
  sessionKey: CHILD,
  kind: 'human_direct_message',
  actorType: 'human',
  payload: { channel: 'telegram' },
};

const awareness = Awareness.openSync({ database: process.argv[2], monitor: { enabled: false } });
await awareness.watch({ watcherSessionKey: 'agent:main:main', targetSessionKey: CHILD });

// What any call takes that goes the same way.
const empty = koffi.load(process.env.SESSION_AWARENESS_LIB).func('uint32_t aware_abi_version(void)');

const calls = {
  record: () => awareness.recordSync(event),
  queue: () => awareness.recordSync({ ...event, wait: false }),
  promise: () => awareness.record(event),
  empty: () => empty(),
  emptyPromise: () => new Promise((resolve) => empty.async(resolve)),
};

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
  while ((await awareness.stats()).queuedEvents > 0);
  console.log(JSON.stringify(taken));
}
await awareness.close();
