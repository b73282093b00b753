"""Bodies about queues: locks and offsets, how far groups are, and how much was sent and taken.

MessageQueue is also the key of maps; such a map is RocketMQ's odd JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rmqlite.limits import QUEUES_MAX
from rmqlite.wire.remoting.bodies.topics import DataVersion
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


@dataclass(frozen=True, slots=True)
class ConsumeOffset:
    """last_timestamp: the store time of the last message that was consumed, 0 if unknown."""

    broker_offset: I64
    consumer_offset: I64
    last_timestamp: I64 = 0


@dataclass(frozen=True, slots=True)
class ConsumeStats:
    """Answer to 208."""

    offset_table: Annotated[dict[MessageQueue, ConsumeOffset], Count(ENTRIES_MAX)]
    consume_tps: float = 0.0


@dataclass(frozen=True, slots=True)
class BrokerConsumeStats:
    """Answer to 317: for each group a map with one name, and its stats by topic."""

    broker_addr: Name
    consume_stats_list: Annotated[
        tuple[dict[str, tuple[ConsumeStats, ...]], ...], Count(ENTRIES_MAX)
    ]
    total_diff: I64


@dataclass(frozen=True, slots=True)
class StatsItem:
    """avgpt: what one call brought, on average; RocketMQ's word."""

    sum: I64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


@dataclass(frozen=True, slots=True)
class BrokerStats:
    """Answer to 315."""

    stats_minute: StatsItem
    stats_hour: StatsItem
    stats_day: StatsItem


@dataclass(frozen=True, slots=True)
class TimingCount:
    """Timers that wait for their delivery to one topic."""

    count: I64
    time_stamp: I64


@dataclass(frozen=True, slots=True)
class TimerMetrics:
    """Answer to 61: the pending timers by topic."""

    timing_count: Annotated[dict[str, TimingCount], Count(ENTRIES_MAX)]
    data_version: DataVersion


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Times in milliseconds; the texts are RocketMQ's, 1969-12-31#23:59:59:999 for -1."""

    message_queue: MessageQueue
    min_time_stamp: I64
    max_time_stamp: I64
    consume_time_stamp: I64
    delay_time: I64
    min_time_stamp_str: Name | None = None
    max_time_stamp_str: Name | None = None
    consume_time_stamp_str: Name | None = None


@dataclass(frozen=True, slots=True)
class TimeSpans:
    """Answer to 303."""

    consume_time_span_set: Annotated[tuple[TimeSpan, ...], Count(ENTRIES_MAX)]
