"""Calls of both gRPC protocols whose answers are long, once a topic has bodies of this size."""

from __future__ import annotations

from typing import Any

from rmqlite.requests.log import LogReadRequest
from rmqlite.requests.messages import PullRequest
from rmqlite.wire import rpcs
from rmqlite.wire.rocketmq_v2 import rpcs as v2
from rmqlite.wire.rocketmq_v2.rpcs import service
from tests.support.rocketmq_v2_client import TOPIC, receive

BODY = bytes(300_000)


def pull_v2() -> bytes:
    asked = service.PullMessageRequest(offset=0, batch_size=32)
    asked.group.name, asked.message_queue.topic.name = "readers", TOPIC
    return asked.SerializeToString()


LONG: dict[str, tuple[Any, bytes]] = {
    "pull": (rpcs.PULL, rpcs.PULL.encode_request(PullRequest("readers", TOPIC, 0, 0))),
    "log": (rpcs.READ_LOG, rpcs.READ_LOG.encode_request(LogReadRequest(0))),
    "RocketMQ's pull": (v2.PULL_MESSAGE, pull_v2()),
    "receive": (v2.RECEIVE_MESSAGE, receive().SerializeToString()),
}
