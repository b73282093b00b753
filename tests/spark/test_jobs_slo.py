"""Service levels: which messages count, on which day, and when a target is missed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqlite.spark.jobs import slo
from rmqlite.spark.jobs.waits import COLUMNS, waits
from rmqlite.spark.tables import collected
from tests.spark.log_rows import NOON_MS, LogRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS = 86_400_000
NAMES = ("due", "in_time", "late", "undelivered", "undecided", "is_met")


def levels(spark: SparkSession, log: LogRows, now_ms: int, **changes: Any) -> list[dict[str, Any]]:
    due = slo.Due(**{name: changes.pop(name) for name in list(changes) if name in DUE})
    target = slo.Target(**{"within_ms": 100, "in_time": 0.5} | changes)
    found = waits(log.frame(spark, (*COLUMNS, "real_topic")), "real_topic")
    return collected(slo.service_levels(found, target, now_ms=NOON_MS + now_ms, due=due))


DUE = ("topics", "since_ms", "until_ms")


def figures(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in NAMES)


def test_a_message_counts_on_the_day_on_which_it_was_due(spark: SparkSession) -> None:
    """In UTC, by its topic; 100 ms late is in time, 101 is not."""
    log = LogRows()
    for due_ms, late_ms in ((1_000, 0), (1_000, 100), (1_000, 101), (1_000 + DAY_MS, 5_000)):
        log.ended(log.scheduled(0, due_ms), due_ms + late_ms)
    log.ended(log.scheduled(0, 1_000, topic="invoices"), 1_000)
    rows = levels(spark, log, 2 * DAY_MS)
    assert [(row["real_topic"], *figures(row)) for row in rows] == [
        ("invoices", 1, 1, 0, 0, 0, True),
        ("orders", 3, 2, 1, 0, 0, True),
        ("orders", 1, 0, 1, 0, 0, False),
    ]
    assert rows[1]["day"] < rows[2]["day"]
    assert (rows[1]["max_ms"], rows[1]["in_time_share"]) == (101, 2 / 3)
    (row,) = levels(spark, log, 2 * DAY_MS, topics=("orders",), until_ms=NOON_MS + 1_001)
    assert (row["real_topic"], row["max_ms"]) == ("orders", 101)
    (row,) = levels(spark, log, 2 * DAY_MS, since_ms=NOON_MS + 1_001)
    assert row["max_ms"] == 5_000


def test_what_is_not_delivered_is_a_miss_when_it_cannot_be_in_time_any_more(
    spark: SparkSession,
) -> None:
    """Until then it does not count; a dead letter of the schedule was never delivered."""
    log = LogRows()
    log.scheduled(0, 1_000, topic="missed")
    log.scheduled(0, 1_001, topic="in its last millisecond")
    log.scheduled(0, 1_102, topic="not due")
    log.ended(log.scheduled(0, 1_000, topic="dead"), 1_000, "undeliverable")
    rows = levels(spark, log, 1_101)
    assert {row["real_topic"]: figures(row) for row in rows} == {
        "missed": (1, 0, 0, 1, 0, False),
        "in its last millisecond": (0, 0, 0, 0, 1, True),
        "dead": (1, 0, 0, 1, 0, False),
    }


def test_a_target_has_two_shares(spark: SparkSession) -> None:
    """Late is not lost: one may be missed without the other."""
    log = LogRows()
    log.ended(log.scheduled(0, 1_000), 9_000)
    log.scheduled(0, 1_000)
    assert not levels(spark, log, 9_000, complete=0.5)[0]["is_met"]
    assert not levels(spark, log, 9_000, in_time=0.0)[0]["is_met"]
    assert levels(spark, log, 9_000, in_time=0.0, complete=0.5)[0]["is_met"]


def test_only_who_waited_for_the_time_counts(spark: SparkSession) -> None:
    """Fired, cancelled, rescheduled: nobody was promised the time of that record any more."""
    log = LogRows()
    log.ended(log.scheduled(0, 1_000), 500, "fired")
    log.ended(log.scheduled(0, 1_000), 500, "cancelled")
    log.ended(log.scheduled(0, 1_000), 500, "rescheduled", queue_id=4, delay_level=5)
    assert levels(spark, log, 9_000) == []
