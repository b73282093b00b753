"""One table of how each protocol sends a message that expires, and of how each comes for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import pytest

from rmqlite.features.rows import Row
from rmqlite.features.simple_consumer.requests import RECEIVE, SubscribedReceive
from rmqlite.kernel.requests.groups import GroupChange, Subscription
from rmqlite.kernel.requests.messages import PullRequest
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.words.message import EXPIRES_AT_MS, FAILURE_REASON, Message
from rmqlite.kernel.words.names import dlq_topic
from rmqlite.protocols.grpc.calls import everybody
from rmqlite.protocols.grpc.in_flight import InFlight
from rmqlite.protocols.native.bytes import rpcs as native_rpcs
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.native.table import handlers_of, methods_of
from rmqlite.protocols.remoting.bytes.requests.messages import PULL_MESSAGE, PullMessage
from rmqlite.protocols.remoting.bytes.requests.pop import POP_MESSAGE, PopMessage
from rmqlite.protocols.remoting.bytes.requests.sends import SEND_MESSAGE_V2, SendMessage
from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import service
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import ask, turns_until
from tests.support.remoting import LoopClient, ProtocolUnderTest, records_of, served_protocol
from tests.support.rocketmq_v2_client import GROUP, TOPIC, V2, message
from tests.support.sends import request_of

SOON_MS: Final = 5_000
NO_MATCHED: Final = 20


class Clients:
    """One client of each protocol on one broker."""

    def __init__(self, v2: V2, remoting: LoopClient) -> None:
        self.v2, self.remoting = v2, remoting
        server = v2.server
        methods = methods_of(server.service)
        self._handlers = handlers_of(methods, InFlight(1 << 30, 1 << 20), server.config, everybody)

    async def native(self, row: Row[Any, Any], request: Any) -> Any:
        context = await ask(self._handlers, row.path, rpc_of(row).encode_request(request))
        assert context.code.name == "OK", context.details
        return rpc_of(row).decode_response(context.answers[0])

    # ---- senders: the property's value, or none; False if the broker refuses it

    async def send(self, text: str, expires_at: str) -> bool:
        made = Message(TOPIC, text.encode())
        if expires_at:
            made = made.with_properties({EXPIRES_AT_MS: expires_at})
        request = rpc_of(native_rpcs.SEND).encode_request(request_of([made], 0))
        context = await ask(self._handlers, native_rpcs.SEND.path, request)
        return bool(context.code.name == "OK")

    async def send_4(self, text: str, expires_at: str) -> bool:
        properties = f"{EXPIRES_AT_MS}\x01{expires_at}\x02" if expires_at else ""
        asked = SendMessage(TOPIC, "senders", queue_id=0, properties=properties)
        return (await self.remoting.ask(SEND_MESSAGE_V2, asked, text.encode())).code == 0

    async def send_5(self, text: str, expires_at: str) -> bool:
        made = message(text)
        if expires_at:
            made.user_properties[EXPIRES_AT_MS] = expires_at
        request = service.SendMessageRequest(messages=[made])
        return await self.v2.code(rpcs.SEND_MESSAGE, request) is Code.OK

    # ---- consumers: what they are handed

    async def pull(self) -> Sequence[bytes]:
        found = await self.native(native_rpcs.PULL, PullRequest(GROUP, TOPIC, 0, 0))
        return [each.body for each in found.messages]

    async def receive(self) -> Sequence[bytes]:
        asked = SubscribedReceive(GROUP, "me", (Subscription(TOPIC),), 32, 30_000)
        return [each.body for each in records_of((await self.native(RECEIVE, asked)).records)]

    async def pull_4(self) -> Sequence[bytes]:
        asked = PullMessage(GROUP, TOPIC, 0, 0, 32, 4, 0, 0, 0, "*")
        answer = await self.remoting.ask(PULL_MESSAGE, asked)
        return [each.body for each in records_of(answer.body)]

    async def pop(self) -> Sequence[bytes]:
        asked = PopMessage(GROUP, TOPIC, -1, 32, 60_000, 0, exp_type="TAG", exp="*")
        answer = await self.remoting.ask(POP_MESSAGE, asked)
        return [each.body for each in records_of(answer.body)]

    async def receive_5(self) -> Sequence[bytes]:
        return [each.body for each in await self.v2.received()]


Send = Callable[[Clients, str, str], Awaitable[bool]]
Take = Callable[[Clients], Awaitable[Sequence[bytes]]]
SENDS: Final = {"rmqlite.v1": Clients.send, "4.x": Clients.send_4, "5.x": Clients.send_5}
TAKES: Final = {
    "a pull of rmqlite.v1": Clients.pull,
    "a lease of rmqlite.v1": Clients.receive,
    "a pull of 4.x": Clients.pull_4,
    "a pop": Clients.pop,
    "a receive of 5.x": Clients.receive_5,
}


def with_clients(
    under_test: BrokerUnderTest, scenario: Callable[[Clients], Awaitable[None]]
) -> None:
    async def served(protocol: ProtocolUnderTest) -> None:
        v2 = V2(under_test, protocol.server)
        under_test.broker.topics.create(TopicInfo(TOPIC, 1, 1))
        async with protocol.client() as remoting:
            await scenario(Clients(v2, remoting))
        await v2.end()

    served_protocol(under_test, served)


@pytest.mark.parametrize("take", TAKES.values(), ids=TAKES)
def test_each_consumer_is_handed_what_has_not_expired(
    under_test: BrokerUnderTest, take: Take
) -> None:
    """Whoever has sent it; the others are dead letters once, with the reason."""

    async def scenario(clients: Clients) -> None:
        under_test.broker.groups.change(GroupChange(GROUP, bury_expired=True))
        at_ms = str(under_test.clock.now_ms() + SOON_MS)
        for name, send in SENDS.items():
            assert await send(clients, f"soon by {name}", at_ms)
            assert await send(clients, f"never by {name}", "")
        under_test.clock.forward(SOON_MS)
        assert list(await take(clients)) == [f"never by {name}".encode() for name in SENDS]

    with_clients(under_test, scenario)
    dead = under_test.messages(dlq_topic(GROUP))
    assert [each.body for each in dead] == [f"soon by {name}".encode() for name in SENDS]
    assert {each.properties[FAILURE_REASON] for each in dead} == {"expired"}


@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
def test_each_producer_is_refused_a_time_that_is_none(
    under_test: BrokerUnderTest, send: Send
) -> None:
    """Seconds instead of milliseconds would be 1970: expired at once, in silence."""

    async def scenario(clients: Clients) -> None:
        assert not await send(clients, "bad", "1700000000")

    with_clients(under_test, scenario)
    assert under_test.messages(TOPIC) == []


def test_a_pull_that_waits_goes_on_behind_what_has_expired(under_test: BrokerUnderTest) -> None:
    """Or RocketMQ's 4.x clients would ask for the same place again and again."""

    async def scenario(clients: Clients) -> None:
        at_ms = str(under_test.clock.now_ms() + SOON_MS)
        assert await clients.send("soon", at_ms)
        under_test.clock.forward(SOON_MS)
        remoting, server = clients.remoting, clients.v2.server
        asked = PullMessage(GROUP, TOPIC, 0, 0, 32, 4, 0, 0, 0, "*")
        answer = await remoting.ask(PULL_MESSAGE, asked)
        assert answer.code == NO_MATCHED
        assert PULL_MESSAGE.answer.read(answer.ext).next_begin_offset == 1
        waiting = remoting.request(
            PULL_MESSAGE, asked._replace(queue_offset=1, sys_flag=6, suspend_timeout_millis=50_000)
        )
        remoting.send(waiting)
        await turns_until(lambda: server.service.parked == 1)
        assert await clients.send("next", "")
        found = await remoting.answer(waiting.opaque)
        assert [each.body for each in records_of(found.body)] == [b"next"]

    with_clients(under_test, scenario)
