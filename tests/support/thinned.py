"""How much of a large test a run without --long does; see tests/conftest.py."""

from __future__ import annotations

from typing import Final, Protocol

from hypothesis import settings

GATE_EXAMPLES: Final = 20
LONG_EXAMPLES: Final = 200
GATE_SHARE: Final = 4


class Thinned(Protocol):
    """Which of these positions a test tries: the type of the fixture thinned."""

    def __call__(self, positions: range, stride: int, first: int = 0) -> range: ...


def part_of(examples: int) -> int:
    """All of the examples that a property test asks for with --long, else a quarter of them."""
    return examples if _is_long() else max(GATE_EXAMPLES, examples // GATE_SHARE)


def few(examples: int) -> int:
    """So many for each of many cases that are alike, and as many as of others with --long."""
    return LONG_EXAMPLES if _is_long() else examples


def _is_long() -> bool:
    return settings.default is not None and settings.default.max_examples == LONG_EXAMPLES
