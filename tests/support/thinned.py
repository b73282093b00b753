"""The type of the fixture thinned, see tests/conftest.py."""

from __future__ import annotations

from typing import Protocol


class Thinned(Protocol):
    """Which of these positions a test tries."""

    def __call__(self, positions: range, stride: int, first: int = 0) -> range: ...
