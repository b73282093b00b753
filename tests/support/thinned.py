"""How much of a large test a run without --long does; see tests/conftest.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from hypothesis import settings

GATE_EXAMPLES: Final = 12
LONG_EXAMPLES: Final = 200
GATE_SHARE: Final = 6


class Thinned(Protocol):
    """Which of these positions a test tries: the type of the fixture thinned."""

    def __call__(self, positions: range, stride: int, first: int = 0) -> range: ...


def by_turns(values: Iterable[Any], others: Sequence[Any]) -> list[tuple[Any, Any]]:
    """All pairs; one_of(len(others)) takes each of the values once, each time with another one."""
    return [
        (value, others[(number + turn) % len(others)])
        for number, value in enumerate(values)
        for turn in range(len(others))
    ]


def part_of(examples: int) -> int:
    """All of the examples that a property test asks for with --long, else a sixth of them."""
    return examples if _is_long() else max(GATE_EXAMPLES, examples // GATE_SHARE)


def few(examples: int) -> int:
    """So many for each of many cases that are alike, and as many as of others with --long."""
    return LONG_EXAMPLES if _is_long() else examples


def _is_long() -> bool:
    return settings.default is not None and settings.default.max_examples == LONG_EXAMPLES
