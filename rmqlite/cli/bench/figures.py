"""A measured figure, and how figures become a table.  Knows nothing of how they were measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """What one case of a scenario measured, such as rate=24000 msg/s."""

    scenario: str
    case: str
    figure: str
    value: float
    unit: str


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest rank of values in ascending order; 0 for none."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def spread(scenario: str, case: str, values_ms: Iterable[float]) -> list[Figure]:
    """The median, the 99th percentile and the maximum of durations."""
    ordered = sorted(values_ms)
    return [
        Figure(scenario, case, "p50", percentile(ordered, 50), "ms"),
        Figure(scenario, case, "p99", percentile(ordered, 99), "ms"),
        Figure(scenario, case, "max", ordered[-1] if ordered else 0.0, "ms"),
    ]


def value_text(figure: Figure) -> str:
    """Three digits that count, grouped: "24,013 msg/s", "0.52 ms"."""
    digits = 0 if abs(figure.value) >= 100 else 1 if abs(figure.value) >= 10 else 2
    return f"{figure.value:,.{digits}f} {figure.unit}"


def table_rows(figures: Sequence[Figure]) -> list[tuple[str, str, str]]:
    """One row a case: its scenario, its name, and all its figures."""
    cases: dict[tuple[str, str], list[str]] = {}
    for figure in figures:
        text = f"{figure.figure} {value_text(figure)}"
        cases.setdefault((figure.scenario, figure.case), []).append(text)
    return [(scenario, case, ", ".join(texts)) for (scenario, case), texts in cases.items()]
