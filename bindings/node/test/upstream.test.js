import assert from 'node:assert/strict';
import { rmSync, symlinkSync, truncateSync, utimesSync } from 'node:fs';
import { test } from 'node:test';
import { Awareness, ClosedError } from 'session-awareness';
import { CATALOGS, session } from './agents.js';
import { DEADLINE_MS, MAIN, config, eventually, folder, looped, open } from './support.js';

const KEY = 'agent:coder:main';

/** The folder of the agents' homes, and the config of a handle that looks there. */
function setting(t, enabled = false) {
  const homes = folder(t);
  const roots = Object.fromEntries(CATALOGS.map((catalog) => [catalog, `${homes}/${catalog}`]));
  // An interval that no test lives to see: what is told in time, file events told.
  return { homes, settings: { ...config(t), monitor: { enabled, intervalMs: 3_600_000, roots } } };
}

/** On which `MAIN` watches `KEY`. */
async function watching(t, settings) {
  const awareness = await open(t, settings);
  await awareness.watch({ watcherSessionKey: MAIN, targetSessionKey: KEY });
  return awareness;
}

function adopt(awareness, { catalog, threadId, source }, more) {
  return awareness.adopt({ sessionKey: KEY, catalog, threadId, source, ...more });
}

function outcome(catalog, kind, prompts = 0) {
  const turns = { humanTurns: prompts, prompts, commands: 0, shells: 0 };
  return { sessionKey: KEY, agentId: 'coder', catalog, outcome: kind, ...turns };
}

for (const catalog of CATALOGS) {
  test(`a person's turn in an adopted session of ${catalog} is told`, async (t) => {
    const { homes, settings } = setting(t);
    const awareness = await watching(t, settings);
    const typed = session(homes, catalog);
    const { link, event, ...rest } = await adopt(awareness, typed);
    assert.deepEqual(rest, { adopted: true, linked: true });
    assert.deepEqual([event.kind, event.actorType, event.payload], ['adopted', 'human', { channel: catalog }]);
    const { threadId, source } = typed;
    const own = { sessionKey: KEY, agentId: 'coder', catalog, threadId, source, hostId: 'local', missing: 0 };
    assert.deepEqual(link, { ...own, adoptedAt: link.adoptedAt });
    assert.deepEqual(await awareness.links(), { links: [link], more: false });

    // What was there is not told; what comes is, once.
    assert.deepEqual(await awareness.scan(), { outcomes: [outcome(catalog, 'unchanged')] });
    typed.type('and now this');
    assert.deepEqual(await awareness.scan({ sessionKey: KEY }), { outcomes: [outcome(catalog, 'activity', 1)] });
    assert.deepEqual(await awareness.scan({ catalog }), { outcomes: [outcome(catalog, 'unchanged')] });
    const { wakes } = await awareness.waitWakes({ timeoutMs: 0 });
    assert.deepEqual(wakes.map(({ targetSessionKey }) => targetSessionKey), [KEY]);
    const { stateChanges } = await awareness.changesSince({ sessionKey: KEY, changesSince: event.sequence });
    assert.deepEqual(stateChanges.events.map(({ kind }) => kind), ['human_direct_message']);
    assert.deepEqual(stateChanges.events[0].payload, { channel: catalog });

    // Again the same source: the first event, and the position it had.
    assert.deepEqual((await adopt(awareness, typed)).event, event);
    assert.deepEqual((await awareness.scan()).outcomes, [outcome(catalog, 'unchanged')]);
    assert.deepEqual(await awareness.release({ sessionKey: KEY }), { released: true });
    assert.deepEqual(await awareness.release({ sessionKey: KEY }), { released: false });
    assert.deepEqual((await awareness.links()).links, []);
  });

  test(`the background tells what is typed in a session of ${catalog}`, async (t) => {
    const { homes, settings } = setting(t, true);
    const awareness = await watching(t, settings);
    const typed = session(homes, catalog);
    await adopt(awareness, typed);
    for (const text of ['one', 'two', 'three']) {
      typed.type(text);
      const { wakes } = await awareness.waitWakes({ timeoutMs: DEADLINE_MS });
      assert.deepEqual(wakes.map(({ targetSessionKey }) => targetSessionKey), [KEY], text);
      await awareness.drainNotices({ watcherSessionKey: MAIN });
    }
  });
}

