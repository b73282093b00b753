"""Closed log files as Parquet: whole or not there, and one table with the live log."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from rmqlite.cli.main import app
from rmqlite.errors import InvalidValue, OffsetGone, StoreDamaged
from rmqlite.spark.archived_log import ALL, LogWithArchive, joined, read_archive, read_with_archive
from rmqlite.spark.jobs.archive import ArchiveJob
from rmqlite.spark.manifest import First, Segment
from rmqlite.spark.reading import read_log
from tests.support.stores import LOG_FILE_BYTES, StoreUnderTest, scheduled, tagged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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


def archive(spark: SparkSession, place: Path, store: Path, **how: Any) -> list[bool]:
    """Of each closed segment whether it was archived now."""
    return [each.is_new for each in ArchiveJob(spark, str(place), path=str(store)).run(**how)]


def rows(table: DataFrame) -> list[Any]:
    return table.orderBy("physical_offset").collect()


def segment(number: int) -> Segment:
    begin = number * 100
    first = First(begin, "orders", 0, 0, 1, 2)
    return Segment(begin, begin + 100, 1, 91, 1, 1, first, {}, "a store", 1)


def test_archive_and_live_log_are_one_table(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    """Retention may delete what is archived: no job sees a difference."""
    place, path = tmp_path / "archive", str(store)
    before = rows(read_log(spark, path=path, columns=ALL))
    closed = len(log_files(store)) - 1
    assert closed >= 2
    assert archive(spark, place, store) == [True] * closed
    kept = rows(read_archive(spark, str(place)))
    assert kept == before[: len(kept)]
    assert rows(read_with_archive(spark, str(place), path=path)) == before

    for gone in log_files(store)[: closed - 1]:
        gone.unlink()
    both = LogWithArchive(spark, str(place), path=path)
    assert (both.snapshot.begin_offset, both.snapshot.end_offset) == (0, before[-1].end_offset)
    assert rows(both.read()) == before
    some = both.read(
        ["physical_offset", "tags"],
        topicPattern="ord*s",
        startingTimestamp=int(before[3].store_timestamp.timestamp() * 1000),
        endingPhysicalOffset=before[-2].physical_offset,
    )
    wanted = [row for row in before[3:-2] if row.topic == "orders"]
    assert rows(some) == [(row.physical_offset, row.tags) for row in wanted]
    with pytest.raises(InvalidValue, match="startingOffsets"):
        both.read(startingOffsets="earliest")


def test_only_what_is_missing_is_archived(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    """A crash leaves a folder without a manifest, which counts for nothing."""
    place = tmp_path / "archive"
    job = ArchiveJob(spark, str(place), path=str(store))
    first = next(job.run())
    assert first.is_new
    assert [each.begin for each in job.deletable()] == [0]
    half = place / f"segment={LOG_FILE_BYTES:020d}"
    half.mkdir()
    folder = place / first.segment.folder
    (half / "part-0.parquet").write_bytes(next(folder.glob("*.parquet")).read_bytes())
    closed = len(log_files(store)) - 1
    assert archive(spark, place, store) == [False] + [True] * (closed - 1)
    assert archive(spark, place, store) == [False] * closed
    offsets = [row.physical_offset for row in rows(read_archive(spark, str(place)))]
    assert offsets == sorted(set(offsets))

    next(folder.glob("*.parquet")).unlink()
    with pytest.raises(StoreDamaged, match="as in its manifest"):
        read_archive(spark, str(place))
    assert archive(spark, place, store) == [True] + [False] * (closed - 1)
    assert len(rows(read_archive(spark, str(place)))) == len(offsets)


def test_a_time_stops_the_archive_before_it(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    """Nothing of a segment may be that young: what came behind it tells."""
    place = tmp_path / "archive"
    stamps = read_log(spark, path=str(store), columns=["physical_offset", "store_timestamp"])
    second = next(row for row in rows(stamps) if row.physical_offset >= LOG_FILE_BYTES)
    young_ms = int(second.store_timestamp.timestamp() * 1000)
    assert archive(spark, place, store, until_ms=young_ms) == []
    assert archive(spark, place, store, until_ms=young_ms + 1) == [True]


def test_a_topic_that_only_the_archive_knows_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """The store forgets a deleted topic with its last record; another unknown topic is refused."""
    made = StoreUnderTest(tmp_path / "store")
    made.send(*["old" * 100] * 9, topic="gone")
    made.send(*["new" * 100] * 40)
    made.close()
    place, path = str(tmp_path / "archive"), str(made.root)
    archive(spark, tmp_path / "archive", made.root)
    log_files(made.root)[0].unlink()
    shutil.rmtree(made.root / "consumequeue" / "gone")
    (made.root / "config" / "storeProgress.json").unlink()
    both = LogWithArchive(spark, place, path=path)
    assert both.read(["topic"], topic="gone").count() == 9
    assert both.read(["topic"], topics="gone,orders").count() == 49
    with pytest.raises(InvalidValue, match="that rmqlite pipeline archive has written"):
        LogWithArchive(spark, str(tmp_path / "mistyped"), path=path)


def test_an_archive_of_something_else_is_refused(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    """Two stores in one archive would be a table that never was."""
    other = StoreUnderTest(tmp_path / "other")
    other.send(*["another body" * 20] * 40)
    other.close()
    place = tmp_path / "archive"
    next(ArchiveJob(spark, str(place), path=str(other.root)).run())
    with pytest.raises(InvalidValue, match="not of another store"):
        ArchiveJob(spark, str(place), path=str(store))
    with pytest.raises(InvalidValue, match="an empty folder"):
        ArchiveJob(spark, str(store), path=str(store))
    with pytest.raises(InvalidValue, match="rmqlite pipeline archive"):
        read_archive(spark, str(tmp_path / "missing"))


def test_the_live_log_goes_on_where_the_archive_ends() -> None:
    """Without overlap, however much of it is archived."""
    segments = [segment(0), segment(1), segment(3)]
    assert joined([], 200, "x", True) == ([], 200)
    assert joined(segments[:2], 0, "x", True) == (segments[:2], 200)
    assert joined(segments, 200, "x", True) == (segments[:2], 200)
    assert joined(segments, 100, "x", True) == (segments[:2], 200)


def test_a_gap_is_named_unless_it_may_be() -> None:
    """A table with a hole looks like any other."""
    segments = [segment(0), segment(1), segment(3)]
    with pytest.raises(OffsetGone, match=r"offset 200 is gone, the first one kept is 300"):
        joined(segments, 400, "x", True)
    with pytest.raises(OffsetGone, match=r"offset 200 is gone, the first one kept is 250"):
        joined(segments[:2], 250, "x", True)
    assert joined(segments, 400, "x", False) == (segments, 400)
    assert joined(segments[:2], 250, "x", False) == (segments[:2], 250)


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
    told = run("archive", "--archive", place)
    files = log_files(store)
    assert [each["begin"] for each in told["segments"]] == [int(each.name) for each in files[:-1]]
    assert told["deletable_before"] == int(files[-1].name)
    for gone in files[:-1]:
        gone.unlink()
    after = run("reconcile", "--archive", place)
    assert before["totals"]["delivered"] == 3
    assert (after["totals"], after["levels"]) == (before["totals"], before["levels"])
    assert after["snapshot"]["begin_offset"] == 0
