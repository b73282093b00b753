"""Reconcile: what is kept is said to be kept, and whatever is not is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqlite.spark.jobs.reconcile import COLUMNS, Audit, audit, reconcile
from rmqlite.spark.tables import collected
from tests.spark.log_rows import NOON_MS, RECORD_BYTES, LogRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE_MS = 60_000


def audited(spark: SparkSession, log: LogRows, begin_offset: int = 0) -> Audit:
    return audit(
        lambda columns: log.frame(spark, columns),
        begin_offset=begin_offset,
        now_ms=max(int(row["store_timestamp"].timestamp() * 1000) for row in log.rows),
    )


def states(found: Audit) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in found.rows:
        counts[row["state"]] = counts.get(row["state"], 0) + row["messages"]
    return counts


def wrong(found: Audit) -> list[tuple[str, int]]:
    """What is wrong, and with which scheduled record."""
    assert found.offenders is not None
    return [(row["what"], row["end_offset"]) for row in collected(found.offenders)]


def kept() -> LogRows:
    """One wait of every kind, all as it should be, and records that never waited."""
    log = LogRows()
    log.add("orders", 0)
    waits = [log.scheduled(n, 1_000 + n, level=1 + n % 2) for n in range(6)]
    log.ended(waits[0], 1_000)
    log.ended(waits[1], 500, "fired")
    moved = log.ended(waits[2], 600, "rescheduled", queue_id=3, delay_level=4)
    moved["deliver_timestamp"] = waits[5]["deliver_timestamp"]
    log.ended(waits[3], 700, "cancelled")
    log.ended(waits[4], 1_100, "undeliverable")
    log.ended(waits[5], 1_010)
    log.ended(moved, 1_020)
    log.scheduled(1_500, 9_000)
    log.add("orders", 2_000)
    return log


def test_promises_that_held_are_said_to_have_held(spark: SparkSession) -> None:
    """Of a fired, rescheduled or cancelled message the end may be early; every wait is counted."""
    found = audited(spark, kept())
    assert states(found) == {
        "delivered": 3,
        "fired": 1,
        "rescheduled": 1,
        "cancelled": 1,
        "undeliverable": 1,
        "pending": 1,
    }
    assert found.held
    assert found.offenders is None
    assert found.horizon_ms == NOON_MS + 1_005
    rescheduled = [row for row in found.rows if row["level"] == 4]
    assert [(row["state"], row["messages"]) for row in rescheduled] == [("delivered", 1)]


def test_a_timer_is_a_wait_like_one_of_a_level(spark: SparkSession) -> None:
    """Its level is -1; carried to the log's end it goes on waiting, and nothing is early."""
    log = LogRows()
    waits = [log.timer(n, 1_000 + 7 * n) for n in range(4)]
    carried = log.ended(waits[0], 10, "carried", deliver_timestamp=waits[0]["deliver_timestamp"])
    carried["delay_level"] = None
    log.ended(carried, 1_000)
    log.ended(waits[1], 1_006)
    moved = log.ended(waits[2], 1_010, "rescheduled", queue_id=2, delay_level=3)
    moved["deliver_timestamp"] = waits[3]["deliver_timestamp"]
    log.ended(moved, 1_021)
    log.timer(1_500, 1 << 40)
    found = audited(spark, log)
    assert wrong(found) == [("early", waits[1]["end_offset"])]
    levels = {(row["level"], row["state"]): row["messages"] for row in found.rows}
    assert levels == {
        (-1, "carried"): 1,
        (-1, "delivered"): 2,
        (-1, "rescheduled"): 1,
        (-1, "overdue"): 1,
        (-1, "pending"): 1,
        (3, "delivered"): 1,
    }


