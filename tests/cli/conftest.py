"""A fake broker that answers everything, and a way to run the command line against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rmqlite.cli.main import app
from rmqlite.requests.groups import GroupInfo, GroupStatus, MemberInfo, QueueProgress, Subscription
from rmqlite.requests.levels import LevelsInForce
from rmqlite.requests.status import BrokerStatus, LevelStatus
from rmqlite.requests.topics import Queue, TopicInfo
from tests.client.fake_broker import FakeBroker

Run = Callable[..., Result]

TOPICS = (TopicInfo("orders", 4, 4), TopicInfo("SCHEDULE_TOPIC_XXXX", 18, 18))
GROUP = GroupStatus(
    GroupInfo("workers", 16, 1),
    (MemberInfo("10.0.0.1@77", (Subscription("orders", "A || B"),), 1_700_000_000_000),),
    (
        QueueProgress(Queue("orders", 0), 0, 1_234_567, 1_234_000, "10.0.0.1@77"),
        QueueProgress(Queue("orders", 1), 0, 5, None, ""),
    ),
)
STATUS = BrokerStatus(
    version="0.1.0",
    broker_name="broker-a",
    now_ms=1_700_000_100_000,
    started_at_ms=1_700_000_000_000,
    log_min_offset=0,
    log_max_offset=4_096,
    sent=1_000_000,
    delivered=900,
    retried=17,
    dead=1,
    parked_polls=5_000,
    disk_used_ratio=0.42,
    levels=(
        LevelStatus(1, "1s", 99_100, 1_700_000_100_500, 900, 1, 3, 9),
        LevelStatus(2, "5s", 0, 0, 0, 0, 0, 0),
    ),
)


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
        return result

    return run
