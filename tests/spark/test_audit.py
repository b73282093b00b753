"""The product's own audit: reconcile over the store of a broker that is killed at work.

The seed of a run is in its test's name; RMQLITE_SEED sets another.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from rmqlite.client import AdminClient, Message, Producer
from rmqlite.protocols.native.bytes.messages import SendResult
from rmqlite.spark.jobs.reconcile import Audit, audit
from rmqlite.spark.reading import read_log, snapshot
from rmqlite.spark.tables import collected
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import OF_ANY_DISK, free_port
from tests.support.eventually import eventually
from tests.support.golden import unpack_golden
from tests.support.sending import SEED, Sending, kill_and_restart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LEVELS = "1s 2s 1h"
FAR = 3
CHANGED = 20
KILLS, KILLS_IN_A_LONG_RUN = 1, 3


def audited(spark: SparkSession, *, path: str = "", endpoint: str = "") -> Audit:
    seen = snapshot(path=path, endpoint=endpoint)

    def read(columns: Sequence[str]) -> DataFrame:
        return read_log(
            spark,
            path=path,
            endpoint=endpoint,
            columns=columns,
            endingPhysicalOffset=seen.end_offset,
        )

    return audit(read, begin_offset=seen.begin_offset, now_ms=seen.newest_timestamp_ms)


def totals(found: Audit) -> dict[str, int]:
    names = ("fired", "rescheduled", "cancelled", "pending", "overdue", "missing", "orphan")
    return {
        name: found.total(name) for name in (*names, "duplicates", "early") if found.total(name)
    }


def change(endpoint: str, sent: list[SendResult]) -> None:
    """Cancel, fire and reschedule a part of them each; the last part waits on."""
    ids = [each.message_id for each in sent]
    with AdminClient(endpoint) as admin:
        admin.schedule.cancel(*ids[:CHANGED])
        admin.schedule.fire(*ids[CHANGED : 2 * CHANGED])
        admin.schedule.reschedule(*ids[2 * CHANGED : 3 * CHANGED], delay_level=1)


@pytest.mark.parametrize("seed", [SEED])
def test_the_audit_of_a_killed_brokers_store_says_the_promises_held(
    spark: SparkSession, tmp_path: Path, seed: int, is_long: bool
) -> None:
    """P2 and P4 as the log itself tells them, from the broker.

    With --long also from its files; and one delivery that is taken away, doubled or made early is
    found, as in test_jobs_reconcile.py.
    """
    chance = random.Random(seed)
    keys = OF_ANY_DISK | {"grpcPort": str(free_port()), "messageDelayLevel": LEVELS}
    with BrokerProcess(tmp_path / "broker", keys) as broker:
        with Producer(broker.endpoint, "changed") as producer:
            waiting = [Message("orders", b"x", delay_level=FAR) for _ in range(4 * CHANGED)]
            sent = producer.send_batch(waiting)
        sending = Sending(broker.endpoint, seed, pause_s=0.002 if is_long else 0.02)
        sending.start()
        for number in range(KILLS_IN_A_LONG_RUN if is_long else KILLS):
            if number == 0:
                change(broker.endpoint, sent)
            kill_and_restart(broker, sending, chance)
        sending.stop()
        with AdminClient(broker.endpoint) as admin:
            eventually(
                lambda: sum(level.pending for level in admin.broker_status().levels) == CHANGED,
                f"seed={seed}: everything due is delivered",
            )
        with Producer(broker.endpoint, "after") as producer:
            # The answer waits for a sync: it covers the last deliveries, which a log read needs.
            producer.send(Message("after", b"x"))
        found = [audited(spark, endpoint=broker.endpoint)]
    if is_long:
        found.append(audited(spark, path=str(broker.store)))
    expected = {"fired": CHANGED, "rescheduled": CHANGED, "cancelled": CHANGED, "pending": CHANGED}
    for each in found:
        assert each.held, f"seed={seed}: {collected(each.offenders) if each.offenders else ''}"
        assert totals(each) == expected
        assert each.total("delivered") > 100
    if not is_long:
        return
    wrong = audit(lambda columns: doctored(spark, broker.store, columns), slack_ms=0)
    assert wrong.offenders is not None
    assert not wrong.held
    whats = sorted(row["what"] for row in collected(wrong.offenders))
    assert whats == ["duplicate", "early", "missing"]


def doctored(spark: SparkSession, store: Path, columns: Sequence[str]) -> DataFrame:
    """A store's records; of the first deliveries one is gone, one doubled, one too early."""
    records = read_log(spark, path=str(store), columns=columns)
    delivered = records.where(F.col("completion") == "delivered").orderBy("physical_offset")
    gone, doubled, early = [row.physical_offset for row in delivered.take(3)]
    at = F.col("physical_offset")
    again = records.where(at == doubled).withColumn("physical_offset", at + 1)
    before = F.col("store_timestamp") - F.expr("INTERVAL 1 HOUR")
    moved = F.when(at == early, before).otherwise(F.col("store_timestamp"))
    kept = records.where(at != gone).withColumn("store_timestamp", moved)
    return kept.unionByName(again)


@pytest.mark.long
def test_a_store_of_rocketmqs_is_not_reported_as_all_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its deliveries do not point back; delayOffset.json says the same of levels 1 to 5."""
    found = audited(spark, path=str(unpack_golden(tmp_path) / "clean"))
    delivered = {r["level"]: r["messages"] for r in found.rows if r["state"] == "delivered"}
    assert delivered == {1: 6, 2: 6, 3: 12, 4: 10, 5: 8}
    assert (found.held, found.total("without_pointer")) == (True, 42)
    assert totals(found) == {"pending": 2 + 11 * 6 + 6 + 7}
