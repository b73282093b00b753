"""Frames come out of a connection's bytes whole, however the bytes are cut; nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rmqlite.kernel.words.property_string import PropertyString
from rmqlite.protocols.remoting.bytes.command import Command, server_request
from rmqlite.protocols.remoting.bytes.fields import (
    EXT_FIELDS_MAX,
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
)
from rmqlite.protocols.remoting.bytes.frame import (
    LANGUAGES,
    FrameDecoder,
    encode,
    encode_sent,
    encode_start,
)
from rmqlite.protocols.remoting.bytes.requests.sends import (
    SEND_MESSAGE_V2,
    SendAnswerFields,
    SendMessage,
)
from tests.support.exchanges import command_of
from tests.wire.remoting.memory import peak_bytes

TEXT = some.text(some.characters(exclude_categories=["Cs"]), max_size=40)
I32 = some.integers(-(2**31), 2**31 - 1)
COMMANDS = some.builds(
    Command,
    code=some.integers(0, 2**15 - 1),
    opaque=I32,
    ext=some.dictionaries(TEXT, TEXT, max_size=5),
    body=some.binary(max_size=200),
    flag=some.integers(0, 3),
    remark=TEXT,
    language=some.sampled_from(LANGUAGES),
    version=some.integers(0, 2**15 - 1),
    is_binary=some.booleans(),
)
STREAM = [
    Command(310, 1, {"b": "orders", "i": "KEYS\x01k\x02TAGS\x01ä"}, b"body"),
    Command(34, -7, {}, b"{}", language="GO", is_binary=True),
    Command(14, 2**31 - 1, {"topic": "orders", "queueId": "0"}, flag=2, language="CPP"),
]


def frame(header: bytes, *, spelling: int = 0, header_bytes: int | None = None) -> bytes:
    size = len(header) if header_bytes is None else header_bytes
    return (
        (4 + len(header)).to_bytes(4, "big") + bytes([spelling]) + size.to_bytes(3, "big") + header
    )


def broken_by(data: bytes, frame_bytes_max: int = FRAME_BYTES_MAX) -> str:
    decoder = FrameDecoder(frame_bytes_max)
    assert decoder.feed(data) == []
    assert decoder.held_bytes == 0
    return str(decoder.error or "")


@settings(deadline=None)
@given(COMMANDS)
def test_a_command_comes_out_as_it_went_in(command: Command) -> None:
    """Both spellings of the header hold every text and every number."""
    assert command_of(encode(command)) == command
    assert encode(command) == encode_start(command, len(command.body)) + command.body


@settings(deadline=None, max_examples=30)
@given(some.lists(COMMANDS, max_size=5), some.integers(1, 50))
def test_many_frames_come_out_in_order(commands: list[Command], step: int) -> None:
    """Clients send many requests at once, and TCP cuts where it likes."""
    data = b"".join(map(encode, commands))
    decoder = FrameDecoder()
    found = []
    for begin in range(0, len(data), step):
        found += decoder.feed(data[begin : begin + step])
    assert found == commands
    assert (decoder.error, decoder.held_bytes) == (None, 0)


def test_a_stream_may_be_cut_at_every_byte() -> None:
    """The first part gives a prefix of the commands, the second the others."""
    data = b"".join(map(encode, STREAM))
    for cut in range(len(data) + 1):
        decoder = FrameDecoder()
        before = decoder.feed(data[:cut])
        assert before == STREAM[: len(before)]
        assert len(decoder._held) == cut - sum(len(encode(each)) for each in before)
        assert before + decoder.feed(data[cut:]) == STREAM
        assert (decoder.error, decoder.held_bytes) == (None, 0)


@settings(deadline=None)
@given(some.dictionaries(some.text(some.characters(categories=["L", "N"]), min_size=1), TEXT))
def test_a_property_string_comes_out_byte_for_byte(properties: dict[str, str]) -> None:
    """Its separators are control characters, which JSON has to escape."""
    clean = {k: v.replace("\x01", "").replace("\x02", "") for k, v in properties.items()}
    sent = PropertyString(b"").edited(clean)
    for is_binary in (False, True):
        ext = SEND_MESSAGE_V2.fields.write(SendMessage("t", properties=sent.encoded.decode()))
        command = command_of(encode(Command(310, 1, ext, is_binary=is_binary)))
        came = SEND_MESSAGE_V2.fields.read(command.ext).properties
        assert PropertyString(came.encode()).pairs == sent.pairs


@pytest.mark.parametrize("more", [{}, {"recallHandle": "djE="}, {"transactionId": 'a "7" \u00e4'}])
def test_the_fast_answer_to_a_send_is_the_plain_one(more: dict[str, str]) -> None:
    """Two ways to write one answer must not drift apart."""
    for is_binary in (False, True):
        request = Command(310, 17, {}, is_binary=is_binary)
        plain = SEND_MESSAGE_V2.answer.write(SendAnswerFields("7F00", 3, 2**40)) | more
        fast = command_of(encode_sent(request, 0, "7F00", 3, 2**40, more))
        assert fast == command_of(encode(request.answer(0, plain)))


def test_a_request_that_the_broker_starts_is_json() -> None:
    """The C++ client reads nothing else, whatever its own requests are."""
    command = server_request(40, 3, {"consumerGroup": "g"}, is_one_way=True)
    assert (command.is_binary, command.is_one_way, command.is_answer) == (False, True, False)


HEADER = b'{"code":14,"opaque":7}'


@pytest.mark.parametrize(
    "data",
    [
        bytes(8),
        b"\x00\x00\x00\x03abc",
        (-5).to_bytes(4, "big", signed=True) + bytes(40),
        (FRAME_BYTES_MAX + 1).to_bytes(4, "big"),
        b"\x16\x03\x01\x00\x05hello",
        frame(HEADER, spelling=2),
        frame(HEADER, header_bytes=len(HEADER) + 1),
        (HEADER_BYTES_MAX + 99).to_bytes(4, "big") + (HEADER_BYTES_MAX + 1).to_bytes(4, "big"),
        frame(b""),
        frame(b"hello"),
        frame(b"[]"),
        frame(b"7"),
        frame(HEADER + b"x"),
        frame(b"[" * 100_000),
        frame(b'{"a":' * 50_000),
        frame(b'{"opaque":NaN}'),
        frame(b'{"opaque":2147483648}'),
        frame(b'{"opaque":' + b"9" * 5_000 + b"}"),
        frame(b'{"opaque":"x"}'),
        frame(b'{"code":[]}'),
        frame(b'{"extFields":7}'),
        frame(b'{"extFields":["a"]}'),
        frame(b'{"extFields":{%s}}' % b",".join(b'"%d":1' % n for n in range(EXT_FIELDS_MAX + 1))),
    ],
)
def test_what_is_no_frame_closes_the_connection(data: bytes) -> None:
    """As RocketMQ does; a frame with an error has no opaque that an answer could have."""
    assert broken_by(data)


def test_a_binary_header_that_is_cut_or_lies_closes_the_connection() -> None:
    """At every byte, and for every length field that points past the end, or before it."""
    whole = encode(Command(14, 7, {"topic": "t", "queueId": "0"}, remark="r", is_binary=True))[8:]
    assert command_of(frame(whole, spelling=1)).ext == {"topic": "t", "queueId": "0"}
    for cut in range(len(whole)):
        assert broken_by(frame(whole[:cut], spelling=1)), cut
    for at in (13, 18, 22, 29):
        for claim in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"):
            lying = (
                whole[:at] + claim[: 2 if at == 22 else 4] + whole[at + (2 if at == 22 else 4) :]
            )
            assert broken_by(frame(lying, spelling=1)), at


def test_the_commands_before_a_broken_frame_are_good() -> None:
    """And nothing after it is read, also not later."""
    decoder = FrameDecoder()
    data = b"".join(map(encode, STREAM))
    assert decoder.feed(data + bytes(8) + data) == STREAM
    assert decoder.error is not None
    assert decoder.feed(data) == []


def test_an_operators_lower_limit_holds() -> None:
    """The protocol's 16 MiB are more than a small machine has to spare."""
    fits = encode(Command(310, 1, {}, b"x" * 100))
    assert len(FrameDecoder(len(fits) - 4).feed(fits)) == 1
    assert broken_by(fits, len(fits) - 5)


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        (b'{"code":14}', Command(14, 0, {}, language="", version=0)),
        (b' {"code":14,"opaque":"7"}\n', Command(14, 7, {}, language="", version=0)),
        (
            b'{"code":14,"extFields":null,"remark":null,"x":[1]}',
            Command(14, 0, {}, language="", version=0),
        ),
        (
            b'{"extFields":{"a":1,"b":true,"c":null,"d":1.50,"e":{"x":[]},"f":"\\ud83d\\ude00"}}',
            Command(
                0,
                0,
                {"a": "1", "b": "true", "d": "1.50", "e": '{"x":[]}', "f": "\U0001f600"},
                language="",
                version=0,
            ),
        ),
        (b'{"extFields":{"a":"\\ud800b"}}', Command(0, 0, {"a": "?b"}, language="", version=0)),
        (b'{"extFields":{"a":"\xff"}}', Command(0, 0, {"a": "\ufffd"}, language="", version=0)),
    ],
)
def test_a_json_header_is_read_leniently(sent: bytes, seen: Command) -> None:
    """C++ sends numbers, Go leaves fields out, and half a character must not reach the store."""
    assert command_of(frame(sent)) == seen


