"""Sends and pulls of rmqlite.v1 by the compiled form, beside their plain twins.

Without a C compiler there is only the plain form, and nothing to compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from rmqlite import compiled
from rmqlite.broker.sends.draft_records import DraftCall
from rmqlite.config import BrokerConfig
from rmqlite.declared_types.deliver_times import INSTANT_MS_MAX, INSTANT_MS_MIN
from rmqlite.errors import RmqliteError
from rmqlite.levels import DELAY_MS_MAX
from rmqlite.message import Message, decode_properties, message_properties
from rmqlite.names import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqlite.records.drafts import Draft, DraftBatch
from rmqlite.requests.messages import PullRequest, PullResult, SendBatch, SendRequest
from rmqlite.server.protocols.native.calls import handlers_of
from rmqlite.server.protocols.native.conversion import Conversion
from rmqlite.server.protocols.native.guard import everybody
from rmqlite.server.protocols.native.in_flight import InFlight
from rmqlite.server.protocols.native.table import methods_of
from rmqlite.wire import native, rpcs
from rmqlite.wire.limits import RequestLimits
from rmqlite.wire.native_packed import ANSWER_BYTES_MAX, Encoded, PackedSends, encoded_pull
from rmqlite.wire.pb import rmqlite_pb2 as pb
from tests.support.brokers import BORN_HOST, BrokerUnderTest
from tests.support.calls import FakeContext, ask
from tests.support.clock import START_MS
from tests.support.forms import OTHER, damaged, needs_compiled, same_in_both
from tests.support.messages import TOPIC, create_topic
from tests.support.services import Served, served
from tests.support.steps import done

pytestmark = needs_compiled

CONFIG = BrokerConfig()
QUEUES = 4
TOPICS = (TOPIC,) * 12 + (OTHER, "made-on-demand", SCHEDULE_TOPIC, "")
ODD_TEXTS = ("", "a b", "\t", "Größe", "\x01", "x" * 300)


FAR_MS = START_MS + 3_000_000_001
TIMER_MAX_MS = CONFIG.timer_max_delay_s * 1_000
WAITS: tuple[tuple[dict[str, int], ...], ...] = (
    *[({},)] * 5,
    *[({"delay_level": 3},)] * 3,
    ({"delay_level": 99},),
    ({"delay_level": -1},),
    ({}, {"delay_level": 3}),
    *[({"deliver_at_ms": FAR_MS},)] * 2,
    *[({"deliver_after_ms": 5_000}, {"deliver_after_ms": 1}, {"deliver_after_ms": 9_000})] * 2,
    ({"deliver_at_ms": START_MS + 1}, {"deliver_at_ms": START_MS}, {"deliver_at_ms": 10**12}),
    ({"deliver_at_ms": FAR_MS}, {"deliver_after_ms": 5_000}),
    ({"deliver_after_ms": 5_000}, {}),
    ({}, {}, {"deliver_at_ms": FAR_MS}),
    ({"deliver_at_ms": FAR_MS}, {"delay_level": 3}),
    ({"deliver_at_ms": FAR_MS, "deliver_after_ms": 5_000},),
    ({"deliver_at_ms": FAR_MS, "delay_level": 3},),
    ({"deliver_at_ms": FAR_MS}, {"deliver_at_ms": INSTANT_MS_MAX}),
    ({"deliver_after_ms": TIMER_MAX_MS}, {"deliver_after_ms": TIMER_MAX_MS + 1}),
    *[({"deliver_at_ms": odd},) for odd in (-1, 1, INSTANT_MS_MIN - 1, INSTANT_MS_MAX + 1)],
    *[({"deliver_after_ms": odd},) for odd in (-1, DELAY_MS_MAX + 1, 2**63 - 1)],
)
"""For what the messages of a request wait, in turn; most are ordinary."""


def some_text(*usual: str) -> some.SearchStrategy[str]:
    return some.sampled_from(usual * 4 + ODD_TEXTS)


def sends(pairs_max: int) -> some.SearchStrategy[pb.SendRequest]:
    """Requests, most of which are ordinary."""
    names = some_text("colour", "DELAY", "Farbe", "TIMER_DELAY_MS")
    values = some_text("red", "rot ", "größer", "7000")
    message = some.fixed_dictionaries(
        {
            "topic": some.sampled_from(TOPICS),
            "body": some.sampled_from((b"x", b"order", b"x" * 700, b"x" * 700, b"")),
            "tags": some_text("", "TagA"),
            "keys": some.lists(some_text("order-1", "k"), max_size=3),
            "properties": some.dictionaries(names, values, max_size=pairs_max),
            "flag": some.sampled_from((0, 7, -1)),
            # The broker would make one at random.
            "message_id": some_text("7F00000100014E0B23A1", "id").filter(bool),
        },
        optional={
            "delay": some.sampled_from(("10s", "10s", "10s", "", "11s", "ten")),
            "max_reconsume_times": some.sampled_from((0, 3)),
        },
    )
    return some.builds(
        lambda messages, waits, **fields: pb.SendRequest(
            messages=[
                pb.OutgoingMessage(**each, **waits[at % len(waits)])
                for at, each in enumerate(messages)
            ],
            **fields,
        ),
        messages=some.lists(message, max_size=4),
        waits=some.sampled_from(WAITS),
        producer_group=some_text("", "order-service"),
        queue_id=some.sampled_from((-1, -1, 0, 3, 99, -2)),
        born_at_ms=some.sampled_from((1_795_317_592_790, 17, 17, 0, -1)),
    )


def ordinary(count: int = 3, **changes: Any) -> pb.SendRequest:
    messages = [
        Message(TOPIC, b"order", "TagA", f"order-{at} k", {"colour": "red"}, message_id=f"id-{at}")
        for at in range(count)
    ]
    plain = SendRequest(tuple(messages), "order-service", -1, 17)
    request: pb.SendRequest = native.send_request.to_pb(plain)
    for message in request.messages:
        for name, value in changes.items():
            setattr(message, name, value)
    return request


def in_turn(*waits: dict[str, int]) -> pb.SendRequest:
    """An ordinary request whose messages wait for these."""
    request = ordinary()
    for at, message in enumerate(request.messages):
        for name, value in waits[at % len(waits)].items():
            setattr(message, name, value)
    return request


def answers(under_test: BrokerUnderTest, requests: Sequence[bytes]) -> list[object]:
    """What a caller gets for these sends, and then for a pull of each queue of the topic."""
    told: list[object] = []

    async def scenario(server: Served, _: object) -> None:
        methods, conversion = methods_of(server.service), Conversion(server.config)
        handlers = handlers_of(methods, InFlight(1 << 30, 1 << 20), conversion, everybody)

        async def tell(path: str, answer: Any, request: bytes) -> None:
            context: FakeContext = await ask(handlers, path, request)
            if context.code.name == "OK":
                told.append(answer.FromString(context.answers[0]))
            else:
                told.append((type(context.error), str(context.error)))

        for request in requests:
            await tell(rpcs.SEND.path, pb.SendResponse, request)
        for topic in (TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC):
            for queue_id in range(QUEUES):
                pull = rpcs.PULL.encode_request(PullRequest("g", topic, queue_id, 0))
                await tell(rpcs.PULL.path, pb.PullResponse, pull)

    served(under_test, scenario)
    told.append(under_test.broker.counts.sent)
    told.append({level: dict(each) for level, each in under_test.store.progress.pending.items()})
    return told


@settings(max_examples=120)
@given(some.lists(sends(pairs_max=1), min_size=1, max_size=3))
@example([ordinary()])
@example([ordinary(delay_level=3), ordinary(delay_level=99)])
@example([ordinary(delay="10s", delay_level=1), ordinary(delay="11s")])
@example([in_turn(*waits) for waits in WAITS])
def test_both_forms_answer_alike_and_store_the_same_bytes(requests: list[pb.SendRequest]) -> None:
    """Whatever a client sends: results, refusals, the files, and what a pull returns."""
    data = [each.SerializeToString() for each in requests]
    same_in_both(lambda under_test: answers(under_test, data))


def test_what_is_ordinary_is_packed() -> None:
    """Otherwise all other tests here would compare the plain form with itself."""
    for changes in ({}, {"delay_level": 3}, {"delay": "1h"}, {"tags": ""}, {"flag": -1}):
        batch = PackedSends(CONFIG).read(ordinary(**changes).SerializeToString())
        assert batch is not None
        assert len(batch.message_ids) == 3
    read = [PackedSends(CONFIG).read(in_turn(*each).SerializeToString()) for each in WAITS]
    timers = [each for each in read if each and b"TIMER_D" in each.buffer]
    assert len(timers) == 8, "past instants and both kinds in one call are ordinary, too"


def test_a_call_of_the_face_is_packed(under_test: BrokerUnderTest) -> None:
    """From the bytes of the request to those of the answer."""
    create_topic(under_test, TOPIC)

    async def scenario(server: Served, _: object) -> None:
        methods, conversion = methods_of(server.service), Conversion(server.config)
        context: Any = FakeContext()
        instants = in_turn(
            {"deliver_at_ms": FAR_MS}, {"deliver_after_ms": 7}, {"deliver_at_ms": FAR_MS}
        )
        for request in (ordinary(), ordinary(delay_level=3), instants):
            batch = await conversion.read(rpcs.SEND, request.SerializeToString())
            assert isinstance(batch, SendBatch)
            assert isinstance(await methods[rpcs.SEND](batch, context), Encoded)
        for queue_id in range(QUEUES):
            pulled = await methods[rpcs.PULL](PullRequest("g", TOPIC, queue_id, 0), context)
            assert isinstance(pulled, Encoded)

    served(under_test, scenario)
    assert under_test.broker.counts.sent == 9


# ---- requests

TOKENS = some.sampled_from(("", "a", "Größe", "x" * 200))
MESSAGES = some.builds(
    lambda topic, delayed, **fields: Message(topic, **fields, **delayed),
    topic=TOKENS,
    body=some.sampled_from((b"x", b"x" * 20_000)),
    tags=TOKENS,
    keys=some.lists(TOKENS.filter(bool), max_size=3),
    properties=some.dictionaries(TOKENS.filter(bool), TOKENS.filter(bool)),
    delayed=some.sampled_from(
        (
            *({}, {"delay": "10m"}, {"delay_level": 3}, {"delay_level": -(2**31)}),
            *({"deliver_at": INSTANT_MS_MIN}, {"deliver_at": INSTANT_MS_MAX}),
            *({"deliver_after": "1ms"}, {"deliver_after": timedelta(milliseconds=DELAY_MS_MAX)}),
        )
    ),
    flag=some.sampled_from((0, 1, -1, 2**31 - 1)),
    message_id=TOKENS,
    max_reconsume_times=some.sampled_from((None, 0, 16)),
)


@settings(max_examples=300)
@given(
    some.lists(MESSAGES, max_size=4).map(tuple),
    TOKENS,
    some.sampled_from((-1, 0, 7)),
    some.sampled_from((0, 17, -(2**63))),
)
def test_a_request_is_written_alike(
    messages: tuple[Message, ...], group: str, queue_id: int, born_at_ms: int
) -> None:
    """By the clients, whose calls are written by the compiled form, too."""
    request = SendRequest(messages, group, queue_id, born_at_ms)
    assert pb.SendRequest.FromString(native.send_bytes(request)) == native.send_request.to_pb(
        request
    )
    written = compiled.loops.write_sends(messages, group, queue_id, born_at_ms)
    assert written == native.send_bytes(request)


def test_a_message_that_no_request_can_carry_is_refused_by_the_plain_form() -> None:
    """It says what is wrong."""
    good: Any = Message("orders", b"x")
    for name, odd in (
        ("topic", "\ud800"),
        ("body", "x"),
        ("keys", (1,)),
        ("properties", {"a": 1}),
        ("delay_level", 2**31),
        ("flag", "1"),
        ("max_reconsume_times", -(2**40)),
    ):
        message = good.named("id")
        object.__setattr__(message, name, odd)
        assert compiled.loops.write_sends((good, message), "g", 0, 0) is None
        with pytest.raises((TypeError, ValueError)):
            rpcs.SEND.encode_request(SendRequest((good, message)))


def plainly(data: bytes) -> SendRequest | RmqliteError:
    """The request, or the plain form's refusal."""
    try:
        RequestLimits(CONFIG).check(rpcs.SEND, data)
        return rpcs.SEND.decode_request(data)
    except RmqliteError as error:
        return error


