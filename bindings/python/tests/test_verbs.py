from __future__ import annotations

import re
from pathlib import Path

import pytest

from session_awareness import Awareness, Closed, Unsupported, _ffi, version
from story import CHILD, MANAGER, spawn, write

VERBS = [name[len("aware_") :] for name, shape in _ffi.FUNCTIONS.items() if shape == _ffi._VERB]


def test_every_verb_of_the_header_is_a_method() -> None:
    header = Path(__file__).parents[3] / "include" / "session_awareness.h"
    code = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    assert set(re.findall(r"\b(aware_[a-z_]+)\(", code)) == set(_ffi.FUNCTIONS)
    assert [verb for verb in VERBS if not callable(getattr(Awareness, verb, None))] == []


def test_record_answers_the_event(awareness: Awareness) -> None:
    reply = awareness.record(
        session_key=CHILD,
        kind="run_failed",
        actor_type="system",
        run_id="r1",
        payload={"outcome": "timeout"},
        dedupe_key="run-terminal:r1",
    )
    assert reply is not None
    assert (reply["recorded"], reply["duplicate"]) == (True, False)
    event = reply["event"]
    assert (event["sessionKey"], event["agentId"], event["runId"]) == (CHILD, "main", "r1")
    assert (event["kind"], event["summary"]) == ("run_failed", "child run timed out")


def test_record_of_a_known_dedupe_key_answers_the_first_event(awareness: Awareness) -> None:
    replies = [
        awareness.record(
            session_key=CHILD, kind="run_completed", actor_type="agent", dedupe_key="once"
        )
        for _ in range(2)
    ]
    first, second = replies
    assert first is not None and second is not None
    assert second["duplicate"]
    assert second["event"] == first["event"]


def test_record_only_if_watched(awareness: Awareness) -> None:
    reply = awareness.record(
        session_key=CHILD, kind="goal_changed", actor_type="human", only_if_watched=True
    )
    assert reply == {"recorded": False, "reason": "unwatched"}


def test_record_without_waiting_is_stored_before_close_returns(database: Path) -> None:
    with Awareness(database) as awareness:
        for _ in range(20):
            assert awareness.record(
                session_key=CHILD, kind="compacted", actor_type="system", wait=False
            ) == {"queued": True}
    with Awareness(database) as awareness:
        assert len(awareness.events()["events"]) == 20


def test_record_batch_is_in_order_and_all_or_nothing(awareness: Awareness) -> None:
    reply = awareness.record_batch(
        [
            {"sessionKey": CHILD, "kind": "compacted", "actorType": "system"},
            {"sessionKey": MANAGER, "kind": "goal_changed", "actorType": "human"},
        ]
    )
    assert reply is not None
    assert [result["event"]["kind"] for result in reply["results"]] == ["compacted", "goal_changed"]
    queued = awareness.record_batch(
        [{"sessionKey": CHILD, "kind": "compacted", "actorType": "system"}], wait=False
    )
    assert queued == {"queued": True}


def test_state_versions(awareness: Awareness) -> None:
    sequence = write(awareness)
    reply = awareness.state_versions(
        sessions=[{"sessionKey": CHILD}, {"sessionKey": "global", "agentId": "ops"}]
    )
    assert reply == {
        "versions": [
            {"sessionKey": CHILD, "agentId": "main", "stateVersion": sequence},
            {"sessionKey": "global", "agentId": "ops", "stateVersion": 0},
        ]
    }


def test_changes_since_pages_and_shows_only_what_may_come_out(awareness: Awareness) -> None:
    first, second, third = write(awareness), write(awareness), write(awareness)
    reply = awareness.changes_since(session_key=CHILD, changes_since=first, limit=1)
    assert reply["stateVersion"] == third
    changes = reply["stateChanges"]
    assert [event["sequence"] for event in changes["events"]] == [second]
    assert changes["events"][0]["payload"] == {"channel": "telegram"}
    assert (changes["truncated"], changes["historyGap"]) == (True, False)
    assert changes["nextChangesSince"] == second
    assert "futureCursor" not in changes
    future = awareness.changes_since(session_key=CHILD, changes_since=third + 1)
    assert future["stateChanges"]["futureCursor"] is True


