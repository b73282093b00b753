"""What the tests of the protocol send again and again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.requests.clients import (
    HEART_BEAT,
    ConsumerData,
    Heartbeat,
    MessageModel,
    ProducerData,
    SubscriptionBody,
)
from rmqlite.protocols.remoting.bytes.requests.messages import PULL_MESSAGE, PullMessage
from rmqlite.protocols.remoting.bytes.requests.sends import SEND_MESSAGE_V2, SendMessage
from tests.support.remoting import LoopClient, Talk

TOPIC = "orders"
GROUP = "readers"


def send_of(
    talk: Talk, body: bytes = b"x", *, topic: str = TOPIC, queue_id: int = 0, **fields: Any
) -> Command:
    asked = SendMessage(topic, "senders", queue_id=queue_id, **fields)
    return talk.request(SEND_MESSAGE_V2, asked, body)


def pull_of(
    talk: Talk,
    *,
    topic: str = TOPIC,
    queue_id: int = 0,
    offset: int = 0,
    wait_ms: int = 0,
    count: int = 32,
    group: str = GROUP,
) -> Command:
    """Suspended if wait_ms says so; every tag."""
    flag = 4 | (2 if wait_ms else 0)
    asked = PullMessage(group, topic, queue_id, offset, count, flag, 0, wait_ms, 0, "*")
    return talk.request(PULL_MESSAGE, asked)


def heartbeat(
    client_id: str = "client-1",
    *,
    groups: Iterable[str] = (GROUP,),
    producers: Iterable[str] = (),
    topic: str = TOPIC,
    expression: str = "*",
    model: MessageModel = MessageModel.CLUSTERING,
) -> Heartbeat:
    return Heartbeat(
        client_id,
        tuple([ProducerData(name) for name in producers]),
        tuple(
            [
                ConsumerData(
                    group_name=name,
                    message_model=model,
                    subscription_data_set=(SubscriptionBody(topic, expression),),
                )
                for name in groups
            ]
        ),
    )


async def beat(client: LoopClient, *names: Any, **about: Any) -> Command:
    """Send a heartbeat; its answer."""
    return await client.ask(HEART_BEAT, None, heartbeat(*names, **about))
