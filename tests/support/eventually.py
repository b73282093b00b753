"""Waiting for something that real processes or threads do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from rmqlite.kernel.words.clock import elapsed_s

WAIT_S: Final = 400.0
"""For a machine that has much else to do: only a test that fails waits so long."""

PAUSE_S_MAX: Final = 0.2


def eventually(is_so: Callable[[], bool], what: str, wait_s: float = WAIT_S) -> None:
    """Return as soon as it is so; fail when it is not in time."""
    until_s = elapsed_s() + wait_s
    pause, pause_s = threading.Event(), 0.02
    while not is_so():
        assert elapsed_s() < until_s, f"not in {wait_s:.0f} s: {what}"
        pause.wait(pause_s)
        # Who looks all the time takes the machine from those that it waits for.
        pause_s = min(PAUSE_S_MAX, pause_s * 1.3)
