"""Numbers as a person reads them: counts, rates, shares, sizes, lengths of time and moments.

Moments are in the local time zone.
"""

from __future__ import annotations

from typing import Final

from rmqlite.kernel.requests.broker import BrokerStatus
from rmqlite.kernel.words.clock import local_text

COUNTED: Final = ("sent", "delivered", "retried", "dead")
"""The counts of BrokerStatus that a rate is made of."""
COUNTED_MAX: Final = 1_000
"""A list counts so many of the rows that match and are not shown; it takes one call."""
_CHANGED: Final = ("cancelled", "fired", "rescheduled")
_SIZES: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000))
_SHORT_MS: Final = 1_000
"""Something that is due or happened within less than this is due or happened now."""


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


def span_text(span_ms: int) -> str:
    """A duration in its two largest units: "1h 5m", "12.3s", "45ms"."""
    if span_ms < 0:
        return f"-{span_text(-span_ms)}"
    if span_ms < 1_000:
        return f"{span_ms}ms"
    if span_ms < 60_000:
        return f"{span_ms / 1000:.1f}s"
    minutes, seconds = divmod(span_ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {seconds}s"


def delay_text(delay_ms: int) -> str:
    """A delay in full, as messageDelayLevel would spell it: "10m", "1h 30m", "12.5s"."""
    if delay_ms < 0:
        return f"-{delay_text(-delay_ms)}"
    parts = []
    left_ms = delay_ms
    for unit, unit_ms in _UNITS:
        amount, left_ms = divmod(left_ms, unit_ms)
        parts += [f"{amount}{unit}"] * bool(amount)
    if left_ms or not parts:
        parts.append(f"{left_ms / 1000:.3f}".rstrip("0").rstrip(".") + "s")
    return " ".join(parts)


def time_text(timestamp_ms: int) -> str:
    """A moment to the millisecond; "-" for 0, which means never."""
    return local_text(timestamp_ms) if timestamp_ms else "-"


def second_text(timestamp_ms: int) -> str:
    """A moment to the second; "-" for never."""
    return time_text(timestamp_ms).partition(".")[0]


def instant_text(instant_ms: int, now_ms: int) -> str:
    """A moment on the clock: "10:15:30"; on another day "11-22 10:15", in another year in full."""
    text, now = time_text(instant_ms), time_text(now_ms)
    if text[:10] == now[:10]:
        return text[11:19]
    return text[5:16] if text[:4] == now[:4] else text[:16]


def until_text(due_ms: int, now_ms: int) -> str:
    """How long until something is due: "in 9m 3s", "now", "5.0s late"; "-" for never."""
    if not due_ms:
        return "-"
    wait_ms = due_ms - now_ms
    if wait_ms > 0:
        return f"in {span_text(wait_ms)}"
    return f"{span_text(-wait_ms)} late" if wait_ms <= -_SHORT_MS else "now"


def age_text(timestamp_ms: int, now_ms: int) -> str:
    """How long ago: "5m 3s ago", "just now"; "-" for never."""
    if not timestamp_ms:
        return "-"
    age_ms = now_ms - timestamp_ms
    return f"{span_text(age_ms)} ago" if age_ms >= _SHORT_MS else "just now"