def test_sessions_and_events_are_paged(awareness: Awareness) -> None:
    written = [write(awareness, session) for session in (CHILD, "agent:ops:main", CHILD)]
    page = awareness.sessions(limit=1)
    assert [row["sessionKey"] for row in page["sessions"]] == [CHILD]
    assert page["more"]
    rest = awareness.sessions(after={"agentId": "main", "sessionKey": CHILD})
    assert rest["sessions"] == [
        {
            "sessionKey": "agent:ops:main",
            "agentId": "ops",
            "stateVersion": written[1],
            "prunedBelow": 0,
        }
    ]
    assert not rest["more"]
    log = awareness.events(after=written[0], session_key=CHILD, kinds=["human_direct_message"])
    assert [event["sequence"] for event in log["events"]] == [written[2]]


def test_watch_watches_and_unwatch(awareness: Awareness) -> None:
    version = write(awareness)
    made = awareness.watch(
        watcher_session_key=MANAGER,
        target_session_key=CHILD,
        provenance="ambient-group",
        notify_kinds=["run_failed"],
    )
    assert made == {"watched": True, "created": True, "stateVersion": version}
    assert awareness.watch(watcher_session_key=CHILD, target_session_key=CHILD) == {
        "watched": False,
        "reason": "self",
    }
    assert awareness.watches(target_session_key=CHILD) == {
        "watches": [
            {
                "watcherSessionKey": MANAGER,
                "targetSessionKey": CHILD,
                "targetAgentId": "main",
                "provenance": "ambient-group",
                "notifyKinds": ["run_failed"],
                "lastSeen": version,
                "notified": version,
                "material": version,
                "pending": False,
            }
        ],
        "more": False,
    }
    ended = awareness.unwatch(watcher_session_key=MANAGER, target_session_key=CHILD)
    assert ended == {"unwatched": True}


def test_drain_notices_acknowledges_them(awareness: Awareness) -> None:
    since, told = spawn(awareness), write(awareness)
    reply = awareness.drain_notices(watcher_session_key=MANAGER)
    (notice,) = reply["notices"]
    assert (notice["changesSince"], notice["notified"]) == (since, told)
    assert notice["text"].endswith(f'sessionKey "{CHILD}" changesSince {since}.')
    assert awareness.drain_notices(watcher_session_key=MANAGER)["notices"] == []


def test_ack_notices_opens_one_more_for_what_came_meanwhile(awareness: Awareness) -> None:
    spawn(awareness)
    write(awareness)
    (notice,) = awareness.drain_notices(watcher_session_key=MANAGER, ack=False)["notices"]
    write(awareness)
    reply = awareness.ack_notices(
        watcher_session_key=MANAGER,
        notices=[{"targetSessionKey": CHILD, "notified": notice["notified"]}],
    )
    assert reply == {"acknowledged": 1, "reopened": 1}


def test_session_reset_and_session_delete(awareness: Awareness) -> None:
    spawn(awareness)
    assert awareness.session_reset(session_key=MANAGER) == {"removedWatches": 1}
    assert awareness.session_delete(session_key=CHILD) == {"deleted": True}
    assert awareness.session_delete(session_key=CHILD) == {"deleted": False}


def test_maintain_prunes_what_retention_does_not_keep(database: Path) -> None:
    with Awareness(database, retention={"maxEvents": 2}) as awareness:
        for _ in range(5):
            last = write(awareness)
        assert awareness.maintain() == {"prunedEvents": 3, "prunedCursors": 0}
        changes = awareness.changes_since(session_key=CHILD, changes_since=0)["stateChanges"]
        assert changes["historyGap"]
        assert [event["sequence"] for event in changes["events"]] == [last - 1, last]


