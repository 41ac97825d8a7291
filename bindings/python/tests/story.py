"""The two sessions most tests are about."""

from __future__ import annotations

from session_awareness import Awareness

MANAGER = "agent:main:main"
CHILD = "agent:main:subagent:child"


def spawn(awareness: Awareness, child: str = CHILD) -> int:
    """The manager spawns a child, and so watches it; returns the sequence of that."""
    reply = awareness.record(
        session_key=child,
        kind="child_spawned",
        actor_type="agent",
        actor_id=MANAGER,
        watcher_session_keys=[MANAGER],
    )
    assert reply is not None
    return reply["event"]["sequence"]


def write(awareness: Awareness, session: str = CHILD) -> int:
    """A person writes to a session; returns the sequence of that."""
    reply = awareness.record(
        session_key=session,
        kind="human_direct_message",
        actor_type="human",
        payload={"channel": "telegram", "secret": "stays inside"},
    )
    assert reply is not None
    return reply["event"]["sequence"]
