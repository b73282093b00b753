"""Frames by the compiled form, beside their plain twin."""

from __future__ import annotations

import json
from random import Random
from struct import pack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rmqlite.kernel import compiled
from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.fields import FRAME_BYTES_MAX, HEADER_BYTES_MAX
from rmqlite.protocols.remoting.bytes.frame import ALL, FrameDecoder
from tests.support.forms import damaged, needs_compiled
from tests.support.thinned import part_of

pytestmark = needs_compiled

BODY = b"order"
ORDINARY = (
    b'{"code":310,"extFields":{"a":"senders","b":"orders","i":"KEYS\\u0001k \\/\\"\\\\\\u0002'
    b'TAGS\\u0001TagA","e":"0"},"flag":0,"language":"JAVA","opaque":17,'
    b'"serializeTypeCurrentRPC":"JSON","version":399}'
)
TEXTS = some.sampled_from(("", "orders", "a\x01b\x02", 'q"\\/\b\f\n\r\t', "\x7f\0", "Größe", "日"))
NUMBERS = some.sampled_from((0, 17, -1, 999_999_999, 10**9, -(2**31), 2**31, 1.5, None, "7", True))
HEADERS = some.fixed_dictionaries(
    {},
    optional={
        "code": NUMBERS,
        "opaque": NUMBERS,
        "flag": NUMBERS,
        "version": NUMBERS,
        "language": some.sampled_from(("JAVA", "GO", "", None, 7)),
        "remark": some.one_of(TEXTS, some.none(), some.just(7)),
        "extFields": some.one_of(
            some.dictionaries(TEXTS, TEXTS, max_size=5),
            some.dictionaries(TEXTS, some.one_of(TEXTS, NUMBERS), max_size=3),
            some.sampled_from((None, {}, [], "x", {"a": {"b": "c"}})),
        ),
        "serializeTypeCurrentRPC": some.sampled_from(("JSON", None)),
        "other": some.sampled_from(("x", 7, [])),
    },
)


def frame_of(header: bytes) -> bytes:
    return pack(">iI", 4 + len(header) + len(BODY), len(header)) + header + BODY


def read_as(data: bytes, *, is_compiled: bool, most: int = ALL) -> tuple[list[Command], str]:
    """The commands, and why no more can follow; all that is left is read, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "is_on", is_compiled)
        decoder = FrameDecoder()
        commands: list[Command] = []
        while found := decoder.feed(b"" if commands else data, most):
            assert len(found) <= most or most == ALL
            commands += found
        return commands, f"{decoder.error} {decoder.held_bytes}"


def in_frames(data: bytes) -> tuple[list[Command], int]:
    """What the compiled form reads, and where it stops."""
    commands: list[Command] = []
    limits = (FRAME_BYTES_MAX, HEADER_BYTES_MAX)
    at = compiled.loops.read_frames(data, 0, commands, ALL, *limits, Command)
    return commands, at


def is_read(header: bytes) -> bool:
    """Does the compiled form take this header?  If so, with the plain form's result."""
    frame = frame_of(header)
    plain, error = read_as(frame, is_compiled=False)
    assert read_as(frame, is_compiled=True) == (plain, error)
    commands, at = in_frames(frame)
    assert at == len(frame) * len(commands)
    for command, other in zip(commands, plain, strict=False):
        assert type(command) is Command
        assert list(map(type, command)) == list(map(type, other))
        assert list(command.ext) == list(other.ext)
    return bool(commands)


@settings(max_examples=part_of(600))
@given(HEADERS, some.sampled_from((None, 1)), some.booleans())
def test_every_header_is_read_alike(
    header: dict[str, Any], indent: int | None, is_ascii: bool
) -> None:
    """Whatever a client writes, with blanks and without."""
    is_read(json.dumps(header, indent=indent, ensure_ascii=is_ascii).encode())


def test_what_clients_write_is_read_by_the_compiled_form() -> None:
    """Otherwise the other tests would compare the plain form with itself."""
    assert is_read(ORDINARY)
    assert is_read(ORDINARY.replace(b",", b" ,\r\n\t").replace(b":", b" : "))
    assert is_read(b"{}") is False
    assert is_read(b'{"code":0}')


def test_damaged_headers_are_read_alike() -> None:
    """Or refused alike."""
    random = Random(1)
    taken = sum([is_read(damaged(ORDINARY, random)) for _ in range(6_000)])
    assert 0 < taken < 6_000
    for end in range(len(ORDINARY)):
        assert not is_read(ORDINARY[:end])


@pytest.mark.parametrize(
    "odd",
    [
        b'{"code":01}',
        b'{"code":-}',
        b'{"code":1\x0c}',
        b'{"code":1}}',
        b'{"code":1} ',
        b'\x0b{"code":1}',
        b'{"code":1,}',
        b'{"co\\u0064e":1}',
        b'{"code":1e3}',
        b'{"remark":"\\u00e9"}',
        b'{"remark":"\\ud83d\\ude00"}',
        b'{"remark":"\\x"}',
        b'{"remark":"\\u00',
        b'{"extFields":{"a":"1"},"extFields":{"b":"2"}}',
        b'{"extFields":{' + b",".join([b'"k%d":"v"' % n for n in range(65)]) + b"}}",
    ],
)
def test_what_is_out_of_the_ordinary_is_left_to_the_plain_form(odd: bytes) -> None:
    """It may be right still, and is for the plain form to judge."""
    assert not is_read(odd)


@settings(max_examples=part_of(300))
@given(
    some.lists(
        some.sampled_from((ORDINARY, b'{"code":1}', b'{"code":"7"}', b"{}", b"[]")), max_size=6
    ),
    some.sampled_from((ALL, 1, 2)),
    some.integers(0, 40),
)
def test_frames_that_come_together_are_read_alike(
    headers: list[bytes], most: int, missing: int
) -> None:
    """Odd ones between ordinary ones, a last one that is not whole, and a few at a time."""
    data = b"".join(map(frame_of, headers))
    data = data[: len(data) - missing]
    assert read_as(data, is_compiled=True, most=most) == read_as(data, is_compiled=False, most=most)


def test_damaged_frames_are_read_alike() -> None:
    """Their lengths, too, which are only claims."""
    random = Random(3)
    frames = frame_of(ORDINARY) * 3
    for _ in range(4_000):
        data = damaged(frames, random)
        assert read_as(data, is_compiled=True) == read_as(data, is_compiled=False)
    for length, mark in ((-1, 2), (3, 0), (2**31 - 1, 9), (4, 2**32 - 1), (4, 5), (2**24, 2**20)):
        data = pack(">iI", length, mark) + frames
        assert in_frames(data) == ([], 0)
        assert read_as(data, is_compiled=True) == read_as(data, is_compiled=False)


def test_another_class_is_an_error() -> None:
    """And no crash."""
    wrong: Any = dict
    with pytest.raises(TypeError):
        compiled.loops.read_frames(frame_of(ORDINARY), 0, [], ALL, 1 << 20, 1 << 20, wrong)
    assert compiled.loops.read_frames(b"", 7, [], ALL, 1 << 20, 1 << 20, Command) == 7
    assert compiled.loops.read_frames(b"x", -7, [], ALL, 1 << 20, 1 << 20, Command) == -7
