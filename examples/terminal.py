#!/usr/bin/env python3
"""People go back to their terminals, and the manager knows, in one story.

usage: terminal.py

A gateway has adopted sessions of Claude Code, Codex, OpenCode and Pi. A second process plays the
four programs and keeps their stores as they do, so that nothing but files lies between them and
the gateway. How long it took is counted from the Enter key. Each step is checked: the exit status
is 0 only when the story went as it is told. No word of what is typed is printed.
"""

import json
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from datetime import datetime, timezone
from pathlib import Path

HERE = Path(__file__).resolve().parent
try:
    from session_awareness import Awareness
except ModuleNotFoundError:  # not installed: take the package of this checkout
    sys.path.insert(0, str(HERE.parent / "bindings" / "python" / "src"))
    from session_awareness import Awareness

MANAGER = "agent:main:main"
# The session of this gateway that stands for the one in each program.
SESSIONS = {
    "claude": "agent:main:claude-code",
    "codex": "agent:main:codex",
    "opencode": "agent:main:opencode",
    "pi": "agent:main:pi",
}

# What is typed and sent.
BEFORE = "begin with the parser"
FROM_THE_HOST = "run the tests once more"
THE_RUN = "write the release notes"
DURING_THE_RUN = "and mention the new flag"
AT_THE_TERMINAL = "no, leave the old name as it is"


def expect(what, actual, wanted):
    """Ends the program when the story does not happen as told."""
    if actual != wanted:
        sys.exit(f"not as told: {what}: wanted {wanted!r}, got {actual!r}")


def chapter(title):
    print(f"\n{title}")


def say(label, text):
    print(f"  {label:<13} {text}")


# The four programs, in a process of their own: an agent's database is never opened in a process
# in which the library reads it too.


