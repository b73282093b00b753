"""A client of RocketMQ 5's gRPC protocol without gRPC: real bytes through the real handlers.

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a"))
        (received,) = await v2.received()
        assert await v2.acked(received) == [Code.OK]

    served_v2(under_test, scenario)

What is asked and answered are the protocol's own messages.  The service is real, on the fake clock
of the broker under test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from rmqlite.protocols.grpc.in_flight import InFlight
from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import RocketmqRpc, definition, service
from rmqlite.protocols.rocketmq_v2.calls import CLIENT_ID, CLIENT_VERSION
from rmqlite.protocols.rocketmq_v2.table import Protocol
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import FakeContext, Sent, ask, talk, turns_until
from tests.support.leases import expire
from tests.support.services import Served, served

TOPIC: Final = "orders"
GROUP: Final = "billing"
CLIENT: Final = "host@1@0@abc"
VERSION: Final = "5.1.2"
PORT: Final = 8_081
ENDPOINTS: Final = definition.Endpoints(
    scheme=definition.IPv4, addresses=[definition.Address(host="10.0.0.9", port=PORT)]
)
ALL: Final = definition.FilterExpression(type=definition.TAG, expression="*")
PYTHON: Final = definition.UA(language=definition.PYTHON, version=VERSION)
NODE: Final = definition.UA(language=definition.NODE_JS, version="1.0.8")
INVISIBLE_S: Final = 30


def named(name: str) -> definition.Resource:
    return definition.Resource(name=name)


def message_id(text: str) -> str:
    """An id as clients make them, which has this text in it."""
    return f"01{text.encode().hex().upper():0>32}"


def message(
    text: str = "a", *, topic: str = TOPIC, body: bytes | None = None, **system: Any
) -> definition.Message:
    """system: other system properties."""
    own: dict[str, Any] = {
        "message_id": message_id(text),
        "message_type": definition.NORMAL,
        "born_timestamp": Timestamp(seconds=1_700_000_000),
        "born_host": "10.0.0.1",
        "body_encoding": definition.IDENTITY,
        **system,
    }
    return definition.Message(
        topic=named(topic),
        body=text.encode() if body is None else body,
        system_properties=definition.SystemProperties(**own),
    )


def delayed(text: str, due_ms: int, **about: Any) -> definition.Message:
    seconds, ms = divmod(due_ms, 1_000)
    return message(
        text,
        message_type=definition.DELAY,
        delivery_timestamp=Timestamp(seconds=seconds, nanos=ms * 1_000_000),
        **about,
    )


def ordered(text: str, group: str, **about: Any) -> definition.Message:
    return message(text, message_type=definition.FIFO, message_group=group, **about)


def half(text: str, **about: Any) -> definition.Message:
    return message(text, message_type=definition.TRANSACTION, **about)


def producer_settings(*topics: str, agent: definition.UA = PYTHON) -> definition.Settings:
    return definition.Settings(
        client_type=definition.PRODUCER,
        access_point=ENDPOINTS,
        user_agent=agent,
        publishing=definition.Publishing(topics=map(named, topics), validate_message_type=True),
    )


def consumer_settings(
    *topics: str,
    group: str = GROUP,
    kind: definition.ClientType = definition.SIMPLE_CONSUMER,
    agent: definition.UA = PYTHON,
) -> definition.Settings:
    entries = [definition.SubscriptionEntry(topic=named(topic), expression=ALL) for topic in topics]
    return definition.Settings(
        client_type=kind,
        access_point=ENDPOINTS,
        user_agent=agent,
        subscription=definition.Subscription(group=named(group), subscriptions=entries),
    )


def code_of(answer: Any) -> Code:
    """The outcome of an answer, an entry or a frame."""
    return Code(answer.status.code)


class TelemetryCall(FakeContext):
    """An open Telemetry call; frames come when the test writes them."""

    def __init__(self, sent: Sent) -> None:
        super().__init__(sent=sent)
        self._incoming: asyncio.Queue[Any] = asyncio.Queue()
        self.reads = asyncio.Event()
        """Set while the client reads."""
        self.reads.set()
        self.call: asyncio.Task[None]

    async def read(self) -> Any:
        return await self._incoming.get()

    async def write(self, message: bytes) -> None:
        await self.reads.wait()
        await super().write(message)

    def put(self, frame: service.TelemetryCommand | bytes) -> None:
        data = frame if isinstance(frame, bytes) else frame.SerializeToString()
        self._incoming.put_nowait(data)

    def settings(self, settings: definition.Settings) -> None:
        self.put(service.TelemetryCommand(settings=settings))

    def done_writing(self) -> None:
        self._incoming.put_nowait(grpc.aio.EOF)

    @property
    def frames(self) -> list[service.TelemetryCommand]:
        """What the broker has written until now."""
        return [service.TelemetryCommand.FromString(answer) for answer in self.answers]

    async def next(self, count: int = 1) -> service.TelemetryCommand:
        """The frame with this number, counted from 1."""
        await turns_until(lambda: len(self.answers) >= count)
        return self.frames[count - 1]


class V2:
    """A client; several may share the protocol of one server."""

    def __init__(
        self,
        under_test: BrokerUnderTest,
        server: Served,
        *,
        client_id: str = CLIENT,
        sent: Sent = (),
        protocol: Protocol | None = None,
    ) -> None:
        """sent: more metadata of all calls."""
        self.under_test, self.server = under_test, server
        self.protocol = protocol or Protocol(server.config, server.service, PORT)
        self.handlers = self.protocol.handlers(InFlight(1 << 30, 1 << 20))
        self.sent_with: Sent = ((CLIENT_ID, client_id), (CLIENT_VERSION, VERSION), *sent)
        self._calls: list[asyncio.Task[None]] = []

    def other(self, client_id: str, sent: Sent = ()) -> V2:
        """Another client of the same broker."""
        shared = self.protocol
        other = V2(self.under_test, self.server, client_id=client_id, sent=sent, protocol=shared)
        other._calls = self._calls
        return other

    async def ask(
        self, rpc: RocketmqRpc[Any, Any], request: Any, left_s: float | None = None
    ) -> Any:
        """The answer of a call that has one.  It always ends well for gRPC."""
        (answer,) = await self.answers(rpc, request, left_s)
        return answer

    async def answers(
        self, rpc: RocketmqRpc[Any, Any], request: Any, left_s: float | None = None
    ) -> list[Any]:
        data = request if isinstance(request, bytes) else request.SerializeToString()
        context = await ask(self.handlers, rpc.path, data, sent=self.sent_with, left_s=left_s)
        assert context.code is grpc.StatusCode.OK, context.details
        return [rpc.answer.FromString(answer) for answer in context.answers]

    async def code(self, rpc: RocketmqRpc[Any, Any], request: Any) -> Code:
        """The outcome of a call; of a receive or a pull that of its first answer."""
        first = (await self.answers(rpc, request))[0]
        assert first.status.message
        return code_of(first)

    def telemetry(self) -> TelemetryCall:
        """Open a Telemetry call."""
        context = TelemetryCall(self.sent_with)
        context.call = asyncio.create_task(talk(self.handlers, rpcs.TELEMETRY.path, context))
        self._calls.append(context.call)
        return context

    async def end(self) -> None:
        """End what is still open."""
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def later(self, milliseconds: int) -> None:
        """Time passes: leases end, and what waits is delivered."""
        under_test = self.under_test
        under_test.clock.forward(milliseconds)
        expire(under_test)
        under_test.deliver()

    # ---- what most tests do

    async def sent(self, *messages: definition.Message) -> list[service.SendResultEntry]:
        """Send messages, each by itself, which must be stored."""
        entries = []
        for each in messages:
            answer = await self.ask(rpcs.SEND_MESSAGE, service.SendMessageRequest(messages=[each]))
            assert code_of(answer) is Code.OK, answer.status.message
            entries += answer.entries
        return entries

    async def received(self, **about: Any) -> list[definition.Message]:
        """The messages of a receive."""
        answers = await self.answers(rpcs.RECEIVE_MESSAGE, receive(**about), left_s=30)
        return [each.message for each in answers if each.HasField("message")]

    async def acked(self, *messages: definition.Message, group: str = GROUP) -> list[Code]:
        """Acknowledge messages; the code of each."""
        answer = await self.ask(rpcs.ACK_MESSAGE, ack(messages, group=group))
        return [code_of(each) for each in answer.entries]


def receive(
    *,
    topic: str = TOPIC,
    group: str = GROUP,
    batch_size: int = 32,
    invisible_s: int | None = INVISIBLE_S,
    poll_s: int | None = 0,
    **about: Any,
) -> service.ReceiveMessageRequest:
    """about: other fields."""
    durations: dict[str, Any] = {}
    if invisible_s is not None:
        durations["invisible_duration"] = Duration(seconds=invisible_s)
    if poll_s is not None:
        durations["long_polling_timeout"] = Duration(seconds=poll_s)
    fields: dict[str, Any] = {"filter_expression": ALL, **durations, **about}
    return service.ReceiveMessageRequest(
        group=named(group),
        message_queue=definition.MessageQueue(topic=named(topic)),
        batch_size=batch_size,
        **fields,
    )


def ack(messages: Iterable[definition.Message], *, group: str = GROUP) -> service.AckMessageRequest:
    """Acknowledge received messages of one topic."""
    received: Sequence[definition.Message] = list(messages)
    return service.AckMessageRequest(
        group=named(group),
        topic=received[0].topic,
        entries=[
            service.AckMessageEntry(
                message_id=each.system_properties.message_id,
                receipt_handle=each.system_properties.receipt_handle,
            )
            for each in received
        ],
    )


def change(
    received: definition.Message, seconds: int, *, group: str = GROUP, **about: Any
) -> service.ChangeInvisibleDurationRequest:
    return service.ChangeInvisibleDurationRequest(
        group=named(group),
        topic=received.topic,
        receipt_handle=received.system_properties.receipt_handle,
        message_id=received.system_properties.message_id,
        invisible_duration=Duration(seconds=seconds),
        **about,
    )


def served_v2(under_test: BrokerUnderTest, scenario: Callable[[V2], Awaitable[Any]]) -> None:
    """Run a scenario with a client."""

    async def with_client(server: Served, _: asyncio.Task[None]) -> None:
        v2 = V2(under_test, server)
        try:
            await scenario(v2)
        finally:
            await v2.end()

    served(under_test, with_client)
