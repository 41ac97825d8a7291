import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readdirSync, realpathSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { libraryInfo } from 'session-awareness';
import { CHILD, DEADLINE_MS, MAIN, config, eventually, folder, human, open, run } from './support.js';

const here = new URL('.', import.meta.url);

test('an iterator that waits does not keep the process alive', async (t) => {
  const { code, signal, stdout, stderr } = await run(
    `const awareness = await Awareness.open(argument);
    (async () => { for await (const wake of awareness.wakes()) console.log(wake); })();
    process.on('exit', () => console.log('exit'));`,
    config(t),
  );
  assert.deepEqual({ code, signal, stdout }, { code: 0, signal: null, stdout: 'exit\n' }, stderr);
});

test('an iterator that is to keep the process alive does, for as long as it waits', async (t) => {
  const watch = { watcherSessionKey: MAIN, targetSessionKey: CHILD };
  const { code, signal, stdout, stderr } = await run(
    `const awareness = await Awareness.open(argument.settings);
    await awareness.watch(argument.watch);
    // Only reached by a process that lives on.
    setTimeout(() => awareness.record(argument.event), 50).unref();
    for await (const wake of awareness.wakes({ keepAlive: true })) {
      console.log(wake.sessionKey);
      break;
    }
    awareness.wakes().next();
    process.on('exit', () => console.log('exit'));`,
    { settings: config(t), watch, event: human(CHILD) },
  );
  const wanted = { code: 0, signal: null, stdout: `${MAIN}\nexit\n` };
  assert.deepEqual({ code, signal, stdout }, wanted, stderr);
});

test('Symbol.dispose keeps it alive until the handle is closed', async (t) => {
  const settings = config(t);
  const { code, stderr } = await run(
    `const awareness = Awareness.openSync(argument.settings);
    for (let n = 0; n < 100; n += 1) awareness.recordSync({ ...argument.event, wait: false });
    awareness[Symbol.dispose]();`,
    { settings, event: human(CHILD) },
  );
  assert.equal(code, 0, stderr);
  assert.equal((await (await open(t, settings)).stats()).events, 100);
});

test('a process may end in the middle of calls', async (t) => {
  const { code, signal, stderr } = await run(
    `const awareness = await Awareness.open(argument.settings);
    awareness.wakes().next();
    for (let n = 0; n < 100; n += 1) awareness.record(argument.event);
    setImmediate(() => process.exit(7));`,
    { settings: config(t), event: human(CHILD) },
  );
  assert.deepEqual({ code, signal, stderr }, { code: 7, signal: null, stderr: '' });
});

test('a forgotten handle is closed when it is collected, but not while someone waits on it', async (t) => {
  const { code, stdout, stderr } = await run(
    `import { readdirSync, readlinkSync } from 'node:fs';
    import { setImmediate as turn } from 'node:timers/promises';
    const [forgotten, waitedOn, closed] = argument;
    function isOpen({ database }) {
      return readdirSync('/proc/self/fd').some((fd) => {
        try { return readlinkSync('/proc/self/fd/' + fd) === database; } catch { return false; }
      });
    }
    async function forget() {
      const awareness = await Awareness.open(forgotten);
      const iterator = awareness.wakes();
      const next = iterator.next();
      for (let n = 0; n < 5; n += 1) await awareness.stats();
      await iterator.return();
      await next;
    }
    async function wait() {
      for await (const wake of (await Awareness.open(waitedOn)).wakes()) console.log(wake);
    }
    async function close() {
      const awareness = await Awareness.open(closed);
      await awareness.close();
      return new WeakRef(awareness);
    }
    wait();
    await forget();
    const reference = await close();
    console.log(isOpen(forgotten), isOpen(waitedOn));
    while (isOpen(forgotten) || reference.deref()) { gc(); await turn(); }
    for (let n = 0; n < 100; n += 1) await turn();
    console.log(isOpen(forgotten), isOpen(waitedOn));`,
    [config(t), config(t), config(t)],
    { flags: ['--expose-gc'] },
  );
  assert.deepEqual({ code, stdout, stderr }, { code: 0, stdout: 'true true\nfalse true\n', stderr: '' });
});

