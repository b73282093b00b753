"""The retry funnel of messages whose fate is known, and the forecast of those that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rmqlite.spark.jobs import retries
from rmqlite.spark.jobs.committed import SCHEMA
from rmqlite.spark.jobs.forecast import log_forecast
from rmqlite.spark.tables import collected
from tests.spark.log_rows import NOON_MS, RECORD_BYTES, LogRows, moment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINUTE_MS = 60_000


class Failing(LogRows):
    """Messages that a group fails; each is born at 0."""

    def fail(
        self,
        name: str,
        times: int,
        end: str = "",
        group: str = "workers",
        reason: str | None = None,
        **changes: Any,
    ) -> None:
        """Failed so many times; end: "" given out once more, "wait" not yet, "dead"."""
        told: dict[str, Any] = {
            "unique_key": name,
            "origin_message_id": f"origin of {name}",
            "origin_topic": "orders",
            "born_timestamp": moment(0),
        } | changes
        for n in range(1, times + 1):
            because = f"reason {n}" if reason is None else reason or None
            failed = told | {"reconsume_times": n, "failure_reason": because}
            if n == times and end == "dead":
                self.add(f"%DLQ%{group}", 1_000 * n, **failed)
                return
            wait = self.scheduled(
                1_000 * n, 1_000 * n + 500, level=2 + n, topic=f"%RETRY%{group}", **failed
            )
            if n < times or not end:
                at: dict[str, Any] = {"queue_id": 0, "queue_offset": len(self.rows)}
                self.ended(wait, 1_000 * n + 500, **failed, **at)


def failed_messages() -> Failing:
    """Four that succeeded at the first, first, second and third retry; one each that waits
    for its second retry, that is dead after the second, and that went to the dead at once."""
    log = Failing()
    log.add("orders", 0, reconsume_times=0)
    for n, times in enumerate((1, 1, 2, 3)):
        log.fail(f"good {n}", times)
    log.fail("waits", 2, "wait")
    log.fail("dies", 3, "dead")
    log.fail("dies at once", 1, "dead", group="others")
    return log


def read(spark: SparkSession, log: LogRows) -> DataFrame:
    return log.frame(spark, retries.COLUMNS)


def test_a_funnel_says_at_which_retry_messages_succeed(spark: SparkSession) -> None:
    """Who was given out and did not fail again succeeded; rates are of those whose end is known."""
    failures = retries.failures(read(spark, failed_messages())).persist()
    told = retries.messages(failures)
    rows = [
        tuple(row.values())[2:]
        for row in collected(retries.funnel(told))
        if row["consumer_group"] == "workers"
    ]
    # attempt, reached, succeeded, failed, dead, in hand, rate, waiting, cancelled
    assert rows == [
        (1, 6, 2, 4, 0, 0, 2 / 6, 0, 0),
        (2, 3, 1, 2, 1, 0, 1 / 3, 1, 0),
        (3, 1, 1, 0, 0, 0, 1.0, 0, 0),
    ]
    assert collected(retries.summary(told)) == [
        {
            "consumer_group": group,
            "origin_topic": "orders",
            "messages": messages,
            "succeeded": succeeded,
            "in_hand": 0,
            "waiting": waiting,
            "cancelled": 0,
            "dead": 1,
            "to_success_p50_ms": p50,
            "to_success_p99_ms": p99,
        }
        for group, messages, succeeded, waiting, p50, p99 in (
            ("others", 1, 0, 0, None, None),
            ("workers", 6, 4, 1, 2_000.0, pytest.approx(3_470.0)),
        )
    ]
    assert collected(retries.levels(failures)) == [
        {"consumer_group": "workers", "delay_level": 2 + n, "retries": count, "attempts": [n]}
        for n, count in ((1, 6), (2, 4), (3, 1))
    ]
    failures.unpersist()


def test_a_cancelled_retry_waits_no_more(spark: SparkSession) -> None:
    """Its cancellation points at it, also after it was rescheduled, and at no other."""
    log = Failing()
    log.fail("waits", 2, "wait")
    log.fail("cancelled", 2, "wait")
    log.ended(log.rows[-1], 9_000, "cancelled")
    log.fail("moved", 1, "wait")
    wait = log.rows[-1]
    same = {name: wait[name] for name in ("origin_topic", "origin_message_id", "failure_reason")}
    log.ended(log.ended(wait, 3_000, "rescheduled", queue_id=9, **same), 9_000, "cancelled")
    log.ended(log.scheduled(0, 500), 100, "cancelled")
    told = retries.messages(retries.failures(read(spark, log)))
    assert {row["message_id"]: row["state"] for row in collected(told)} == {
        "origin of waits": "waiting",
        "origin of cancelled": "cancelled",
        "origin of moved": "cancelled",
    }
    (group,) = collected(retries.summary(told))
    assert (group["messages"], group["waiting"], group["cancelled"]) == (3, 1, 2)
    funnel = collected(retries.funnel(told))
    assert [(row["waiting"], row["cancelled"]) for row in funnel] == [(0, 1), (1, 1)]


def test_reasons_are_counted_by_kind_and_once_a_failure(spark: SparkSession) -> None:
    """A rescheduled retry has two records of the same failure; the rest is one line, so that the
    lines of a group are all its failures.
    """
    log = Failing()
    reasons = [*(f"no answer within {n} s" for n in range(5)), *["HTTP 503"] * 3, *["card"] * 2, ""]
    for number, reason in enumerate(reasons):
        log.fail(f"m{number}", 1, "dead", reason=reason)
    log.fail("moved", 1, "wait", reason="no answer within 77 s")
    wait = log.rows[-1]
    moved = {name: wait[name] for name in ("origin_topic", "origin_message_id", "failure_reason")}
    log.ended(wait, 9_000, "rescheduled", queue_id=9, **moved)
    log.fail("other", 1, group="others")
    found = collected(retries.reasons(retries.failures(read(spark, log)), most=2))
    assert [tuple(row.values()) for row in found] == [
        ("others", "reason #", 1, 1),
        ("workers", "no answer within # s", 6, 1),
        ("workers", "HTTP 503", 3, 1),
        ("workers", None, 3, 2),
    ]
    everything = collected(retries.reasons(retries.failures(read(spark, log))))
    assert ("workers", "(no reason)", 1, 1) in [tuple(row.values()) for row in everything]


def test_a_redriven_letter_is_counted_as_another_message_if_it_fails(spark: SparkSession) -> None:
    """It keeps the first message's id and counts its attempts anew: both chains would be one."""
    log = Failing()
    log.fail("m", 2, "dead")
    names = ("origin_topic", "origin_message_id", "born_timestamp")
    redriven = {name: log.rows[-1][name] for name in names}
    for key in ("redrive:%DLQ%workers:0:0", "redrive:%DLQ%workers:0:1"):
        log.add("%RETRY%workers", 5_000, unique_key=key, reconsume_times=0, **redriven)
    log.fail("m", 1, unique_key="redrive:%DLQ%workers:0:0")
    failures = retries.failures(read(spark, log))
    (group,) = collected(retries.summary(retries.messages(failures)))
    assert {name: group[name] for name in ("messages", "succeeded", "dead")} == {
        "messages": 2,
        "succeeded": 1,
        "dead": 1,
    }
    assert {
        row["failure_kind"]: row["failures"] for row in collected(retries.reasons(failures))
    } == {"reason #": 3}


