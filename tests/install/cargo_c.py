"""`cargo cinstall`, as a distribution meets it: the header, the SONAME and the pkg-config name of `make install`.

The example gateway is built against the staged tree through pkg-config alone, and tells its story.
The library is built without the release's optimisations: what is looked at is where things go.
"""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from c import CC, ROOT, run

LIBRARY = "libsession_awareness.so"


def main(folder):
    stage = folder / "stage"
    run("cargo", "cinstall", "--locked", "--debug", f"--destdir={stage}", "--prefix=/usr",
        "--target-dir", ROOT / "build" / "cargo-c", cwd=ROOT)  # fmt: skip
    (found,) = stage.rglob("session-awareness.pc")
    libraries = found.parent.parent
    version, abi = (
        re.search(pattern, (ROOT / name).read_text(), re.MULTILINE).group(1)
        for name, pattern in [("Cargo.toml", '^version = "(.*)"'), ("Makefile", r"^ABI +:= (\d+)")]
    )
    names = {path.name for path in libraries.glob("*session_awareness*")}
    assert {LIBRARY, f"{LIBRARY}.{abi}", "libsession_awareness.a"} <= names, names
    headers = {str(path.relative_to(stage)) for path in stage.rglob("*.h")}
    assert headers == {"usr/include/session_awareness.h"}, headers
    assert (stage / "usr/include/session_awareness.h").read_bytes() == (
        ROOT / "include" / "session_awareness.h"
    ).read_bytes()
    assert f"[{LIBRARY}.{abi}]" in run("readelf", "--dynamic", libraries / LIBRARY)

    where = {
        **os.environ,
        "PKG_CONFIG_PATH": str(found.parent),
        "PKG_CONFIG_SYSROOT_DIR": str(stage),
        "LD_LIBRARY_PATH": str(libraries),
    }
    told = run("pkg-config", "--modversion", "session-awareness", env=where).strip()
    assert told == version, f"pkg-config tells version {told}, the crate's is {version}"
    gateway = folder / "gateway.c"
    shutil.copy(ROOT / "examples" / "gateway.c", gateway)
    shutil.copytree(ROOT / "examples" / "data", folder / "data")
    flags = run("pkg-config", "--cflags", "--libs", "session-awareness", env=where).split()
    run(CC, "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", folder / "gateway", gateway, *flags)
    assert "All of it happened as told." in run(folder / "gateway", env=where)
    print("installed by cargo-c: shared, header, pkg-config")


if __name__ == "__main__":
    missing = [tool for tool in ("cargo-cinstall", "pkg-config") if shutil.which(tool) is None]
    if missing:
        # Not even with CI=true a failure: cargo-c takes longer to build than all that is tested with it.
        print(f"left out: the installed tree of cargo-c: there is no {' and no '.join(missing)}", file=sys.stderr)
    else:
        with tempfile.TemporaryDirectory() as fresh:
            main(Path(fresh))