def test_a_length_is_only_a_claim() -> None:
    """Room is made for bytes that came, not for those that are promised."""
    decoder = FrameDecoder()
    promise = FRAME_BYTES_MAX.to_bytes(4, "big") + bytes(4)
    assert peak_bytes(lambda: decoder.feed(promise)) < 64 << 10
    assert len(promise) <= decoder.held_bytes < 64


def test_an_error_keeps_no_view_of_the_bytes() -> None:
    """Its connection may wait long for a client that does not read its last answers."""
    decoder = FrameDecoder()
    for data in (b"\0\0\0\x0f\0\0\0\x0b", b"no header..", bytes(8)):
        decoder.feed(data)
    assert decoder.error is not None
    assert (decoder.error.__traceback__, decoder.error.__context__) == (None, None)
    assert decoder.held_bytes == 0


def test_an_incomplete_frame_takes_as_much_memory_as_its_bytes() -> None:
    """Also one that comes in small pieces, and never completes."""
    limit = 1 << 20
    decoder = FrameDecoder(limit)
    promise = limit.to_bytes(4, "big") + bytes(4)
    pieces = [promise] + [bytes(4096)] * (limit // 4096 - 1)

    def feed() -> None:
        for piece in pieces:
            assert decoder.feed(piece) == []

    assert peak_bytes(feed) < 2.5 * limit
    assert limit - 4096 < decoder.held_bytes < 1.2 * limit


@pytest.mark.parametrize(
    "header",
    [
        b'{"extFields":{"a":[' + b"[]," * (HEADER_BYTES_MAX // 3 - 20) + b"0]}}",
        b"[" + b"{}," * (HEADER_BYTES_MAX // 3 - 20) + b"0]",
        b"[" * HEADER_BYTES_MAX,
        b'{"extFields":{' + b'"a":"",' * (HEADER_BYTES_MAX // 7 - 20) + b'"a":""}}',
    ],
    ids=["lists", "objects", "deep", "fields"],
)
def test_no_header_costs_more_memory_than_the_largest_frame(header: bytes) -> None:
    """An empty object takes 3 bytes in a header, and 70 once it is read."""
    data = frame(header)
    assert len(header) <= HEADER_BYTES_MAX
    decoder = FrameDecoder()
    assert peak_bytes(lambda: decoder.feed(data)) < FRAME_BYTES_MAX
