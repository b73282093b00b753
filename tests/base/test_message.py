"""Messages as sent and as kept, and RocketMQ's property string between the two."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.kernel import compiled
from rmqlite.kernel.words import message as m
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import (
    Message,
    StoredMessage,
    decode_properties,
    encode_properties,
)
from rmqlite.protocols.remoting.bytes.batch import message_properties
from tests.support.forms import needs_compiled

TEXT = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=20
)


def stored(**changes: Any) -> StoredMessage:
    fields: dict[str, Any] = {
        "topic": "TopicA",
        "queue_id": 0,
        "queue_offset": 0,
        "physical_offset": 0,
        "store_size": 122,
        "body": b"body-0",
        "properties": {},
        "flag": 7,
        "sys_flag": 0,
        "born_timestamp_ms": 1_700_000_000_000,
        "born_host": "10.0.0.1:1234",
        "store_timestamp_ms": 1_700_000_000_001,
        "store_host": "10.0.0.2:10911",
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
    }
    return StoredMessage(**(fields | changes))


def test_the_property_string_is_rocketmqs() -> None:
    """Golden vector G1: no separator at the end."""
    assert encode_properties({"KEYS": "key1", "TAGS": "TagA"}).hex() == (
        "4b455953016b65793102544147530154616741"
    )


@given(st.dictionaries(TEXT, TEXT))
def test_properties_are_read_back_as_they_were_written(pairs: dict[str, str]) -> None:
    """Any text but the two separators, in any order, in any script."""
    assert decode_properties(encode_properties(pairs)) == pairs


@pytest.mark.parametrize(
    ("encoded", "pairs"),
    [
        (b"", {}),
        (b"k\x01v\x02", {"k": "v"}),
        (b"k\x01\x02a\x01b", {"a": "b"}),
        (b"\x01v\x02a\x01b", {"a": "b"}),
        (b"novalue\x02a\x01b", {"a": "b"}),
        (b"WAIT\x01true\x02WAIT\x01false", {"WAIT": "false"}),
    ],
)
def test_a_property_string_of_another_broker_is_read_as_rocketmq_does(
    encoded: bytes, pairs: dict[str, str]
) -> None:
    """Reference §1.4: older files end with a separator; empty keys and values are dropped."""
    assert decode_properties(encoded) == pairs


@given(st.binary(max_size=60))
def test_no_bytes_make_the_property_reader_fail(encoded: bytes) -> None:
    """One foreign record must not stop a queue."""
    decode_properties(encoded)


def test_a_message_carries_its_fields_as_properties() -> None:
    """On disk TAGS, KEYS and UNIQ_KEY are ordinary pairs; DELAY is for the broker to write."""
    message = Message(
        "t", b"x", tags="TagA", keys="k1 k2", properties={"u": "1"}, delay_level=3, message_id="ID"
    )
    assert message_properties(message) == {
        "u": "1",
        "KEYS": "k1 k2",
        "UNIQ_KEY": "ID",
        "TAGS": "TagA",
    }


def test_an_id_from_the_broker_goes_before_the_messages_own() -> None:
    """message_properties(message, id) is how the broker names a message without one."""
    assert message_properties(Message("t", b"x"), "MADE") == {"UNIQ_KEY": "MADE"}
    assert message_properties(Message("t", b"x")) == {}


@pytest.mark.usefixtures("each_form")
def test_a_copy_differs_in_one_field() -> None:
    """Every other field is the very same; the message stays as it is."""
    message = Message("t", b"x", "TagA", ("k",), {"a": "b"}, flag=3, max_reconsume_times=0)
    assert message.named("ID") == replace(message, message_id="ID")
    assert message.at_level(3) == replace(message, delay_level=3)
    assert message.named("ID").properties is message.properties
    assert (message.message_id, message.delay_level) == ("", 0)
    with pytest.raises(FrozenInstanceError):
        setattr(message.named("ID"), "topic", "other")  # noqa: B010


@needs_compiled
def test_a_copy_of_something_else_is_an_error() -> None:
    """And no crash."""
    slot = vars(Message)["topic"]
    message = Message("t", b"x")
    for odd in ((1, (slot,), slot, "x"), (message, (1,), slot, "x"), (message, (), 1, "x")):
        with pytest.raises(TypeError):
            compiled.loops.copied(*odd)
    with pytest.raises(AttributeError):
        compiled.loops.copied(object.__new__(Message), (slot,), slot, "x")


@pytest.mark.parametrize("limit", [None, 0, 3, 2**31 - 1])
def test_a_senders_limit_of_retries_is_kept_as_rocketmqs_property(limit: int | None) -> None:
    """Nothing where there is none: 0 is a limit, too; a copy under another id keeps it."""
    message = Message("t", b"x", max_reconsume_times=limit).named("ID").at_level(3)
    properties = message_properties(message)
    assert ("MAX_RECONSUME_TIMES" in properties) == (limit is not None)
    assert stored(properties=properties).max_reconsume_times == limit


@pytest.mark.parametrize("keys", ["k1 k2", ["k1", "k2"], ("k1", "k2"), " k1   k2 "])
def test_keys_are_tokens_however_they_are_given(keys: Any) -> None:
    """RocketMQ joins and splits them at blanks."""
    assert Message("t", b"x", keys=keys).keys == ("k1", "k2")


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("body", {"body": "text"}),
        ("body", {"body": bytearray(b"x")}),
        ("body", {"body": b""}),
        ("keys", {"keys": ["a b"]}),
        ("keys", {"keys": [""]}),
        ("keys", {"keys": "a\x01b"}),
        ("keys", {"keys": ["\ud800"]}),
        ("properties", {"properties": {"TAGS": "x"}}),
        ("properties", {"properties": {"DELAY": "3"}}),
        ("properties", {"properties": {"": "x"}}),
        ("properties", {"properties": {"x": ""}}),
        ("properties", {"properties": {"x": 1}}),
        ("properties", {"properties": {"x": "a\x02b"}}),
        ("properties", {"properties": {"a\x01": "b"}}),
        ("properties", {"properties": {"x": "\udcff"}}),
        ("tags", {"tags": "a\x01"}),
        ("tags", {"tags": "\ud800"}),
        ("message_id", {"message_id": "\x02"}),
        ("delay", {"delay": "1m", "delay_level": 3}),
        ("delay_level", {"delay_level": 2**31}),
        ("delay_level", {"delay_level": -(2**31) - 1}),
        ("flag", {"flag": 2**31}),
        ("max_reconsume_times", {"max_reconsume_times": -1}),
        ("max_reconsume_times", {"max_reconsume_times": 2**31}),
    ],
)
def test_a_message_that_cannot_be_stored_is_refused_when_it_is_made(
    field: str, changes: dict[str, Any]
) -> None:
    """The mistake shows where it was made, and a separator never splits another's property."""
    with pytest.raises(InvalidValue) as raised:
        Message(**({"topic": "t", "body": b"x"} | changes))
    assert raised.value.field == field


