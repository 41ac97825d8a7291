#!/usr/bin/env python3
"""Drives real agents, and compares what the library tells with what was typed.

The agents run in namespaces of their own, with a model's stand-in on a loopback device and no
other network, and in homes of their own. One handle a version watches the store from before it is
there: every session is adopted as it appears, and a manager that watches them all takes the wakes.
The exit status is 0 when each version's sessions were told exactly what was typed into them.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
CACHE = REPOSITORY / "build" / "live"
sys.path.insert(0, str(REPOSITORY / "bindings" / "python" / "src"))

from session_awareness import Awareness, AwarenessError, Closed, NotFound  # noqa: E402

from agents import CODEX, ECHO, NODE, VERSIONS, Row, Typed, Version, read  # noqa: E402

MANAGER = "agent:main:main"
TOOLS = ("unshare", "nsenter", "ip", "tmux", "npm", "git", "ps", "bash")

# Each script's own pauses come to two or three minutes.
SCRIPT_S = 600
COMMAND_S = 90
# Behind the last keystroke: the wakes that are still to come.
SETTLE_S = 2


def say(*words: object) -> None:
    print(f"{time.strftime('%H:%M:%S')} ", *words, file=sys.stderr, flush=True)


# The packages.


def install(folder: Path, package: str, version: str) -> None:
    """Scripts of the packages are left out: they would run their programs in this network."""
    if (folder / "ready").exists():
        return
    say(f"installs {package} {version}")
    home = CACHE / "home"
    home.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true}\n')
    environment = {
        "NPM_CONFIG_USERCONFIG": str(Path.home() / ".npmrc"),
        **os.environ,
        "HOME": str(home),
    }
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(
        [*command, f"{package}@{version}"],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=SCRIPT_S,
        check=True,
    )
    (folder / "ready").touch()


def folder_of(version: Version) -> Path:
    return CACHE / "npm" / version.name


def program_of(version: Version) -> Path | None:
    return next(iter(sorted(folder_of(version).glob(version.program))), None)


# The lab.


class Lab:
    """The scripts of agents-lab, in a folder of this run."""

    def __init__(self, scripts: Path, folder: Path) -> None:
        self.scripts = scripts
        self.folder = folder
        node = folder / "pi" / "node_modules"
        node.mkdir(parents=True)
        (node / NODE[0]).symlink_to(CACHE / "npm" / "node" / "node_modules" / NODE[0])
        self._environment = {**os.environ, "LAB": str(folder), "PY": sys.executable}

    def bash(self, script: str, *arguments: str, seconds: int) -> int:
        """Runs a line of shell with lab.sh read in; what exceeds its time is ended."""
        # Its own process group, so that all of it can be ended; a log as output, since what it
        # leaves running would hold a pipe open.
        with open(self.folder / "scripts.log", "ab") as log:
            process = subprocess.Popen(
                ["bash", "-c", f'. "$0/lab.sh"; {script}', str(self.scripts), *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            say(f"too slow, ended: {' '.join((script, *arguments))}")
            return -1
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    @contextlib.contextmanager
    def up(self) -> Iterator[None]:
        if self.bash("lab_up; [ -s $LAB/mock.out ]", seconds=30) != 0:
            sys.exit("live: the lab's namespace or its model did not come up")
        try:
            yield
        finally:
            self.bash("lab_down", seconds=30)

    def home(self, label: str) -> Path:
        return self.folder / f"home-{label}"

    def drive(self, version: Version, label: str, program: Path) -> bool:
        """The lab's scripts, one after the other: whether they all came to their ends."""
        return all(
            self.bash(
                'script=$1; shift; exec bash "$HERE/$script" "$@"',
                script,
                label,
                str(program),
                *version.arguments,
                seconds=SCRIPT_S,
            )
            != -1
            for script in version.agent.scripts
        )

    def run(
        self, version: Version, label: str, program: Path, arguments: list[str], stdin: str = ""
    ) -> int:
        """One command line of the agent."""
        node = ["node"] if program.suffix == ".js" else []
        (self.folder / "stdin").write_text(stdin)
        return self.bash(
            'home=$1; shift; cd "$home/proj" || exit; inns $(aenv "$home") "$@" < "$LAB/stdin"',
            str(self.home(label)),
            *version.agent.environment,
            *node,
            str(program),
            *arguments,
            seconds=COMMAND_S,
        )

    def sweep(self, label: str) -> None:
        """Ends what the agents left: their daemons, and a terminal when a script was cut short."""
        mark = f"HOME={self.home(label)}\0".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (process / "environ").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
        self.bash("T=$1 t kill-server", label, seconds=10)
        Path(f"/tmp/tmux-{os.getuid()}", label).unlink(missing_ok=True)


