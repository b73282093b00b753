"""The broker's counts since its start; after a restart they begin at 0, so they say so."""

from __future__ import annotations

from typing import Final

from rmqlite.requests.figures import BrokerStatus
from rmqlite.views.spans import span_text

COUNTED: Final = ("sent", "delivered", "retried", "dead")
"""The counts of BrokerStatus that a rate is made of."""
_CHANGED: Final = ("cancelled", "fired", "rescheduled")


def counts_text(status: BrokerStatus) -> str:
    """All counts, and since when: "since the start 3m 2s ago: 5 sent, …"."""
    words = {"dead": "died"}
    names = [*COUNTED, *[name for name in _CHANGED if getattr(status, name)]]
    counts = [f"{getattr(status, name):,} {words.get(name, name)}" for name in names]
    age_ms = (status.now_ms - status.started_at_ms) // 1_000 * 1_000
    return f"since the start {span_text(age_ms)} ago: {', '.join(counts)}"
