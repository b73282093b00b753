"""A body as a page shows it."""

from __future__ import annotations

import zlib
from dataclasses import replace
from threading import get_ident

import pytest

from rmqlite.compression import COMPRESSED
from rmqlite.message import Message, StoredMessage
from rmqlite.server.web.body_view import (
    HEX_BYTES_MAX,
    SHOWN_BYTES_MAX,
    BodyView,
    body_view,
)
from tests.server.web.browser import Browser, browse
from tests.support.brokers import BrokerUnderTest


@pytest.fixture
def stored(under_test: BrokerUnderTest) -> StoredMessage:
    under_test.send(Message("orders", b"x"))
    return under_test.messages("orders")[0]


def view(stored: StoredMessage, body: bytes, wanted: str = "", sys_flag: int = 0) -> BodyView:
    return body_view(replace(stored, body=body, sys_flag=sys_flag), wanted)


@pytest.mark.parametrize(
    ("body", "fits", "can_be"),
    [
        (b"", "text", ("text", "hex")),
        (b"hello", "text", ("text", "hex")),
        ("grüße\n".encode(), "text", ("text", "hex")),
        (b'{"a": 1}', "json", ("text", "json", "hex")),
        (b" [1, 2]", "json", ("text", "json", "hex")),
        (b"17", "text", ("text", "hex")),
        (b'{"a": }', "text", ("text", "hex")),
        (b"[" * 100_000, "text", ("text", "hex")),
        (b"\xff\xfe", "hex", ("hex",)),
        (bytes(100), "hex", ("text", "hex")),
    ],
)
def test_a_body_is_shown_as_what_it_is(
    body: bytes, fits: str, can_be: tuple[str, ...], stored: StoredMessage
) -> None:
    """A reader may choose any other view that fits the body."""
    assert (view(stored, body).view, view(stored, body).can_be) == (fits, can_be)
    for wanted in can_be:
        assert view(stored, body, wanted).view == wanted


def test_a_compressed_body_is_inflated_no_further_than_it_is_shown(stored: StoredMessage) -> None:
    """A kilobyte can be made to inflate to a megabyte."""
    small = view(stored, zlib.compress(b"hello"), sys_flag=COMPRESSED)
    assert (small.text, small.is_cut) == ("hello", False)
    bomb = view(stored, zlib.compress(b"a" * 50_000_000), "text", sys_flag=COMPRESSED)
    assert (len(bomb.text), bomb.is_cut) == (SHOWN_BYTES_MAX, True)
    assert "inflated from" in bomb.note
    for flag, body in ((COMPRESSED, b"not zlib"), (COMPRESSED | 0x200, b"zstd")):
        assert "shown as it is stored" in view(stored, body, sys_flag=flag).note
    half = view(stored, zlib.compress(b'[1, "' + b"a" * 50_000 + b'"]'), sys_flag=COMPRESSED)
    assert (half.can_be, half.is_cut) == (("text", "hex"), True)


def test_a_body_is_inflated_beside_the_loop(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile one takes tens of milliseconds, and every send would wait for it."""
    (sent,) = under_test.send(Message("orders", b"x"))
    threads: list[int] = []

    def viewed(message: StoredMessage, wanted: str) -> BodyView:
        threads.append(get_ident())
        return body_view(message, wanted)

    monkeypatch.setattr("rmqlite.server.web.life.body_view", viewed)

    async def scenario(browser: Browser) -> None:
        await browser.get(f"/record?id={sent.offset_message_id}")
        assert threads
        assert get_ident() not in threads

    browse(under_test, scenario)


def test_a_long_body_is_cut_between_characters(stored: StoredMessage) -> None:
    """A cut within a character must not turn the text into hex."""
    for shift in range(4):
        shown = view(stored, b"x" * shift + "€".encode() * SHOWN_BYTES_MAX)
        assert shown.view == "text"
        assert shown.is_cut
    assert view(stored, bytes(HEX_BYTES_MAX + 1), "hex").is_cut
    assert not view(stored, bytes(HEX_BYTES_MAX), "hex").is_cut
