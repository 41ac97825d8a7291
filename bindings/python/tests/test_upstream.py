"""Sessions of other programs, in files as those write them."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents import SESSIONS, Claude, OpenCode, Pi, Session
from conftest import PATIENCE
from session_awareness import Awareness, Closed, InvalidArgument, NotFound, Unsupported
from session_awareness.types import CatalogScans, Monitor, ScanOutcome, Stats
from story import MANAGER

KEY = "agent:coder:main"


@pytest.fixture
def homes(tmp_path: Path) -> Path:
    """The folder of the agents' homes."""
    return tmp_path / "homes"


def monitor(homes: Path, enabled: bool = False) -> Monitor:
    roots: Any = {session.catalog: str(homes / session.catalog) for session in SESSIONS}
    # An interval that no test lives to see: what is told in time, file events told.
    return {"enabled": enabled, "intervalMs": 3_600_000, "roots": roots}


@pytest.fixture
def awareness(database: Path, homes: Path) -> Iterator[Awareness]:
    """On which the manager watches `KEY`, and nobody looks in the background."""
    with Awareness(database, monitor=monitor(homes)) as awareness:
        awareness.watch(watcher_session_key=MANAGER, target_session_key=KEY)
        yield awareness


def made(homes: Path, kind: type[Session] = Claude) -> Session:
    return kind(homes / kind.catalog)


def adopt(awareness: Awareness, session: Session) -> None:
    awareness.adopt(
        session_key=KEY,
        catalog=session.catalog,
        thread_id=session.thread,
        source=session.source,
    )


def outcome(session: Session, kind: str, prompts: int = 0) -> dict[str, object]:
    return {
        "sessionKey": KEY,
        "agentId": "coder",
        "catalog": session.catalog,
        "outcome": kind,
        "humanTurns": prompts,
        "prompts": prompts,
        "commands": 0,
        "shells": 0,
    }


def scan(awareness: Awareness) -> ScanOutcome:
    (outcome,) = awareness.scan(session_key=KEY)["outcomes"]
    return outcome


@pytest.mark.parametrize("kind", SESSIONS, ids=lambda kind: kind.catalog)
def test_a_persons_turn_in_an_adopted_session_is_told(
    awareness: Awareness, homes: Path, kind: type[Session]
) -> None:
    session = made(homes, kind)
    reply = awareness.adopt(
        session_key=KEY,
        catalog=session.catalog,
        thread_id=session.thread,
        source=session.source,
    )
    assert (reply["adopted"], reply["linked"]) == (True, True)
    link, event = reply["link"], reply["event"]
    assert (event["kind"], event["actorType"]) == ("adopted", "human")
    assert event["payload"] == {"channel": session.catalog}
    assert link == {
        "sessionKey": KEY,
        "agentId": "coder",
        "catalog": session.catalog,
        "threadId": session.thread,
        "source": str(session.source),
        "hostId": "local",
        "adoptedAt": link["adoptedAt"],
        "missing": 0,
    }
    assert awareness.links() == {"links": [link], "more": False}

    # What was there is not told; what comes is, once.
    assert scan(awareness) == outcome(session, "unchanged")
    session.type("and now this")
    assert awareness.scan() == {"outcomes": [outcome(session, "activity", 1)]}
    assert scan(awareness) == outcome(session, "unchanged")
    assert [wake["targetSessionKey"] for wake in awareness.wait_wakes(timeout_ms=0)] == [KEY]
    changes = awareness.changes_since(session_key=KEY, changes_since=event["sequence"])
    (change,) = changes["stateChanges"]["events"]
    assert (change["kind"], change["actorType"]) == ("human_direct_message", "human")
    assert change["payload"] == {"channel": session.catalog}

    # Again the same source: the first event, and the position it had.
    adopt(awareness, session)
    assert scan(awareness) == outcome(session, "unchanged")
    assert len(awareness.events(kinds=["adopted"])["events"]) == 1
    assert awareness.release(session_key=KEY) == {"released": True}
    assert awareness.release(session_key=KEY) == {"released": False}
    assert awareness.links()["links"] == []


