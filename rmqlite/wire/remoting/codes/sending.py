"""Requests that store messages: sends, recalls, replies, failed messages, ends of transactions."""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple

from rmqlite.names import AUTO_CREATE_TOPIC
from rmqlite.wire.remoting.codes.request import Body, Party, Request, request
from rmqlite.wire.remoting.fields import Nothing
from rmqlite.wire.remoting.names import (
    I32,
    I64,
    Group,
    Handle,
    MessageId,
    Properties,
    Topic,
    Wire,
)

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


class SendAnswer(NamedTuple):
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


class SendBack(NamedTuple):
    """A consumer failed a message.  C++ sends only the first three.

    offset: physical.  delay_level: 0 means the next level, below 0 the dead letters.
    """

    offset: I64
    group: Group
    delay_level: I32
    origin_msg_id: MessageId = ""
    origin_topic: Topic = ""
    unit_mode: bool = False
    max_reconsume_times: I32 | None = None


class EndTransaction(NamedTuple):
    """tran_state_table_offset: queue offset of the half message; commit_log_offset: its physical
    offset.  commit_or_rollback: 8 commit, 12 roll back, 0 not known."""

    producer_group: Group
    tran_state_table_offset: I64
    commit_log_offset: I64
    commit_or_rollback: I32
    msg_id: MessageId = ""
    transaction_id: MessageId = ""
    from_transaction_check: bool = False


class CheckTransaction(NamedTuple):
    """Asks a producer how a transaction ended; the answer is an EndTransaction."""

    tran_state_table_offset: I64
    commit_log_offset: I64
    msg_id: MessageId | None = None
    transaction_id: MessageId | None = None
    offset_msg_id: MessageId | None = None


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


SEND_MESSAGE: Final = request(10, "SEND_MESSAGE", SendMessage, SendAnswer, body=Body.MESSAGE)
SEND_MESSAGE_V2: Final = request(
    310, "SEND_MESSAGE_V2", SendMessage, SendAnswer, wires=SHORT_NAMES, body=Body.MESSAGE
)
SEND_BATCH_MESSAGE: Final = request(
    320, "SEND_BATCH_MESSAGE", SendMessage, SendAnswer, wires=SHORT_NAMES, body=Body.MESSAGE
)
SEND_REPLY_MESSAGE: Final = request(
    324, "SEND_REPLY_MESSAGE", SendMessage, SendAnswer, body=Body.MESSAGE
)
SEND_REPLY_MESSAGE_V2: Final = request(
    325, "SEND_REPLY_MESSAGE_V2", SendMessage, SendAnswer, wires=SHORT_NAMES, body=Body.MESSAGE
)
RECALL_MESSAGE: Final = request(370, "RECALL_MESSAGE", Recall, RecallAnswer)
CONSUMER_SEND_MSG_BACK: Final = request(36, "CONSUMER_SEND_MSG_BACK", SendBack, Nothing)
END_TRANSACTION: Final = request(37, "END_TRANSACTION", EndTransaction, Nothing)
CHECK_TRANSACTION_STATE: Final = request(
    39,
    "CHECK_TRANSACTION_STATE",
    CheckTransaction,
    Nothing,
    asked=(Party.CLIENT,),
    body=Body.RECORD,
)
PUSH_REPLY_MESSAGE_TO_CLIENT: Final = request(
    326,
    "PUSH_REPLY_MESSAGE_TO_CLIENT",
    PushReply,
    Nothing,
    asked=(Party.CLIENT,),
    body=Body.MESSAGE,
)
ROWS: Final[tuple[Request[Any, Any], ...]] = (
    SEND_MESSAGE,
    SEND_MESSAGE_V2,
    SEND_BATCH_MESSAGE,
    SEND_REPLY_MESSAGE,
    SEND_REPLY_MESSAGE_V2,
    RECALL_MESSAGE,
    CONSUMER_SEND_MSG_BACK,
    END_TRANSACTION,
    CHECK_TRANSACTION_STATE,
    PUSH_REPLY_MESSAGE_TO_CLIENT,
)
