"""Closed log files as Parquet: appended exactly once, and one table with the live log."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from rmqlite.cli.main import app
from rmqlite.kernel.words.errors import InvalidValue, OffsetGone, StoreDamaged
from rmqlite.spark.archive import Archive, Live, LogWithArchive, archive_closed, read_archive
from rmqlite.spark.arrow.columns import COLUMNS
from rmqlite.spark.reading import looked, read_log
from tests.support.jobs import pipeline
from tests.support.stores import LOG_FILE_BYTES, StoreUnderTest, scheduled, tagged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALL = tuple(column.name for column in COLUMNS)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A closed store of a few log files."""
    made = StoreUnderTest(tmp_path / "store")
    waiting = made.append(*[scheduled("later" * 20, 1) for _ in range(8)])
    for number in range(24):
        made.append(tagged(f"order {number}" * 30, f"tag-{number % 3}", queue_id=number % 2))
        made.clock.forward(7)
    made.clock.forward(1_000)
    made.deliver(1, *waiting[:3])
    made.sync()
    made.close()
    return made.root


def log_files(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def archive(
    spark: SparkSession, place: Path, store: Path, until_ms: int | None = None
) -> list[tuple[int, int]]:
    """The ranges of all runs, this one included."""
    made = Archive(spark, str(place))
    archive_closed(made, Live(spark, path=str(store)), until_ms)
    return [(run.begin, run.end) for run in made.runs]


def both(spark: SparkSession, place: Path, store: Path) -> LogWithArchive:
    return LogWithArchive(Archive(spark, str(place)), Live(spark, path=str(store)))


def rows(table: DataFrame) -> list[Any]:
    return sorted(table.collect(), key=lambda row: row.physical_offset)


def test_archive_and_live_log_are_one_table(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    """Retention may delete what is archived, also while a job begins: it sees no difference.

    It looked for the last archived record in a log that no longer had it, and failed.
    """
    place, path = tmp_path / "archive", str(store)
    before = rows(read_log(spark, path=path, columns=ALL))
    closed = len(log_files(store)) - 1
    assert closed >= 2
    assert archive(spark, place, store) == [(0, closed * LOG_FILE_BYTES)]
    kept = rows(read_archive(spark, str(place)))
    assert kept == before[: len(kept)]
    assert {each.name for each in place.iterdir()} >= {"topic=orders", "_runs"}
    live = Live(spark, path=path)
    for gone in log_files(store)[:closed]:
        gone.unlink()
    log = LogWithArchive(Archive(spark, str(place)), live)
    assert (log.snapshot.begin_offset, log.snapshot.end_offset) == (0, before[-1].end_offset)
    assert rows(log.read()) == before
    some = log.read(["topic", "physical_offset", "tags"]).where("topic = 'orders'")
    wanted = [("orders", row.physical_offset, row.tags) for row in before if row.topic == "orders"]
    assert rows(some) == wanted
    audited = pipeline("reconcile", "--path", store, "--archive", place)
    assert (audited["totals"]["delivered"], audited["snapshot"]["begin_offset"]) == (3, 0)


def test_what_a_crash_left_is_not_seen_and_not_appended_again(
    spark: SparkSession, store: Path, tmp_path: Path, is_long: bool
) -> None:
    """Records count when the run is complete; files that vanished later are an error.

    With --long, the next run appends them again.
    """
    place = tmp_path / "archive"
    stamps = rows(read_log(spark, path=str(store), columns=["physical_offset", "store_timestamp"]))
    second = next(row for row in stamps if row.physical_offset >= LOG_FILE_BYTES)
    young_ms = int(second.store_timestamp.timestamp() * 1000)
    assert archive(spark, place, store, until_ms=young_ms) == []
    first = archive(spark, place, store, until_ms=young_ms + 1)
    assert first == [(0, LOG_FILE_BYTES)]
    end = (len(log_files(store)) - 1) * LOG_FILE_BYTES
    assert archive(spark, place, store) == [*first, (LOG_FILE_BYTES, end)]

    # As if the second run had been killed after it had written some of its files.
    shutil.rmtree(place / "_runs" / f"{LOG_FILE_BYTES:020d}.json")
    files = sorted(place.rglob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    files[-1].unlink()
    offsets = [row.physical_offset for row in stamps if row.physical_offset < end]
    seen = [row.physical_offset for row in rows(read_archive(spark, str(place)))]
    assert seen == [offset for offset in offsets if offset < LOG_FILE_BYTES]
    assert archive(spark, place, store) == [*first, (LOG_FILE_BYTES, end)]
    assert [row.physical_offset for row in rows(read_archive(spark, str(place)))] == offsets

    next(place.rglob("*.parquet")).unlink()
    with pytest.raises(StoreDamaged, match="records, as in _runs"):
        read_archive(spark, str(place))
    if is_long:
        archive(spark, place, store)
        assert read_archive(spark, str(place)).count() == len(offsets)


def test_a_topic_that_only_the_archive_has_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """The store forgets a deleted topic with its last record; a gap and no archive are refused."""
    made = StoreUnderTest(tmp_path / "store")
    made.send(*["old" * 100] * 9, topic="gone")
    for _ in range(12):
        made.clock.forward(5)
        made.send(*["new" * 100] * 5)
    made.close()
    place, path = tmp_path / "archive", str(made.root)
    first, second, *_ = log_files(made.root)
    young_ms = dict(looked(path=path).files)[int(second.name)]
    assert young_ms is not None
    assert archive(spark, place, made.root, until_ms=young_ms + 1) == [(0, LOG_FILE_BYTES)]
    first.unlink()
    shutil.rmtree(made.root / "consumequeue" / "gone")
    (made.root / "config" / "storeProgress.json").unlink()
    log = both(spark, place, made.root)
    assert log.read(["topic"]).where("topic = 'gone'").count() == 9
    with pytest.raises(InvalidValue, match="that rmqlite pipeline archive has written"):
        both(spark, tmp_path / "mistyped", made.root)
    second.unlink()
    with pytest.raises(OffsetGone, match=f"offset {LOG_FILE_BYTES} is gone"):
        both(spark, place, made.root)
    with pytest.raises(OffsetGone, match="behind its archive"):
        archive(spark, place, made.root)


def test_an_archive_of_something_else_is_refused(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    """Two stores in one archive would be a table that never was."""
    other = StoreUnderTest(tmp_path / "other")
    other.send(*["another body" * 20] * 40)
    other.close()
    place = tmp_path / "archive"
    archive(spark, place, other.root)
    with pytest.raises(InvalidValue, match="not of another store"):
        archive(spark, place, store)
    with pytest.raises(InvalidValue, match="an empty folder"):
        Archive(spark, str(store))
    with pytest.raises(InvalidValue, match="rmqlite pipeline archive"):
        read_archive(spark, str(tmp_path / "missing"))


@pytest.mark.long
def test_a_job_sees_no_difference_when_retention_took_what_is_archived(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    """Its promises are judged over archive and live log, as over the log that was."""
    del spark
    place = str(tmp_path / "archive")

    def run(*words: str) -> dict[str, Any]:
        result = CliRunner().invoke(app, ["pipeline", *words, "--path", str(store), "--json"])
        assert result.exit_code == 0, result.stderr
        tree: dict[str, Any] = json.loads(result.stdout)
        return tree

    before = run("reconcile")
    found = run("archive", "--archive", place)
    files = log_files(store)
    assert [each["begin"] for each in found["runs"]] == [0]
    assert found["deletable_before"] == int(files[-1].name)
    for gone in files[:-1]:
        gone.unlink()
    after = run("reconcile", "--archive", place)
    assert before["totals"]["delivered"] == 3
    assert (after["totals"], after["levels"]) == (before["totals"], before["levels"])
    assert after["snapshot"]["begin_offset"] == 0


def test_a_truncated_live_log_is_told_beside_its_archive(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    """The archive has all of its own records, but the promises are those of the live log."""
    place = str(tmp_path / "archive")
    archive(spark, tmp_path / "archive", store)
    last = log_files(store)[-1]
    words = ["pipeline", "reconcile", "--path", str(store), "--archive", place]
    for size in (100, 0):
        with last.open("r+b") as log:
            log.seek(size)
            log.write(bytes(last.stat().st_size - size))
        for each in (words, ["pipeline", "archive", *words[2:]]):
            result = CliRunner().invoke(app, each)
            assert result.exit_code == 1, result.output
            assert f"{last} is damaged at byte" in result.stderr