def test_a_delivery_that_was_removed_was_doubled_or_is_early_is_found(spark: SparkSession) -> None:
    """Each by the scheduled record; what was due clearly later was delivered."""
    log = kept()
    waits = [log.scheduled(3_000, 10_000) for _ in range(3)]
    late = log.scheduled(3_000, 10_000 + 2 * MINUTE_MS)
    log.ended(waits[1], 9_999)
    log.ended(waits[2], 10_000)
    log.ended(waits[2], 10_001)
    log.ended(late, 10_000 + 2 * MINUTE_MS)
    # The one that kept() leaves pending is due by now, too.
    pending = next(row for row in log.rows if row["end_offset"] == 1_500)
    log.ended(pending, 9_500)
    found = audited(spark, log)
    assert not found.held
    assert wrong(found) == [
        ("missing", waits[0]["end_offset"]),
        ("early", waits[1]["end_offset"]),
        ("duplicate", waits[2]["end_offset"]),
    ]
    totals = {name: found.total(name) for name in ("missing", "early", "duplicates", "orphan")}
    assert totals == {"missing": 1, "early": 1, "duplicates": 1, "orphan": 0}
    row = collected(found.offenders)[1] if found.offenders is not None else {}
    assert (row["unique_key"], row["early_ms"]) == (waits[1]["unique_key"], 1)


def test_what_a_stopped_broker_left_is_overdue_and_not_missing(spark: SparkSession) -> None:
    """Nothing that was due later was delivered, so its turn has not come."""
    log = LogRows()
    first = log.scheduled(0, 1_000)
    log.scheduled(1, 2_000)
    log.scheduled(2, 3_000, level=2)
    log.ended(first, 1_000)
    # Fired: it says nothing of who was due before.
    log.ended(log.scheduled(3, 60 * MINUTE_MS), 4, "fired")
    log.add("orders", 2_500)
    late = log.scheduled(30 * MINUTE_MS, 31 * MINUTE_MS)
    found = audited(spark, log)
    assert states(found) == {"delivered": 1, "fired": 1, "overdue": 2, "pending": 1}
    assert found.held
    log.ended(late, 31 * MINUTE_MS)
    told = collected(reconcile(log.frame(spark, COLUMNS)))
    assert {row["state"]: row["messages"] for row in told if row["level"] == 2} == {"missing": 1}


def test_an_end_without_its_beginning_is_an_orphan_unless_retention_took_it(
    spark: SparkSession,
) -> None:
    """Where the log begins it is known that what lies before is gone."""
    log = LogRows(begin_offset=5_000)
    gone = {"end_offset": 5_000, "delay_level": 1, "real_topic": "orders", "real_queue_id": 0}
    gone |= {"unique_key": "GONE", "reconsume_times": 0}
    log.ended(gone, 1_000)
    log.ended(gone | {"end_offset": 5_050, "delay_level": 3}, 1_001)
    found = audited(spark, log, begin_offset=5_000)
    assert (states(found), found.held) == ({"expired": 1, "orphan": 1}, False)
    # The other one breaks no promise.
    assert wrong(found) == [("orphan", 5_050)]


def test_a_delivery_by_rocketmq_is_found_without_a_pointer(spark: SparkSession) -> None:
    """By id, destination and reconsume times; what is doubled or not there is found."""
    log = LogRows()
    bare: dict[str, Any] = {"completes": None, "completed_level": None, "completion": None}
    waits = [log.scheduled(n, 1_000, unique_key=f"R{n}") for n in range(4)]
    retry = log.scheduled(5, 2_000, unique_key="R0", topic="%RETRY%g", reconsume_times=1)
    for wait in waits[:3]:
        log.ended(wait, 1_000, **bare)
    log.ended(retry, 2_000, **bare)
    # Due since a moment that only a record knows that has nothing to do with the schedule.
    log.scheduled(2_000, 2_400, unique_key="R8")
    log.add("orders", 2_500)
    log.ended(waits[0], 1_001, **bare)
    log.ended(log.scheduled(3_000, 4 * MINUTE_MS, unique_key="R9"), 4 * MINUTE_MS, **bare)
    found = audited(spark, log)
    assert states(found) == {"delivered": 5, "missing": 2}
    assert found.total("without_pointer") == 5
    assert wrong(found) == [
        ("duplicate", waits[0]["end_offset"]),
        ("missing", waits[3]["end_offset"]),
        ("missing", retry["end_offset"] + 5 * RECORD_BYTES),
    ]
