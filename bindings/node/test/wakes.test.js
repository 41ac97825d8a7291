import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { getEventListeners } from 'node:events';
import { readdirSync, readlinkSync } from 'node:fs';
import { after, test } from 'node:test';
import { Awareness, ClosedError } from 'session-awareness';
import { CHILD, MAIN, config, eventually, human, open, run } from './support.js';

const OTHER = 'agent:main:other';
const DONE = { done: true, value: undefined };
const WAKE = { sessionKey: MAIN, targetSessionKey: CHILD, targetAgentId: 'main', reason: 'session-state' };

// Waiting for a wake keeps no process alive, not even that of these tests.
const alive = setInterval(() => {}, 1000);
after(() => clearInterval(alive));

/** A handle on which `MAIN` watches `CHILD`, so that each first change of it raises a wake. */
async function watching(t, settings) {
  const awareness = await open(t, settings);
  await awareness.watch({ watcherSessionKey: MAIN, targetSessionKey: CHILD });
  return awareness;
}

/** As a watcher does when it was woken: the next change raises a wake again. */
function drain(awareness) {
  return awareness.drainNotices({ watcherSessionKey: MAIN });
}

/** Whether a promise is still pending when the library has answered what was asked of it before. */
async function isPending(awareness, promise) {
  const pending = Symbol('pending');
  for (let n = 0; n < 5; n += 1) await awareness.stats();
  return (await Promise.race([promise, pending])) === pending;
}

test('the iterator gives wakes as they come, and break ends it', async (t) => {
  const awareness = await watching(t);
  await awareness.record(human(CHILD)); // before anyone waits
  let count = 0;
  for await (const wake of awareness.wakes()) {
    assert.deepEqual(wake, WAKE);
    await drain(awareness);
    count += 1;
    if (count === 3) break;
    setImmediate(() => awareness.record(human(CHILD))); // while it waits
  }
  assert.equal(count, 3);
});

test('a wake from another process ends the wait', async (t) => {
  const settings = config(t);
  const awareness = await watching(t, settings);
  const next = awareness.wakes().next();
  const { code, stderr } = await run(
    `const awareness = await Awareness.open(argument.settings);
    await awareness.record(argument.event);
    await awareness.close();`,
    { settings, event: human(CHILD) },
  );
  assert.equal(code, 0, stderr);
  assert.deepEqual(await next, { done: false, value: WAKE });
});

test('each wake goes to one of several iterators, and none is lost with one that ends', async (t) => {
  const awareness = await watching(t);
  await awareness.watch({ watcherSessionKey: OTHER, targetSessionKey: CHILD });
  const iterators = [awareness.wakes(), awareness.wakes(), awareness.wakes()];
  const nexts = iterators.map((iterator) => iterator.next());
  assert.equal(await isPending(awareness, Promise.race(nexts)), true);
  assert.deepEqual(await iterators[0].return(), DONE);
  assert.deepEqual(await nexts[0], DONE);
  await awareness.record(human(CHILD));
  const woken = await Promise.all([nexts[1], nexts[2]]);
  assert.deepEqual(woken.map(({ value }) => value.sessionKey).sort(), [MAIN, OTHER]);
  assert.deepEqual((await awareness.waitWakes({ timeoutMs: 0 })).wakes, []);
});

test('wakes that wait already are given to as many as ask', async (t) => {
  const awareness = await open(t);
  const watchers = ['agent:a:main', 'agent:b:main', 'agent:c:main', 'agent:d:main'];
  for (const watcherSessionKey of watchers) await awareness.watch({ watcherSessionKey, targetSessionKey: CHILD });
  await awareness.record(human(CHILD));
  const iterators = watchers.map(() => awareness.wakes());
  const woken = await Promise.all(iterators.map((iterator) => iterator.next()));
  assert.deepEqual(woken.map(({ value }) => value.sessionKey).sort(), watchers);
});

test('an iterator that gives up at once leaves the wake to the next', async (t) => {
  const awareness = await watching(t);
  await awareness.record(human(CHILD));
  const iterator = awareness.wakes();
  const next = iterator.next();
  await iterator.return();
  const { value } = await next;
  const { wakes } = await awareness.waitWakes({ timeoutMs: 0 });
  assert.deepEqual(value ? [value] : wakes, [WAKE]);
});

test('several next() of one iterator are answered in their order', async (t) => {
  const awareness = await watching(t);
  const iterator = awareness.wakes();
  const [first, second] = [iterator.next(), iterator.next()];
  await awareness.record(human(CHILD));
  assert.deepEqual(await first, { done: false, value: WAKE });
  assert.equal(await isPending(awareness, second), true);
  await drain(awareness);
  await awareness.record(human(CHILD));
  assert.deepEqual(await second, { done: false, value: WAKE });
});

test('a signal ends the iterator', async (t) => {
  const awareness = await watching(t);
  const controller = new AbortController();
  const { signal } = controller;
  const next = awareness.wakes({ signal }).next();
  assert.equal(await isPending(awareness, next), true);
  controller.abort();
  assert.deepEqual(await next, DONE);
  assert.deepEqual(await awareness.wakes({ signal }).next(), DONE);

  const kept = new AbortController();
  const iterator = awareness.wakes({ signal: kept.signal });
  await iterator[Symbol.asyncDispose]();
  assert.deepEqual(await iterator.next(), DONE);
  assert.equal(getEventListeners(kept.signal, 'abort').length, 0);
});

