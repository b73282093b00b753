"""Messages of a client as bytes and back: the functions in C beside the plain ones."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rmqlite.kernel import compiled
from rmqlite.kernel.records.drafts import Draft, fresh
from rmqlite.kernel.records.encoding import encode
from rmqlite.kernel.words.errors import InvalidValue, MessageTooLarge
from rmqlite.kernel.words.message import Message, StoredMessage, encode_properties
from rmqlite.kernel.words.property_string import PropertyString
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.rpcs import read_messages, rpc_of
from rmqlite.protocols.pb import rmqlite_pb2 as pb
from rmqlite.protocols.remoting.bytes.batch import read_batch, write_messages
from tests.support.forms import damaged, needs_compiled
from tests.support.sends import BORN_HOST
from tests.support.thinned import part_of

SLOTS = tuple([vars(StoredMessage)[name] for name in StoredMessage.__slots__])
TEXTS = some.sampled_from(("a", "order-1", "Größe", "x" * 40))
MESSAGES = some.builds(
    lambda wait, **fields: Message("orders", **fields, **wait),
    body=some.binary(min_size=1, max_size=40),
    tags=some.sampled_from(("", "TagA")),
    keys=some.lists(TEXTS, max_size=3),
    properties=some.dictionaries(TEXTS, TEXTS, max_size=10),
    flag=some.integers(-(2**31), 2**31 - 1),
    message_id=some.sampled_from(("", "7F00000100014E0B23A1")),
    max_reconsume_times=some.sampled_from((None, 0, 3, 2**31 - 1)),
    wait=some.sampled_from(
        (
            {},
            {"delay_level": 3},
            {"delay_level": -1},
            {"delay": "10s"},
            {"deliver_after": "36h"},
            {"deliver_at": 1_900_000_000_000},
        )
    ),
)


@needs_compiled
@settings(max_examples=part_of(300))
@given(some.lists(MESSAGES, max_size=4).map(tuple))
def test_messages_are_written_alike(messages: tuple[Message, ...]) -> None:
    """Each is an item of a batch."""
    plain: Any = write_messages
    written = write_messages(messages)
    assert written == plain.__wrapped__(messages)
    if messages:
        assert len(read_batch(written)) == 20 * len(messages)


def test_what_has_no_room_in_a_batch_is_refused() -> None:
    """The length of a property string has 15 bits."""
    with pytest.raises(MessageTooLarge, match="property string"):
        write_messages((Message("orders", b"x", properties={"a": "x" * 33_000}),))


def record_of(own: bytes, topic: str, body: bytes, host: bytes, number: int) -> bytes:
    draft = Draft(topic, 3, own, body, number, host, number & 0xFF, number & 0x304, number & 7)
    new = fresh(draft, BORN_HOST)
    places = {"queue_offset": number, "physical_offset": number, "store_timestamp_ms": number}
    return encode(new, **places)


RECORDS = some.builds(
    record_of,
    some.dictionaries(TEXTS, TEXTS, max_size=10).map(encode_properties)
    | some.sampled_from((b"", b"a\x01", b"\x01b\x02c", b"a\x01\xff", b"a\x011\x02a\x012\x02\x02")),
    some.sampled_from(("orders", "Größe", "t" * 127)),
    some.binary(max_size=30),
    some.sampled_from((BORN_HOST, BORN_HOST, bytes(20))),
    some.integers(0, 2**31 - 1),
)


def read_as(records: bytes, *, is_on: bool) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "is_on", is_on)
        try:
            return read_messages(records, StoredMessage, SLOTS)
        except InvalidValue as error:
            return str(error)


@needs_compiled
@settings(max_examples=part_of(300))
@given(some.lists(RECORDS, max_size=4).map(b"".join))
def test_records_are_read_alike(records: bytes) -> None:
    """Each field, and each property; also what is left to the plain function."""
    assert read_as(records, is_on=True) == read_as(records, is_on=False)


@needs_compiled
def test_damaged_records_are_read_alike_or_refused() -> None:
    """By a client that any broker may answer."""
    random = Random(3)
    own = encode_properties({"a": "1", "KEYS": "k", "Farbe": "größer"})
    whole = b"".join([record_of(own, "orders", b"body", BORN_HOST, n) for n in (1, 2)])
    for _ in range(3_000):
        data = damaged(whole, random)
        read_as(data, is_on=True)
        compiled.loops.read_messages(data, StoredMessage, SLOTS)
    for end in range(1, len(whole)):
        assert read_as(whole[:end], is_on=True) == read_as(whole[:end], is_on=False)


@needs_compiled
def test_slots_are_those_of_the_class() -> None:
    """Memory is not Python's here."""
    for slots in (SLOTS[:3], tuple(range(15))):
        with pytest.raises(TypeError, match="slots"):
            compiled.loops.read_messages(b"", StoredMessage, slots)


def test_an_answer_with_damaged_records_is_refused() -> None:
    """As one that is no protobuf message."""
    data = pb.PullResponse(records=b"no record").SerializeToString()
    with pytest.raises(InvalidValue):
        rpc_of(rpcs.PULL).decode_response(data)


def test_a_property_string_is_read_as_the_broker_reads_it() -> None:
    """The last of two pairs with one name counts."""
    own = b"a\x011\x02a\x012"
    (message,) = read_messages(record_of(own, "t", b"x", BORN_HOST, 1), StoredMessage, SLOTS)
    pairs = {name.decode(): value.decode() for name, value in PropertyString(own).pairs.items()}
    assert message.properties == pairs
