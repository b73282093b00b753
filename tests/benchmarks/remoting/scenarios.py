"""The scenarios, and what one of them measures of one broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tests.benchmarks.remoting.brokers import Target
from tests.support.programs import Program

LEVEL: Final = 18
"""Two hours: nothing is delivered while the next scenario is measured."""
AFTER_MS: Final = 7_200_000
"""The same for timers."""
TIMERS_PER_S: Final = 50
DUE_LEVELS: Final = ((1, 1.0, 1_000), (4, 30.0, 1_000_000))
"""Level, its delay in seconds, and how many messages can be sent before the first is due."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much each scenario does."""

    seconds: float
    drained: int
    parked: int
    waited: int
    timers: int


class Figure(NamedTuple):
    """value: messages per second, or milliseconds.  cpu_us: of the broker, for each message."""

    value: float
    unit: str
    cpu_us: float


class Scenario(NamedTuple):
    """what: the command of Load.java.  before: commands that are not measured.

    stops_s: for so long the broker's process stands still before the measurement.
    percentiles: of a time, a row for each of them; without them the median.
    """

    name: str
    what: dict[str, Any]
    before: tuple[dict[str, Any], ...] = ()
    after: tuple[dict[str, Any], ...] = ()
    stops_s: float = 0
    percentiles: tuple[str, ...] = ()


def scenarios(sizes: Sizes, turn: int = 0) -> list[Scenario]:
    """Without timers; each turn has its own topics."""

    def send(threads: int, **asked: int) -> dict[str, Any]:
        return _send(sizes, turn, threads, **asked)

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


def timer_scenarios(sizes: Sizes, turn: int = 0) -> list[Scenario]:
    """Timers, and delayed sends beside them; each turn has its own topics."""

    def lateness(name: str, step_ms: int) -> Scenario:
        asked = {"do": "lateness", "topic": f"late-{step_ms}-{turn}", "step_ms": step_ms}
        asked |= {"count": sizes.timers, "rate": TIMERS_PER_S}
        return Scenario(f"lateness, {name}", asked, percentiles=("p50", "p99"))

    return [
        *[
            Scenario(
                f"{what}, {threads} thread{'s' * (threads > 1)}",
                _send(sizes, turn, threads, **asked),
            )
            for threads in (1, 32)
            for what, asked in {
                "timers": {"after_ms": AFTER_MS},
                "delayed sends": {"level": LEVEL},
            }.items()
        ],
        lateness("any instant", 1),
        lateness("whole seconds", 1_000),
    ]


def _send(sizes: Sizes, turn: int, threads: int, **asked: int) -> dict[str, Any]:
    names = [f"{key}-{value}" for key, value in asked.items()]
    topic = "-".join(["sent", str(threads), *names, str(turn)])
    more = {"topic": topic, "threads": threads, "seconds": sizes.seconds}
    return {"do": "send", "batch": 1, **more, **asked}


def warm_up(program: Program, sizes: Sizes, **asked: int) -> None:
    """Java is several times slower until it has compiled what it runs."""
    send = _send(sizes, 0, 32, **asked) | {"topic": "warm", "seconds": sizes.seconds * 2}
    program.do(send["do"], **_but_do(send))


def measured(scenario: Scenario, target: Target, program: Program) -> dict[str, Figure]:
    """Run a scenario: its rows.  Fails if a message is refused, lost, early or received twice."""
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
    if scenario.percentiles:
        return {
            f"{scenario.name}, {each}": Figure(found[f"{each}_ms"], "ms", cpu_us)
            for each in scenario.percentiles
        }
    if "p50_ms" in found:
        return {scenario.name: Figure(found["p50_ms"], "ms", cpu_us)}
    return {scenario.name: Figure(found["messages"] / found["seconds"], "/s", cpu_us)}


def _but_do(asked: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if name != "do"}
