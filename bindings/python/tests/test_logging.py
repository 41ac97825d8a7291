from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Run
from session_awareness import Awareness, log_to_python_logging, set_log_callback
from story import CHILD


@pytest.fixture(autouse=True)
def no_log_callback() -> Iterator[None]:
    yield
    set_log_callback(None)


def fail_to_store(awareness: Awareness, database: Path) -> None:
    """Something the library warns of, on this thread."""
    os.remove(database)
    assert awareness.record(session_key=CHILD, kind="compacted", actor_type="system") is None


def test_the_callback_hears_what_the_library_logs(awareness: Awareness, database: Path) -> None:
    heard: list[tuple[int, str, str]] = []
    set_log_callback(lambda *message: heard.append(message), max_level=2)
    fail_to_store(awareness, database)
    assert [level for level, _, _ in heard if level not in (1, 2)] == []
    assert heard != [] and all(target and message for _, target, message in heard)
    heard.clear()
    set_log_callback(None)
    assert awareness.record(session_key=CHILD, kind="compacted", actor_type="system") is None
    assert heard == []


def test_what_the_callback_raises_is_logged(
    awareness: Awareness, database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(level: int, target: str, message: str) -> None:
        raise LookupError("nowhere to write")

    set_log_callback(fail)
    fail_to_store(awareness, database)
    assert "the log callback failed" in caplog.messages
    assert "nowhere to write" in caplog.text


def test_messages_go_to_pythons_logging(
    awareness: Awareness, database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log_to_python_logging()
    fail_to_store(awareness, database)
    from_the_library = [record for record in caplog.records if record.name != "session_awareness"]
    assert from_the_library != []
    assert {record.name.split(".")[0] for record in from_the_library} == {"session_awareness"}
    assert {record.levelno for record in from_the_library} <= {logging.WARNING, logging.ERROR}


def test_a_process_that_logs_ends_well(run: Run) -> None:
    """Neither the callbacks nor the handle are taken down by the script."""
    run(
        "import sys; from session_awareness import Awareness, set_log_callback\n"
        "set_log_callback(lambda *message: None, max_level=5)\n"
        "awareness = Awareness(sys.argv[1])\n"
        "awareness.set_wake_callback(print)\n"
        "awareness.record(session_key='x', kind='compacted', actor_type='system', wait=False)\n"
        "import warnings; warnings.simplefilter('ignore')\n"
    )
