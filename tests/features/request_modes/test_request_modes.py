"""Which queues a member of a group reads, and how; RocketMQ's file of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqlite.features.request_modes import request_modes
from rmqlite.features.request_modes.request_modes import RequestModes
from rmqlite.features.request_modes.requests import (
    Assigned,
    AssignmentQuery,
    RequestMode,
    RequestModeChange,
)
from rmqlite.features.request_modes.table_shapes import MODES_TABLE
from rmqlite.kernel.requests.groups import HeartbeatRequest, Subscription
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.store.tables.logged_tables import LOG_END
from rmqlite.kernel.words.errors import (
    InvalidName,
    InvalidValue,
    Overloaded,
    PermissionMissing,
    StoreDamaged,
)
from rmqlite.kernel.words.names import (
    HALF_ENDS_TOPIC,
    HALF_TOPIC,
    LEASES_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    retry_topic,
)
from tests.support.brokers import BrokerUnderTest

GROUP, TOPIC, OTHER = "readers", "orders", "payments"
POP, PULL = RequestMode.POP, RequestMode.PULL


@pytest.fixture
def broker(under_test: BrokerUnderTest) -> BrokerUnderTest:
    """Two topics of four queues."""
    for topic in (TOPIC, OTHER):
        under_test.broker.topics.create(TopicInfo(topic, 4, 4))
    return under_test


def join(broker: BrokerUnderTest, *members: str) -> None:
    for member in members:
        wanted = (Subscription(TOPIC), Subscription(OTHER))
        broker.broker.heartbeat(HeartbeatRequest(GROUP, member, wanted))


Share = tuple[RequestMode, tuple[int, ...]]


def assigned(broker: BrokerUnderTest, member: str, topic: str = TOPIC) -> Share | None:
    found = broker.broker[RequestModes].assigned(AssignmentQuery(GROUP, topic, member))
    return None if found is None else found[:2]


def change(
    broker: BrokerUnderTest, mode: RequestMode, shared_by: int = 0, topic: str = TOPIC
) -> None:
    broker.broker[RequestModes].change(RequestModeChange(GROUP, topic, mode, shared_by))
    broker.sync()


def test_a_member_pulls_its_own_queues_unless_its_group_pops(broker: BrokerUnderTest) -> None:
    """The same queues that a member works out itself."""
    join(broker, "a", "b", "c")
    broker.broker.topics.create(TopicInfo(retry_topic(GROUP), 1, 1))
    shares = [assigned(broker, member) for member in "abc"]
    assert shares == [(PULL, each) for each in ((0, 1), (2,), (3,))]
    assert assigned(broker, "a", retry_topic(GROUP)) == (PULL, (0,))
    change(broker, POP)
    assert assigned(broker, "b") == (POP, (-1,))
    change(broker, PULL)
    assert assigned(broker, "b") == (PULL, (2,))


def test_a_group_pops_all_its_topics_or_none(broker: BrokerUnderTest) -> None:
    """Whoever pulled the one retry topic would get the retries of what is popped, too."""
    join(broker, "a")
    broker.broker.topics.create(TopicInfo(retry_topic(GROUP), 1, 1))
    change(broker, POP)
    change(broker, PULL, topic=OTHER)
    assert assigned(broker, "a", OTHER) == (POP, (-1,))
    assert assigned(broker, "a", retry_topic(GROUP)) == (POP, ())


def test_a_member_pops_the_queues_of_its_neighbours_if_few_share_them(
    broker: BrokerUnderTest,
) -> None:
    """RocketMQ's rule; with more members than queues each has one."""
    join(broker, *"abcd")
    change(broker, POP, 1)
    shares = [assigned(broker, member) for member in "abcd"]
    assert shares == [(POP, each) for each in ((0, 1), (1, 2), (2, 3), (0, 3))]
    for shared_by in (0, 3, 9):
        change(broker, POP, shared_by)
        assert assigned(broker, "a") == (POP, (-1,))
    join(broker, *"efg")
    change(broker, POP, 2)
    assert [assigned(broker, member) for member in "adeg"] == [
        (POP, (each,)) for each in (0, 3, 0, 2)
    ]


