"""One table of how each protocol fails a message, and when it then comes again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from rmqlite.features.exact_retries.exact_waits import exact_ms
from rmqlite.features.rows import Row
from rmqlite.features.simple_consumer.requests import (
    RECEIVE,
    SETTLE,
    Outcome,
    Settlement,
    SettleRequest,
    SubscribedReceive,
)
from rmqlite.kernel.requests.groups import GroupChange, Subscription
from rmqlite.kernel.requests.messages import PullRequest, SendBackRequest
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.words.names import dlq_topic, retry_topic
from rmqlite.kernel.words.retry_policy import RetryPolicy
from rmqlite.protocols.grpc.calls import everybody
from rmqlite.protocols.grpc.in_flight import InFlight
from rmqlite.protocols.native.bytes import rpcs as native_rpcs
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.native.table import handlers_of, methods_of
from rmqlite.protocols.remoting.bytes.requests.messages import CONSUMER_SEND_MSG_BACK, SendBack
from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import definition, service
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import ask
from tests.support.pending import waiting
from tests.support.remoting import LoopClient, ProtocolUnderTest, served_protocol
from tests.support.rocketmq_v2_client import (
    GROUP,
    TOPIC,
    V2,
    change,
    consumer_settings,
    message,
    message_id,
    named,
)

TEXT: Final = "exponential(90s, 3, 1h, jitter=20%)"
POLICY: Final = exact_ms(RetryPolicy.parse(TEXT), 0, message_id("a")) or 0
ASKED: Final = 61_001
AT_ONCE: Final = 0
DEAD: Final = -1


class Clients:
    """One client of each protocol on one broker that has one message."""

    def __init__(self, v2: V2, remoting: LoopClient) -> None:
        self.v2, self.remoting = v2, remoting
        server = v2.server
        methods = methods_of(server.service)
        self._handlers = handlers_of(methods, InFlight(1 << 30, 1 << 20), server.config, everybody)

    async def native(self, row: Row[Any, Any], request: Any) -> Any:
        context = await ask(self._handlers, row.path, rpc_of(row).encode_request(request))
        assert context.code.name == "OK", context.details
        return rpc_of(row).decode_response(context.answers[0])

    async def place(self) -> int:
        """The physical offset of the message, which a pull finds."""
        found = await self.native(native_rpcs.PULL, PullRequest("readers", TOPIC, 0, 0))
        (only,) = found.messages
        return int(only.physical_offset)

    async def send_back(self, **how: Any) -> None:
        asked = SendBackRequest(GROUP, await self.place(), **how)
        await self.native(native_rpcs.SEND_BACK, asked)

    async def code_36(self, delay_level: int) -> None:
        back = SendBack(await self.place(), GROUP, delay_level)
        assert (await self.remoting.ask(CONSUMER_SEND_MSG_BACK, back)).code == 0

    async def settle(self, outcome: Outcome, delay_ms: int | None = None) -> None:
        asked = SubscribedReceive(GROUP, "me", (Subscription(TOPIC),), 1, 30_000)
        leased = await self.native(RECEIVE, asked)
        said = Settlement(TOPIC, leased.handles[0], outcome, delay_ms)
        assert all(await self.native(SETTLE, SettleRequest(GROUP, (said,))))

    async def nack(self, seconds: int) -> None:
        """A push consumer of RocketMQ 5: it has its wait from its settings."""
        (received,) = await self.v2.received(auto_renew=True, invisible_s=None)
        changed = change(received, seconds)
        assert await self.v2.code(rpcs.CHANGE_INVISIBLE, changed) is Code.OK

    async def simple_5(self, seconds: int) -> None:
        """A simple consumer of RocketMQ 5: what it says, and then a failed attempt."""
        (received,) = await self.v2.received()
        changed = change(received, seconds)
        assert await self.v2.code(rpcs.CHANGE_INVISIBLE, changed) is Code.OK
        await self.v2.later(1_000 * seconds)

    async def forward(self) -> None:
        (received,) = await self.v2.received()
        request = service.ForwardMessageToDeadLetterQueueRequest(
            group=named(GROUP),
            topic=received.topic,
            receipt_handle=received.system_properties.receipt_handle,
            message_id=received.system_properties.message_id,
        )
        assert await self.v2.code(rpcs.FORWARD_MESSAGE, request) is Code.OK


Case = tuple[str, Callable[[Clients], Awaitable[None]], int]
CASES: Final[tuple[Case, ...]] = (
    ("rmqlite.v1 sends back", lambda each: each.send_back(), POLICY),
    ("rmqlite.v1 with a wait", lambda each: each.send_back(delay_ms=ASKED), ASKED),
    ("rmqlite.v1 with a level", lambda each: each.send_back(delay_level=5), 60_000),
    ("rmqlite.v1 gives up", lambda each: each.send_back(delay_level=-1), DEAD),
    ("a lease of rmqlite.v1", lambda each: each.settle(Outcome.FAIL), POLICY),
    ("a lease with a wait", lambda each: each.settle(Outcome.FAIL, ASKED), ASKED),
    ("a lease at once", lambda each: each.settle(Outcome.FAIL, 0), AT_ONCE),
    ("a buried lease", lambda each: each.settle(Outcome.BURY), DEAD),
    ("4.x sends back", lambda each: each.code_36(0), POLICY),
    ("4.x with a level", lambda each: each.code_36(5), 60_000),
    ("4.x gives up", lambda each: each.code_36(-1), DEAD),
    ("5.x, a push consumer", lambda each: each.nack(90), POLICY),
    ("5.x, a simple consumer", lambda each: each.simple_5(61), AT_ONCE),
    ("5.x gives up", lambda each: each.forward(), DEAD),
)


@pytest.mark.parametrize(
    ("fail", "wait_ms"), [each[1:] for each in CASES], ids=[c[0] for c in CASES]
)
def test_a_failed_message_comes_again_when_it_was_said(
    under_test: BrokerUnderTest, fail: Callable[[Clients], Awaitable[None]], wait_ms: int
) -> None:
    """By the policy with its jitter, by the consumer's own word, or never."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        v2 = V2(under_test, protocol.server)
        under_test.broker.topics.create(TopicInfo(TOPIC, 1, 1))
        under_test.broker.groups.change(GroupChange(GROUP, retry_policy=TEXT))
        await v2.sent(message("a"))
        async with protocol.client() as remoting:
            await fail(Clients(v2, remoting))
        await v2.end()

    served_protocol(under_test, scenario)
    due = [each.deliver_at_ms - under_test.clock.now_ms() for each in waiting(under_test)]
    assert due == ([wait_ms] if wait_ms > 0 else [])
    if wait_ms > 0:
        under_test.clock.forward(wait_ms - 1)
        assert under_test.deliver() == 0
        under_test.clock.forward(1)
        assert under_test.deliver() == 1
    topic = dlq_topic(GROUP) if wait_ms == DEAD else retry_topic(GROUP)
    assert [each.body for each in under_test.messages(topic)] == [b"a"]


@pytest.mark.parametrize(
    ("policy", "waits_ms"),
    [
        ("list(1500ms, 90s)", [1_500, 90_000]),
        (TEXT, [90_000, 270_000, 810_000, 2_430_000, 3_600_000]),
    ],
)
def test_clients_of_rocketmq_5_are_told_the_longest_waits(
    under_test: BrokerUnderTest, policy: str, waits_ms: list[int]
) -> None:
    """No level; what their settings cannot say, the jitter, the broker adds itself."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        v2 = V2(under_test, protocol.server)
        under_test.broker.groups.change(GroupChange(GROUP, retry_policy=policy))
        agent = definition.UA(language=definition.JAVA, version="5.0.8")
        call = v2.telemetry()
        push = definition.PUSH_CONSUMER
        call.settings(consumer_settings(TOPIC, kind=push, agent=agent))
        backoff = (await call.next()).settings.backoff_policy.customized_backoff
        assert [each.ToMilliseconds() for each in backoff.next] == waits_ms
        call.done_writing()
        await asyncio.sleep(0)
        await v2.end()

    served_protocol(under_test, scenario)
