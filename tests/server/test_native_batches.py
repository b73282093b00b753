"""Messages of rmqlite.v1 as bytes: sent as batches, pulled as records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.record import to_message
from rmqlite.kernel.requests.messages import PullRequest
from rmqlite.kernel.sends.calls import DraftCall
from rmqlite.kernel.words.errors import InvalidValue, MessageTooLarge, RmqliteError
from rmqlite.kernel.words.message import DELAY, Message, encode_properties
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.limits import native_limits
from rmqlite.protocols.native.bytes.messages import EncodedBatch, PullResult, SendRequest
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.native.table import methods_of
from rmqlite.protocols.remoting.bytes.batch import message_properties, write_messages
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import FakeContext
from tests.support.forms import OTHER, bytes_in, damaged
from tests.support.messages import TOPIC, create_topic
from tests.support.sends import BORN_HOST, encoded_of
from tests.support.services import Served, served

LIMITS = native_limits(BrokerConfig())
WAITS: tuple[dict[str, Any], ...] = (
    *[{}] * 4,
    *[{"delay_level": 3}] * 2,
    {"delay_level": 99},
    {"delay_level": -1},
    {"delay": "10s"},
    {"delay": "11s"},
    {"deliver_after": "5s"},
    {"deliver_after": "9000h"},
    {"deliver_at": 1_000_000_000_000},
)
MESSAGES = some.lists(
    some.builds(
        lambda wait, **fields: Message(**fields, **wait),
        topic=some.sampled_from((TOPIC,) * 6 + (OTHER,)),
        body=some.sampled_from((b"x", b"order", b"x" * 700)),
        tags=some.sampled_from(("", "TagA", "Größe")),
        keys=some.lists(some.sampled_from(("order-1", "k")), max_size=2),
        properties=some.dictionaries(
            some.sampled_from(("colour", "Farbe")), some.sampled_from(("red", "größer")), max_size=1
        ),
        flag=some.sampled_from((0, 7, -1)),
        message_id=some.sampled_from(("7F00000100014E0B23A1", "id")),
        max_reconsume_times=some.sampled_from((None, None, 0, 3)),
        wait=some.sampled_from(WAITS),
    ),
    min_size=1,
    max_size=5,
)


def as_single_drafts(messages: tuple[Message, ...]) -> DraftCall:
    """The same call as RocketMQ's clients would send its messages one by one."""
    drafts: list[Draft] = []
    for message in messages:
        pairs = message_properties(message, message.message_id)
        if message.delay_level > 0 and message.delay is None:
            pairs[DELAY] = str(message.delay_level)
        delay = "" if message.delay is None else str(message.delay)
        draft = Draft(message.topic, 1, encode_properties(pairs), message.body, 17, BORN_HOST)
        drafts.append(draft._replace(flag=message.flag, delay=delay))
    return DraftCall(drafts)


def results_of(
    under_test: BrokerUnderTest, messages: tuple[Message, ...], *, as_batches: bool
) -> tuple[list[int], ...] | str:
    """Places and due times, through the bytes of request and answer; or the refusal."""
    found: list[tuple[list[int], ...] | str] = []

    async def scenario(server: Served, _: object) -> None:
        send = methods_of(server.service)[rpcs.SEND]
        try:
            if as_batches:
                sent = encoded_of(messages, 1, group="g", born_at_ms=17)
                data = rpc_of(rpcs.SEND).encode_request(sent.request)
                LIMITS.check(rpcs.SEND, data)
                context = cast(Any, FakeContext())
                answer = await send(rpc_of(rpcs.SEND).decode_request(data), context)
                results = sent.results(
                    rpc_of(rpcs.SEND).decode_response(rpc_of(rpcs.SEND).encode_response(answer))
                )
                found.append(
                    (
                        [each.queue_offset for each in results],
                        [each.deliver_at_ms for each in results],
                    )
                )
            else:
                stored = await server.service.messages.send(as_single_drafts(messages))
                found.append(([*stored.queue_offsets], [*stored.due_ms]))
        except RmqliteError as error:
            found.append(f"{type(error).__name__}: {error}")

    served(under_test, scenario)
    return found[0]


