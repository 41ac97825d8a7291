import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Awareness } from 'session-awareness';
import { CHILD, MAIN, config, folder, human, open } from './support.js';

test('every method is declared, and every declared one is there', () => {
  const source = readFileSync(new URL('../index.d.ts', import.meta.url), 'utf8');
  const declared = source.slice(source.indexOf('export class Awareness {')).matchAll(/^ {2}(?:static )?(\w+)[<(]/gm);
  const names = [Awareness.prototype, Awareness].flatMap(Object.getOwnPropertyNames);
  const methods = names.filter((name) => !['length', 'name', 'prototype', 'constructor'].includes(name));
  assert.deepEqual(methods.sort(), [...new Set(Array.from(declared, ([, name]) => name))].sort());
});

test('every verb of the header is a method', () => {
  const header = readFileSync(new URL('../../../include/session_awareness.h', import.meta.url), 'utf8');
  const verbs = header.matchAll(/^int32_t aware_(\w+)\(aware_t \*handle,\s+const char \*request_json,/gm);
  const names = Array.from(verbs, ([, verb]) => verb.replaceAll(/_(\w)/g, (_, letter) => letter.toUpperCase()));
  assert.ok(names.length >= 25, `${names.length} verbs`);
  assert.deepEqual(names.filter((name) => typeof Awareness.prototype[name] !== 'function'), []);
});

test('record stores one event, and a duplicate answers the first', async (t) => {
  const awareness = await open(t);
  const event = human(CHILD, { payload: { channel: 'telegram' }, dedupeKey: 'd' });
  const first = await awareness.record(event);
  assert.equal(first.recorded, true);
  assert.equal(first.duplicate, false);
  assert.equal(first.event.summary, 'human message via telegram');
  assert.deepEqual(first.event.payload, { channel: 'telegram' });
  const second = await awareness.record(event);
  assert.deepEqual(second, { ...first, duplicate: true });
  assert.deepEqual(await awareness.record(human(CHILD, { onlyIfWatched: true })), {
    recorded: false,
    reason: 'unwatched',
  });
});

test('record stores a batch in its order', async (t) => {
  const awareness = await open(t);
  const events = [human(CHILD, { summary: 'a' }), human(CHILD, { summary: 'b' })];
  const { results } = await awareness.record({ events });
  assert.deepEqual(results.map(({ event }) => event.summary), ['a', 'b']);
  assert.ok(results[0].event.sequence < results[1].event.sequence);
  assert.deepEqual(await awareness.record({ events: [] }), { results: [] });
});

test('recordSync answers on the calling thread', async (t) => {
  const awareness = await open(t);
  assert.equal(awareness.recordSync(human(CHILD)).recorded, true);
  assert.equal(awareness.recordSync({ events: [human(CHILD)] }).results.length, 1);
  assert.deepEqual(awareness.recordSync(human(CHILD, { wait: false })), { queued: true });
});

test('the log is read by version, by session and as a whole', async (t) => {
  const awareness = await open(t);
  const { event } = await awareness.record(human(CHILD));
  const compacted = { sessionKey: 'global', agentId: 'ops', kind: 'compacted', actorType: 'system' };
  const other = await awareness.record(compacted);
  const last = other.event.sequence;

  const sessions = [{ sessionKey: CHILD }, { sessionKey: 'global', agentId: 'ops' }, { sessionKey: 'global' }];
  const { versions } = await awareness.stateVersions({ sessions });
  assert.deepEqual(versions.map(({ stateVersion }) => stateVersion), [event.sequence, last, 0]);

  const changes = await awareness.changesSince({ sessionKey: CHILD, changesSince: 0 });
  assert.equal(changes.stateVersion, event.sequence);
  assert.equal(changes.stateChanges.historyGap, false);
  assert.deepEqual(changes.stateChanges.events.map(({ sequence }) => sequence), [event.sequence]);

  const { events, more } = await awareness.events({ kinds: ['compacted'] });
  assert.deepEqual(events, [other.event]);
  assert.equal(more, false);
  assert.equal((await awareness.events()).events.length, 2);

  const page = await awareness.sessions({ limit: 1 });
  assert.equal(page.more, true);
  const [{ agentId, sessionKey }] = page.sessions;
  assert.deepEqual([agentId, sessionKey], ['main', CHILD]);
  const { sessions: rest } = await awareness.sessions({ after: { agentId, sessionKey } });
  assert.deepEqual(rest, [{ sessionKey: 'global', agentId: 'ops', stateVersion: last, prunedBelow: 0 }]);
});

test('a watch is made, listed and ended', async (t) => {
  const awareness = await open(t);
  const pair = { watcherSessionKey: MAIN, targetSessionKey: CHILD };
  assert.deepEqual(await awareness.watch(pair), { watched: true, created: true, stateVersion: 0 });
  assert.deepEqual(await awareness.watch({ ...pair, targetSessionKey: MAIN }), { watched: false, reason: 'self' });
  const { watches } = await awareness.watches();
  assert.deepEqual(watches.map(({ targetSessionKey }) => targetSessionKey), [CHILD]);
  assert.equal(watches[0].provenance, 'explicit');
  assert.deepEqual((await awareness.watches({ targetSessionKey: 'global' })).watches, []);
  assert.deepEqual(await awareness.unwatch(pair), { unwatched: true });
  assert.deepEqual(await awareness.unwatch(pair), { unwatched: false });
});

test('notices are drained, acknowledged and reopened', async (t) => {
  const awareness = await open(t);
  await awareness.watch({ watcherSessionKey: MAIN, targetSessionKey: CHILD });
  await awareness.record(human(CHILD));
  const { notices } = await awareness.drainNotices({ watcherSessionKey: MAIN, ack: false });
  assert.match(notices[0].text, /^Session "agent:main:subagent:child" changed/);
  await awareness.record(human(CHILD));
  const [{ targetSessionKey, notified }] = notices;
  const handled = { watcherSessionKey: MAIN, notices: [{ targetSessionKey, notified }] };
  assert.deepEqual(await awareness.ackNotices(handled), { acknowledged: 1, reopened: 1 });
  assert.deepEqual(await awareness.ackNotices(handled), { acknowledged: 0, reopened: 0 });
  assert.equal((await awareness.drainNotices({ watcherSessionKey: MAIN })).notices.length, 1);
  assert.deepEqual(await awareness.drainNotices({ watcherSessionKey: MAIN }), { notices: [], more: false });
});

test('a session is reset, and deleted', async (t) => {
  const awareness = await open(t);
  await awareness.watch({ watcherSessionKey: MAIN, targetSessionKey: CHILD });
  await awareness.record(human(CHILD));
  assert.deepEqual(await awareness.sessionReset({ sessionKey: MAIN }), { removedWatches: 1 });
  assert.deepEqual(await awareness.sessionDelete({ sessionKey: CHILD }), { deleted: true });
  assert.deepEqual(await awareness.sessionDelete({ sessionKey: CHILD }), { deleted: false });
});

test('upkeep: a copy, pruning, counters', async (t) => {
  const settings = config(t);
  const awareness = await open(t, { ...settings, retention: { maxEvents: 2 } });
  await awareness.record({ events: Array.from({ length: 5 }, () => human(CHILD)) });
  const path = join(folder(t), 'copy.db');
  const { bytes } = await awareness.backup({ path });
  assert.equal(bytes, statSync(path).size);
  assert.deepEqual(await awareness.maintain(), { prunedEvents: 3, prunedCursors: 0 });
  const stats = await awareness.stats();
  assert.equal(stats.events, 2);
  assert.equal(stats.database, settings.database);
});

test('rows of a list are completed with their versions', async (t) => {
  const awareness = await open(t);
  const { event } = await awareness.record(human(CHILD));
  const rows = [{ sessionKey: CHILD, title: 'a child' }, { sessionKey: 'global', agentId: 'ops' }];
  rows.push(...Array.from({ length: 1500 }, (_, n) => ({ sessionKey: `agent:main:n${n}` })), { sessionKey: CHILD });
  const before = structuredClone(rows);
  const completed = await awareness.withStateVersions(rows.values());
  assert.deepEqual(rows, before);
  assert.deepEqual(completed[0], { ...rows[0], stateVersion: event.sequence });
  assert.deepEqual(completed.at(-1), { ...rows.at(-1), stateVersion: event.sequence });
  assert.deepEqual(completed.slice(1, -1), rows.slice(1, -1));
});

test('the tools for agents come in the shapes of the model APIs', async (t) => {
  const awareness = await open(t);
  const [openai, anthropic, plain] = await Promise.all(
    ['openai', 'anthropic', 'json-schema'].map((format) => awareness.toolSchemas({ format })),
  );
  const names = ['session_status', 'sessions_send'];
  assert.deepEqual(openai.tools.map((tool) => tool.function.name), names);
  assert.deepEqual(anthropic.tools.map((tool) => tool.name), names);
  assert.deepEqual(plain.tools.map((tool) => tool.title), names);
  assert.ok(anthropic.tools[0].input_schema.properties.changesSince);
  assert.equal(openai.prompt, plain.prompt);
});
