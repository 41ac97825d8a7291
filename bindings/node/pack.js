/**
 * Packs the package, and beside it the one of this platform, which holds the library: npm installs the one that fits as
 * an optional dependency, so that no script runs and nothing is fetched when the package is installed.
 *
 * usage: node pack.js LIBRARY FOLDER
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { platformPackage } from './platform.js';

const [library, out] = process.argv.slice(2).map((path) => resolve(path));
if (!out) {
  console.error('usage: node pack.js LIBRARY FOLDER');
  process.exit(2);
}
const here = fileURLToPath(new URL('.', import.meta.url));
const root = join(here, '..', '..');
const licences = readdirSync(root).filter((name) => name.startsWith('LICENSE'));
const { devDependencies: _, scripts: __, ...manifest } = JSON.parse(readFileSync(join(here, 'package.json'), 'utf8'));
const platform = platformPackage();

const stage = mkdtempSync(join(tmpdir(), 'pack-'));
try {
  mkdirSync(out, { recursive: true });
  for (const old of readdirSync(out)) {
    if (old.endsWith('.tgz')) rmSync(join(out, old));
  }
  const { name, version, license } = manifest;
  const main = join(stage, 'main');
  mkdirSync(main);
  for (const file of [...manifest.files, 'README.md']) copyFileSync(join(here, file), join(main, file));
  pack(main, { ...manifest, optionalDependencies: { [platform]: version } });

  const own = join(stage, 'platform');
  mkdirSync(own);
  const file = basename(library);
  copyFileSync(library, join(own, file));
  chmodSync(join(own, file), 0o644);
  execFileSync('strip', [...(process.platform === 'darwin' ? ['-x'] : []), join(own, file)]);
  writeFileSync(join(own, 'README.md'), `The library of [${name}](https://www.npmjs.com/package/${name}) for one platform.\n`);
  pack(own, {
    name: platform,
    version,
    description: `The library of ${name} for ${process.platform} on ${process.arch}`,
    license,
    os: [process.platform],
    cpu: [process.arch],
    ...(process.platform === 'linux' && { libc: ['glibc'] }),
    files: [file],
  });
} finally {
  rmSync(stage, { recursive: true });
}

function pack(folder, contents) {
  for (const name of licences) copyFileSync(join(root, name), join(folder, name));
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(contents, null, 2)}\n`);
  execFileSync('npm', ['pack', '--silent', '--pack-destination', out], { cwd: folder, stdio: ['ignore', 'inherit', 'inherit'] });
}
