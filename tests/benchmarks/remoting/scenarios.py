"""The scenarios, and what one of them measures of one broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tests.benchmarks.remoting.brokers import Target
from tests.support.programs import Program

LEVEL: Final = 18
"""Two hours: nothing is delivered while the next scenario is measured."""
DUE_LEVELS: Final = ((1, 1.0, 1_000), (4, 30.0, 1_000_000))
"""Level, its delay in seconds, and how many messages can be sent before the first is due."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much each scenario does."""

    seconds: float
    drained: int
    parked: int
    waited: int


class Figure(NamedTuple):
    """value: messages per second, or milliseconds.  cpu_us: of the broker, for each message."""

    value: float
    unit: str
    cpu_us: float


class Scenario(NamedTuple):
    """what: the command of Load.java.  before: commands that are not measured.

    stops_s: for so long the broker's process stands still before the measurement.
    """

    name: str
    what: dict[str, Any]
    before: tuple[dict[str, Any], ...] = ()
    after: tuple[dict[str, Any], ...] = ()
    stops_s: float = 0


def scenarios(sizes: Sizes, turn: int = 0) -> list[Scenario]:
    """All of them; each turn has its own topics."""

    def send(threads: int, batch: int = 1, level: int = 0) -> dict[str, Any]:
        asked = {
            "do": "send",
            "topic": f"sent-{threads}-{batch}-{level}-{turn}",
            "threads": threads,
        }
        return asked | {"batch": batch, "level": level, "seconds": sizes.seconds}

    waits = {"do": "latency", "count": sizes.waited}
    parks = {"do": "park", "topic": f"parked-{turn}", "count": sizes.parked}
    fills = {"do": "fill", "topic": f"drained-{turn}", "count": sizes.drained}
    level, delay_s, _ = next(each for each in DUE_LEVELS if sizes.drained <= each[2])
    delays = {"do": "delay", "topic": f"due-{turn}", "count": sizes.drained, "level": level}
    return [
        *[
            Scenario(f"single sends, {threads} thread{'s' * (threads > 1)}", send(threads))
            for threads in (1, 8, 32)
        ],
        Scenario("delayed sends, 32 threads", send(32, level=LEVEL)),
        Scenario("batches of 32, 8 threads", send(8, batch=32)),
        Scenario(
            f"{sizes.drained:,} stored, pushed to a consumer",
            fills | {"do": "drain"},
            before=(fills,),
        ),
        Scenario(
            f"{sizes.drained:,} due at once, delivered",
            delays | {"do": "deliver"},
            before=(delays,),
            stops_s=delay_s + 1,
        ),
        Scenario("send to receive", waits | {"topic": f"waited-alone-{turn}"}),
        Scenario(
            f"send to receive, {sizes.parked:,} parked pulls",
            waits | {"topic": f"waited-beside-{turn}"},
            before=(parks,),
            after=({"do": "unpark"},),
        ),
        Scenario("request-reply", waits | {"do": "request", "topic": f"requested-{turn}"}),
        Scenario("a read and a send together", waits | {"do": "pair", "topic": f"paired-{turn}"}),
    ]


def warm_up(program: Program, sizes: Sizes) -> None:
    """Java is several times slower until it has compiled what it runs."""
    asked = {"topic": "warm", "batch": 1, "level": 0, "seconds": sizes.seconds * 2}
    program.do("send", threads=32, **asked)


def measured(scenario: Scenario, target: Target, program: Program) -> Figure:
    """Run a scenario.  Fails if a message is refused, lost or received twice."""
    for asked in scenario.before:
        program.do(asked["do"], **_but_do(asked))
    if scenario.stops_s:
        target.stand_still(scenario.stops_s)
    before_s = target.cpu_s()
    (found,) = [
        event
        for event in program.do(scenario.what["do"], **_but_do(scenario.what))
        if "messages" in event
    ]
    cpu_us = (target.cpu_s() - before_s) / found["messages"] * 1e6
    for asked in scenario.after:
        program.do(asked["do"], **_but_do(asked))
    if "p50_ms" in found:
        return Figure(found["p50_ms"], "ms", cpu_us)
    return Figure(found["messages"] / found["seconds"], "/s", cpu_us)


def _but_do(asked: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if name != "do"}
