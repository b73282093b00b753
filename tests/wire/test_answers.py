"""Answers of rmqlite.v1 in a client: the compiled form beside its plain twin."""

from __future__ import annotations

from dataclasses import fields
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rmqlite import compiled
from rmqlite.errors import InvalidValue
from rmqlite.message import StoredMessage
from rmqlite.requests.messages import PullResult, SendResult, SentBatch
from rmqlite.wire import native, rpcs
from rmqlite.wire.codec import read
from rmqlite.wire.native_packed import encoded_sent
from rmqlite.wire.pb import rmqlite_pb2 as pb
from tests.support.forms import damaged, needs_compiled

pytestmark = needs_compiled
T = TypeVar("T")

TEXTS = some.sampled_from(("", "orders", "Größe", "a\0b", "x" * 300))
INT32S = some.sampled_from((0, 1, -1, 2**31 - 1, -(2**31)))
INT64S = some.sampled_from((0, 17, -1, 2**63 - 1, -(2**63)))
MESSAGES = some.builds(
    pb.KeptMessage,
    topic=TEXTS,
    body=some.sampled_from((b"", b"x", b"\xff" * 3_000)),
    properties=some.dictionaries(TEXTS, TEXTS, max_size=12),
    born_host=TEXTS,
    store_host=TEXTS,
    **dict.fromkeys(("queue_id", "store_size", "flag", "sys_flag", "reconsume_times"), INT32S),
    **dict.fromkeys(("queue_offset", "physical_offset", "born_timestamp_ms"), INT64S),
    **dict.fromkeys(("store_timestamp_ms", "prepared_transaction_offset"), INT64S),
)
ORDINARY = pb.PullResponse(
    next_offset=2,
    max_offset=300,
    messages=[
        pb.KeptMessage(
            topic="orders",
            queue_offset=offset,
            body=b"order",
            properties={"TAGS": "TagA", "UNIQ_KEY": f"7F-{offset}", "k": "größer"},
            born_host="10.0.0.1:1234",
            store_host="10.0.0.2:10911",
        )
        for offset in range(2)
    ],
)


SENT = pb.SendResponse(
    topics=["orders"] * 2 + ["payments"],
    queue_ids=[0, 3, 200],
    queue_offsets=[0, 1, 2**40],
    message_ids=["7F-0", "größer", ""],
    physical_offsets=[0, 300, 2**62],
    deliver_at_ms=[0, 0, 1_700_000_000_000],
    store_host="10.0.0.2:10911",
)


def read_as(rpc: rpcs.Rpc[Any, T], data: bytes, *, is_compiled: bool) -> T | str:
    """The result, or the refusal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "is_on", is_compiled)
        try:
            return rpc.decode_response(data)
        except InvalidValue as error:
            return str(error)


def are_read(data: bytes) -> bool:
    """Does the compiled form take these results of a send?  If so, they are the plain form's."""
    plain = read_as(rpcs.SEND, data, is_compiled=False)
    assert read_as(rpcs.SEND, data, is_compiled=True) == plain
    return compiled.loops.read_results(data, SendResult) is not None


def is_read(data: bytes) -> bool:
    """Does the compiled form take this answer to a pull?  If so, with the plain form's result."""
    plain = read_as(rpcs.PULL, data, is_compiled=False)
    assert read_as(rpcs.PULL, data, is_compiled=True) == plain
    slots = tuple([vars(StoredMessage)[field.name] for field in fields(StoredMessage)])
    return compiled.loops.read_pull(data, StoredMessage, slots) is not None


@settings(max_examples=400)
@given(
    some.builds(
        pb.PullResponse,
        status=some.sampled_from((0, 19, 20, 21, 5)),
        next_offset=INT64S,
        min_offset=INT64S,
        max_offset=INT64S,
        messages=some.lists(MESSAGES, max_size=4),
    )
)
def test_every_answer_is_read_alike(answer: pb.PullResponse) -> None:
    """Also one that no broker of ours sends, such as one with an unknown status."""
    assert is_read(answer.SerializeToString())


def test_the_messages_of_an_answer_are_whole_objects() -> None:
    """They are made without __init__, and are the same as those made with it."""
    result = rpcs.PULL.decode_response(ORDINARY.SerializeToString())
    assert result == read(native.pull_result, ORDINARY.SerializeToString())
    message = result.messages[1]
    assert (message.tags, message.message_id, message.queue_offset) == ("TagA", "7F-1", 1)
    assert message.topic is result.messages[0].topic
    with pytest.raises(AttributeError):
        setattr(message, "topic", "other")  # noqa: B010