def check_read(data: bytes) -> SendBatch | None:
    """Whatever the compiled form reads in these bytes is what the plain form reads."""
    batch = PackedSends(CONFIG).read(data)
    if batch is None:
        return None
    request = plainly(data)
    assert isinstance(request, SendRequest), request
    assert batch.plain() == request
    assert (batch.queue_id, batch.born_at_ms) == (request.queue_id, request.born_at_ms)
    shared = Draft(batch.topic, batch.queue_id, b"", batch.buffer, batch.born_at_ms, BORN_HOST)
    drafts = DraftBatch(shared, batch.spans)
    assert len(drafts) == len(batch.message_ids)
    for draft, message_id, message in zip(drafts, batch.message_ids, request.messages, strict=True):
        assert (draft.topic, draft.body, draft.flag) == (
            message.topic,
            message.body,
            message.flag,
        )
        assert (message_id, batch.delay or None) == (message.message_id, message.delay)
        assert batch.delay or batch.delay_level == message.delay_level
        assert message.max_reconsume_times is None
        assert decode_properties(draft.properties) == message_properties(message)
    return batch


@settings(max_examples=400)
@given(sends(pairs_max=3))
def test_a_request_is_read_alike(request: pb.SendRequest) -> None:
    """Or left to the plain form."""
    check_read(request.SerializeToString())


