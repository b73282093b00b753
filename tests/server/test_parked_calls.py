"""What a call costs that waits, with the largest request that it may have: not its request.

A hundred thousand calls may wait.  Each is made here many times, with as much as a frame may
carry beside what the call is about: unknown fields, a body that nobody reads.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import grpc.aio
import pytest

from rmqlite.features.rows import LIST_REQUEST_BYTES_MAX, SMALL_REQUEST_BYTES_MAX
from rmqlite.features.simple_consumer.requests import (
    RECEIVE,
    RECEIVE_BYTES_MAX,
    SubscribedReceive,
)
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.groups import HeartbeatRequest, OffsetsCommit, Subscription
from rmqlite.kernel.requests.messages import PullRequest
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words import limits
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.grpc.calls import Handlers, everybody
from rmqlite.protocols.grpc.in_flight import InFlight
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.limits import all_rows
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.native.table import handlers_of, methods_of
from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.requests import ANSWERED
from rmqlite.protocols.remoting.bytes.requests.pop import (
    NOTIFICATION,
    POP_MESSAGE,
    Notification,
    PopMessage,
)
from rmqlite.protocols.remoting.calls import PARKING
from rmqlite.protocols.rocketmq_v2.bytes import rpcs as v2_rpcs
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import definition, service
from tests.server.remoting import asking
from tests.server.rocketmq_v2 import signing
from tests.support.accounts import account, accounts
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import FakeContext, Sent, talk, turns_until
from tests.support.messages import create_topic
from tests.support.remoting import LoopClient, ProtocolUnderTest, served_protocol
from tests.support.rocketmq_v2_client import (
    GROUP,
    NODE,
    TOPIC,
    V2,
    consumer_settings,
    named,
    receive,
    served_v2,
)
from tests.support.services import Served, served

pytestmark = pytest.mark.usefixtures("few_objects")

CALLS: Final = 150
CALL_BYTES_MAX: Final = 40 << 10
WARM: Final = 20
"""Calls before those that are measured, which bring the heap to its size."""
WAIT_MS: Final = 20_000
OTHER: Final = "another-group"
EXPRESSION: Final = " || ".join([f"tag-{number}" for number in range(380)])
Make = Callable[[int], bytes]
"""Makes the request of the call with a number, which nobody else holds."""


def used_bytes() -> int:
    """Memory of this process, without what the allocator keeps for later."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def filled(request: bytes, size: int) -> bytes:
    """A request of this length: the rest are fields that the broker does not know."""
    room = size - len(request)
    unknown = b"".join(
        # Field 1,000, with a length of up to 16 kB.
        b"\xc2\x3e" + bytes([part & 127 | 128, part >> 7]) + b"x" * part
        for part in [min(16_000, room - 4 - at) for at in range(0, room - 200, 16_004)]
    )
    return request + unknown


class Large(FakeContext):
    """One call whose request nobody but the broker holds, and whose client stays."""

    def __init__(self, make: Callable[[], bytes], *, sent: Sent = (), is_open: bool) -> None:
        super().__init__(sent=sent)
        self._make = make
        self._is_open = is_open
        self._is_read = False
        self.waits = False
        """Does the broker wait for the next request?"""
        self.written = 0

    async def read(self) -> Any:
        if not self._is_read:
            self._is_read = True
            return self._make()
        self.waits = True
        if self._is_open:
            await asyncio.Event().wait()
        return grpc.aio.EOF

    async def write(self, message: bytes) -> None:
        self.written += len(message)


async def cost(park: Callable[[int], Awaitable[None]]) -> float:
    """The bytes that each parked call takes; park: makes one call, and returns when it waits."""
    for number in range(WARM):
        await park(number)
    before = used_bytes()
    for number in range(WARM, WARM + CALLS):
        await park(number)
    return (used_bytes() - before) / CALLS


def roomy(server: Served) -> None:
    for waiting in (server.service.messages._pulls, server.service.messages._heartbeats):
        waiting._limit = 10 * CALLS


