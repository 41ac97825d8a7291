"""The npm packages, as the author of a host in Node meets them: in an empty folder, on two Nodes."""

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
QUIET = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]


def run(*command, **options) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} answered {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def main(folder: Path) -> None:
    packed = sorted((ROOT / "build" / "npm").glob("*.tgz"))
    assert len(packed) == 2, packed
    for package in packed:
        with tarfile.open(package) as inside:
            manifest = inside.extractfile("package/package.json").read().decode()
            assert '"scripts"' not in manifest, f"{package.name} has scripts"
    host = folder / "host"
    host.mkdir()
    (host / "package.json").write_text('{"private": true, "type": "module"}\n')
    run("npm", "install", *QUIET, *packed, cwd=host)
    shutil.copytree(ROOT / "examples" / "data", host / "data")
    shutil.copy(ROOT / "examples" / "gateway.mjs", host)
    # The current Node, from its own npm package: a plain file, no script.
    current = folder / "current"
    current.mkdir()
    arch = {"x86_64": "x64", "aarch64": "arm64"}[platform.machine()]
    own = f"node-{sys.platform}-{arch}"
    run("npm", "install", *QUIET, "--prefix", current, f"{own}@latest", cwd=current)
    newest = current / "node_modules" / own / "bin" / "node"
    bare = {key: value for key, value in os.environ.items() if key != "SESSION_AWARENESS_LIB"}
    versions = []
    for node in (shutil.which("node"), newest):
        told = run(node, host / "gateway.mjs", env=bare, cwd=folder)
        assert "All of it happened as told." in told, told
        versions.append(run(node, "--version").strip())
        where = "console.log((await import('session-awareness')).libraryInfo().path)"
        path = run(node, "--input-type=module", "--eval", where, env=bare, cwd=host)
        assert path.startswith(str(host / "node_modules")), path
    assert versions[0] != versions[1], versions
    print(f"installed for Node: {', '.join(versions)}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as fresh:
        main(Path(fresh).resolve())
