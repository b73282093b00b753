"""Lateness: the same figures as plain Python's, and only of what was meant to wait."""

from __future__ import annotations

import random
import statistics
from typing import TYPE_CHECKING

import pytest

from rmqlite.spark.jobs.lateness import lateness, lateness_counts
from rmqlite.spark.jobs.waits import COLUMNS, waits
from rmqlite.spark.tables import collected
from tests.spark.log_rows import NOON_MS, LogRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS = 3_600_000


def test_percentiles_are_exact(spark: SparkSession) -> None:
    """Interpolated between two values, as statistics.quantiles() does it."""
    chance = random.Random(20261121)
    log = LogRows()
    late: dict[tuple[int, int], list[int]] = {}
    for n in range(600):
        level, hour = chance.choice((1, 2, 18)), chance.randrange(2)
        due_ms = hour * HOUR_MS + n
        late_ms = chance.choice((0, 0, 1, 2, chance.randrange(400)))
        wait = log.scheduled(n, due_ms, level=level)
        log.ended(wait, due_ms + late_ms)
        late.setdefault((level, hour), []).append(late_ms)
    counts = lateness_counts(waits(log.frame(spark, COLUMNS)))
    rows = collected(lateness(counts))
    assert [(row["level"], (row["hour_ms"] - NOON_MS) // HOUR_MS) for row in rows] == sorted(late)
    for row, values in zip(rows, [late[key] for key in sorted(late)], strict=True):
        cuts = statistics.quantiles(values, n=100, method="inclusive")
        found = (row["p50_ms"], row["p90_ms"], row["p99_ms"])
        assert found == pytest.approx((cuts[49], cuts[89], cuts[98]))
        assert (row["messages"], row["max_ms"], row["early"]) == (len(values), max(values), 0)
        assert row["late_share"] == pytest.approx(sum(v > 100 for v in values) / len(values))


def test_only_a_delivery_can_be_late(spark: SparkSession) -> None:
    """Fired, rescheduled, cancelled: nobody waited for the deliver time.  Pending: not yet."""
    log = LogRows()
    log.ended(log.scheduled(0, 1_000), 500, "fired")
    log.ended(log.scheduled(0, 1_000), 500, "cancelled")
    moved = log.ended(log.scheduled(0, 1_000), 600, "rescheduled", queue_id=4, delay_level=5)
    moved["deliver_timestamp"] = log.rows[0]["deliver_timestamp"]
    log.ended(moved, 1_007)
    log.ended(log.scheduled(0, 1_000), 999)
    log.scheduled(0, 1_000)
    rows = collected(lateness_counts(waits(log.frame(spark, COLUMNS))))
    assert {(row["level"], row["late_ms"], row["messages"]) for row in rows} == {
        (5, 7, 1),
        (1, -1, 1),
    }


def test_a_time_window_is_of_deliveries(spark: SparkSession) -> None:
    """The scheduled record may be older; the first moment is inside, the last is not."""
    log = LogRows()
    for at_ms in (1_000, 2_000, 3_000):
        log.ended(log.scheduled(0, at_ms), at_ms + 5)
    window = {"since_ms": NOON_MS + 2_005, "until_ms": NOON_MS + 3_005}
    counts = lateness_counts(waits(log.frame(spark, COLUMNS)), **window)
    rows = collected(lateness(counts, by=["level"], late_ms=4))
    assert [(row["level"], row["messages"], row["late_share"]) for row in rows] == [(1, 1, 1.0)]
