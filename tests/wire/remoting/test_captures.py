"""The table and the codecs read, and write again, what real clients and RocketMQ 4.9.8 sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqlite.protocols.remoting.bytes.batch import write_batch
from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.fields import FieldError
from rmqlite.protocols.remoting.bytes.frame import FrameDecoder, encode
from rmqlite.protocols.remoting.bytes.requests import ANSWERED, REFUSED
from rmqlite.protocols.remoting.bytes.requests.broker import read_settings, write_settings
from rmqlite.protocols.remoting.bytes.requests.request import EXTRAS, Body, Party
from rmqlite.protocols.remoting.bytes.requests.sends import BROKER_NAME_SHORT, SHORT_NAMES
from rmqlite.protocols.remoting.bytes.shapes import read_body, write_body
from tests.support.exchanges import Row, body_of, command_of, frame_of, probes, scenarios
from tests.wire.remoting.reading import read_any, read_request

SILENCE = "no answer, connection stays open"
CLOSED = "connection closed by server"
ELSEWHERE = {"broker 105 (name server code)"}
"""Broker and name server are one process here, and one table."""
ANSWERED_HERE = {
    "namesrv unknown code 9999": "code 3",
    "broker unknown code oneway": "code 3",
    "52": "code 3",
    "namesrv broker code 310": "code 1",
}
"""RocketMQ answers nothing; here an answer is known, which a one-way request does not get."""
UNREADABLE = ("java.lang.", "com.alibaba.fastjson.", "The specified topic is blank.")
"""How RocketMQ's remark begins where a field or a body cannot be read."""
MAY_LACK = {103, 322}
"""Codes whose answer need not have its body."""
JUDGED = {"37 commit bogus", "223 absent"}
"""It can be read; RocketMQ fails at a message, or a topic, that does not exist."""


def header_values(frame: bytes) -> dict[str, Any]:
    """A JSON header without what may be absent, and with texts as ext values."""
    header = json.loads(frame[8 : 8 + int.from_bytes(frame[5:8], "big")])
    ext = header.pop("extFields", None) or {}
    header.pop("serializeTypeCurrentRPC", None)
    header["remark"] = header.get("remark") or ""
    header["extFields"] = {name: str(value) for name, value in ext.items()}
    return dict(header)


def is_java(frame: bytes) -> bool:
    return b'"serializeTypeCurrentRPC"' in frame


@pytest.mark.parametrize("scenario", sorted(scenarios()))
def test_every_frame_is_read_and_written_again(scenario: str) -> None:
    """Byte for byte; of a JSON header the values, and the bytes if Java wrote ext fields."""
    for row in scenarios()[scenario]:
        if "frame_hex" not in row:
            continue
        frame = bytes.fromhex(row["frame_hex"])
        command = command_of(frame)
        again = encode(command)
        if command.is_binary or (command.ext and is_java(frame)):
            assert again == frame
        else:
            assert header_values(again) == header_values(frame)
            assert command.body == body_of(row)
            assert again.endswith(command.body)


def requests(scenario: str) -> list[tuple[Row, Command]]:
    found = []
    for row in scenarios()[scenario]:
        frame = frame_of(row)
        if frame is not None and "request_code" in row:
            found.append((row, command_of(frame)))
    return found


@pytest.mark.parametrize("scenario", sorted(scenarios()))
def test_every_request_is_in_the_table_with_all_its_fields(scenario: str) -> None:
    """A field that the table lacks would be lost without a word."""
    for row, command in requests(scenario):
        if command.code in REFUSED:
            continue
        kind = ANSWERED[command.code]
        known = {column.wire for column in kind.fields.columns} | EXTRAS
        if "b" in known and "a" in known:
            known.add(BROKER_NAME_SHORT)
        assert command.ext.keys() <= known, command
        to_client = row["dir"] == "server->client"
        assert (Party.CLIENT in kind.asked) if to_client else (kind.asked != (Party.CLIENT,))
        is_relayed = len(kind.asked) > 1 and not to_client
        if is_relayed:
            kind.fields.read(command.ext)
        else:
            read_request(kind, command)


