"""Bodies about queues: locks and offsets.

MessageQueue is also the key of maps; such a map is RocketMQ's odd JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rmqlite.limits import QUEUES_MAX
from rmqlite.wire.remoting.limits import ENTRIES_MAX, LOCK_QUEUES_MAX
from rmqlite.wire.remoting.names import I32, I64, ClientId, Count, Group, Name, Topic, Wire


@dataclass(frozen=True, slots=True)
class MessageQueue:
    topic: Topic
    queue_id: I32
    broker_name: Name = ""


Queues = Annotated[tuple[MessageQueue, ...], Count(LOCK_QUEUES_MAX)]
QueueOffsets = Annotated[dict[MessageQueue, I64], Count(LOCK_QUEUES_MAX)]


@dataclass(frozen=True, slots=True)
class LockRequest:
    """Body of 41 and 42."""

    consumer_group: Group
    client_id: ClientId
    mq_set: Queues = ()


@dataclass(frozen=True, slots=True)
class LockedQueues:
    """Answer to 41."""

    locked: Annotated[Queues, Wire("lockOKMQSet")] = ()


@dataclass(frozen=True, slots=True)
class OffsetTable:
    """Body of 220 for Java and Go, answer to 222."""

    offset_table: QueueOffsets


@dataclass(frozen=True, slots=True)
class QueueOffset:
    topic: Topic
    queue_id: I32
    offset: I64
    broker_name: Name = ""


@dataclass(frozen=True, slots=True)
class OffsetList:
    """Body of 220 for C++, which cannot read an OffsetTable."""

    offset_table: Annotated[tuple[QueueOffset, ...], Count(LOCK_QUEUES_MAX)]


@dataclass(frozen=True, slots=True)
class ClientOffsets:
    """A client's answer to 221."""

    message_queue_table: QueueOffsets


@dataclass(frozen=True, slots=True)
class ClientsOffsets:
    """Answer to 223, by client id."""

    consumer_table: Annotated[dict[str, QueueOffsets], Count(ENTRIES_MAX)]


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """Answer to 43: by "topic@group", then by queue id."""

    offset_table: Annotated[
        dict[str, Annotated[dict[int, I64], Count(QUEUES_MAX)]], Count(ENTRIES_MAX)
    ]


@dataclass(frozen=True, slots=True)
class DelayOffsets:
    """Answer to 45, by delay level."""

    offset_table: dict[int, I64]


@dataclass(frozen=True, slots=True)
class QueueRange:
    min_offset: I64
    max_offset: I64
    last_update_timestamp: I64


@dataclass(frozen=True, slots=True)
class TopicStats:
    """Answer to 202: one entry for each write queue, or mqadmin says that there is none."""

    offset_table: Annotated[dict[MessageQueue, QueueRange], Count(ENTRIES_MAX)]


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """msg: the body of the record, as text."""

    physic_offset: I64
    physic_size: I32
    tags_code: I64
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None
