"""The largest request of each code of the remoting protocol, for a broker near its limits.

Each is made for one of a number of requests that come together: alone it is as large as it may be,
and 100 of them share one read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from rmqlite.features.changes.requests import RecallHandle
from rmqlite.kernel.words import limits
from rmqlite.kernel.words.message import offset_message_id
from rmqlite.protocols.remoting.bytes.batch import BatchItem, write_batch
from rmqlite.protocols.remoting.bytes.fields import (
    BATCH_ACKS_MAX,
    GROUPS_MAX,
    LOCK_QUEUES_MAX,
    SETTINGS_MAX,
)
from rmqlite.protocols.remoting.bytes.registration import (
    TOPICS_MAX,
    RegisteredTopic,
    Registration,
    compressed,
    encode_packed,
    encode_plain,
)
from rmqlite.protocols.remoting.bytes.requests.groups import TableVersionBody
from rmqlite.protocols.remoting.bytes.requests.sends import (
    SEND_MESSAGE,
    SEND_MESSAGE_V2,
    SendMessage,
)
from rmqlite.protocols.remoting.bytes.shapes import write_body
from tests.support.brokers import BrokerUnderTest
from tests.support.largest_calls import GROUP, KEY, READERS, TOPIC, WIDE
from tests.support.steps import done

Ext = dict[str, Any]
BROKER: Final = "broker-a"


@dataclass(frozen=True)
class At:
    """One of count requests; serial: no other one has the same."""

    broker: BrokerUnderTest
    serial: int
    count: int

    @property
    def name(self) -> str:
        return f"name-{self.serial:07}"

    @property
    def existing(self) -> str:
        """One of the topics that filled() made."""
        return f"topic-{self.serial % 5_000:05}"

    def share(self, most: int) -> int:
        return max(1, most // self.count)


def heartbeat(at: At) -> tuple[Ext, bytes]:
    """New groups, and a subscription of each."""
    groups = at.share(GROUPS_MAX - 400)
    subscription = {"topic": TOPIC, "subString": "*", "tagsSet": [], "codeSet": []}
    consumers = [
        {"groupName": f"{at.name}-{number}", "subscriptionDataSet": [subscription]}
        for number in range(groups)
    ]
    producers = [{"groupName": f"{at.name}-{number}"} for number in range(groups)]
    body = {
        "clientID": at.name,
        "consumerDataSet": consumers,
        "producerDataSet": producers,
    }
    return {}, json.dumps(body).encode()


def queues(at: At) -> tuple[Ext, bytes]:
    rows = [
        {"brokerName": BROKER, "topic": f"topic-{number // 4:05}", "queueId": number % 4}
        for number in range(at.share(LOCK_QUEUES_MAX))
    ]
    body = {"consumerGroup": GROUP, "clientId": at.name, "mqSet": rows}
    return {}, json.dumps(body).encode()


def client_check(at: At) -> tuple[Ext, bytes]:
    sql = " OR ".join([f"a{at.serial}=1"] * (at.share(limits.SQL_BYTES_MAX) // 16 or 1))
    data = {"topic": TOPIC, "subString": sql, "expressionType": "SQL92"}
    body = {"clientId": at.name, "group": GROUP, "subscriptionData": data}
    return {}, json.dumps(body).encode()


def group_settings(at: At) -> tuple[Ext, bytes]:
    return {}, json.dumps({"groupName": at.name, "retryQueueNums": 1_000}).encode()


def settings(at: At) -> tuple[Ext, bytes]:
    lines = [b"orderMessageEnable=" + (b"true", b"false")[at.serial % 2]]
    return {}, b"\n".join(lines * at.share(SETTINGS_MAX))


def levels(at: At) -> tuple[Ext, bytes]:
    delays = " ".join([f"{number + 1 + at.serial % 2}s" for number in range(18)])
    return {}, f"messageDelayLevel={delays}".encode()


def sent(topic: str, **more: Any) -> Ext:
    return dict(SEND_MESSAGE.fields.write(SendMessage(topic, "senders", queue_id=0, **more)))


def registrant(at: At) -> Ext:
    return {
        "brokerName": at.name,
        "brokerAddr": f"{at.name}:10911",
        "clusterName": "C",
        "brokerId": 0,
        "haServerAddr": f"{at.name}:10912",
    }


def registration(at: At) -> tuple[Ext, bytes]:
    """With a table in one of its two forms."""
    name = f"topic-{'x' * 80}-{at.name}"
    names = [f"{name}-{number}" for number in range(at.share(TOPICS_MAX))]
    table = Registration(TableVersionBody(1, 1), dict.fromkeys(names, RegisteredTopic(4, 4, 6)))
    if at.serial % 2:
        return registrant(at), done(encode_plain(table))
    return registrant(at) | {"compressed": "true"}, compressed(done(encode_packed(table)))


def version(at: At) -> tuple[Ext, bytes]:
    return registrant(at), write_body(TableVersionBody(1, 1))


def message(at: At) -> tuple[Ext, bytes]:
    """To a new topic if many come together."""
    return sent(TOPIC if at.count == 1 else at.name), bytes(
        at.share(at.broker.config.max_message_bytes) // 4
    )


def batch(at: At) -> tuple[Ext, bytes]:
    config = at.broker.config
    size = config.max_message_bytes // config.send_messages_max // 2
    items = [
        BatchItem(0, bytes(size // at.count + 1), b"")
        for _ in range(at.share(config.send_messages_max))
    ]
    return sent(TOPIC, is_batch=True), write_batch(items)


def v2(make: Callable[[At], tuple[Ext, bytes]]) -> Callable[[At], tuple[Ext, bytes]]:
    """The same with the short names of 310, 320 and 325."""

    def made(at: At) -> tuple[Ext, bytes]:
        ext, body = make(at)
        return dict(SEND_MESSAGE_V2.fields.write(SEND_MESSAGE.fields.read(ext))), body

    return made


def assignment(at: At) -> tuple[Ext, bytes]:
    body = {"topic": WIDE, "consumerGroup": GROUP, "clientId": f"member-{at.serial:05}"}
    return {}, json.dumps(body).encode()


def request_mode(at: At) -> tuple[Ext, bytes]:
    body = {"topic": at.name, "consumerGroup": READERS, "mode": "PULL"}
    return {}, json.dumps(body).encode()


def batch_ack(at: At) -> tuple[Ext, bytes]:
    """Four messages in each entry."""
    entry = {"c": READERS, "t": TOPIC, "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1}
    body = {"acks": [entry | {"b": "Dw=="}] * at.share(BATCH_ACKS_MAX)}
    return {}, json.dumps(body).encode()


def only(**ext: Any) -> Callable[[At], tuple[Ext, bytes]]:
    return lambda at: (
        {name: each(at) if callable(each) else each for name, each in ext.items()},
        b"",
    )


def name(at: At) -> str:
    return at.name


def offset_id(_: At) -> str:
    return offset_message_id("127.0.0.1:10911", 0)


NEW_TOPIC: Final = {
    "topic": name,
    "defaultTopic": "TBW102",
    "readQueueNums": 8,
    "writeQueueNums": 8,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": "false",
}
PULL: Final = {
    "consumerGroup": READERS,
    "topic": TOPIC,
    "queueId": 0,
    "queueOffset": 0,
    "maxMsgNums": 1_024,
    "sysFlag": 5,
    "commitOffset": 0,
    "suspendTimeoutMillis": 0,
    "subVersion": 0,
    "subscription": "a || b",
}
POP: Final = {
    "consumerGroup": READERS,
    "topic": TOPIC,
    "queueId": -1,
    "maxMsgNums": 32,
    "invisibleTime": 60_000,
    "pollTime": 0,
    "exp": "a || b",
}
LEASED: Final = {
    "consumerGroup": READERS,
    "topic": TOPIC,
    "queueId": 0,
    "offset": 0,
    "extraInfo": "0 1795575231162 60000 0 0 broker-a 0 0",
}
FIND: Final = {
    "topic": TOPIC,
    "key": KEY,
    "maxNum": 1_000,
    "beginTimestamp": 0,
    "endTimestamp": 2**62,
}
QUEUE: Final = {"topic": WIDE, "queueId": 0}
READER: Final = {"consumerGroup": READERS, **QUEUE}
REQUESTS: Final[dict[int, Callable[[At], tuple[Ext, bytes]]]] = {
    10: message,
    11: only(**PULL),
    12: only(**FIND),
    14: only(**READER),
    15: only(**READER | {"consumerGroup": name, "commitOffset": 0}),
    17: only(**NEW_TOPIC),
    21: only(),
    25: levels,
    26: only(),
    28: only(),
    29: only(**QUEUE | {"topic": TOPIC, "timestamp": 1}),
    30: only(**QUEUE),
    31: only(**QUEUE),
    32: only(**QUEUE | {"topic": TOPIC}),
    33: only(offset=0),
    34: heartbeat,
    35: only(clientID=lambda at: f"member-{at.serial:05}", consumerGroup=GROUP),
    36: only(offset=0, group=name, delayLevel=0),
    37: only(
        producerGroup="p",
        tranStateTableOffset=0,
        commitLogOffset=0,
        commitOrRollback=8,
        msgId=offset_id,
    ),
    38: only(consumerGroup=GROUP),
    41: queues,
    42: queues,
    43: only(),
    45: only(),
    46: client_check,
    60: only(),
    61: only(),
    100: only(namespace="n", key=name, value=lambda at: "v" * at.share(60_000)),
    101: only(namespace="n", key=name),
    102: only(namespace="n", key=name),
    103: registration,
    104: lambda at: (registrant(at), b""),
    105: only(topic=WIDE),
    106: only(),
    200: group_settings,
    201: only(),
    202: only(topic=WIDE),
    203: only(consumerGroup=GROUP),
    204: only(producerGroup="p"),
    205: only(brokerName=BROKER),
    206: only(),
    207: only(groupName=lambda at: f"group-{at.serial % 5_000:05}", removeOffset="true"),
    208: only(consumerGroup=READERS),
    215: only(topic=lambda at: f"used-{at.serial % 640:05}"),
    216: only(topic=name),
    219: only(namespace="n"),
    222: only(topic=WIDE, group=READERS, timestamp=-1, isForce="true"),
    223: only(topic=WIDE, group=READERS),
    224: only(cluster="DefaultCluster"),
    300: only(topic=WIDE),
    303: only(topic=WIDE, group=READERS),
    304: only(),
    305: only(),
    306: only(),
    307: only(consumerGroup=GROUP, clientId="member-00001"),
    309: only(consumerGroup=GROUP, clientId="member-00001", msgId=offset_id),
    310: v2(message),
    314: only(srcGroup=READERS, destGroup=name),
    315: only(statsName="TOPIC_PUT_NUMS", statsKey=TOPIC),
    316: only(),
    317: only(isOrder="false"),
    318: settings,
    319: only(),
    320: v2(batch),
    321: only(topic=TOPIC, queueId=0, index=0, count=100_000, consumerGroup=GROUP),
    322: version,
    324: message,
    325: v2(message),
    327: only(brokerName=BROKER),
    328: only(),
    329: only(),
    351: only(topic=WIDE),
    352: only(group=READERS),
    361: only(**PULL),
    370: only(topic=TOPIC, recallHandle=RecallHandle(TOPIC, BROKER, 0, KEY).text()),
    400: assignment,
    401: request_mode,
    402: only(),
    200050: only(**POP),
    200051: only(**LEASED),
    200052: only(**POP),
    200053: only(**LEASED | {"invisibleTime": 60_000}),
    200054: only(**POP),
    200055: only(**POP),
    200151: batch_ack,
}
