"""Waiting for something that real processes or threads do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from rmqlite.clock import elapsed_s

WAIT_S: Final = 180.0
"""For a machine that has much else to do: only a test that fails waits so long."""


def eventually(is_so: Callable[[], bool], what: str) -> None:
    """Return as soon as it is so; fail when it is not in time."""
    until_s = elapsed_s() + WAIT_S
    pause = threading.Event()
    while not is_so():
        assert elapsed_s() < until_s, f"not in {WAIT_S:.0f} s: {what}"
        pause.wait(0.02)
