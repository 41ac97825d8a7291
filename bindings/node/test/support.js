import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setImmediate as turn } from 'node:timers/promises';
import { Awareness } from 'session-awareness';

export const MAIN = 'agent:main:main';
export const CHILD = 'agent:main:subagent:child';
export const DEADLINE_MS = 20_000;

const cleanups = new WeakMap();

/** Runs `step` after the test, the latest first: the runner's own hooks go the other way. */
export function after(t, step) {
  if (!cleanups.has(t)) {
    cleanups.set(t, []);
    t.after(async () => {
      for (const step of cleanups.get(t).reverse()) await step();
    });
  }
  cleanups.get(t).push(step);
}

/** A folder that goes with the test. */
export function folder(t) {
  const path = mkdtempSync(join(tmpdir(), 'session-awareness-'));
  after(t, () => rmSync(path, { recursive: true }));
  return path;
}

/** The config of a database of the test's own. */
export function config(t) {
  return { database: join(folder(t), 'aware.db'), monitor: { enabled: false } };
}

/** An open handle, closed with the test; on a database of the test's own unless `settings` names one. */
export async function open(t, settings, options) {
  const awareness = await Awareness.open({ ...(settings?.database ? {} : config(t)), ...settings }, options);
  after(t, () => awareness.close());
  return awareness;
}

/** An event that notifies. */
export function human(sessionKey, more) {
  return { sessionKey, kind: 'human_direct_message', actorType: 'human', ...more };
}

/** Turns of the event loop until `condition` answers something true, which is the result. */
export async function eventually(what, condition) {
  const end = performance.now() + DEADLINE_MS;
  for (;;) {
    const result = await condition();
    if (result) return result;
    if (performance.now() > end) throw new Error(`still not: ${what}`);
    await turn();
  }
}

/** Whether the event loop turned before `promise` was settled. */
export async function looped(promise) {
  let turned = false;
  const immediate = setImmediate(() => { turned = true; });
  await promise;
  clearImmediate(immediate);
  return turned;
}

/**
 * Runs a script in a process of its own, in which `Awareness` is imported and `argument` is given, and which is
 * killed at the deadline.
 */
export async function run(script, argument, { flags = [], env = {} } = {}) {
  const source = `import { Awareness } from 'session-awareness';
    const argument = ${JSON.stringify(argument ?? null)};
    ${script}`;
  const child = spawn(process.execPath, [...flags, '--input-type=module', '--eval', source], {
    cwd: new URL('..', import.meta.url),
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: DEADLINE_MS,
    killSignal: 'SIGKILL',
  });
  const [[code, signal], stdout, stderr] = await Promise.all([
    once(child, 'close'),
    text(child.stdout),
    text(child.stderr),
  ]);
  return { code, signal, stdout, stderr };
}
