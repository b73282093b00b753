"""A setting that an administrator asks for is in force, or refused by its name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.requests import ANSWERED
from rmqlite.protocols.remoting.bytes.requests.groups import (
    GET_SUBSCRIPTIONGROUP_CONFIG,
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    SettingsQuery,
)
from rmqlite.protocols.remoting.bytes.requests.pop import SET_MESSAGE_REQUEST_MODE
from rmqlite.protocols.remoting.bytes.requests.request import Party
from rmqlite.protocols.remoting.bytes.requests.topics import (
    GET_TOPIC_CONFIG,
    UPDATE_AND_CREATE_TOPIC,
    OfTopic,
    TopicChange,
)
from rmqlite.protocols.remoting.calls import _LATER, _LOOKING
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import GROUP, TOPIC, create_topic
from tests.support.remoting import ProtocolUnderTest, served_protocol

MODE = {"topic": TOPIC, "consumerGroup": GROUP, "mode": "PULL"}
SETTINGS: dict[int, dict[str, Any]] = {
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP.code: {"groupName": GROUP},
    SET_MESSAGE_REQUEST_MODE.code: MODE,
}
"""The body of each request that changes a setting."""
OF_5_5 = {
    "attributes": {},
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    "groupName": GROUP,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 16,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}
"""What mqadmin of RocketMQ 5.5.0 sends without any option."""


def customized(*lengths_ms: int) -> dict[str, Any]:
    return {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [*lengths_ms]}}


def exponential(initial: int, most: int, multiplier: int) -> dict[str, Any]:
    policy = {"initial": initial, "max": most, "multiplier": multiplier}
    return {"type": "EXPONENTIAL", "exponentialRetryPolicy": policy}


def answer_to(broker: BrokerUnderTest, code: int, **body: Any) -> Command:
    """The answer to one request with this JSON."""
    answers: list[Command] = []

    async def scenario(test: ProtocolUnderTest) -> None:
        async with test.client() as client:
            answers.append(await client.ask(code, None, json.dumps(body).encode()))

    served_protocol(broker, scenario)
    return answers[0]


def changed(broker: BrokerUnderTest, **settings: Any) -> Command:
    code = UPDATE_AND_CREATE_SUBSCRIPTIONGROUP.code
    return answer_to(broker, code, **{"groupName": GROUP, **settings})


@pytest.fixture(autouse=True)
def topic(under_test: BrokerUnderTest) -> None:
    create_topic(under_test, TOPIC, 1)


def test_each_body_that_changes_a_setting_is_known() -> None:
    """A new one gets a row here, and then the next test tries it."""
    admins = {
        code
        for code, row in ANSWERED.items()
        if isinstance(row.body, tuple)
        and Party.BROKER in row.asked
        and code not in _LATER | _LOOKING
    }
    assert admins == SETTINGS.keys()


@pytest.mark.parametrize("code", SETTINGS)
def test_an_unknown_setting_is_refused_by_its_name(under_test: BrokerUnderTest, code: int) -> None:
    """And nothing has changed."""
    version = under_test.broker.groups.version
    answer = answer_to(under_test, code, **SETTINGS[code], newInSix=7)
    assert answer.code == 1
    assert "newInSix=7: expected left out: this broker has no such setting" in answer.remark
    assert under_test.broker.groups.version == version
    nothing: dict[str, Any] = {
        "newInSix": None,
        "list": [],
        "map": {},
        "flag": False,
        "number": 0,
        "text": "",
    }
    assert answer_to(under_test, code, **SETTINGS[code], **nothing).code == 0


def test_what_mqadmin_sends_without_an_option_asks_for_nothing(under_test: BrokerUnderTest) -> None:
    """A policy of the group that the broker's own tools have set stays."""
    assert changed(under_test, **OF_5_5).code == 0
    assert under_test.broker.groups.existing(GROUP).retry_policy == ""


@pytest.mark.parametrize(
    "setting",
    [
        {"groupSysFlag": 1},
        {"consumeTimeoutMinute": 30},
        {"attributes": {"+priority.factor": "5"}},
        {"subscriptionDataSet": [{"topic": TOPIC, "expression": "*"}]},
    ],
    ids=str,
)
def test_a_setting_of_rocketmq_5_that_is_not_in_force_is_refused(
    under_test: BrokerUnderTest, setting: dict[str, Any]
) -> None:
    """Dropped in silence it would be a lie."""
    answer = changed(under_test, **OF_5_5 | setting)
    (name,) = setting
    assert answer.code == 1
    assert answer.remark.startswith(name)
    assert "left out" in answer.remark