def test_backup_writes_a_database_of_its_own(awareness: Awareness, tmp_path: Path) -> None:
    write(awareness)
    copy = tmp_path / "copy.db"
    assert awareness.backup(path=copy) == {"bytes": copy.stat().st_size}
    with Awareness(copy, create=False) as other:
        assert other.events() == awareness.events()


def test_stats(awareness: Awareness, database: Path) -> None:
    spawn(awareness)
    write(awareness)
    stats = awareness.stats()
    assert (stats["events"], stats["watches"], stats["pending"]) == (2, 1, 1)
    assert Path(stats["database"]) == database


def test_a_read_only_handle_reads(awareness: Awareness, database: Path) -> None:
    spawn(awareness)
    write(awareness)
    with Awareness(database, read_only=True) as reader:
        assert reader.events() == awareness.events()
        assert len(reader.drain_notices(watcher_session_key=MANAGER, ack=False)["notices"]) == 1
        with pytest.raises(Unsupported):
            write(reader)


def test_a_config_reaches_the_library(database: Path) -> None:
    with Awareness(
        database,
        create=True,
        read_only=False,
        durability="power",
        retention={"maxAgeMs": 1000, "maxEvents": 10},
        monitor={"enabled": False, "roots": {"pi": "nowhere"}},
        wakes={"agents": ["ops"]},
        busy_timeout_ms=100,
    ) as awareness:
        spawn(awareness)
        write(awareness)
        # Wakes of another agent than `ops` are not offered here.
        assert awareness.wait_wakes(timeout_ms=0) == []


def test_close_twice_and_use_after_close(database: Path) -> None:
    with Awareness(database) as awareness:
        awareness.close()
        awareness.close()
    with pytest.raises(Closed):
        awareness.stats()
    with pytest.raises(Closed):
        awareness.wait_wakes(timeout_ms=0)
    with pytest.raises(Closed):
        awareness.set_wake_callback(print)


def test_an_awareness_that_nobody_closed_is_closed_with_a_warning(database: Path) -> None:
    awareness = Awareness(database)
    handle = awareness._handle
    with pytest.warns(ResourceWarning, match="not closed"):
        del awareness
    with pytest.raises(Closed):
        _ffi.call("stats", handle, {})


def test_the_version_is_the_librarys(awareness: Awareness) -> None:
    assert [part.isdigit() for part in version().split(".")] == [True, True, True]


def test_rows_of_a_list_are_completed_with_their_versions(awareness: Awareness) -> None:
    version = write(awareness)
    rows = [{"sessionKey": CHILD, "title": "a child"}, {"sessionKey": "global", "agentId": "ops"}]
    rows += [{"sessionKey": f"agent:main:n{n}"} for n in range(1500)]
    rows.append({"sessionKey": CHILD})
    before = [dict(row) for row in rows]
    completed = awareness.with_state_versions(iter(rows))
    assert rows == before
    assert completed[0] == {**rows[0], "stateVersion": version}
    assert completed[-1] == {**rows[-1], "stateVersion": version}
    assert completed[1:-1] == rows[1:-1]


def test_the_tools_for_agents_come_in_the_shapes_of_the_model_apis(awareness: Awareness) -> None:
    openai = awareness.tool_schemas(format="openai")
    anthropic = awareness.tool_schemas(format="anthropic")
    plain = awareness.tool_schemas(format="json-schema")
    names = ["session_status", "sessions_send"]
    assert [tool["function"]["name"] for tool in openai["tools"]] == names
    assert [tool["name"] for tool in anthropic["tools"]] == names
    assert [tool["title"] for tool in plain["tools"]] == names
    assert "changesSince" in anthropic["tools"][0]["input_schema"]["properties"]
    assert openai["prompt"] == anthropic["prompt"] == plain["prompt"]
