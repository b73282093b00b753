"""JSON bodies, the odd ones too, batches and settings: read within limits, written compact."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rmqlite.kernel import compiled
from rmqlite.kernel.words.errors import MessageTooLarge
from rmqlite.protocols.remoting.bytes.batch import BatchItem, read_batch, write_batch
from rmqlite.protocols.remoting.bytes.fields import (
    FRAME_BYTES_MAX,
    GROUPS_MAX,
    JSON_BYTES_MAX,
    JSON_COMMAS_MAX,
    JSON_NESTED_MAX,
    LOCK_QUEUES_MAX,
    ODD_TOKENS_MAX,
    SETTINGS_BYTES_MAX,
    SETTINGS_MAX,
    FieldError,
)
from rmqlite.protocols.remoting.bytes.requests.broker import read_settings, write_settings
from rmqlite.protocols.remoting.bytes.requests.clients import (
    ClientOffsets,
    ConsumeType,
    Heartbeat,
    MessageModel,
    OffsetTable,
)
from rmqlite.protocols.remoting.bytes.requests.groups import LockRequest, MessageQueue
from rmqlite.protocols.remoting.bytes.requests.name_server import BrokerData, QueueData, RouteBody
from rmqlite.protocols.remoting.bytes.shapes import read_body, write_body
from tests.support.forms import damaged, needs_compiled
from tests.wire.remoting.memory import peak_bytes
from tests.wire.remoting.reading import items_of

ITEMS = some.builds(
    BatchItem,
    flag=some.integers(-(2**31), 2**31 - 1),
    body=some.binary(max_size=50),
    properties=some.binary(max_size=50),
)
TEXT = some.text(some.characters(exclude_categories=["Cs"]), max_size=20)
QUEUES = some.builds(
    MessageQueue,
    topic=TEXT.filter(bool),
    queue_id=some.integers(0, 2**31 - 1),
    broker_name=TEXT,
)


@settings(deadline=None)
@given(some.lists(ITEMS, min_size=1, max_size=5))
def test_a_batch_comes_out_as_it_went_in(items: list[BatchItem]) -> None:
    """Bodies and property strings are bytes; nobody needs them as text here."""
    assert items_of(write_batch(items)) == items


def test_a_batch_that_is_cut_or_lies_is_refused_with_the_place() -> None:
    """At every byte; a part of a batch must not be stored as if it were all."""
    items = [BatchItem(1, b"first", b"KEYS\x01k"), BatchItem(0, b"", b"")]
    whole = write_batch(items)
    ends = {len(write_batch(items[:1])), len(whole)}
    for cut in range(len(whole)):
        if cut not in ends:
            with pytest.raises(FieldError, match=r"^body\.[01]="):
                read_batch(whole[:cut])
    for at in (0, 16, 25):
        for claim in (b"\xff\xff\xff\xf0", b"\x7f\xff\xff\xff", bytes(4)):
            size = 2 if at == 25 else 4
            with pytest.raises(FieldError, match=r"^body\.0="):
                read_batch(whole[:at] + claim[:size] + whole[at + size :])
    with pytest.raises(MessageTooLarge, match="at most 1 messages"):
        read_batch(whole, messages_max=1)


def read_as(data: bytes, *, is_compiled: bool) -> tuple[type, object]:
    """The spans of a batch, or why there are none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "is_on", is_compiled)
        try:
            return bytes, read_batch(data, messages_max=3)
        except (FieldError, MessageTooLarge) as error:
            return type(error), str(error)


@needs_compiled
@settings(deadline=None)
@given(some.lists(ITEMS, min_size=1, max_size=5), some.randoms(use_true_random=False))
def test_both_forms_read_the_same_batch_and_refuse_it_with_the_same_words(
    items: list[BatchItem], random: Random
) -> None:
    """Only the plain form finds the words, for the item at which the compiled one has stopped."""
    for data in (whole := write_batch(items), damaged(whole, random)):
        assert read_as(data, is_compiled=True) == read_as(data, is_compiled=False)


