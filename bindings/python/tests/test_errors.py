from __future__ import annotations

import logging
import pickle
import queue
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import PATIENCE
from session_awareness import (
    Awareness,
    AwarenessError,
    Busy,
    Closed,
    Internal,
    InvalidArgument,
    NotFound,
    StorageError,
    Unsupported,
)
from session_awareness.errors import error
from session_awareness.types import Wake
from story import CHILD, MANAGER, spawn, write


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("invalid_argument", InvalidArgument),
        ("not_found", NotFound),
        ("storage", StorageError),
        ("busy", Busy),
        ("closed", Closed),
        ("unsupported", Unsupported),
        ("internal", Internal),
        ("a_code_to_come", AwarenessError),
    ],
)
def test_each_code_has_its_exception(code: str, kind: type[AwarenessError]) -> None:
    problem = error(code, "what is wrong", "events[3].kind")
    assert type(problem) is kind
    assert (problem.code, problem.message, problem.field) == (
        code,
        "what is wrong",
        "events[3].kind",
    )
    assert str(problem) == "events[3].kind: what is wrong"
    assert str(error(code, "what is wrong")) == "what is wrong"
    copy = pickle.loads(pickle.dumps(problem))
    assert type(copy) is kind and copy.args == problem.args


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"kind": "tea_break", "actor_type": "human"}, "kind"),
        ({"kind": "compacted", "actor_type": "robot"}, "actorType"),
        ({"kind": "compacted", "actor_type": "human", "only_if_wachted": True}, "onlyIfWachted"),
        ({"kind": "compacted", "actor_type": "human", "agent_id": "ops"}, "agentId"),
        ({"kind": "compacted", "actor_type": "human", "occurred_at": float("nan")}, "occurredAt"),
        ({"kind": "compacted", "actor_type": "human", "summary": "\ud800"}, None),
    ],
)
def test_a_wrong_request_names_its_field(
    awareness: Awareness, arguments: dict[str, Any], field: str | None
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        awareness.record(session_key=CHILD, **arguments)
    assert caught.value.field == field
    assert awareness.events()["events"] == []


def test_what_is_no_json_is_refused_before_the_library(awareness: Awareness) -> None:
    with pytest.raises(TypeError):
        awareness.record(
            session_key=CHILD, kind="compacted", actor_type="human", payload={"x": object()}
        )


def test_a_database_that_is_not_there(database: Path) -> None:
    with pytest.raises(NotFound):
        Awareness(database, create=False)


def test_record_does_not_raise_when_storage_fails(
    awareness: Awareness, database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = database.rename(database.with_name("away.db"))
    with caplog.at_level(logging.WARNING, "session_awareness"):
        reply = awareness.record(session_key=CHILD, kind="compacted", actor_type="system")
        batch = awareness.record_batch(
            [{"sessionKey": CHILD, "kind": "compacted", "actorType": "system"}]
        )
    assert (reply, batch) == (None, None)
    records = [record for record in caplog.records if record.name == "session_awareness"]
    assert [record.levelname for record in records] == ["WARNING", "WARNING"]
    with pytest.raises(InvalidArgument):
        awareness.record(session_key="", kind="compacted", actor_type="system")
    with pytest.raises(StorageError):
        awareness.watch(watcher_session_key=MANAGER, target_session_key=CHILD)
    away.rename(database)
    assert awareness.stats()["failedAppends"] == 2


HOLD = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


def test_what_another_process_keeps_from_being_stored_is_logged_and_never_fails_the_turn(
    database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Awareness(database, busy_timeout_ms=50) as awareness:
        command = [sys.executable, "-c", HOLD, str(database)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None and other.stdout.readline() == b"held\n"
            with caplog.at_level(logging.WARNING, "session_awareness"):
                assert awareness.record(session_key=CHILD, kind="compacted", actor_type="system") is None
            assert [record.levelname for record in caplog.records] == ["WARNING"]
            with pytest.raises(Busy):
                awareness.watch(watcher_session_key=MANAGER, target_session_key=CHILD)
            with pytest.raises(Busy):
                Awareness(database, busy_timeout_ms=50)
            assert awareness.stats()["failedAppends"] == 1
            other.communicate()
        assert awareness.record(session_key=CHILD, kind="compacted", actor_type="system") is not None


def test_close_inside_the_wake_callback_is_busy_and_closes_nothing(awareness: Awareness) -> None:
    caught: queue.Queue[BaseException | None] = queue.Queue()

    def close(wake: Wake) -> None:
        try:
            awareness.close()
        except BaseException as problem:
            caught.put(problem)
        else:
            caught.put(None)

    spawn(awareness)
    awareness.set_wake_callback(close)
    write(awareness)
    assert isinstance(caught.get(timeout=PATIENCE), Busy)
    assert awareness.stats()["pending"] == 1
