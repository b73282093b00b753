"""Topics, their queues, and where a queue begins and ends."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic's settings; perm is RocketMQ's bits: 4 read, 2 write, 1 inherit."""

    topic: str
    read_queues: int
    write_queues: int
    perm: int = 6


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """create: make the topic on demand, as a send would."""

    topic: str
    create: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """What a client must know to send to and read from a topic."""

    topic: TopicInfo
    broker_name: str
    message_delay_level: str
    max_message_bytes: int


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    """One queue of a topic."""

    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class QueueRange:
    """A queue holds the queue offsets min_offset <= n < max_offset."""

    queue: Queue
    min_offset: int
    max_offset: int
    newest_timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class TimeQuery:
    """Which queue offset was stored at or after this time?"""

    queue: Queue
    timestamp_ms: int
