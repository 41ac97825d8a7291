from __future__ import annotations

import json

import pytest

from conftest import Run

FORKS = 10

# Forks while other threads are inside the library, again and again; prints what each child met.
SCRIPT = """
import gc, json, os, sys, threading, warnings
from session_awareness import Awareness, Closed, log_to_python_logging

warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
SESSION = "agent:main:main"

def outcome(call):
    try:
        call()
    except Closed:
        return "closed"
    return "done"

def record():
    awareness.record(session_key=SESSION, kind="compacted", actor_type="system")

def keep_busy():
    while not stop.is_set():
        record()
        awareness.events(limit=1)

awareness = Awareness(sys.argv[1])
awareness.set_wake_callback(print)
log_to_python_logging()
stop = threading.Event()
threads = [threading.Thread(target=keep_busy) for _ in range(2)]
for thread in threads:
    thread.start()

children = []
for _ in range(FORKS):
    ours, its = os.pipe()
    child = os.fork()
    if child == 0:
        met = [
            outcome(record),
            outcome(lambda: awareness.stats()),
            outcome(lambda: awareness.wait_wakes(timeout_ms=1000)),
            outcome(lambda: awareness.set_wake_callback(None)),
        ]
        LEAVE
        os.write(its, json.dumps(met).encode())
        sys.exit(0)
    os.close(its)
    with open(ours) as pipe:
        met = pipe.read()
    children.append([json.loads(met), os.waitpid(child, 0)[1]])

stop.set()
for thread in threads:
    thread.join()
print(json.dumps([children, outcome(record)]))
awareness.close()
"""


@pytest.mark.parametrize(
    "leave", ["awareness.close()", "del awareness; gc.collect()", "pass  # to the exit handlers"]
)
def test_a_forked_child_meets_a_closed_handle_and_does_no_harm(run: Run, leave: str) -> None:
    script = SCRIPT.replace("LEAVE", leave).replace("FORKS", str(FORKS))
    children, parent = json.loads(run(script))
    assert children == [[["closed"] * 4, 0]] * FORKS
    assert parent == "done"


CHILD_OPENS = """
import os, sys
from session_awareness import Awareness, Unsupported

def child_opens():
    child = os.fork()
    if child == 0:
        try:
            with Awareness(sys.argv[1] + ".child") as own:
                own.record(session_key="global", kind="compacted", actor_type="system")
        except Unsupported:
            sys.exit(3)
        sys.exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

before = child_opens()
with Awareness(sys.argv[1]) as awareness:
    print(before, child_opens(), awareness.stats()["events"])
"""


def test_a_forked_child_may_open_a_database_unless_its_parent_has_one(run: Run) -> None:
    assert run(CHILD_OPENS).split() == ["0", "3", "0"]
