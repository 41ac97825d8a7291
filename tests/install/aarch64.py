"""The library and the command on aarch64, from a machine of another kind: built across, run under qemu.

The example gateway is linked with the shared library and tells its story, as it does here; `aware`
looks into what it left. Longer than what `make test` has time for: `make aarch64`.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from c import ROOT, run

TARGET = "aarch64-unknown-linux-gnu"
CC = "aarch64-linux-gnu-gcc"
RUN = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"]


def main(folder):
    build = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    cross = {
        **os.environ,
        "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER": CC,
        "CC_aarch64_unknown_linux_gnu": CC,
        "AR_aarch64_unknown_linux_gnu": "aarch64-linux-gnu-ar",
    }
    words = ["--release", "--locked", "--features", "command", "--target", TARGET]
    run("cargo", "build", *words, "--target-dir", build, cwd=ROOT, env=cross)
    made = build / TARGET / "release"
    shutil.copy(made / "libsession_awareness.so", folder / "libsession_awareness.so.1")
    shutil.copytree(ROOT / "examples" / "data", folder / "data")
    gateway = folder / "gateway"
    run(CC, "-std=c11", "-Wall", "-Wextra", "-Werror", "-I", ROOT / "include", "-o", gateway,
        ROOT / "examples" / "gateway.c", folder / "libsession_awareness.so.1")  # fmt: skip
    database = folder / "awareness.db"
    told = run(*RUN, "-E", f"LD_LIBRARY_PATH={folder}", gateway, database, cwd=folder)
    assert "All of it happened as told." in told, told
    told = run(*RUN, made / "aware", "--database", database, "doctor")
    assert "quick_check finds nothing" in told, told
    print("on aarch64, under qemu: the gateway's story, and aware doctor")


if __name__ == "__main__":
    missing = [tool for tool in (CC, RUN[0]) if shutil.which(tool) is None]
    if missing:
        sys.exit(f"left out: aarch64: there is no {' and no '.join(missing)}")
    with tempfile.TemporaryDirectory() as fresh:
        main(Path(fresh))