def test_damaged_requests_are_left_to_the_plain_form() -> None:
    """Or they are requests still, and read alike."""
    random = Random(1)
    instants = in_turn({"deliver_at_ms": FAR_MS}, {"deliver_after_ms": 5_000})
    for request in (ordinary(delay_level=3), instants):
        data = request.SerializeToString()
        read = 0
        for _ in range(4_000):
            read += check_read(damaged(data, random)) is not None
        for end in range(len(data)):
            check_read(data[:end])
        assert read


@pytest.mark.parametrize(
    "odd",
    [
        ordinary(count=501),
        ordinary(body=bytes((1 << 20) + 1)),
        ordinary(count=251),
        ordinary(tags="x" * 1_025),
        pb.SendRequest(),
        pb.SendRequest(messages=[pb.OutgoingMessage(topic=TOPIC, body=b"x")] * 2, born_at_ms=1),
    ],
    ids=["many messages", "long", "many keys", "long tag", "no message", "no id"],
)
def test_more_than_an_ordinary_request_has_is_left_to_the_plain_form(odd: pb.SendRequest) -> None:
    """All limits that a broker has are the plain form's."""
    assert PackedSends(CONFIG).read(odd.SerializeToString()) is None


# ---- records


def kept(records: Sequence[bytes]) -> list[pb.KeptMessage] | None:
    pulled = rpcs.PULL.decode_response(pb.PullResponse(next_offset=7).SerializeToString())
    encoded = encoded_pull(pulled, len(records), b"".join(records))
    if encoded is None:
        return None
    response = pb.PullResponse.FromString(encoded.data)
    assert response.next_offset == 7
    return list(response.messages)


