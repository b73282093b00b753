"""What a receive hands out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rmqlite.features.leases.requests import Handle
from rmqlite.kernel.records.stored import Record


class Delivery(NamedTuple):
    """A delivered message.

    record: as it lies in the log, perhaps in a retry topic.  topic: the one it was sent to.
    attempt: 1 for the first delivery to the group.
    """

    record: Record
    topic: str
    handle: Handle
    attempt: int


@dataclass(frozen=True, slots=True)
class Received:
    """messages: they are invisible for invisible_ms from received_at_ms on; there may be none.

    has_more: perhaps there are more that the client did not ask for.
    """

    messages: tuple[Delivery, ...]
    received_at_ms: int
    invisible_ms: int
    has_more: bool = False
