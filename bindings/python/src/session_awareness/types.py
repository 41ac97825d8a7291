"""The shapes of requests and replies, as the library spells them (camelCase).

Times are milliseconds since the Unix epoch. A field that may be absent says so; a reply may have
more fields than are named here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

Kind = Literal[
    "human_direct_message",
    "upstream_missing",
    "goal_changed",
    "child_spawned",
    "run_completed",
    "run_failed",
    "compacted",
    "adopted",
]
"""What happened; the first three notify watchers unless a watch names its own kinds."""

ActorType = Literal["human", "agent", "system"]
"""Who did it."""

Provenance = Literal["explicit", "ambient-group"]
"""Why a watch is there; ambient ones raise no wakes."""

Catalog = Literal["claude", "codex", "opencode", "pi"]
"""The agents whose own sessions can be adopted."""

Baseline = Literal["now", "start"]
"""Which turns of an adopted session are told: those to come, or all."""

Durability = Literal["process", "power"]
"""What a recorded event outlives: the death of the process, or of the machine too."""


# The config.


class Retention(TypedDict, total=False):
    """What is kept: events up to this age, and this many of the newest."""

    maxAgeMs: int
    maxEvents: int


class Roots(TypedDict, total=False):
    """The agents' own homes, where they are not the usual ones: folders.

    Usual are `~/.claude`, `~/.codex`, `~/.local/share/opencode` and `~/.pi/agent`.
    """

    claude: str
    codex: str
    opencode: str
    pi: str


class Monitor(TypedDict, total=False):
    """How upstream sessions are watched in the background.

    `enabled` (default True) is whether at all, `intervalMs` (60,000) the time between two passes,
    `initialDelayMs` (15,000) that from opening to the first, and with `fileEvents` (True) the file
    system's own change events start passes too.
    """

    enabled: bool
    intervalMs: int
    initialDelayMs: int
    fileEvents: bool
    roots: Roots


class WakeFilter(TypedDict, total=False):
    """Which wakes a handle is offered: those of watchers of these agents."""

    agents: Sequence[str]


# The log.


class _NewEvent(TypedDict):
    sessionKey: str
    kind: Kind
    actorType: ActorType


class NewEvent(_NewEvent, total=False):
    """An event of a batch to record; all but the first three fields may be absent."""

    agentId: str
    sessionId: str
    actorId: str
    runId: str
    summary: str
    payload: Mapping[str, object]
    dedupeKey: str
    occurredAt: int
    watcherSessionKeys: Sequence[str]
    onlyIfWatched: bool


class Payload(TypedDict, total=False):
    """What comes out of an event's payload."""

    outcome: Literal["error", "timeout", "cancelled"]
    channel: str
    turns: int


class _Change(TypedDict):
    sequence: int
    kind: Kind
    actorType: ActorType
    occurredAt: int
    summary: str


class Change(_Change, total=False):
    """An event as `changes_since` tells it; the fields named here may be absent."""

    actorId: str
    runId: str
    payload: Payload


class _Event(Change):
    sessionKey: str
    agentId: str


class Event(_Event, total=False):
    """An event of the log, with the session it belongs to; `sessionId` may be absent."""

    sessionId: str


class RecordReply(TypedDict, total=False):
    """What became of one event.

    Stored, or known by its dedupe key: `recorded` is true, with `duplicate` and `event`. Not stored
    because nobody watches: `recorded` is false, with `reason` `unwatched`. With `wait=False`:
    `queued`, and `reason` `full` when it is false.
    """

    recorded: bool
    duplicate: bool
    event: Event
    queued: bool
    reason: Literal["unwatched", "full"]


class BatchReply(TypedDict, total=False):
    """What became of a batch: `results` in order, or with `wait=False` as in `RecordReply`."""

    results: list[RecordReply]
    queued: bool
    reason: Literal["full"]


class _SessionRef(TypedDict):
    sessionKey: str


