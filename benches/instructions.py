"""Counts the instructions of the verbs that matter most, and compares them with `instructions.json`.

Unlike a time, a count is the same on a busy machine: more than TOLERANCE above the kept one fails. `BLESS=1` keeps
the present ones instead. Usage: instructions.py LIBRARY
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
KEPT = HERE / "instructions.json"
TOLERANCE = 0.05

# Each verb, and how often a round of host.c calls it.
VERBS = {"aware_record": 3, "aware_drain_notices": 1, "aware_changes_since": 1}
ROUNDS = (50, 150)


def inclusive(host: Path, library: str, folder: Path, rounds: int) -> dict[str, int]:
    """The instructions of each verb, and of all it calls, in so many rounds."""
    out = folder / f"{rounds}.out"
    counted = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--quiet"]
    calls = [str(host), "calls", library, str(folder / f"{rounds}.db"), str(rounds)]
    subprocess.run(counted + calls, check=True, capture_output=True)
    annotate = ["callgrind_annotate", "--inclusive=yes", "--threshold=100", str(out)]
    told = subprocess.run(annotate, check=True, capture_output=True, text=True).stdout
    counts = {}
    for verb in VERBS:
        line = re.search(rf"^\s*([\d,]+) .*:{verb} \[", told, re.MULTILINE)
        if line is None:
            raise SystemExit(f"{verb} is not among what was counted")
        counts[verb] = int(line[1].replace(",", ""))
    return counts


def measure(library: str) -> dict[str, int]:
    """The instructions of one call of each verb: what more rounds add, without what happens once."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        host = folder / "host"
        subprocess.run(["cc", "-O1", "-o", host, HERE / "host.c", "-ldl"], check=True)
        few, many = (inclusive(host, library, folder, rounds) for rounds in ROUNDS)
        more = ROUNDS[1] - ROUNDS[0]
        return {verb: (many[verb] - few[verb]) // (more * calls) for verb, calls in VERBS.items()}


def main() -> int:
    for tool in ("valgrind", "callgrind_annotate", "cc"):
        if shutil.which(tool) is None:
            print(f"left out: the instruction counts, there is no {tool}")
            return 1 if os.environ.get("CI") == "true" else 0
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    machine = platform.machine()
    counts = measure(sys.argv[1])
    if os.environ.get("BLESS"):
        kept[machine] = counts
        KEPT.write_text(json.dumps(kept, indent=2) + "\n")
    if machine not in kept:
        print(f"left out: the instruction counts, none are kept for {machine}")
        return 0
    failed = False
    for verb, count in counts.items():
        before = kept[machine][verb]
        change = count / before - 1
        verdict = ""
        if change > TOLERANCE:
            failed = True
            verdict = f": more than {TOLERANCE:.0%} above; mend it, or keep it with BLESS=1 make instructions"
        elif change < -TOLERANCE:
            verdict = ": keep the gain with BLESS=1 make instructions"
        print(f"{verb}: {count:,} instructions, {change:+.1%} of {before:,}{verdict}")
    return int(failed)


sys.exit(main())
