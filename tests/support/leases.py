"""A broker whose messages are received one by one."""

from __future__ import annotations

from typing import Any

from rmqlite.features.leases.leases import Leases
from rmqlite.features.leases.requests import (
    AckRequest,
    FailRequest,
    Handle,
    InvisibleChange,
    ReceiveRequest,
)
from rmqlite.features.leases.taking import Delivery, Received
from rmqlite.kernel.words.errors import HandleInvalid
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import GROUP, TOPIC
from tests.support.steps import done

CLIENT = "client-1"
INVISIBLE_MS = 10_000


class Consumer:
    """A client of one broker; it asks for all messages that there are."""

    def __init__(
        self,
        broker: BrokerUnderTest,
        *,
        group: str = GROUP,
        topic: str = TOPIC,
        client_id: str = CLIENT,
        **usual: Any,
    ) -> None:
        self.broker = broker
        self.group = group
        self.topic = topic
        self.client_id = client_id
        self.usual = {"invisible_ms": INVISIBLE_MS, **usual}

    def receive(self, most: int = 32, **changes: Any) -> Received:
        request = ReceiveRequest(
            self.group, self.topic, self.client_id, max_messages=most, **self.usual | changes
        )
        return done(self.broker.broker[Leases].receive(request))

    def bodies(self, most: int = 32, **changes: Any) -> list[str]:
        return [body(each) for each in self.receive(most, **changes).messages]

    def ack(self, *deliveries: Delivery) -> tuple[bool, ...]:
        handles = tuple([each.handle for each in deliveries])
        answer = self.broker.broker[Leases].ack(AckRequest(self.group, self.topic, handles))
        self.broker.sync()
        return answer

    def hold(self, handle: Handle, invisible_ms: int, *, counts: bool = True) -> Handle:
        change = InvisibleChange(self.group, self.topic, handle, invisible_ms, counts=counts)
        changed = self.broker.broker[Leases].change(change)
        self.broker.sync()
        return changed

    def bury(self, handle: Handle, reason: str = "") -> None:
        failed = FailRequest(self.group, self.topic, handle, reason, is_dead=True)
        self.broker.broker[Leases].fail(failed)
        self.broker.sync()

    def is_valid(self, handle: Handle) -> bool:
        try:
            self.broker.broker[Leases]._found(self.group, self.topic, handle)
        except HandleInvalid:
            return False
        return True


def body(delivery: Delivery) -> str:
    return delivery.record.body.decode()


def expire(broker: BrokerUnderTest) -> int | None:
    """End the leases that are due; when the next one is."""
    while True:
        due_ms = broker.broker[Leases].ending.expire()
        broker.sync()
        if due_ms is None or due_ms > broker.clock.now_ms():
            return due_ms
