"""Every job on a store of RocketMQ's, against counts that plain Python makes of its entries."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqlite.spark.jobs import running
from rmqlite.spark.jobs.dead_letters import read_export
from tests.support.golden import GROUP, Row, rows, unpack_golden
from tests.support.jobs import answered, named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")

HOUR_MS = 3_600_000
LOG_FILE_BYTES = 1 << 20
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
RETRY, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
READ_OF_RETRIES = 10
"""The committed offset of the group's retry topic, in the store's consumerOffset.json."""


class Golden:
    """The store, and what its list of entries says."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "clean"
        self.entries = rows(folder)
        self.now_ms = max(row["storeTimestamp"] for row in self.entries)

    def of(self, topic: str) -> list[Row]:
        return [row for row in self.entries if row["topic"] == topic]

    @cached_property
    def delivered(self) -> list[tuple[Row, Row]]:
        """Each scheduled entry with the entry of its delivery: no two messages look the same."""
        deliveries = {
            same(row, row["topic"], row["queueId"]): row
            for row in self.entries
            if row["topic"] != SCHEDULE and int(row["properties"].get("DELAY", 0)) > 0
        }
        keyed = {same_wait(row): row for row in self.of(SCHEDULE)}
        assert len(keyed) == len(self.of(SCHEDULE))
        assert deliveries.keys() <= keyed.keys()
        return [(keyed[key], row) for key, row in deliveries.items()]

    @property
    def waiting(self) -> list[Row]:
        ended = [scheduled for scheduled, _ in self.delivered]
        return [row for row in self.of(SCHEDULE) if row not in ended]


def same(row: Row, topic: str, queue_id: int) -> tuple[object, ...]:
    return row["properties"]["UNIQ_KEY"], topic, queue_id, row["reconsumeTimes"]


def same_wait(row: Row) -> tuple[object, ...]:
    return same(row, row["properties"]["REAL_TOPIC"], int(row["properties"]["REAL_QID"]))


def level(row: Row) -> int:
    return int(row["queueId"]) + 1


TASKS = pytest.param(0, id="tasks", marks=pytest.mark.long)
SHORT_RUN = pytest.param(running.LOG_BYTES_MAX, id="short run")


