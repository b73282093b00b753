"""Measure the official gRPC clients of RocketMQ 5 with rmqlite, and with RocketMQ's proxy.

    python -m tests.benchmarks.grpc_clients --rocketmq --turns 3

Each client sends messages of 1 KiB, one at a time and 32 at a time, and takes them with a simple
consumer, one and 32 at a time; each message is acknowledged with a call of its own, one after the
other, as the clients do it.  "p50" and "p99" are of one send, or of one receive with its
acknowledgements.  "CPU" is the CPU time of the broker's process for each message.  RocketMQ's Java
client for the remoting protocol does the same beside them against the same broker.
With --rocketmq all of it runs against RocketMQ 5.3.3 with its proxy, too, in turns: the machine of
one moment is faster than that of another, so compare the ratios.  With --workers N a broker with
grpcWorkers=N is the third; the CPU time is that of all its processes.  With --pin each broker has
the first core, with all its processes, and the clients have the others.  Then thousands of receives
wait at rmqlite, and many messages are received and not acknowledged.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from typing import Any, Final, NamedTuple

import pytest

from rmqlite.client import AdminClient
from rmqlite.testing import BrokerProcess
from tests.benchmarks.grpc_clients import waiting
from tests.benchmarks.grpc_workers import workers_of
from tests.support import toolchains
from tests.support.broker_processes import cpu_s_of
from tests.support.grpc_clients import COMMANDS, GrpcClient
from tests.support.programs import Event, Program
from tests.support.rocketmq_proxy import VERSION, proxy

SOURCE: Final = toolchains.ROOT / "tests" / "benchmarks" / "remoting" / "Load.java"
SIZE: Final = 1_024
TOGETHER: Final = 32
WARM_UP: Final = 2_000
OURS, THEIRS = "rmqlite", f"RocketMQ {VERSION}"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many messages are sent and taken one at a time, and 32 at a time."""

    alone: int
    together: int


class Figure(NamedTuple):
    """rate: messages a second.  ms: p50 and p99 of a call; cpu_us: of the broker, a message."""

    rate: float
    ms: tuple[float, float]
    cpu_us: float


class Target(NamedTuple):
    """A broker that is measured, by its processes, with the running clients by name."""

    name: str
    pids: list[int]
    clients: dict[str, GrpcClient]
    remoting: Program

    def cpu_s(self) -> float:
        return sum(map(cpu_s_of, self.pids))


