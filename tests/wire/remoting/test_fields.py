"""Ext fields become typed values, or an error that names field, value and rule."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.protocols.remoting.bytes import fields as names
from rmqlite.protocols.remoting.bytes.fields import FieldError
from rmqlite.protocols.remoting.bytes.requests import ANSWERED, NAMES, REFUSED
from rmqlite.protocols.remoting.bytes.requests.messages import (
    CONSUMER_SEND_MSG_BACK,
    PULL_MESSAGE,
    PullAnswer,
    PullMessage,
)
from rmqlite.protocols.remoting.bytes.requests.name_server import GET_ROUTEINFO_BY_TOPIC, RouteQuery
from rmqlite.protocols.remoting.bytes.requests.request import EXTRAS, Body
from rmqlite.protocols.remoting.bytes.requests.sends import (
    REFUSED_SEND_EXT,
    SEND_MESSAGE,
    SEND_MESSAGE_V2,
    SHORT_NAMES,
    SendAnswerFields,
    SendMessage,
)

PULL = {
    "consumerGroup": "g",
    "topic": "orders",
    "queueId": "3",
    "queueOffset": str(2**40),
    "maxMsgNums": "32",
    "sysFlag": "2",
    "commitOffset": "-1",
    "suspendTimeoutMillis": "15000",
    "subVersion": "1795544853421091000",
}


def test_a_request_becomes_a_value_of_its_class() -> None:
    """Numbers are numbers; what may be absent has its default."""
    assert PULL_MESSAGE.fields.read({**PULL, "bname": "x"}) == PullMessage(
        consumer_group="g",
        topic="orders",
        queue_id=3,
        queue_offset=2**40,
        max_msg_nums=32,
        sys_flag=2,
        commit_offset=-1,
        suspend_timeout_millis=15_000,
        sub_version=1795544853421091000,
        subscription="",
        expression_type="TAG",
    )


def test_the_two_spellings_of_a_send_are_one_value() -> None:
    """Whoever stores it need not know which one the client chose."""
    sent = SendMessage("orders", "p", queue_id=2, properties="KEYS\x01k", max_reconsume_times=16)
    long, short = SEND_MESSAGE.fields.write(sent), SEND_MESSAGE_V2.fields.write(sent)
    assert SEND_MESSAGE.fields.read(long) == SEND_MESSAGE_V2.fields.read(short) == sent
    assert set(short) == set(SHORT_NAMES.values())
    assert SEND_MESSAGE_V2.fields.read({"b": "t", "l": ""}).max_reconsume_times is None


@pytest.mark.parametrize(
    ("changed", "field", "rule"),
    [
        ({"queueId": "zz"}, "queueId", "a whole 32-bit number"),
        ({"queueId": "1_0"}, "queueId", "a whole 32-bit number"),
        ({"queueId": " 1"}, "queueId", "a whole 32-bit number"),
        ({"queueId": "\u0661"}, "queueId", "a whole 32-bit number"),
        ({"queueId": "2147483648"}, "queueId", "a whole 32-bit number"),
        ({"queueId": "9" * 5_000}, "queueId", "a whole 32-bit number"),
        ({"queueOffset": str(2**63)}, "queueOffset", "a whole 64-bit number"),
        ({"queueOffset": "1.0"}, "queueOffset", "a whole 64-bit number"),
        ({"topic": "\u00e4" * 128}, "topic", "a text of at most 255 bytes"),
        ({"topic": ""}, "topic", "a text of at most 255 bytes"),
        ({"queueId": ""}, "queueId", "a whole 32-bit number"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_the_rule(
    changed: dict[str, str], field: str, rule: str
) -> None:
    """The sentence is the remark that the client's log shows."""
    with pytest.raises(FieldError) as caught:
        PULL_MESSAGE.fields.read({**PULL, **changed})
    assert (caught.value.field, caught.value.rule) == (field, rule)
    assert field in str(caught.value)
    assert rule in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", sorted(PULL))
def test_a_missing_field_is_named(name: str) -> None:
    """Each of them, also the last one."""
    with pytest.raises(FieldError, match=f"{name} is missing"):
        PULL_MESSAGE.fields.read({key: text for key, text in PULL.items() if key != name})


