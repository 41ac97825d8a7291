import assert from 'node:assert/strict';
import { test } from 'node:test';
import koffi from 'koffi';
import { Awareness, ClosedError } from 'session-awareness';
import { CHILD, config, human, looped, open } from './support.js';

test('calls leave the event loop free, and what is only queued needs none of it', async (t) => {
  const awareness = await open(t);
  const events = Array.from({ length: 1000 }, () => human(CHILD, { payload: { text: 'x'.repeat(3000) } }));
  assert.equal(await looped(awareness.record({ events })), true);
  assert.equal(await looped(awareness.stats()), true);
  assert.equal(await looped(awareness.record(human(CHILD, { wait: false }))), false);
});

test('queued events are stored in the order of the calls, at the latest by close', async (t) => {
  const settings = config(t);
  const awareness = await Awareness.open(settings);
  const wanted = Array.from({ length: 200 }, (_, n) => `${n}`);
  const queued = await Promise.all(wanted.map((summary) => awareness.record(human(CHILD, { summary, wait: false }))));
  assert.ok(queued.every((reply) => reply.queued));
  await awareness.close();
  const { events } = await (await open(t, settings)).events();
  assert.deepEqual(events.map(({ summary }) => summary), wanted);
});

test('a record that waits comes after what was queued before it', async (t) => {
  const awareness = await open(t);
  const wanted = Array.from({ length: 100 }, (_, n) => `${n}`);
  for (const summary of wanted) {
    const wait = Number(summary) % 4 === 3;
    const reply = awareness.record(human(CHILD, { summary, wait }));
    if (wait) await reply;
  }
  const { events } = await awareness.events();
  assert.deepEqual(events.map((event) => event.summary), wanted);
});

test('any number of calls may be under way', async (t) => {
  const awareness = await open(t);
  const replies = await Promise.all(Array.from({ length: 2000 }, () => awareness.record(human(CHILD))));
  assert.equal(new Set(replies.map(({ event }) => event.sequence)).size, 2000);
});

test('a pool that others have filled rejects a call, and the next ones work', async (t) => {
  const awareness = await open(t);
  const usleep = koffi.load(null).func('int usleep(unsigned int)');
  const { max_async_calls: most } = koffi.config();
  const others = Array.from({ length: most }, () => new Promise((done) => { usleep.async(1000, done); }));
  await assert.rejects(Promise.all(Array.from({ length: 50 }, () => awareness.stats())), Error);
  await Promise.all(others);
  await Promise.all(Array.from({ length: 50 }, () => awareness.stats()));
});

test('a request may have 16 MiB, and more is refused', async (t) => {
  const awareness = await open(t);
  const watcherSessionKeys = Array.from({ length: 1000 }, () => 'x'.repeat(500));
  const event = { sessionKey: CHILD, kind: 'compacted', actorType: 'system', watcherSessionKeys };
  const batch = (mebibytes) => {
    const length = Math.floor((mebibytes * 2 ** 20) / JSON.stringify(event).length);
    return { events: Array.from({ length }, () => event) };
  };
  assert.ok((await awareness.record(batch(15.5))).results.every(({ recorded }) => recorded));
  await assert.rejects(awareness.record(batch(16.5)), { code: 'invalid_argument' });
  assert.throws(() => awareness.recordSync(batch(16.5)), { code: 'invalid_argument' });
});

test('close carries out what was called before, once, and ends everything after', async (t) => {
  const settings = config(t);
  const awareness = await Awareness.open(settings);
  const records = Array.from({ length: 50 }, () => awareness.record(human(CHILD)));
  const closing = awareness.close();
  assert.equal(awareness.close(), closing);
  await assert.rejects(awareness.stats(), ClosedError);
  await closing;
  assert.ok((await Promise.all(records)).every((reply) => reply.recorded));
  assert.equal(awareness.close(), closing);
  // Few enough to meet the close on the threads of an idle pool.
  for (let n = 0; n < 50; n += 1) {
    const again = await Awareness.open(settings);
    const reads = [again.stats(), again.stats(), again.stats()];
    await again.close();
    await Promise.all(reads);
  }

  const methods = Object.getOwnPropertyNames(Awareness.prototype);
  for (const method of methods.filter((name) => !['constructor', 'recordSync', 'wakes', 'close'].includes(name))) {
    await assert.rejects(awareness[method]({ timeoutMs: 1 }), { name: 'ClosedError', code: 'closed' }, method);
  }
  assert.throws(() => awareness.recordSync(human(CHILD)), ClosedError);
  await assert.rejects(awareness.record(human(CHILD, { wait: false })), ClosedError);
  assert.deepEqual(await awareness.wakes().next(), { done: true, value: undefined });
  assert.equal((await (await open(t, settings)).stats()).events, 50);
});

test('Symbol.dispose begins to close, Symbol.asyncDispose closes', async (t) => {
  const settings = config(t);
  const one = Awareness.openSync(settings);
  assert.equal(one[Symbol.dispose](), undefined);
  await assert.rejects(one.stats(), ClosedError);
  await one.close();

  const two = await Awareness.open(settings);
  await two[Symbol.asyncDispose]();
  await assert.rejects(two.stats(), ClosedError);
});
