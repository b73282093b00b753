"""The name of a single record, and how many of them one request may have."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from rmqlite.features.rows import Row
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.kernel.words.names import WAIT_TOPICS, dlq_topic, is_dlq, is_retry

DEAD_LETTER_IDS_MAX: Final = 100
"""The most ids of a filter; each dead letter's id is looked up among them."""
_PLACE: Final = re.compile("([^:]+):([0-9]{1,10}):([0-9]{1,18})")


class Place(NamedTuple):
    """A record's topic, queue and queue offset."""

    topic: str
    queue_id: int
    queue_offset: int

    @classmethod
    def read(cls, text: str) -> Place | None:
        """The place of a dead letter; None for another text.

        It is written topic:queue id:queue offset; a dead letter's also with its group instead.
        """
        found = _PLACE.fullmatch(text)
        if found is None:
            return None
        name, queue_id, queue_offset = found.groups()
        is_topic = is_dlq(name) or is_retry(name) or name in WAIT_TOPICS
        return cls(name if is_topic else dlq_topic(name), int(queue_id), int(queue_offset))


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
    only the newest ones, 1 to 64; 0 means 32.  history: also the other records of such a message,
    in the schedule, in retry topics and in dead-letter topics.
    """

    topic: str
    key: str
    by_message_id: bool = False
    begin_ms: int = 0
    end_ms: int | None = None
    max_messages: int = 0
    history: bool = False


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


QUERY_MESSAGES: Final = Row("Admin", "QueryMessages", MessageQuery, FoundMessages)
GET_MESSAGE: Final = Row("Admin", "GetMessage", str, FoundMessage)
