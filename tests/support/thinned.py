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
    is_long = settings.default is not None and settings.default.max_examples == LONG_EXAMPLES
    return examples if is_long else max(GATE_EXAMPLES, examples // GATE_SHARE)
