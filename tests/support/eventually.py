"""Waiting for something that real processes do; only journeys need it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rmqlite.clock import elapsed_s


def eventually(is_so: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Return as soon as it is so; fail when it is not in time."""
    until_s = elapsed_s() + seconds
    pause = threading.Event()
    while not is_so():
        assert elapsed_s() < until_s, f"not in {seconds} s: {what}"
        pause.wait(0.02)