def records_of(under_test: BrokerUnderTest) -> list[Any]:
    """Records with properties and flags of any kind."""
    strings = (
        b"",
        b"TAGS\x01TagA\x02KEYS\x01k",
        b"a\x01\x02\x01b\x02\x02c\x01d\x01e\x02a\x01f\x02",
        "Größe\x01größer".encode(),
        b"bad\x01\xff",
        b"x\x01" + b"y" * 20_000,
    )
    drafts = [
        Draft(TOPIC, 1, string, b"x" * size, -1, host, flag, flag & 0x304, flag)
        for string in strings
        for size, host, flag in ((1, BORN_HOST, 0), (3_000, BORN_HOST, -1), (2, bytes(20), 9))
    ]
    create_topic(under_test, TOPIC)
    done(under_test.broker.drafts.send([DraftCall((draft,)) for draft in drafts]))
    queue = under_test.store.queue(TOPIC, 1)
    assert queue is not None
    return [record for record in under_test.store.read_records(list(queue.read(0, 100))) if record]


def test_records_are_written_alike(under_test: BrokerUnderTest) -> None:
    """Each field, and each property; what is out of the ordinary is left to the plain form."""
    packed = 0
    for record in records_of(under_test):
        messages = kept([record.encoded])
        assert messages in (None, [native.stored_to_pb(record.to_message())])
        packed += messages is not None
    assert packed >= 10
    assert kept([]) == []


def test_a_long_answer_is_left_to_the_plain_form(under_test: BrokerUnderTest) -> None:
    """That one writes it in turns."""
    create_topic(under_test, TOPIC)
    body = b"x" * (ANSWER_BYTES_MAX // 4)
    under_test.send(*[Message(TOPIC, body, message_id=f"id-{at}") for at in range(4)], queue_id=0)

    async def scenario(server: Served, _: object) -> None:
        pull = methods_of(server.service)[rpcs.PULL]
        for count, form in ((3, Encoded), (4, PullResult)):
            request = PullRequest("g", TOPIC, 0, 0, max_messages=count, max_bytes=0x200000)
            assert type(await pull(request, cast(Any, FakeContext()))) is form

    served(under_test, scenario)


def test_damaged_records_are_left_to_the_plain_form(under_test: BrokerUnderTest) -> None:
    """Or written as some message."""
    random = Random(2)
    for record in records_of(under_test):
        whole = record.encoded
        for _ in range(200):
            damaged = bytearray(whole)
            damaged[random.randrange(min(len(damaged), 130))] = random.randrange(256)
            end = random.choice((len(damaged), random.randrange(len(damaged))))
            kept([bytes(damaged[:end])])
