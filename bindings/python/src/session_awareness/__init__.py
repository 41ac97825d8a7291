"""Lets the sessions of a multi-agent gateway notice when someone else stepped in.

    from session_awareness import Awareness

    with Awareness("awareness.db") as awareness:
        awareness.watch(
            watcher_session_key="agent:main:main", target_session_key="agent:coder:main"
        )
        awareness.record(
            session_key="agent:coder:main",
            kind="human_direct_message",
            actor_type="human",
            payload={"channel": "telegram"},
        )
        for wake in awareness.wait_wakes(timeout_ms=1000):
            notices = awareness.drain_notices(watcher_session_key=wake["sessionKey"])

A thin layer over the library's C ABI. The library is found by the environment variable
`SESSION_AWARENESS_LIB`, beside this package, in the build of the checkout, or by the system. It is
loaded at first use, which raises `ImportError` when that fails.
"""

from . import types
from ._awareness import Awareness, WakeCallback
from ._ffi import ABI_VERSION, library as _library
from ._logging import LogCallback, log_to_python_logging, set_log_callback
from .errors import (
    AwarenessError,
    Busy,
    Closed,
    Internal,
    InvalidArgument,
    NotFound,
    StorageError,
    Unsupported,
)

__all__ = [
    "ABI_VERSION",
    "Awareness",
    "AwarenessError",
    "Busy",
    "Closed",
    "Internal",
    "InvalidArgument",
    "LogCallback",
    "NotFound",
    "StorageError",
    "Unsupported",
    "WakeCallback",
    "log_to_python_logging",
    "set_log_callback",
    "types",
    "version",
]


def version() -> str:
    """The version of the library that is loaded."""
    found: bytes = _library().aware_version()
    return found.decode()
