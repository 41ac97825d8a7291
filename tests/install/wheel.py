"""The wheel, as the author of a host in Python meets it: in a fresh virtual environment, without Rust."""

import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def main(folder: Path) -> None:
    (wheel,) = (ROOT / "build" / "wheel").glob("session_awareness-*-py3-none-*.whl")
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    # No toolchain, no checkout, no hint where a library might be.
    bare = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(folder)}
    assert shutil.which("cargo", path=bare["PATH"]) is None, "there is a cargo on the bare path"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", wheel]
    subprocess.run(pip, check=True, env=bare, cwd=folder)
    shutil.copytree(ROOT / "examples" / "data", folder / "host" / "data")
    shutil.copy(ROOT / "examples" / "gateway.py", folder / "host")
    where = "import session_awareness._ffi as f; print(f.library()._name)"
    found = subprocess.run([python, "-c", where], check=True, env=bare, cwd=folder, text=True, capture_output=True)
    assert found.stdout.startswith(str((folder / "venv").resolve())), found.stdout
    told = subprocess.run([python, folder / "host" / "gateway.py"], env=bare, cwd=folder, text=True, capture_output=True)
    if "All of it happened as told." not in told.stdout:
        sys.exit(told.stdout + told.stderr)
    print(f"installed for Python: {wheel.name}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as fresh:
        main(Path(fresh).resolve())
