"""The first result answers repeats, within limits of time and number."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from rmqlite.kernel.words.errors import DiskFull
from rmqlite.protocols.rocketmq_v2 import sends
from rmqlite.protocols.rocketmq_v2.calls import ClientKey
from rmqlite.protocols.rocketmq_v2.sends import WINDOW_S, SentWindow, key_of


class Elapsed:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Storing:
    """Counts what it stores."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> Coroutine[Any, Any, bytes]:
        return self._stored()

    async def _stored(self) -> bytes:
        self.count += 1
        await asyncio.sleep(0)
        return b"%d" % self.count


def test_a_result_is_remembered_for_the_window() -> None:
    """Then the same message is another one."""

    async def main() -> None:
        elapsed, storing = Elapsed(), Storing()
        window = SentWindow(elapsed)
        assert await window.once(b"k", storing) == b"1"
        elapsed.now_s = WINDOW_S
        assert await window.once(b"k", storing) == b"1"
        elapsed.now_s += 0.001
        assert await window.once(b"k", storing) == b"2"
        assert await window.once(b"k", storing) == b"2"

    asyncio.run(main())


def test_old_results_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their age, and by their number."""
    monkeypatch.setattr(sends, "RESULTS_MAX", 10)

    async def main() -> None:
        elapsed, storing = Elapsed(), Storing()
        window = SentWindow(elapsed)
        for number in range(25):
            await window.once(b"%d" % number, storing)
            assert len(window) <= 10
        elapsed.now_s = WINDOW_S + 1
        await window.once(b"one more", storing)
        assert len(window) == 1

    asyncio.run(main())


def test_of_all_who_wait_one_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the one that came first has left."""
    monkeypatch.setattr(sends, "RESULTS_MAX", 10)

    async def main() -> None:
        storing = Storing()
        window = SentWindow(Elapsed())
        calls = [asyncio.create_task(window.once(b"k", storing)) for _ in range(5)]
        await asyncio.sleep(0)
        calls[0].cancel()
        assert await asyncio.gather(*calls[1:]) == [b"1"] * 4
        assert storing.count == 1

    asyncio.run(main())


def test_an_error_is_for_those_who_wait_only() -> None:
    """And for nobody, if all have left: nothing is logged then."""

    async def fails() -> bytes:
        await asyncio.sleep(0)
        raise DiskFull(0.93, 90, 85)

    async def main() -> None:
        window = SentWindow(Elapsed())
        calls = [asyncio.create_task(window.once(b"k", fails)) for _ in range(3)]
        for ended in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(ended, DiskFull)
        assert len(window) == 0
        left = asyncio.create_task(window.once(b"k", fails))
        await asyncio.sleep(0)
        left.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert await window.once(b"k", Storing()) == b"1"

    asyncio.run(main())


def test_a_key_names_one_message_of_one_client_to_one_topic() -> None:
    """However its parts are cut."""
    client = ClientKey("key", "client")
    keys = {
        key_of(client, "orders", "1"),
        key_of(client, "orders1", ""),
        key_of(client, "order", "s1"),
        key_of(ClientKey("keyc", "lient"), "orders", "1"),
        key_of(ClientKey("", "client"), "orders", "1"),
    }
    assert len(keys) == 5
    assert key_of(ClientKey("key", "client"), "orders", "1") in keys
