"""Stores that end with a check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stores import StoreUnderTest


@pytest.fixture
def under_test(tmp_path: Path) -> Iterator[StoreUnderTest]:
    """A fresh store; when the test is over it must be sound."""
    each = StoreUnderTest(tmp_path / "store")
    yield each
    each.store.release()
    assert each.findings() == []
