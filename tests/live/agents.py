"""The three agents: their packages, what is typed into them, and what their stores hold."""

from __future__ import annotations

import json
import platform
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

MACHINE = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())

# The agents' own Node: Pi asks for a newer one than a system may have.
NODE = (f"node-linux-{MACHINE}", "26.10.0")


class Typed(NamedTuple):
    """One act of the driving script, by words that its stored text has in it."""

    words: str
    maybe: bool = False
    """The program may refuse or lose it: counted when the store has it."""
    undone: bool = False
    """Deleted from the store later on, after it was told."""


class Row(NamedTuple):
    """A row in the user's role, whoever wrote it: what was typed is looked for in these."""

    thread: str
    time: int
    """Its own, in milliseconds."""
    written: int
    """When the agent stored the last of it."""
    text: str


@dataclass(frozen=True)
class Agent:
    """What differs between the three."""

    catalog: str
    store: str
    """The agent's own home, from HOME."""
    scripts: tuple[str, ...]
    """The lab's scripts, in order."""
    typed: list[Typed]
    rows: Callable[[Path], Iterator[Row]]
    environment: list[str]
    more: Callable[[str], list[tuple[list[str], str]]]
    """Command lines behind the lab's scripts, with their input, of the thread they go on with."""
    more_typed: list[Typed]
    echo: Callable[[str, str], list[str]]
    """The command line by which a host goes on with a thread, of its file and its id."""


ECHO = "words that the host itself sends"


def rows_of(path: Path) -> Iterator[dict]:
    for line in path.read_bytes().split(b"\n"):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def texts(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    typed = [part for part in parts if isinstance(part, dict) and "text" in part]
    return "\n".join(str(part["text"]) for part in typed)


def milliseconds(row: dict) -> int:
    return round(datetime.fromisoformat(row["timestamp"]).timestamp() * 1000)


def pi_rows(home: Path) -> Iterator[Row]:
    for path in sorted(home.glob(".pi/agent/sessions/*/*.jsonl"), key=lambda path: path.name):
        thread = path.stem.split("_")[-1]
        for row in rows_of(path):
            message = row.get("message") if row.get("type") == "message" else None
            if isinstance(message, dict) and message.get("role") in ("user", "bashExecution"):
                text = message.get("command") or texts(message.get("content"))
                yield Row(thread, milliseconds(row), milliseconds(row), text)


ROLLOUT = re.compile(r"rollout-([0-9T-]{19})-([0-9a-f-]{36})(?:_([0-9a-f-]{36}))?\.jsonl$")


def codex_rows(home: Path) -> Iterator[Row]:
    found = ((ROLLOUT.match(path.name), path) for path in home.glob(".codex/*sessions/**/*.jsonl"))
    for name, path in sorted(((name.groups(""), path) for name, path in found if name)):
        for row in rows_of(path):
            payload = row.get("payload")
            if not isinstance(payload, dict):
                continue
            kind, item = payload.get("type"), payload.get("item")
            if kind == "user_message":
                text = str(payload.get("message"))
            elif kind == "item_completed" and item.get("type") == "UserMessage":
                text = texts(item.get("content"))
            elif kind == "message" and payload.get("role") == "user":
                text = texts(payload.get("content"))
                if not text.startswith("<user_shell_command>"):
                    continue
            else:
                continue
            yield Row(name[1], milliseconds(row), milliseconds(row), text)


def opencode_rows(home: Path) -> Iterator[Row]:
    data = home / ".local/share/opencode"
    if (data / "opencode.db").exists():
        yield from opencode_database_rows(data / "opencode.db")
    else:
        yield from opencode_tree_rows(data / "storage")


def opencode_text(parts: list[dict]) -> str:
    typed = [part for part in parts if part.get("type") == "text" and not part.get("synthetic")]
    return "\n".join(str(part.get("text")) for part in typed)


def opencode_database_rows(path: Path) -> Iterator[Row]:
    store = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)
    parts: dict[str, list[dict]] = {}
    written: dict[str, int] = {}
    for message, created, data in store.execute(
        "SELECT message_id, time_created, data FROM part ORDER BY time_created, id"
    ):
        parts.setdefault(message, []).append(json.loads(data))
        written[message] = created
    for thread, message, data in store.execute(
        "SELECT session.id, message.id, message.data"
        " FROM message JOIN session ON session.id = session_id"
        " ORDER BY session.time_created, message.time_created, message.id"
    ):
        info = json.loads(data)
        if info.get("role") == "user":
            created = info["time"]["created"]
            text = opencode_text(parts.get(message, []))
            yield Row(thread, created, written.get(message, created), text)
    store.close()


