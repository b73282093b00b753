"""Send, pull, send back, find, end a transaction: requests and answers as plain values.

Every protocol converts to and from these values; the broker uses no other form.  Times are
milliseconds since 1970, sizes are bytes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

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
    is 0 for a message without delay.  store_host: the broker, "ip:port".
    """

    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    physical_offset: int
    deliver_at_ms: int
    store_host: str

    @property
    def offset_message_id(self) -> str:
        """RocketMQ's offset id of this record (reference §5.1)."""
        return offset_message_id(self.store_host, self.physical_offset)


class SendAnswer(NamedTuple):
    """The results of a SendRequest in columns; a tuple, as that is.

    There is one queue id for each batch, and no deliver time if no message waits.
    """

    queue_ids: tuple[int, ...]
    queue_offsets: tuple[int, ...]
    physical_offsets: tuple[int, ...]
    deliver_at_ms: tuple[int, ...]
    store_host: str


class PullStatus(enum.IntEnum):
    """RocketMQ's response codes of a pull (reference §9.2)."""

    FOUND = 0
    NO_NEW_MESSAGE = 19
    NO_MATCHED_MESSAGE = 20
    OFFSET_MOVED = 21


@dataclass(frozen=True, slots=True)
class PullRequest:
    """Ask for messages of one queue from queue_offset on.

    expression: tags, "*" or "TagA || TagB".  wait_ms: how long to wait for a first message.
    sql: an SQL92 expression over properties, or empty; a message has to match both.  as_records:
    only for a broker before 0.13, which else answers with messages as values.
    """

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    expression: str = "*"
    max_messages: int = 32
    max_bytes: int = 256 * 1024
    wait_ms: int = 0
    sql: str = ""
    as_records: bool = True


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


@dataclass(frozen=True, slots=True)
class SendBackRequest:
    """A consumer of group failed the message at physical_offset.

    delay_level: 0 lets the group's retry policy choose; a number above 0 is the level; a number
    below 0 makes a dead letter at once.  max_reconsume_times: None means the group's; a limit
    set by the message's sender overrides both.
    """

    group: str
    physical_offset: int
    delay_level: int = 0
    reason: str = ""
    max_reconsume_times: int | None = None


@dataclass(frozen=True, slots=True)
class SendBackResult:
    """The failed message is now a retry due at deliver_at_ms, or a dead letter (0)."""

    topic: str
    reconsume_times: int
    delay_level: int
    deliver_at_ms: int

    @property
    def is_dead(self) -> bool:
        return self.deliver_at_ms == 0
