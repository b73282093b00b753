"""Rates of messages: what is answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Rate(NamedTuple):
    """messages: in the whole window.  per_call: how many one call brought on average."""

    messages: int = 0
    per_second: float = 0.0
    per_call: float = 0.0


class Rates(NamedTuple):
    """The last minute, hour and day; a window without two samples is all zeros."""

    minute: Rate = Rate()
    hour: Rate = Rate()
    day: Rate = Rate()


class Totals(NamedTuple):
    """Counts since the start; a difference of two samples is the traffic between them.

    stored: records of every kind, the broker's own too.  found, missed: pulls with and without
    messages.  taken: messages that pulls returned.
    """

    stored: int = 0
    found: int = 0
    missed: int = 0
    taken: int = 0


@dataclass(frozen=True, slots=True)
class TrafficFigures:
    """What the whole broker does.

    stored_per_second …: over the last 10 seconds, minute and ten minutes.  at_midnight: totals
    at the beginning of yesterday and of today, local time; zero before the start.
    """

    now: Totals
    stored_per_second: tuple[float, float, float]
    found_per_second: tuple[float, float, float]
    missed_per_second: tuple[float, float, float]
    taken_per_second: tuple[float, float, float]
    at_midnight: tuple[Totals, Totals]
    stored_bytes: int
