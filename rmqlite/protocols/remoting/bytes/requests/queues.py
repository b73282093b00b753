"""Requests about queues: where they begin and end, a group's offsets in them, and their locks.

MessageQueue is also the key of maps; such a map is RocketMQ's odd JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from rmqlite.protocols.remoting.bytes.limits import LOCK_QUEUES_MAX
from rmqlite.protocols.remoting.bytes.names import (
    I32,
    I64,
    ClientId,
    Count,
    Group,
    Name,
    Topic,
    Wire,
)
from rmqlite.protocols.remoting.bytes.requests.request import request


class QueueOfTopic(NamedTuple):
    topic: Topic
    queue_id: I32


class QueueAtTime(NamedTuple):
    topic: Topic
    queue_id: I32
    timestamp: I64


class GroupQueue(NamedTuple):
    consumer_group: Group
    topic: Topic
    queue_id: I32


class OffsetCommit(NamedTuple):
    consumer_group: Group
    topic: Topic
    queue_id: I32
    commit_offset: I64


class OffsetAnswer(NamedTuple):
    offset: I64


class TimestampAnswer(NamedTuple):
    timestamp: I64


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


QUERY_CONSUMER_OFFSET: Final = request(14, GroupQueue, OffsetAnswer)
UPDATE_CONSUMER_OFFSET: Final = request(15, OffsetCommit)
SEARCH_OFFSET_BY_TIMESTAMP: Final = request(29, QueueAtTime, OffsetAnswer)
GET_MAX_OFFSET: Final = request(30, QueueOfTopic, OffsetAnswer)
GET_MIN_OFFSET: Final = request(31, QueueOfTopic, OffsetAnswer)
GET_EARLIEST_MSG_STORETIME: Final = request(32, QueueOfTopic, TimestampAnswer)
LOCK_BATCH_MQ: Final = request(41, body=LockRequest, answer_body=LockedQueues)
UNLOCK_BATCH_MQ: Final = request(42, body=LockRequest)
