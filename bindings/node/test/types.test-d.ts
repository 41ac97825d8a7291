// Never run: `npm run typecheck` fails when a declaration accepts too little, or (`@ts-expect-error`) too much.

import {
  Awareness,
  AwarenessError,
  BusyError,
  StorageError,
  libraryInfo,
  type CatalogScans,
  type Change,
  type DiscoveredSession,
  type ErrorCode,
  type Kind,
  type Link,
  type LinkFault,
  type LogEvent,
  type Queued,
  type Recorded,
  type RecordedBatch,
  type ScanOutcome,
  type Wake,
} from 'session-awareness';

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function same<A, B>(_: Same<A, B>): void {}

const human = { sessionKey: 'global', kind: 'goal_changed', actorType: 'human' } as const;

async function record(awareness: Awareness) {
  const one = await awareness.record(human);
  same<typeof one, Recorded | null>(true);
  if (one?.recorded) same<typeof one.event, LogEvent>(true);
  else if (one) same<typeof one.reason, 'unwatched'>(true);

  const many = await awareness.record({ events: [human, { ...human, payload: { channel: 'chat' } }], wait: true });
  same<typeof many, RecordedBatch | null>(true);
  const queued = await awareness.record({ ...human, wait: false });
  same<typeof queued, Queued | null>(true);
  const queuedMany = awareness.recordSync({ events: [human], wait: false });
  same<typeof queuedMany, Queued | null>(true);
  const now = awareness.recordSync(human);
  same<typeof now, Recorded | null>(true);

  // @ts-expect-error no such kind
  awareness.record({ ...human, kind: 'goal_chagned' });
  // @ts-expect-error who did it is required
  awareness.record({ sessionKey: 'global', kind: 'goal_changed' });
  // @ts-expect-error `wait` stands beside `events`
  awareness.record({ events: [{ ...human, wait: false }] });
  // @ts-expect-error a typo
  awareness.record({ ...human, dedupKey: 'x' });
  // @ts-expect-error a duplicate has its event only when it was recorded
  one?.event;
}

async function read(awareness: Awareness) {
  const { stateVersion, stateChanges } = await awareness.changesSince({ sessionKey: 'global', changesSince: 3 });
  same<typeof stateVersion, number>(true);
  same<typeof stateChanges.events, Change[]>(true);
  same<Change['kind'], Kind>(true);
  const { versions } = await awareness.stateVersions({ sessions: [{ sessionKey: 'global', agentId: 'ops' }] });
  same<(typeof versions)[number]['stateVersion'], number>(true);
  const { sessions } = await awareness.sessions();
  const last = sessions.at(-1);
  if (last) await awareness.sessions({ after: { agentId: last.agentId, sessionKey: last.sessionKey }, limit: 10 });
  await awareness.events({ kinds: ['adopted'], after: 7 });
  await awareness.backup({ path: 'copy.db' });
  const { prunedEvents } = await awareness.maintain();
  same<typeof prunedEvents, number>(true);
  const rows = await awareness.withStateVersions([{ sessionKey: 'global', title: 't' }]);
  same<(typeof rows)[number], { sessionKey: string; title: string } & { stateVersion?: number }>(true);
  const { tools, prompt } = await awareness.toolSchemas({ format: 'openai' });
  same<(typeof tools)[number]['function']['name'], string>(true);
  same<typeof prompt, string>(true);
  const anthropic = await awareness.toolSchemas({ format: 'anthropic' });
  same<(typeof anthropic.tools)[number]['input_schema'], Record<string, unknown>>(true);
  const { failedAppends, events } = await awareness.stats();
  same<typeof failedAppends | typeof events, number>(true);

  // @ts-expect-error a version is a number
  awareness.changesSince({ sessionKey: 'global', changesSince: '3' });
  // @ts-expect-error the agent is part of the place
  awareness.sessions({ after: { sessionKey: 'global' } });
  // @ts-expect-error nothing to give
  awareness.maintain({ force: true });
}

async function watch(awareness: Awareness) {
  const pair = { watcherSessionKey: 'agent:main:main', targetSessionKey: 'global' };
  const watched = await awareness.watch({ ...pair, provenance: 'ambient-group', notifyKinds: ['run_failed'] });
  if (watched.watched) same<typeof watched.created, boolean>(true);
  else same<typeof watched.reason, 'self' | 'unqualified_watcher'>(true);
  await awareness.unwatch(pair);
  const { watches } = await awareness.watches({ targetSessionKey: 'global', limit: 5 });
  same<(typeof watches)[number]['targetAgentId'], string>(true);
  const { notices } = await awareness.drainNotices({ watcherSessionKey: 'agent:main:main', ack: false });
  const { reopened } = await awareness.ackNotices({
    watcherSessionKey: 'agent:main:main',
    notices: notices.map(({ targetSessionKey, notified }) => ({ targetSessionKey, notified })),
  });
  same<typeof reopened, number>(true);
  await awareness.sessionReset({ sessionKey: 'agent:main:main' });
  await awareness.sessionDelete({ sessionKey: 'global', agentId: 'ops' });

  // @ts-expect-error no such provenance
  awareness.watch({ ...pair, provenance: 'ambient' });
}

