"""Compressed bodies: inflated for consumers and for people, in bounds, and never lost."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

import rmqlite
from rmqlite.kernel.words.compression import COMPRESSED, INFLATED_BYTES_MAX, inflated, readable
from rmqlite.kernel.words.errors import ExtraMissing, MessageTooLarge, NotSupported, Refused
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.views.messages import readable_message
from tests.support.compressed import (
    COMPRESS,
    LZ4,
    OLD_ZLIB,
    PACKAGES,
    UNKNOWN,
    ZLIB,
    ZSTD,
    without_the_extra,
)

BODY = b"order " * 1_000
COMMITTED = 0x8
BORN_HOST_V6 = 0x10
BY_JAVA = {
    LZ4: "04224d1860707373000000ff0b6162656a717a6b786d6477726f6e6f7277646d786b7a716a65621a00"
    + "ff" * 78
    + "3c5062656a717a00000000",
    ZSTD: "28b52ffd0058140100d06162656a717a6b786d6477726f6e6f7277646d786b7a716a656201000e38bdcf"
    "31010000",
}
EACH = pytest.mark.parametrize("sys_flag", COMPRESS, ids=["none", "zlib", "lz4", "zstd"])
OF_THE_EXTRA = pytest.mark.parametrize("sys_flag", PACKAGES, ids=["lz4", "zstd"])


def kept(body: bytes, sys_flag: int) -> StoredMessage:
    host = "127.0.0.1:1"
    return StoredMessage(
        "t",
        queue_id=0,
        queue_offset=7,
        physical_offset=0,
        store_size=100,
        body=body,
        properties={"UNIQ_KEY": "AC11"},
        flag=0,
        sys_flag=sys_flag,
        born_timestamp_ms=0,
        born_host=host,
        store_timestamp_ms=0,
        store_host=host,
        reconsume_times=0,
        prepared_transaction_offset=0,
    )


@EACH
def test_a_compressed_body_is_inflated(sys_flag: int) -> None:
    """All else of the message is as it was."""
    plain_flag = COMMITTED | BORN_HOST_V6
    message = kept(COMPRESS[sys_flag](BODY), sys_flag | plain_flag)
    assert inflated(message) == replace(message, body=BODY, sys_flag=plain_flag)
    shown, note = readable_message(message)
    assert shown == inflated(message)
    assert note.startswith(f"inflated from {len(message.body):,} bytes of ")


def test_what_rocketmqs_java_client_compressed_is_inflated() -> None:
    """Bodies as its version 4.9.8 sent them; tests/client has a store of zlib ones."""
    body = bytes([ord("a") + number * number % 26 for number in range(20_000)])
    for sys_flag, packed in BY_JAVA.items():
        assert inflated(kept(bytes.fromhex(packed), sys_flag)).body == body


def test_nobody_inflates_twice() -> None:
    """The sys flag says what the body is now, also when it looks like a zlib stream."""
    zlib = COMPRESS[ZLIB](BODY)
    once = inflated(kept(COMPRESS[ZLIB](zlib), ZLIB))
    assert once.body == zlib
    assert inflated(once) is once
    assert readable_message(once) == (once, "")


def test_a_body_that_is_not_marked_is_left_alone() -> None:
    """Whatever it looks like, and whatever codec the bits would name."""
    message = kept(COMPRESS[ZLIB](BODY), ZSTD & ~COMPRESSED)
    assert inflated(message) is message
    assert readable_message(message) == (message, "")


def test_an_empty_body_stays_empty() -> None:
    """RocketMQ's clients do not look into one, however it is marked."""
    assert inflated(kept(b"", LZ4)) == kept(b"", 0)
    assert readable_message(kept(b"", LZ4)) == (kept(b"", 0), "")


def test_an_unknown_codec_is_named() -> None:
    """So that a person knows which client to change."""
    message = kept(BODY, UNKNOWN)
    with pytest.raises(NotSupported, match=r"message AC11 .*0x700") as error:
        inflated(message)
    assert "zlib" in error.value.rule
    shown, note = readable_message(message)
    assert shown is message
    assert "codec 0x700, shown as it is stored" in note


