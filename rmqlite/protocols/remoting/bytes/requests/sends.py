"""Requests that store messages, and what answers them: sends, recalls of timers, replies.

The body of a batch is batch.py's.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from rmqlite.kernel.words.names import AUTO_CREATE_TOPIC
from rmqlite.protocols.remoting.bytes.fields import (
    I32,
    I64,
    Group,
    Handle,
    MessageId,
    Properties,
    Topic,
    Wire,
)
from rmqlite.protocols.remoting.bytes.requests.request import CLIENT, Body, request

REGION: Final = "DefaultRegion"
REFUSED_RECALL_EXT: Final = {"MSG_REGION": REGION}
REFUSED_SEND_EXT: Final = {**REFUSED_RECALL_EXT, "TRACE_ON": "true"}
"""The ext fields of an answer to a send that is not stored."""


class SendMessage(NamedTuple):
    """Only the topic must be there.  is_batch, not the code, says whether the body is a batch.

    queue_id: if negative, the broker chooses.  max_reconsume_times: of a message that a consumer
    sends to its retry topic.
    """

    topic: Topic
    producer_group: Group = ""
    default_topic: Topic = AUTO_CREATE_TOPIC
    default_topic_queue_nums: I32 = 4
    queue_id: I32 = -1
    sys_flag: I32 = 0
    born_timestamp: I64 = 0
    flag: I32 = 0
    properties: Properties = ""
    reconsume_times: I32 = 0
    unit_mode: bool = False
    max_reconsume_times: I32 | None = None
    is_batch: Annotated[bool, Wire("batch")] = False


class SendAnswerFields(NamedTuple):
    """Of a message that is stored: a client that misses one of the first three fails, or dies.

    frame.encode_sent() writes it in less time.  recall_handle: of a timer.
    """

    msg_id: str
    queue_id: I32
    queue_offset: I64
    transaction_id: MessageId | None = None
    region: Annotated[str, Wire("MSG_REGION")] = REGION
    is_traced: Annotated[bool, Wire("TRACE_ON")] = True
    recall_handle: Handle | None = None


class Recall(NamedTuple):
    """recall_handle: of the answer to the send."""

    topic: Topic
    recall_handle: Handle = ""
    producer_group: Group = ""


class RecallAnswer(NamedTuple):
    """msg_id: the producer's (UNIQ_KEY)."""

    msg_id: MessageId
    region: Annotated[str, Wire("MSG_REGION")] = REGION


class PushReply(NamedTuple):
    """A reply on its way to the client that asked.  born_host, store_host: ip:port."""

    producer_group: Group
    topic: Topic
    default_topic: Topic
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    properties: Properties
    reconsume_times: I32
    unit_mode: bool
    born_host: str
    store_host: str
    store_timestamp: I64


SHORT_NAMES: Final = {
    "producer_group": "a",
    "topic": "b",
    "default_topic": "c",
    "default_topic_queue_nums": "d",
    "queue_id": "e",
    "sys_flag": "f",
    "born_timestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsume_times": "j",
    "unit_mode": "k",
    "max_reconsume_times": "l",
    "is_batch": "m",
}
BROKER_NAME_SHORT: Final = "n"
"""The short name of the extra field bname."""

SEND_MESSAGE: Final = request(10, SendMessage, SendAnswerFields, body=Body.MESSAGE)
SEND_MESSAGE_V2: Final = request(
    310, SendMessage, SendAnswerFields, wires=SHORT_NAMES, body=Body.MESSAGE
)
SEND_BATCH_MESSAGE: Final = request(
    320, SendMessage, SendAnswerFields, wires=SHORT_NAMES, body=Body.MESSAGE
)
SEND_REPLY_MESSAGE: Final = request(324, SendMessage, SendAnswerFields, body=Body.MESSAGE)
SEND_REPLY_MESSAGE_V2: Final = request(
    325, SendMessage, SendAnswerFields, wires=SHORT_NAMES, body=Body.MESSAGE
)
PUSH_REPLY_MESSAGE_TO_CLIENT: Final = request(326, PushReply, asked=CLIENT, body=Body.MESSAGE)
RECALL_MESSAGE: Final = request(370, Recall, RecallAnswer)
