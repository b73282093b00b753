"""Pulls of one queue as a consumer makes them."""

from __future__ import annotations

from typing import Any

from rmqlite.kernel.requests.messages import PullRequest
from rmqlite.protocols.native.bytes.messages import PullResult
from tests.support.brokers import BrokerUnderTest, decoded
from tests.support.messages import TOPIC
from tests.support.steps import done


def pull(broker: BrokerUnderTest, queue_offset: int = 0, **more: Any) -> PullResult:
    """more: fields of the request other than those that are always the same."""
    values: dict[str, Any] = {"group": "readers", "topic": TOPIC, "queue_id": 0, **more}
    return decoded(done(broker.broker.pull(PullRequest(queue_offset=queue_offset, **values))))


def texts(result: PullResult) -> str:
    """The bodies of an answer, one behind the other."""
    return b"".join(message.body for message in result.messages).decode()