Rows = dict[tuple[str, str], dict[str, list[Figure]]]
"""Client and scenario; the figures of each broker, turn by turn."""


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """What is started meanwhile runs on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def ours(folder: Path, topics: list[str], cores: set[int], workers: int) -> Iterator[Target]:
    settings = {"flushDiskType": "SYNC_FLUSH", "diskSpaceWarningLevelRatio": "100"}
    broker = BrokerProcess(folder, settings | {"grpcWorkers": str(workers)}, is_forked=False)
    with ExitStack() as stack:
        with on_cores(cores):
            stack.enter_context(broker)
        with AdminClient(broker.endpoint, timeout_ms=60_000) as admin:
            for topic in topics:
                admin.create_topic(topic, 4)
        clients = _clients(stack, broker.endpoint, folder)
        remoting = _remoting(stack, broker.name_server, folder)
        name = f"{OURS}, {workers} workers" if workers else OURS
        yield Target(name, [broker.pid, *workers_of(broker.pid)], clients, remoting)


@contextmanager
def theirs(folder: Path, topics: list[str], cores: set[int]) -> Iterator[Target]:
    with ExitStack() as stack:
        with on_cores(cores):
            started = stack.enter_context(proxy(folder))
        log = folder / "admin.log"
        command = toolchains.java(toolchains.JAVA_5)
        with Program(command, started.name_server, log) as admin:
            started.make_topics(admin, *topics)
        clients = _clients(stack, started.endpoint, folder)
        remoting = _remoting(stack, started.name_server, folder)
        yield Target(THEIRS, [started.pid], clients, remoting)


def _clients(stack: ExitStack, endpoint: str, folder: Path) -> dict[str, GrpcClient]:
    return {
        name: stack.enter_context(
            GrpcClient(name, command(), endpoint, folder / f"{name}-client.log")
        )
        for name, command in COMMANDS.items()
    }


def _remoting(stack: ExitStack, name_server: str, folder: Path) -> Program:
    command = toolchains.java_program(SOURCE)
    return stack.enter_context(Program(command, name_server, folder / "remoting.log"))


def topics(turns: int) -> list[str]:
    names = [*COMMANDS, "remoting"]
    return [f"{name}-{what}" for name in names for what in ["warm", *map(str, range(turns))]]


def measure(target: Target, turn: int, sizes: Sizes, rows: Rows) -> None:
    for name, client in target.clients.items():
        topic, group = f"{name}-{turn}", f"{name}-takers-{turn}"
        client.simple(group, topic)
        for what, count, batch in (
            ("one at a time", sizes.alone, 1),
            (f"{TOGETHER} at a time", sizes.together, TOGETHER),
        ):
            asked: dict[str, Any] = {"topic": topic, "count": count, "size": SIZE}
            asked |= {"together": batch, "name": group, "batch": batch}
            for kind, command in (("send", "load"), ("receive and ack", "drain")):
                figure = _measured(target, client, command, asked)
                _note(rows, target, name, f"{kind}, {what}", figure)
        client.stop(group)
    _measure_remoting(target, turn, sizes, rows)


def _measured(target: Target, client: GrpcClient, command: str, asked: dict[str, Any]) -> Figure:
    before_s = target.cpu_s()
    (found,) = [event for event in client.do(command, **asked) if "seconds" in event]
    cpu_s = target.cpu_s() - before_s
    times = statistics.quantiles([each * 1e3 for each in found["times"]], n=100)
    count = found.get("loaded") or found["drained"]
    return Figure(count / found["seconds"], (times[49], times[98]), cpu_s / count * 1e6)


def _measure_remoting(target: Target, turn: int, sizes: Sizes, rows: Rows) -> None:
    topic = f"remoting-{turn}"
    for what, threads in (("one at a time", 1), (f"{TOGETHER} at a time", TOGETHER)):
        asked = {"topic": topic, "threads": threads, "seconds": 3.0, "batch": 1}
        before_s = target.cpu_s()
        (found,) = _messages(target.remoting.do("send", **asked))
        cpu_us = (target.cpu_s() - before_s) / found["messages"] * 1e6
        ms = 1e3 * threads * found["seconds"] / found["messages"]
        figure = Figure(found["messages"] / found["seconds"], (ms, ms), cpu_us)
        _note(rows, target, "remoting, Java", f"send, {what}", figure)
    full = f"{topic}-full"
    target.remoting.do("fill", topic=full, count=sizes.together)
    before_s = target.cpu_s()
    (found,) = _messages(target.remoting.do("drain", topic=full, count=sizes.together))
    cpu_us = (target.cpu_s() - before_s) / found["messages"] * 1e6
    figure = Figure(found["messages"] / found["seconds"], (0, 0), cpu_us)
    _note(rows, target, "remoting, Java", "pull and commit, push consumer", figure)


def _messages(said: list[Event]) -> list[Event]:
    return [event for event in said if "messages" in event]


def _note(rows: Rows, target: Target, client: str, scenario: str, figure: Figure) -> None:
    rows.setdefault((client, scenario), {}).setdefault(target.name, []).append(figure)
    print(f"{target.name}: {client}, {scenario}: {_text(figure)}", file=sys.stderr, flush=True)


def _text(figure: Figure) -> str:
    p50, p99 = figure.ms
    return f"{figure.rate:,.0f}/s {p50:.2f} {p99:.2f} ms {figure.cpu_us:,.0f} us"


def compare(folder: Path, options: argparse.Namespace) -> Rows:
    rows: Rows = {}
    sizes, turns = Sizes(options.alone, options.together), options.turns
    first, *rest = sorted(os.sched_getaffinity(0))
    of_broker, of_clients = ({first}, {*rest}) if options.pin else ({first, *rest},) * 2
    with ExitStack() as stack:
        stack.enter_context(on_cores(of_clients))
        targets = [
            stack.enter_context(ours(folder / f"ours-{workers}", topics(turns), of_broker, workers))
            for workers in sorted({0, options.workers})
        ]
        if options.rocketmq:
            targets.append(stack.enter_context(theirs(folder / "theirs", topics(turns), of_broker)))
        for target in targets:
            for name, client in target.clients.items():
                asked = {"topic": f"{name}-warm", "size": SIZE, "together": TOGETHER}
                client.do("load", count=WARM_UP, **asked)
            warm = {"topic": "remoting-warm", "threads": TOGETHER, "seconds": 5.0, "batch": 1}
            target.remoting.do("send", **warm)
        for turn in range(turns):
            for target in targets if turn % 2 == 0 else reversed(targets):
                measure(target, turn, sizes, rows)
    return rows


def table(rows: Rows) -> str:
    """Medians of the turns, and those of the others' ratios to the rate of the last one."""
    lines = []
    for (client, scenario), figures in rows.items():
        cells = [f"{client:14} {scenario:30}"]
        for name, found in figures.items():
            rate = median_low([each.rate for each in found])
            p50, p99 = [median_low([each.ms[at] for each in found]) for at in (0, 1)]
            cpu_us = median_low([each.cpu_us for each in found])
            cells.append(f"{name}: {rate:8,.0f}/s {p50:7.2f} {p99:7.2f} ms {cpu_us:7,.0f} us")
        *others, last = figures.values()
        for each in others:
            ratios = [a.rate / b.rate for a, b in zip(each, last, strict=True)]
            cells.append(f"ratio {median_low(ratios):.2f}")
        lines.append("  ".join(cells))
    return "\n".join(lines)


def main() -> None:
    about, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.grpc_clients",
        description=about,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--alone", type=int, default=500, help="messages one at a time (default 500)")
    add("--together", type=int, default=5_000, help="messages 32 at a time (default 5,000)")
    add("--turns", type=int, default=1, help="how often all is measured; medians count")
    add("--workers", type=int, default=0, help="a broker with so many gRPC workers, too")
    add("--pin", action="store_true", help="each broker on the first core, clients on the others")
    add("--rocketmq", action="store_true", help="RocketMQ with its proxy, too")
    add("--parked", type=int, default=5_000, help="how many receives wait; 0: none")
    add("--invisible", type=int, default=100_000, help="how many are not acknowledged; 0: none")
    add("--dir", type=Path, help="a folder on the disk to measure; default: the temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        folder = Path(name)
        if options.turns:
            try:
                found = compare(folder, options)
            except (pytest.skip.Exception, pytest.fail.Exception) as error:
                raise SystemExit(str(error)) from None
            print(table(found))
            print(f"\n1 KiB bodies, SYNC_FLUSH, {os.cpu_count()} cores, {options.turns} turns\n")
        if options.parked:
            with BrokerProcess(folder / "parked", {}, is_forked=False) as broker:
                print(waiting.parked(broker, options.parked, wakes=300))
        if options.invisible:
            with BrokerProcess(
                folder / "invisible", {"flushDiskType": "ASYNC_FLUSH"}, is_forked=False
            ) as broker:
                print(waiting.invisible(broker, options.invisible))
