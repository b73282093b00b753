"""Work in steps, done at once."""

from __future__ import annotations

from typing import TypeVar

from rmqlite.kernel import Steps

T = TypeVar("T")


def done(steps: Steps[T]) -> T:
    """Take all steps; the answer."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: T = end.value
            return answer