def opencode_tree_rows(storage: Path) -> Iterator[Row]:
    def objects(pattern: str) -> list[dict]:
        return [json.loads(path.read_bytes()) for path in sorted(storage.glob(pattern))]

    def created(thing: dict) -> int:
        return thing["time"]["created"]

    for session in sorted(objects("session/*/*.json"), key=created):
        for info in sorted(objects(f"message/{session['id']}/*.json"), key=created):
            if info.get("role") == "user":
                parts = objects(f"part/{info['id']}/*.json")
                yield Row(session["id"], created(info), created(info), opencode_text(parts))


PI = Agent(
    catalog="pi",
    store=".pi/agent",
    scripts=("pi_setup.sh", "run_pi.sh", "tui_pi.sh", "steer_pi.sh"),
    typed=[
        Typed("hello from print mode"),
        Typed("run TOOL please"),
        Typed("continued turn two"),
        Typed("look at the file"),
        Typed("with stdin"),
        Typed("first typed turn in the TUI"),
        Typed("echo from bang"),
        Typed("echo hidden bang"),
        Typed("now SLOW answer please"),
        Typed("another SLOW one"),
        Typed("steer while busy"),
        Typed("use TOOL now"),
        Typed("long TOOL SLOW turn"),
        Typed("after compaction turn"),
        Typed("turn on a new branch"),
        Typed("turn after branch summary"),
        Typed("turn in the fork"),
        Typed("turn in the clone"),
        Typed("TEMPLATE BODY: please review notes.txt"),
        Typed("SKILL BODY: say hello."),
        # Killed before its answer began, and 0.73 makes the file with the answer.
        Typed("SLOW turn in a new session", maybe=True),
        Typed("turn after pi -c"),
        Typed("SLOW turn then SIGKILL"),
        Typed("after the kill"),
        Typed("turn in a cli fork"),
        Typed("TOOL SLEEP turn"),
        Typed("steer during the tool"),
        Typed("follow up text"),
    ],
    rows=pi_rows,
    environment=["PI_OFFLINE=1", "PI_TELEMETRY=0", "PI_SKIP_VERSION_CHECK=1"],
    more=lambda thread: [],
    more_typed=[],
    echo=lambda source, thread: ["--session", source, "-p", ECHO],
)

CODEX = Agent(
    catalog="codex",
    store=".codex",
    scripts=("tui_codex.sh",),
    typed=[
        Typed("hello from codex exec"),
        Typed("please run TOOL once"),
        Typed("second turn by exec resume"),
        Typed("run a SUBTASK please"),
        Typed("first typed turn in codex TUI"),
        Typed("second SLOW turn"),
        Typed("turn after interrupt"),
        Typed("echo from codex bang"),
        Typed("TOOL SLEEP turn"),
        Typed("steer with tool running"),
        Typed("tab queued text"),
        Typed("turn after compact"),
        Typed("look at notes.txt"),
        Typed(" EDITED"),
        Typed("Generate a file named AGENTS.md"),
        Typed("turn in the TUI fork"),
        Typed("first turn of a new thread"),
        Typed("SLOW turn then SIGKILL"),
        # The program's daemon goes on with the turn, and refuses a second writer.
        Typed("after the kill", maybe=True),
        Typed("after the daemon stop", maybe=True),
    ],
    rows=codex_rows,
    environment=["MOCK_KEY=dummy"],
    more=lambda thread: [
        (["exec", "prompt with stdin"], "piped words\n"),
        (["exec", "fork", thread, "turn in a fork by exec"], ""),
        (["archive", thread], ""),
        (["exec", "now FAIL this one"], ""),
    ],
    # Not in all versions.
    more_typed=[
        Typed("prompt with stdin"),
        Typed("turn in a fork by exec", maybe=True),
        Typed("now FAIL this one"),
    ],
    echo=lambda source, thread: ["exec", "resume", thread, ECHO],
)

