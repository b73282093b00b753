"""Fixtures of all rooms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers import BrokerUnderTest


@pytest.fixture
def under_test(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    """A broker on a fresh store."""
    broker = BrokerUnderTest(tmp_path / "store")
    yield broker
    broker.store.release()
