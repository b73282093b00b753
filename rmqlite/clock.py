"""The one module that knows the time.

Milliseconds that never go back: the wall clock when the broker starts, never before the
newest record of its log, then elapsed boot time.  A step of the wall clock afterwards
neither hastens nor delays anything; a suspended machine's sleep counts.
"""

from __future__ import annotations

import time
from typing import Protocol

_LOCAL_FORMATS = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S")
WAKE_MS_MAX = 1_000
"""The longest sleep between two looks at the clock, so that a resumed machine is noticed."""


class Clock(Protocol):
    """What the rest of the house may ask about time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, never less than at the call before."""
        ...

    def not_before(self, timestamp_ms: int) -> None:
        """From now on, now_ms() is at least this."""
        ...


class SystemClock:
    """Real time."""

    __slots__ = ("_offset_ns",)

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - _boot_ns()

    def now_ms(self) -> int:
        return (self._offset_ns + _boot_ns()) // 1_000_000

    def not_before(self, timestamp_ms: int) -> None:
        behind_ms = timestamp_ms - self.now_ms()
        if behind_ms > 0:
            self._offset_ns += behind_ms * 1_000_000


def wall_ms() -> int:
    """The wall clock, milliseconds since 1970; it may step.  For clients and for display."""
    return time.time_ns() // 1_000_000


def elapsed_s() -> float:
    """Seconds from an arbitrary start, for measuring how long something took."""
    return time.monotonic()


def pause_s(seconds: float) -> None:
    """Sleep.  Only for the command line and examples; the broker's loops await instead."""
    time.sleep(seconds)


def local_text(timestamp_ms: int) -> str:
    """A timestamp as a person reads it: local time to the millisecond."""
    seconds, millis = divmod(timestamp_ms, 1000)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) + f".{millis:03d}"


def local_ms(text: str) -> int | None:
    """The inverse: a date, and as much of a time of day as one cares to write; None if it is not.

    "2026-11-20", "2026-11-20 10:00", "2026-11-20T10:00:30", "2026-11-20 10:00:30.250".
    """
    whole, point, fraction = text.strip().replace("T", " ").partition(".")
    if point and not (whole.count(":") == 2 and len(fraction) in (1, 2, 3) and fraction.isdigit()):
        return None
    for form in _LOCAL_FORMATS:
        try:
            moment = time.strptime(whole, form)
            return int(time.mktime(moment)) * 1000 + int(fraction.ljust(3, "0"))
        except (ValueError, OverflowError):
            continue
    return None


def local_hour(timestamp_ms: int) -> int:
    """The local hour, 0 to 23."""
    return time.localtime(timestamp_ms // 1000).tm_hour


def month_start_ms(timestamp_ms: int) -> int:
    """The start of the local month that this moment lies in (for RocketMQ's unique ids)."""
    local = time.localtime(timestamp_ms // 1000)
    return int(time.mktime((local.tm_year, local.tm_mon, 1, 0, 0, 0, 0, 0, -1))) * 1000


def _boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
