"""Every scenario by its name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from rmqlite.cli.bench import scenarios, schedule_scenarios
from rmqlite.cli.bench.bench import Bench
from rmqlite.cli.bench.figures import Figure

SCENARIOS: Final[dict[str, Callable[[Bench], Iterator[Figure]]]] = {
    "send": scenarios.send,
    "batch": scenarios.batch,
    "delayed-send": scenarios.delayed_send,
    "parked": scenarios.parked,
    "lateness": scenarios.late,
    "rates": schedule_scenarios.rates,
    "drain": scenarios.drain,
    "burst": schedule_scenarios.burst,
    "cancel": schedule_scenarios.cancel,
    "pending": schedule_scenarios.pending,
}
TOGETHER: Final[dict[tuple[str, ...], Callable[[Bench, frozenset[str]], Iterator[Figure]]]] = {
    ("start", "memory"): scenarios.restarted,
    ("recovery", "check"): scenarios.recovery,
}
"""These share a store, which is filled once."""
NAMES: Final = (*SCENARIOS, *[name for names in TOGETHER for name in names])


def measure(bench: Bench, wanted: frozenset[str]) -> Iterator[Figure]:
    """The figures of the wanted scenarios, in their own order."""
    for name, scenario in SCENARIOS.items():
        if name in wanted:
            yield from scenario(bench)
    for names, scenarios_together in TOGETHER.items():
        if wanted & set(names):
            yield from scenarios_together(bench, wanted)
