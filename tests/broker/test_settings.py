"""Settings that an administrator reads and changes."""

from __future__ import annotations

import pytest

from rmqlite.features.operating.settings import Settings
from rmqlite.kernel.config.config import KEYS
from rmqlite.kernel.requests.broker import LevelsChange
from rmqlite.kernel.requests.groups import GroupChange, GroupExtras
from rmqlite.kernel.requests.topics import TopicExtras, TopicInfo
from rmqlite.kernel.words.errors import (
    ConfigInvalid,
    InvalidName,
    InvalidValue,
    Overloaded,
    PermissionMissing,
    StoreUnavailable,
)
from rmqlite.kernel.words.levels import DEFAULT_LEVELS
from tests.support.brokers import BrokerUnderTest
from tests.support.files import FaultyFiles
from tests.support.made_brokers import Make
from tests.support.messages import GROUP, TOPIC, bodies, create_topic, delayed, plain


def settings_of(broker: BrokerUnderTest) -> Settings:
    return Settings(broker.config, broker.broker.levels)


def test_all_keys_are_listed_with_their_values_in_force(under_test: BrokerUnderTest) -> None:
    """Switches as true and false, as RocketMQ writes them."""
    known = settings_of(under_test).all()
    assert set(known) == set(KEYS.values())
    assert known["autoCreateTopicEnable"] == "true"
    assert known["fileReservedTime"] == "72"


def test_the_delay_levels_change_at_once_and_for_new_messages_only(
    under_test: BrokerUnderTest,
) -> None:
    """Messages that wait keep their times, and a restart keeps the change."""
    under_test.send(delayed("before", 1))
    table = DEFAULT_LEVELS.replace("1s ", "7s ", 1)
    settings_of(under_test).change({"messageDelayLevel": table})
    under_test.send(delayed("after", 1))
    under_test.clock.forward(1_000)
    under_test.deliver()
    assert bodies(under_test) == ["before"]
    under_test.clock.forward(6_000)
    under_test.deliver()
    assert bodies(under_test) == ["before", "after"]
    under_test.restart()
    assert settings_of(under_test).all()["messageDelayLevel"] == table


@pytest.mark.parametrize(
    ("table", "loss"),
    [
        ("1s", "removes levels 2 to 18 (messages that wait there: 2)"),
        (DEFAULT_LEVELS.removesuffix(" 2h"), "removes level 18 (messages that wait there: 1)"),
        (DEFAULT_LEVELS.replace(" 2h", " 90m"), "makes level 18 shorter: 90m instead of 2h"),
        (DEFAULT_LEVELS.replace(" 2h", " 90m 3h"), "makes level 18 shorter: 90m instead of 2h"),
        (DEFAULT_LEVELS + " 3h", ""),
        (DEFAULT_LEVELS.replace(" 2h", " 3h"), ""),
        (DEFAULT_LEVELS.replace("1s ", "2s ", 1), ""),
    ],
)
def test_a_table_that_takes_something_away_is_not_taken_from_one_unconfirmed_word(
    under_test: BrokerUnderTest, table: str, loss: str
) -> None:
    """mqadmin sends only the first word of a value without quotes: what was to wait for 2 h came
    after 1 s."""
    under_test.send(delayed("a", 2), delayed("b", 18))
    settings = settings_of(under_test)
    if not loss:
        settings.change({"messageDelayLevel": table})
        assert settings.all()["messageDelayLevel"] == table
        return
    with pytest.raises(InvalidValue) as refused:
        settings.change({"messageDelayLevel": table})
    assert loss in str(refused.value)
    assert f"rmqlite levels set {table}" in str(refused.value)
    assert settings.all()["messageDelayLevel"] == DEFAULT_LEVELS
    # The command has asked before.
    under_test.broker.levels.change(LevelsChange(table))
    assert settings.all()["messageDelayLevel"] == table


@pytest.mark.parametrize(
    ("wanted", "error", "named"),
    [
        ({"flushDiskType": "ASYNC_FLUSH"}, PermissionMissing, "flushDiskType"),
        ({"nonsense": "1"}, ConfigInvalid, "nonsense"),
        ({"mesageDelayLevel": "1s"}, ConfigInvalid, "did you mean messageDelayLevel"),
        ({"haHousekeepingInterval": "1"}, ConfigInvalid, "no meaning here"),
        ({"messageDelayLevel": "soon"}, InvalidValue, "soon"),
        (
            {"messageDelayLevel": DEFAULT_LEVELS + " 3h", "maxTopics": "1"},
            PermissionMissing,
            "maxTopics",
        ),
    ],
)
def test_what_cannot_be_changed_at_once_is_refused_by_name(
    under_test: BrokerUnderTest, wanted: dict[str, str], error: type[Exception], named: str
) -> None:
    """RocketMQ answers that it is done, and ignores it; and one refusal refuses all."""
    with pytest.raises(error, match=named):
        settings_of(under_test).change(wanted)
    assert settings_of(under_test).all()["messageDelayLevel"] == DEFAULT_LEVELS