def test_committed_offsets_tell_what_no_consumer_has_read(spark: SparkSession) -> None:
    """Given out is not consumed; a group that committed nothing has read nothing."""
    log = Failing()
    log.fail("read", 1)
    log.fail("unread", 1)
    log.fail("elsewhere", 1, group="others")
    offset = log.rows[-3]["queue_offset"]
    committed = spark.createDataFrame([("workers", "%RETRY%workers", 0, offset)], SCHEMA)
    told = collected(retries.messages(retries.failures(read(spark, log), committed)))
    assert {row["message_id"].removeprefix("origin of "): row["state"] for row in told} == {
        "read": "succeeded",
        "unread": "in hand",
        "elsewhere": "in hand",
    }


def test_costs_are_what_failures_added(spark: SparkSession) -> None:
    """Waits from each failure to the next attempt, however often a retry was rescheduled; the
    first send is no cost.
    """
    log = failed_messages()
    log.fail("moved", 1, "wait")
    wait = log.rows[-1]
    same = {name: wait[name] for name in ("origin_topic", "origin_message_id", "failure_reason")}
    moved = log.ended(wait, 3_000, "rescheduled", queue_id=9, **same)
    log.ended(moved, 5_000, **same, queue_offset=1)
    for row in log.rows:
        row["store_size"] = RECORD_BYTES
    found = collected(retries.costs(retries.failures(read(spark, log))))
    assert [tuple(row.values()) for row in found] == [
        # group, topic, messages, attempts, dead, records, bytes, waited
        ("workers", "orders", 7, 11, 1, 25, 25 * RECORD_BYTES, 10 * 500 + 4_000),
        ("others", "orders", 1, 0, 1, 1, RECORD_BYTES, 0),
    ]


def test_a_forecast_looks_at_the_time_between_two(spark: SparkSession) -> None:
    """From the first on, before the second; what is due until then is sooner, not lost."""
    log = LogRows()
    for due_ms in (30_000, 119_999, 120_000, 179_999, 180_000, 239_999, 240_000):
        log.scheduled(0, due_ms)
    table = log_forecast(
        lambda columns: log.frame(spark, columns),
        now_ms=NOON_MS + MINUTE_MS,
        from_ms=NOON_MS + 2 * MINUTE_MS,
        span_ms=2 * MINUTE_MS,
    )
    rows = collected(table)
    table.unpersist()
    assert [
        (row["state"], (row["due_timestamp_ms"] or NOON_MS) - NOON_MS, row["messages"])
        for row in rows
    ] == [
        ("overdue", 0, 1),
        ("sooner", 0, 1),
        ("due", 120_000, 2),
        ("due", 180_000, 2),
        ("later", 0, 1),
    ]


def test_a_forecast_counts_what_waits_by_when_it_is_due(spark: SparkSession) -> None:
    """What is due now is overdue; what has ended is not to come."""
    log = LogRows()
    log.ended(log.scheduled(0, 30_000), 30_000)
    for due_ms in (60_000, 60_001, 120_000, 120_001, 180_001):
        log.scheduled(0, due_ms, level=2)
    log.scheduled(0, 60_001, topic="invoices")
    table = log_forecast(
        lambda columns: log.frame(spark, columns),
        now_ms=NOON_MS + MINUTE_MS,
        span_ms=2 * MINUTE_MS,
    )
    rows = collected(table)
    table.unpersist()
    assert [
        (
            row["state"],
            row["due_timestamp_ms"] and (row["due_timestamp_ms"] - NOON_MS) // MINUTE_MS,
            row["real_topic"],
            row["level"],
            row["messages"],
        )
        for row in rows
    ] == [
        ("overdue", None, "orders", 2, 1),
        ("due", 1, "invoices", 1, 1),
        ("due", 1, "orders", 2, 2),
        ("due", 2, "orders", 2, 1),
        ("later", None, "orders", 2, 1),
    ]
