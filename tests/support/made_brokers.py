"""Fixtures: brokers whose stores must be sound when a test is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqlite.store_tools.check import check
from tests.support.brokers import BrokerUnderTest
from tests.support.golden import INDEX

Make = Callable[..., BrokerUnderTest]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes a broker on a store of its own; closes and checks them all."""
    made: list[BrokerUnderTest] = []

    def fresh(**changes: Any) -> BrokerUnderTest:
        made.append(BrokerUnderTest(tmp_path / f"made-{len(made)}", **changes))
        return made[-1]

    yield fresh
    for each in made:
        each.store.release()
    for each in made:
        found = [str(finding) for finding in check(each.config.store_path)]
        assert not found, found


@pytest.fixture
def under_test(make: Make) -> BrokerUnderTest:
    """A broker on a fresh store."""
    return make()


@pytest.fixture(params=["clean", "killed"])
def broker(golden: Path, request: pytest.FixtureRequest) -> Iterator[BrokerUnderTest]:
    """A broker on a store that RocketMQ wrote."""
    under_test = BrokerUnderTest(golden / request.param, **INDEX)
    yield under_test
    under_test.crash()
