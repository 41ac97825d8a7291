#!/usr/bin/env node
/*
A gateway that keeps its sessions aware of each other, in one story.

usage: gateway.mjs [DATABASE]

DATABASE is a file that is not there yet; without it a temporary one is used. What happens is
what happened in four real sessions (data/traffic.jsonl), in that order and with those times.
Each step is checked: the exit status is 0 only when the story went as it is told.
*/

import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect, isDeepStrictEqual } from 'node:util';

const { Awareness } = await import('session-awareness').catch((error) => {
  if (error.code !== 'ERR_MODULE_NOT_FOUND') throw error;
  return import('../bindings/node/index.js'); // not installed: take the package of this checkout
});

const MANAGER = 'agent:main:main';
const RESEARCH = 'agent:main:subagent:research';
const BUILD = 'agent:main:subagent:build';
const COORDINATOR = 'agent:ops:main';
const PEER = 'agent:coder:main';
const GROUP = 'agent:main:telegram:group:travel';

// Which session of this gateway each session of the data plays, and the channel people use there.
const CAST = {
  pi: [RESEARCH, 'telegram'],
  opencode: [PEER, 'slack'],
  'codex-1': [GROUP, 'telegram'],
  'codex-2': [BUILD, 'telegram'],
};

/** Ends the program when the story does not happen as told. */
function expect(what, actual, wanted) {
  if (!isDeepStrictEqual(actual, wanted)) {
    throw new Error(`not as told: ${what}: wanted ${inspect(wanted)}, got ${inspect(actual)}`);
  }
}

function chapter(title) {
  console.log(`\n${title}`);
}

function say(label, text) {
  console.log(`  ${label.padEnd(13)} ${text}`);
}

// What a gateway does when something happens in one of its sessions.

/** Takes the next act of the data, records it and tells it. */
async function happens(awareness, traffic) {
  const act = traffic.shift();
  const [key, channel] = CAST[act.session];
  const told = await record(awareness, act, key, channel);
  say(new Date(act.at).toISOString().slice(11, 23), `${key}  ${told}`);
}

/** Records one act; returns how it reads in the log. */
async function record(awareness, act, key, channel) {
  let event = { sessionKey: key, actorType: act.who, occurredAt: act.at };
  if (act.what === 'session_started') {
    if (key !== RESEARCH && key !== BUILD) return 'session started (not a change to record)';
    event = { ...event, kind: 'child_spawned', actorType: 'agent', actorId: MANAGER };
    event = { ...event, watcherSessionKeys: [MANAGER] };
  } else if (act.what === 'human_turn') {
    event = { ...event, kind: 'human_direct_message', payload: { channel } };
  } else {
    const run = `run-${act.at}`;
    // A run ends once: whichever part of the gateway tells it second stores nothing.
    event = { ...event, runId: run, dedupeKey: `run-terminal:${run}` };
    if (act.what === 'run_completed') {
      event = { ...event, kind: 'run_completed', actorId: key };
    } else {
      event = { ...event, kind: 'run_failed', payload: { outcome: 'timeout' } };
    }
  }
  const reply = await awareness.record(event);
  expect('the act is recorded', reply?.recorded, true);
  return `#${reply.event.sequence} ${reply.event.summary}`;
}

// What a watching session does.

async function isWoken(awareness, watcher, target) {
  const { wakes } = await awareness.waitWakes({ timeoutMs: 5000 });
  const pairs = wakes.map((wake) => [wake.sessionKey, wake.targetSessionKey]);
  expect('one wake', pairs, [[watcher, target]]);
  say('wake', `${watcher}, for ${target}`);
}

async function isNotWoken(awareness) {
  expect('no wake', (await awareness.waitWakes({ timeoutMs: 100 })).wakes, []);
  say('no wake', 'for anyone');
}

async function drainsOneNotice(awareness, watcher, ack = true) {
  const { notices } = await awareness.drainNotices({ watcherSessionKey: watcher, ack });
  expect('one notice', notices.length, 1);
  say('notice', notices[0].text);
  return notices[0];
}

async function drainsNothing(awareness, watcher) {
  expect('no notice', (await awareness.drainNotices({ watcherSessionKey: watcher })).notices, []);
  say('no notice', `for ${watcher}`);
}

/** Asks for the changes after `since`: the watcher is in sync again. */
async function reconciles(awareness, watcher, target, since, wanted) {
  const reply = await awareness.changesSince({ sessionKey: target, changesSince: since });
  const changes = reply.stateChanges;
  expect('nothing is missing', changes.historyGap || changes.truncated, false);
  expect('the changes', changes.events.map((event) => event.summary), wanted);
  for (const event of changes.events) {
    say(`since ${since}`, `#${event.sequence} ${event.summary} (${event.actorType})`);
  }
  say('in sync', `${watcher} with ${target} at ${reply.stateVersion}`);
}

// The story.

async function aPersonWritesToAChild(awareness, traffic) {
  chapter('1. A manager spawns a child; a person writes to the child by another channel.');
  await happens(awareness, traffic);
  await happens(awareness, traffic);
  await isWoken(awareness, MANAGER, RESEARCH);
  const { changesSince } = await drainsOneNotice(awareness, MANAGER);
  await reconciles(awareness, MANAGER, RESEARCH, changesSince, ['human message via telegram']);
  await drainsNothing(awareness, MANAGER);
}

