"""Bodies that clients send and that tell of clients: heartbeats, members, connections.

Java writes names and numbers of enumerations by name, C++ by number; both are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from rmqlite.limits import SUBSCRIPTIONS_MAX
from rmqlite.wire.remoting.bodies.queues import MessageQueue, QueueEntry
from rmqlite.wire.remoting.limits import ENTRIES_MAX, GROUPS_MAX, JSON_BYTES_MAX, TAGS_MAX
from rmqlite.wire.remoting.names import (
    I32,
    I64,
    Bytes,
    ClientId,
    Count,
    Expression,
    Group,
    Name,
    Topic,
    Value,
    Wire,
)

_ClientID = Annotated[ClientId, Wire("clientID")]


class ConsumeType(StrEnum):
    """In the order of the numbers that C++ sends, from 0 on; so are the next two."""

    ACTIVELY = "CONSUME_ACTIVELY"
    PASSIVELY = "CONSUME_PASSIVELY"


class MessageModel(StrEnum):
    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    LAST_OFFSET_AND_MIN_AT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True, slots=True)
class Subscription:
    """code_set: hashes of the tags.  Never filter by those of a client: C++ sends [0,0].

    sub_version: milliseconds, from Go nanoseconds; compare it with the same client's only.
    """

    topic: Topic
    sub_string: Expression = "*"
    tags_set: Annotated[tuple[Expression, ...], Count(TAGS_MAX)] = ()
    code_set: Annotated[tuple[I64, ...], Count(TAGS_MAX)] = ()
    sub_version: I64 = 0
    expression_type: Name = "TAG"
    class_filter_mode: bool = False


Subscriptions = Annotated[tuple[Subscription, ...], Count(SUBSCRIPTIONS_MAX)]


@dataclass(frozen=True, slots=True)
class ProducerData:
    group_name: Group


@dataclass(frozen=True, slots=True)
class ConsumerData:
    group_name: Group
    consume_type: ConsumeType = ConsumeType.PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET
    subscription_data_set: Subscriptions = ()
    unit_mode: bool = False


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Body of 34.  RocketMQ accepts {} as a heartbeat of nobody."""

    client_id: _ClientID = ""
    producer_data_set: Annotated[tuple[ProducerData, ...], Count(GROUPS_MAX)] = ()
    consumer_data_set: Annotated[tuple[ConsumerData, ...], Count(GROUPS_MAX)] = ()


@dataclass(frozen=True, slots=True)
class ClientConfigCheck:
    """Body of 46."""

    client_id: ClientId
    group: Group
    subscription_data: Subscription
    namespace: Name | None = None


@dataclass(frozen=True, slots=True)
class ConsumerIds:
    """Answer to 38."""

    consumer_id_list: Annotated[tuple[ClientId, ...], Count(ENTRIES_MAX)] = ()


@dataclass(frozen=True, slots=True)
class Connection:
    client_id: ClientId
    client_addr: Name
    language: Name
    version: I32


@dataclass(frozen=True, slots=True)
class ProducerConnections:
    """Answer to 204."""

    connection_set: Annotated[tuple[Connection, ...], Count(ENTRIES_MAX)]


@dataclass(frozen=True, slots=True)
class ConsumerConnections:
    """Answer to 203; mqadmin fails if one of the three words, or a version, is missing."""

    connection_set: Annotated[tuple[Connection, ...], Count(ENTRIES_MAX)]
    subscription_table: dict[str, Subscription]
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere


@dataclass(frozen=True, slots=True)
class Producer:
    """remote_ip: as Java shows an address, /ip:port."""

    client_id: ClientId
    remote_ip: Annotated[Name, Wire("remoteIP")]
    language: Name
    version: I32
    last_update_timestamp: I64


@dataclass(frozen=True, slots=True)
class Producers:
    """Answer to 328, by producer group."""

    data: dict[str, Annotated[tuple[Producer, ...], Count(ENTRIES_MAX)]]


@dataclass(frozen=True, slots=True)
class QueueView:
    """Answer to 321.  filter_data: "null" if there is a group and no filter."""

    queue_data: Annotated[tuple[QueueEntry, ...], Count(ENTRIES_MAX)]
    min_queue_index: I64
    max_queue_index: I64
    subscription_data: Subscription | None = None
    filter_data: str | None = None


@dataclass(frozen=True, slots=True)
class ProcessQueue:
    """What a client keeps of one queue; "droped" is RocketMQ's spelling."""

    commit_offset: I64 = 0
    cached_msg_min_offset: I64 = 0
    cached_msg_max_offset: I64 = 0
    cached_msg_count: I32 = 0
    cached_msg_size_in_mib: Annotated[I32, Wire("cachedMsgSizeInMiB")] = 0
    transaction_msg_min_offset: I64 = 0
    transaction_msg_max_offset: I64 = 0
    transaction_msg_count: I32 = 0
    locked: bool = False
    try_unlock_times: I64 = 0
    last_lock_timestamp: I64 = 0
    droped: bool = False
    last_pull_timestamp: I64 = 0
    last_consume_timestamp: I64 = 0


@dataclass(frozen=True, slots=True)
class ConsumeStatus:
    pull_rt: Annotated[float, Wire("pullRT")] = 0.0
    pull_tps: Annotated[float, Wire("pullTPS")] = 0.0
    consume_rt: Annotated[float, Wire("consumeRT")] = 0.0
    consume_ok_tps: Annotated[float, Wire("consumeOKTPS")] = 0.0
    consume_failed_tps: Annotated[float, Wire("consumeFailedTPS")] = 0.0
    consume_failed_msgs: I64 = 0


@dataclass(frozen=True, slots=True)
class RunningInfo:
    """A client's answer to 307.  Relay its bytes: what another client adds is lost here."""

    properties: dict[str, Value]
    subscription_set: tuple[Subscription, ...] = ()
    mq_table: dict[MessageQueue, ProcessQueue] | None = None
    status_table: dict[str, ConsumeStatus] | None = None
    jstack: Annotated[str, Bytes(JSON_BYTES_MAX)] | None = None


@dataclass(frozen=True, slots=True)
class DirectResult:
    """A client's answer to 309.  Relay its bytes."""

    consume_result: Name
    order: bool = False
    auto_commit: bool = True
    remark: Value | None = None
    spent_time_mills: I64 = 0
