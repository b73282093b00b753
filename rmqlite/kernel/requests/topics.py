"""Topics, their queues, and the offsets at which a queue begins and ends."""

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
class TopicExtras:
    """Settings of a topic that only RocketMQ's own tools read."""

    is_ordered: bool = False
    sys_flag: int = 0


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """Asks for a topic's route.  create: make the topic on demand, as a send would."""

    topic: str
    create: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """The settings that a client needs to send to a topic and read from it."""

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
class QueueEntries:
    """entries: physical offset, length, and hash of the tags or deliver time."""

    min_offset: int
    max_offset: int
    entries: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class TimeQuery:
    """Asks for the first queue offset that was stored at or after this time."""

    queue: Queue
    timestamp_ms: int
