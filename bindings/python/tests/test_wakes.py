from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import PATIENCE, Run
from session_awareness import Awareness, Closed, Unsupported, _ffi
from session_awareness.types import Wake
from story import CHILD, MANAGER, spawn, write

CHILDREN = [f"agent:main:subagent:child-{n}" for n in range(5)]

WAKE = {
    "sessionKey": MANAGER,
    "targetSessionKey": CHILD,
    "targetAgentId": "main",
    "reason": "session-state",
}


def started(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def wake_every_child(awareness: Awareness) -> None:
    for child in CHILDREN:
        spawn(awareness, child)
        write(awareness, child)


def test_wait_wakes_takes_what_is_there(awareness: Awareness) -> None:
    assert awareness.wait_wakes(timeout_ms=0) == []
    wake_every_child(awareness)
    first = awareness.wait_wakes(timeout_ms=0, max=2)
    rest = awareness.wait_wakes(timeout_ms=0)
    assert [wake["targetSessionKey"] for wake in first] == CHILDREN[:2]
    assert [wake["targetSessionKey"] for wake in rest] == CHILDREN[2:]


def test_wait_wakes_waits_for_the_whole_time(awareness: Awareness) -> None:
    begin = time.monotonic()
    assert awareness.wait_wakes(timeout_ms=1200) == []
    assert time.monotonic() - begin >= 1.2


def test_a_waiting_call_releases_the_gil(
    awareness: Awareness, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn(awareness)
    waiting = threading.Event()

    def record() -> None:
        waiting.wait(PATIENCE)
        write(awareness)

    # From here the other thread runs only when this one lets go of the GIL, which is in the call.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(PATIENCE)
    try:
        recorder = started(record)
        waiting.set()
        reply = _ffi.call("wait_wakes", awareness._handle, {"timeoutMs": int(PATIENCE * 1000)})
    finally:
        sys.setswitchinterval(interval)
    assert reply["wakes"] == [WAKE]
    recorder.join(PATIENCE)


def test_ctrl_c_ends_a_wait(awareness: Awareness, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    begin = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            awareness.wait_wakes(timeout_ms=int(PATIENCE * 1000))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - begin < PATIENCE / 2


def test_close_ends_a_wait(database: Path) -> None:
    outcome: queue.Queue[object] = queue.Queue()
    awareness = Awareness(database)

    def wait() -> None:
        try:
            outcome.put(awareness.wait_wakes(timeout_ms=int(2 * PATIENCE * 1000)))
        except Closed as problem:
            outcome.put(problem)

    thread = started(wait)
    awareness.close()
    assert isinstance(outcome.get(timeout=PATIENCE), Closed)
    thread.join(PATIENCE)
    assert not thread.is_alive()


# The iterator.


async def first(awareness: Awareness) -> Wake:
    """The next wake of an iterator of its own; `EOFError` when that ends."""
    wakes = awareness.wakes()
    try:
        async for wake in wakes:
            return wake
        raise EOFError("the wakes ended")
    finally:
        await wakes.aclose()


async def waiting(awareness: Awareness) -> asyncio.Task[Wake]:
    """A task that has found no wake yet and waits for one."""
    task = asyncio.ensure_future(first(awareness))
    await asyncio.sleep(0)
    assert not task.done()
    return task


def test_the_iterator_gives_what_another_thread_records(awareness: Awareness) -> None:
    async def main() -> None:
        spawn(awareness)
        task = await waiting(awareness)
        thread = started(lambda: write(awareness))
        assert await asyncio.wait_for(task, PATIENCE) == WAKE
        thread.join(PATIENCE)

    asyncio.run(main())


def test_the_iterator_gives_what_another_process_records(awareness: Awareness, run: Run) -> None:
    async def main() -> None:
        spawn(awareness)
        task = await waiting(awareness)
        thread = started(
            lambda: run(
                "import sys; from session_awareness import Awareness\n"
                "with Awareness(sys.argv[1], wakes={'agents': []}) as awareness:\n"
                f"    awareness.record(session_key='{CHILD}', kind='goal_changed',"
                " actor_type='human')\n"
            )
        )
        assert await asyncio.wait_for(task, PATIENCE) == WAKE
        thread.join(PATIENCE)

    asyncio.run(main())


def test_the_iterator_gives_wake_after_wake(awareness: Awareness) -> None:
    async def main() -> None:
        spawn(awareness)
        seen = 0
        thread = started(lambda: write(awareness))
        async for wake in awareness.wakes():
            assert wake == WAKE
            assert len(awareness.drain_notices(watcher_session_key=MANAGER)["notices"]) == 1
            thread.join(PATIENCE)
            seen += 1
            if seen == 20:
                break
            thread = started(lambda: write(awareness))

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_what_an_iterator_leaves_is_there_for_the_next(awareness: Awareness) -> None:
    async def main() -> None:
        taken = []
        for count in (1, 2, 2):
            iterator = awareness.wakes()
            for _ in range(count):
                wake = await asyncio.wait_for(iterator.__anext__(), PATIENCE)
                taken.append(wake["targetSessionKey"])
            await iterator.aclose()
        assert taken == CHILDREN

    wake_every_child(awareness)
    asyncio.run(main())


def descriptors_of_the_pipe(awareness: Awareness) -> set[int]:
    pipe = os.fstat(_ffi.library().aware_wake_fd(awareness._handle))
    found = set()
    for fd in map(int, os.listdir("/dev/fd")):
        # The folder's own descriptor is gone again.
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(fd), pipe):
                found.add(fd)
    return found


def test_a_cancelled_iterator_loses_no_wake_and_no_descriptor(awareness: Awareness) -> None:
    async def main() -> None:
        spawn(awareness)
        before = descriptors_of_the_pipe(awareness)
        task = await waiting(awareness)
        (own,) = descriptors_of_the_pipe(awareness) - before
        # The wake is there, and the task not yet told of it.
        write(awareness)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert descriptors_of_the_pipe(awareness) == before
        assert not asyncio.get_running_loop().remove_reader(own)
        assert await asyncio.wait_for(first(awareness), PATIENCE) == WAKE

    asyncio.run(main())


def test_the_iterator_ends_when_another_thread_closes(database: Path) -> None:
    awareness = Awareness(database)

    async def main() -> None:
        task = await waiting(awareness)
        closer = started(awareness.close)
        with pytest.raises(EOFError):
            await asyncio.wait_for(task, PATIENCE)
        closer.join(PATIENCE)
        assert [wake async for wake in awareness.wakes()] == []

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_iterator_ends_by_a_close_while_a_forked_child_lives(database: Path) -> None:
    """The child has copies of the library's descriptors, so that its end of a pipe stays open."""
    awareness = Awareness(database)

    async def main() -> None:
        task = await waiting(awareness)
        ours, its = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(its)
            os.read(ours, 1)
            os._exit(0)
        try:
            awareness.close()
            with pytest.raises(EOFError):
                await asyncio.wait_for(task, PATIENCE)
        finally:
            os.close(its)
            os.close(ours)
            os.waitpid(child, 0)

    asyncio.run(main())


def test_a_read_only_handle_has_no_wakes(awareness: Awareness, database: Path) -> None:
    with Awareness(database, read_only=True) as reader:
        assert reader.wait_wakes(timeout_ms=0) == []
        with pytest.raises(Unsupported):
            asyncio.run(first(reader))


def test_iterators_on_several_loops_share_the_wakes(database: Path) -> None:
    awareness = Awareness(database)
    taken: queue.Queue[str] = queue.Queue()

    async def take() -> None:
        async for wake in awareness.wakes():
            taken.put(wake["targetSessionKey"])

    async def take_twice() -> None:
        await asyncio.gather(take(), take())

    threads = [started(lambda: asyncio.run(take_twice())) for _ in range(2)]
    wake_every_child(awareness)
    assert sorted(taken.get(timeout=PATIENCE) for _ in CHILDREN) == CHILDREN
    awareness.close()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert taken.empty()


def test_the_librarys_descriptor_outlives_iterators(awareness: Awareness) -> None:
    async def main() -> None:
        task = await waiting(awareness)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    fd = _ffi.library().aware_wake_fd(awareness._handle)
    assert select.select([fd], [], [], 0)[0] == []
    spawn(awareness)
    write(awareness)
    assert select.select([fd], [], [], PATIENCE)[0] == [fd]
    assert awareness.wait_wakes(timeout_ms=0) == [WAKE]


# The callback.


def test_the_callback_gets_the_wakes_and_may_call_verbs(awareness: Awareness) -> None:
    drained: queue.Queue[tuple[Wake, int]] = queue.Queue()

    def drain(wake: Wake) -> None:
        reply = awareness.drain_notices(watcher_session_key=wake["sessionKey"])
        drained.put((wake, len(reply["notices"])))

    spawn(awareness)
    awareness.set_wake_callback(drain)
    for _ in range(3):
        write(awareness)
        assert drained.get(timeout=PATIENCE) == (WAKE, 1)
    assert awareness.wait_wakes(timeout_ms=0) == []
    awareness.set_wake_callback(None)
    write(awareness)
    assert awareness.wait_wakes(timeout_ms=int(PATIENCE * 1000)) == [WAKE]
    assert drained.empty()


def test_the_callback_may_replace_itself(awareness: Awareness) -> None:
    seen: queue.Queue[str] = queue.Queue()

    def first(wake: Wake) -> None:
        awareness.set_wake_callback(lambda wake: seen.put("second"))
        seen.put("first")

    awareness.set_wake_callback(first)
    spawn(awareness)
    write(awareness)
    assert seen.get(timeout=PATIENCE) == "first"
    spawn(awareness, CHILDREN[0])
    write(awareness, CHILDREN[0])
    assert seen.get(timeout=PATIENCE) == "second"


def test_what_the_callback_raises_is_logged(
    awareness: Awareness, caplog: pytest.LogCaptureFixture
) -> None:
    called: queue.Queue[Wake] = queue.Queue()

    def fail(wake: Wake) -> None:
        called.put(wake)
        raise LookupError("no such watcher")

    spawn(awareness)
    with caplog.at_level(logging.ERROR, "session_awareness"):
        awareness.set_wake_callback(fail)
        write(awareness)
        assert called.get(timeout=PATIENCE) == WAKE
        # Returns when the callback does not run any more.
        awareness.set_wake_callback(None)
    assert [record.getMessage() for record in caplog.records] == ["the wake callback failed"]
    assert "no such watcher" in caplog.text