# The library.


@dataclass
class Told:
    """What the library told of one store."""

    turns: Counter[str] = field(default_factory=Counter)
    """By thread."""
    wakes: list[tuple[str, int, float]] = field(default_factory=list)
    """The thread, the last row's own time, and when the wake was here; not each thread's first."""
    unwoken: int = 0


class Watch:
    """A handle on one store: adopts what appears, and takes the wakes."""

    def __init__(self, version: Version, database: Path, home: Path) -> None:
        self._catalog = version.agent.catalog
        # The other agents' roots are folders that are not there: nobody's real sessions.
        roots = {name: str(home / "none") for name in ("claude", "codex", "opencode", "pi")}
        roots[self._catalog] = str(home / version.agent.store)
        self.awareness = Awareness(
            database,
            monitor={
                "enabled": True,
                # Long: what comes in time came by the file system's events.
                "intervalMs": 3_600_000,
                "initialDelayMs": 0,
                "fileEvents": True,
                "roots": roots,
            },
        )
        self._log = open(database.with_suffix(".log"), "w", buffering=1)
        self.told = Told()
        self._after = 0
        self.notes: list[str] = []
        self._ended = threading.Event()
        self._taking = threading.Lock()
        self._adopts = threading.Event()
        self._adopts.set()
        self._first: set[str] = set()
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._adopt, self._listen)
        ]
        for thread in self._threads:
            thread.start()

    def sessions(self) -> list:
        return self.awareness.discover(catalog=self._catalog, limit=1000)["sessions"]

    def key(self, thread: str) -> str:
        return f"agent:main:{self._catalog}:{thread}"

    def _adopt(self) -> None:
        while not self._ended.wait(0.05):
            self._adopts.wait()
            try:
                for session in self.sessions():
                    if not session["adopted"]:
                        self._adopt_one(session["threadId"], session["source"])
            except Closed:
                return
            except AwarenessError as problem:
                say(f"{self._catalog}: {problem!r}")

    def _adopt_one(self, thread: str, source: str) -> None:
        self.awareness.watch(watcher_session_key=MANAGER, target_session_key=self.key(thread))
        # Not there: the file went, or moved, between the two calls; the next look finds it.
        with contextlib.suppress(NotFound):
            self.awareness.adopt(
                session_key=self.key(thread),
                catalog=self._catalog,
                thread_id=thread,
                source=source,
                baseline="start",
            )

    def _listen(self) -> None:
        while not self._ended.is_set():
            try:
                woken = self.awareness.wait_wakes(timeout_ms=500)
                now = time.time() * 1000
                # Nothing is taken without a wake: what comes just now has its own on the way.
                if woken:
                    self.awareness.drain_notices(watcher_session_key=MANAGER)
                    self._take(now)
            except Closed:
                return

    def _take(self, woken_at: float | None) -> None:
        with self._taking:
            self._take_all(woken_at)

    def _take_all(self, woken_at: float | None) -> None:
        for event in self.awareness.events(after=self._after)["events"]:
            self._after = event["sequence"]
            if event["kind"] == "upstream_missing":
                self.notes.append(f"{event['sessionKey']}: {event['kind']}")
            if event["kind"] != "human_direct_message":
                continue
            thread = event["sessionKey"].rpartition(":")[2]
            self.told.turns[thread] += event["payload"].get("turns", 1)
            print(woken_at, event["occurredAt"], thread, event["payload"], file=self._log)
            if woken_at is None:
                self.told.unwoken += 1
            elif thread in self._first:
                self.told.wakes.append((thread, event["occurredAt"], woken_at))
            self._first.add(thread)

    def settle(self) -> None:
        """Waits for what is under way, and notes what should not be there behind it."""
        time.sleep(SETTLE_S)
        before, busy = self.told.turns.total(), time.process_time()
        # Looking for new sessions costs time of its own; none come any more.
        self._adopts.clear()
        time.sleep(SETTLE_S)
        busy = time.process_time() - busy
        if busy > SETTLE_S / 10:
            self.notes.append(f"busy for {busy:.2f} of {SETTLE_S} s while nothing happened")
        for outcome in self.awareness.scan(catalog=self._catalog)["outcomes"]:
            if outcome["outcome"] in ("error", "missing"):
                self.notes.append(str(outcome))
        time.sleep(1)
        self._take(None)
        if late := self.told.turns.total() - before:
            self.notes.append(f"{late} told late, by a scan alone")
        self._adopts.set()

    def close(self) -> None:
        self._ended.set()
        self._adopts.set()
        for thread in self._threads:
            thread.join()
        self.awareness.close()
        self._log.close()