@pytest.fixture(autouse=True, params=[TASKS, SHORT_RUN])
def reader_of_log(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's tasks read the log of a job, or its own process does."""
    monkeypatch.setattr(running, "LOG_BYTES_MAX", request.param)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    return Golden(unpack_golden(tmp_path_factory.mktemp("golden")))


def test_lateness_counts_what_rocketmq_delivered(golden: Golden, is_long: bool) -> None:
    """Its deliveries do not point back, but they are deliveries: lateness said there were none.

    With --long also in a window, which is of deliveries, for these as for ours.
    """
    late: dict[int, list[int]] = {}
    for scheduled, delivery in golden.delivered:
        late.setdefault(level(scheduled), []).append(
            delivery["storeTimestamp"] - scheduled["tagsCode"]
        )
    found = answered("lateness", golden)
    assert named(found["levels"], "level") == {n: len(each) for n, each in late.items()}
    assert {row["level"]: (row["min_ms"], row["max_ms"]) for row in found["levels"]} == {
        n: (min(each), max(each)) for n, each in late.items()
    }
    assert named(found["hours"], "hour_ms") == Counter(
        delivery["storeTimestamp"] // HOUR_MS * HOUR_MS for _, delivery in golden.delivered
    )
    if not is_long:
        return
    stored = sorted(delivery["storeTimestamp"] for _, delivery in golden.delivered)
    some = answered("lateness", golden, "--since", stored[7])
    assert some["all"][0]["messages"] == sum(at_ms >= stored[7] for at_ms in stored)


def test_reconcile_says_of_every_wait_what_the_entries_say(golden: Golden) -> None:
    """Nothing was due and not delivered when the broker was shut down."""
    found = answered("reconcile", golden)
    assert named(found["levels"], "level", "state") == Counter(
        [(level(scheduled), "delivered") for scheduled, _ in golden.delivered]
        + [(level(row), "pending") for row in golden.waiting]
    )
    assert min(row["tagsCode"] for row in golden.waiting) > golden.now_ms
    assert (found["held"], found["without_pointer"]) == (True, len(golden.delivered))


@pytest.mark.long
def test_a_service_level_counts_what_rocketmq_delivered(golden: Golden) -> None:
    """On the day on which it was due; none is undelivered for want of a pointer."""
    expected = Counter[tuple[object, ...]]()
    for scheduled, _ in golden.delivered:
        day = datetime.fromtimestamp(scheduled["tagsCode"] / 1000, UTC).date()
        expected[scheduled["properties"]["REAL_TOPIC"], str(day)] += 1
    rows = answered("slo", golden, "--within", "1h")["rows"]
    assert {(row["real_topic"], row["day"]): row["in_time"] for row in rows} == expected
    assert {(row["undelivered"], row["undecided"]) for row in rows} == {(0, 0)}


@pytest.mark.long
def test_forecast_counts_what_still_waits(golden: Golden) -> None:
    """By the minute in which it is due; the deliveries of RocketMQ's are not overdue."""
    expected = Counter[tuple[object, ...]]()
    for row in golden.waiting:
        ahead_ms = row["tagsCode"] - golden.now_ms
        bucket = golden.now_ms + (ahead_ms - 1) // 60_000 * 60_000
        is_due = ahead_ms <= HOUR_MS
        state, due_ms = ("due", bucket) if is_due else ("later", None)
        expected[state, due_ms, row["properties"]["REAL_TOPIC"], level(row)] += 1
    found = answered("forecast", golden, "--hours", 1)["rows"]
    assert named(found, "state", "due_timestamp_ms", "real_topic", "level") == expected


def test_retries_follow_each_message_to_its_end(golden: Golden) -> None:
    """By the committed offset of the retry topic; the funnel's figures add up at each retry."""
    failed, given_out, read = Counter[str](), Counter[str](), Counter[str]()
    waits = [row for row in golden.of(SCHEDULE) if row["properties"]["REAL_TOPIC"] == RETRY]
    for row in [*waits, *golden.of(DEAD)]:
        name = row["properties"]["ORIGIN_MESSAGE_ID"]
        failed[name] = max(failed[name], row["reconsumeTimes"])
    for row in golden.of(RETRY):
        name = row["properties"]["ORIGIN_MESSAGE_ID"]
        given_out[name] = max(given_out[name], row["reconsumeTimes"])
        if row["queueOffset"] < READ_OF_RETRIES:
            read[name] = max(read[name], row["reconsumeTimes"])
    dead = {row["properties"]["ORIGIN_MESSAGE_ID"] for row in golden.of(DEAD)}
    waiting = {name for name in failed if name not in dead and given_out[name] < failed[name]}
    in_hand = {name for name in failed.keys() - dead - waiting if read[name] < given_out[name]}
    found = answered("retries", golden)
    (group,) = found["groups"]
    assert (group["consumer_group"], group["origin_topic"]) == (GROUP, "orders")
    assert {name: group[name] for name in ("messages", "in_hand", "waiting", "dead")} == {
        "messages": len(failed),
        "in_hand": len(in_hand),
        "waiting": len(waiting),
        "dead": len(dead),
    }
    assert [row["reached"] for row in found["funnel"]] == [
        sum(count >= attempt for count in given_out.values())
        for attempt in range(1, max(failed.values()) + 1)
    ]
    for row in found["funnel"]:
        assert row["reached"] == row["succeeded"] + row["failed"] + row["in_hand"]
    assert {row["delay_level"]: row["retries"] for row in found["levels"]} == Counter(
        map(level, waits)
    )


@pytest.mark.long
def test_an_export_holds_the_dead_letters_of_the_entries(
    spark: SparkSession, golden: Golden, tmp_path: Path
) -> None:
    """With the topic that they were sent to, which RocketMQ keeps in RETRY_TOPIC."""
    found = answered("dlq-export", golden, "--output", tmp_path / "dlq")
    assert found["added"] == len(golden.of(DEAD))
    kept = read_export(spark, str(tmp_path / "dlq")).orderBy("queue_offset").collect()
    assert [(row.group, row.origin_topic, row.unique_key) for row in kept] == [
        (GROUP, row["properties"]["RETRY_TOPIC"], row["properties"]["UNIQ_KEY"])
        for row in golden.of(DEAD)
    ]


@pytest.mark.long
@pytest.mark.parametrize("reader_of_log", [0], ids=["tasks"], indirect=True)
def test_an_archive_has_every_record_of_a_closed_file(golden: Golden, tmp_path: Path) -> None:
    """And with it every job reads the same records as without; such a job is no short run."""
    place = tmp_path / "archive"
    runs = answered("archive", golden, "--archive", place)["runs"]
    first = [row for row in golden.entries if row["physicalOffset"] < LOG_FILE_BYTES]
    assert [row["records"] for row in runs] == [len(first)]
    levels = answered("lateness", golden, "--archive", place)["levels"]
    assert sum(row["messages"] for row in levels) == len(golden.delivered)
