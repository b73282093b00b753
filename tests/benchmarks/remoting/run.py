"""Measure RocketMQ's own Java client 4.9.8 with rmqlite and with RocketMQ's broker.

    python -m tests.benchmarks.remoting --seconds 5 --flush sync
    python -m tests.benchmarks.remoting --timers --turns 5

Both brokers run on this machine, with empty stores and the same way to flush.  They take turns:
each scenario runs against the one, then against the other, and an idle broker takes little CPU
time.  So a program that slows this machine down slows both, and the ratio is what to compare.
All of it is measured --turns times.  The table has the medians of the figures, and the median of
the turns' ratios: the machine of one turn is faster than that of another.  "CPU" is the CPU time of
the broker process, in user and in kernel mode, for each message; in the last four scenarios that is
a message sent and received, a message with its reply, or a read with a send.  "send to receive" is
the median time from the call of a send to the call of the listener, "request-reply" that of a
request(), and "a read and a send together" that of two calls that begin together on one connection,
until both are answered; a ratio is above 1 if rmqlite is better.
With --timers, RocketMQ's broker is 5.3.2, and timers are measured beside delayed sends: how many
are accepted, and how late a listener gets them; 50 a second are sent, each for 3 s ahead.
Maven fetches the client and RocketMQ's broker.  Without Maven and Java nothing runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median_low
from typing import Final

import pytest

from tests.benchmarks.remoting.brokers import (
    VERSION,
    WITH_TIMERS,
    Target,
    rmqlite_broker,
    rocketmq_broker,
)
from tests.benchmarks.remoting.scenarios import (
    AFTER_MS,
    Figure,
    Sizes,
    measured,
    scenarios,
    timer_scenarios,
    warm_up,
)
from tests.support import toolchains
from tests.support.programs import Program

SOURCE: Final = Path(__file__).parent / "Load.java"
FLUSHES: Final = {"sync": "SYNC_FLUSH", "async": "ASYNC_FLUSH"}
Row = tuple[str, dict[str, list[Figure]]]
"""The name of a scenario; the figures of each broker, turn by turn."""


def compare(
    folder: Path,
    flush: str,
    sizes: Sizes,
    *,
    with_rocketmq: bool,
    turns: int = 1,
    timers: bool = False,
    only: str = "",
) -> list[Row]:
    """The figures of each broker, by its name.  Progress goes to stderr.

    only: a part of the names of the scenarios that run.
    """
    version = WITH_TIMERS if timers else VERSION
    command = toolchains.java_program(SOURCE)
    rows: dict[str, dict[str, list[Figure]]] = {}
    with ExitStack() as stack:
        targets: list[Target] = [stack.enter_context(rmqlite_broker(folder / "rmqlite", flush))]
        if with_rocketmq:
            broker = rocketmq_broker(folder / "rocketmq", flush, version)
            targets.append(stack.enter_context(broker))
        programs: dict[str, Program] = {}
        for target in targets:
            log = folder / f"{target.name}-load.log"
            program = stack.enter_context(Program(command, target.name_server, log))
            programs[target.name] = program
            _say(f"{target.name}: warming up")
            warm_up(program, sizes, after_ms=AFTER_MS if timers else 0)
        for turn in range(turns):
            for scenario in (timer_scenarios if timers else scenarios)(sizes, turn):
                if only not in scenario.name:
                    continue
                for target in targets if turn % 2 == 0 else reversed(targets):
                    found = measured(scenario, target, programs[target.name])
                    for name, figure in found.items():
                        figures = rows.setdefault(name, {each.name: [] for each in targets})
                        figures[target.name].append(figure)
                        _say(f"{target.name}: {name}: {_text(figure)}")
    return list(rows.items())


def _better(ours: Figure, theirs: Figure) -> float:
    """How many times."""
    ratio = ours.value / theirs.value
    return ratio if ours.unit == "/s" else 1 / ratio


def table(rows: list[Row]) -> str:
    """The figures of all brokers, and how many times better rmqlite is."""
    names = list(rows[0][1])
    heads = ["scenario", *names]
    heads += ["ratio"] if len(names) > 1 else []
    heads += [f"CPU µs, {name}" for name in names]
    lines = [heads]
    for name, figures in rows:
        medians = [median_low(each) for each in figures.values()]
        line = [name, *[_text(figure) for figure in medians]]
        if len(names) > 1:
            line.append(f"{median_low(map(_better, *figures.values())):.2f}")
        lines.append([*line, *[f"{figure.cpu_us:,.0f}" for figure in medians]])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        [
            "  ".join(
                [
                    text.rjust(width) if at else text.ljust(width)
                    for at, (text, width) in enumerate(zip(line, widths, strict=True))
                ]
            )
            for line in lines
        ]
    )


def main() -> None:
    about, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.remoting",
        description=about,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--seconds", type=float, default=5, help="how long each scenario sends (default 5)")
    add("--messages", type=int, default=50_000, help="how many wait for the drain")
    add("--parked", type=int, default=5_000, help="how many pulls are parked")
    add("--turns", type=int, default=3, help="how often all is measured (default 3); medians count")
    add("--flush", choices=FLUSHES, default="sync", help="flushDiskType of both brokers")
    add("--dir", type=Path, help="a folder on the disk to measure; default: the temporary one")
    add("--timers", action="store_true", help="timers, and RocketMQ 5.3.2")
    add("--only", default="", metavar="TEXT", help="the scenarios with this text in their names")
    add("--only-rmqlite", action="store_true", help="leave RocketMQ's broker out")
    options = parser.parse_args()
    sizes = Sizes(options.seconds, options.messages, options.parked, waited=300, timers=1_000)
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        try:
            rows = compare(
                Path(folder),
                FLUSHES[options.flush],
                sizes,
                with_rocketmq=not options.only_rmqlite,
                turns=options.turns,
                timers=options.timers,
                only=options.only,
            )
        except (pytest.skip.Exception, pytest.fail.Exception) as error:
            raise SystemExit(str(error)) from None
    print(table(rows))
    about_it = f"Java client 4.9.8, 1 KiB bodies, {FLUSHES[options.flush]}, {os.cpu_count()} cores"
    print(f"\n{about_it}, medians of {options.turns} turns.")
    if not options.only_rmqlite:
        print(f"RocketMQ's broker is {WITH_TIMERS if options.timers else VERSION}.")


def _text(figure: Figure) -> str:
    return f"{figure.value:,.0f}/s" if figure.unit == "/s" else f"{figure.value:.2f} ms"


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
