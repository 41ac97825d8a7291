"""Builds the wheel of this platform: the package with the library inside.

usage: wheel.py LIBRARY FOLDER

One wheel serves every Python 3, since nothing is compiled against it: `py3-none-PLATFORM`. On
Linux the platform is the highest glibc that a symbol of the library asks for, and auditwheel must
agree with that.
"""

import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def run(*command: object) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} failed:\n{done.stdout}")
    return done.stdout


def platform_tag(library: Path) -> str:
    if sys.platform != "linux":
        return re.sub(r"[-.]", "_", sysconfig.get_platform())
    needed = re.findall(r"\bGLIBC_(\d+)\.(\d+)", run("readelf", "--version-info", library))
    major, minor = max((int(major), int(minor)) for major, minor in needed)
    return f"manylinux_{major}_{minor}_{platform.machine()}"


def main(library: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("*.whl"):
        old.unlink()
    with tempfile.TemporaryDirectory() as folder:
        staged = Path(folder) / "package"
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(HERE / "src", staged / "src", ignore=ignored)
        shutil.copy(HERE / "pyproject.toml", staged)
        shutil.copy(HERE / "README.md", staged)
        for text in ROOT.glob("LICENSE*"):
            shutil.copy(text, staged)
        inside = staged / "src" / "session_awareness" / library.name
        shutil.copy(library, inside)
        run("strip", *(["-x"] if sys.platform == "darwin" else []), inside)
        built = Path(folder) / "built"
        run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", built, staged)
        (plain,) = built.glob("*.whl")
        tag = platform_tag(inside)
        run(sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", tag, plain)
        (wheel,) = built.glob("*.whl")
        if sys.platform == "linux":
            found = run(sys.executable, "-m", "auditwheel", "show", wheel)
            if f'"{tag}"' not in found.replace("\n", " "):
                sys.exit(f"auditwheel does not agree with {tag}:\n{found}")
        print(shutil.copy(wheel, out))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