class Parked:
    """Calls of gRPC that wait."""

    def __init__(self, handlers: Handlers, path: str, sent: Callable[[int], Sent]) -> None:
        self._handlers, self._path, self._sent = handlers, path, sent
        self.calls: list[asyncio.Task[None]] = []

    async def park(
        self, make: Make, number: int, is_there: Callable[[Large], bool], *, is_open: bool = False
    ) -> None:
        context = Large(lambda: make(number), sent=self._sent(number), is_open=is_open)
        task = asyncio.create_task(talk(self._handlers, self._path, context))
        self.calls.append(task)
        await turns_until(lambda: is_there(context) or task.done())
        assert not task.done(), context.details

    async def end(self) -> None:
        for call in self.calls:
            call.cancel()
        await asyncio.gather(*self.calls, return_exceptions=True)


def check(each_bytes: float) -> None:
    assert each_bytes <= CALL_BYTES_MAX, f"{each_bytes / 1024:.0f} kB each"


# ---- rmqlite.v1


def test_every_call_that_waits_is_tried() -> None:
    """A new one needs a place among those below."""
    waits = {rpc for rpc in all_rows() if "wait_ms" in getattr(rpc.request, "__slots__", ())}
    parking = {rpc for rpc in all_rows() if rpc.may_park}
    assert waits == parking == {rpcs.PULL, rpcs.HEARTBEAT, RECEIVE}
    waits_v2 = {
        rpc
        for rpc in v2_rpcs.ALL
        if rpc.has_many_requests or "long_polling_timeout" in rpc.descriptor.fields_by_name
    }
    assert waits_v2 == {v2_rpcs.RECEIVE_MESSAGE, v2_rpcs.PULL_MESSAGE, v2_rpcs.TELEMETRY}
    times = {"suspend_timeout_millis", "poll_time"}
    by_code = {
        code for code, row in ANSWERED.items() if times & {each.name for each in row.fields.columns}
    }
    assert by_code == PARKING == set(PARKED)


def native_pull(_: int) -> bytes:
    asked = PullRequest(GROUP, TOPIC, 0, 1, EXPRESSION, wait_ms=WAIT_MS)
    return filled(rpc_of(rpcs.PULL).encode_request(asked), SMALL_REQUEST_BYTES_MAX)


def native_receive(number: int) -> bytes:
    sql = " OR ".join(["some_name = 1"] * 200)
    topics = (Subscription(TOPIC, EXPRESSION), Subscription("bills", sql=sql))
    asked = SubscribedReceive("one-by-one", f"c-{number}", topics, 32, 60_000, WAIT_MS)
    return filled(rpc_of(RECEIVE).encode_request(asked), RECEIVE_BYTES_MAX)


