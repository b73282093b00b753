"""What a POP client of RocketMQ 5 and its broker say: read, and written again."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.fields import BATCH_ACK_BYTES_MAX, BATCH_ACKS_MAX, FieldError
from rmqlite.protocols.remoting.bytes.requests import ANSWERED, pop
from rmqlite.protocols.remoting.bytes.requests.pop import (
    BatchAck,
    BatchAcks,
    ExtraInfo,
    PopOffsets,
    Popped,
)
from rmqlite.protocols.remoting.bytes.requests.request import EXTRAS
from rmqlite.protocols.remoting.bytes.shapes import read_body, write_body
from tests.support.exchanges import ROCKETMQ_5, command_of, frame_of, scenarios
from tests.support.remoting import records_of
from tests.wire.remoting.reading import read_any, read_request

CODES = {400, 401, 200050, 200051}


def captured() -> list[tuple[bool, int, Command]]:
    """Is it an answer, the code that was asked for, and the frame."""
    found = []
    for row in scenarios(ROCKETMQ_5)["pop-timer"]:
        asked = row.get("request_code") or row.get("answers_request_code")
        frame = frame_of(row)
        if asked in CODES and frame is not None:
            found.append(("answers_request_code" in row, asked, command_of(frame)))
    return found


def test_every_captured_frame_of_pop_is_read_and_written_again() -> None:
    """With all ext fields, and answers byte for byte."""
    seen = set()
    for is_answer, code, command in captured():
        row = ANSWERED[code]
        seen.add((code, is_answer))
        if is_answer:
            assert row.answer.write(row.answer.read(command.ext)) == command.ext
            if isinstance(row.answer_body, tuple):
                assert write_body(read_any(row.answer_body, command.body)) == command.body
            continue
        assert command.ext.keys() <= {column.wire for column in row.fields.columns} | EXTRAS
        read_request(row, command)
        if isinstance(row.body, tuple):
            # Java has its own order of the fields here.
            again = write_body(read_any(row.body, command.body))
            assert json.loads(again) == json.loads(command.body)
    assert seen == {(code, is_answer) for code in CODES for is_answer in (True, False)}


def test_the_clients_extra_info_follows_from_our_fields() -> None:
    """It makes the words of an ack of the answer and of the record."""
    answers = iter([c for is_answer, code, c in captured() if is_answer and code == 200050])
    acks = iter([c for is_answer, code, c in captured() if not is_answer and code == 200051])
    for answer, ack in zip(answers, acks, strict=True):
        (record,) = records_of(answer.body)
        fields = pop.POP_MESSAGE.answer.read(answer.ext)
        offsets = PopOffsets.of([Popped(pop.NORMAL, record.queue_id, record.queue_offset)])
        assert (fields.start_offset_info, fields.msg_offset_info) == offsets[:2]
        asked = pop.ACK_MESSAGE.fields.read(ack.ext)
        info = ExtraInfo.parse(asked.extra_info)
        assert str(info) == asked.extra_info
        assert info[1:5] == (fields.pop_time, fields.invisible_time, fields.revive_qid, pop.NORMAL)
        assert info[6:] == (record.queue_id, record.queue_offset)


NUMBERS = some.integers(0, 2**63 - 1)
INFOS = some.builds(
    ExtraInfo,
    start_offset=NUMBERS,
    pop_time=NUMBERS,
    invisible_time=NUMBERS,
    revive_qid=NUMBERS,
    topic_type=some.sampled_from([pop.NORMAL, pop.RETRY, pop.RETRY_V2]),
    broker_name=some.text("abc-", min_size=1),
    queue_id=NUMBERS,
    queue_offset=NUMBERS,
)


@given(INFOS)
def test_extra_info_comes_out_as_it_went_in(info: ExtraInfo) -> None:
    """It is all that a client knows of a delivery."""
    assert ExtraInfo.parse(str(info)) == info
    # RocketMQ's proxy adds the physical offset.
    assert ExtraInfo.parse(f"{info} 2790") == info


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0 1 2 3 0 b 4",
        "0 1 2 3 0 b 4 5 x",
        "0 1 2 3 0 b 4 5 6 7",
        "x 1 2 3 0 b 4 5",
        "0 -1 2 3 0 b 4 5",
        "0 1 2 3 0 b 4 \u0665",
        "0 1 2 3 0 b  5",
        "0 1 2 3 0 b 4 " + "9" * 20,
    ],
)
def test_other_words_are_no_extra_info(text: str) -> None:
    """Clients send back what they were given; somebody else may send anything."""
    with pytest.raises(FieldError, match=r"^extraInfo"):
        ExtraInfo.parse(text)


def test_offsets_have_a_part_for_each_queue_in_the_order_of_the_body() -> None:
    """The client looks for a message's offset by its place among those of its queue."""
    found = PopOffsets.of(
        [
            Popped(pop.NORMAL, 3, 17),
            Popped(pop.RETRY, 0, 4, 2),
            Popped(pop.NORMAL, 3, 16),
            Popped(pop.NORMAL, 0, 5, 1),
        ]
    )
    assert found.start == "0 3 17;1 0 4;0 0 5"
    assert found.messages == "0 3 17,16;1 0 4;0 0 5"
    assert found.attempts == "1 qo0%4 2;0 qo0%5 1"
    assert PopOffsets.of([Popped(pop.NORMAL, 0, 0)]).attempts is None


def test_a_retrys_topic_is_the_one_it_was_sent_to() -> None:
    """The client makes a name of group and topic; which one, says the topic type."""
    assert pop.topic_sent_to("T", "g", pop.NORMAL) == "T"
    assert pop.topic_sent_to("%RETRY%g_T_1", "g", pop.RETRY) == "T_1"
    assert pop.topic_sent_to("%RETRY%g+T", "g", pop.RETRY_V2) == "T"
    for topic, topic_type in (
        *(("T", "1"), ("%RETRY%g", "1"), ("%RETRY%g_", "1"), ("%RETRY%g_T", "2")),
        *(("%RETRY%h_T", "1"), ("T", "3"), ("T", "")),
    ):
        with pytest.raises(FieldError, match=r"^topic"):
            pop.topic_sent_to(topic, "g", topic_type)


def batch_ack(bits: str) -> BatchAck:
    return BatchAck("g", "T", pop.NORMAL, 100, 2, 7, 5_000, 60_000, bits)


@given(some.sets(some.integers(0, 6_000), max_size=40))
def test_a_batch_of_acks_names_the_offsets_of_its_bits(offsets: set[int]) -> None:
    """Java writes the bits as bytes in base64, the lowest first."""
    bits = sum([1 << offset for offset in offsets])
    packed = b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()
    body = write_body(BatchAcks((batch_ack(packed),), "broker-a"))
    (found,) = read_body(BatchAcks, body).acks
    assert list(found.offsets()) == sorted([100 + offset for offset in offsets])


def test_a_batch_of_acks_has_limits() -> None:
    """They are checked before a bit is looked at."""
    with pytest.raises(FieldError, match="bits in base64"):
        list(batch_ack("?").offsets())
    with pytest.raises(FieldError, match=f"at most {BATCH_ACK_BYTES_MAX} bytes"):
        read_body(BatchAcks, write_body(BatchAcks((batch_ack("A" * BATCH_ACK_BYTES_MAX + "A"),))))
    with pytest.raises(FieldError, match=f"at most {BATCH_ACKS_MAX} items"):
        read_body(BatchAcks, write_body(BatchAcks((batch_ack("AQ=="),) * (BATCH_ACKS_MAX + 1))))
