"""How fast messages are scheduled in bulk: from Spark, from Python, and with Send for comparison.

    python -m tests.benchmarks.spark_sink --messages 1000000

A broker process of its own on a temporary folder, SYNC_FLUSH, Spark with local[2]: on a
machine of two cores all of them share these.  Each way sends the same bodies of about 180
bytes at level 14; each figure is one warm run; a run sends nothing twice.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqlite.client import AdminClient, BulkMessage, BulkScheduler, Message, Producer
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.testing import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BODY = b'{"order": "%020d", "lines": [{"article": "chair", "amount": 4}], "note": "' + b"x" * 96
TOPIC = "orders"
LEVEL = 14
SETTINGS = {"diskSpaceWarningLevelRatio": "100", "cleanFileForciblyEnable": "false"}


def frame(spark: SparkSession, run: str, count: int) -> DataFrame:
    """The same messages, made by Spark; their making is a part of what is measured."""
    from pyspark.sql import functions as F

    number = F.lpad(F.col("id").cast("string"), 20, "0")
    begin, end = BODY.decode().split("%020d")
    return spark.range(count).select(
        F.concat(F.lit(begin), number, F.lit(end)).cast("binary").alias("body"),
        F.concat(F.lit(f"{run}-"), "id").alias("message_key"),
    )


def from_spark(spark: SparkSession, endpoint: str, run: str, count: int) -> int:
    from rmqlite.spark.bulk import bulk_schedule

    df = frame(spark, run, count)
    result = bulk_schedule(df, endpoint=endpoint, topic=TOPIC, delay_level=LEVEL, job_id=run)
    return result.accepted


def from_python(endpoint: str, run: str, count: int) -> int:
    messages = (BulkMessage(TOPIC, BODY % n, f"{run}-{n}", delay_level=LEVEL) for n in range(count))
    with BulkScheduler(endpoint, job_id=run) as sender:
        return sender.schedule_all(messages).accepted


def repeated(endpoint: str, run: str, count: int) -> int:
    """The same ids once more: how many were duplicates."""
    messages = (BulkMessage(TOPIC, b"x", f"{run}-{n}", delay_level=LEVEL) for n in range(count))
    with BulkScheduler(endpoint, job_id=run) as sender:
        return sender.schedule_all(messages).duplicates


def with_send(endpoint: str, count: int) -> int:
    """As a producer sends them, in calls of 500."""

    def calls() -> Iterator[list[Message]]:
        for start in range(0, count, 500):
            numbers = range(start, min(start + 500, count))
            yield [Message(TOPIC, BODY % n, delay_level=LEVEL) for n in numbers]

    with Producer(endpoint, "bench") as producer:
        return sum([len(producer.send_batch(call)) for call in calls()])


def measured(name: str, count: int, run: Callable[[], int]) -> None:
    began_s = elapsed_s()
    done = run()
    took_s = elapsed_s() - began_s
    assert done == count, f"{done} of {count}"
    print(f"{name:42} {done / took_s:9,.0f} messages/s  {took_s:6.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--without-spark", action="store_true")
    count = parser.parse_args().messages
    spark: Any = None
    if not parser.parse_args().without_spark:
        from rmqlite.spark.session import session

        spark = session("local[2]", conf={"spark.ui.showConsoleProgress": "false"})
        spark.sparkContext.setLogLevel("ERROR")
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerProcess(Path(folder), SETTINGS, is_forked=False) as broker,
    ):
        at = broker.endpoint
        if spark:
            from_spark(spark, at, "warm", min(count, 50_000))
            for run in ("spark-1", "spark-2"):
                measured(
                    f"Spark sink, run {run[-1]}", count, partial(from_spark, spark, at, run, count)
                )
        measured("BulkScheduler, one process", count, lambda: from_python(at, "python", count))
        few = max(1, count // 4)
        measured("Producer.send_batch, one thread", few, lambda: with_send(at, few))
        measured("the same ids again, found", count, lambda: repeated(at, "python", count))
        with AdminClient(at) as admin:
            for job in admin.jobs():
                print(
                    f"  job {job.job_id}: {job.accepted:,} accepted, {job.duplicates:,} duplicates"
                )
    if spark:
        spark.stop()


if __name__ == "__main__":
    main()
