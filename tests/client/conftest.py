"""A small broker, started for one test and stopped after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqlite.kernel.words.message import StoredMessage
from tests.support.fake_broker import FakeBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[FakeBroker]:
    broker = FakeBroker(tmp_path)
    broker.start()
    yield broker
    broker.stop()


def stored(queue_offset: int, size: int = 100) -> StoredMessage:
    body = b"%d" % queue_offset
    host = "127.0.0.1:1"
    return StoredMessage("t", 0, queue_offset, 0, size, body, {}, 0, 0, 0, host, 0, host, 0, 0)
