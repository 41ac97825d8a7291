#!/usr/bin/env python3
"""A gateway that keeps its sessions aware of each other, in one story.

usage: gateway.py [DATABASE]

DATABASE is a file that is not there yet; without it a temporary one is used. What happens is
what happened in four real sessions (data/traffic.jsonl), in that order and with those times.
Each step is checked: the exit status is 0 only when the story went as it is told.
"""

import json
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

HERE = Path(__file__).resolve().parent
try:
    from session_awareness import Awareness
except ModuleNotFoundError:  # not installed: take the package of this checkout
    sys.path.insert(0, str(HERE.parent / "bindings" / "python" / "src"))
    from session_awareness import Awareness

MANAGER = "agent:main:main"
RESEARCH = "agent:main:subagent:research"
BUILD = "agent:main:subagent:build"
COORDINATOR = "agent:ops:main"
PEER = "agent:coder:main"
GROUP = "agent:main:telegram:group:travel"

# Which session of this gateway each session of the data plays, and the channel people use there.
CAST = {
    "pi": (RESEARCH, "telegram"),
    "opencode": (PEER, "slack"),
    "codex-1": (GROUP, "telegram"),
    "codex-2": (BUILD, "telegram"),
}


def expect(what, actual, wanted):
    """Ends the program when the story does not happen as told."""
    if actual != wanted:
        sys.exit(f"not as told: {what}: wanted {wanted!r}, got {actual!r}")


def chapter(title):
    print(f"\n{title}")


def say(label, text):
    print(f"  {label:<13} {text}")


# What a gateway does when something happens in one of its sessions.


