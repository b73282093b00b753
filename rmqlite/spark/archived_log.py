"""An archive of log files, and the live log behind it, as one table.

The table continues in the live log exactly where the archive ends, so every record is there
once.  A gap is an error that names it, unless failOnDataLoss is false.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import translate
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from rmqlite.arrow.columns import COLUMNS, columns_of
from rmqlite.arrow.options import ReadOptions
from rmqlite.errors import InvalidValue, OffsetGone
from rmqlite.spark.manifest import Archive, First, Segment, check_names
from rmqlite.spark.options import parse_options
from rmqlite.spark.reading import SourceSnapshot, load_texts, looked, read_log
from rmqlite.spark.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from rmqlite.arrow.planning import Look

ALL: Final = tuple(column.name for column in COLUMNS)
FIRST: Final = (
    *("physical_offset", "topic", "queue_id", "queue_offset", "store_timestamp", "body_crc"),
)
"""The columns of first_record(); the record with the lowest physical offset is the first."""
_ARCHIVE_RULE: Final = "a folder that rmqlite pipeline archive has written"


class Live:
    """The state of a store or a broker when this object is made, or at an earlier look."""

    def __init__(
        self,
        spark: SparkSession,
        *,
        path: str = "",
        endpoint: str = "",
        found: Look | None = None,
    ) -> None:
        """Raises the errors of look()."""
        self.spark = spark
        self._path, self._endpoint = path, endpoint
        self.look = found or looked(path=path, endpoint=endpoint)
        self.place = self.look.place

    def read(self, columns: Sequence[str], begin: int, end: int, **options: object) -> DataFrame:
        """The records at begin <= physical offset < end."""
        bounds = {"startingPhysicalOffset": begin, "endingPhysicalOffset": end}
        return read_log(
            self.spark,
            path=self._path,
            endpoint=self._endpoint,
            columns=tuple(columns),
            **(dict(options) | bounds),
        )


class LogWithArchive:
    """An archive and the live log behind it, as one log without gap or overlap."""

    def __init__(
        self,
        spark: SparkSession,
        archive: str,
        *,
        path: str = "",
        endpoint: str = "",
        fail_on_data_loss: bool = True,
        found: Look | None = None,
    ) -> None:
        """found: an earlier look at the log.

        Raises OffsetGone for a gap, InvalidValue for the archive of another store; also
        StoreDamaged, StoreUnavailable, Unavailable.
        """
        self._live = Live(spark, path=path, endpoint=endpoint, found=found)
        self._archive = Archive(spark, archive)
        segments = self._archive.segments()
        check_archive(archive, [each.folder for each in segments], self._live.look)
        check_same_log(self._live, segments, archive)
        place = self._live.place
        self._segments, behind = joined(segments, place.begin, place.where, fail_on_data_loss)
        for each in self._segments:
            self._archive.check_whole(each)
        self._live_offset = behind
        begin = self._segments[0].begin if self._segments else behind
        self.snapshot = SourceSnapshot(
            self._where(), begin, place.end, self._live.look.newest_timestamp_ms
        )

    def read(self, columns: Sequence[str] = (), **options: object) -> DataFrame:
        """These columns of all records; all columns by default.  Raises InvalidValue.

        options: those of the format, except startingOffsets and endingOffsets.
        """
        names = tuple(column.name for column in columns_of(tuple(columns) or ALL))
        wanted = _parsed(options)
        low = max(wanted.starting_physical_offset or 0, self._live_offset)
        high = self.snapshot.end_offset
        if wanted.ending_physical_offset is not None:
            high = min(high, wanted.ending_physical_offset)
        rest = _without(options, "startingPhysicalOffset", "endingPhysicalOffset")
        # The archive may have records of a topic that the log does not know any more.
        known = [each for each in wanted.topics if self._live.look.has_topic(each)]
        if known:
            rest = _without(rest, "topic", "topics") | {"topics": known}
        elif wanted.topics:
            low = high
        live = self._live.read(names, min(low, high), high, **rest)
        segments = [each for each in self._segments if _may_hold(each, wanted)]
        if not segments:
            return live
        kept = parquet_of(self._live.spark, *map(self._place_of, segments))
        for condition in _conditions(wanted):
            kept = kept.where(condition)
        return kept.select(*names).unionAll(live) if low < high else kept.select(*names)

    def _place_of(self, segment: Segment) -> str:
        return self._archive.folder.child(segment.folder)

    def _where(self) -> str:
        count = "1 segment" if len(self._segments) == 1 else f"{len(self._segments)} segments"
        return f"{self._archive.place} ({count}) and {self._live.place.where}"


def read_archive(spark: SparkSession, archive: str, columns: Sequence[str] = ()) -> DataFrame:
    """The records of an archive, all columns by default.  Raises InvalidValue, StoreDamaged."""
    names = tuple(column.name for column in columns_of(tuple(columns) or ALL))
    found = Archive(spark, archive)
    segments = found.segments()
    if not segments:
        raise InvalidValue("archive", archive, _ARCHIVE_RULE)
    for each in segments:
        found.check_whole(each)
    places = [found.folder.child(each.folder) for each in segments]
    return parquet_of(spark, *places).select(*names)


def read_with_archive(
    spark: SparkSession,
    archive: str,
    *,
    path: str = "",
    endpoint: str = "",
    columns: Sequence[str] = (),
    **options: object,
) -> DataFrame:
    """An archive and a live log as one table; see LogWithArchive."""
    wanted = _parsed(options)
    both = LogWithArchive(
        spark,
        archive,
        path=path,
        endpoint=endpoint,
        fail_on_data_loss=wanted.fail_on_data_loss,
    )
    return both.read(columns, **options)


def parquet_of(spark: SparkSession, *folders: str) -> DataFrame:
    """All columns of archived segments; a column that an older archive lacks is null."""
    return spark.read.schema(spark_schema(COLUMNS)).parquet(*folders)


def first_of(log: DataFrame) -> First | None:
    """The first record of a table with the columns FIRST; None if it is empty."""
    row = log.agg(first_record().alias("first")).collect()[0].first
    return None if row is None else First(**row.asDict())


def first_record() -> Column:
    """The first record as a column of an aggregation: a struct."""
    moment = F.unix_millis("store_timestamp").alias("store_timestamp_ms")
    names = [F.col(name) if name != "store_timestamp" else moment for name in FIRST]
    return F.min(F.struct(*names))


def check_same_log(live: Live, segments: Sequence[Segment], archive: str) -> None:
    """Raises InvalidValue if an archive belongs to another store.

    It compares the newest segment that both have; without one it cannot know.
    """
    room = live.place.log_file_bytes
    for each in reversed(segments):
        if not live.place.begin <= each.begin < live.place.end:
            continue
        is_file = each.end == each.begin - each.begin % room + room
        at = each.first.physical_offset
        if not is_file or first_of(live.read(FIRST, at, at + 1)) != each.first:
            rule = f"the archive of {live.place.where}, not of another store ({each.source})"
            raise InvalidValue("archive", archive, rule)
        return


def check_archive(archive: str, names: Sequence[str] | None, found: Look) -> None:
    """Raises InvalidValue for a place without an archive, unless the log has all its records.

    names: those in the place; None if they are not known.
    """
    check_names(names or (), archive)
    if names is not None and not names and found.place.begin > 0:
        rule = f"{_ARCHIVE_RULE}: the log begins at {found.place.begin}"
        raise InvalidValue("archive", archive, rule)


def joined(
    segments: Sequence[Segment], live_begin: int, where: str, fail_on_data_loss: bool
) -> tuple[list[Segment], int]:
    """The segments to read, and the physical offset from which to read the live log.

    Raises OffsetGone.
    """
    taken: list[Segment] = []
    behind = segments[0].begin if segments else live_begin
    for each in segments:
        if each.begin > behind and live_begin <= behind:
            break
        if each.begin > behind and fail_on_data_loss:
            raise OffsetGone(f"the log of {where} and its archive", behind, each.begin)
        taken.append(each)
        behind = each.end
    if live_begin > behind and fail_on_data_loss:
        raise OffsetGone(f"the log of {where} behind its archive", behind, live_begin)
    return taken, max(behind, live_begin) if taken else live_begin


def _parsed(options: Mapping[str, object]) -> ReadOptions:
    """The options for an archive.  Raises InvalidValue."""
    # The check needs some place; read_with_archive() has the real one.
    texts = load_texts(path=".", endpoint="", columns=(), options=options)
    wanted = parse_options(texts)
    for name, given in (
        ("startingOffsets", wanted.starting_offsets),
        ("endingOffsets", wanted.ending_offsets),
    ):
        if given is not None:
            rule = "left out with an archive: give startingTimestamp, or physical offsets"
            raise InvalidValue(name, given, rule)
    return wanted


def _without(options: Mapping[str, object], *names: str) -> dict[str, object]:
    left_out = [name.lower() for name in names]
    return {name: value for name, value in options.items() if name.lower() not in left_out}


def _may_hold(segment: Segment, wanted: ReadOptions) -> bool:
    """Can a segment have a wanted record?"""
    since, until = wanted.starting_timestamp_ms, wanted.ending_timestamp_ms
    low, high = wanted.starting_physical_offset, wanted.ending_physical_offset
    return not (
        (since is not None and segment.last_timestamp_ms < since)
        or (until is not None and segment.first_timestamp_ms >= until)
        or (low is not None and segment.end <= low)
        or (high is not None and segment.begin >= high)
    )


def _conditions(wanted: ReadOptions) -> list[Column]:
    """The options as conditions on archived records."""
    topic, stored = F.col("topic"), F.unix_millis("store_timestamp")
    position = F.col("physical_offset")
    return [
        condition
        for given, condition in (
            (wanted.topics, topic.isin(*wanted.topics)),
            (wanted.topic_pattern, topic.rlike(_pattern(wanted.topic_pattern))),
            (wanted.queue_ids, F.col("queue_id").isin(*wanted.queue_ids)),
            (wanted.starting_timestamp_ms, stored >= (wanted.starting_timestamp_ms or 0)),
            (wanted.ending_timestamp_ms, stored < (wanted.ending_timestamp_ms or 0)),
            (wanted.starting_physical_offset, position >= (wanted.starting_physical_offset or 0)),
            (wanted.ending_physical_offset, position < (wanted.ending_physical_offset or 0)),
        )
        if given not in (None, (), "")
    ]


def _pattern(text: str) -> str:
    """A topicPattern as a regular expression of Java that matches whole names."""
    return "^" + translate(text).removesuffix(r"\Z") + r"\z"