@pytest.mark.parametrize(
    ("policy", "kept", "retries_s"),
    [
        (customized(1_000, 5_000, 10_000, 30_000, 60_000), "10s 30s 1m", [10, 30, 60, 60]),
        (customized(5_000), "5s", [5, 5]),
        (customized(1_000, 5_000), "5s", [5, 5]),
        (exponential(5_000, 10_000, 2), "5s 10s", [5, 10, 10]),
        (exponential(60_000, 7_200_000, 1), "1m 1m", [60, 60]),
        (customized(1_000, 5_000, 7_000), "list(7000ms)", [7, 7]),
        (exponential(5_000, 30_000, 2), "list(5000ms, 10000ms, 20000ms, 30000ms)", [5, 10, 20, 30]),
    ],
    ids=str,
)
def test_a_retry_policy_of_rocketmq_5_is_in_force(
    under_test: BrokerUnderTest, policy: dict[str, Any], kept: str, retries_s: list[int]
) -> None:
    """As RocketMQ computes it: the first retry takes the third length of a customized one.  One
    that fits the levels takes them, any other is exact."""
    assert changed(under_test, groupRetryPolicy=policy).code == 0
    groups, table = under_test.broker.groups, under_test.store.levels.current
    assert groups.existing(GROUP).retry_policy == kept
    lengths = [groups.policy(GROUP).wait_ms(n, table) for n in range(len(retries_s))]
    assert lengths == [1_000 * each for each in retries_s]


@pytest.mark.parametrize(
    "policy",
    [
        customized(0),
        customized(-1),
        exponential(5_000, 7_200_000, -3),
        exponential(-5_000, 7_200_000, 2),
    ],
    ids=str,
)
def test_a_retry_policy_that_nobody_can_keep_is_refused(
    under_test: BrokerUnderTest, policy: dict[str, Any]
) -> None:
    """By its name, with the rule."""
    answer = changed(under_test, groupRetryPolicy=policy)
    assert answer.code != 0
    assert answer.remark.startswith("groupRetryPolicy.")
    assert "lengths above 0 ms" in answer.remark


def test_only_the_retries_that_a_group_has_must_fit(under_test: BrokerUnderTest) -> None:
    """5 and 10 seconds are levels; 20 would be none."""
    policy = exponential(5_000, 7_200_000, 2)
    assert changed(under_test, groupRetryPolicy=policy, retryMaxTimes=2).code == 0
    assert under_test.broker.groups.existing(GROUP).retry_policy == "5s 10s"


@pytest.mark.parametrize("policy", [{"type": "LINEAR"}, {"customizedRetryPolicy": {"next": []}}])
def test_a_policy_of_no_kind_is_refused(
    under_test: BrokerUnderTest, policy: dict[str, Any]
) -> None:
    """Another type, or lengths that are none."""
    assert "groupRetryPolicy" in changed(under_test, groupRetryPolicy=policy).remark


def test_one_group_and_one_topic_can_be_asked_for(under_test: BrokerUnderTest) -> None:
    """mqadmin 5.5.0 does so for consumerProgress, topicStatus and cloneGroupOffset."""

    async def scenario(test: ProtocolUnderTest) -> None:
        async with test.client() as client:
            topic = await client.ask(GET_TOPIC_CONFIG, OfTopic(TOPIC))
            assert json.loads(topic.body) == {
                "attributes": {"message.type": "MIXED"},
                "order": False,
                "perm": 6,
                "readQueueNums": 1,
                "topicFilterType": "SINGLE_TAG",
                "topicName": TOPIC,
                "topicSysFlag": 0,
                "writeQueueNums": 1,
            }
            assert (await client.ask(GET_TOPIC_CONFIG, OfTopic("nobody"))).code == 17
            policy = customized(5_000, 5_000, 10_000)
            body = json.dumps({"groupName": GROUP, "groupRetryPolicy": policy}).encode()
            await client.ask(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
            group = await client.ask(GET_SUBSCRIPTIONGROUP_CONFIG, SettingsQuery(GROUP))
            found = json.loads(group.body)
            assert (found["groupName"], found["retryMaxTimes"]) == (GROUP, 16)
            # The same policy, if mqadmin writes it back.
            assert found["groupRetryPolicy"]["customizedRetryPolicy"]["next"][2:] == [10_000]
            unknown = await client.ask(GET_SUBSCRIPTIONGROUP_CONFIG, SettingsQuery("nobody"))
            assert unknown.code == 26

    served_protocol(under_test, scenario)


@pytest.mark.parametrize(
    ("attributes", "refused"),
    [
        ("", ""),
        ("+message.type=FIFO", ""),
        ("+queue.type=SimpleCQ,+message.type=DELAY,-cleanup.policy", ""),
        ("+queue.type=BatchCQ", "queue.type=BatchCQ"),
        ("+message.type=MIXED,+cleanup.policy=COMPACTION", "cleanup.policy=COMPACTION"),
        ("+reserve.time=3600", "reserve.time=3600"),
    ],
)
def test_an_attribute_of_a_topic_is_in_force_or_refused(
    under_test: BrokerUnderTest, attributes: str, refused: str
) -> None:
    """A -name goes back to the usual value, which is what holds here."""

    async def scenario(test: ProtocolUnderTest) -> None:
        asked = TopicChange("fresh", 4, 4, 6, attributes=attributes)
        async with test.client() as client:
            answer = await client.ask(UPDATE_AND_CREATE_TOPIC, asked)
        assert (answer.code != 0) == bool(refused)
        assert refused in answer.remark
        assert (under_test.broker.topics.get("fresh") is None) == bool(refused)

    served_protocol(under_test, scenario)