test('workers have handles of their own on one database', async (t) => {
  const settings = config(t);
  const awareness = await open(t, settings);
  await awareness.watch({ watcherSessionKey: MAIN, targetSessionKey: CHILD });
  const wait = awareness.waitWakes({ timeoutMs: DEADLINE_MS });
  const work = `
    const { workerData } = require('node:worker_threads');
    import(workerData.index).then(async ({ Awareness }) => {
      const awareness = await Awareness.open(workerData.settings);
      awareness.wakes().next();
      for (let n = 0; n < 100; n += 1) await awareness.record(workerData.event);
      await awareness.close();
    });`;
  const workerData = { settings, event: human(CHILD), index: new URL('../index.js', here).href };
  const exits = [1, 2].map(() => {
    const worker = new Worker(work, { eval: true, workerData });
    return new Promise((resolve, reject) => worker.on('exit', resolve).on('error', reject));
  });
  assert.deepEqual(await Promise.all(exits), [0, 0]);
  assert.equal((await wait).wakes[0].targetSessionKey, CHILD);
  assert.equal((await awareness.stats()).events, 200);
});

test('a worker may be stopped in the middle of calls', async (t) => {
  const settings = config(t);
  const awareness = await open(t, settings);
  const work = `
    const { workerData } = require('node:worker_threads');
    import(workerData.index).then(async ({ Awareness }) => {
      const awareness = await Awareness.open(workerData.settings);
      awareness.wakes().next();
      for (;;) await Promise.all([1, 2, 3].map(() => awareness.record(workerData.event)));
    });`;
  const workerData = { settings, event: human(CHILD), index: new URL('../index.js', here).href };
  const worker = new Worker(work, { eval: true, workerData });
  await eventually('it records', async () => (await awareness.stats()).events > 100);
  await worker.terminate();
  const { events } = await awareness.stats();
  await awareness.record(human(CHILD));
  assert.equal((await awareness.stats()).events, events + 1);
});

/** A copy of the package outside of any checkout. */
function installed(t) {
  const path = join(realpathSync(folder(t)), 'package');
  mkdirSync(path);
  for (const file of ['package.json', 'index.js', 'errors.js', 'ffi.js', 'platform.js', 'wakes.js']) {
    copyFileSync(new URL(`../${file}`, here), join(path, file));
  }
  const packages = new URL('../node_modules', here).pathname;
  mkdirSync(join(path, 'node_modules'));
  for (const name of readdirSync(packages)) symlinkSync(join(packages, name), join(path, 'node_modules', name));
  return path;
}

const TELL = `const { libraryInfo } = await import(argument + '/index.js');
  try { console.log(libraryInfo().path); } catch (error) { console.log(error.message); }`;

test('the library is found where the environment says, in the package of the platform, or beside this one', async (t) => {
  const path = installed(t);
  const { path: library, abiVersion, version } = libraryInfo();
  assert.equal(abiVersion, 1);
  assert.match(version, /^\d+\.\d+\.\d+/);

  const nowhere = await run(TELL, path, { env: { SESSION_AWARENESS_LIB: '' } });
  assert.match(nowhere.stdout, /^cannot find libsession_awareness/);
  assert.match(nowhere.stdout, /SESSION_AWARENESS_LIB is not set/);
  for (const tried of ['package/lib', 'target/release/lib', 'target/debug/lib']) {
    assert.ok(nowhere.stdout.includes(tried), nowhere.stdout);
  }

  const beside = join(path, library.replace(/.*[/]/, ''));
  symlinkSync(library, beside);
  assert.equal((await run(TELL, path, { env: { SESSION_AWARENESS_LIB: '' } })).stdout, `${beside}\n`);
  const platform = join(path, 'node_modules', `session-awareness-${process.platform}-${process.arch}-gnu`);
  mkdirSync(platform);
  copyFileSync(library, join(platform, library.replace(/.*[/]/, '')));
  const packed = join(platform, library.replace(/.*[/]/, ''));
  assert.equal((await run(TELL, path, { env: { SESSION_AWARENESS_LIB: '' } })).stdout, `${packed}\n`);
  assert.equal((await run(TELL, path, { env: { SESSION_AWARENESS_LIB: library } })).stdout, `${library}\n`);
});

test('a library that cannot be used is refused with the reason', async (t) => {
  const path = installed(t);
  const tell = async (library) => (await run(TELL, path, { env: { SESSION_AWARENESS_LIB: library } })).stdout;
  assert.match(await tell('/nowhere/lib.so'), /cannot load the session-awareness library \/nowhere\/lib\.so: /);

  const older = join(folder(t), 'older.so');
  const source = 'unsigned aware_abi_version(void) { return 0; }';
  execFileSync(process.env.CC ?? 'cc', ['-shared', '-fPIC', '-x', 'c', '-', '-o', older], { input: source });
  assert.equal(await tell(older), `${older} has ABI version 0, this package needs 1\n`);
});
