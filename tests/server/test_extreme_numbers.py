"""Every number that a client chooses, at both ends of what its field can carry.

A number that the broker adds to, packs or compares must not overflow anywhere: the call is done or
refused with a sentence, and what it stored is pulled, failed and redriven like any other message.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from rmqlite.features.dead_letters.listing import DeadLetters
from rmqlite.features.dead_letters.requests import LIST_DEAD_LETTERS, DeadLettersQuery
from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.rows import Row
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.requests.groups import GroupChange
from rmqlite.kernel.requests.messages import PullRequest, SendBackRequest
from rmqlite.kernel.sends.calls import DraftCall
from rmqlite.kernel.words.message import (
    DELIVERY_ATTEMPTS,
    FAILURE_REASON,
    MAX_RECONSUME_TIMES,
    REDRIVEN_TIMES,
    RETRY_TOPIC,
    Message,
    encode_properties,
)
from rmqlite.kernel.words.names import dlq_topic, retry_topic
from rmqlite.protocols.grpc.calls import everybody
from rmqlite.protocols.grpc.in_flight import InFlight
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.limits import all_rows
from rmqlite.protocols.native.bytes.messages import PulledRecords
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.native.table import handlers_of, methods_of
from rmqlite.protocols.remoting.bytes.batch import BatchItem, read_batch, write_batch
from rmqlite.protocols.remoting.bytes.requests import ANSWERED, NAMES
from rmqlite.protocols.remoting.bytes.requests.request import Party, RemotingRequest
from tests.support.brokers import BrokerUnderTest, decoded
from tests.support.calls import ask
from tests.support.forms import same_in_both
from tests.support.messages import TOPIC, create_topic
from tests.support.redrives import GROUP, start
from tests.support.remoting import ProtocolUnderTest, served_protocol
from tests.support.sends import BORN_HOST
from tests.support.services import Served, served
from tests.support.steps import done

INT32_MAX: Final = 2**31 - 1
CODES: Final = [
    row
    for row in ANSWERED.values()
    if row.asked != (Party.CLIENT,) and any(each.kind[0] == "i" for each in row.fields.columns)
]
TEXTS: Final = {"topic": TOPIC, "group": GROUP, "job_id": "job", "expression": "*", "body": "x"}
"""What a text of a request says, by a part of its name; all others are empty."""
_SIGNED: Final = {
    FieldDescriptor.TYPE_INT32: 32,
    FieldDescriptor.TYPE_INT64: 64,
    FieldDescriptor.TYPE_SINT32: 32,
    FieldDescriptor.TYPE_SINT64: 64,
}


def ends(bits: int) -> tuple[int, ...]:
    last = 1 << (bits - 1)
    return (-last, -1, 0, 1, last - 2, last - 1)


@contextmanager
def no_failure(broker: BrokerUnderTest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The broker logs no failure of its own."""
    caplog.set_level(logging.ERROR)
    create_topic(broker, TOPIC)
    broker.broker.groups.change(GroupChange(GROUP))
    broker.send(Message(TOPIC, b"x", keys=("key",)), Message(TOPIC, b"y", delay_level=18))
    yield
    assert not caplog.messages
    broker.close()


def text_of(name: str) -> str:
    return next((text for part, text in TEXTS.items() if part in name), "")


def ext_fields(row: RemotingRequest[Any, Any]) -> Iterator[dict[str, str]]:
    """In each request one number is at an end; in the last ones all of them are."""
    numbers = {each.wire: int(each.kind[1:]) for each in row.fields.columns if each.kind[0] == "i"}
    usual = dict.fromkeys(numbers, "0")
    usual |= {each.wire: text_of(each.name) for each in row.fields.columns if each.kind == "str"}
    for wire, bits in numbers.items():
        for number in ends(bits):
            yield usual | {wire: str(number)}
    for at in range(len(ends(32))):
        yield usual | {wire: str(ends(bits)[at]) for wire, bits in numbers.items()}