def test_several_turns_are_one_event_that_counts_them(awareness: Awareness, homes: Path) -> None:
    session = made(homes)
    awareness.adopt(session_key=KEY, catalog="claude", source=session.source, baseline="start")
    session.type("<command-name>/review</command-name>")
    session.type("<bash-input>ls</bash-input>")
    assert scan(awareness) == {
        **outcome(session, "activity"),
        **{"humanTurns": 3, "prompts": 1, "commands": 1, "shells": 1},
    }
    (event,) = awareness.events(kinds=["human_direct_message"])["events"]
    assert event["payload"] == {"channel": "claude", "turns": 3}


def test_stores_are_searched_and_a_thread_id_is_enough(awareness: Awareness, homes: Path) -> None:
    sessions = [made(homes, kind) for kind in SESSIONS]
    for age, session in enumerate(sessions):
        if not isinstance(session, OpenCode):
            os.utime(session.source, (1_700_000_000 - age, 1_700_000_000 - age))
    found = awareness.discover()
    # OpenCode says itself when a session was updated; the others are as old as their files.
    newest_first = [sessions[2], sessions[0], sessions[1], sessions[3]]
    assert [row["threadId"] for row in found["sessions"]] == [row.thread for row in newest_first]
    assert found["sessions"][1] == {
        "catalog": "claude",
        "threadId": sessions[0].thread,
        "source": str(sessions[0].source),
        "cwd": "/home/dev",
        "updatedAt": 1_700_000_000_000,
        "adopted": False,
    }
    assert not found["more"]
    for session in sessions:
        reply = awareness.adopt(session_key=KEY, catalog=session.catalog, thread_id=session.thread)
        assert reply["link"]["source"] == str(session.source)
    page = awareness.discover(catalog="pi", limit=1)
    assert [row["adopted"] for row in page["sessions"]] == [True]
    assert awareness.discover(limit=1, offset=3)["sessions"] == page["sessions"]


def test_what_cannot_be_adopted(awareness: Awareness, database: Path, homes: Path) -> None:
    session = made(homes)
    with pytest.raises(NotFound) as caught:
        awareness.adopt(session_key=KEY, catalog="claude", source=homes)
    assert caught.value.field == "source"
    with pytest.raises(NotFound):
        awareness.adopt(session_key=KEY, catalog="claude", thread_id="no such thread")
    with pytest.raises(InvalidArgument):
        awareness.adopt(session_key=KEY, catalog="opencode", source=session.source)
    with Awareness(database, read_only=True) as reader:
        with pytest.raises(Unsupported):
            adopt(reader, session)
        assert reader.links() == {"links": [], "more": False}


def test_an_old_file_of_pi_is_adopted_without_a_link(awareness: Awareness, homes: Path) -> None:
    class Old(Pi):
        version = 2

    reply = awareness.adopt(session_key=KEY, catalog="pi", source=made(homes, Old).source)
    assert (reply["linked"], reply["reason"]) == (False, "legacy_format")
    assert "link" not in reply and reply["event"]["kind"] == "adopted"


def test_a_session_that_is_gone_is_missing_at_the_third_look(
    awareness: Awareness, homes: Path
) -> None:
    session = made(homes)
    adopt(awareness, session)
    session.source.unlink()
    for _ in range(3):
        assert scan(awareness) == outcome(session, "missing")
    assert awareness.scan()["outcomes"] == []
    (event,) = awareness.events(kinds=["upstream_missing"])["events"]
    assert event["summary"] == "upstream missing via claude"


def test_a_session_that_cannot_be_read_says_so(awareness: Awareness, homes: Path) -> None:
    session = made(homes)
    adopt(awareness, session)
    assert awareness.stats()["linksInError"] == 0
    session.source.unlink()
    session.source.symlink_to(session.source)
    (told,) = awareness.scan()["outcomes"]
    assert told["outcome"] == "error"
    (link,) = awareness.links()["links"]
    assert link["fault"] == {"since": link["fault"]["since"], "message": told["message"]}
    assert awareness.stats()["linksInError"] == 1