class SessionRef(_SessionRef, total=False):
    """A session: its key, and for a bare key its agent (default `main`)."""

    agentId: str


class StateVersion(TypedDict):
    """The sequence of a session's last event; 0 when nothing is logged."""

    sessionKey: str
    agentId: str
    stateVersion: int


class StateVersionsReply(TypedDict):
    """The versions, in the order they were asked for."""

    versions: list[StateVersion]


class _StateChanges(TypedDict):
    events: list[Change]
    historyGap: bool
    truncated: bool
    nextChangesSince: int


class StateChanges(_StateChanges, total=False):
    """Changes in ascending order.

    `historyGap`: an event after `changes_since` was pruned, so refresh the whole session.
    `truncated`: more follow after `nextChangesSince`. `futureCursor` is there, and true, when
    `changes_since` lies above the version, which means that the store was replaced.
    """

    futureCursor: bool


class ChangesReply(TypedDict):
    """A session's version and what changed."""

    stateVersion: int
    stateChanges: StateChanges


class SessionCursor(TypedDict):
    """The last session of a page, to go on behind it."""

    agentId: str
    sessionKey: str


class SessionRow(TypedDict):
    """A session of the log; events up to `prunedBelow` may be gone."""

    sessionKey: str
    agentId: str
    stateVersion: int
    prunedBelow: int


class SessionsReply(TypedDict):
    """A page of sessions by agent and key, and whether more follow."""

    sessions: list[SessionRow]
    more: bool


class EventsReply(TypedDict):
    """A page of the log over all sessions, and whether more follow."""

    events: list[Event]
    more: bool


class BackupReply(TypedDict):
    """The size of the copy."""

    bytes: int


class MaintainReply(TypedDict):
    """What this pass removed."""

    prunedEvents: int
    prunedCursors: int


ToolFormat = Literal["openai", "anthropic", "json-schema"]


class ToolSchemasReply(TypedDict):
    """The session tools in one shape, and a paragraph on notices for the agents' prompt."""

    format: ToolFormat
    tools: list[dict[str, Any]]
    prompt: str


# Watches, notices, wakes.


class WatchReply(TypedDict, total=False):
    """`watched` with `created` and `stateVersion`, or not watched with a `reason`."""

    watched: bool
    created: bool
    stateVersion: int
    reason: Literal["self", "unqualified_watcher"]


class UnwatchReply(TypedDict):
    """Whether there was a watch to end."""

    unwatched: bool


class _Watch(TypedDict):

    watcherSessionKey: str
    targetSessionKey: str
    targetAgentId: str
    provenance: Provenance
    notifyKinds: list[Kind]
    lastSeen: int
    notified: int
    material: int
    pending: bool


class Watch(_Watch, total=False):
    """One watch; a notice is open while `notified` is above `lastSeen`, since `pendingSince`."""

    pendingSince: int


class WatchesReply(TypedDict):
    """A page of watches, and whether more follow."""

    watches: list[Watch]
    more: bool


class ResetReply(TypedDict):
    """How many watches of the session are gone."""

    removedWatches: int


class DeleteReply(TypedDict):
    """Whether there was anything of the session."""

    deleted: bool


class Notice(TypedDict):
    """What a watcher is told on its next turn: `text` goes into its prompt as it stands."""

    text: str
    targetSessionKey: str
    targetAgentId: str
    changesSince: int
    notified: int
    contextKey: str


class NoticesReply(TypedDict):
    """Notices, oldest first, and whether the limit left some out."""

    notices: list[Notice]
    more: bool


class _NoticeAck(TypedDict):
    targetSessionKey: str
    notified: int


class NoticeAck(_NoticeAck, total=False):
    """A notice that was handled: its target and its `notified`."""

    targetAgentId: str


class AckReply(TypedDict):
    """How many notices were handled, and for how many of them a new one is open."""

    acknowledged: int
    reopened: int


class Wake(TypedDict):
    """The session `sessionKey` should take a turn: its notice about the target waits."""

    sessionKey: str
    targetSessionKey: str
    targetAgentId: str
    reason: Literal["session-state"]