async function aSecondChangeWhileItDrains(awareness, traffic) {
  chapter('2. A second change while the manager drains: exactly one more notice opens.');
  await happens(awareness, traffic);
  await isWoken(awareness, MANAGER, RESEARCH);
  const notice = await drainsOneNotice(awareness, MANAGER, false);
  await happens(awareness, traffic);
  await isNotWoken(awareness);
  const handled = { targetSessionKey: RESEARCH, notified: notice.notified };
  const reply = await awareness.ackNotices({ watcherSessionKey: MANAGER, notices: [handled] });
  expect('one handled, one more', [reply.acknowledged, reply.reopened], [1, 1]);
  say('acknowledged', `up to ${notice.notified}; one more notice is open`);
  await isWoken(awareness, MANAGER, RESEARCH);
  await happens(awareness, traffic);
  await happens(awareness, traffic);
  await isNotWoken(awareness);
}

async function theGatewayRestarts(awareness) {
  chapter('3. The gateway restarts with that notice pending: it is there again, and its wake.');
  say('restart', 'the database is closed and opened again');
  await isWoken(awareness, MANAGER, RESEARCH);
  const { changesSince } = await drainsOneNotice(awareness, MANAGER);
  const wanted = ['human message via telegram', 'child run completed', 'child run completed'];
  await reconciles(awareness, MANAGER, RESEARCH, changesSince, wanted);
  await drainsNothing(awareness, MANAGER);
}

async function aCoordinatorWatchesAPeer(awareness, traffic) {
  chapter('4. A coordinator watches a peer it did not spawn.');
  await happens(awareness, traffic);
  const reply = await awareness.watch({ watcherSessionKey: COORDINATOR, targetSessionKey: PEER });
  expect('the watch is new', reply.watched && reply.created, true);
  say('watch', `${COORDINATOR} watches ${PEER} from version ${reply.stateVersion}`);
  await happens(awareness, traffic);
  await isWoken(awareness, COORDINATOR, PEER);
  const { changesSince } = await drainsOneNotice(awareness, COORDINATOR);
  await reconciles(awareness, COORDINATOR, PEER, changesSince, ['human message via slack']);
  await happens(awareness, traffic);
  await drainsNothing(awareness, COORDINATOR);
}

async function aGroupInAmbientMode(awareness, traffic) {
  chapter('5. A group in ambient mode: a notice for the next turn, but no wake.');
  await happens(awareness, traffic);
  await happens(awareness, traffic);
  const reply = await awareness.watch({
    watcherSessionKey: MANAGER, targetSessionKey: GROUP, provenance: 'ambient-group',
  });
  expect('the watch is new', reply.watched && reply.created, true);
  say('watch', `${MANAGER} watches ${GROUP} from version ${reply.stateVersion}`);
  await happens(awareness, traffic);
  await happens(awareness, traffic);
  await isNotWoken(awareness);
  await happens(awareness, traffic);
  const { changesSince } = await drainsOneNotice(awareness, MANAGER);
  const wanted = ['child run completed', 'human message via telegram', 'child run completed'];
  await reconciles(awareness, MANAGER, GROUP, changesSince, wanted);
}

async function aRunFailsByTimeout(awareness, traffic) {
  chapter('6. A run fails by timeout: no notice tells of it, the next changes do.');
  await happens(awareness, traffic);
  await happens(awareness, traffic);
  await isWoken(awareness, MANAGER, BUILD);
  let { changesSince } = await drainsOneNotice(awareness, MANAGER);
  await reconciles(awareness, MANAGER, BUILD, changesSince, ['human message via telegram']);
  await happens(awareness, traffic);
  await happens(awareness, traffic);
  await isWoken(awareness, MANAGER, BUILD);
  ({ changesSince } = await drainsOneNotice(awareness, MANAGER));
  let wanted = ['child run completed', 'human message via telegram'];
  await reconciles(awareness, MANAGER, BUILD, changesSince, wanted);
  await happens(awareness, traffic);
  await isNotWoken(awareness);
  await drainsNothing(awareness, MANAGER);
  await happens(awareness, traffic);
  await happens(awareness, traffic);
  await isWoken(awareness, MANAGER, BUILD);
  ({ changesSince } = await drainsOneNotice(awareness, MANAGER));
  wanted = ['child run timed out', 'human message via telegram', 'child run completed'];
  await reconciles(awareness, MANAGER, BUILD, changesSince, wanted);
}

/** Opens the database for one part of the story, and closes it however that ends. */
async function withAwareness(database, part) {
  const awareness = await Awareness.open({ database });
  try {
    await part(awareness);
  } finally {
    await awareness.close();
  }
}

async function tell(database) {
  const lines = readFileSync(new URL('data/traffic.jsonl', import.meta.url), 'utf8').trimEnd();
  const traffic = lines.split('\n').map((line) => JSON.parse(line));
  console.log('One gateway, six moments. Times are those of the data, in UTC.');
  await withAwareness(database, async (awareness) => {
    await aPersonWritesToAChild(awareness, traffic);
    await aSecondChangeWhileItDrains(awareness, traffic);
  });
  await withAwareness(database, async (awareness) => {
    await theGatewayRestarts(awareness);
    await aCoordinatorWatchesAPeer(awareness, traffic);
    await aGroupInAmbientMode(awareness, traffic);
    await aRunFailsByTimeout(awareness, traffic);
  });
  expect('every act is told', traffic, []);
  console.log('\nAll of it happened as told.');
}

async function main([database, ...more]) {
  if (more.length > 0 || database === '-h' || database === '--help') {
    console.error('usage: gateway.mjs [DATABASE]');
    return 1;
  }
  if (database && existsSync(database)) {
    console.error(`${database} is there already; the story needs a fresh database`);
    return 1;
  }
  const folder = database ? undefined : mkdtempSync(join(tmpdir(), 'gateway-'));
  try {
    await tell(database ?? join(folder, 'gateway.db'));
  } finally {
    if (folder) rmSync(folder, { recursive: true });
  }
  return 0;
}

process.exitCode = await main(process.argv.slice(2));