def subscriptions() -> tuple[Subscription, ...]:
    """As many and as long as one call may have."""
    count = limits.CALL_SUBSCRIPTIONS_MAX
    sql = " OR ".join(["some_name = 1"] * (limits.SUBSCRIPTIONS_SQL_BYTES_MAX // count // 18))
    return tuple([Subscription(f"topic-{number:05}", "*", sql) for number in range(count)])


def test_a_pull_and_a_heartbeat_of_rmqlites_own_clients(tmp_path: Path) -> None:
    """Of a heartbeat only the table of members has the subscriptions."""
    under_test = BrokerUnderTest(tmp_path, subscription_bytes_max=1 << 26)
    create_topic(under_test, TOPIC)
    create_topic(under_test, "bills")
    under_test.send(Message(TOPIC, b"x"))

    async def scenario(server: Served, _: object) -> None:
        roomy(server)
        in_flight = InFlight(1 << 30, 1 << 20)
        methods, config = methods_of(server.service), BrokerConfig()
        handlers = handlers_of(methods, in_flight, config, everybody)
        pulls = Parked(handlers, rpcs.PULL.path, lambda _: ())
        waiting = server.service.messages._pulls

        async def pull(number: int) -> None:
            before = waiting.count
            await pulls.park(native_pull, number, lambda _: waiting.count > before)

        check(await cost(pull))
        await pulls.end()

        receives = Parked(handlers, RECEIVE.path, lambda _: ())

        async def receive(number: int) -> None:
            before = waiting.count
            await receives.park(native_receive, number, lambda _: waiting.count > before)

        check(await cost(receive))
        await receives.end()

        wanted = subscriptions()
        members = [HeartbeatRequest(GROUP, f"c-{each}", wanted) for each in range(WARM + CALLS)]
        for each in members:
            under_test.broker.heartbeat(each)
        under_test.clock.forward(10_000)
        for _ in under_test.broker.membership.rebalance():
            pass
        epoch = under_test.broker.membership.epoch(GROUP)
        beats = Parked(handlers, rpcs.HEARTBEAT.path, lambda _: ())
        beating = server.service.groups._heartbeats

        def heartbeat(number: int) -> bytes:
            asked = HeartbeatRequest(GROUP, f"c-{number}", wanted, epoch, WAIT_MS)
            return filled(rpc_of(rpcs.HEARTBEAT).encode_request(asked), LIST_REQUEST_BYTES_MAX)

        async def beat(number: int) -> None:
            before = beating.count
            await beats.park(heartbeat, number, lambda _: beating.count > before)

        check(await cost(beat))
        assert beating.count == len(members)
        # What waits has no room, which others need.
        assert in_flight.bytes == 0
        await beats.end()

    served(under_test, scenario)
    under_test.store.release()


# ---- RocketMQ 5


def v2_receive(_: int) -> bytes:
    asked = receive(topic=TOPIC, group=GROUP, filter_expression=tags())
    asked.long_polling_timeout.seconds = WAIT_MS // 1_000
    return filled(asked.SerializeToString(), SMALL_REQUEST_BYTES_MAX)


def v2_pull(_: int) -> bytes:
    queue = definition.MessageQueue(topic=named(TOPIC), id=0)
    asked = service.PullMessageRequest(
        group=named(GROUP), message_queue=queue, offset=1, batch_size=32, filter_expression=tags()
    )
    asked.long_polling_timeout.seconds = WAIT_MS // 1_000
    return filled(asked.SerializeToString(), SMALL_REQUEST_BYTES_MAX)


def tags() -> definition.FilterExpression:
    return definition.FilterExpression(type=definition.TAG, expression=EXPRESSION)


def node_settings() -> definition.Settings:
    """Node's are written again and again; with all that a client may say of itself."""
    settings = consumer_settings(TOPIC, group=GROUP, agent=NODE)
    for number in range(30):
        settings.client_properties[f"name-{number}"] = "v" * 1_000
    return settings


def v2_settings(_: int) -> bytes:
    command = service.TelemetryCommand(settings=node_settings())
    return filled(command.SerializeToString(), LIST_REQUEST_BYTES_MAX)


def v2_stack(_: int) -> bytes:
    trace = service.ThreadStackTrace(nonce="n", thread_stack_trace="x" * (500 << 10))
    return service.TelemetryCommand(thread_stack_trace=trace).SerializeToString()


@pytest.mark.parametrize("rpc", [v2_rpcs.RECEIVE_MESSAGE, v2_rpcs.PULL_MESSAGE])
def test_a_receive_and_a_pull_of_rocketmq_5(under_test: BrokerUnderTest, rpc: Any) -> None:
    """The namespace of the request is all that its answers need."""
    create_topic(under_test, TOPIC)
    under_test.send(Message(TOPIC, b"x", tags="none of these"))
    make = v2_receive if rpc is v2_rpcs.RECEIVE_MESSAGE else v2_pull

    async def scenario(v2: V2) -> None:
        roomy(v2.server)
        calls = Parked(v2.handlers, rpc.path, lambda _: v2.sent_with)
        waiting = v2.server.service.messages._pulls

        async def park(number: int) -> None:
            before = waiting.count
            await calls.park(make, number, lambda _: waiting.count > before)

        check(await cost(park))
        await calls.end()

    served_v2(under_test, scenario)


@pytest.mark.parametrize("make", [v2_settings, v2_stack])
@pytest.mark.parametrize("has_right", [True, False], ids=["let in", "refused"])
def test_a_telemetry_call(under_test: BrokerUnderTest, make: Make, has_right: bool) -> None:
    """It waits for hours for its next frame, and the answer to the last one is written."""
    create_topic(under_test, TOPIC)
    in_flight = InFlight(1 << 30, 1 << 20)
    most = 0

    async def scenario(v2: V2) -> None:
        nonlocal most
        if not has_right:
            v2.server.access.accounts = accounts(account("no-rights"))
        decode = v2.protocol._decoding.read

        async def counted(*about: Any) -> Any:
            nonlocal most
            most = max(most, in_flight.bytes)
            return await decode(*about)

        v2.protocol._decoding.read = counted  # type: ignore[method-assign, assignment]
        sent = () if has_right else signing.signed("no-rights")
        handlers = v2.protocol.handlers(in_flight)
        calls = Parked(
            handlers,
            v2_rpcs.TELEMETRY.path,
            lambda number: (("x-mq-client-id", f"client-{number}"), *sent),
        )

        async def park(number: int) -> None:
            await calls.park(make, number, is_answered, is_open=True)

        def is_answered(context: Large) -> bool:
            # A frame without settings is not answered: then until it was read, and the next wait.
            return context.written > 0 if make is v2_settings else context.waits

        check(await cost(park))
        assert most > 500_000, "what is read counts in flight"
        assert in_flight.bytes == 0
        known = CALLS + WARM if make is v2_settings and has_right else 0
        assert len(v2.protocol.clients) == known
        await calls.end()
        assert len(v2.protocol.telemetry._calls) == 0

    served_v2(under_test, scenario)


def test_settings_that_come_again_and_again_are_kept_once(under_test: BrokerUnderTest) -> None:
    """Thirty timers held each of them: one connection took 1.4 GB."""

    async def scenario(v2: V2) -> None:
        call = v2.telemetry()
        for number in range(50):
            call.settings(node_settings())
            await call.next(number + 1)
        loop: Any = asyncio.get_running_loop()
        stream = next(iter(v2.protocol.telemetry._calls))
        held = [each for each in loop._scheduled if each._args and not each.cancelled()]
        frames = [each._args[0] for each in held if isinstance(each._args[0], bytes)]
        assert len(frames) == 1
        assert len(frames[0]) < 2_048
        call.done_writing()
        await turns_until(lambda: not stream.is_open)
        assert stream._again is None

    served_v2(under_test, scenario)


# ---- remoting

Ask = Callable[[LoopClient], Command]
PARKED: Final[dict[int, Ask]] = {
    11: lambda client: asking.pull_of(client, offset=1, wait_ms=WAIT_MS),
    361: lambda client: asking.pull_of(client, offset=1, wait_ms=WAIT_MS)._replace(code=361),
    200050: lambda client: client.request(
        POP_MESSAGE, PopMessage(GROUP, TOPIC, 0, 32, 60_000, WAIT_MS, exp=EXPRESSION)
    ),
    200054: lambda client: client.request(NOTIFICATION, Notification(OTHER, TOPIC, 0, WAIT_MS)),
}


@pytest.mark.parametrize("code", PARKED)
def test_a_request_of_the_remoting_protocol(under_test: BrokerUnderTest, code: int) -> None:
    """Nobody reads its body; its fields were read when it waits, and it has no bytes in flight."""
    create_topic(under_test, TOPIC)
    under_test.send(Message(TOPIC, b"x", tags="none of these"))
    if code == 200054:
        under_test.broker.commit_offsets(OffsetsCommit(OTHER, {Queue(TOPIC, 0): 1}))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        roomy(protocol.server)
        waiting = protocol.server.service.messages._pulls
        async with protocol.client() as client:

            async def park(_: int) -> None:
                before = waiting.count
                asked = PARKED[code](client)
                ext = {**asked.ext, **{f"unknown-{number}": "x" * 4_000 for number in range(30)}}
                client.send(asked._replace(ext=ext, remark="r" * 60_000, body=bytes(200_000)))
                await turns_until(lambda: waiting.count > before)

            check(await cost(park))
            assert protocol.connections.bytes == 0
            assert protocol.connection(client).in_flight == 0
        await turns_until(lambda: waiting.count == 0)
        assert protocol.connections.bytes == 0

    served_protocol(under_test, scenario)
