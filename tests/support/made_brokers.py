"""Fixtures: brokers whose stores must be sound when a test is over."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from rmqlite.store_tools.check import check
from tests.support.brokers import BrokerUnderTest
from tests.support.golden import INDEX

Make = Callable[..., BrokerUnderTest]
CHECKED: Final = 3
"""The stores of one of so many tests are checked without --long: a check costs more than most."""


@pytest.fixture
def make(tmp_path: Path, request: pytest.FixtureRequest, is_long: bool) -> Iterator[Make]:
    """Makes a broker on a store of its own; closes them all, and checks them if it is its turn."""
    made: list[BrokerUnderTest] = []

    def fresh(**changes: Any) -> BrokerUnderTest:
        made.append(BrokerUnderTest(tmp_path / f"made-{len(made)}", **changes))
        return made[-1]

    yield fresh
    for each in made:
        each.store.release()
    has_its_turn = is_long or zlib.crc32(request.node.nodeid.encode()) % CHECKED == 0
    for each in made if has_its_turn else ():
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
