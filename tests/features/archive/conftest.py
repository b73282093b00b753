"""An archive in a folder, and a broker that archives there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.archives import Archived


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The archive's place."""
    return f"file://{tmp_path}/archive"


@pytest.fixture
def archived(tmp_path: Path, url: str) -> Iterator[Archived]:
    """A broker with log files of 1 MiB; nothing is archived yet."""
    with Archived(tmp_path / "store", url) as made:
        yield made
