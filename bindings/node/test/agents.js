/** Sessions as the four agent programs store them, and what a person's turn adds to them. */

import { randomUUID } from 'node:crypto';
import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

export const BEFORE = 'what was typed before the session was adopted';

function append(file, rows) {
  appendFileSync(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
}

function write(file, content) {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, JSON.stringify(content));
}

function now() {
  return new Date().toISOString();
}

const AGENTS = {
  claude: {
    place: (home, threadId) => join(home, 'projects', '-home-dev', `${threadId}.jsonl`),
    begin: () => [],
    turn: (text, sessionId) => [
      {
        type: 'user',
        uuid: randomUUID(),
        sessionId,
        timestamp: now(),
        cwd: '/home/dev',
        origin: { kind: 'human' },
        message: { role: 'user', content: text },
      },
    ],
  },
  codex: {
    place: (home, threadId) =>
      join(home, 'sessions', '2026', '11', '30', `rollout-2026-11-30T12-41-15-${threadId}.jsonl`),
    begin: (id) => [
      { timestamp: now(), type: 'session_meta', payload: { id, source: 'cli', cwd: '/home/dev' } },
    ],
    turn: (message) => [{ timestamp: now(), type: 'event_msg', payload: { type: 'user_message', message } }],
  },
  pi: {
    place: (home, threadId) => join(home, 'sessions', '--home-dev--', `2026-11-30T12-31-31-375Z_${threadId}.jsonl`),
    begin: (id) => [{ type: 'session', version: 3, id, timestamp: now(), cwd: '/home/dev' }],
    turn: (text) => [
      {
        type: 'message',
        id: randomUUID().slice(0, 8),
        parentId: null,
        timestamp: now(),
        message: { role: 'user', content: [{ type: 'text', text }] },
      },
    ],
  },
};

export const CATALOGS = ['claude', 'codex', 'opencode', 'pi'];

/** A session in the store of its agent, below the folder `homes`, that holds one turn. */
export function session(homes, catalog) {
  const home = join(homes, catalog);
  const made = catalog === 'opencode' ? tree(home) : rows(home, catalog);
  made.type(BEFORE);
  return { catalog, ...made };
}

function rows(home, catalog) {
  const { place, begin, turn } = AGENTS[catalog];
  const threadId = randomUUID();
  const source = place(home, threadId);
  mkdirSync(dirname(source), { recursive: true });
  append(source, begin(threadId));
  return {
    threadId,
    source,
    turn: (text) => turn(text, threadId),
    type: (text) => append(source, turn(text, threadId)),
  };
}

/** OpenCode's older store, of JSON files: its database is no other SQLite's to open in this process. */
function tree(home) {
  const threadId = nativeId('ses', Date.now());
  const updated = (time) => {
    const content = { id: threadId, projectID: 'p', directory: '/home/dev', time: { created: 1, updated: time } };
    write(join(home, 'storage', 'session', 'p', `${threadId}.json`), content);
  };
  updated(1);
  return {
    threadId,
    source: home,
    type(text) {
      const time = Date.now();
      const message = { id: nativeId('msg', time), sessionID: threadId, role: 'user', time: { created: time } };
      write(join(home, 'storage', 'message', threadId, `${message.id}.json`), message);
      const part = { id: nativeId('prt', time), sessionID: threadId, messageID: message.id, type: 'text', text };
      write(join(home, 'storage', 'part', message.id, `${part.id}.json`), part);
      updated(time);
    },
  };
}

/** An id that begins with its time, by which OpenCode's copies are known. */
function nativeId(prefix, time) {
  const milliseconds = (time % 2 ** 36).toString(16).padStart(9, '0');
  return `${prefix}_${milliseconds}${randomUUID().replaceAll('-', '').slice(0, 17)}`;
}
