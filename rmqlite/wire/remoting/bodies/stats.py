"""Bodies with figures: how far groups are, how much was sent and taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rmqlite.wire.remoting.bodies.queues import MessageQueue
from rmqlite.wire.remoting.bodies.topics import DataVersion
from rmqlite.wire.remoting.limits import ENTRIES_MAX
from rmqlite.wire.remoting.names import I64, Count, Name


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
