"""Sessions as the four agents store them, and what a person's turn adds to them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from abc import ABC, abstractmethod
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from session_awareness.types import Catalog

BEFORE = "what was typed before the session was adopted"

Row = dict[str, Any]


class Session(ABC):
    """A session in the store of its agent, the folder `home`; it holds one turn."""

    catalog: Catalog

    def __init__(self, home: Path) -> None:
        self.thread = str(uuid.uuid4())
        self.source = self.place(home)
        self.source.parent.mkdir(parents=True, exist_ok=True)
        self.begin()
        self.type(BEFORE)

    @abstractmethod
    def place(self, home: Path) -> Path:
        """Its file."""

    @abstractmethod
    def turn(self, text: str) -> list[Row]:
        """What the agent stores when a person types `text`."""

    def begin(self) -> None:
        """What stands in front of the first turn."""

    def type(self, text: str) -> None:
        self.append(self.turn(text))

    def append(self, rows: list[Row]) -> None:
        with self.source.open("a", encoding="utf-8") as file:
            file.write("".join(f"{json.dumps(row)}\n" for row in rows))


class Claude(Session):
    catalog = "claude"

    def place(self, home: Path) -> Path:
        return home / "projects" / "-home-dev" / f"{self.thread}.jsonl"

    def turn(self, text: str) -> list[Row]:
        row = {
            "type": "user",
            "uuid": str(uuid.uuid4()),
            "sessionId": self.thread,
            "timestamp": now(),
            "cwd": "/home/dev",
            "origin": {"kind": "human"},
            "message": {"role": "user", "content": text},
        }
        return [row]


class Codex(Session):
    catalog = "codex"

    def place(self, home: Path) -> Path:
        name = f"rollout-2026-11-30T12-41-15-{self.thread}.jsonl"
        return home / "sessions" / "2026" / "11" / "30" / name

    def begin(self) -> None:
        meta = {"id": self.thread, "source": "cli", "cwd": "/home/dev"}
        self.append([self.row("session_meta", {**meta, "history_mode": "paginated"})])

    def turn(self, text: str) -> list[Row]:
        message = {"type": "message", "role": "user"}
        content = [{"type": "input_text", "text": text}]
        kinds = {"content_item_kinds": ["user.text"]}
        provenance = {"internal_chat_message_metadata_passthrough": kinds}
        item = {"type": "UserMessage", "id": str(uuid.uuid4())}
        items = [{"type": "text", "text": text}]
        return [
            self.row("response_item", {**message, "content": content, **provenance}),
            self.row("event_msg", {"type": "item_completed", "item": {**item, "content": items}}),
        ]

    def row(self, kind: str, payload: Row) -> Row:
        return {"timestamp": now(), "type": kind, "payload": payload}


class Pi(Session):
    catalog = "pi"
    version = 3

    def place(self, home: Path) -> Path:
        return home / "sessions" / "--home-dev--" / f"2026-11-30T12-31-31-375Z_{self.thread}.jsonl"

    def begin(self) -> None:
        header = {"type": "session", "version": self.version, "id": self.thread}
        self.append([{**header, "timestamp": now(), "cwd": "/home/dev"}])

    def turn(self, text: str) -> list[Row]:
        entry = {"type": "message", "id": uuid.uuid4().hex[:8], "parentId": None}
        message = {"role": "user", "content": [{"type": "text", "text": text}]}
        return [{**entry, "timestamp": now(), "message": message}]


class OpenCode(Session):
    """Written by a process of its own: no two SQLites in one process may open a database."""

    catalog = "opencode"

    def place(self, home: Path) -> Path:
        return home / "opencode.db"

    def begin(self) -> None:
        columns = "id TEXT PRIMARY KEY, time_created INTEGER, time_updated INTEGER"
        self.store(
            ("PRAGMA journal_mode = WAL",),
            (
                f"CREATE TABLE session ({columns}, project_id TEXT, parent_id TEXT, directory TEXT,"
                " title TEXT, version TEXT, revert TEXT, time_archived INTEGER)",
            ),
            (f"CREATE TABLE message ({columns}, session_id TEXT, data TEXT)",),
            (f"CREATE TABLE part ({columns}, session_id TEXT, message_id TEXT, data TEXT)",),
            ("INSERT INTO session(id, directory) VALUES (?, '/home/dev')", self.thread),
        )

    def type(self, text: str) -> None:
        (row,) = self.turn(text)
        info, (part,) = row["info"], row["parts"]
        at = info["time"]["created"]
        message = (info["id"], at, at, self.thread, json.dumps(info))
        words = (part["id"], at, at, self.thread, info["id"], json.dumps(part))
        self.store(
            ("INSERT INTO message VALUES (?, ?, ?, ?, ?)", *message),
            ("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", *words),
            ("UPDATE session SET time_updated = ? WHERE id = ?", at, self.thread),
        )

    def turn(self, text: str) -> list[Row]:
        at = time.time_ns() // 1_000_000
        # Ids begin with their time: by that a copy is known.
        tail = f"{at % 2**36:09x}{uuid.uuid4().hex[:17]}"
        info = {"id": f"msg_{tail}", "role": "user", "time": {"created": at}}
        part = {"id": f"prt_{tail}", "type": "text", "text": text}
        return [{"info": info, "parts": [part]}]

    def store(self, *statements: tuple[object, ...]) -> None:
        script = """
import json, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
for sql, *values in json.load(sys.stdin):
    database.execute(sql, values)
"""
        subprocess.run(
            [sys.executable, "-c", script, str(self.source)],
            input=json.dumps(statements),
            text=True,
            check=True,
        )


SESSIONS: list[type[Session]] = [Claude, Codex, OpenCode, Pi]


def now() -> str:
    time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return time.replace("+00:00", "Z")
