"""What the broker counts since its start: one field per event, kept in memory only.

Per group means per known group: a name that the broker has refused is never counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rmqlite.broker.histogram import Durations


@dataclass(slots=True)
class Counts:
    """Messages, and how long appends took."""

    sent: int = 0
    pulled: Counter[str] = field(default_factory=Counter)
    retried: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    appends: Durations = field(default_factory=Durations)
    """Of sends and send-backs; the schedule times its own."""
