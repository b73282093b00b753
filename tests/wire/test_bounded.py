"""The look at a request's bytes counts what protobuf's own parser finds in them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as some

from rmqlite.features.changes.requests import GET_TIMELINE
from rmqlite.features.rows import Limit
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.limits import all_rows
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.pb import rmqlite_pb2 as pb
from rmqlite.protocols.shared.bounded import SMALL_BYTES_MAX, Bounds
from tests.support.thinned import part_of

WHOLE = Limit(size=1 << 30)
SEND = rpc_of(rpcs.SEND).request
PADDING = b"\xfa\x3e\xff\x01" + bytes(255)
"""A field that nobody knows, so that a request is long enough to be looked into."""


def passes(message: Any, limits: dict[str, Limit]) -> bool:
    data = message if isinstance(message, bytes) else message.SerializeToString()
    descriptor = SEND if isinstance(message, bytes) else message.DESCRIPTOR
    try:
        Bounds(descriptor, limits, size=WHOLE).check(data + PADDING)
    except InvalidValue:
        return False
    return True


def batches() -> some.SearchStrategy[pb.EncodedBatch]:
    text = some.text(some.characters(exclude_categories=["Cs"]), max_size=300)
    return some.builds(pb.EncodedBatch, topic=text, delay=text, messages=some.binary(max_size=300))


@settings(deadline=None, max_examples=60)
@given(some.lists(batches(), max_size=6), some.integers(0, 6))
def test_batches_are_counted_as_they_are(sent: list[pb.EncodedBatch], most: int) -> None:
    """Exactly: one more than allowed is refused, as many are not."""
    request = pb.SendRequest(producer_group="g", batches=sent, queue_id=-1)
    assert passes(request, {"SendRequest.batches": Limit(count=most)}) == (len(sent) <= most)


@settings(deadline=None, max_examples=60)
@given(batches(), some.integers(0, 1_200))
def test_texts_are_measured_as_they_are(batch: pb.EncodedBatch, most: int) -> None:
    """In bytes, each text for itself and all bodies together."""
    request = pb.SendRequest(batches=[batch])
    is_looked_into = batch.ByteSize() > SMALL_BYTES_MAX
    for name, text in {"topic": batch.topic, "delay": batch.delay}.items():
        is_fine = not is_looked_into or len(text.encode()) <= most
        assert passes(request, {f"EncodedBatch.{name}": Limit(size=most)}) == is_fine, name
    is_fine = not is_looked_into or len(batch.messages) <= most
    assert passes(request, {"EncodedBatch.messages": Limit(total=most)}) == is_fine


@settings(deadline=None, max_examples=60)
@given(some.lists(some.integers(-(2**63), 2**63 - 1), max_size=30), some.integers(0, 30))
def test_numbers_are_counted_packed_and_one_by_one(numbers: list[int], most: int) -> None:
    """A writer may do either."""
    packed = pb.GetTimelineRequest(bounds_ms=numbers)
    limits = {"GetTimelineRequest.bounds_ms": Limit(count=most)}
    assert passes(packed, limits) == (len(numbers) <= most)
    single = b"".join(
        b"\x08" + pb.GetTimelineRequest(bounds_ms=[n]).SerializeToString()[2:] for n in numbers
    )
    assert pb.GetTimelineRequest.FromString(single) == packed
    bounds = Bounds(rpc_of(GET_TIMELINE).request, limits, size=WHOLE)
    with contextlib.suppress(InvalidValue):
        bounds.check(single + PADDING)
        assert len(numbers) <= most
        return
    assert len(numbers) > most


@settings(deadline=None, max_examples=30)
@given(data=some.binary(min_size=SMALL_BYTES_MAX + 1, max_size=600))
def test_bytes_that_are_no_message_are_left_to_the_parser(data: bytes) -> None:
    """It says what is wrong; the look neither fails on them nor takes them for too much."""
    for row in all_rows():
        with contextlib.suppress(InvalidValue):
            Bounds(rpc_of(row).request, {}, size=WHOLE).check(data)


@settings(deadline=None, max_examples=part_of(200))
@given(
    some.lists(
        some.sampled_from(
            [
                b"\x2a\x00",
                b"\x2a\x02\x0a\x00",
                b"\x18\x01",
                b"\xaa\x00\x00",
                b"\x2a\x80\x00",
                b"\x1b",
                b"\x1c",
                b"\x7d\x00\x00\x00\x00",
                b"\x79\x00\x00\x00\x00\x00\x00\x00\x00",
                b"\xfa\x3e\x01x",
                b"\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            ]
        ),
        max_size=40,
    )
)
def test_what_protobuf_reads_is_counted_however_it_is_written(parts: list[bytes]) -> None:
    """Numbers longer than they need be, groups, and unknown fields hide nothing."""
    data = b"".join(parts)
    try:
        count = len(pb.SendRequest.FromString(data + PADDING).batches)
    except DecodeError:
        return
    if count:
        assert not passes(data, {"SendRequest.batches": Limit(count=count - 1)})


def test_the_look_ends_at_the_limit() -> None:
    """What lies behind it is not even read."""

    class Watched(bytes):
        highest = 0

        def __getitem__(self, at: Any) -> Any:
            Watched.highest = max(Watched.highest, at if isinstance(at, int) else at.stop)
            return bytes.__getitem__(self, at)

    data = Watched(b"\x2a\x00" * 100_000)
    limits = {"SendRequest.batches": Limit(count=10)}
    with pytest.raises(InvalidValue):
        Bounds(SEND, limits, size=WHOLE).check(data)
    assert Watched.highest < 30
