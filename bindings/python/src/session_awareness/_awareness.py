"""A handle on a database, with a method for each verb of the library."""

# The verbs below are signatures without a body: `_verb` makes the call out of each.
# mypy: disable-error-code="empty-body"

from __future__ import annotations

import asyncio
import functools
import json
import math
import os
import time
import warnings
import weakref
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Callable, TypeVar, Union, cast

from . import _ffi
from ._logging import logger
from .errors import Busy, Closed, StorageError, Unsupported
from .types import (
    AckReply,
    ActorType,
    AdoptReply,
    BackupReply,
    Baseline,
    BatchReply,
    Catalog,
    ChangesReply,
    DeleteReply,
    DiscoverReply,
    Durability,
    EventsReply,
    Kind,
    LinksReply,
    MaintainReply,
    Monitor,
    NewEvent,
    NoticeAck,
    NoticesReply,
    OwnMessageReply,
    Provenance,
    RecordReply,
    ReleaseReply,
    ResetReply,
    Retention,
    RunActiveReply,
    ScanOutcome,
    ScanReply,
    SessionCursor,
    SessionRef,
    SessionsReply,
    StateVersionsReply,
    Stats,
    ToolFormat,
    ToolSchemasReply,
    UnwatchReply,
    Wake,
    WakeFilter,
    WatchesReply,
    WatchReply,
)

StrPath = Union[str, "os.PathLike[str]"]
WakeCallback = Callable[[Wake], object]

_Method = TypeVar("_Method", bound=Callable[..., Any])

# How long a waiting call stays in the library, so that Ctrl-C is seen in between.
_SLICE_MS = 1000

# What one `state_versions` takes.
_MOST_SESSIONS = 1000

# By handle. One C callback serves them all and is never freed, so that no thread runs a freed one.
_wake_callbacks: dict[int, WakeCallback] = {}


def _on_wake(handle: int, wake: bytes) -> None:
    callback = _wake_callbacks.get(handle)
    if callback is None:
        return
    try:
        callback(json.loads(wake))
    except Exception:
        logger.exception("the wake callback failed")


_WAKE_CALLBACK = _ffi.WAKE_CALLBACK(_on_wake)


@functools.cache
def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _fields(arguments: Mapping[str, object]) -> dict[str, object]:
    """Keyword arguments as request fields: snake_case becomes camelCase, None is left out."""
    return {_camel(name): value for name, value in arguments.items() if value is not None}


def _verb(signature: _Method) -> _Method:
    """The verb of the library that has the name and the keyword arguments of `signature`."""

    @functools.wraps(signature)
    def method(self: Awareness, **arguments: object) -> Any:
        return self._call(signature.__name__, _fields(arguments))

    return cast(_Method, method)


def _never_fails_a_turn(method: _Method) -> _Method:
    """What `method` could not store is logged and answered with None."""

    @functools.wraps(method)
    def logged(*args: Any, **arguments: Any) -> Any:
        try:
            return method(*args, **arguments)
        except (StorageError, Busy) as problem:
            logger.warning("not recorded: %s", problem)
            return None

    return cast(_Method, logged)


