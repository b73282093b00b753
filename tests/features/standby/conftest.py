"""A master and its standby."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.standbys import Pair


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Both run, and the standby has all."""
    with Pair(tmp_path) as made:
        yield made
