"""A host that has a second SQLite, Python's own, beside the library.

Does what each line of standard input says, a JSON list, and answers each with a line of JSON.
"""

import ctypes
import json
import os
import sqlite3
import sys
import threading

library = ctypes.CDLL(sys.argv[1])
handles: dict[str, ctypes.c_void_p] = {}
others: dict[str, sqlite3.Connection] = {}
log: list[str] = []


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p, ctypes.c_char_p)
def on_log(user: int, level: int, target: bytes, message: bytes) -> None:
    if level <= 2:
        log.append(message.decode())


def reply_of(reply: ctypes.c_void_p) -> object:
    text = ctypes.string_at(reply.value)
    library.aware_string_free(reply)
    return json.loads(text)


def opened(name: str, config: object) -> object:
    handle, reply = ctypes.c_void_p(), ctypes.c_void_p()
    library.aware_open(json.dumps(config).encode(), ctypes.byref(handle), ctypes.byref(reply))
    handles[name] = handle
    return reply_of(reply)


def called(name: str, verb: str, request: object) -> object:
    reply = ctypes.c_void_p()
    getattr(library, "aware_" + verb)(handles[name], json.dumps(request).encode(), ctypes.byref(reply))
    return reply_of(reply)


def closed(name: str) -> object:
    return library.aware_close(handles.pop(name))


def other_reads(path: str) -> object:
    """Opens the file with the other SQLite, which keeps it open, and reads it."""
    others[path] = sqlite3.connect(path, isolation_level=None)
    return others[path].execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]


def other_closes(path: str) -> object:
    return others.pop(path).close()


def other_storms(path: str, times: int, name: str, verb: str, request: object) -> object:
    """Opens, reads and closes the file with the other SQLite, while the library is at work."""
    done = threading.Event()
    calls = [0]

    def call() -> None:
        while not done.is_set():
            called(name, verb, request)
            calls[0] += 1

    worker = threading.Thread(target=call)
    worker.start()
    for _ in range(times):
        other_reads(path)
        other_closes(path)
    done.set()
    worker.join()
    return calls[0]


def touched(path: str) -> object:
    """Opens and closes the file, as who copies it or hashes it."""
    with open(path, "rb") as file:
        return len(file.read(1))


def said(part: str) -> object:
    return sum(part in line for line in log)


verbs = {
    "open": opened,
    "call": called,
    "close": closed,
    "other_reads": other_reads,
    "other_closes": other_closes,
    "other_storms": other_storms,
    "touch": touched,
    "said": said,
}

library.aware_set_log_callback(on_log, None, 2)
for line in sys.stdin:
    what, *arguments = json.loads(line)
    print(json.dumps(verbs[what](*arguments)), flush=True)
os._exit(0)
