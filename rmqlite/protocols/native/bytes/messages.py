"""Sends and pulls of rmqlite.v1: requests and answers as plain values.

Times are milliseconds since 1970, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rmqlite.kernel.requests.messages import PullStatus
from rmqlite.kernel.words.message import StoredMessage, offset_message_id


class EncodedBatch(NamedTuple):
    """Messages of one topic, as bytes; see protocols/remoting/bytes/batch.py.

    delay: of all of them, instead of the property DELAY; or empty.
    """

    topic: str
    delay: str
    messages: bytes


class SendRequest(NamedTuple):
    """Store these messages, all or none.  A tuple: it is made in a third of the time.

    queue_id: -1 lets the broker take each topic's queues in turn.  born_at_ms: the time on the
    producer's clock; 0 means the broker's.
    """

    producer_group: str = ""
    queue_id: int = -1
    born_at_ms: int = 0
    batches: tuple[EncodedBatch, ...] = ()


class SendResult(NamedTuple):
    """Where a message was stored; a tuple because there are many of them.

    message_id: the producer's id (UNIQ_KEY), the same in every record.  For a delayed message
    queue_id is the queue of its delivery, while queue_offset, physical_offset and
    offset_message_id are those of the scheduled record, as in RocketMQ's answer; deliver_at_ms
    is 0 for a message without delay.  store_host: the broker, "ip:port".  is_duplicate: nothing was
    stored, because another message has the unique id; all but the topic is of that one.
    """

    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    physical_offset: int
    deliver_at_ms: int
    store_host: str
    is_duplicate: bool = False

    @property
    def offset_message_id(self) -> str:
        """RocketMQ's offset id of this record (reference §5.1)."""
        return offset_message_id(self.store_host, self.physical_offset)


class Duplicate(NamedTuple):
    """What the topic has instead of a message that was not stored."""

    queue_id: int
    message_id: str


class SendAnswer(NamedTuple):
    """The results of a SendRequest in columns; a tuple, as that is.

    There is one queue id for each batch, and no deliver time if no message waits.  duplicates: by
    position in the request.
    """

    queue_ids: tuple[int, ...]
    queue_offsets: tuple[int, ...]
    physical_offsets: tuple[int, ...]
    deliver_at_ms: tuple[int, ...]
    store_host: str
    duplicates: Mapping[int, Duplicate] = {}


@dataclass(frozen=True, slots=True)
class PullResult:
    """next_offset: the queue_offset of the next request, even if messages is empty."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: tuple[StoredMessage, ...] = ()


@dataclass(frozen=True, slots=True)
class PulledRecords:
    """A PullResult on its way: the records of its messages as they lie in the log, one behind the
    other, which the client takes apart."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: bytes = b""