test('several turns are one event that counts them', async (t) => {
  const { homes, settings } = setting(t);
  const awareness = await watching(t, settings);
  const typed = session(homes, 'claude');
  await adopt(awareness, typed, { baseline: 'start' });
  typed.type('<command-name>/review</command-name>');
  typed.type('<bash-input>ls</bash-input>');
  const { outcomes } = await awareness.scan();
  const turns = { humanTurns: 3, prompts: 1, commands: 1, shells: 1 };
  assert.deepEqual(outcomes, [{ ...outcome('claude', 'activity'), ...turns }]);
  const { events } = await awareness.events({ kinds: ['human_direct_message'] });
  assert.deepEqual(events.map(({ payload }) => payload), [{ channel: 'claude', turns: 3 }]);
});

test('stores are searched, and a thread id is enough', async (t) => {
  const { homes, settings } = setting(t);
  const awareness = await open(t, settings);
  const made = ['claude', 'codex', 'pi'].map((catalog) => session(homes, catalog));
  made.forEach(({ source }, age) => utimesSync(source, 1_700_000_000 - age, 1_700_000_000 - age));
  const { sessions, more } = await awareness.discover();
  assert.deepEqual(sessions.map(({ threadId }) => threadId), made.map(({ threadId }) => threadId));
  assert.equal(more, false);
  const [{ catalog, threadId, source }] = made;
  const found = { catalog, threadId, source, cwd: '/home/dev', updatedAt: 1_700_000_000_000, adopted: false };
  assert.deepEqual(sessions[0], found);
  assert.equal((await adopt(awareness, { catalog, threadId })).link.source, source);
  const page = await awareness.discover({ limit: 1 });
  assert.deepEqual(page, { sessions: [{ ...found, adopted: true }], more: true });
  assert.deepEqual((await awareness.discover({ catalog: 'pi' })).sessions, [sessions[2]]);
});

test('what cannot be adopted is told', async (t) => {
  const { homes, settings } = setting(t);
  const awareness = await open(t, settings);
  const { source, threadId } = session(homes, 'claude');
  for (const [wanted, more] of [
    [{ code: 'not_found', field: 'source' }, { source: homes }],
    [{ code: 'not_found', field: 'threadId' }, { threadId: 'no such thread' }],
    [{ code: 'invalid_argument', field: 'source' }, {}],
    [{ code: 'invalid_argument', field: 'threadId' }, { catalog: 'opencode', source }],
    [{ code: 'invalid_argument', field: 'baseline' }, { source, baseline: 'then' }],
  ]) {
    await assert.rejects(awareness.adopt({ sessionKey: KEY, catalog: 'claude', ...more }), wanted);
  }
  const reader = await open(t, { ...settings, readOnly: true });
  await assert.rejects(adopt(reader, { catalog: 'claude', threadId, source }), { code: 'unsupported' });
  assert.deepEqual(await reader.links(), { links: [], more: false });
});

test('a session that cannot be read says so', async (t) => {
  const { homes, settings } = setting(t);
  const awareness = await open(t, settings);
  const typed = session(homes, 'claude');
  await adopt(awareness, typed);
  assert.equal((await awareness.stats()).linksInError, 0);
  rmSync(typed.source);
  symlinkSync(typed.source, typed.source);
  const [told] = (await awareness.scan()).outcomes;
  assert.equal(told.outcome, 'error');
  const [{ fault }] = (await awareness.links()).links;
  assert.deepEqual(fault, { since: fault.since, message: told.message });
  assert.equal((await awareness.stats()).linksInError, 1);
});

test('a session that is gone is missing at the third look', async (t) => {
  const { homes, settings } = setting(t);
  const awareness = await watching(t, settings);
  const typed = session(homes, 'codex');
  await adopt(awareness, typed);
  rmSync(typed.source);
  for (let n = 0; n < 3; n += 1) {
    assert.deepEqual((await awareness.scan()).outcomes, [outcome('codex', 'missing')]);
  }
  assert.deepEqual((await awareness.scan()).outcomes, []);
  const { events } = await awareness.events({ kinds: ['upstream_missing'] });
  assert.deepEqual(events.map(({ summary }) => summary), ['upstream missing via codex']);
});