class Awareness:
    """A database of session awareness, opened.

    `with Awareness("awareness.db") as awareness:` closes it at the end. The database file belongs
    to the library: never open it with `sqlite3` in the same process; `backup` makes a copy to look
    into.

    Each verb takes keyword arguments, named as in the library but in snake_case, where None means
    absent; dictionaries, in requests and replies, are the library's own JSON in camelCase. Times
    are milliseconds since the Unix epoch. Any thread may call any method at any time, and a call
    that blocks releases the GIL. Every method raises `Closed` after `close` and in a forked child,
    `InvalidArgument` for a request that is wrong, `StorageError` when the database cannot be read
    or written, and `Unsupported` for what a read-only handle cannot do.
    """

    def __init__(
        self,
        database: StrPath,
        *,
        create: bool | None = None,
        read_only: bool | None = None,
        durability: Durability | None = None,
        retention: Retention | None = None,
        monitor: Monitor | None = None,
        wakes: WakeFilter | None = None,
        busy_timeout_ms: int | None = None,
    ) -> None:
        """Opens `database`, and makes it unless `create` is False.

        `read_only` opens readers alone. `durability` is `process` (default: a recorded event
        outlives the process) or `power` (the machine too). `retention` says what is kept (default
        30 days, 50,000 events), `monitor` how adopted sessions are watched, `wakes` which agents'
        wakes come here. `busy_timeout_ms` is how long to wait for another process's write (default
        5,000). Raises `NotFound` for a database that is not there and may not be made,
        `Unsupported` on a network file system, for the database of a newer library, and in a
        process forked while its parent had a database open.
        """
        config = _fields(
            {
                "database": database,
                "create": create,
                "read_only": read_only,
                "durability": durability,
                "retention": retention,
                "monitor": monitor,
                "wakes": wakes,
                "busy_timeout_ms": busy_timeout_ms,
            }
        )
        self._handle = _ffi.open_handle(config)
        self._finalizer = weakref.finalize(self, _abandon, self._handle, os.getpid())

    def close(self) -> None:
        """Writes what is queued, waits for calls in flight, ends waiting ones, and closes.

        Closing again does nothing. Raises `Busy`, and closes nothing, inside this handle's own wake
        callback. Waits at most 2 s for a thread stuck on an adopted session's file.
        """
        try:
            status = _ffi.library().aware_close(self._handle)
            _ffi.check(status, "a handle cannot be closed inside its own wake callback")
        except Closed:
            pass
        self._finalizer.detach()
        _wake_callbacks.pop(self._handle, None)

    def __enter__(self) -> Awareness:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _call(self, verb: str, request: Mapping[str, object]) -> Any:
        return _ffi.call(verb, self._handle, request)

    # The log.

    @_never_fails_a_turn
    @_verb
    def record(
        self,
        *,
        session_key: str,
        kind: Kind,
        actor_type: ActorType,
        agent_id: str | None = None,
        session_id: str | None = None,
        actor_id: str | None = None,
        run_id: str | None = None,
        summary: str | None = None,
        payload: Mapping[str, object] | None = None,
        dedupe_key: str | None = None,
        occurred_at: int | None = None,
        watcher_session_keys: Sequence[str] | None = None,
        only_if_watched: bool | None = None,
        wait: bool | None = None,
    ) -> RecordReply | None:
        """Records what happened to a session, and notifies its watchers.

        `dedupe_key` of an event that is kept stores nothing and answers the first one (pass
        `run-terminal:<run id>` for the end of a run). `summary` is one line of at most 200
        characters, `payload` at most 4 KiB of JSON; no message text in either. `occurred_at` (ms)
        is clamped to the last 24 hours. `watcher_session_keys` are told too, or seeded by
        `child_spawned`. `only_if_watched` stores nothing for a session nobody watches. `wait=False`
        queues the event and returns at once.

        When storing fails a warning is logged to the logger `session_awareness` and None is
        returned: signalling must never fail the turn that caused it. A wrong request still raises.
        """

    @_never_fails_a_turn
    def record_batch(
        self, events: Sequence[NewEvent], *, wait: bool | None = None
    ) -> BatchReply | None:
        """Records up to 1,000 events in order, all of them or none, in one transaction.

        Each is a dictionary with the fields of `record` in camelCase. `wait=False` queues them.
        When storing fails a warning is logged and None is returned, as by `record`.
        """
        return cast(BatchReply, self._call("record", _fields({"events": events, "wait": wait})))

    @_verb
    def state_versions(self, *, sessions: Sequence[SessionRef]) -> StateVersionsReply:
        """The version of each of up to 1,000 sessions: the sequence of its last event, or 0."""

    def with_state_versions(self, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The rows of a list of sessions, with `stateVersion` added where something is logged.

        For the gateway's `sessions_list`: each row has a `sessionKey` and may have an `agentId`;
        what else is in it stays. `rows` themselves are not changed.
        """
        listed = [dict(row) for row in rows]
        # Asked once for none too, so that a closed handle says so.
        for start in range(0, max(1, len(listed)), _MOST_SESSIONS):
            part = listed[start : start + _MOST_SESSIONS]
            asked: list[SessionRef] = [
                {"sessionKey": row["sessionKey"], "agentId": row["agentId"]}
                if row.get("agentId") is not None
                else {"sessionKey": row["sessionKey"]}
                for row in part
            ]
            for row, found in zip(part, self.state_versions(sessions=asked)["versions"]):
                if found["stateVersion"] > 0:
                    row["stateVersion"] = found["stateVersion"]
        return listed

    @_verb
    def changes_since(
        self,
        *,
        session_key: str,
        changes_since: int,
        agent_id: str | None = None,
        limit: int | None = None,
    ) -> ChangesReply:
        """What happened to a session after the version `changes_since`; moves no cursor.

        At most `limit` events (default and maximum 200), ascending, from one snapshot.
        """

    @_verb
    def sessions(
        self, *, after: SessionCursor | None = None, limit: int | None = None
    ) -> SessionsReply:
        """A page of the log's sessions by agent and key, `limit` (default 200) behind `after`."""

    @_verb
    def events(
        self,
        *,
        after: int | None = None,
        session_key: str | None = None,
        agent_id: str | None = None,
        kinds: Sequence[Kind] | None = None,
        limit: int | None = None,
    ) -> EventsReply:
        """The log over all sessions behind sequence `after`, `limit` (default 200) a page.

        `session_key` and `kinds` narrow it.
        """

    # Watches.

    @_verb
    def watch(
        self,
        *,
        watcher_session_key: str,
        target_session_key: str,
        target_agent_id: str | None = None,
        provenance: Provenance | None = None,
        notify_kinds: Sequence[Kind] | None = None,
    ) -> WatchReply:
        """Watches a session from its present version on.

        The watcher's key must be agent-qualified. `provenance` `ambient-group` gives notices
        without wakes. `notify_kinds` replaces the three kinds that notify. Watching again keeps
        what was seen.
        """

    @_verb
    def unwatch(
        self,
        *,
        watcher_session_key: str,
        target_session_key: str,
        target_agent_id: str | None = None,
    ) -> UnwatchReply:
        """Ends a watch, with its notice."""

    @_verb
    def watches(
        self,
        *,
        watcher_session_key: str | None = None,
        target_session_key: str | None = None,
        target_agent_id: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
    ) -> WatchesReply:
        """The watches, of one watcher or on one target where told; `limit` is 1,000 at most."""

    @_verb
    def session_reset(self, *, session_key: str) -> ResetReply:
        """A session begins anew: its watches are gone; the history of what it watched stays."""

    @_verb
    def session_delete(self, *, session_key: str, agent_id: str | None = None) -> DeleteReply:
        """A session is gone, with its events, its link, and every watch it has a part in."""

    # Notices and wakes.

    @_verb
    def drain_notices(
        self, *, watcher_session_key: str, ack: bool | None = None, limit: int | None = None
    ) -> NoticesReply:
        """The open notices of a watcher, oldest first, `limit` (default 100) at most.

        They are acknowledged by this, unless `ack` is False; then they stay until `ack_notices`.
        What happened since a notice opened opens exactly one more, for the next drain.
        """

    @_verb
    def ack_notices(self, *, watcher_session_key: str, notices: Sequence[NoticeAck]) -> AckReply:
        """Acknowledges notices read with `ack=False`; late and repeated ones change nothing."""

    def wait_wakes(self, *, timeout_ms: int, max: int | None = None) -> list[Wake]:
        """Takes the waiting wakes, `max` at most; waits up to `timeout_ms` for the first.

        Empty when none came; 0 asks without waiting. Ctrl-C ends the wait within a second. Raises
        `Closed` when the handle is closed meanwhile. Each wake is given once a handle, to whoever
        takes it first; while a wake callback is set that gets them all.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        left = timeout_ms
        while True:
            reply = self._call(
                "wait_wakes", _fields({"timeout_ms": min(left, _SLICE_MS), "max": max})
            )
            left = math.ceil((deadline - time.monotonic()) * 1000)
            if reply["wakes"] or left <= 0:
                return cast("list[Wake]", reply["wakes"])

    async def wakes(self) -> AsyncGenerator[Wake, None]:
        """The wakes as they come: `async for wake in awareness.wakes()`.

        Ends when the handle is closed, by whatever thread, or the task is cancelled; no wake is
        lost then, since each is taken when it is asked for. The event loop must have `add_reader`,
        as asyncio's has on Linux and macOS. Several iterators, on several loops too, share the
        wakes.
        """
        try:
            fd = self._duplicate_of_the_wake_fd()
        except Closed:
            return
        try:
            while True:
                # One at a time, so that those not asked for remain for others.
                taken = self.wait_wakes(timeout_ms=0, max=1)
                if taken:
                    yield taken[0]
                else:
                    await _readable(fd)
        except Closed:
            return
        finally:
            os.close(fd)

    def _duplicate_of_the_wake_fd(self) -> int:
        """A descriptor of one's own: after a close the number of the library's is another file's.

        A call made with the duplicate at hand and not answered with `Closed` proves that it was
        made in time.
        """
        fd = _ffi.library().aware_wake_fd(self._handle)
        if fd < 0:
            self.stats()  # Raises Closed when that is why.
            raise Unsupported(
                "unsupported", "wakes: the handle is read only, or no descriptor left"
            )
        return os.dup(fd)

    def set_wake_callback(self, callback: WakeCallback | None) -> None:
        """Calls `callback(wake)` for each wake, on a thread of the library; None ends it.

        While it is set it alone gets the wakes. Every verb may be called from it, but not `close`.
        What it raises is logged to the logger `session_awareness`. Returns when no call of the
        callback before is running, or at once when called from inside it. Set it from one thread at
        a time. It, and what it refers to, is kept until it is replaced or the handle closed.
        """
        setter = _ffi.library().aware_set_wake_callback
        if callback is None:
            status = setter(self._handle, _ffi.WAKE_CALLBACK(), None)
        else:
            # Before it is set: a wake that waits comes at once.
            _wake_callbacks[self._handle] = callback
            status = setter(self._handle, _WAKE_CALLBACK, self._handle)
        if callback is None or status != _ffi.OK:
            _wake_callbacks.pop(self._handle, None)
        _ffi.check(status, "the wake callback is not set")

    # Upkeep.

    @_verb
    def backup(self, *, path: StrPath) -> BackupReply:
        """Writes a consistent copy of the database to `path`, which must not be there yet."""

    @_verb
    def maintain(self) -> MaintainReply:
        """Prunes what is older or more than `retention` keeps; returns when it is done."""

    @_verb
    def tool_schemas(self, *, format: ToolFormat) -> ToolSchemasReply:
        """The session tools this library backs, in the shape a model API takes.

        `session_status` with `changesSince`, which `changes_since` answers, and `sessions_send`
        with `watch`, for which the host calls `watch` once the message was taken; a host may add
        properties of its own. `prompt` is a paragraph on notices for the agents' system prompt.
        """

    @_verb
    def stats(self) -> Stats:
        """Counters of the handle and its database."""

    # Upstream sessions.

    @_verb
    def adopt(
        self,
        *,
        session_key: str,
        catalog: Catalog,
        agent_id: str | None = None,
        thread_id: str | None = None,
        source: StrPath | None = None,
        host_id: str | None = None,
        baseline: Baseline | None = None,
    ) -> AdoptReply:
        """Links a session to the agent's own session it goes on from, to hear of people there.

        `source` is that session's file (OpenCode: its `opencode.db` or data folder, and `thread_id`
        beside it); `thread_id` alone is looked up in the agent's own store. `baseline` is `now`
        (default: only turns to come, which takes one reading of the source) or `start`. With a
        `host_id` other than `local` nothing is looked up, and its rows come by `feed`. The same
        source again keeps its position. Raises `NotFound` when there is none.
        """

    @_verb
    def links(self, *, limit: int | None = None, offset: int | None = None) -> LinksReply:
        """The adopted sessions, `limit` (default and maximum 1,000) a page."""

    @_verb
    def release(self, *, session_key: str, agent_id: str | None = None) -> ReleaseReply:
        """Ends the link of an adopted session."""

    @_verb
    def discover(
        self,
        *,
        catalog: Catalog | None = None,
        limit: int | None = None,
        offset: int | None = None,
    ) -> DiscoverReply:
        """The sessions in the agents' own stores, newest first, `limit` (default 100) a page.

        The stores are those of `monitor`'s `roots`, else those the agents themselves would use.
        """

    @_verb
    def scan(self, *, catalog: Catalog | None = None, session_key: str | None = None) -> ScanReply:
        """Looks for human turns in the adopted sessions now, on this thread.

        Raises `Closed` when the handle is closed meanwhile. The background does the same by itself
        as long as `monitor` is enabled.
        """

    @_verb
    def set_run_active(
        self, *, session_key: str, active: bool, agent_id: str | None = None
    ) -> RunActiveReply:
        """Says that the host itself runs the session now: until it ends its source is not read.

        Nothing is lost: what people typed meanwhile is told afterwards. The mark ends with this
        handle, or its process, at the latest.
        """

    @_verb
    def own_message(
        self, *, session_key: str, text: str, agent_id: str | None = None
    ) -> OwnMessageReply:
        """Remembers what the host is about to send upstream: it is no person's turn.

        Call it before sending, with the text as the agent will store it. A keyed hash is kept, of
        the newest 10 messages a session.
        """

    @_verb
    def feed(
        self,
        *,
        session_key: str,
        agent_id: str | None = None,
        rows: Sequence[Mapping[str, object]] | None = None,
        missing: bool | None = None,
    ) -> ScanOutcome:
        """Hands over the rows of a session on another machine, or tells that it is `missing`.

        For sessions adopted with a `host_id`. The rows are the agent's own, in order (OpenCode:
        `{"info": …, "parts": […]}`); those handed over before may come again. Raises `NotFound`
        without a link.
        """


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def is_readable() -> None:
        if not ready.done():
            ready.set_result(None)

    # Only as long as somebody waits: an unread byte would call back for ever.
    loop.add_reader(fd, is_readable)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def _abandon(handle: int, owner: int) -> None:
    """Closes a handle that nobody closed. In a forked child it is the parent's: leave it alone."""
    if os.getpid() != owner:
        return
    warnings.warn("an Awareness was not closed", ResourceWarning, stacklevel=2)
    _ffi.library().aware_close(handle)
    _wake_callbacks.pop(handle, None)