@settings(max_examples=40)
@given(MESSAGES)
def test_batches_are_stored_as_messages_are(messages: list[Message]) -> None:
    """With the same answers; and, if it is one batch, as the same bytes.

    One property at most: a map of protobuf has no order.
    """
    is_one = len({(each.topic, each.delay) for each in messages}) == 1
    answers: list[object] = []
    stores: list[dict[str, str]] = []
    for as_batches in (True, False):
        with TemporaryDirectory() as folder:
            broker = BrokerUnderTest(Path(folder))
            create_topic(broker, TOPIC)
            create_topic(broker, OTHER)
            found = results_of(broker, tuple(messages), as_batches=as_batches)
            # Batches are stored one behind the other.
            answers.append(found if is_one or isinstance(found, str) else found[1])
            broker.close()
            stores.append(bytes_in(Path(folder)))
    assert answers[0] == answers[1]
    if is_one:
        assert stores[0] == stores[1]


def send(under_test: BrokerUnderTest, *batches: EncodedBatch) -> list[object]:
    """The answer to a request, or its refusal."""
    found: list[object] = []

    async def scenario(server: Served, _: object) -> None:
        request = SendRequest("g", 0, 17, batches)
        try:
            answer = await methods_of(server.service)[rpcs.SEND](request, cast(Any, FakeContext()))
            found.append(answer)
        except RmqliteError as error:
            found.append(error)

    served(under_test, scenario)
    return found


def batch_of(*messages: Message) -> bytes:
    return write_messages(messages)


def test_a_damaged_batch_is_refused_or_stored_whole(under_test: BrokerUnderTest) -> None:
    """Whatever the bytes are, nothing else fails."""
    create_topic(under_test, TOPIC)
    good = batch_of(*[Message(TOPIC, b"x", keys=f"k{n}", message_id=f"{n}") for n in range(3)])
    random, found = Random(1), []

    async def scenario(server: Served, _: object) -> None:
        call = methods_of(server.service)[rpcs.SEND]
        for _number in range(300):
            batch = EncodedBatch(TOPIC, "", damaged(good, random))
            try:
                await call(SendRequest("g", 0, 17, (batch,)), cast(Any, FakeContext()))
            except RmqliteError as error:
                found.append(error)

    served(under_test, scenario)
    assert found
    queue = under_test.store.queue(TOPIC, 0)
    assert queue is not None


def test_the_messages_of_all_batches_are_counted(under_test: BrokerUnderTest) -> None:
    """A call has no more of them than maxSendMessages, and at least one."""
    create_topic(under_test, TOPIC)
    most = under_test.config.send_messages_max
    half = EncodedBatch(TOPIC, "", batch_of(*[Message(TOPIC, b"x")] * (most // 2)))
    one = EncodedBatch(TOPIC, "", batch_of(Message(TOPIC, b"x")))
    (error,) = send(under_test, half, half, one)
    assert isinstance(error, MessageTooLarge)
    assert "maxSendMessages" in str(error)
    (error,) = send(under_test, EncodedBatch(TOPIC, "", b""))
    assert isinstance(error, InvalidValue)


def test_all_batches_are_stored_or_none(under_test: BrokerUnderTest) -> None:
    """One whose delay is no level refuses the others."""
    create_topic(under_test, TOPIC)
    good = EncodedBatch(TOPIC, "", batch_of(Message(TOPIC, b"x")))
    for odd in (EncodedBatch(TOPIC, "11s", good.messages), EncodedBatch("a b", "", good.messages)):
        (error,) = send(under_test, good, odd)
        assert isinstance(error, RmqliteError)
    assert under_test.store.queue(TOPIC, 0) is None


@pytest.mark.parametrize("expression", ["*", "TagA"])
def test_a_client_makes_of_records_what_the_log_has(
    under_test: BrokerUnderTest, expression: str
) -> None:
    """Whether they were found whole, or one by one."""
    create_topic(under_test, TOPIC)
    odd: Sequence[Message] = [
        Message(TOPIC, b"x" * (at + 1), "TagA", f"k{at}", {"Farbe": "größer"}, delay_level=-1)
        for at in range(5)
    ]
    sent = under_test.send(*odd, queue_id=0)
    pulled: list[PullResult] = []

    async def scenario(server: Served, _: object) -> None:
        pull = methods_of(server.service)[rpcs.PULL]
        request = PullRequest("g", TOPIC, 0, 0, expression)
        data = rpc_of(rpcs.PULL).encode_response(await pull(request, cast(Any, FakeContext())))
        pulled.append(rpc_of(rpcs.PULL).decode_response(data))

    served(under_test, scenario)
    (found,) = pulled
    records = [under_test.store.read_record(each.physical_offset) for each in sent]
    assert list(found.messages) == [to_message(each.head, each.buffer) for each in records]