def test_what_the_host_sends_itself_is_no_persons_turn(awareness: Awareness, homes: Path) -> None:
    session = made(homes)
    adopt(awareness, session)
    assert awareness.own_message(session_key=KEY, text="run the  tests\n") == {"remembered": True}
    session.type("run the tests")
    assert scan(awareness) == outcome(session, "activity")
    session.type("run the tests again")
    assert scan(awareness) == outcome(session, "activity", 1)


def test_while_the_host_runs_a_session_it_is_not_looked_at(
    awareness: Awareness, homes: Path
) -> None:
    session = made(homes)
    adopt(awareness, session)
    assert awareness.set_run_active(session_key=KEY, active=True) == {"active": True}
    session.type("typed meanwhile")
    assert scan(awareness) == outcome(session, "deferred")
    assert awareness.set_run_active(session_key=KEY, active=False) == {"active": False}
    assert scan(awareness) == outcome(session, "activity", 1)


def test_rows_of_another_machine_are_fed(awareness: Awareness, homes: Path) -> None:
    with pytest.raises(NotFound):
        awareness.feed(session_key=KEY, rows=[])
    session = made(homes)
    reply = awareness.adopt(
        session_key=KEY, catalog="claude", thread_id=session.thread, host_id="node-7"
    )
    assert (reply["link"]["hostId"], "source" in reply["link"]) == ("node-7", False)
    rows = session.turn("typed there")
    assert awareness.feed(session_key=KEY, rows=rows) == outcome(session, "activity", 1)
    assert awareness.feed(session_key=KEY, rows=rows)["humanTurns"] == 0
    # More than any other request may have.
    long = session.turn("x" * (17 << 20))
    assert awareness.feed(session_key=KEY, rows=long)["prompts"] == 1
    assert awareness.scan()["outcomes"] == []
    for _ in range(3):
        assert awareness.feed(session_key=KEY, missing=True) == outcome(session, "missing")
    assert awareness.links()["links"] == []


@pytest.mark.parametrize("kind", SESSIONS, ids=lambda kind: kind.catalog)
def test_the_background_tells_what_is_typed(
    database: Path, homes: Path, kind: type[Session]
) -> None:
    async def main(awareness: Awareness) -> None:
        wakes = awareness.wakes()
        for n in range(3):
            session.type(f"typed {n}")
            wake = await asyncio.wait_for(wakes.__anext__(), PATIENCE)
            assert wake["targetSessionKey"] == KEY
            awareness.drain_notices(watcher_session_key=wake["sessionKey"])
        await wakes.aclose()

    session = made(homes, kind)
    with Awareness(database, monitor=monitor(homes, enabled=True)) as awareness:
        awareness.watch(watcher_session_key=MANAGER, target_session_key=KEY)
        adopt(awareness, session)
        asyncio.run(main(awareness))


def has_looked(stats: Stats) -> bool:
    scans = stats["scans"].get("claude")
    return scans is not None and scans["passes"] > 0


def test_stats_tell_of_the_background(database: Path, homes: Path) -> None:
    with Awareness(database, monitor=monitor(homes, enabled=True)) as awareness:
        session = made(homes)
        adopt(awareness, session)
        deadline = time.monotonic() + PATIENCE
        while not has_looked(stats := awareness.stats()):
            assert time.monotonic() < deadline
        known = Stats.__required_keys__ | Stats.__optional_keys__
        assert Stats.__required_keys__ <= stats.keys() <= known
        assert stats["scans"]["claude"].keys() == CatalogScans.__annotations__.keys()
        assert (stats["links"], stats["fileEvents"]) == (1, "full")
        assert (stats["watchedFolders"], stats["unwatchedFolders"]) == (1, 0)


def test_close_ends_a_scan(database: Path, homes: Path) -> None:
    session = made(homes)
    awareness = Awareness(database, monitor=monitor(homes))
    awareness.adopt(session_key=KEY, catalog="claude", source=session.source)
    # A row without an end, of which no byte is on disk.
    os.truncate(session.source, 4 << 30)
    raised: queue.Queue[BaseException | None] = queue.Queue()

    def look() -> None:
        try:
            awareness.scan()
        except Closed as problem:
            raised.put(problem)
        else:
            raised.put(None)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    awareness.close()
    assert isinstance(raised.get(timeout=PATIENCE), Closed)
    thread.join(PATIENCE)