def test_the_same_value_again_is_no_change(under_test: BrokerUnderTest) -> None:
    """Scripts set what they want without a look at what is."""
    settings_of(under_test).change({"flushDiskType": under_test.config.flush_disk_type})


def test_a_topic_gets_other_queues_and_permissions(under_test: BrokerUnderTest) -> None:
    """At once and durably, with the columns that only RocketMQ's tools read."""
    topics = under_test.broker.topics
    topics.change(TopicInfo(TOPIC, 2, 2), TopicExtras(is_ordered=True, sys_flag=1))
    under_test.send(plain("a"))
    topics.change(TopicInfo(TOPIC, 4, 3, 6), TopicExtras(is_ordered=True, sys_flag=1))
    under_test.crash()
    under_test.open()
    assert under_test.broker.topics.existing(TOPIC) == TopicInfo(TOPIC, 4, 3, 6)
    assert under_test.broker.topics.extras(TOPIC) == TopicExtras(is_ordered=True, sys_flag=1)
    under_test.broker.topics.change(TopicInfo(TOPIC, 4, 3, 4), TopicExtras())
    with pytest.raises(PermissionMissing):
        under_test.send(plain("b"))
    assert bodies(under_test) == ["a"]


def test_a_change_that_is_none_writes_nothing(under_test: BrokerUnderTest) -> None:
    """Each change of the table makes RocketMQ's clients look again."""
    create_topic(under_test, TOPIC, 2)
    version = under_test.broker.topics.version
    under_test.broker.topics.change(TopicInfo(TOPIC, 2, 2), TopicExtras())
    assert under_test.broker.topics.version == version


@pytest.mark.parametrize(
    ("info", "error"),
    [
        (TopicInfo("TBW102", 1, 1), InvalidName),
        (TopicInfo("no blanks", 1, 1), InvalidName),
        (TopicInfo(TOPIC, 0, 1), InvalidValue),
        (TopicInfo(TOPIC, 1, 99_999), InvalidValue),
        (TopicInfo(TOPIC, 1, 1, 8), InvalidValue),
        (TopicInfo(TOPIC, 1, 1, 0), InvalidValue),
    ],
)
def test_a_change_of_a_topic_that_makes_no_sense_is_refused(
    under_test: BrokerUnderTest, info: TopicInfo, error: type[Exception]
) -> None:
    """The error names the field."""
    with pytest.raises(error):
        under_test.broker.topics.change(info, TopicExtras())
    assert under_test.broker.topics.get(TOPIC) is None


def test_a_change_of_a_topic_that_cannot_be_written_changes_nothing(make: Make) -> None:
    """Not in memory either; and new topics count towards maxTopics."""
    files = FaultyFiles()
    broker = make(files=files, topics_max=8)
    create_topic(broker, TOPIC, 2)
    end = broker.store.end
    files.fail("write")
    with pytest.raises(StoreUnavailable):
        broker.broker.topics.change(TopicInfo(TOPIC, 3, 3), TopicExtras())
    assert broker.broker.topics.existing(TOPIC) == TopicInfo(TOPIC, 2, 2)
    assert broker.store.end == end
    broker.broker.topics.change(TopicInfo("second", 3, 3), TopicExtras())
    with pytest.raises(Overloaded, match="maxTopics"):
        broker.broker.topics.change(TopicInfo("third", 3, 3), TopicExtras())


def test_tools_may_measure_a_broker_without_topics_on_demand(make: Make) -> None:
    """They send to a topic with the broker's or the cluster's name; other topics are refused."""
    broker = make(auto_create_topic=False)
    broker.send(plain("a", "broker-a"))
    broker.send(plain("b", "DefaultCluster"))
    assert broker.broker.topics.existing("DefaultCluster").write_queues == 16


def test_columns_of_a_group_that_only_tools_read_are_kept(under_test: BrokerUnderTest) -> None:
    """A change by another protocol leaves them as they are."""
    extras = GroupExtras(3, may_broadcast=False, begins_at_min=False, broker_id_when_slow=7)
    groups = under_test.broker.groups
    groups.change(GroupChange(GROUP, 5, 2), extras)
    groups.change(GroupChange(GROUP, max_reconsume_times=6))
    under_test.restart()
    assert under_test.broker.groups.extras(GROUP) == extras
    assert under_test.broker.groups.existing(GROUP).max_reconsume_times == 6
    assert under_test.broker.groups.extras("unknown") == GroupExtras()
