"""Reconcile: what is kept is said to be kept, and whatever is not is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqlite.spark.jobs.reconcile import COLUMNS, Audit, audit, reconcile
from rmqlite.spark.tables import collected
from tests.spark.log_rows import NOON_MS, RECORD_BYTES, LogRows, Row

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


def kept(log: LogRows) -> list[Row]:
    """One wait of every kind, all as it should be, and records that never waited."""
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
    pending = log.scheduled(1_500, 9_000)
    log.add("orders", 2_000)
    return [*waits, pending]


def test_promises_that_held_are_said_to_have_held(spark: SparkSession) -> None:
    """Of a fired, rescheduled or cancelled message the end may be early; every wait is counted."""
    log = LogRows()
    kept(log)
    found = audited(spark, log)
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


def with_orphans(log: LogRows) -> int:
    """Two ends, of which the first one's beginning may have been before the log; the other's."""
    begin: int = log.rows[0]["physical_offset"]
    gone = {"end_offset": begin, "delay_level": 6, "real_topic": "orders", "real_queue_id": 0}
    gone |= {"unique_key": "GONE", "reconsume_times": 0}
    log.ended(gone, 2_000)
    log.ended(gone | {"end_offset": begin + RECORD_BYTES // 2}, 2_001)
    return begin + RECORD_BYTES // 2


def with_timers(log: LogRows) -> tuple[Row, Row]:
    """Carried, delivered, rescheduled, still pending; and one that is early, one that is missing.

    A timer's level is -1; carried to the log's end it goes on waiting, and nothing is early.
    """
    waits = [log.timer(2_000 + n, 3_000 + 7 * n) for n in range(4)]
    carried = log.ended(waits[0], 2_010, "carried", deliver_timestamp=waits[0]["deliver_timestamp"])
    carried["delay_level"] = None
    log.ended(carried, 3_000)
    log.ended(waits[1], 3_006)
    moved = log.ended(waits[2], 3_010, "rescheduled", queue_id=2, delay_level=3)
    moved["deliver_timestamp"] = waits[3]["deliver_timestamp"]
    log.ended(moved, 3_021)
    log.timer(3_500, 1 << 40)
    return waits[1], waits[3]


def with_ends_of_rocketmq(log: LogRows) -> list[Row]:
    """Found by id, destination and reconsume times; one is doubled, two are missing."""
    bare: dict[str, Any] = {"completes": None, "completed_level": None, "completion": None}
    waits = [log.scheduled(3_600, 4_000, level=5, unique_key=f"R{n}") for n in range(4)]
    again: dict[str, Any] = {"topic": "%RETRY%g", "reconsume_times": 1}
    retry = log.scheduled(3_601, 5_000, level=5, unique_key="R0", **again)
    for wait in waits[:3]:
        log.ended(wait, 4_000, **bare)
    log.ended(retry, 5_000, **bare)
    unknown = log.scheduled(5_000, 5_400, level=5, unique_key="R8")
    log.ended(waits[0], 5_401, **bare)
    late = log.scheduled(6_000, 4 * MINUTE_MS, level=5, unique_key="R9")
    log.ended(late, 4 * MINUTE_MS, **bare)
    return [waits[0], waits[3], unknown]


def test_whatever_is_wrong_is_found(spark: SparkSession) -> None:
    """A delivery that is gone, early or doubled, of a level, of a timer or by RocketMQ; and an
    end without its beginning, unless retention took that: where the log begins is known.

    Each by the scheduled record; what was due clearly later was delivered.
    """
    log = LogRows(begin_offset=5_000)
    *_, pending = kept(log)
    orphan = with_orphans(log)
    early_timer, missing_timer = with_timers(log)
    doubled, *missing = with_ends_of_rocketmq(log)
    waits = [log.scheduled(7_000, 10_000) for _ in range(3)]
    late = log.scheduled(7_000, 10_000 + 4 * MINUTE_MS)
    log.ended(pending, 9_500)
    log.ended(waits[1], 9_999)
    log.ended(waits[2], 10_000)
    log.ended(waits[2], 10_001)
    log.ended(late, 10_000 + 4 * MINUTE_MS)
    found = audited(spark, log, begin_offset=5_000)
    assert not found.held
    assert wrong(found) == [
        ("orphan", orphan),
        ("early", early_timer["end_offset"]),
        ("missing", missing_timer["end_offset"]),
        ("duplicate", doubled["end_offset"]),
        *[("missing", each["end_offset"]) for each in missing],
        ("missing", waits[0]["end_offset"]),
        ("early", waits[1]["end_offset"]),
        ("duplicate", waits[2]["end_offset"]),
    ]
    totals = {name: found.total(name) for name in ("missing", "early", "duplicates", "orphan")}
    assert totals == {"missing": 4, "early": 2, "duplicates": 2, "orphan": 1}
    assert found.total("without_pointer") == 5
    row = collected(found.offenders)[-2] if found.offenders is not None else {}
    assert (row["unique_key"], row["early_ms"]) == (waits[1]["unique_key"], 1)
    levels = {(row["level"], row["state"]): row["messages"] for row in found.rows}
    assert {at: count for at, count in levels.items() if at[0] in (-1, 3, 5, 6)} == {
        (-1, "carried"): 1,
        (-1, "delivered"): 2,
        (-1, "rescheduled"): 1,
        (-1, "missing"): 1,
        (-1, "pending"): 1,
        (3, "delivered"): 1,
        (5, "delivered"): 5,
        (5, "missing"): 2,
        (6, "expired"): 1,
        (6, "orphan"): 1,
    }


def test_what_a_stopped_broker_left_is_overdue_and_not_missing(spark: SparkSession) -> None:
    """Nothing that was due later was delivered, so its turn has not come."""
    log = LogRows()
    first = log.scheduled(0, 1_000)
    log.scheduled(1, 2_000)
    log.scheduled(2, 3_000, level=2)
    log.timer(2, 2_400)
    log.ended(first, 1_000)
    # Fired: it says nothing of who was due before.
    log.ended(log.scheduled(3, 60 * MINUTE_MS), 4, "fired")
    log.add("orders", 2_500)
    late = log.scheduled(30 * MINUTE_MS, 31 * MINUTE_MS)
    found = audited(spark, log)
    assert states(found) == {"delivered": 1, "fired": 1, "overdue": 3, "pending": 1}
    assert found.held
    log.ended(late, 31 * MINUTE_MS)
    told = collected(reconcile(log.frame(spark, COLUMNS)))
    assert {row["state"]: row["messages"] for row in told if row["level"] == 2} == {"missing": 1}