def happens(awareness, traffic):
    """Takes the next act of the data, records it and tells it."""
    act = next(traffic)
    key, channel = CAST[act["session"]]
    told = record(awareness, act, key, channel)
    clock = datetime.fromtimestamp(act["at"] // 1000, timezone.utc)
    say(f"{clock:%H:%M:%S}.{act['at'] % 1000:03}", f"{key}  {told}")


def record(awareness, act, key, channel):
    """Records one act; returns how it reads in the log."""
    event = {"session_key": key, "actor_type": act["who"], "occurred_at": act["at"]}
    if act["what"] == "session_started":
        if key not in (RESEARCH, BUILD):
            return "session started (not a change to record)"
        event |= {"kind": "child_spawned", "actor_type": "agent", "actor_id": MANAGER}
        event |= {"watcher_session_keys": [MANAGER]}
    elif act["what"] == "human_turn":
        event |= {"kind": "human_direct_message", "payload": {"channel": channel}}
    else:
        run = f"run-{act['at']}"
        # A run ends once: whichever part of the gateway tells it second stores nothing.
        event |= {"run_id": run, "dedupe_key": f"run-terminal:{run}"}
        if act["what"] == "run_completed":
            event |= {"kind": "run_completed", "actor_id": key}
        else:
            event |= {"kind": "run_failed", "payload": {"outcome": "timeout"}}
    reply = awareness.record(**event)
    expect("the act is recorded", reply is not None and reply["recorded"], True)
    return f"#{reply['event']['sequence']} {reply['event']['summary']}"


# What a watching session does.


def is_woken(awareness, watcher, target):
    wakes = awareness.wait_wakes(timeout_ms=5000)
    pairs = [(wake["sessionKey"], wake["targetSessionKey"]) for wake in wakes]
    expect("one wake", pairs, [(watcher, target)])
    say("wake", f"{watcher}, for {target}")


def is_not_woken(awareness):
    expect("no wake", awareness.wait_wakes(timeout_ms=100), [])
    say("no wake", "for anyone")


def drains_one_notice(awareness, watcher, ack=True):
    notices = awareness.drain_notices(watcher_session_key=watcher, ack=ack)["notices"]
    expect("one notice", len(notices), 1)
    say("notice", notices[0]["text"])
    return notices[0]


def drains_nothing(awareness, watcher):
    expect("no notice", awareness.drain_notices(watcher_session_key=watcher)["notices"], [])
    say("no notice", f"for {watcher}")


def reconciles(awareness, watcher, target, since, wanted):
    """Asks for the changes after `since`: the watcher is in sync again."""
    reply = awareness.changes_since(session_key=target, changes_since=since)
    changes = reply["stateChanges"]
    expect("nothing is missing", changes["historyGap"] or changes["truncated"], False)
    expect("the changes", [event["summary"] for event in changes["events"]], wanted)
    for event in changes["events"]:
        say(f"since {since}", f"#{event['sequence']} {event['summary']} ({event['actorType']})")
    say("in sync", f"{watcher} with {target} at {reply['stateVersion']}")


# The story.


def a_person_writes_to_a_child(awareness, traffic):
    chapter("1. A manager spawns a child; a person writes to the child by another channel.")
    happens(awareness, traffic)
    happens(awareness, traffic)
    is_woken(awareness, MANAGER, RESEARCH)
    since = drains_one_notice(awareness, MANAGER)["changesSince"]
    reconciles(awareness, MANAGER, RESEARCH, since, ["human message via telegram"])
    drains_nothing(awareness, MANAGER)


def a_second_change_while_it_drains(awareness, traffic):
    chapter("2. A second change while the manager drains: exactly one more notice opens.")
    happens(awareness, traffic)
    is_woken(awareness, MANAGER, RESEARCH)
    notice = drains_one_notice(awareness, MANAGER, ack=False)
    happens(awareness, traffic)
    is_not_woken(awareness)
    handled = {"targetSessionKey": RESEARCH, "notified": notice["notified"]}
    reply = awareness.ack_notices(watcher_session_key=MANAGER, notices=[handled])
    expect("one handled, one more", (reply["acknowledged"], reply["reopened"]), (1, 1))
    say("acknowledged", f"up to {notice['notified']}; one more notice is open")
    is_woken(awareness, MANAGER, RESEARCH)
    happens(awareness, traffic)
    happens(awareness, traffic)
    is_not_woken(awareness)


def the_gateway_restarts(awareness):
    chapter("3. The gateway restarts with that notice pending: it is there again, and its wake.")
    say("restart", "the database is closed and opened again")
    is_woken(awareness, MANAGER, RESEARCH)
    since = drains_one_notice(awareness, MANAGER)["changesSince"]
    wanted = ["human message via telegram", "child run completed", "child run completed"]
    reconciles(awareness, MANAGER, RESEARCH, since, wanted)
    drains_nothing(awareness, MANAGER)


def a_coordinator_watches_a_peer(awareness, traffic):
    chapter("4. A coordinator watches a peer it did not spawn.")
    happens(awareness, traffic)
    reply = awareness.watch(watcher_session_key=COORDINATOR, target_session_key=PEER)
    expect("the watch is new", reply["watched"] and reply["created"], True)
    say("watch", f"{COORDINATOR} watches {PEER} from version {reply['stateVersion']}")
    happens(awareness, traffic)
    is_woken(awareness, COORDINATOR, PEER)
    since = drains_one_notice(awareness, COORDINATOR)["changesSince"]
    reconciles(awareness, COORDINATOR, PEER, since, ["human message via slack"])
    happens(awareness, traffic)
    drains_nothing(awareness, COORDINATOR)


def a_group_in_ambient_mode(awareness, traffic):
    chapter("5. A group in ambient mode: a notice for the next turn, but no wake.")
    happens(awareness, traffic)
    happens(awareness, traffic)
    reply = awareness.watch(
        watcher_session_key=MANAGER, target_session_key=GROUP, provenance="ambient-group"
    )
    expect("the watch is new", reply["watched"] and reply["created"], True)
    say("watch", f"{MANAGER} watches {GROUP} from version {reply['stateVersion']}")
    happens(awareness, traffic)
    happens(awareness, traffic)
    is_not_woken(awareness)
    happens(awareness, traffic)
    since = drains_one_notice(awareness, MANAGER)["changesSince"]
    wanted = ["child run completed", "human message via telegram", "child run completed"]
    reconciles(awareness, MANAGER, GROUP, since, wanted)


def a_run_fails_by_timeout(awareness, traffic):
    chapter("6. A run fails by timeout: no notice tells of it, the next changes do.")
    happens(awareness, traffic)
    happens(awareness, traffic)
    is_woken(awareness, MANAGER, BUILD)
    since = drains_one_notice(awareness, MANAGER)["changesSince"]
    reconciles(awareness, MANAGER, BUILD, since, ["human message via telegram"])
    happens(awareness, traffic)
    happens(awareness, traffic)
    is_woken(awareness, MANAGER, BUILD)
    since = drains_one_notice(awareness, MANAGER)["changesSince"]
    wanted = ["child run completed", "human message via telegram"]
    reconciles(awareness, MANAGER, BUILD, since, wanted)
    happens(awareness, traffic)
    is_not_woken(awareness)
    drains_nothing(awareness, MANAGER)
    happens(awareness, traffic)
    happens(awareness, traffic)
    is_woken(awareness, MANAGER, BUILD)
    since = drains_one_notice(awareness, MANAGER)["changesSince"]
    wanted = ["child run timed out", "human message via telegram", "child run completed"]
    reconciles(awareness, MANAGER, BUILD, since, wanted)


def tell(database):
    with open(HERE / "data" / "traffic.jsonl", encoding="utf-8") as lines:
        traffic = iter([json.loads(line) for line in lines])
    print("One gateway, six moments. Times are those of the data, in UTC.")
    with Awareness(database) as awareness:
        a_person_writes_to_a_child(awareness, traffic)
        a_second_change_while_it_drains(awareness, traffic)
    with Awareness(database) as awareness:
        the_gateway_restarts(awareness)
        a_coordinator_watches_a_peer(awareness, traffic)
        a_group_in_ambient_mode(awareness, traffic)
        a_run_fails_by_timeout(awareness, traffic)
    expect("every act is told", list(traffic), [])
    print("\nAll of it happened as told.")


def main():
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    if len(sys.argv) == 2:
        if Path(sys.argv[1]).exists():
            sys.exit(f"{sys.argv[1]} is there already; the story needs a fresh database")
        tell(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            tell(str(Path(folder) / "gateway.db"))


if __name__ == "__main__":
    main()
