"""A fake broker that answers everything, and a way to run the command line against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rmqlite.cli.main import app
from rmqlite.kernel.requests.broker import LevelsInForce
from tests.support.documents_printed import check_document
from tests.support.fake_broker import GROUP, STATUS, TOPICS, FakeBroker

Run = Callable[..., Result]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[FakeBroker]:
    """A fake broker that also answers an administrator's questions."""
    broker = FakeBroker(tmp_path)
    broker.answers |= {
        "ListTopics": lambda _: TOPICS,
        "CreateTopic": lambda topic: topic,
        "ListGroups": lambda _: (GROUP.info,),
        "DescribeGroup": lambda _: GROUP,
        "GetLevels": lambda _: LevelsInForce(broker.levels, broker.levels, ()),
        "GetBrokerStatus": lambda _: STATUS,
        "ListDeadLetterGroups": lambda _: (),
        "ListRedriveJobs": lambda _: (),
        "CountPending": lambda _: (),
    }
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def run(broker: FakeBroker) -> Run:
    """Run the command line against the fake broker."""

    def run(*args: str, stdin: bytes | None = None) -> Result:
        # 80 columns, so that a table that only fits a wide screen is noticed.
        env = {"RMQLITE_ENDPOINT": broker.endpoint, "COLUMNS": "80"}
        result = CliRunner().invoke(app, list(args), input=stdin, env=env)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        check_document(args, result.stdout)
        return result

    return run
