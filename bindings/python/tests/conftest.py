from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import session_awareness
from session_awareness import Awareness

PATIENCE = 30.0
"""Seconds until a condition that should come is given up."""

Run = Callable[..., str]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def awareness(database: Path) -> Iterator[Awareness]:
    with Awareness(database, monitor={"enabled": False}) as awareness:
        yield awareness


@pytest.fixture
def run(database: Path) -> Run:
    """Runs a script in a process of its own, `database` as its argument; returns what it prints."""

    def run(script: str) -> str:
        package = Path(session_awareness.__file__).parents[1]
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", script, str(database)],
            env={**os.environ, "PYTHONPATH": str(package)},
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run