def test_damaged_answers_are_read_alike() -> None:
    """Or refused with the same words."""
    random = Random(1)
    data = ORDINARY.SerializeToString()
    taken = sum([is_read(damaged(data, random)) for _ in range(4_000)])
    assert 0 < taken < 4_000
    for end in range(len(data)):
        is_read(data[:end])


@pytest.mark.parametrize(
    "odd",
    [b"\x30\x01", b"\x2a\x03\x82\x01\x00", b"\x2a\x02\x1d\x00", b"\x2a\x04\x10\x80\x80\x80"],
    ids=["unknown field", "unknown field of a message", "fixed32", "cut short"],
)
def test_what_this_version_does_not_know_is_left_to_the_plain_form(odd: bytes) -> None:
    """A later broker may send fields that no client of today knows."""
    assert not is_read(ORDINARY.SerializeToString() + odd)


def test_a_class_with_other_slots_is_an_error() -> None:
    """And no crash."""
    slots: tuple[Any, ...] = tuple([vars(PullResult)["status"]] * 15)
    with pytest.raises(TypeError):
        compiled.loops.read_pull(ORDINARY.SerializeToString(), StoredMessage, slots)
    with pytest.raises(TypeError):
        compiled.loops.read_pull(ORDINARY.SerializeToString(), StoredMessage, slots[:3])


# ---- results of sends


@settings(max_examples=400)
@given(
    some.lists(
        some.builds(SendResult, TEXTS, INT32S, INT64S, TEXTS, INT64S, INT64S, some.just("host"))
    )
)
def test_all_results_of_a_send_are_read_alike(results: list[SendResult]) -> None:
    """They are whole tuples of their class."""
    data = native.send_results_to_pb(results).SerializeToString()
    assert are_read(data)
    found = rpcs.SEND.decode_response(data)
    assert [*found] == results
    assert {type(each) for each in found} <= {SendResult}


def test_the_results_of_a_batch_are_written_alike() -> None:
    """The broker writes them from what they share."""
    for count in (0, 1, 300):
        ids, places = [f"7F-{number}" for number in range(count)], [*range(0, 2**40, 2**32)]
        places = (places * 2)[:count]
        deliver_at_ms = 1_700_000_000_000 * (count == 1)
        sent = SentBatch("orders", 3, 127, ids, places, deliver_at_ms, "10.0.0.2:10911")
        results = [
            SendResult("orders", 3, 127 + at, *each, deliver_at_ms, sent.store_host)
            for at, each in enumerate(zip(ids, places, strict=True))
        ]
        data = encoded_sent(sent).data
        assert rpcs.SEND.decode_response(data) == tuple(results)
        if count:
            assert data == native.send_results_to_pb(results).SerializeToString()


def test_damaged_results_are_read_alike() -> None:
    """Or refused with the same words."""
    random = Random(2)
    data = SENT.SerializeToString()
    assert are_read(data)
    taken = sum([are_read(damaged(data, random)) for _ in range(4_000)])
    assert 0 < taken < 4_000
    for end in range(len(data)):
        are_read(data[:end])


@pytest.mark.parametrize(
    "odd",
    [b"\x0a\x01x", b"\x22\x01x", b"\x12\x01\0", b"\x10\1", b"\x42\0", b"\x0d\0\0\0\0", b"\x02\0"],
    ids=["topic", "id", "packed twice", "not packed", "unknown", "fixed32", "field 0"],
)
def test_odd_results_are_left_to_the_plain_form(odd: bytes) -> None:
    """Such as columns of different lengths."""
    assert not are_read(SENT.SerializeToString() + odd)
    assert not are_read(odd + SENT.SerializeToString())


def test_results_of_another_class_are_an_error() -> None:
    """And no crash."""
    with pytest.raises(TypeError):
        compiled.loops.read_results(SENT.SerializeToString(), StoredMessage)
    sent: Any = ("orders", 0, 0, ["id"], [], 0, "")
    with pytest.raises(ValueError, match="1 ids, 0 places"):
        compiled.loops.write_results(*sent)
    for ids, places in (([1], [1]), (["\ud800"], [1]), (["id"], ["x"]), (["id"], [2**64])):
        sent = ("orders", 0, 0, ids, places, 0, "")
        with pytest.raises((TypeError, ValueError, OverflowError)):
            compiled.loops.write_results(*sent)
