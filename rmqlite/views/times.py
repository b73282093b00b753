"""Lengths of time and moments, as a person reads them; moments are in the local time zone."""

from __future__ import annotations

from typing import Final

from rmqlite.kernel.words.clock import local_text

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000))
_SHORT_MS: Final = 1_000
"""Something that is due or happened within less than this is due or happened now."""


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
