"""What the client makes of expires_at and expires_after."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rmqlite.client import Message, Producer
from rmqlite.client.asyncio import AsyncProducer
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import EXPIRES_AT_MS
from tests.support.fake_broker import FakeBroker

NOW_MS = 1_900_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBroker]:
    monkeypatch.setattr("rmqlite.client.producer.wall_ms", lambda: NOW_MS)
    broker = FakeBroker(tmp_path)
    broker.start()
    yield broker
    broker.stop()


def expiring(**when: Any) -> Message:
    return Message("orders", b"x", **when)


def expiries(broker: FakeBroker) -> list[Any]:
    """Of all messages that were sent."""
    sent = [each for request in broker.asked["Send"] for each in request.messages]
    return [each.expires_at for each in sent]


EVERY_WAY: list[tuple[dict[str, Any], int]] = [
    ({"expires_at": NOW_MS + 1}, NOW_MS + 1),
    ({"expires_at": datetime.fromtimestamp(NOW_MS / 1_000, UTC)}, NOW_MS),
    ({"expires_after": "1h"}, NOW_MS + HOUR_MS),
    ({"expires_after": timedelta(hours=1), "delay": "10s"}, NOW_MS + HOUR_MS),
]


def test_each_way_to_send_writes_the_instant(broker: FakeBroker) -> None:
    """One message, many, gathered ones, with asyncio, sent from a template that stays as it is."""
    messages = [expiring(**when) for when, _ in EVERY_WAY]
    with Producer(broker.endpoint, "makers") as producer:
        for each in messages:
            producer.send(each)
        producer.send_batch(messages)
        for each in messages:
            producer.send_async(each).result(60)

    async def with_asyncio() -> None:
        async with AsyncProducer(broker.endpoint, "makers") as producer:
            for each in messages:
                await producer.send(each)

    asyncio.run(with_asyncio())
    assert expiries(broker) == 4 * [at_ms for _, at_ms in EVERY_WAY]
    assert all(EXPIRES_AT_MS not in each.properties for each in messages)


def test_the_length_counts_from_each_send(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from when the message was made: a program may keep one and send it for days."""
    kept = expiring(expires_after="1h")
    with Producer(broker.endpoint, "makers") as producer:
        producer.send(kept)
        monkeypatch.setattr("rmqlite.client.producer.wall_ms", lambda: NOW_MS + 5)
        producer.send(kept)
    assert expiries(broker) == [NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 5]


@pytest.mark.parametrize(
    ("when", "rule"),
    [
        ({"expires_at": 1_900_000_000}, "expires_at must be"),
        ({"expires_at": datetime(2030, 1, 1)}, "expires_at must be a datetime with a time zone"),
        ({"expires_at": "tomorrow"}, "expires_at must be"),
        ({"expires_after": 10}, "expires_after must be"),
        ({"expires_after": "0s"}, "expires_after must be more than zero"),
        ({"expires_after": "soon"}, "expires_after must be whole numbers and units"),
        ({"expires_at": NOW_MS, "expires_after": "1s"}, "expires_at must be left out"),
        ({"properties": {EXPIRES_AT_MS: "1"}}, f"{EXPIRES_AT_MS}"),
    ],
)
def test_a_bad_time_is_refused_by_name(when: dict[str, Any], rule: str) -> None:
    """Where the message is made; a property of the name would be a second way to say it."""
    with pytest.raises((InvalidValue, TypeError), match=rule):
        expiring(**when)
