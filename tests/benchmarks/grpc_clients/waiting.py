"""Receives that wait, and messages that were received and not acknowledged, in large numbers.

Written with gRPC itself, because one process of an official client cannot wait thousands of times.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import grpc

from rmqlite.client import AdminClient
from rmqlite.kernel.words.clock import pause_s
from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import cpu_s_of, resident_mib

CHANNELS: Final = 20
TOPICS: Final = 100
"""Among which the parked receives are spread, one group for each receive of a topic."""
WOKEN: Final = "woken"
HIDDEN: Final = "invisible"
IDLE_S: Final = 10.0
SETTLE_S: Final = 3.0
BATCH: Final = 32
INVISIBLE_S: Final = 3_600
POLL_S: Final = 20
"""As the settings of the broker ask for."""
BODY: Final = bytes(1_024)
METADATA: Final = (
    ("x-mq-client-id", "benchmark"),
    ("x-mq-client-version", "5.2.0"),
    ("x-mq-language", "JAVA"),
    ("x-mq-protocol", "GRPC_V2"),
)
OK: Final = 20_000
NO_MESSAGE: Final = 40_401


@dataclass(frozen=True, slots=True)
class Parked:
    """mib, cpu: more memory than without them, and CPU time of the broker in a second of waiting.

    wake_ms: from the send of a message to the end of another receive, p50 and p99; alone_ms: the
    same before they were there.
    """

    count: int
    mib: float
    cpu: float
    wake_ms: tuple[float, float]
    alone_ms: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Invisible:
    """mib: more memory than before they were received.  receive_us: of each message."""

    count: int
    mib: float
    receive_us: float


class Calls:
    """The calls of the protocol on some connections."""

    def __init__(self, channels: list[Any]) -> None:
        self._sends = [_call(each, rpcs.SEND_MESSAGE) for each in channels]
        self._receives = [_call(each, rpcs.RECEIVE_MESSAGE) for each in channels]

    async def send(self, topic: str, number: int) -> None:
        request = rpcs.service.SendMessageRequest()
        message = request.messages.add()
        message.topic.name, message.body = topic, BODY
        message.system_properties.message_id = f"01{number:032X}"
        message.system_properties.message_type = rpcs.definition.NORMAL
        message.system_properties.body_encoding = rpcs.definition.IDENTITY
        message.system_properties.born_timestamp.GetCurrentTime()
        answer = await self._sends[number % len(self._sends)](request, metadata=METADATA)
        assert answer.status.code == OK, answer.status

    async def receive(self, topic: str, group: str, number: int, poll_s: int = 0) -> int:
        """How many messages came."""
        request = rpcs.service.ReceiveMessageRequest(batch_size=BATCH, auto_renew=False)
        request.group.name, request.message_queue.topic.name = group, topic
        request.filter_expression.type = rpcs.definition.TAG
        request.filter_expression.expression = "*"
        request.invisible_duration.seconds = INVISIBLE_S
        request.long_polling_timeout.seconds = poll_s
        call = self._receives[number % len(self._receives)](
            request, metadata=METADATA, timeout=poll_s + 60
        )
        count = 0
        async for answer in call:
            count += answer.HasField("message")
            if answer.HasField("status"):
                assert answer.status.code in (OK, NO_MESSAGE), answer.status
        return count


@asynccontextmanager
async def calls(endpoint: str) -> AsyncIterator[Calls]:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    channels = [grpc.aio.insecure_channel(endpoint, options=options) for _ in range(CHANNELS)]
    try:
        yield Calls(channels)
    finally:
        for each in channels:
            await each.close()


def parked(broker: BrokerProcess, count: int, wakes: int) -> Parked:
    make(broker, [*_topics(count), WOKEN])
    alone_ms = asyncio.run(_wakes(broker.endpoint, range(wakes)))
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    process = context.Process(target=_park, args=(broker.endpoint, count, ready))
    process.start()
    try:
        assert ready.get() == "warm"
        before_mib = resident_mib(broker)
        assert ready.get() == "parked"
        mib, cpu_s = resident_mib(broker) - before_mib, cpu_s_of(broker.pid)
        pause_s(IDLE_S)
        cpu = (cpu_s_of(broker.pid) - cpu_s) / IDLE_S
        wake_ms = asyncio.run(_wakes(broker.endpoint, range(wakes, 2 * wakes)))
        return Parked(count, mib, cpu, wake_ms, alone_ms)
    finally:
        process.terminate()
        process.join()


def invisible(broker: BrokerProcess, count: int) -> Invisible:
    """After a restart, so that memory that the sends have used is not used again."""
    make(broker, [HIDDEN])
    asyncio.run(_sends(broker.endpoint, count))
    broker.stop()
    broker.start()
    return asyncio.run(_invisible(broker, count))


def _topics(count: int) -> list[str]:
    return [f"parked-{number}" for number in range(min(TOPICS, count))]


def make(broker: BrokerProcess, topics: list[str]) -> None:
    with AdminClient(broker.endpoint, timeout_ms=60_000) as admin:
        for topic in topics:
            admin.create_topic(topic, 4)


def _park(endpoint: str, count: int, ready: Any) -> None:
    """The process whose receives wait: until it is terminated."""
    asyncio.run(_parking(endpoint, count, ready))


async def _parking(endpoint: str, count: int, ready: Any) -> None:
    topics = _topics(count)
    async with calls(endpoint) as client:
        # Every topic and connection is warm.
        await asyncio.gather(*[client.receive(topic, "warm", n) for n, topic in enumerate(topics)])
        ready.put("warm")

        async def park(number: int) -> None:
            topic, group = topics[number % len(topics)], f"group-{number // len(topics)}"
            # Not all at the same moment: nor do those of many clients end so.
            await asyncio.sleep(number / count * POLL_S)
            while True:
                await client.receive(topic, group, number, POLL_S)

        waiting = [asyncio.create_task(park(number)) for number in range(count)]
        await asyncio.sleep(POLL_S + SETTLE_S)
        ready.put("parked")
        await asyncio.gather(*waiting)


async def _wakes(endpoint: str, numbers: range) -> tuple[float, float]:
    """From the send of a message to the end of the receive that waits for it: p50, p99."""
    times = []
    async with calls(endpoint) as client:
        for number in numbers:
            one = asyncio.create_task(client.receive(WOKEN, "woken", number, POLL_S))
            await asyncio.sleep(0.02)
            began_s = time.perf_counter()
            await client.send(WOKEN, number)
            assert await one == 1
            times.append((time.perf_counter() - began_s) * 1e3)
    parts = statistics.quantiles(times, n=100)
    return parts[49], parts[98]


async def _sends(endpoint: str, count: int) -> None:
    async with calls(endpoint) as client:
        for first in range(0, count, BATCH * CHANNELS):
            numbers = range(first, min(first + BATCH * CHANNELS, count))
            await asyncio.gather(*[client.send(HIDDEN, number) for number in numbers])


async def _invisible(broker: BrokerProcess, count: int) -> Invisible:
    async with calls(broker.endpoint) as client:
        # What a first receive needs is not counted.
        left = count - await client.receive(HIDDEN, "takers", 0)
        await asyncio.sleep(SETTLE_S)
        before_mib, began_s = resident_mib(broker), time.perf_counter()
        while left > 0:
            came = await client.receive(HIDDEN, "takers", left)
            assert came > 0
            left -= came
        receive_us = (time.perf_counter() - began_s) / count * 1e6
        await asyncio.sleep(SETTLE_S)
        return Invisible(count, resident_mib(broker) - before_mib, receive_us)


def _call(channel: Any, rpc: rpcs.RocketmqRpc[Any, Any]) -> Any:
    make_call = channel.unary_stream if rpc.has_many_answers else channel.unary_unary
    return make_call(
        rpc.path,
        request_serializer=rpc.request.SerializeToString,
        response_deserializer=rpc.answer.FromString,
    )
