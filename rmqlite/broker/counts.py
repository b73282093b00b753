"""The broker's counts since its start: one field per event, in memory only.

Counts per group are for existing groups: a name that the broker refused is never counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rmqlite.broker.histogram import Durations


@dataclass(slots=True)
class Counts:
    """Numbers of messages, and durations of appends."""

    sent: int = 0
    pulled: Counter[str] = field(default_factory=Counter)
    retried: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    appends: Durations = field(default_factory=Durations)
    """The appends of calls and jobs; the schedule times its own."""
