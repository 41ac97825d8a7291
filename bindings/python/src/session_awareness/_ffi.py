"""The C ABI: its declarations in one table, how the library is found, and how a verb is called.

All functions may be called from any thread. `ctypes.CDLL` releases the GIL for the time of a call.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import error

ABI_VERSION = 1
"""The version of the C ABI that this package is written for."""

WAKE_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
LOG_CALLBACK = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p, ctypes.c_char_p
)

_STATUS = ctypes.c_int32
_HANDLE = ctypes.c_void_p
_TEXT = ctypes.c_char_p
_OUT = ctypes.POINTER(ctypes.c_void_p)
# Such a place keeps the pointer that is to be freed; a result of this type would be a copy alone.
_OUT_TEXT = ctypes.POINTER(ctypes.c_char_p)
_VERB = (_STATUS, (_HANDLE, _TEXT, _OUT_TEXT))

FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    # name: (result, parameters)
    "aware_abi_version": (ctypes.c_uint32, ()),
    "aware_version": (_TEXT, ()),
    "aware_open": (_STATUS, (_TEXT, _OUT, _OUT_TEXT)),
    "aware_close": (_STATUS, (_HANDLE,)),
    "aware_string_free": (None, (ctypes.c_void_p,)),
    "aware_wake_fd": (ctypes.c_int32, (_HANDLE,)),
    "aware_set_wake_callback": (_STATUS, (_HANDLE, WAKE_CALLBACK, ctypes.c_void_p)),
    "aware_set_log_callback": (None, (LOG_CALLBACK, ctypes.c_void_p, ctypes.c_int32)),
    "aware_record": _VERB,
    "aware_state_versions": _VERB,
    "aware_watch": _VERB,
    "aware_unwatch": _VERB,
    "aware_watches": _VERB,
    "aware_session_reset": _VERB,
    "aware_session_delete": _VERB,
    "aware_drain_notices": _VERB,
    "aware_ack_notices": _VERB,
    "aware_wait_wakes": _VERB,
    "aware_changes_since": _VERB,
    "aware_sessions": _VERB,
    "aware_events": _VERB,
    "aware_backup": _VERB,
    "aware_maintain": _VERB,
    "aware_tool_schemas": _VERB,
    "aware_stats": _VERB,
    "aware_adopt": _VERB,
    "aware_links": _VERB,
    "aware_release": _VERB,
    "aware_discover": _VERB,
    "aware_scan": _VERB,
    "aware_set_run_active": _VERB,
    "aware_own_message": _VERB,
    "aware_feed": _VERB,
}

# What a call that has no reply answers.
OK = 0
_CODES = {
    1: "invalid_argument",
    2: "not_found",
    3: "storage",
    4: "busy",
    5: "closed",
    6: "unsupported",
    7: "internal",
}


def candidates() -> list[str]:
    """Where the library is looked for, in order; a name without a folder is the system loader's.

    `SESSION_AWARENESS_LIB` alone when it is set; else a library beside this package, the build of
    the checkout this package stands in, and what the system knows.
    """
    told = os.environ.get("SESSION_AWARENESS_LIB")
    if told:
        return [told]
    name = "libsession_awareness" + (".dylib" if sys.platform == "darwin" else ".so")
    package = Path(__file__).resolve().parent
    places = [package]
    if package.parts[-4:-1] == ("bindings", "python", "src"):
        target = package.parents[3] / "target"
        places += [target / "release", target / "debug"]
    return [str(place / name) for place in places] + [name]


@functools.cache
def library() -> ctypes.CDLL:
    """The library, loaded once, every function declared.

    Raises `ImportError` when none is found (the message lists what was tried), or when it speaks
    another ABI version.
    """
    tried = []
    for path in candidates():
        try:
            found = ctypes.CDLL(path)
        except OSError as problem:
            tried.append(f"  {path}: {problem}")
        else:
            return _declared(found, path)
    raise ImportError(
        "the session_awareness library was not found. A wheel (`make wheel`) has it inside, a plain "
        "`pip install` of the source folder does not; or name it in SESSION_AWARENESS_LIB. Tried:\n"
        + "\n".join(tried)
    )


def _declared(found: ctypes.CDLL, path: str) -> ctypes.CDLL:
    try:
        # Before the others: a library of another version need not have them all.
        _declare(found, "aware_abi_version")
        version = found.aware_abi_version()
        if version != ABI_VERSION:
            raise ImportError(
                f"{path} speaks ABI version {version}, this package needs {ABI_VERSION}"
            )
        for name in FUNCTIONS:
            _declare(found, name)
    except AttributeError as problem:
        raise ImportError(f"{path} is no session_awareness library: {problem}") from None
    return found


def _declare(found: ctypes.CDLL, name: str) -> None:
    function = getattr(found, name)
    function.restype, function.argtypes = FUNCTIONS[name]


def open_handle(config: Mapping[str, object]) -> int:
    """A new handle; it is a key into the library's registry, so using it after close is safe."""
    handle, reply = ctypes.c_void_p(), ctypes.c_char_p()
    status = library().aware_open(_json(config), ctypes.byref(handle), ctypes.byref(reply))
    _answer(status, reply)
    assert handle.value is not None
    return handle.value


def call(verb: str, handle: int, request: Mapping[str, object]) -> Any:
    """Calls a verb; returns its reply, or raises the error it answers."""
    reply = ctypes.c_char_p()
    function = getattr(library(), "aware_" + verb)
    return _answer(function(handle, _json(request), ctypes.byref(reply)), reply)


def check(status: int, message: str) -> None:
    """Raises the error of a status that comes without a reply."""
    if status != OK:
        raise error(_CODES.get(status, "internal"), message)


# Made once: `json.dumps` with options makes one at each call, and `json.loads` guesses how bytes are encoded.
_DECODER = json.JSONDecoder()
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=os.fspath)


def _json(request: Mapping[str, object]) -> bytes:
    # Lone surrogates pass: the library refuses them with an error like any other bad text.
    return _ENCODER.encode(request).encode("utf-8", "surrogatepass")


def _answer(status: int, reply: ctypes.c_char_p) -> Any:
    try:
        text = reply.value
        assert text is not None
        # Nothing stands before or behind the object, which `decode` would look for.
        answer, _ = _DECODER.raw_decode(text.decode())
    finally:
        library().aware_string_free(reply)
    if status != OK:
        raise error(**answer["error"])
    return answer
