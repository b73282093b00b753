"""The largest request of each call of apache.rocketmq.v2, on a broker near its limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration

from rmqlite.kernel.words import limits
from rmqlite.protocols.rocketmq_v2.addresses import ENDPOINTS_BYTES_MAX
from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.protocols.rocketmq_v2.bytes.limits import ACKS_MAX, ADDRESSES_MAX, TOPICS_MAX
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import RocketmqRpc, definition, service
from rmqlite.protocols.rocketmq_v2.bytes.rules import USER_PROPERTIES_MAX
from tests.support.brokers import BrokerUnderTest
from tests.support.largest_calls import GROUP, TOPIC, WIDE
from tests.support.rocketmq_v2_client import V2, message, message_id, named, receive

BATCH: Final = 500
"""maxSendMessages."""
NEVER: Final = " and ".join(f"p{number} is not null" for number in range(150))
"""No message has all of these properties."""
HOST_CHARS: Final = (ENDPOINTS_BYTES_MAX - 10) // ADDRESSES_MAX - 8
ENDPOINTS: Final = definition.Endpoints(
    scheme=definition.IPv4,
    addresses=[
        definition.Address(host=f"{number}".rjust(HOST_CHARS, "h"), port=8_081)
        for number in range(ADDRESSES_MAX)
    ],
)


def sends(broker: BrokerUnderTest, serial: int) -> service.SendMessageRequest:
    """As many messages, bytes, keys and properties as one call may have."""
    properties = {
        str(number): "v" * 20
        for number in range(min(USER_PROPERTIES_MAX, limits.PROPERTIES_MAX // BATCH))
    }
    keys = [f"k{number}".ljust(60, "k") for number in range(limits.KEYS_MAX // BATCH)]
    body = bytes(broker.config.send_bytes_max // BATCH)
    made = [
        message(f"{serial}-{number}", topic=TOPIC, body=body, keys=keys, tag="t" * 100)
        for number in range(BATCH)
    ]
    for each in made:
        each.user_properties.update(properties)
    return service.SendMessageRequest(messages=made)


def settings_of(
    topics: int, text: str = "a || b || c", kind: definition.FilterType = definition.TAG
) -> service.TelemetryCommand:
    """A consumer with so many subscriptions."""
    expression = definition.FilterExpression(type=kind, expression=text)
    entries = [
        definition.SubscriptionEntry(topic=named(f"topic-{number:05}"), expression=expression)
        for number in range(topics)
    ]
    return service.TelemetryCommand(
        settings=definition.Settings(
            client_type=definition.PUSH_CONSUMER,
            access_point=ENDPOINTS,
            subscription=definition.Subscription(group=named(GROUP), subscriptions=entries),
        )
    )


def producer(topics: int) -> service.TelemetryCommand:
    return service.TelemetryCommand(
        settings=definition.Settings(
            client_type=definition.PRODUCER,
            publishing=definition.Publishing(
                topics=[named(f"topic-{number:05}") for number in range(topics)]
            ),
        )
    )


def telemetry(_: BrokerUnderTest, serial: int) -> service.TelemetryCommand:
    """Of a producer, of a consumer, and of one with expressions in SQL92, in turn."""
    expression = f"p{serial} = 1 and {NEVER}"[: limits.SQL_BYTES_MAX]
    return (
        producer(TOPICS_MAX),
        settings_of(limits.SUBSCRIPTIONS_MAX, f"a || b{serial}"),
        settings_of(
            limits.SUBSCRIPTIONS_SQL_BYTES_MAX // len(expression), expression, definition.SQL
        ),
    )[serial % 3]


def receives(_: BrokerUnderTest, serial: int) -> service.ReceiveMessageRequest:
    """All messages, and none of all in turn."""
    sql = definition.FilterExpression(type=definition.SQL, expression=NEVER)
    about: dict[str, Any] = {"filter_expression": sql} if serial % 2 else {}
    return receive(topic=TOPIC, group=f"receivers-{serial % 2}", **about)


def acks(_: BrokerUnderTest, serial: int) -> service.AckMessageRequest:
    entries = [
        service.AckMessageEntry(
            message_id=message_id(f"{serial}-{number}"),
            # Texts of the right length, of which none is a handle of this broker.
            receipt_handle=f"{number:06}".ljust(44, "A"),
        )
        for number in range(ACKS_MAX)
    ]
    return service.AckMessageRequest(group=named(GROUP), topic=named(TOPIC), entries=entries)


def queue(number: int = 0) -> definition.MessageQueue:
    return definition.MessageQueue(topic=named(TOPIC), id=number)


def _changes(_: BrokerUnderTest, serial: int) -> service.ChangeInvisibleDurationRequest:
    return service.ChangeInvisibleDurationRequest(
        group=named(GROUP),
        topic=named(TOPIC),
        receipt_handle="A" * 1_000,
        invisible_duration=Duration(seconds=serial),
    )


KINDS: Final = {rpcs.TELEMETRY: 3, rpcs.RECEIVE_MESSAGE: 2}
"""Of so many kinds are these calls, in turn."""
REQUESTS: Final[dict[RocketmqRpc[Any, Any], Callable[[BrokerUnderTest, int], Any]]] = {
    rpcs.QUERY_ROUTE: lambda *_: service.QueryRouteRequest(topic=named(WIDE), endpoints=ENDPOINTS),
    rpcs.QUERY_ASSIGNMENT: lambda *_: service.QueryAssignmentRequest(
        topic=named(WIDE), group=named(GROUP), endpoints=ENDPOINTS
    ),
    rpcs.HEARTBEAT: lambda *_: service.HeartbeatRequest(
        group=named(GROUP), client_type=definition.PUSH_CONSUMER
    ),
    rpcs.SEND_MESSAGE: sends,
    rpcs.RECEIVE_MESSAGE: receives,
    rpcs.ACK_MESSAGE: acks,
    rpcs.CHANGE_INVISIBLE: _changes,
    rpcs.FORWARD_MESSAGE: lambda *_: service.ForwardMessageToDeadLetterQueueRequest(
        group=named(GROUP), topic=named(TOPIC), receipt_handle="A" * 1_000
    ),
    rpcs.PULL_MESSAGE: lambda *_: service.PullMessageRequest(
        group=named(GROUP), message_queue=queue(), batch_size=32
    ),
    rpcs.UPDATE_OFFSET: lambda *_: service.UpdateOffsetRequest(
        group=named(GROUP), message_queue=queue(), offset=1
    ),
    rpcs.GET_OFFSET: lambda *_: service.GetOffsetRequest(group=named(GROUP), message_queue=queue()),
    rpcs.QUERY_OFFSET: lambda *_: service.QueryOffsetRequest(
        message_queue=queue(), query_offset_policy=definition.TIMESTAMP
    ),
    rpcs.END_TRANSACTION: lambda *_: service.EndTransactionRequest(
        topic=named(TOPIC),
        message_id="x",
        transaction_id="0-0",
        resolution=definition.COMMIT,
        trace_context="x" * 4_000,
    ),
    rpcs.TELEMETRY: telemetry,
    rpcs.NOTIFY_TERMINATION: lambda *_: service.NotifyClientTerminationRequest(
        group=named("receivers-0")
    ),
    rpcs.RECALL_MESSAGE: lambda *_: service.RecallMessageRequest(
        topic=named(TOPIC), recall_handle="A" * 1_000
    ),
    rpcs.SYNC_LITE_SUBSCRIPTION: lambda *_: service.SyncLiteSubscriptionRequest(
        lite_topic_set=[f"lite-{number}" for number in range(2_000)]
    ),
}


async def before(v2: V2, rpc: RocketmqRpc[Any, Any]) -> None:
    """Bring the client where its call is longest."""
    if rpc is rpcs.HEARTBEAT:
        call = v2.telemetry()
        call.put(settings_of(limits.SUBSCRIPTIONS_MAX))
        await call.next()
    elif rpc is rpcs.NOTIFY_TERMINATION:
        for _ in range(32):
            await v2.received(topic=TOPIC, group="receivers-0")


async def ask(v2: V2, rpc: RocketmqRpc[Any, Any], data: bytes) -> list[Any]:
    """Its answers."""
    if rpc is not rpcs.TELEMETRY:
        return await v2.answers(rpc, data, left_s=0.5)
    call = v2.telemetry()
    call.put(data)
    call.done_writing()
    await call.call
    return list(call.frames)