async function wake(awareness: Awareness) {
  const { wakes } = await awareness.waitWakes({ timeoutMs: 0, max: 1 });
  same<typeof wakes, Wake[]>(true);
  for await (const wake of awareness.wakes({ signal: AbortSignal.timeout(1) })) {
    same<typeof wake, Wake>(true);
    same<typeof wake.reason, 'session-state'>(true);
  }
  await awareness.wakes().return();

  // @ts-expect-error how long is required
  awareness.waitWakes({});
}

async function upstream(awareness: Awareness) {
  const adopted = await awareness.adopt({ sessionKey: 'global', catalog: 'codex', threadId: 't', baseline: 'now' });
  if (adopted.linked) same<typeof adopted.link, Link>(true);
  else same<typeof adopted.reason, 'legacy_format'>(true);
  same<typeof adopted.event, LogEvent>(true);
  same<Link['source'], string | undefined>(true);
  same<Link['fault'], LinkFault | undefined>(true);
  await awareness.adopt({ sessionKey: 'global', catalog: 'pi', source: 'a.jsonl', hostId: 'local', agentId: 'ops' });
  const { released } = await awareness.release({ sessionKey: 'global' });
  same<typeof released, boolean>(true);
  const { links } = await awareness.links({ limit: 1, offset: 1 });
  same<typeof links, Link[]>(true);
  const { sessions, more } = await awareness.discover({ catalog: 'pi', limit: 1 });
  for (const { catalog, threadId, source } of sessions) {
    await awareness.adopt({ sessionKey: 'global', catalog, threadId, source });
  }
  same<typeof sessions, DiscoveredSession[]>(true);
  same<typeof more, boolean>(true);
  const { outcomes } = await awareness.scan({ catalog: 'claude', sessionKey: 'global' });
  same<typeof outcomes, ScanOutcome[]>(true);
  const fed = await awareness.feed({ sessionKey: 'global', rows: [{}] });
  same<typeof fed, ScanOutcome>(true);
  await awareness.feed({ sessionKey: 'global', missing: true });
  const { active } = await awareness.setRunActive({ sessionKey: 'global', active: true });
  same<typeof active, boolean>(true);
  await awareness.ownMessage({ sessionKey: 'global', text: 'hello' });
  const { fileEvents, scans, watchedFolders, unwatchedFolders } = await awareness.stats();
  same<typeof fileEvents, 'full' | 'partial' | 'off'>(true);
  same<typeof scans.claude, CatalogScans | undefined>(true);
  same<typeof watchedFolders | typeof unwatchedFolders, number>(true);

  // @ts-expect-error no such catalog
  awareness.discover({ catalog: 'gemini' });
  // @ts-expect-error whose it is is required
  awareness.adopt({ sessionKey: 'global', source: 'a.jsonl' });
  // @ts-expect-error no such baseline
  awareness.adopt({ sessionKey: 'global', catalog: 'pi', source: 'a.jsonl', baseline: 'end' });
  // @ts-expect-error a link only when there is one
  adopted.link;
  // @ts-expect-error rows, or that it is missing
  awareness.feed({ sessionKey: 'global' });
  // @ts-expect-error active or not
  awareness.setRunActive({ sessionKey: 'global' });
}

async function open() {
  const retention = { maxAgeMs: 1000 };
  const told: (StorageError | BusyError)[] = [];
  await using awareness = await Awareness.open({ database: 'a.db', retention }, { onError: (e) => told.push(e) });
  using other = Awareness.openSync({ database: 'a.db', readOnly: true, monitor: { roots: { pi: 'pi-home' } } });
  await other.close();
  same<ReturnType<typeof libraryInfo>['abiVersion'], number>(true);
  try {
    await awareness.stats();
  } catch (error) {
    if (error instanceof AwarenessError) same<typeof error.code, ErrorCode>(true);
    if (error instanceof AwarenessError) same<typeof error.field, string | undefined>(true);
    if (error instanceof StorageError) same<typeof error.code, 'storage'>(true);
  }

  // @ts-expect-error the database is required
  Awareness.open({ create: true });
  // @ts-expect-error a typo
  Awareness.open({ database: 'a.db', readonly: true });
  // @ts-expect-error only `open` makes one
  new Awareness();
}

export { record, read, watch, wake, upstream, open };