def test_every_property_name_of_ours_is_reserved() -> None:
    """A user's pair must never be taken for the broker's."""
    ours = {
        value
        for name, value in vars(m).items()
        if name.isupper() and isinstance(value, str) and value.isupper()
    }
    assert {"REAL_TOPIC", "RETRY_TOPIC", "FAILURE_REASON"} <= ours
    # A sender chooses the message group, on every protocol.
    assert ours - {m.MESSAGE_GROUP} <= m.RESERVED_PROPERTIES | m.REDRIVE_PROPERTIES


def test_the_offset_message_id_is_rocketmqs() -> None:
    """Golden vector G1."""
    assert stored().offset_message_id == "0A00000200002A9F0000000000000000"
    assert m.offset_message_id("[::1]:10911", 255) == (
        "00000000000000000000000000000001" + "00002A9F" + "00000000000000FF"
    )


def test_a_message_id_is_the_producers_else_the_brokers() -> None:
    """Reference §5.1: the same on every hop if the producer gave one."""
    assert stored(properties={"UNIQ_KEY": "U"}).message_id == "U"
    assert stored().message_id == stored().offset_message_id


def test_a_listener_sees_the_original_topic() -> None:
    """While a message is retried it lies in another topic."""
    retried = stored(topic="%RETRY%g", properties={"RETRY_TOPIC": "orders"})
    assert retried.origin_topic == "orders"
    assert stored().origin_topic == "TopicA"


def test_tags_and_keys_are_read_from_the_properties() -> None:
    """A stored message has no fields of its own for them."""
    message = stored(properties={"TAGS": "TagA", "KEYS": "k1 k2"})
    assert message.tags == "TagA"
    assert message.keys == ("k1", "k2")
    assert (stored().tags, stored().keys) == ("", ())


@pytest.mark.parametrize(
    ("text", "level"),
    [("3", 3), ("0", 0), ("-1", -1), ("", 0), ("x", 0), ("--1", 0), ("²", 0), ("9" * 5_000, 0)],
)
def test_a_delay_that_is_no_number_is_no_delay(text: str, level: int) -> None:
    """A foreign client can write any text into DELAY."""
    assert stored(properties={"DELAY": text}).delay_level == level


@pytest.mark.parametrize("host", ["10.0.0.2:10911", "0.0.0.0:0", "[::1]:80", "[2001:db8::7]:65535"])
def test_a_host_is_unpacked_as_it_was_packed(host: str) -> None:
    """8 bytes for IPv4, 20 for IPv6."""
    packed = m.pack_host(host)
    assert len(packed) == (20 if "[" in host else 8)
    assert m.unpack_host(packed) == host


@pytest.mark.parametrize("host", ["", "10.0.0.2", "localhost:1", "1.2.3.4:x", "1.2.3.4:-1", "1:2"])
def test_a_host_that_is_no_address_is_refused(host: str) -> None:
    """A name would have to be resolved, and could change."""
    with pytest.raises(InvalidValue):
        m.pack_host(host)