# The comparison.


def place(typed: list[Typed], rows: Iterator[Row]) -> tuple[Counter[str], list[str]]:
    """How many turns were typed into each thread, and what cannot be found in the store.

    Each act is the first row, as the sessions began, that has its words and no other's; a row that
    took up two acts (an Enter that a menu swallowed) is one turn.
    """
    candidates: list[Row] = []
    met = set()
    for row in rows:
        # A fork's copy has the time of the first.
        if (row.time, row.text) not in met:
            met.add((row.time, row.text))
            candidates.append(row)
    taken: set[int] = set()
    counts: Counter[str] = Counter()
    lost: list[str] = []
    thread = ""
    for act in typed:
        those = [index for index, row in enumerate(candidates) if act.words in row.text]
        fresh = next((index for index in those if index not in taken), None)
        if fresh is not None:
            thread = candidates[fresh].thread
            taken.add(fresh)
            counts[thread] += 1
        elif act.undone:
            # It went into the thread of the act before it.
            counts[thread] += 1
        elif not those and not act.maybe:
            lost.append(act.words)
    return counts, lost


LOST = "typed, and not in the store: "


@dataclass
class Line:
    """A line of the table."""

    name: str
    sessions: int
    typed: int
    told: int
    latencies: list[int]
    notes: list[str]

    def is_cut_short(self) -> bool:
        """Whether it proves nothing: keys came before a terminal program was up to take them."""
        return bool(self.notes) and all(note.startswith(LOST) for note in self.notes)

    def cells(self) -> list[str]:
        agent, _, version = self.name.partition("-")
        median = f"{statistics.median(self.latencies):.0f}" if self.latencies else "-"
        worst = str(max(self.latencies)) if self.latencies else "-"
        agree = "no" if self.notes else "yes"
        numbers = [str(number) for number in (self.sessions, self.typed, self.told)]
        return [agent, version, *numbers, median, worst, agree]


HEAD = ["agent", "version", "sessions", "typed", "told", "median ms", "max ms", "agree"]


def compare(name: str, typed: list[Typed], rows: list[Row], watch: Watch) -> Line:
    expected, lost = place(typed, iter(rows))
    told = watch.told
    notes = watch.notes + [f"{LOST}{words!r}" for words in lost]
    for thread in sorted(expected.keys() | told.turns.keys()):
        if expected[thread] != told.turns[thread]:
            notes.append(f"{thread}: typed {expected[thread]}, told {told.turns[thread]}")
    if told.unwoken:
        notes.append(f"{told.unwoken} without a wake")
    return Line(
        name,
        len(watch.awareness.links()["links"]),
        expected.total(),
        told.turns.total(),
        latencies(told.wakes, rows),
        notes,
    )


def latencies(wakes: list[tuple[str, int, float]], rows: list[Row]) -> list[int]:
    """From a row that is stored to its wake, in ms."""
    written = {(row.thread, row.time): row.written for row in rows}
    return [round(woken - written.get((thread, at), at)) for thread, at, woken in wakes]


def drive(lab: Lab, version: Version, attempt: int) -> list[Line]:
    program = program_of(version)
    if program is None:
        return [Line(version.name, 0, 0, 0, [], ["its program is not here"])]
    # Names a terminal's socket too, which all runs on the machine share.
    label = f"{version.name}-{lab.folder.name.removeprefix('live-')}-{attempt}"
    home = lab.home(label)
    agent = version.agent
    say(f"{version.name}: runs")
    watch = Watch(version, lab.folder / f"{label}.db", home)
    try:
        complete = lab.drive(version, label, program)
        typed = list(agent.typed)
        if complete and (sessions := watch.sessions()):
            for arguments, stdin in agent.more(sessions[0]["threadId"]):
                lab.run(version, label, program, arguments, stdin)
            typed += agent.more_typed
            say_as_the_host(lab, version, label, program, watch)
        watch.settle()
        rows = read(agent, home)
        line = compare(version.name, typed, rows, watch)
        if not complete:
            line.notes.append("a script did not come to its end")
        if not any(ECHO in row.text for row in rows):
            line.notes.append("the host's own words are not in the store")
        return [line, *migrate(lab, version, label, watch)]
    finally:
        lab.sweep(label)
        watch.close()


