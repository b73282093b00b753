"""The broker's counts since its start: one field per event, in memory only.

Counts per group are for existing groups: a name that the broker refused is never counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from rmqlite.broker.histogram import Durations

PAIRS_MAX: Final = 10_000
"""Pairs of topic and group whose pulls are counted; the pulls of further pairs are not."""


@dataclass(slots=True)
class Counts:
    """Numbers of messages, and durations of appends."""

    sent: int = 0
    pulled: Counter[str] = field(default_factory=Counter)
    retried: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    appends: Durations = field(default_factory=Durations)
    """The appends of calls and jobs; the schedule times its own."""
    stored: int = 0
    """Records of every kind."""
    found: int = 0
    missed: int = 0
    """Pulls with and without messages."""
    taken: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """By topic and group: the messages that pulls returned, and the number of these pulls."""

    def pull(self, topic: str, group: str, messages: int) -> None:
        """Count one pull of an existing group."""
        if not messages:
            self.missed += 1
            return
        self.found += 1
        self.pulled[group] += messages
        before = self.taken.get((topic, group))
        if before is not None:
            self.taken[topic, group] = before[0] + messages, before[1] + 1
        elif len(self.taken) < PAIRS_MAX:
            self.taken[topic, group] = messages, 1
