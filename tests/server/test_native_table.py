"""rmqlite.v1: every call has its method, and the metrics port tells what gRPC tells."""

from __future__ import annotations

from pathlib import Path

from rmqlite.protocols.metrics import page_of_health
from rmqlite.protocols.native.bytes.limits import all_rows
from rmqlite.protocols.native.table import methods_of
from tests.support.brokers import BrokerUnderTest
from tests.support.services import Served, served


def test_every_call_of_the_protocol_has_its_method(tmp_path: Path) -> None:
    """Otherwise its callers get UNIMPLEMENTED."""
    under_test = BrokerUnderTest(tmp_path)

    async def scenario(server: Served, _: object) -> None:
        assert set(methods_of(server.service)) == set(all_rows())

    served(under_test, scenario)
    under_test.store.release()


def test_a_probe_that_speaks_http_learns_that_the_broker_drains(tmp_path: Path) -> None:
    """200 while it serves, 503 while it drains."""
    under_test = BrokerUnderTest(tmp_path)

    async def scenario(server: Served, _: object) -> None:
        assert page_of_health(server.service).status == 200
        server.service.close()
        assert page_of_health(server.service).status == 503

    served(under_test, scenario)
    under_test.store.release()