def say_as_the_host(lab: Lab, version: Version, label: str, program: Path, watch: Watch) -> None:
    """A prompt of the host's own, announced as the contract wants it, is no turn."""
    newest = watch.sessions()[0]
    watch.awareness.own_message(session_key=watch.key(newest["threadId"]), text=ECHO)
    lab.run(version, label, program, version.agent.echo(newest["source"], newest["threadId"]))


def migrate(lab: Lab, version: Version, label: str, watch: Watch) -> list[Line]:
    """A store migrated by a later version while it is linked tells nothing again."""
    later = next(one for one in VERSIONS if one.agent is CODEX)
    program = program_of(later)
    if version.agent is not CODEX or version is later or program is None:
        return []
    say(f"{version.name}: is migrated by {later.version}")
    newest = watch.sessions()[0]["threadId"]
    resumed = Typed("resumed by a later version")
    before = watch.told.turns.copy()
    watch.told.wakes, watch.notes = [], []
    lab.run(later, label, program, ["exec", "resume", newest, resumed.words])
    lab.run(later, label, program, ["migrate-rollouts", "--apply"])
    watch.settle()
    watch.told.turns.subtract(before)
    name = f"{version.name} migrated by {later.version}"
    rows = [row for row in read(CODEX, lab.home(label)) if resumed.words in row.text]
    line = compare(name, [resumed], rows, watch)
    for path in lab.home(label).glob(".codex/*sessions/**/*.jsonl"):
        with open(path, "rb") as file:
            if b'"history_mode":"paginated"' not in file.readline():
                line.notes.append(f"{path.name} is not migrated")
    return [line]


def table(lines: list[Line]) -> None:
    rows = [HEAD, *(line.cells() for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    rows.insert(1, ["-" * width for width in widths])
    for row in rows:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")
    for line in lines:
        for note in line.notes:
            print(f"{line.name}: {note}")


def inside(options: argparse.Namespace, chosen: list[Version]) -> int:
    lab = Lab(options.shared / "agents-lab", options.lab)
    lines: list[Line] = []
    with lab.up():
        for version in chosen:
            found = drive(lab, version, 1)
            if found[0].is_cut_short():
                say(f"{version.name}: once more, since keys were lost: {found[0].notes}")
                found = drive(lab, version, 2)
            for line in found:
                say(*line.cells(), *line.notes)
            lines += found
    table(lines)
    return 1 if any(line.notes for line in lines) else 0


def outside(options: argparse.Namespace, chosen: list[Version]) -> int:
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        sys.exit(f"live: missing here: {', '.join(missing)}")
    if not (options.shared / "agents-lab" / "lab.sh").exists():
        sys.exit(f"live: missing here: {options.shared / 'agents-lab'}")
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = [(folder_of(one), one.package, one.version) for one in chosen]
        for folder, package, version in [(CACHE / "npm" / "node", *NODE), *wanted]:
            try:
                install(folder, package, version)
            except subprocess.SubprocessError as problem:
                say(f"{package} {version} cannot be had: {problem}")
    # Short: sockets are made in it, whose paths may not be long.
    lab = Path(tempfile.mkdtemp(prefix="live-"))
    try:
        # A process namespace ends with its first process, and so do all daemons in it.
        unshare = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if os.geteuid() != 0:
            unshare += ["--user", "--map-root-user"]
        arguments = [f"--shared={options.shared}", *(version.name for version in chosen)]
        return subprocess.run(
            [*unshare, sys.executable, str(HERE / "live.py"), f"--lab={lab}", *arguments]
        ).returncode
    finally:
        if options.keep:
            say(f"kept: {lab}")
        else:
            shutil.rmtree(lab, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Drives real agents, and compares what is told.")
    parser.add_argument("--shared", type=Path, default=REPOSITORY.parent / "shared")
    parser.add_argument("--keep", action="store_true", help="leave the homes and logs of the run")
    parser.add_argument("--lab", type=Path, help=argparse.SUPPRESS)
    known = [version.name for version in VERSIONS]
    parser.add_argument("versions", nargs="*", help=f"of {', '.join(known)}; default: all")
    options = parser.parse_args()
    options.shared = options.shared.resolve()
    names = options.versions or known
    chosen = [version for version in VERSIONS if version.name in names]
    if unknown := set(names) - set(known):
        parser.error(f"no such version: {', '.join(sorted(unknown))}")
    # As an exception: what was started is then ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return inside(options, chosen) if options.lab else outside(options, chosen)


if __name__ == "__main__":
    sys.exit(main())