@pytest.mark.parametrize("scenario", sorted(scenarios()))
def test_every_answer_has_the_fields_and_the_body_of_the_table(scenario: str) -> None:
    """Bodies come out of it byte for byte as RocketMQ wrote them."""
    for row in scenarios()[scenario]:
        kind = ANSWERED.get(row.get("answers_request_code") or 0)
        frame = frame_of(row)
        if kind is None or frame is None:
            continue
        command = command_of(frame)
        assert command.ext.keys() <= {column.wire for column in kind.answer.columns}
        if command.code == 0:
            assert kind.answer.write(kind.answer.read(command.ext)) == command.ext
            if isinstance(kind.answer_body, tuple) and (command.body or kind.code not in MAY_LACK):
                is_strict = b'"brokerAddrs":{"0"' in command.body
                value = read_any(kind.answer_body, command.body)
                assert write_body(value, is_strict=is_strict) == command.body


def test_bodies_of_requests_are_written_as_java_writes_them() -> None:
    """RocketMQ's own clients must be able to read what the broker sends them, such as 220."""
    seen = set()
    for scenario in scenarios():
        for row, command in requests(scenario):
            kind = ANSWERED.get(command.code)
            if kind is None or row["header"]["language"] != "JAVA" or not command.body:
                continue
            if isinstance(kind.body, tuple):
                assert write_body(read_any(kind.body, command.body)) == command.body
                seen.add(command.code)
            elif kind.body is Body.SETTINGS:
                assert write_settings(read_settings(command.body)) == command.body
                seen.add(command.code)
            elif command.code == 320:
                _, items = read_request(kind, command)
                assert write_batch(items) == command.body
                seen.add(command.code)
    assert seen == {34, 41, 42, 46, 200, 220, 25, 318, 320}


def test_settings_of_a_real_broker_are_read_and_written_again() -> None:
    """187 keys, in the order in which RocketMQ wrote them."""
    (row,) = [
        row
        for row in scenarios()["mqadmin-getBrokerConfig"]
        if row.get("answers_request_code") == 26
    ]
    body = body_of(row)
    assert body is not None
    assert read_settings(body)["brokerName"] == "broker-a"
    assert write_settings(read_settings(body)) == body


def outcome(sent: bytes) -> str:
    """What becomes of a probe before any broker sees it."""
    decoder = FrameDecoder()
    commands = decoder.feed(sent)
    if decoder.error is not None:
        assert commands == []
        return CLOSED
    (command,) = commands
    if command.is_answer:
        return SILENCE
    kind = ANSWERED.get(command.code)
    if kind is None:
        return "code 3"
    try:
        read_request(kind, command)
    except FieldError:
        return "code 1"
    return "read"


def recorded(probe: Row) -> str:
    """The same, of what RocketMQ did."""
    answer = probe["answer"]
    if not isinstance(answer, dict):
        return ANSWERED_HERE.get(probe["probe"], str(answer))
    command = command_of(bytes.fromhex(answer["frame_hex"])) if "frame_hex" in answer else None
    header = answer.get("header") or {"code": command.code if command else 0}
    if header["code"] == 3 and probe["probe"] not in ELSEWHERE:
        return "code 3"
    is_unreadable = str(header.get("remark", "")).startswith(UNREADABLE)
    return "code 1" if is_unreadable and probe["probe"] not in JUDGED else "read"


@pytest.mark.parametrize("probe", probes(), ids=lambda probe: str(probe["probe"]))
def test_a_probe_has_the_outcome_that_was_recorded(probe: Row) -> None:
    """Closed, or answered; other answers than these are the broker's to decide."""
    found, there = outcome(bytes.fromhex(probe["sent_hex"])), recorded(probe)
    if there == SILENCE and found == "read":
        return
    assert found == there


def test_the_bodies_of_go_and_cpp_mean_what_javas_mean() -> None:
    """Numbers for names, texts for numbers, absent keys."""
    heartbeats = [
        read_body(ANSWERED[34].body[0], command.body)  # type: ignore[index]
        for scenario in ("cpp-push-tags", "go-push", "push-tags")
        for _, command in requests(scenario)
        if command.code == 34
    ]
    consumers = [each for heartbeat in heartbeats for each in heartbeat.consumer_data_set]
    assert len(heartbeats) > 5
    assert {each.consume_type for each in consumers} == {"CONSUME_PASSIVELY"}
    assert {each.message_model for each in consumers} == {"CLUSTERING"}
    assert all(each.subscription_data_set for each in consumers)


def test_short_names_are_the_letters_in_order() -> None:
    """A gap would be a field that was forgotten."""
    assert sorted([*SHORT_NAMES.values(), BROKER_NAME_SHORT]) == list("abcdefghijklmn")
