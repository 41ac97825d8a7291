import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import koffi from 'koffi';
import {
  Awareness,
  AwarenessError,
  BusyError,
  ClosedError,
  InternalError,
  InvalidArgumentError,
  NotFoundError,
  StorageError,
  UnsupportedError,
} from 'session-awareness';
import { awarenessError } from '../errors.js';
import { CHILD, MAIN, after, config, folder, human, open } from './support.js';

test('each code has its class', () => {
  for (const [code, type] of Object.entries({
    invalid_argument: InvalidArgumentError,
    not_found: NotFoundError,
    storage: StorageError,
    busy: BusyError,
    closed: ClosedError,
    unsupported: UnsupportedError,
    internal: InternalError,
    unheard_of: AwarenessError,
  })) {
    const error = awarenessError(code, 'why', 'field');
    assert.equal(error.constructor, type);
    assert.ok(error instanceof AwarenessError);
    assert.deepEqual([error.code, error.message, error.field], [code, 'why', 'field']);
    assert.match(error.stack, new RegExp(`^${type.name}: why`));
  }
});

test('a wrong request rejects with the field at fault, and the handle stays usable', async (t) => {
  const awareness = await open(t);
  for (const [field, request] of [
    ['kind', human(CHILD, { kind: 'message' })],
    ['dedupKey', human(CHILD, { dedupKey: 'a' })],
    ['sessionKey', human('agent:main')],
    ['events[1].kind', { events: [human(CHILD), human(CHILD, { kind: 'message' })] }],
    ['kind', human(CHILD, { kind: 'message', wait: false })],
  ]) {
    await assert.rejects(awareness.record(request), { name: 'InvalidArgumentError', code: 'invalid_argument', field });
    assert.throws(() => awareness.recordSync(request), { code: 'invalid_argument', field });
  }
  await assert.rejects(awareness.changesSince({ sessionKey: CHILD, changesSince: -1 }), { field: 'changesSince' });
  await assert.rejects(Awareness.open({ ...config(t), readonly: true }), { field: 'readonly' });
  assert.throws(() => Awareness.openSync({}), { code: 'invalid_argument', field: 'database' });
  assert.equal((await awareness.stats()).events, 0);
});

test('what is no object, and what JSON cannot carry, is refused', async (t) => {
  const awareness = await open(t);
  for (const request of [null, undefined, () => {}, 7, 'x', []]) {
    await assert.rejects(awareness.record(request), { code: 'invalid_argument' });
    assert.throws(() => awareness.recordSync(request), { code: 'invalid_argument' });
    await assert.rejects(awareness.waitWakes(request), { code: 'invalid_argument' });
    await assert.rejects(Awareness.open(request), { code: 'invalid_argument' });
  }
  await assert.rejects(awareness.changesSince({ sessionKey: CHILD, changesSince: 1n }), TypeError);
  await assert.rejects(awareness.stateVersions({ sessions: [{ sessionKey: '\ud800' }] }), { code: 'invalid_argument' });
  await assert.rejects(awareness.stateVersions({ sessions: [{ sessionKey: '\0' }] }), { code: 'invalid_argument' });
});

test('what is not there is not found, and a reader changes nothing', async (t) => {
  const settings = config(t);
  await assert.rejects(Awareness.open({ ...settings, readOnly: true }), { name: 'NotFoundError', code: 'not_found' });
  await open(t, settings);
  const reader = await open(t, { ...settings, readOnly: true });
  await assert.rejects(reader.record(human(CHILD)), { name: 'UnsupportedError', code: 'unsupported' });
});

test('what is no database is a storage error', async (t) => {
  const database = join(folder(t), 'aware.db');
  writeFileSync(database, 'no database at all, '.repeat(1000));
  await assert.rejects(Awareness.open({ database }), { name: 'StorageError', code: 'storage' });
  assert.throws(() => Awareness.openSync({ database }), StorageError);
});

/** Takes the database from under a handle, until the test is over. */
function takeAway(t, { database }) {
  renameSync(database, `${database}.away`);
  after(t, () => renameSync(`${database}.away`, database));
}

test('a record that cannot be stored is told and resolves with null', async (t) => {
  const settings = config(t);
  const told = [];
  const awareness = await open(t, settings, { onError: (error) => told.push(error) });
  takeAway(t, settings);
  assert.equal(await awareness.record(human(CHILD)), null);
  assert.equal(awareness.recordSync(human(CHILD)), null);
  assert.equal(await awareness.record({ events: [human(CHILD)] }), null);
  assert.deepEqual(told.map(({ code }) => code), ['storage', 'storage', 'storage']);
  await assert.rejects(awareness.record(human(CHILD, { kind: 'message' })), InvalidArgumentError);
  await assert.rejects(awareness.watch({ watcherSessionKey: MAIN, targetSessionKey: CHILD }), StorageError);
});

/** Writes all the time, most of it inside a transaction. */
const WRITER = `
  import { Awareness } from 'session-awareness';
  const [database, event] = process.argv.slice(1).map((text) => JSON.parse(text));
  const awareness = Awareness.openSync({ database });
  console.log('ready');
  for (;;) awareness.recordSync({ events: Array(200).fill(event) });
`;

test('what another process keeps from being stored is told, and fails no turn', async (t) => {
  const settings = config(t);
  const told = [];
  const options = { onError: (error) => told.push(error.code) };
  const awareness = await open(t, { ...settings, busyTimeoutMs: 50 }, options);
  const given = [settings.database, human(CHILD)].map((value) => JSON.stringify(value));
  const writer = spawn(process.execPath, ['--input-type=module', '--eval', WRITER, '--', ...given], {
    cwd: import.meta.dirname,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  after(t, () => writer.kill('SIGKILL'));
  await once(writer.stdout, 'data');
  // Stopped again and again, until it is inside a transaction.
  for (;;) {
    writer.kill('SIGSTOP');
    if (awareness.recordSync(human(CHILD)) === null) break;
    writer.kill('SIGCONT');
  }
  assert.equal(await awareness.record(human(CHILD)), null);
  assert.deepEqual(told, ['busy', 'busy']);
  await assert.rejects(awareness.watch({ watcherSessionKey: MAIN, targetSessionKey: CHILD }), BusyError);
  await assert.rejects(Awareness.open({ ...settings, busyTimeoutMs: 50 }), { name: 'BusyError', code: 'busy' });
  assert.equal((await awareness.stats()).failedAppends, 2);
  writer.kill('SIGKILL');
  await once(writer, 'exit');
  assert.equal((await awareness.record(human(CHILD))).recorded, true);
});

test('without onError it becomes a warning of the process', async (t) => {
  const settings = config(t);
  const awareness = await open(t, settings);
  takeAway(t, settings);
  const warned = once(process, 'warning');
  assert.equal(await awareness.record(human(CHILD)), null);
  assert.ok((await warned)[0] instanceof StorageError);
});

test('every reply is freed, once', async (t) => {
  const awareness = await open(t);
  const before = koffi.stats().disposed;
  await awareness.stats();
  await awareness.record(human(CHILD, { kind: 'message' })).catch(() => {});
  awareness.recordSync(human(CHILD));
  await Awareness.open({}).catch(() => {});
  assert.equal(koffi.stats().disposed - before, 4);
});
