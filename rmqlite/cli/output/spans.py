"""Lengths of time, moments and sizes, as a person reads them."""

from __future__ import annotations

from typing import Final

from rmqlite.cli.output.terminal import time_text
from rmqlite.views.spans import size_text as size_text
from rmqlite.views.spans import span_text as span_text

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000))


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


def wait_text(wait_ms: int) -> str:
    """How long until something is due: "9m 3s", "now", "late 5.0s"."""
    if wait_ms > 0:
        return span_text(wait_ms)
    return f"late {span_text(-wait_ms)}" if wait_ms <= -1_000 else "now"


def instant_text(instant_ms: int, now_ms: int) -> str:
    """A moment on the clock: "10:15:30"; on another day "11-22 10:15", in another year in full."""
    text, now = time_text(instant_ms), time_text(now_ms)
    if text[:10] == now[:10]:
        return text[11:19]
    return text[5:16] if text[:4] == now[:4] else text[:16]


def second_text(timestamp_ms: int) -> str:
    """A moment in local time to the second; "-" for never."""
    return time_text(timestamp_ms).partition(".")[0]


def age_text(timestamp_ms: int, now_ms: int) -> str:
    """How long ago: "5m 3s ago", "just now"; "-" for never."""
    if not timestamp_ms:
        return "-"
    age_ms = now_ms - timestamp_ms
    return f"{span_text(age_ms)} ago" if age_ms >= 1_000 else "just now"
