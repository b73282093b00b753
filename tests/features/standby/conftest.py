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


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The same for tests that change nothing."""
    with Pair(tmp_path_factory.mktemp("shared")) as made:
        yield made
