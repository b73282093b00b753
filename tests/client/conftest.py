"""A small broker, started for one test and stopped after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.fake_broker import FakeBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[FakeBroker]:
    broker = FakeBroker(tmp_path)
    broker.start()
    yield broker
    broker.stop()
