"""Counts, rates, shares and sizes, as a person reads them."""

from __future__ import annotations

from typing import Final

from rmqlite.kernel.requests.broker import BrokerStatus
from rmqlite.views.times import span_text

COUNTED: Final = ("sent", "delivered", "retried", "dead")
"""The counts of BrokerStatus that a rate is made of."""
COUNTED_MAX: Final = 1_000
"""A list counts so many of the rows that match and are not shown; it takes one call."""
_CHANGED: Final = ("cancelled", "fired", "rescheduled")
_SIZES: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def counted(count: int, noun: str) -> str:
    """A count with its noun: "1 message", "2,000 messages", "2 retries"."""
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else many}"


def matches_text(shown: int, left: int, noun: str, *, is_all: bool, is_first: bool = True) -> str:
    """How many rows a list has: "312 messages, the first 50 of them here".

    left: the rows behind those that are shown, counted up to COUNTED_MAX; is_all: are there no
    others?  is_first: does the list begin here?
    """
    if not left:
        return counted(shown, noun) + ("" if is_all and is_first else " here")
    if not is_first:
        return f"{counted(shown, noun)} here, {'' if is_all else 'more than '}{left:,} behind them"
    total = counted(shown + left, noun)
    return f"{'' if is_all else 'more than '}{total}, the first {shown:,} of them here"


def times_text(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def size_text(size: int) -> str:
    """A number of bytes in its largest unit: "17 bytes", "1.5 GiB"."""
    amount, unit = float(size), _SIZES[0]
    for larger in _SIZES[1:]:
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    if unit != _SIZES[0]:
        return f"{amount:,.1f} {unit}"
    return counted(size, "byte")


def rate_text(per_second: float | None) -> str:
    """Messages per second: "1,234", "0.5", "-" if it is unknown."""
    if per_second is None:
        return "-"
    return f"{per_second:,.1f}" if 0 < per_second < 10 else f"{per_second:,.0f}"


def share_text(part: float, whole: float = 1) -> str:
    """A share: "99.9%"; never 100% if part is less than whole, and "-" without a whole."""
    if not whole:
        return "-"
    return f"{min(99.9, 100 * part / whole) if part < whole else 100:.1f}%"


def counts_text(status: BrokerStatus) -> str:
    """All counts, and since when: "since the start 3m 2s ago: 5 sent, …".

    After a restart they begin at 0, so they say so.
    """
    words = {"dead": "died"}
    names = [*COUNTED, *[name for name in _CHANGED if getattr(status, name)]]
    counts = [f"{getattr(status, name):,} {words.get(name, name)}" for name in names]
    age_ms = (status.now_ms - status.started_at_ms) // 1_000 * 1_000
    return f"since the start {span_text(age_ms)} ago: {', '.join(counts)}"