def now():
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def append(path, *rows):
    """Appends whole lines, in one write."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))


class Claude:
    def __init__(self, home):
        self.session = str(uuid.uuid4())
        self.path = home / "projects" / "-work-shop" / f"{self.session}.jsonl"

    def row(self, kind, message, **more):
        row = {"type": kind, "uuid": str(uuid.uuid4()), "sessionId": self.session}
        row |= {"timestamp": now(), "cwd": "/work/shop", "message": message}
        append(self.path, row | more)

    def prompt(self, text):
        human = {"promptSource": "typed", "origin": {"kind": "human"}}
        self.row("user", {"role": "user", "content": text}, **human)

    def answer(self):
        self.row("assistant", {"role": "assistant", "content": [{"type": "text", "text": "Done."}]})


class Codex:
    def __init__(self, home):
        thread = str(uuid.uuid4())
        day = home / "sessions" / "2026" / "11" / "30"
        self.path = day / f"rollout-2026-11-30T09-00-00-{thread}.jsonl"
        self.ordinal = 0
        meta = {"id": thread, "cwd": "/work/shop", "source": "vscode", "originator": "codex-tui"}
        self.rows(("session_meta", meta | {"history_mode": "paginated"}))

    def rows(self, *rows):
        lines = []
        for kind, payload in rows:
            lines.append({"timestamp": now(), "ordinal": self.ordinal, "type": kind})
            lines[-1]["payload"] = payload
            self.ordinal += 1
        append(self.path, *lines)

    def message(self, role, block, kind, item, text):
        message = {"type": "message", "role": role, "content": [{"type": block, "text": text}]}
        kinds = {"internal_chat_message_metadata_passthrough": {"content_item_kinds": [kind]}}
        done = {"type": item, "id": str(uuid.uuid4()), "content": [{"type": "text", "text": text}]}
        completed = {"type": "item_completed", "item": done}
        self.rows(("response_item", message | kinds), ("event_msg", completed))

    def prompt(self, text):
        self.message("user", "input_text", "user.text", "UserMessage", text)

    def answer(self):
        self.message("assistant", "output_text", "unknown", "AgentMessage", "Done.")


class OpenCode:
    def __init__(self, home):
        home.mkdir(parents=True)
        self.database = sqlite3.connect(home / "opencode.db", isolation_level=None)
        self.database.execute("PRAGMA journal_mode = WAL")
        columns = "id TEXT PRIMARY KEY, time_created INTEGER, time_updated INTEGER"
        for table in (
            f"session ({columns}, project_id TEXT, parent_id TEXT, slug TEXT, directory TEXT,"
            " title TEXT, version TEXT, revert TEXT, time_archived INTEGER)",
            f"message ({columns}, session_id TEXT, data TEXT)",
            f"part ({columns}, message_id TEXT, session_id TEXT, data TEXT)",
        ):
            self.database.execute(f"CREATE TABLE {table}")
        at = time.time_ns() // 1_000_000
        self.session = self.new_id("ses", at)
        new = "INSERT INTO session(id, time_created, time_updated, directory) VALUES (?, ?, ?, ?)"
        self.database.execute(new, (self.session, at, at, "/work/shop"))

    def new_id(self, prefix, at):
        """An id that begins with the time, in hexadecimal digits."""
        return f"{prefix}_{at % 2**36:09x}{uuid.uuid4().hex[:17]}"

    def message(self, role, text):
        at = time.time_ns() // 1_000_000
        id, info = self.new_id("msg", at), {"role": role, "time": {"created": at}}
        message = (id, at, at, self.session, json.dumps(info))
        words = json.dumps({"type": "text", "text": text})
        part = (self.new_id("prt", at), at, at, id, self.session, words)
        # Each in a transaction of its own: a message is there before its text.
        execute = self.database.execute
        execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", message)
        execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", part)
        execute("UPDATE session SET time_updated = ? WHERE id = ?", (at, self.session))

    def prompt(self, text):
        self.message("user", text)

    def run(self, text):
        """`opencode run TEXT`: an argument with a space is stored in quotes."""
        self.prompt(f'"{text}"')

    def answer(self):
        self.message("assistant", "Done.")


class Pi:
    def __init__(self, home):
        session = str(uuid.uuid4())
        folder = home / "sessions" / "--work-shop--"
        self.path = folder / f"2026-11-30T09-00-00-000Z_{session}.jsonl"
        self.last = None
        header = {"type": "session", "version": 3, "id": session}
        append(self.path, header | {"timestamp": now(), "cwd": "/work/shop"})

    def message(self, role, text):
        entry = {"type": "message", "id": uuid.uuid4().hex[:8], "parentId": self.last}
        message = {"role": role, "content": [{"type": "text", "text": text}]}
        append(self.path, entry | {"timestamp": now(), "message": message})
        self.last = entry["id"]

    def prompt(self, text):
        self.message("user", text)

    def answer(self):
        self.message("assistant", "Done.")


def play_programs(homes):
    """Does what the other process says, a line each, and answers when Enter was pressed."""
    programs = {}
    for catalog, play in [("claude", Claude), ("codex", Codex), ("opencode", OpenCode), ("pi", Pi)]:
        programs[catalog] = program = play(homes / catalog)
        program.prompt(BEFORE)
        program.answer()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        catalog, how, text = json.loads(line)
        pressed = time.monotonic()
        getattr(programs[catalog], how)(text)
        print(json.dumps(pressed), flush=True)
        programs[catalog].answer()


class Programs:
    """The process that plays the programs."""

    def __init__(self, homes):
        command = [sys.executable, __file__, "--play-programs", str(homes)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, **pipes)
        expect("the programs run", self.answer(), "ready")

    def answer(self):
        return json.loads(self.process.stdout.readline() or "null")

    def do(self, catalog, how, text):
        """Has a program take in a prompt; returns when it was submitted, on the monotonic clock."""
        print(json.dumps([catalog, how, text]), file=self.process.stdin, flush=True)
        pressed = self.answer()
        expect("the program took it", isinstance(pressed, float), True)
        return pressed

    def end(self):
        self.process.communicate()
        expect("the programs end well", self.process.returncode, 0)


# What the manager does.


def is_woken(awareness, target, since):
    wakes = awareness.wait_wakes(timeout_ms=5000)
    took = round((time.monotonic() - since) * 1000)
    pairs = [(wake["sessionKey"], wake["targetSessionKey"]) for wake in wakes]
    expect("one wake", pairs, [(MANAGER, target)])
    say("wake", f"{MANAGER}, for {target}, after {took} ms")


def reconciles(awareness, target, catalog):
    """Asks for the changes that its notice tells of: one turn of a person."""
    notices = awareness.drain_notices(watcher_session_key=MANAGER)["notices"]
    expect("one notice", [notice["targetSessionKey"] for notice in notices], [target])
    since = notices[0]["changesSince"]
    reply = awareness.changes_since(session_key=target, changes_since=since)
    events = reply["stateChanges"]["events"]
    expect("one change", [event["kind"] for event in events], ["human_direct_message"])
    # Where it is more than one turn, `turns` says so.
    expect("one turn", events[0]["payload"], {"channel": catalog})
    summary, who = events[0]["summary"], events[0]["actorType"]
    say(f"since {since}", f"#{events[0]['sequence']} {summary} ({who})")


def hears_nothing(awareness):
    expect("no wake", awareness.wait_wakes(timeout_ms=0), [])
    expect("no notice", awareness.drain_notices(watcher_session_key=MANAGER)["notices"], [])
    say("no wake", "and no notice, for anyone")


def looks(awareness, target):
    """Has a session's store read to its end now; returns what came of it, and the human turns."""
    (outcome,) = awareness.scan(session_key=target)["outcomes"]
    return outcome["outcome"], outcome["humanTurns"]


