"""Requests about clients: heartbeats, members and connections, and what the broker asks a client.

Java writes names and numbers of enumerations by name, C++ by number; both are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from rmqlite.kernel.words.limits import SUBSCRIPTIONS_MAX
from rmqlite.protocols.remoting.bytes.fields import (
    ENTRIES_MAX,
    GROUPS_MAX,
    I32,
    I64,
    LOCK_QUEUES_MAX,
    TAGS_MAX,
    ClientId,
    Count,
    Expression,
    Group,
    MessageId,
    Name,
    Topic,
    Wire,
)
from rmqlite.protocols.remoting.bytes.requests.groups import GroupAndTopic, OfGroup, QueueOffsets
from rmqlite.protocols.remoting.bytes.requests.request import CLIENT, RELAYED, Body, request

_ClientID = Annotated[ClientId, Wire("clientID")]


class UnregisterClient(NamedTuple):
    client_id: Annotated[ClientId, Wire("clientID")]
    producer_group: Group = ""
    consumer_group: Group = ""


class OfProducerGroup(NamedTuple):
    producer_group: Group


class ResetOffset(NamedTuple):
    """timestamp: in milliseconds; -1 is now."""

    topic: Topic
    group: Group
    timestamp: I64
    is_force: bool


class ConsumerStatusQuery(NamedTuple):
    """client_addr: if empty, all clients."""

    topic: Topic
    group: Group
    client_addr: ClientId = ""


class RunningInfoQuery(NamedTuple):
    consumer_group: Group
    client_id: ClientId
    jstack_enable: bool = False


class ConsumeDirectly(NamedTuple):
    """msg_id: an offset id.  The broker adds its name when it asks the client."""

    consumer_group: Group
    client_id: ClientId
    msg_id: MessageId
    broker_name: Name | None = None


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
class SubscriptionBody:
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


Subscriptions = Annotated[tuple[SubscriptionBody, ...], Count(SUBSCRIPTIONS_MAX)]


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
    subscription_data: SubscriptionBody
    namespace: Name | None = None


@dataclass(frozen=True, slots=True)
class ConsumerIds:
    """Answer to 38."""

    consumer_id_list: Annotated[tuple[ClientId, ...], Count(ENTRIES_MAX)] = ()


@dataclass(frozen=True, slots=True)
class ConnectionBody:
    client_id: ClientId
    client_addr: Name
    language: Name
    version: I32


@dataclass(frozen=True, slots=True)
class ProducerConnections:
    """Answer to 204."""

    connection_set: Annotated[tuple[ConnectionBody, ...], Count(ENTRIES_MAX)]


@dataclass(frozen=True, slots=True)
class ConsumerConnections:
    """Answer to 203; mqadmin fails if one of the three words, or a version, is missing."""

    connection_set: Annotated[tuple[ConnectionBody, ...], Count(ENTRIES_MAX)]
    subscription_table: dict[str, SubscriptionBody]
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere


@dataclass(frozen=True, slots=True)
class ProducerBody:
    """remote_ip: as Java shows an address, /ip:port."""

    client_id: ClientId
    remote_ip: Annotated[Name, Wire("remoteIP")]
    language: Name
    version: I32
    last_update_timestamp: I64


@dataclass(frozen=True, slots=True)
class ProducersBody:
    """Answer to 328, by producer group."""

    data: dict[str, Annotated[tuple[ProducerBody, ...], Count(ENTRIES_MAX)]]


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


HEART_BEAT: Final = request(34, body=Heartbeat)
UNREGISTER_CLIENT: Final = request(35, UnregisterClient)
GET_CONSUMER_LIST_BY_GROUP: Final = request(38, OfGroup, answer_body=ConsumerIds)
NOTIFY_CONSUMER_IDS_CHANGED: Final = request(40, OfGroup, asked=CLIENT)
CHECK_CLIENT_CONFIG: Final = request(46, body=ClientConfigCheck)
GET_CONSUMER_CONNECTION_LIST: Final = request(203, OfGroup, answer_body=ConsumerConnections)
GET_PRODUCER_CONNECTION_LIST: Final = request(204, OfProducerGroup, answer_body=ProducerConnections)
GET_ALL_PRODUCER_INFO: Final = request(328, answer_body=ProducersBody)
RESET_CONSUMER_CLIENT_OFFSET: Final = request(
    220, ResetOffset, asked=CLIENT, body=(OffsetTable, OffsetList)
)
GET_CONSUMER_STATUS_FROM_CLIENT: Final = request(
    221, GroupAndTopic, asked=CLIENT, answer_body=ClientOffsets
)
INVOKE_BROKER_TO_RESET_OFFSET: Final = request(222, ResetOffset, answer_body=OffsetTable)
INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Final = request(
    223, ConsumerStatusQuery, answer_body=ClientsOffsets
)
GET_CONSUMER_RUNNING_INFO: Final = request(
    307, RunningInfoQuery, asked=RELAYED, answer_body=Body.RELAYED
)
CONSUME_MESSAGE_DIRECTLY: Final = request(
    309, ConsumeDirectly, asked=RELAYED, body=Body.RECORD, answer_body=Body.RELAYED
)
