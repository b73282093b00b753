"""Lengths of time and sizes in a sentence for a person."""

from __future__ import annotations

from typing import Final

_SIZES: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def span_text(span_ms: int) -> str:
    """A duration in its two largest units: "1h 5m", "12.3s", "45ms"."""
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


def size_text(size: int) -> str:
    """A number of bytes in its largest unit: "17 bytes", "1.5 GiB"."""
    amount, unit = float(size), _SIZES[0]
    for larger in _SIZES[1:]:
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    if unit != _SIZES[0]:
        return f"{amount:.1f} {unit}"
    return "1 byte" if size == 1 else f"{size} {unit}"