@pytest.mark.parametrize(
    ("text", "flag"),
    [("true", True), ("TRUE", True), ("1", True), ("false", False), ("0", False), ("yes", False)],
)
def test_a_flag_is_true_if_it_says_so_or_is_1(text: str, flag: bool) -> None:
    """C++ writes 1; RocketMQ reads that as false, and stores its batches as one message."""
    assert SEND_MESSAGE.fields.read({"topic": "t", "batch": text}).is_batch is flag


def test_other_spellings_of_whole_numbers_are_read_as_java_reads_them() -> None:
    """A leading zero or plus does no harm."""
    assert PULL_MESSAGE.fields.read({**PULL, "queueId": "+03"}).queue_id == 3


def test_cpp_sends_a_failed_message_back_with_three_fields() -> None:
    """Its retries are then limited by the group, not by the request."""
    back = CONSUMER_SEND_MSG_BACK.fields.read({"group": "g", "offset": "9", "delayLevel": "0"})
    assert (back.max_reconsume_times, back.origin_msg_id, back.unit_mode) == (None, "", False)


def test_a_route_without_a_topic_is_a_question() -> None:
    """RocketMQ answers it as it answers an unknown topic, 17, and mqadmin counts on no other."""
    assert GET_ROUTEINFO_BY_TOPIC.fields.read({}) == RouteQuery("", False)


def test_an_answers_values_are_all_texts() -> None:
    """A number makes Go send again, and C++ pull the same messages for ever."""
    assert PULL_MESSAGE.answer.write(PullAnswer(17, 0, 20)) == {
        "nextBeginOffset": "17",
        "minOffset": "0",
        "maxOffset": "20",
        "suggestWhichBrokerId": "0",
    }
    sent = SEND_MESSAGE.answer.write(SendAnswerFields("7F", 1, 2))
    assert sent == {"msgId": "7F", "queueId": "1", "queueOffset": "2", **REFUSED_SEND_EXT}


@pytest.mark.parametrize("row", ANSWERED.values(), ids=NAMES.values())
def test_every_row_reads_what_it_writes(row: Any) -> None:
    """And its fields have names of their own, none of them one that any client may add."""
    samples = {"i32": 7, "i64": 2**40, "bool": True, "str": "x"}
    for each in (row.fields, row.answer):
        wires = [column.wire for column in each.columns]
        assert len(set(wires)) == len(wires)
        assert not EXTRAS & set(wires)
        value = each.shape(*[samples[column.kind] for column in each.columns])
        assert each.read(each.write(value)) == value
    assert row.asked
    assert isinstance(row.body, Body | tuple)


def test_no_code_stands_in_both_tables() -> None:
    """And the full list that RocketMQ's tools and clients need is there."""
    assert not ANSWERED.keys() & REFUSED.keys()
    needed = """10 11 12 14 15 17 21 25 26 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 45 46 60
    61 100 101 102 103 104 105 106 200 201 202 203 204 205 206 207 208 215 216 219 220 221 222 223
    224 300 303 304 305 306 307 309 310 314 315 316 317 318 319 320 321 322 324 325 326 327 328 329
    351 352 361 370 400 401 402 200050 200051 200052 200053 200054 200055 200151"""
    assert set(ANSWERED) == {int(code) for code in needed.split()}


def test_a_field_keeps_few_texts_and_only_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients choose the texts: whatever they send, memory has a bound and values stay right."""
    known: list[dict[str | None, Any]] = []
    made = names._Known.__init__

    def counted(self: Any, field: names.Field) -> None:
        made(self, field)
        known.append(self)

    monkeypatch.setattr(names._Known, "__init__", counted)
    send = names.Fields(SendMessage)
    for number in range(3 * names.KNOWN_MAX):
        ext = {"topic": f"topic-{number}", "queueId": str(number), "producerGroup": "g" * 200}
        read = send.read(ext)
        assert (read.topic, read.queue_id) == (f"topic-{number}", number)
    assert max(map(len, known)) <= names.KNOWN_MAX + 1
    assert max(len(text or "") for each in known for text in each) <= names.KNOWN_TEXT_MAX
    assert send.read({"topic": "t"}) == SendMessage("t")
