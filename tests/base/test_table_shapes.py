"""The tables under config/: what may stand in them, and how a wrong value is told."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.features.bulk.table_shapes import BulkJobsTable
from rmqlite.features.redrive.table_shapes import RedriveJobsTable
from rmqlite.kernel.config import table_shapes as shapes
from rmqlite.kernel.config.values import QUEUES_MAX
from rmqlite.kernel.words.json_tree import WrongValue

TOPIC = {"topicName": "orders", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
CLOCK = {
    "bootId": "b",
    "offsetNanos": 2_000_000,
    "origin": "store",
    "reachedTimestamp": 5,
    "uptimeMillis": 3,
}
PROGRESS: dict[str, Any] = {
    "physicalOffset": 10,
    "newestTimestamp": 1,
    "queues": {"orders": {"0": [0, 3]}},
    "completed": {"3": [[0, 2]], "4": {"below": 0, "above": {"1": "ff"}}},
}


def topics(**changes: object) -> dict[str, Any]:
    return {"topicConfigTable": {"orders": TOPIC | changes}}


def groups(**row: object) -> dict[str, Any]:
    return {"subscriptionGroupTable": {"shop": {"groupName": "shop"} | row}}


TAKEN: list[tuple[type[Any], dict[str, Any]]] = [
    (shapes.TopicsTable, topics()),
    (shapes.TopicsTable, topics(topicName="broker-a.example.com")),
    (shapes.TopicsTable, topics(topicName="%RETRY%" + "g" * 248, readQueueNums=0)),
    (shapes.TopicsTable, topics(readQueueNums=QUEUES_MAX, attributes={"+a": {"b": [1]}})),
    (shapes.GroupsTable, groups(retryMaxTimes=-1, retryQueueNums=-1)),
    (shapes.GroupsTable, groups(rmqliteRetryPolicy="10s 1m")),
    (shapes.ConsumerOffsetsTable, {"offsetTable": {"a@b@c": {"0": -1, "7": 2**62}}}),
    (shapes.DelayOffsetsTable, {"offsetTable": {"1": 5, "64": 0}}),
    (shapes.ClockTable, CLOCK),
    (shapes.ProgressTable, PROGRESS),
    (shapes.ProgressTable, PROGRESS | {"checksum": 2**32 - 1, "pending": {"3": {"": 1}}}),
    (BulkJobsTable, {}),
]
REFUSED: list[tuple[type[Any], dict[str, Any], str]] = [
    (shapes.TopicsTable, topics(topicName="../../../victim"), "orders.topicName: a name in"),
    (shapes.TopicsTable, topics(topicName=".."), "orders.topicName: a name in"),
    (shapes.TopicsTable, topics(topicName="a\0b"), "orders.topicName: a name in"),
    (
        shapes.TopicsTable,
        topics(topicName="é" * 128),
        "topicName: a name in UTF-8 of 1 to 255 bytes",
    ),
    (shapes.TopicsTable, topics(topicName=7), "topicConfigTable.orders.topicName: text"),
    (shapes.TopicsTable, topics(readQueueNums=10**30), f"less than or equal to {QUEUES_MAX}"),
    (shapes.TopicsTable, topics(writeQueueNums=-1), "writeQueueNums: greater than or equal to 0"),
    (shapes.TopicsTable, topics(perm="6"), "perm: a whole number"),
    (shapes.TopicsTable, topics(perm=1e999), "perm: a whole number"),
    (shapes.TopicsTable, {"topicConfigTable": {"orders": {}}}, "orders.topicName: a value"),
    (shapes.TopicsTable, {"topicConfigTable": []}, "topicConfigTable: an object"),
    (shapes.GroupsTable, groups(groupName="a/b"), "shop.groupName: a name in"),
    (shapes.GroupsTable, groups(retryMaxTimes=2**31), "retryMaxTimes: less than or equal to"),
    (shapes.GroupsTable, groups(consumeEnable=[]), "consumeEnable: true or false"),
    (shapes.GroupsTable, groups(rmqliteRetryPolicy="jitter"), "retry_policy must be"),
    (shapes.ConsumerOffsetsTable, {"offsetTable": {"../x@g": {}}}, "../x@g: a name in"),
    (shapes.ConsumerOffsetsTable, {"offsetTable": {"nothing": {}}}, "nothing: a topic, @ and"),
    (shapes.ConsumerOffsetsTable, {"offsetTable": {"a@g": {"0": True}}}, "a@g.0: a whole number"),
    (shapes.ConsumerOffsetsTable, {"offsetTable": {"a@g": {"x": 1}}}, "a@g.x: a whole number"),
    (shapes.DelayOffsetsTable, {"offsetTable": {"0": 1}}, "0: greater than or equal to 1"),
    (shapes.LevelsTable, {"tables": []}, "tables: "),
    (shapes.ClockTable, CLOCK | {"uptimeMillis": 4}, "numbers that fit each other"),
    (shapes.ClockTable, CLOCK | {"origin": "sundial"}, "origin: 'wall-clock' or 'store'"),
    (shapes.ProgressTable, PROGRESS | {"queues": {"../x": {}}}, "queues.../x: a name in"),
    (shapes.ProgressTable, PROGRESS | {"queues": {"a": {"0": [1]}}}, "queues.a.0: a value"),
    (shapes.ProgressTable, PROGRESS | {"completed": {"3": [[1, 2**40]]}}, "completed.3: "),
    (shapes.ProgressTable, PROGRESS | {"completed": {"3": [[1, "x"]]}}, "completed.3.0.1: "),
    (BulkJobsTable, {"jobs": ["[" * 100_000]}, "nested at most 64 deep"),
    (BulkJobsTable, {"jobs": ['{"job_id": "a", "accepted": "x"}']}, "jobs.0: accepted: "),
    (RedriveJobsTable, {"jobs": ['{"job": 1e999}']}, "jobs.0: job: a number"),
]


@pytest.mark.parametrize(("shape", "tree"), TAKEN)
def test_a_table_is_taken(shape: type[Any], tree: dict[str, Any]) -> None:
    """RocketMQ's own names and numbers, and those of every rmqlite."""
    shapes.validated(shape, tree)


@pytest.mark.parametrize(("shape", "tree", "said"), REFUSED)
def test_a_wrong_value_is_refused_with_path_and_rule(
    shape: type[Any], tree: dict[str, Any], said: str
) -> None:
    """A name becomes a folder, and a number a loop; an operator has to find the value."""
    with pytest.raises(WrongValue) as caught:
        shapes.validated(shape, tree)
    assert said in caught.value.rule
    assert len(str(caught.value)) < 1_000


def test_a_row_keeps_what_means_nothing_here() -> None:
    """RocketMQ needs it when it opens the store again."""
    more = {"order": False, "attributes": {"a": 1}, "topicFilterType": "SINGLE_TAG"}
    table = shapes.validated(shapes.TopicsTable, topics(**more))
    row = table.topic_config_table["orders"].row()
    assert row == TOPIC | more
    assert list(row) == sorted(row)


def test_what_was_not_in_a_row_is_not_put_there() -> None:
    """A default of ours may not be RocketMQ's."""
    table = shapes.validated(shapes.GroupsTable, groups(retryMaxTimes=3))
    row = table.subscription_group_table["shop"].row()
    assert row == {"groupName": "shop", "retryMaxTimes": 3}