@settings(deadline=None)
@given(some.dictionaries(QUEUES, some.integers(0, 2**63 - 1), max_size=4))
def test_a_map_by_queue_comes_out_in_both_spellings(table: dict[MessageQueue, int]) -> None:
    """RocketMQ's with objects as keys, and strict JSON with those objects as texts."""
    value = ClientOffsets(table)
    assert read_body(ClientOffsets, write_body(value)) == value
    strict = write_body(value, is_strict=True)
    assert len(json.loads(strict)["messageQueueTable"]) == len(table)
    assert read_body(ClientOffsets, strict) == value


ROUTE = RouteBody(
    (BrokerData("broker-a", {0: "127.0.0.1:10911"}, "DefaultCluster"),),
    (QueueData("broker-a", 4, 4, 6),),
    {},
)


def test_a_route_has_quoted_or_bare_broker_ids_and_no_blank() -> None:
    """Go cuts addresses out of the text, blanks included."""
    bare, quoted = write_body(ROUTE), write_body(ROUTE, is_strict=True)
    assert b'{"brokerAddrs":{0:"127.0.0.1:10911"},' in bare
    assert b'{"brokerAddrs":{"0":"127.0.0.1:10911"},' in quoted
    assert b" " not in bare + quoted
    assert read_body(RouteBody, bare) == read_body(RouteBody, quoted) == ROUTE


def test_a_heartbeat_is_read_by_name_by_number_and_with_nothing_in_it() -> None:
    """Java, C++, and a client that has neither producers nor consumers."""
    heartbeat = read_body(
        Heartbeat,
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":0,"messageModel":0,'
        b'"consumeFromWhere":4,"subscriptionDataSet":[{"topic":"t","subVersion":"17",'
        b'"codeSet":["1"],"tagsSet":null}]}],"more":{}}',
    )
    (consumer,) = heartbeat.consumer_data_set
    assert consumer.consume_type is ConsumeType.ACTIVELY
    assert consumer.message_model is MessageModel.BROADCASTING
    assert consumer.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    assert consumer.subscription_data_set[0].sub_version == 17
    assert read_body(Heartbeat, b"{}") == Heartbeat("", (), ())


@pytest.mark.parametrize(
    ("cls", "body", "field", "found"),
    [
        (Heartbeat, b"", "body", "missing"),
        (Heartbeat, b"{oops", "body", "JSON"),
        (Heartbeat, b"\xff{}", "body", "JSON"),
        (Heartbeat, b"[]", "body", "an object"),
        (Heartbeat, b'{"clientID":[]}', "clientID", "a text"),
        (Heartbeat, b'{"clientID":"' + b"x" * 300 + b'"}', "clientID", "at most 255 bytes"),
        (
            Heartbeat,
            b'{"producerDataSet":[{"groupName":"a"},{}]}',
            "producerDataSet.1.groupName",
            "missing",
        ),
        (
            Heartbeat,
            b'{"producerDataSet":[' + b",".join([b'{"groupName":"a"}'] * (GROUPS_MAX + 1)) + b"]}",
            "producerDataSet",
            f"at most {GROUPS_MAX} items",
        ),
        (
            Heartbeat,
            b'{"consumerDataSet":[{"groupName":"g","consumeType":"SLOWLY"}]}',
            "consumerDataSet.0.consumeType",
            "one of CONSUME_ACTIVELY, CONSUME_PASSIVELY",
        ),
        (Heartbeat, b'{"consumerDataSet":{}}', "consumerDataSet", "a list"),
        (
            LockRequest,
            b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"t","queueId":4294967296}]}',
            "mqSet.0.queueId",
            "a whole 32-bit number",
        ),
        (OffsetTable, b'{"offsetTable":{{"topic":{}}:1}}', "body", "JSON"),
        (OffsetTable, b'{"offsetTable":{{"topic":"t"}:1}}', "offsetTable", "missing"),
        (OffsetTable, b'{"offsetTable":{"t":1}}', "offsetTable", "an object as a key"),
        (Heartbeat, b'{"clientID":' + b"[" * 1_000 + b"]" * 1_000 + b"}", "body", "nested"),
        (Heartbeat, b"[]" * (JSON_NESTED_MAX + 1), "body", f"at most {JSON_NESTED_MAX} objects"),
        (Heartbeat, b'{"\\ud800' + b"x" * 9_000 + b'":1}', "body", "\\ud800xxx"),
        (ClientOffsets, b'{"messageQueueTable":{"' + b"x" * 999 + b'":1}}', "messageQ", "as a key"),
        (Heartbeat, b"," * (JSON_COMMAS_MAX + 1), "body", f"at most {JSON_COMMAS_MAX} commas"),
        (ClientOffsets, b":" * (ODD_TOKENS_MAX + 1), "body", f"more than {ODD_TOKENS_MAX} texts"),
        (Heartbeat, b" " * (JSON_BYTES_MAX + 1), "body", f"at most {JSON_BYTES_MAX} bytes"),
    ],
)
def test_a_wrong_body_is_refused_with_the_path(
    cls: type[Any], body: bytes, field: str, found: str
) -> None:
    """Before anything is built from it that is larger than the limits."""
    with pytest.raises(FieldError) as caught:
        read_body(cls, body)
    assert caught.value.field.startswith(field)
    assert found in str(caught.value)
    assert len(str(caught.value)) < 400


