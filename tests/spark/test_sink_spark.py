"""The sink in Spark: a job, a task that is tried again, a rerun, and a stream that goes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from rmqlite.client import AdminClient, BulkJob
from rmqlite.spark.bulk import bulk_schedule
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import OF_ANY_DISK, free_port

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for the module; every test has a job and ids of its own."""
    keys = OF_ANY_DISK | {"grpcPort": str(free_port())}
    with BrokerProcess(tmp_path_factory.mktemp("sink"), keys) as process:
        yield process


def job(broker: BrokerProcess, job_id: str) -> BulkJob:
    with AdminClient(broker.endpoint) as admin:
        return admin.job(job_id)


def pending(broker: BrokerProcess, topic: str) -> int:
    with AdminClient(broker.endpoint) as admin:
        counts = admin.schedule.count_pending()
    return sum([each.pending for each in counts if each.topic == topic])


def messages(spark: SparkSession, count: int, *, partitions: int = 2) -> DataFrame:
    """Without ids: the rows' places have to do."""
    body = F.col("id").cast("string").cast("binary").alias("body")
    return spark.range(0, count, 1, partitions).select("id", body)


def test_a_data_frame_is_scheduled_and_what_is_refused_comes_back(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """The sums are the broker's, the rows Spark's; a rerun of the job sends nothing twice."""
    df = messages(spark, 1_000).select(
        "body",
        F.when(F.col("id") % 100 == 7, "11m").otherwise("2h").alias("delay"),
        F.concat(F.lit("order-"), "id").alias("message_key"),
    )
    settings: dict[str, Any] = {
        "endpoint": broker.endpoint,
        "topic": "frame",
        "job_id": "frame",
        "on_invalid": "collect",
        "refused_path": str(tmp_path / "refused"),
    }
    result = bulk_schedule(df, **settings)
    assert (result.accepted, result.duplicates, result.refused) == (990, 0, 10)
    assert result.refused_rows is not None
    refused = {row.message_key: row for row in result.refused_rows.collect()}
    assert set(refused) == {f"order-{n}" for n in range(7, 1_000, 100)}
    assert "no level is exactly that long" in refused["order-107"].reason
    assert (refused["order-107"].body, refused["order-107"].code) == (b"107", "delay-unknown")
    result = bulk_schedule(df, **settings)
    assert (result.accepted, result.duplicates, result.refused) == (990, 990, 20)
    assert pending(broker, "frame") == 990


def test_a_task_that_fails_after_sending_sends_nothing_twice(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    """Its second try has the same ids, made of partition and row."""

    def once_broken(number: int) -> bytes:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context and context.attemptNumber() == 0 and number == 7_800:
            raise RuntimeError("the task fails, as tasks do")
        return str(number).encode()

    breaking = F.udf(once_broken, "binary", useArrow=False)
    df = spark.range(0, 8_000, 1, 1).select(breaking("id").alias("body"))
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "100")
    try:
        settings = {"topic": "tries", "delay_level": 18, "batch_size": 100, "in_flight": 1}
        result = bulk_schedule(df, endpoint=broker.endpoint, job_id="tries", **settings)  # type: ignore[arg-type]
    finally:
        spark.conf.set(name, before or "10000")
    assert result.accepted == 8_000
    assert result.duplicates > 0, "the first try has sent nothing: this shows nothing"
    assert pending(broker, "tries") == 8_000


def test_a_mistake_ends_in_one_line_of_ours(spark: SparkSession, broker: BrokerProcess) -> None:
    """At plan time, or with the first row that is refused."""
    df = messages(spark, 10, partitions=1).select("body")
    writer = df.write.format("rmqlite").mode("append").option("endpoint", broker.endpoint)
    for options, said in (
        ({"topic": "t", "delayLevl": "3"}, "option must be"),
        (
            {"topic": "t", "delayLevel": "19"},
            "delayLevel must be 0 for now, or 1 to 18",
        ),
        ({}, "topic must be a column topic, or the option topic"),
    ):
        with pytest.raises(Exception, match="must be") as raised:
            writer.options(**options).save()
        assert f"rmqlite.kernel.words.errors.InvalidValue: {said}" in last_line(raised.value)
        writer = df.write.format("rmqlite").mode("append").option("endpoint", broker.endpoint)
    with pytest.raises(Exception, match="must be") as raised:
        df.write.format("rmqlite").mode("overwrite").option("endpoint", broker.endpoint).save()
    assert 'mode("append")' in last_line(raised.value)


def last_line(error: BaseException) -> str:
    """Of what Spark shows; its own code of the error comes after it."""
    lines = [line for line in str(error).splitlines() if line and "SQLSTATE" not in line[:10]]
    return lines[-1]


def test_a_stream_that_goes_back_a_batch_sends_nothing_twice(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """A batch that was sent, but not committed by Spark, has the same ids again."""
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    messages(spark, 300).select("body").write.parquet(str(source))

    def run() -> None:
        stream = spark.readStream.schema("body binary").option("maxFilesPerTrigger", "1")
        query = (
            stream.parquet(str(source))
            .writeStream.format("rmqlite")
            .option("endpoint", broker.endpoint)
            .option("topic", "stream")
            .option("delayLevel", "18")
            .option("jobId", "stream")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(600)

    run()
    assert job(broker, "stream").accepted == 300
    commits = sorted((checkpoint / "commits").iterdir(), key=lambda path: path.name)
    newest = max([path for path in commits if path.name.isdigit()], key=lambda p: int(p.name))
    for path in commits:
        if newest.name in path.name:
            path.unlink()
    run()
    found = job(broker, "stream")
    assert found.accepted == 300
    assert found.duplicates > 0, "no batch was sent again: this shows nothing"
    assert pending(broker, "stream") == 300
