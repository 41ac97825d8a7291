"""Calls of the Python binding for the table: `WHAT COUNT` on standard input, nanoseconds on standard output."""

import json
import sys
import time

from session_awareness import Awareness, _ffi

CHILD = "agent:main:subagent:child"


def main() -> None:
    with Awareness(sys.argv[1], monitor={"enabled": False}) as awareness:
        awareness.watch(watcher_session_key="agent:main:main", target_session_key=CHILD)
        event = {
            "session_key": CHILD,
            "kind": "human_direct_message",
            "actor_type": "human",
            "payload": {"channel": "telegram"},
        }
        calls = {
            "record": lambda: awareness.record(**event),
            "queue": lambda: awareness.record(**event, wait=False),
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