@pytest.mark.parametrize("row", CODES, ids=[NAMES[row.code] for row in CODES])
def test_no_number_of_a_remoting_request_makes_the_broker_fail(
    row: RemotingRequest[Any, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of ours is answered as "internal error", and a consumer repeats the call forever."""
    under_test = BrokerUnderTest(tmp_path)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            for ext in ext_fields(row):
                command = client.request(row.code, ext, b"x" if row.body else b"")
                # A transaction whose outcome is not known gets no answer; the next request does.
                client.send(command, client.request(-1))
                await client.answer(command.opaque + 1)
                answer = client.answers.pop(command.opaque, None)
                assert answer is None or "internal error" not in answer.remark, ext

    with no_failure(under_test, caplog):
        served_protocol(under_test, scenario, parked_polls_max=0)


def requests_of(kind: Descriptor) -> Iterator[bytes]:
    """In each request one number is at an end; in the last ones all of them are."""
    numbers = list(numbers_in(kind))
    for path, bits in numbers:
        for number in ends(bits):
            yield request_of(kind, {path: number})
    for at in range(len(ends(32))):
        yield request_of(kind, {path: ends(bits)[at] for path, bits in numbers})


def numbers_in(
    kind: Descriptor, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], int]]:
    """The paths of all numbers with a sign, and their bits."""
    for field in kind.fields:
        bits = _SIGNED.get(field.type)
        if bits:
            yield (*path, field.name), bits
        elif field.message_type is not None:
            yield from numbers_in(field.message_type, (*path, field.name))


def request_of(kind: Descriptor, numbers: dict[tuple[str, ...], int]) -> bytes:
    data: bytes = filled(GetMessageClass(kind)(), numbers, ()).SerializeToString()
    return data


def filled(made: Any, numbers: dict[tuple[str, ...], int], path: tuple[str, ...]) -> Any:
    for field in made.DESCRIPTOR.fields:
        place = (*path, field.name)
        if field.message_type is not None:
            if not field.message_type.GetOptions().map_entry:
                part = getattr(made, field.name)
                filled(part.add() if field.is_repeated else part, numbers, place)
            continue
        value: Any = numbers.get(place)
        if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            text = text_of(field.name)
            value = text if field.type == FieldDescriptor.TYPE_STRING else text.encode()
        if value is None or (field.containing_oneof and not value):
            continue
        if field.is_repeated:
            getattr(made, field.name).append(value)
        else:
            setattr(made, field.name, value)
    return made


NATIVE: Final = [rpc for rpc in all_rows() if any(True for _ in numbers_in(rpc_of(rpc).request))]


@pytest.mark.parametrize("rpc", NATIVE, ids=[rpc.name for rpc in NATIVE])
def test_no_number_of_a_grpc_request_makes_the_broker_fail(
    rpc: Row[Any, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """protobuf carries any number of its field's width."""
    under_test = BrokerUnderTest(tmp_path)

    async def scenario(server: Served, _: object) -> None:
        config = server.config
        room = InFlight(10 << 20, 1 << 20)
        handlers = handlers_of(methods_of(server.service), room, config, everybody)
        for data in requests_of(rpc_of(rpc).request):
            context = await ask(handlers, rpc.path, data)
            assert context.code is not grpc.StatusCode.INTERNAL, context.details

    with no_failure(under_test, caplog):
        served(under_test, scenario)


def drafts_of(number: int, topic: str) -> Iterator[DraftCall]:
    """A message of its own, and a batch, all of whose numbers are this one."""
    properties = encode_properties({MAX_RECONSUME_TIMES: str(number), REDRIVEN_TIMES: str(number)})
    shared = Draft(
        topic,
        0,
        properties,
        b"x",
        number << 32,
        BORN_HOST,
        number,
        # The bits that say how a body is to be read have a test of their own.
        number & ~0xFF,
        number,
    )
    yield DraftCall((shared,), number)
    body = write_batch([BatchItem(number, b"x", b""), BatchItem(number, b"y", b"")])
    yield DraftCall((shared._replace(body=body, spans=read_batch(body)),), number)


@pytest.mark.parametrize("topic", [TOPIC, retry_topic(GROUP)])
@pytest.mark.parametrize("number", ends(32))
def test_a_message_with_extreme_numbers_is_failed_and_redriven_like_any_other(
    number: int, topic: str
) -> None:
    """reconsumeTimes + 1 did not fit: the queue of such a message stood still for good."""

    def scenario(broker: BrokerUnderTest) -> list[Any]:
        broker.broker.groups.change(GroupChange(GROUP, max_reconsume_times=3))
        broker.broker.topics.ensure(retry_topic(GROUP), 1)
        outcomes = done(broker.broker.drafts.send([*drafts_of(number, topic)]))
        broker.sync()
        for outcome in outcomes:
            assert not isinstance(outcome, Exception)
            for physical_offset in outcome.physical_offsets:
                request = SendBackRequest(GROUP, physical_offset, reason="no")
                assert 1 <= broker.broker.send_back(request).reconsume_times <= INT32_MAX
                dead = broker.broker.send_back(SendBackRequest(GROUP, physical_offset, -1, "no"))
                assert dead.is_dead
        broker.sync()
        page = done(broker.broker[DeadLetters].pages(DeadLettersQuery(GROUP)))
        attempts = [letter.delivery_attempts for letter in page.letters]
        assert len(attempts) >= 3
        assert all(0 <= each <= INT32_MAX for each in attempts)
        rpc_of(LIST_DEAD_LETTERS).encode_response(page)
        start(broker, "again")
        while broker.broker[Redrive].step("again").looked_at < len(attempts):
            pass
        broker.sync()
        pulled = done(broker.broker.pull(PullRequest(GROUP, TOPIC, 0, 0)))
        bounds = (pulled.status, pulled.next_offset, pulled.min_offset, pulled.max_offset)
        rpc: Row[Any, Any] = rpcs.PULL
        data = rpc_of(rpc).encode_response(PulledRecords(*bounds, pulled.records.encoded))
        assert rpc_of(rpc).decode_response(data) == decoded(pulled)
        return attempts

    same_in_both(scenario)


@pytest.mark.parametrize("times", [INT32_MAX - 1, INT32_MAX])
def test_a_sender_may_begin_with_a_count(tmp_path: Path, times: int) -> None:
    """As in RocketMQ: beyond the limit, the first failure makes a dead letter."""
    broker = BrokerUnderTest(tmp_path)
    create_topic(broker, TOPIC, queues=1)
    draft = Draft(TOPIC, 0, b"", b"x", 0, BORN_HOST, reconsume_times=times)
    (outcome,) = done(broker.broker.drafts.send([DraftCall((draft,))]))
    assert not isinstance(outcome, Exception)
    broker.sync()
    broker.broker.send_back(SendBackRequest(GROUP, outcome.physical_offsets[0], reason="no"))
    broker.sync()
    (letter,) = broker.messages(dlq_topic(GROUP))
    assert letter.reconsume_times == INT32_MAX
    assert letter.properties[FAILURE_REASON] == "no"
    broker.close()


def test_a_count_stays_at_the_largest_number(tmp_path: Path) -> None:
    """It never begins again at 1: then its message would be tried again from the start."""
    broker = BrokerUnderTest(tmp_path)
    create_topic(broker, TOPIC, queues=1)
    create_topic(broker, retry_topic(GROUP), queues=1)
    properties = encode_properties({RETRY_TOPIC: TOPIC, REDRIVEN_TIMES: str(INT32_MAX)})
    times = INT32_MAX - 1
    draft = Draft(retry_topic(GROUP), 0, properties, b"x", 0, BORN_HOST, reconsume_times=times)
    done(broker.broker.drafts.send([DraftCall((draft,), INT32_MAX)]))
    for _ in range(2):
        broker.sync()
        failed = broker.messages(retry_topic(GROUP))[-1].physical_offset
        back = SendBackRequest(GROUP, failed, 1, "no", max_reconsume_times=INT32_MAX)
        assert broker.broker.send_back(back).reconsume_times == INT32_MAX
        broker.clock.forward(1_000)
        broker.deliver()
    (letter,) = broker.messages(dlq_topic(GROUP))
    assert letter.reconsume_times == INT32_MAX
    assert letter.properties[DELIVERY_ATTEMPTS] == str(INT32_MAX)
    start(broker, "again")
    broker.broker[Redrive].step("again")
    broker.sync()
    redriven = [*broker.messages(TOPIC), *broker.messages(retry_topic(GROUP))][-1]
    assert redriven.properties[REDRIVEN_TIMES] == str(INT32_MAX)
    broker.close()


def test_a_consumers_own_send_behind_the_largest_number_is_a_dead_letter(tmp_path: Path) -> None:
    """Java adds 1 to the largest number and sends the smallest: no limit would ever end that."""
    broker = BrokerUnderTest(tmp_path)
    broker.broker.topics.ensure(retry_topic(GROUP), 1)
    draft = Draft(retry_topic(GROUP), 0, b"", b"x", 0, BORN_HOST, reconsume_times=-INT32_MAX - 1)
    done(broker.broker.drafts.send([DraftCall((draft,), INT32_MAX)]))
    broker.sync()
    assert [each.reconsume_times for each in broker.messages(dlq_topic(GROUP))] == [INT32_MAX]
    broker.close()
