"""Transactions of RocketMQ 5, begun and ended at a real broker by two calls."""

from __future__ import annotations

from typing import Any

import grpc

from rmqlite.kernel.words.errors import Refused
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import (
    END_TRANSACTION,
    SEND_MESSAGE,
    definition,
    service,
)
from rmqlite.protocols.rocketmq_v2.calls import CLIENT_ID, CLIENT_VERSION
from tests.support.rocketmq_v2_client import VERSION, half, named


def begun(endpoint: str, topic: str, body: bytes) -> service.SendResultEntry:
    """A half message.  Raises Refused and grpc.RpcError."""
    request = service.SendMessageRequest(messages=[half(body.decode(), topic=topic)])
    answer = _asked(endpoint, SEND_MESSAGE, request)
    (entry,) = service.SendMessageResponse.FromString(answer).entries
    if int(entry.status.code) != Code.OK:
        raise Refused("no half message", rule="OK")
    return entry


def ended(endpoint: str, topic: str, entry: service.SendResultEntry, *, is_kept: bool) -> bool:
    """Commit it, or roll it back; has the broker done so?  Raises grpc.RpcError."""
    end = service.EndTransactionRequest(
        topic=named(topic),
        message_id=entry.message_id,
        transaction_id=entry.transaction_id,
        resolution=definition.COMMIT if is_kept else definition.ROLLBACK,
    )
    answer = service.EndTransactionResponse.FromString(_asked(endpoint, END_TRANSACTION, end))
    return int(answer.status.code) == Code.OK


def _asked(endpoint: str, rpc: Any, request: Any) -> bytes:
    with grpc.insecure_channel(endpoint) as channel:
        call: Any = channel.unary_unary(rpc.path)
        own = ((CLIENT_ID, "transactions"), (CLIENT_VERSION, VERSION))
        data: bytes = call(request.SerializeToString(), metadata=own, timeout=5)
        return data
