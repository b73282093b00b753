"""A master is killed, its standby is promoted, and every client goes on by itself.

RocketMQ's own clients find the new master when they ask for a route again, after up to 30 seconds.
How long it takes is measured by tests/benchmarks/fail_over.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqlite.client.admin_client import AdminClient
from tests.support.fail_over import JAVA_4, NAMES, OURS, lost, measured, promoted, streaming
from tests.support.java_server import name_server
from tests.support.standbys import Pair, wait_for_copy

pytestmark = pytest.mark.xdist_group("standby")


@pytest.mark.long
def test_every_client_goes_on_at_the_new_master(tmp_path: Path) -> None:
    """And back again, by a switch; what was acknowledged is received, some of it twice."""
    with Pair(tmp_path) as pair, streaming(pair, tmp_path, NAMES) as clients:

        def take_over() -> None:
            pair.first.kill()
            promoted(pair.second.endpoint)

        def switch() -> None:
            with AdminClient(pair.endpoints) as admin:
                admin.switch()

        for event in (take_over, switch):
            found = measured(clients, event)
            assert all(each.got_s is not None for each in found.values()), found
            if event is take_over:
                assert (found[OURS].sent_s or 0) < 10
                pair.first.start()
                wait_for_copy(pair.second)
        assert not any(lost(clients).values())


def test_java_goes_on_at_rocketmqs_own_name_server(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It keeps the topics of a name whose master is lost, and takes the standby as the master."""
    if not request.config.getoption("--rocketmq"):
        pytest.skip("RocketMQ's own name server runs with --rocketmq")
    with (
        name_server(tmp_path / "names") as address,
        Pair(tmp_path, namesrvAddr=address) as pair,
    ):
        pair.name_servers = address
        with streaming(pair, tmp_path, (JAVA_4,)) as clients:

            def take_over() -> None:
                pair.first.kill()
                promoted(pair.second.endpoint)

            found = measured(clients, take_over)
            assert found[JAVA_4].got_s is not None, found
            assert not any(lost(clients).values())