OPENCODE = Agent(
    catalog="opencode",
    store=".local/share/opencode",
    scripts=("tui_oc.sh",),
    # Without its shell input: the contract has OpenCode's left out.
    typed=[
        Typed("hello from opencode run"),
        Typed("please run TOOL once"),
        Typed("second turn by --continue"),
        Typed("oneword"),
        Typed("with a file option"),
        Typed("COMMAND BODY: please review notes.txt"),
        Typed("turn in a fork"),
        Typed("first typed turn in opencode TUI"),
        Typed("please use TOOL here"),
        Typed("look at @notes"),
        Typed("a SLOW turn"),
        Typed("turn after interrupt"),
        Typed("COMMAND BODY: please review notes.txt"),
        Typed("TOOL SLEEP turn"),
        Typed("queued while busy"),
        Typed("turn after compact"),
        Typed("turn to be undone", undone=True),
        Typed("turn after undo"),
        Typed("run a SUBTASK please"),
        Typed("turn in the TUI fork"),
        Typed("SLOW turn then SIGKILL"),
        Typed("after the kill"),
    ],
    rows=opencode_rows,
    environment=[
        f"OPENCODE_DISABLE_{what}=1"
        for what in ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
    ],
    more=lambda thread: [
        (["run", "--session", thread, "with stdin"], "piped words\n"),
        (["run", "now FAIL this one"], ""),
    ],
    more_typed=[Typed("with stdin"), Typed("now FAIL this one")],
    echo=lambda source, thread: ["run", "--session", thread, ECHO],
)


@dataclass(frozen=True)
class Version:
    """An agent's version, as a package."""

    agent: Agent
    version: str
    package: str
    program: str
    """Where the program lies in the package's folder."""
    arguments: tuple[str, ...] = ()
    """What its script wants behind the program."""

    @property
    def name(self) -> str:
        return f"{self.agent.catalog}-{self.version}"


def pi(version: str, scope: str) -> Version:
    package = f"@{scope}/pi-coding-agent"
    return Version(PI, version, package, f"node_modules/{package}/dist/cli.js")


def codex(version: str) -> Version:
    program = f"node_modules/@openai/codex*/vendor/{platform.machine()}-unknown-linux-musl/*/codex"
    return Version(CODEX, version, "@openai/codex", program)


def opencode(version: str, store: str = "sqlite") -> Version:
    program = f"node_modules/opencode-linux-{MACHINE}/bin/opencode"
    return Version(OPENCODE, version, "opencode-ai", program, (store,))


VERSIONS = [
    pi("1.6.0", "earendil-works"),
    pi("0.73.1", "mariozechner"),
    codex("0.171.0"),
    codex("0.145.0"),
    codex("0.98.0"),
    opencode("1.18.33"),
    opencode("1.2.27"),
    opencode("1.1.65", "json"),
]


def read(agent: Agent, home: Path) -> list[Row]:
    """The rows of a store, read in a process of its own.

    Two SQLites in one process take each other's locks away, and one cuts off what the other has
    mapped: the library's is in this one.
    """
    command = [sys.executable, __file__, agent.catalog, str(home)]
    found = subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=True).stdout
    return [Row(*row) for row in json.loads(found)]


if __name__ == "__main__":
    chosen = next(agent for agent in (PI, CODEX, OPENCODE) if agent.catalog == sys.argv[1])
    json.dump(list(chosen.rows(Path(sys.argv[2]))), sys.stdout)
