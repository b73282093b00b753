"""An etcd that is a few lines, and with --long the real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.etcd_server import EtcdServer
from tests.support.fake_etcd import FakeEtcd


@pytest.fixture
def fake() -> Iterator[FakeEtcd]:
    with FakeEtcd() as started:
        yield started


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.long)])
def etcd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FakeEtcd | EtcdServer]:
    if request.param == "real":
        with EtcdServer(tmp_path) as started:
            yield started
    else:
        yield request.getfixturevalue("fake")
