"""Requests about messages that are stored: pulled, failed, found; and the ends of transactions."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from rmqlite.protocols.remoting.bytes.fields import (
    I32,
    I64,
    Expression,
    Group,
    Key,
    MessageId,
    Name,
    Topic,
    Wire,
)
from rmqlite.protocols.remoting.bytes.requests.request import CLIENT, Body, request


class PullMessage(NamedTuple):
    """sys_flag: 1 commit_offset counts, 2 the broker may wait, 4 subscription counts, 16 lite.

    max_msg_nums: 0, from Go, means 1.
    """

    consumer_group: Group
    topic: Topic
    queue_id: I32
    queue_offset: I64
    max_msg_nums: I32
    sys_flag: I32
    commit_offset: I64
    suspend_timeout_millis: I64
    sub_version: I64
    subscription: Expression = ""
    expression_type: Name = "TAG"


class PullAnswer(NamedTuple):
    """Of codes 0, 19, 20 and 21; other codes have no fields."""

    next_begin_offset: I64
    min_offset: I64
    max_offset: I64
    suggest_which_broker_id: I64 = 0


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


class QueryMessage(NamedTuple):
    topic: Topic
    key: Key
    max_num: I32
    begin_timestamp: I64
    end_timestamp: I64
    is_unique_key: Annotated[bool, Wire("_UNIQUE_KEY_QUERY")] = False


class QueryAnswer(NamedTuple):
    index_last_update_timestamp: I64
    index_last_update_phyoffset: I64


class PhysicalOffset(NamedTuple):
    offset: I64


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


PULL_MESSAGE: Final = request(11, PullMessage, PullAnswer, answer_body=Body.RECORDS)
LITE_PULL_MESSAGE: Final = request(361, PullMessage, PullAnswer, answer_body=Body.RECORDS)
"""The same, of the lite pull consumer from RocketMQ 5 on."""
CONSUMER_SEND_MSG_BACK: Final = request(36, SendBack)
QUERY_MESSAGE: Final = request(12, QueryMessage, QueryAnswer, answer_body=Body.RECORDS)
VIEW_MESSAGE_BY_ID: Final = request(33, PhysicalOffset, answer_body=Body.RECORD)
END_TRANSACTION: Final = request(37, EndTransaction)
CHECK_TRANSACTION_STATE: Final = request(39, CheckTransaction, asked=CLIENT, body=Body.RECORD)
