"""A body as a page shows it."""

from __future__ import annotations

import zlib
from dataclasses import replace
from threading import get_ident

import pytest

from rmqlite.kernel.words.compression import COMPRESSED
from rmqlite.kernel.words.message import Message, StoredMessage
from rmqlite.views.messages import BodyView
from rmqlite.web import messages
from tests.server.web.browser import Browser, browse
from tests.support.brokers import BrokerUnderTest


def test_a_compressed_body_is_inflated_no_further_than_it_is_shown(
    under_test: BrokerUnderTest,
) -> None:
    """A kilobyte can be made to inflate to a megabyte."""
    under_test.send(Message("orders", b"x"))
    stored = under_test.messages("orders")[0]

    def view(body: bytes, sys_flag: int = COMPRESSED) -> BodyView:
        return messages.body_beginning(replace(stored, body=body, sys_flag=sys_flag), "")

    small = view(zlib.compress(b"hello"))
    assert (small.lines, small.is_cut) == (("hello",), False)
    bomb = view(zlib.compress(b"a" * 50_000_000))
    assert (bomb.size, bomb.is_cut) == (messages.BODY_BYTES_MAX, True)
    assert "inflated from" in bomb.note
    for flag, body in ((COMPRESSED, b"not zlib"), (COMPRESSED | 0x200, b"zstd")):
        assert "shown as it is stored" in view(body, flag).note
    half = view(zlib.compress(b'[1, "' + b"a" * 50_000 + b'"]'))
    assert (half.forms, half.is_cut) == (("text", "hex"), True)


def test_a_body_is_inflated_beside_the_loop(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile one takes tens of milliseconds, and every send would wait for it."""
    (sent,) = under_test.send(Message("orders", b"x"))
    threads: list[int] = []

    beginning = messages.body_beginning

    def viewed(message: StoredMessage, form: str) -> BodyView:
        threads.append(get_ident())
        return beginning(message, form)

    monkeypatch.setattr(messages, "body_beginning", viewed)

    async def scenario(browser: Browser) -> None:
        await browser.get(f"/record?id={sent.offset_message_id}")
        assert threads
        assert get_ident() not in threads

    browse(under_test, scenario)