test('what the host sends itself is no person\'s turn', async (t) => {
  const { homes, settings } = setting(t);
  const awareness = await watching(t, settings);
  const typed = session(homes, 'pi');
  await adopt(awareness, typed);
  const reply = await awareness.ownMessage({ sessionKey: KEY, text: 'run the  tests\n' });
  assert.deepEqual(reply, { remembered: true });
  typed.type('run the tests');
  assert.deepEqual((await awareness.scan()).outcomes, [outcome('pi', 'activity')]);
  typed.type('run the tests again');
  assert.deepEqual((await awareness.scan()).outcomes, [outcome('pi', 'activity', 1)]);
});

test('while the host runs a session it is not looked at', async (t) => {
  const { homes, settings } = setting(t);
  const awareness = await watching(t, settings);
  const typed = session(homes, 'claude');
  await adopt(awareness, typed);
  assert.deepEqual(await awareness.setRunActive({ sessionKey: KEY, active: true }), { active: true });
  typed.type('typed meanwhile');
  assert.deepEqual((await awareness.scan()).outcomes, [outcome('claude', 'deferred')]);
  assert.deepEqual(await awareness.setRunActive({ sessionKey: KEY, active: false }), { active: false });
  assert.deepEqual((await awareness.scan()).outcomes, [outcome('claude', 'activity', 1)]);
});

test('rows of another machine are fed', async (t) => {
  const { homes, settings } = setting(t);
  const awareness = await watching(t, settings);
  await assert.rejects(awareness.feed({ sessionKey: KEY, rows: [] }), { code: 'not_found' });
  const { catalog, threadId, turn } = session(homes, 'claude');
  const { link } = await adopt(awareness, { catalog, threadId }, { hostId: 'node-7' });
  assert.deepEqual([link.hostId, 'source' in link], ['node-7', false]);
  const rows = turn('typed there');
  assert.deepEqual(await awareness.feed({ sessionKey: KEY, rows }), outcome('claude', 'activity', 1));
  assert.equal((await awareness.feed({ sessionKey: KEY, rows })).humanTurns, 0);
  // More than any other request may have.
  assert.equal((await awareness.feed({ sessionKey: KEY, rows: turn('x'.repeat(17 * 2 ** 20)) })).prompts, 1);
  assert.deepEqual((await awareness.scan()).outcomes, []);
  for (let n = 0; n < 3; n += 1) {
    assert.deepEqual(await awareness.feed({ sessionKey: KEY, missing: true }), outcome('claude', 'missing'));
  }
  assert.deepEqual((await awareness.links()).links, []);
});

test('stats tell of the background', async (t) => {
  const { homes, settings } = setting(t, true);
  const awareness = await watching(t, settings);
  await adopt(awareness, session(homes, 'claude'));
  const stats = await eventually('a pass', async () => {
    const stats = await awareness.stats();
    return stats.scans.claude?.passes > 0 && stats;
  });
  assert.deepEqual([stats.links, stats.fileEvents], [1, 'full']);
  assert.deepEqual([stats.watchedFolders, stats.unwatchedFolders], [1, 0]);
  assert.deepEqual(Object.keys(stats.scans.claude).sort(), ['lagMs', 'lastPassMs', 'passes']);
});

test('what reads files leaves the event loop free', async (t) => {
  const { homes, settings } = setting(t);
  const awareness = await open(t, settings);
  assert.equal(await looped(adopt(awareness, session(homes, 'claude'))), true);
  assert.equal(await looped(awareness.scan()), true);
  assert.equal(await looped(awareness.discover()), true);
});

test('what reads files does not hold up a close', async (t) => {
  const { homes, settings } = setting(t);
  const awareness = await Awareness.open(settings);
  const typed = session(homes, 'claude');
  await adopt(awareness, typed);
  // A row without an end, of which no byte is on disk.
  truncateSync(typed.source, 2 ** 32);
  const scan = assert.rejects(awareness.scan(), ClosedError);
  const another = assert.rejects(adopt(awareness, typed, { sessionKey: 'agent:coder:other' }), ClosedError);
  await awareness.close();
  await Promise.all([scan, another]);
});
