"""Calls of the Python binding for the table: `WHAT COUNT` on standard input, nanoseconds on standard output."""

import ctypes
import json
import sys
import time
from collections.abc import Callable

from session_awareness import Awareness, _ffi

CHILD = "agent:main:subagent:child"
MANAGER = "agent:main:main"
FIELDS = {
    "session_key": CHILD,
    "kind": "human_direct_message",
    "actor_type": "human",
    "payload": {"channel": "telegram"},
}
EVENT = {
    "sessionKey": CHILD,
    "kind": "human_direct_message",
    "actorType": "human",
    "payload": {"channel": "telegram"},
}


def by_hand(handle: int, event: dict[str, object]) -> tuple[Callable[[], None], Callable[[], None]]:
    """The call of C with its text in hand, and with what JSON takes."""
    library = _ffi.library()
    record, free = library.aware_record, library.aware_string_free
    reply = ctypes.c_char_p()
    place = ctypes.byref(reply)
    text = json.dumps(event).encode()

    def c() -> None:
        record(handle, text, place)
        free(reply)

    def hand() -> None:
        record(handle, json.dumps(event).encode(), place)
        json.loads(reply.value or b"")
        free(reply)

    return c, hand


def main() -> None:
    with Awareness(sys.argv[1], monitor={"enabled": False}) as awareness:
        awareness.watch(watcher_session_key=MANAGER, target_session_key=CHILD)
        c, hand = by_hand(awareness._handle, EVENT)
        queued_c, queued_hand = by_hand(awareness._handle, {**EVENT, "wait": False})
        calls = {
            "record": lambda: awareness.record(**FIELDS),
            "recordC": c,
            "recordHand": hand,
            "queue": lambda: awareness.record(**FIELDS, wait=False),
            "queueC": queued_c,
            "queueHand": queued_hand,
            # What any call takes that goes the same way.
            "empty": _ffi.library().aware_abi_version,
        }
        print("ready", flush=True)
        for line in sys.stdin:
            what, count = line.split()
            call = calls[what]
            taken = []
            for _ in range(int(count)):
                begin = time.perf_counter_ns()
                call()
                taken.append(time.perf_counter_ns() - begin)
            while awareness.stats()["queuedEvents"]:
                pass
            print(json.dumps(taken), flush=True)


main()
