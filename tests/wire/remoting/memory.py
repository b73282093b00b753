"""How much memory a piece of work takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def peak_bytes(work: Callable[[], object]) -> int:
    """At its highest, in bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