test('closing ends iterators, and waits with closed', async (t) => {
  const awareness = await watching(t);
  const next = awareness.wakes().next();
  const wait = awareness.waitWakes({ timeoutMs: 60_000 });
  const closed = assert.rejects(wait, ClosedError);
  assert.equal(await isPending(awareness, Promise.race([next, wait])), true);
  const closing = awareness.close();
  const late = awareness.wakes().next();
  assert.deepEqual(await next, DONE);
  await closed;
  assert.deepEqual(await late, DONE);
  await closing;
});

test('waitWakes waits no longer than it must, and leaves the event loop free', async (t) => {
  const awareness = await watching(t);
  assert.deepEqual(await awareness.waitWakes({ timeoutMs: 0 }), { wakes: [] });

  let turns = 0;
  const start = performance.now();
  const timer = setInterval(() => { turns += 1; }, 1);
  assert.deepEqual(await awareness.waitWakes({ timeoutMs: 100 }), { wakes: [] });
  clearInterval(timer);
  assert.ok(performance.now() - start >= 99);
  assert.ok(turns > 10, `${turns} turns`);

  const wait = awareness.waitWakes({ timeoutMs: 60_000 });
  assert.equal(await isPending(awareness, wait), true);
  await awareness.record(human(CHILD));
  assert.deepEqual(await wait, { wakes: [WAKE] });
});

test('waitWakes takes as many as it is asked to', async (t) => {
  const awareness = await watching(t);
  await awareness.watch({ watcherSessionKey: OTHER, targetSessionKey: CHILD });
  await awareness.record(human(CHILD));
  assert.equal((await awareness.waitWakes({ timeoutMs: 1000, max: 1 })).wakes.length, 1);
  assert.equal((await awareness.waitWakes({ timeoutMs: 1000 })).wakes.length, 1);
  for (const [field, request] of [
    ['timeoutMs', {}],
    ['timeoutMs', { timeoutMs: -1 }],
    ['timeoutMs', { timeoutMs: 0.5 }],
    ['max', { timeoutMs: 1000, max: 0 }],
    ['min', { timeoutMs: 1000, min: 0 }],
  ]) {
    await assert.rejects(awareness.waitWakes(request), { code: 'invalid_argument', field });
  }
});

test('more waits than the pool has threads hold nothing up', async (t) => {
  const awareness = await watching(t);
  const waits = Array.from({ length: 20 }, () => awareness.waitWakes({ timeoutMs: 60_000 }).catch(({ code }) => code));
  await awareness.stats();
  await awareness.record(human(CHILD));
  assert.deepEqual((await Promise.race(waits)).wakes, [WAKE]);
  await awareness.close();
  assert.equal((await Promise.all(waits)).filter((answer) => answer === 'closed').length, 19);
});

test('a reader is offered no wakes', async (t) => {
  const settings = config(t);
  const awareness = await watching(t, settings);
  const reader = await open(t, { ...settings, readOnly: true });
  const next = reader.wakes().next();
  await awareness.record(human(CHILD));
  assert.deepEqual(await reader.waitWakes({ timeoutMs: 20 }), { wakes: [] });
  await reader.close();
  assert.deepEqual(await next, DONE);
});

function pipes() {
  const links = readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return ''; // the folder's own descriptor
    }
  });
  return links.filter((link) => link.startsWith('pipe:'));
}

test('one descriptor serves all iterators of a handle, and goes with it', async (t) => {
  const before = pipes();
  const awareness = await Awareness.open(config(t));
  const iterators = [awareness.wakes(), awareness.wakes()];
  const first = iterators[0].next();
  // The library's own two ends, the one it shows, and a duplicate of that.
  await eventually('listening', () => pipes().length === before.length + 4);
  await iterators[0].return();
  assert.deepEqual(await first, DONE);
  assert.equal(await isPending(awareness, iterators[1].next()), true);
  const listening = pipes();
  assert.equal(listening.length, before.length + 4);

  const options = { stdio: ['ignore', 'pipe', 'ignore'], encoding: 'utf8' };
  const inherited = execFileSync('ls', ['-l', '/proc/self/fd'], options);
  const own = listening.find((link) => !before.includes(link));
  assert.ok(!inherited.includes(own), inherited);

  const closing = awareness.close();
  assert.equal(pipes().length, before.length + 3);
  await closing;
  assert.equal(pipes().length, before.length);
});

test('none is made once closing has begun', async (t) => {
  const before = pipes();
  const awareness = await Awareness.open(config(t));
  const slow = awareness.record({ events: Array.from({ length: 1000 }, () => human(CHILD)) });
  const next = awareness.wakes().next();
  const closing = awareness.close();
  await slow;
  assert.equal(pipes().length, before.length);
  assert.deepEqual(await next, DONE);
  await closing;
});
