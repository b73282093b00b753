"""A measured figure, and the table of figures; independent of the measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

COLUMNS: Final = ("SCENARIO", "CASE", "RESULT", "P50 MS", "P99 MS", "MAX MS")
_SPREAD: Final = ("p50", "p99", "max")


@dataclass(frozen=True, slots=True)
class Figure:
    """A result of one case of a scenario, such as rate=24000 msg/s."""

    scenario: str
    case: str
    figure: str
    value: float
    unit: str

    def __str__(self) -> str:
        """Three significant digits, grouped: "24,013 msg/s", "0.52 ms"."""
        digits = 0 if abs(self.value) >= 100 else 1 if abs(self.value) >= 10 else 2
        return f"{self.value:,.{digits}f} {self.unit}"


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest rank of values in ascending order; 0 for none."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def spread(scenario: str, case: str, values_ms: Iterable[float]) -> list[Figure]:
    """The median, the 99th percentile and the maximum of durations."""
    ordered = sorted(values_ms)
    values = [percentile(ordered, percent) for percent in (50, 99, 100)]
    return [
        Figure(scenario, case, name, value, "ms")
        for name, value in zip(_SPREAD, values, strict=True)
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
