"""The library's own log messages, brought to the host. One callback serves the whole process."""

from __future__ import annotations

import atexit
import logging
from typing import Callable

from . import _ffi

logger = logging.getLogger("session_awareness")

LogCallback = Callable[[int, str, str], object]

_LEVELS = {
    1: logging.ERROR,
    2: logging.WARNING,
    3: logging.INFO,
    4: logging.DEBUG,
    5: logging.DEBUG,
}

_callback: LogCallback | None = None


def _on_log(_user: object, level: int, target: bytes, message: bytes) -> None:
    callback = _callback
    if callback is None:
        return
    try:
        callback(level, target.decode(), message.decode())
    except Exception:
        logger.exception("the log callback failed")


# For the life of the process, so that no thread can run a freed one.
_LOG_CALLBACK = _ffi.LOG_CALLBACK(_on_log)


def set_log_callback(callback: LogCallback | None, max_level: int = 3) -> None:
    """Calls `callback(level, target, message)` for each log message up to `max_level`.

    Levels are 1 error, 2 warn, 3 info, 4 debug, 5 trace; `target` is the part of the library that
    speaks. None ends it. It is called on any thread, the library's own among them, and must call
    nothing of this package. What it raises is logged to the logger `session_awareness`. Returns
    when no call of the callback before is running, or at once when called from inside it.
    """
    global _callback
    if callback is not None:
        _callback = callback
        _ffi.library().aware_set_log_callback(_LOG_CALLBACK, None, max_level)
    else:
        _ffi.library().aware_set_log_callback(_ffi.LOG_CALLBACK(), None, 0)
        _callback = None


def log_to_python_logging(max_level: int = 3) -> None:
    """Sends the library's log messages up to `max_level` to Python's `logging`.

    The logger is that of the part of the library that speaks, below `session_awareness`.
    Errors, warnings and infos keep their level; debug and trace both become DEBUG.
    """
    set_log_callback(_to_python, max_level)


def _to_python(level: int, target: str, message: str) -> None:
    logger.getChild(target.replace("::", ".")).log(_LEVELS.get(level, logging.DEBUG), "%s", message)


@atexit.register
def _end() -> None:
    # A library thread that called into an interpreter which is gone would bring the process down.
    if _callback is not None:
        set_log_callback(None)
