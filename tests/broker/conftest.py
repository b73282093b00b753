"""Brokers with settings of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers import BrokerUnderTest

Make = Callable[..., BrokerUnderTest]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes a broker on a store of its own; closes them all."""
    made: list[BrokerUnderTest] = []

    def fresh(**changes: Any) -> BrokerUnderTest:
        made.append(BrokerUnderTest(tmp_path / f"made-{len(made)}", **changes))
        return made[-1]

    yield fresh
    for each in made:
        each.store.release()
