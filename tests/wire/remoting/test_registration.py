"""Tables of topics that brokers send to name servers: as captured, and as nobody should."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.fields import FieldError
from rmqlite.protocols.remoting.bytes.registration import (
    BODY_BYTES_MAX,
    TOPICS_MAX,
    RegisteredTopic,
    Registration,
    compressed,
    crc_of,
    decode_packed,
    decode_plain,
    encode_packed,
    encode_plain,
    inflated,
)
from rmqlite.protocols.remoting.bytes.requests.groups import TableVersionBody
from rmqlite.protocols.remoting.bytes.requests.name_server import REGISTER_BROKER
from tests.support.exchanges import CLUSTER, command_of, scenarios
from tests.support.steps import done

TABLE = Registration(
    TableVersionBody(1_795_574_546_558, 7),
    {f"topic-{number}": RegisteredTopic(4, 8, 6) for number in range(250)},
)


def registrations() -> list[Command]:
    """All that a real broker has sent."""
    frames = [
        command_of(bytes.fromhex(row["frame_hex"]))
        for rows in scenarios(CLUSTER).values()
        for row in rows
        if row.get("request_code") == REGISTER_BROKER.code
    ]
    assert len(frames) > 20
    return frames


def test_a_captured_table_is_read_and_written_again() -> None:
    """Byte for byte in JSON; the compressed one before zlib, whose level is another here."""
    forms = set()
    for command in registrations():
        asked = REGISTER_BROKER.fields.read(command.ext)
        assert asked.body_crc32 == crc_of(command.body)
        assert REGISTER_BROKER.fields.write(asked) == command.ext
        if asked.compressed:
            packed = inflated(command.body)
            assert done(encode_packed(done(decode_packed(packed)))) == packed
        else:
            table = done(decode_plain(command.body))
            assert done(encode_plain(table)) == command.body
        forms.add(asked.compressed)
    assert forms == {False, True}


def test_both_forms_hold_the_same_table() -> None:
    """Longer than one step."""
    assert done(decode_plain(done(encode_plain(TABLE)))) == TABLE
    assert done(decode_packed(inflated(compressed(done(encode_packed(TABLE)))))) == TABLE


@pytest.mark.parametrize("form", ["plain", "packed", "compressed"])
def test_a_table_that_is_cut_off_is_refused(form: str) -> None:
    """Wherever it is cut."""
    short = Registration(TABLE.version, dict(list(TABLE.topics.items())[:3]))
    body = done(encode_plain(short)) if form == "plain" else done(encode_packed(short))
    if form == "compressed":
        body = compressed(body)

    def read(part: bytes) -> Registration:
        if form == "plain":
            return done(decode_plain(part))
        return done(decode_packed(inflated(part) if form == "compressed" else part))

    assert read(body) == short
    for end in range(1, len(body)):
        with pytest.raises(FieldError):
            read(body[:end])


def plain(table: Any = None, version: Any = None) -> bytes:
    wrapper = {"dataVersion": version or {}, "topicConfigTable": table or {}}
    return json.dumps({"topicConfigSerializeWrapper": wrapper}).encode()


def row(**other: Any) -> dict[str, Any]:
    queues = {"topicName": "T", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    return queues | other


def packed(*rows: bytes, count: int | None = None) -> bytes:
    parts = [b"{}", *rows, b"[]"]
    sized = [len(each).to_bytes(4, "big") + each for each in parts]
    number = len(rows) if count is None else count
    sized.insert(1, number.to_bytes(4, "big", signed=True))
    return b"".join(sized)


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        b"[]",
        b"null",
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":' + b"[" * 100_000,
        b'{"a":' + b"1" * 20_000 + b"}",
        plain({"T": "a text"}),
        plain({"T": row(readQueueNums="many")}),
        plain({"T": row(readQueueNums=-1)}),
        plain({"T": row(writeQueueNums=2**31 - 1)}),
        plain({"T": row(perm=2**40)}),
        plain({"": row()}),
        plain({"t" * 256: row()}),
        plain({"größe": row()}),
        plain(version={"timestamp": "now"}),
        plain(version={"timestamp": 10**30}),
        plain({f"t{number}": row() for number in range(TOPICS_MAX + 1)}),
        b" " * (BODY_BYTES_MAX + 1),
    ],
    ids=lambda body: str(body[:60]),
)
def test_a_wrong_table_in_json_is_refused(body: bytes) -> None:
    """As a field that breaks a rule, and nothing else."""
    with pytest.raises(FieldError):
        done(decode_plain(body))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        packed(count=-1),
        packed(count=2**31 - 1),
        packed(count=5),
        packed(b"T 4 4"),
        packed(b"T 4 4 6 SINGLE_TAG more"),
        packed(b"T four 4 6 SINGLE_TAG"),
        packed(b"T -4 4 6 SINGLE_TAG"),
        packed(b"T " + b"9" * 9_000 + b" 4 6 SINGLE_TAG"),
        packed("T ٤ 4 6 SINGLE_TAG".encode()),
        packed(b" 4 4 6 SINGLE_TAG"),
        packed(b"\xff 4 4 6 SINGLE_TAG"),
        (2**31 - 1).to_bytes(4, "big") + b"{}",
        b"\xff\xff\xff\xff{}",
        b"\x00\x00\x00\x02[]",
    ],
    ids=lambda body: str(body[:60]),
)
def test_a_wrong_packed_table_is_refused(body: bytes) -> None:
    """Lengths and counts are not believed."""
    with pytest.raises(FieldError):
        done(decode_packed(body))


def test_a_bomb_is_not_inflated() -> None:
    """A few kilobytes may stand for gigabytes; a stream that is none, or goes on, is refused."""
    for body in (zlib.compress(bytes(BODY_BYTES_MAX + 1)), b"no stream", b""):
        with pytest.raises(FieldError):
            inflated(body)
    assert len(inflated(zlib.compress(bytes(BODY_BYTES_MAX)))) == BODY_BYTES_MAX


def test_a_name_with_a_blank_has_no_packed_form() -> None:
    """It would be read as another topic."""
    with pytest.raises(FieldError):
        done(encode_packed(Registration(TABLE.version, {"a b": RegisteredTopic(4, 4, 6)})))
