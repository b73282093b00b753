"""A measured figure, medians of runs, and the tables; independent of the measurements."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

COLUMNS: Final = ("SCENARIO", "CASE", "RESULT", "P50 MS", "P99 MS", "MAX MS")
COMPARED_COLUMNS: Final = ("SCENARIO", "CASE", "FIGURE", "NOW", "EARLIER", "RATIO")
_SPREAD: Final = ("p50", "p99", "max")


@dataclass(frozen=True, slots=True)
class Figure:
    """A result of one case of a scenario, such as rate=24000 msg/s.

    runs: the value of each run, in the order of the runs, if value is their median; else empty.
    """

    scenario: str
    case: str
    figure: str
    value: float
    unit: str
    runs: tuple[float, ...] = ()

    def __str__(self) -> str:
        """Three significant digits, grouped: "24,013 msg/s", "0.52 ms"."""
        digits = 0 if abs(self.value) >= 100 else 1 if abs(self.value) >= 10 else 2
        return f"{self.value:,.{digits}f} {self.unit}".rstrip()

    @property
    def key(self) -> tuple[str, str, str]:
        """What was measured; unique in the figures of one command."""
        return (self.scenario, self.case, self.figure)

    @property
    def lowest(self) -> float:
        return min(self.runs or (self.value,))

    @property
    def highest(self) -> float:
        return max(self.runs or (self.value,))

    def ratio(self, earlier: Figure) -> float | None:
        """How many times better this is: above 1 means better; None if that has no bound.

        Higher is better for rates, which are all units "per second".  Lower is better for
        durations, memory, CPU and counts.
        """
        better, worse = (self, earlier) if self.unit.endswith("/s") else (earlier, self)
        if better.value == worse.value:
            return 1.0
        return better.value / worse.value if worse.value else None


def medians(runs: Sequence[Sequence[Figure]]) -> list[Figure]:
    """One figure for each key: the median of its values.  A single run stays as it is."""
    if len(runs) == 1:
        return list(runs[0])
    by_key: dict[tuple[str, str, str], list[Figure]] = {}
    for figures in runs:
        for each in figures:
            by_key.setdefault(each.key, []).append(each)
    together = [(same[0], tuple([each.value for each in same])) for same in by_key.values()]
    return [replace(first, value=median(values), runs=values) for first, values in together]


def case_at(curve: str, number: int) -> str:
    """The case of a point of a curve, such as "sends, topics: 10,000"."""
    return f"{curve}: {number:,}"


def point_of(case: str) -> tuple[str, int] | None:
    """The curve and the number that case_at() was given; None for any other case."""
    found = re.fullmatch(r"(.+): ([\d,]+)", case)
    return (found[1], int(found[2].replace(",", ""))) if found else None


def spread(scenario: str, case: str, values_ms: Iterable[float]) -> list[Figure]:
    """The median, the 99th percentile and the maximum of durations."""
    return [
        Figure(scenario, case, name, value, "ms")
        for name, value in zip(_SPREAD, spread_of(values_ms), strict=True)
    ]


def table_rows(figures: Sequence[Figure]) -> list[tuple[object, ...]]:
    """One row per case, under COLUMNS: its result, and the spread of its durations."""
    cases: dict[tuple[str, str], dict[str, Figure]] = {}
    for each in figures:
        cases.setdefault((each.scenario, each.case), {})[each.figure] = each
    rows: list[tuple[object, ...]] = []
    for case, by_name in cases.items():
        spreads = [by_name.pop(name, None) for name in _SPREAD]
        results = ", ".join([str(each) for each in by_name.values()])
        rows.append((*case, results or "-", *[each.value if each else None for each in spreads]))
    return rows


def compared_rows(now: Sequence[Figure], earlier: Sequence[Figure]) -> list[tuple[str, ...]]:
    """One row per figure, under COMPARED_COLUMNS; "-" for a figure that one side lacks.

    Only scenarios that were measured now; cases that only the earlier side has come last.
    """
    measured = {each.scenario for each in now}
    new = {each.key: each for each in now}
    old = {each.key: each for each in earlier if each.scenario in measured}
    rows: list[tuple[str, ...]] = []
    for key in {**new, **old}:
        here, there = new.get(key), old.get(key)
        ratio = here.ratio(there) if here and there else None
        text = "-" if ratio is None else f"{ratio:.2f}"
        rows.append((*key, str(here or "-"), str(there or "-"), text))
    return rows


def spread_of(values_ms: Iterable[float]) -> list[float]:
    """The median, the 99th percentile and the maximum."""
    ordered = sorted(values_ms)
    return [percentile(ordered, percent) for percent in (50, 99, 100)]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest rank of values in ascending order; 0 for none."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