# The story.


def the_host_adopts(awareness):
    chapter("1. The host finds four sessions on this machine and adopts them; a manager watches.")
    found = awareness.discover()["sessions"]
    expect("one session each", sorted(session["catalog"] for session in found), sorted(SESSIONS))
    for session in sorted(found, key=lambda session: session["catalog"]):
        key = SESSIONS[session["catalog"]]
        reply = awareness.adopt(
            session_key=key,
            catalog=session["catalog"],
            thread_id=session["threadId"],
            source=session["source"],
        )
        expect("it is linked", reply["linked"], True)
        awareness.watch(watcher_session_key=MANAGER, target_session_key=key)
        say("adopted", f"#{reply['event']['sequence']} {key}: {reply['event']['summary']}")
    for key in SESSIONS.values():
        expect("what was there is not told", looks(awareness, key), ("unchanged", 0))
    hears_nothing(awareness)


def the_host_sends_a_message(awareness, programs):
    chapter("2. The host sends a message itself, through a command line: it says so before.")
    key = SESSIONS["opencode"]
    awareness.own_message(session_key=key, text=FROM_THE_HOST)
    programs.do("opencode", "run", FROM_THE_HOST)
    say("own message", f"to {key}")
    # The background may have been there first; either way it is read now.
    expect("it is known as the host's own", looks(awareness, key)[1], 0)
    hears_nothing(awareness)


def the_host_runs_a_session(awareness, programs):
    chapter("3. The host runs a session itself; what a person types into it is told at its end.")
    key = SESSIONS["codex"]
    awareness.set_run_active(session_key=key, active=True)
    awareness.own_message(session_key=key, text=THE_RUN)
    programs.do("codex", "prompt", THE_RUN)
    say("run begins", key)
    programs.do("codex", "prompt", DURING_THE_RUN)
    expect("it is put off", looks(awareness, key), ("deferred", 0))
    hears_nothing(awareness)
    ends = time.monotonic()
    awareness.set_run_active(session_key=key, active=False)
    say("run ends", key)
    is_woken(awareness, key, ends)
    reconciles(awareness, key, "codex")


def people_go_back_to_their_terminals(awareness, programs):
    chapter("4. A person types into each of the four.")
    for catalog, key in SESSIONS.items():
        pressed = programs.do(catalog, "prompt", AT_THE_TERMINAL)
        is_woken(awareness, key, pressed)
        reconciles(awareness, key, catalog)


def the_day_ends(awareness, programs, folder):
    chapter("5. The programs end. What they wrote besides was no person's, and no word is kept.")
    programs.end()
    for key in SESSIONS.values():
        expect("no more turns", looks(awareness, key)[1], 0)
    hears_nothing(awareness)
    copy = folder / "copy.db"
    awareness.backup(path=copy)
    words = [BEFORE, FROM_THE_HOST, THE_RUN, DURING_THE_RUN, AT_THE_TERMINAL]
    expect("no text is kept", [text for text in words if text.encode() in copy.read_bytes()], [])
    say("searched", "a copy of the database, for all that was typed: it is not there")


def tell(folder):
    homes = folder / "homes"
    programs = Programs(homes)
    print("One gateway, four programs, five moments.")
    # A host whose agents have their usual homes names none.
    roots = {catalog: str(homes / catalog) for catalog in SESSIONS}
    with Awareness(folder / "awareness.db", monitor={"roots": roots}) as awareness:
        the_host_adopts(awareness)
        the_host_sends_a_message(awareness, programs)
        the_host_runs_a_session(awareness, programs)
        people_go_back_to_their_terminals(awareness, programs)
        the_day_ends(awareness, programs, folder)
    print("\nAll of it happened as told.")


def main():
    if sys.argv[1:2] == ["--play-programs"]:
        play_programs(Path(sys.argv[2]))
    elif len(sys.argv) > 1:
        sys.exit(__doc__)
    else:
        with tempfile.TemporaryDirectory() as folder:
            tell(Path(folder))


if __name__ == "__main__":
    main()