def filled(begin: bytes, item: bytes, count: int, end: bytes) -> bytes:
    """A body with so many items, and a text that fills it up to the limit."""
    body = begin + item * count
    return body + b'"' + b"x" * (JSON_BYTES_MAX - len(body) - len(end) - 2) + b'"' + end


@pytest.mark.parametrize(
    "body",
    [
        filled(b'{"offsetTable":[', b"1000,", JSON_COMMAS_MAX, b"]}"),
        filled(b'{"offsetTable":[', b'"\xc3\xa4\xc3\xa4",', JSON_COMMAS_MAX, b"]}"),
        filled(b'{"offsetTable":[', b"{},", JSON_NESTED_MAX - 2, b"]}"),
        filled(b'{"offsetTable":[', b'{"a":1.5},', JSON_NESTED_MAX - 2, b"]}"),
        b"{" + b",".join(b'"%d":%d000' % (n, n) for n in range(JSON_COMMAS_MAX)) + b"}",
        b'{"messageQueueTable":{' + b'"",' * JSON_COMMAS_MAX + b"}}",
        b'""' * ODD_TOKENS_MAX,
    ],
    ids=["numbers", "texts", "objects", "fractions", "keys", "odd", "odd texts"],
)
def test_no_body_costs_more_memory_than_the_largest_frame(body: bytes) -> None:
    """The limits are counted in the bytes, before anything is parsed."""

    def read() -> None:
        with pytest.raises(FieldError):
            read_body(ClientOffsets, body)

    assert len(body) <= JSON_BYTES_MAX
    assert peak_bytes(read) < FRAME_BYTES_MAX


def test_a_client_may_lock_all_its_queues_at_once() -> None:
    """Eight queues of each of a thousand topics, with long names."""
    queues = tuple(MessageQueue(f"{n:0>100}", n % 8, "broker-a") for n in range(LOCK_QUEUES_MAX))
    asked = LockRequest("group", "client", queues)
    assert read_body(LockRequest, write_body(asked)) == asked
    offsets = ClientOffsets({queue: 2**40 for queue in queues})
    assert read_body(ClientOffsets, write_body(offsets)) == offsets


def test_settings_are_lines_of_key_and_value() -> None:
    """As mqadmin writes them; a value may hold an equals sign."""
    assert read_settings(b"# c\n a = 1s 5s \r\n\nb=x=y\na=2\n") == {"a": "2", "b": "x=y"}
    assert write_settings({"a": "1s 5s", "b": "x\ny"}) == b"a=1s 5s\nb=x y\n"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"", "body is missing"),
        (b"a=1\nb\n", "body, line 2='b'"),
        (b"=1\n", "body, line 1='=1'"),
        (b"a=1\n" * (SETTINGS_MAX + 1), f"at most {SETTINGS_MAX} lines"),
        (b"a" * (SETTINGS_BYTES_MAX + 1), f"at most {SETTINGS_BYTES_MAX} bytes"),
    ],
)
def test_wrong_settings_are_refused(body: bytes, found: str) -> None:
    """A line that sets nothing is a mistake of whoever typed it."""
    with pytest.raises(FieldError, match=found):
        read_settings(body)
