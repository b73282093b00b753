"""Transactions: the id of one, its end, and the question to its producer.

An id names the half message by queue offset and physical offset, as an end on RocketMQ's other
protocol does.  The broker checks that such a half message is there and belongs to the topic.
"""

from __future__ import annotations

import re
from typing import Final

from rmqlite.features.transactions.requests import TransactionEnd, TransactionQuestion
from rmqlite.kernel.records.record import read_head
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.words.limits import INT64_MAX
from rmqlite.protocols.pb.rocketmq_v2 import definition_pb2 as definition
from rmqlite.protocols.pb.rocketmq_v2 import service_pb2 as service
from rmqlite.protocols.rocketmq_v2.bytes import rules
from rmqlite.protocols.rocketmq_v2.bytes.codes import OK, Code, broken
from rmqlite.protocols.rocketmq_v2.bytes.messages import write_message

_ID: Final = re.compile("([0-9A-F]{1,16})-([0-9A-F]{1,16})")


def transaction_id(queue_offset: int, physical_offset: int) -> str:
    """The id of the transaction of a half message."""
    return f"{queue_offset:X}-{physical_offset:X}"


def offsets_of(text: str) -> tuple[int, int]:
    """The inverse of transaction_id().  Raises Refusal."""
    found = _ID.fullmatch(text)
    offsets = (int(found[1], 16), int(found[2], 16)) if found else (-1, -1)
    if not 0 <= min(offsets) <= max(offsets) <= INT64_MAX:
        rule = "the id that the answer to the send has, unchanged"
        raise broken(Code.INVALID_TRANSACTION_ID, "transaction_id", text, rule)
    return offsets


def end_of(request: service.EndTransactionRequest) -> TransactionEnd | None:
    """What a producer asks for; None if it does not know yet how the transaction ends.

    Raises Refusal.
    """
    topic = rules.topic_of(request.topic)
    queue_offset, physical_offset = offsets_of(request.transaction_id)
    if request.resolution == definition.TRANSACTION_RESOLUTION_UNSPECIFIED:
        return None
    if request.resolution not in (definition.COMMIT, definition.ROLLBACK):
        raise broken(Code.BAD_REQUEST, "resolution", request.resolution, "COMMIT or ROLLBACK")
    is_commit = request.resolution == definition.COMMIT
    return TransactionEnd(topic, queue_offset, physical_offset, is_commit)


def recover_command(question: TransactionQuestion) -> service.TelemetryCommand:
    """The command that asks a producer how the transaction of a half message ends."""
    head = read_head(question.record)
    assert head is not None
    command = service.TelemetryCommand(status=OK)
    asked = command.recover_orphaned_transaction_command
    asked.transaction_id = transaction_id(question.queue_offset, question.physical_offset)
    write_message(asked.message, Record(head, question.record), head.topic)
    return command