def test_nobody_pops_what_is_the_brokers_own(broker: BrokerUnderTest) -> None:
    """A half message that failed would come by way of a retry topic, uncommitted.  A mode that an
    older broker has taken can be taken back."""
    modes = broker.broker[RequestModes]
    for topic in (HALF_TOPIC, HALF_ENDS_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, LEASES_TOPIC):
        with pytest.raises(PermissionMissing, match="the broker's own"):
            modes.change(RequestModeChange(GROUP, topic, POP, 0))
        modes.change(RequestModeChange(GROUP, topic, PULL, 0))
        assert not modes.is_popped(GROUP)


def test_whoever_is_no_member_has_no_queues_yet(broker: BrokerUnderTest) -> None:
    """Then a client keeps those that it has; none of an absent topic, either."""
    assert assigned(broker, "a") is None
    join(broker, "a")
    assert assigned(broker, "b") is None
    assert assigned(broker, "a", "absent") is None
    every = AssignmentQuery(GROUP, TOPIC, "b", is_broadcasting=True)
    assert broker.broker[RequestModes].assigned(every) == Assigned(PULL, (0, 1, 2, 3), 4)


def test_modes_survive_a_restart_in_rocketmqs_file(broker: BrokerUnderTest) -> None:
    """A store moves to a broker of RocketMQ and back."""
    change(broker, POP, 2)
    broker.persist()
    text = (broker.config.store_path / "config" / MODES_TABLE).read_text()
    tree = json.loads(text)
    assert tree.pop(LOG_END)
    assert tree == {
        "messageRequestModeMap": {
            TOPIC: {
                GROUP: {
                    "consumerGroup": GROUP,
                    "mode": "POP",
                    "popShareQueueNum": 2,
                    "topic": TOPIC,
                }
            }
        }
    }
    broker.crash()
    broker.open()
    join(broker, "a")
    assert assigned(broker, "a") == (POP, (-1,))
    broker.broker[RequestModes].forget_group(GROUP)
    broker.sync()
    broker.crash()
    broker.open()
    join(broker, "a")
    assert assigned(broker, "a") == (PULL, (0, 1, 2, 3))


@pytest.mark.parametrize(
    "rows", ['{"g":{"mode":"PUSH"}}', '{"g/":{"mode":"POP"}}', '{"g":{"popShareQueueNum":"x"}}']
)
def test_a_damaged_file_is_reported_with_its_place(broker: BrokerUnderTest, rows: str) -> None:
    """Nobody guesses how a group reads."""
    change(broker, POP)
    broker.crash()
    path = broker.config.store_path / "config" / MODES_TABLE
    for each in (path, Path(f"{path}.bak")):
        each.write_text(f'{{"messageRequestModeMap":{{"t":{rows}}}}}')
    with pytest.raises(StoreDamaged, match=MODES_TABLE):
        broker.open()
    path.unlink()
    Path(f"{path}.bak").unlink()
    broker.open()


def test_what_nobody_could_read_is_refused(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names as everywhere; a retry topic is read as its group is; so many rows."""
    modes = broker.broker[RequestModes]
    for group, topic, shared_by, error in (
        ("g/", TOPIC, 0, InvalidName),
        (GROUP, "", 0, InvalidName),
        (GROUP, TOPIC, -1, InvalidValue),
        (GROUP, retry_topic(GROUP), 0, PermissionMissing),
    ):
        with pytest.raises(error):
            modes.change(RequestModeChange(group, topic, POP, shared_by))
    monkeypatch.setattr(request_modes, "ROWS_MAX", 1)
    change(broker, POP)
    with pytest.raises(Overloaded):
        change(broker, POP, topic=OTHER)
    change(broker, PULL)
    assert not modes.is_popped(GROUP)
