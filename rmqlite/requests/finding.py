"""Messages found by key or by id, and the part that each record has in its message's history."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rmqlite.message import StoredMessage


class MessageState(enum.IntEnum):
    """The part that a record has in the history of its message."""

    STORED = 0
    """The message in the topic that it was sent to."""
    SCHEDULED = 1
    """The message in the schedule: it waits for its delivery, or was delivered."""
    RETRY = 2
    """The message in its group's retry topic, after a failure."""
    DEAD = 3
    """The message as a dead letter: it failed too often, or could not be delivered."""
    CANCELLED = 4
    """The record that says: do not deliver this scheduled message."""


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """Which messages of a topic have this key, or (by_message_id) this message id?

    begin_ms <= store time < end_ms, by the broker's clock; None means no end.  max_messages:
    only the newest ones, 1 to 64; 0 means 32.  hops: also the other records of such a message,
    in the schedule, in retry topics and in dead-letter topics.
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
    """A record and its state; only a scheduled record sets the last three fields.

    ended: how the wait ended of a record that no longer waits: delivered, fired (delivered at
    once, at a user's wish), rescheduled, cancelled, or undeliverable.
    """

    message: StoredMessage
    state: MessageState
    deliver_at_ms: int = 0
    is_pending: bool = False
    ended: str = ""


@dataclass(frozen=True, slots=True)
class FoundMessages:
    """Messages in the order of the log; is_cut: a limit may have left older ones out."""

    messages: tuple[FoundMessage, ...]
    is_cut: bool = False