# Upstream sessions.


class _Link(TypedDict):
    sessionKey: str
    agentId: str
    catalog: Catalog
    threadId: str
    hostId: str
    adoptedAt: int
    missing: int


class LinkFault(TypedDict):
    """What keeps the file of a link from being read: since when, and why, the last time."""

    since: int
    message: str


class Link(_Link, total=False):
    """A session and its upstream.

    `missing` counts the checks in a row that did not find it; the third drops the link. `source` is
    its file, absent for one on another host. `fault` is there while that cannot be read; `links`
    alone tells it.
    """

    source: str
    fault: LinkFault


class _AdoptReply(TypedDict):
    adopted: bool
    linked: bool
    event: Event


class AdoptReply(_AdoptReply, total=False):
    """The `adopted` event, with `link`, or with `reason` when the source cannot be followed."""

    link: Link
    reason: Literal["legacy_format"]


class LinksReply(TypedDict):
    """A page of links by session key and agent, and whether more follow."""

    links: list[Link]
    more: bool


class ReleaseReply(TypedDict):
    """Whether there was a link to drop."""

    released: bool


class _Discovered(TypedDict):
    catalog: Catalog
    threadId: str
    source: str
    updatedAt: int
    adopted: bool


class Discovered(_Discovered, total=False):
    """A session in an agent's own store: `adopt` takes its `catalog`, `threadId` and `source`."""

    cwd: str


class DiscoverReply(TypedDict):
    """A page of sessions, newest first, and whether more follow."""

    sessions: list[Discovered]
    more: bool


OutcomeKind = Literal["unchanged", "activity", "missing", "deferred", "replaced", "error"]
"""What a pass over a link came to: `activity` when there were new rows, whoever wrote them."""


class _ScanOutcome(TypedDict):
    sessionKey: str
    agentId: str
    catalog: Catalog
    outcome: OutcomeKind
    humanTurns: int
    prompts: int
    commands: int
    shells: int


class ScanOutcome(_ScanOutcome, total=False):
    """What one pass over one link found; `message` says why it is an `error`.

    `humanTurns` is the sum of the three after it.
    """

    message: str


class ScanReply(TypedDict):
    """One outcome for each link, by session key and agent."""

    outcomes: list[ScanOutcome]


class RunActiveReply(TypedDict):
    """Whether this handle's mark is set now."""

    active: bool


class OwnMessageReply(TypedDict):
    """Always true: the text is remembered."""

    remembered: bool


# Upkeep.


class CatalogScans(TypedDict):
    """What the background did for the sessions of one agent since the handle was opened.

    `passes` are rounds in which something was looked at, `lagMs` is how long after its first sign
    the last activity was stored.
    """

    passes: int
    lastPassMs: int
    lagMs: int


class _Stats(TypedDict):
    events: int
    sessions: int
    watches: int
    links: int
    linksInError: int
    pending: int
    failedAppends: int
    storageFaults: int
    damaged: bool
    shedEvents: int
    queuedEvents: int
    queuedWakes: int
    schemaVersion: str
    database: str
    databaseBytes: int
    walBytes: int
    version: str
    fileEvents: Literal["full", "partial", "off"]
    watchedFolders: int
    unwatchedFolders: int
    scans: dict[Catalog, CatalogScans]


class Stats(_Stats, total=False):
    """Counters of the handle and its database.

    `fileEvents` tells whether changes of the agents' files are seen at once: in all folders of
    linked sources (`watchedFolders`), in some, or in none; the others (`unwatchedFolders`) are
    looked at every interval. While the database cannot be read, `unreadable` says why, and what
    is counted in it is what it was before; `damaged` says that this handle writes nothing more to
    it, and `damage` why. `linksInError` counts the links with a `fault`. `storageFaults` counts how often it could not be read or written, and
    `lastFault` says why the last time.
    """

    lastFault: str
    unreadable: str
    damage: str
