"""Dead letters as a table, and exports that grow and never repeat themselves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.spark.jobs.dead_letters import LetterFilter, dead_letters, export, only, read_export
from tests.spark.letters import DAY_MS, NOON, letter, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def offsets(dead: DataFrame) -> list[int]:
    return sorted(row.queue_offset for row in dead.select("queue_offset").collect())


def test_a_dead_letter_tells_group_day_and_where_it_was_sent(spark: SparkSession) -> None:
    """RocketMQ's own say it in RETRY_TOPIC, the schedule's in REAL_TOPIC; a letter is no retry."""
    rows = [
        letter(0),
        letter(1, "billing|eu", properties={"RETRY_TOPIC": "refunds"}),
        letter(2, "SCHEDULE_CONSUMER", properties={"REAL_TOPIC": "gone"}),
        letter(3, properties={"REAL_TOPIC": "%RETRY%billing"}, store_timestamp=NOON + DAY_MS // 2),
        letter(4) | {"topic": "%RETRY%billing"},
    ]
    found = dead_letters(table(spark, *rows)).select("group", "day", "origin_topic", "queue_offset")
    told = [(r.group, str(r.day), r.origin_topic) for r in found.orderBy("queue_offset").collect()]
    assert told == [
        ("billing", "2025-11-21", "orders"),
        ("billing|eu", "2025-11-21", "refunds"),
        ("SCHEDULE_CONSUMER", "2025-11-21", "gone"),
        ("billing", "2025-11-22", None),
    ]


def test_dead_letters_are_picked_by_group_topic_reason_and_time(spark: SparkSession) -> None:
    """The same words for a log and for an export; until is the first moment that is not meant."""
    rows = [
        letter(0),
        letter(1, "mail"),
        letter(2, failure_reason="Timeout 100% of 3 s", properties={"RETRY_TOPIC": "refunds"}),
        letter(3, failure_reason=None),
    ]
    dead = dead_letters(table(spark, *rows)).persist()
    assert offsets(only(dead, LetterFilter(groups=("mail", "nobody")))) == [1]
    assert offsets(only(dead, LetterFilter(topic="refunds"))) == [2]
    assert offsets(only(dead, LetterFilter(reason="TIMEOUT 100%"))) == [2]
    assert offsets(only(dead, LetterFilter(reason="timeout #% of"))) == [2]
    assert offsets(only(dead, LetterFilter(failure_kind="Timeout #% of # s"))) == [2]
    assert offsets(only(dead, LetterFilter(failure_kind="(no reason)"))) == [3]
    assert offsets(only(dead, LetterFilter(since_ms=NOON + 1, until_ms=NOON + 3))) == [1, 2]
    dead.unpersist()


def test_an_export_adds_only_what_it_does_not_have(spark: SparkSession, tmp_path: Path) -> None:
    """Retention may have taken half of a day since: what was exported must stay."""
    place = str(tmp_path / "dlq")
    rows = [letter(0), letter(1, "123"), letter(2, store_timestamp=NOON + DAY_MS)]
    first = export(dead_letters(table(spark, *rows)), place)
    later = [*rows[1:], letter(3, failure_reason="timeout"), letter(4, failure_reason="timeout")]
    second = export(dead_letters(table(spark, *later)), place)
    assert (first.added, first.known, second.added, second.known) == (3, 0, 2, 2)
    names = ("group", "dead_letters", "added", "top_kind")
    assert [tuple(row[name] for name in names) for row in second.counts] == [
        ("123", 1, 0, "card refused"),
        ("billing", 2, 2, "timeout"),
        ("billing", 1, 0, "card refused"),
    ]
    kept = read_export(spark, place)
    assert offsets(kept) == [0, 1, 2, 3, 4]
    assert offsets(only(kept, LetterFilter(groups=("123",)))) == [1]
    log = dead_letters(table(spark, *rows, *later[2:]))
    assert kept.dtypes == log.dtypes
    ordered = [each.orderBy("queue_offset").collect() for each in (kept, log)]
    assert ordered[0] == ordered[1]


def test_an_export_that_was_cut_off_is_finished_by_the_next(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A crash may leave some of the folders: neither twice nor never is what they may come to."""
    place = tmp_path / "dlq"
    rows = [letter(0), letter(1, store_timestamp=NOON + DAY_MS), letter(2, "mail")]
    export(dead_letters(table(spark, *rows)), str(place))
    gone = next((place / "group=billing").glob("day=2025-11-22/*.parquet"))
    gone.unlink()
    (place / "_SUCCESS").unlink()
    assert export(dead_letters(table(spark, *rows)), str(place)).added == 1
    assert offsets(read_export(spark, str(place))) == [0, 1, 2]


def test_an_export_never_goes_into_a_folder_of_something_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A store's folder, for one: every file in it is taken for one of the store's."""
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(b"x")
    with pytest.raises(InvalidValue, match="commitlog"):
        export(dead_letters(table(spark, letter(0))), str(tmp_path))
    with pytest.raises(InvalidValue, match="dlq-export"):
        read_export(spark, str(tmp_path / "missing"))
