"""Calls of both gRPC protocols whose answers are long, once a topic has bodies of this size."""

from __future__ import annotations

from typing import Any

from rmqlite.features.raw_log.requests import READ_LOG, LogReadRequest
from rmqlite.kernel.requests.messages import PullRequest
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.rocketmq_v2.bytes import rpcs as v2
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import service
from tests.support.rocketmq_v2_client import TOPIC, receive

BODY = bytes(300_000)


def pull_v2() -> bytes:
    asked = service.PullMessageRequest(offset=0, batch_size=32)
    asked.group.name, asked.message_queue.topic.name = "readers", TOPIC
    return asked.SerializeToString()


LONG: dict[str, tuple[Any, bytes]] = {
    "pull": (rpcs.PULL, rpc_of(rpcs.PULL).encode_request(PullRequest("readers", TOPIC, 0, 0))),
    "log": (READ_LOG, rpc_of(READ_LOG).encode_request(LogReadRequest(0))),
    "RocketMQ's pull": (v2.PULL_MESSAGE, pull_v2()),
    "receive": (v2.RECEIVE_MESSAGE, receive().SerializeToString()),
}
