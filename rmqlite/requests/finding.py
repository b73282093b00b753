"""Messages found by key or by id, and what each record is in the life of its message."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rmqlite.message import StoredMessage


class MessageState(enum.IntEnum):
    """What a record is in the life of its message."""

    STORED = 0
    """In the topic it was sent to."""
    SCHEDULED = 1
    """In the schedule: it waits for its delivery, or is delivered."""
    RETRY = 2
    """Failed, and given to its consumer group again."""
    DEAD = 3
    """Failed too often, or could not be delivered."""
    CANCELLED = 4
    """The word that a scheduled message is not to be delivered."""


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """Which messages of a topic have this key, or (by_message_id) this message id?

    Stored at begin_ms <= t < end_ms, the broker's clock; None is no end.  max_messages: the
    newest so many, 1 to 64; 0 means 32.  hops: also the other records of such a message,
    where it waits or waited in the schedule, in retry and in dead-letter topics.
    """

    topic: str
    key: str
    by_message_id: bool = False
    begin_ms: int = 0
    end_ms: int | None = None
    max_messages: int = 0
    hops: bool = False


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A record and what it is; the last three only of a scheduled one, else 0 and nothing.

    ended: of one that does not wait any more, how its wait ended: delivered, fired (at once,
    at a user's wish), rescheduled, cancelled, or undeliverable.
    """

    message: StoredMessage
    state: MessageState
    deliver_at_ms: int = 0
    is_pending: bool = False
    ended: str = ""


@dataclass(frozen=True, slots=True)
class FoundMessages:
    """In the order of the log; is_cut: older ones may be there that a limit left out."""

    messages: tuple[FoundMessage, ...]
    is_cut: bool = False