@OF_THE_EXTRA
def test_without_the_extra_its_name_is_the_answer(
    sys_flag: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer fails with it; whoever looks sees the bytes and a note.  zlib always works."""
    without_the_extra(monkeypatch)
    message = kept(COMPRESS[sys_flag](BODY), sys_flag)
    with pytest.raises(ExtraMissing, match=r"message AC11 .*rmqlite\[compression\]") as error:
        inflated(message)
    assert PACKAGES[sys_flag] in str(error.value)
    shown, note = readable_message(message)
    assert shown is message
    assert "shown as it is stored" in note
    assert 'pip install "rmqlite[compression]"' in note
    assert inflated(kept(COMPRESS[ZLIB](BODY), ZLIB)).body == BODY


@EACH
def test_a_damaged_body_is_refused_by_name_and_shown_as_it_is(sys_flag: int) -> None:
    """Not of the codec at all, cut anywhere, or changed inside."""
    whole = COMPRESS[sys_flag](BODY)
    damaged = [BODY, *[whole[:size] for size in range(1, len(whole))]]
    if sys_flag in (OLD_ZLIB, ZLIB):
        damaged += [whole[:20] + b"~~~~" + whole[24:], whole[:-4] + b"sum?"]
    for body in damaged:
        message = kept(body, sys_flag)
        named = r"message AC11 \(t queue 0 offset 7\) cannot be inflated"
        with pytest.raises(Refused, match=named):
            inflated(message)
        shown, note = readable_message(message)
        assert shown is message
        assert "shown as it is stored: " in note
        assert readable(body, sys_flag, 2 * len(BODY)).body == body


@EACH
def test_a_body_may_inflate_to_the_limit_and_not_beyond(sys_flag: int) -> None:
    """Sixty-four kilobytes must not take a consumer's memory."""
    compress = COMPRESS[sys_flag]
    zeros = bytes(INFLATED_BYTES_MAX)
    assert len(inflated(kept(compress(zeros), sys_flag)).body) == INFLATED_BYTES_MAX
    bomb = kept(compress(zeros + b"0"), sys_flag)
    with pytest.raises(MessageTooLarge, match=f"{INFLATED_BYTES_MAX} .*AC11"):
        inflated(bomb)
    shown, note = readable_message(bomb)
    assert shown is bomb
    assert f"more than {INFLATED_BYTES_MAX:,} bytes" in note


@EACH
def test_a_part_of_a_body_costs_only_that_part(sys_flag: int) -> None:
    """The page shows some kilobytes of any body, a bomb among them."""
    bomb = COMPRESS[sys_flag](bytes(16 << 20))
    tracemalloc.start()
    body, is_whole, note = readable(bomb, sys_flag, 1_000)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (body, is_whole) == (bytes(1_000), False)
    assert "inflated from" in note
    assert most < 2 << 20


def test_a_zstd_window_larger_than_any_body_is_refused() -> None:
    """A decoder reserves the window that the first bytes of the stream ask for."""
    # Magic number, a descriptor without a length, and a window of 2**31 bytes.
    body = bytes.fromhex("28b52ffd") + bytes([0x00, 21 << 3]) + b"\x01\x00\x00"
    with pytest.raises(Refused, match="too much memory"):
        inflated(kept(body, ZSTD))


def test_few_modules_inflate_and_each_within_bounds() -> None:
    """All others come here, so that a kilobyte never becomes more than the limit in memory."""
    package = Path(rmqlite.__file__).parent
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if "decompress" in path.read_text()
    }
    assert found == {
        "kernel/words/compression.py",
        "protocols/native/replication.py",
        "protocols/remoting/bytes/registration.py",
        "protocols/rocketmq_v2/bytes/messages.py",
    }
    for name in found:
        text = (package / name).read_text()
        assert text.count(".decompress(") == text.count(".decompress(body, ")
