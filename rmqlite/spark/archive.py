"""An archive: the closed part of a log as Parquet files by topic and day (UTC).

A run appends the closed log files that are not archived yet, reads them again, and only then
writes a small file that says so.  A reader sees only records before the end in the last of these
files; so what a crash left behind does not count, and the next run does not append it again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from rmqlite.kernel.words.errors import InvalidValue, OffsetGone, StoreDamaged, StoreUnavailable
from rmqlite.kernel.words.message import REDRIVEN_BY, REDRIVEN_FROM
from rmqlite.spark import hadoop
from rmqlite.spark.arrow.columns import COLUMNS, columns_of
from rmqlite.spark.hadoop import HadoopFolder
from rmqlite.spark.reading import looked, read_log, snapshot_of
from rmqlite.spark.source import spark_schema
from rmqlite.spark.tables import utc_day

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from rmqlite.spark.arrow.planning import Look

_ALL: Final = tuple(column.name for column in COLUMNS)
_IDENTITY: Final = (
    *("physical_offset", "topic", "queue_id", "queue_offset", "store_timestamp", "body_crc"),
)
"""No two records of two stores have the same."""
_RUNS: Final = "_runs"
_NAMES: Final = ("archive", "topic", "an archive")
_RULE: Final = "a folder that rmqlite pipeline archive has written"


@dataclass(frozen=True, slots=True)
class ArchiveRun:
    """What a run has archived: begin <= physical offset < end; last: the newest record."""

    begin: int
    end: int
    records: int
    record_bytes: int
    last: tuple[int | str, ...]
    source: str


class Archive:
    """A folder on any file system that Hadoop supports.  Only one run may write to it at once."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        """Raises InvalidValue for a folder with other files; StoreDamaged, StoreUnavailable."""
        self._spark, self.place = spark, place
        self._folder = HadoopFolder(spark, place)
        self._folder.check_names(*_NAMES)
        self.runs = [self._run(text) for text in self._folder.texts(f"{_RUNS}/*.json")]

    def records(self) -> DataFrame:
        """All columns of its records.  Raises InvalidValue, StoreDamaged unless all are there."""
        if not self.runs:
            raise InvalidValue("archive", self.place, _RULE)
        found = self._between(self.runs[0].begin, self.runs[-1].end)
        wanted, there = sum(run.records for run in self.runs), found.count()
        if there != wanted:
            raise StoreDamaged(self.place, 0, f"{wanted} records, as in {_RUNS}", str(there))
        return found

    def add(self, live: Live, begin: int, end: int) -> None:
        """Archive this part of the log; its records count when all are there, each once."""
        run = self._append(live, begin, end)
        text = json.dumps(asdict(run), indent=1)
        self._folder.write_text(f"{_RUNS}/{begin:020d}.json", text)
        self.runs.append(run)

    def repair(self, live: Live) -> None:
        """If Parquet files are gone, append again what the log still has.  Raises StoreDamaged."""
        try:
            self.records()
        except StoreDamaged:
            begin = max(self.runs[0].begin, live.place.begin)
            if begin < self.runs[-1].end:
                self._append(live, begin, self.runs[-1].end)
            self.records()

    def check_same_log(self, live: Live) -> None:
        """Raises OffsetGone for a gap, InvalidValue if the log's record at `last` is another."""
        end, place = self.runs[-1].end, live.place
        if place.begin > end:
            raise OffsetGone(f"the log of {place.where} behind its archive", end, place.begin)
        for run in reversed(self.runs):
            offset = int(run.last[0])
            if offset >= place.begin:
                there = live.last_at(offset) if run.end <= place.end else ()
                if not there and live.begins_now() > offset:
                    # Retention has deleted it since the look, as it may.
                    return
                if there != run.last:
                    rule = f"the archive of {place.where}, not of another store ({run.source})"
                    raise InvalidValue("archive", self.place, rule)
                return

    def _append(self, live: Live, begin: int, end: int) -> ArchiveRun:
        log = fresh = live.read(_ALL, begin, end)
        if self._folder.files("topic=*"):
            there = self._between(begin, end).select(*_IDENTITY)
            fresh = log.join(there, list(_IDENTITY), "left_anti")
        # No file is longer than a log file, and no task has more to sort.
        number = F.floor(F.col("physical_offset") / live.place.log_file_bytes)
        placed = fresh.withColumn("day", utc_day("store_timestamp"))
        placed = placed.repartition("topic", "day", number)
        files = placed.sortWithinPartitions("topic", "day", "physical_offset").write
        files = files.mode("append").partitionBy("topic", "day").option("compression", "zstd")
        files.parquet(self.place)
        there = self._between(begin, end)
        wrote, found = _figures(log), _figures(there)
        records, places, record_bytes, last = found
        if wrote != found or records != places:
            raise StoreUnavailable("verify", self.place, f"wrote {wrote}, read {found}")
        if not records:
            raise StoreUnavailable("archive", self.place, f"no record from {begin} to {end}")
        return ArchiveRun(begin, end, records, record_bytes, tuple(last), live.place.where)

    def _between(self, begin: int, end: int) -> DataFrame:
        """The records at these physical offsets; a column that an older archive lacks is null.

        Those of redriven messages are read from the properties then.
        """
        schema = T.StructType([*spark_schema(COLUMNS).fields, T.StructField("day", T.DateType())])
        found = self._spark.read.schema(schema).parquet(self.place).select(*_ALL)
        for name in (REDRIVEN_FROM, REDRIVEN_BY):
            column = F.coalesce(name.lower(), F.element_at("properties", name))
            found = found.withColumn(name.lower(), column)
        return found.where(f"physical_offset >= {begin} AND physical_offset < {end}")

    def _run(self, text: str) -> ArchiveRun:
        try:
            tree: dict[str, Any] = json.loads(text)
            return ArchiveRun(**tree | {"last": tuple(tree["last"])})
        except (KeyError, TypeError, ValueError) as error:
            place = self._folder.child(_RUNS)
            raise StoreDamaged(place, 0, "what a run has archived", repr(error)) from error


class Live:
    """The log of a store or a broker when this object is made, or at an earlier look."""

    def __init__(
        self, spark: SparkSession, *, path: str = "", endpoint: str = "", found: Look | None = None
    ) -> None:
        self._spark, self._source = spark, {"path": path, "endpoint": endpoint}
        self.look = found or looked(path=path, endpoint=endpoint)
        self.place = self.look.place

    def last_at(self, offset: int) -> tuple[int | str, ...]:
        """The identity of the record at a physical offset; empty if there is none, or it is gone.

        Raises StoreDamaged, Unavailable.
        """
        return _last(self.read(_IDENTITY, offset, offset + 1, allow_loss=True))

    def begins_now(self) -> int:
        """Where the log begins: retention may have deleted more since the look."""
        return looked(**self._source).place.begin

    def read(
        self, columns: Sequence[str], begin: int, end: int, *, allow_loss: bool = False
    ) -> DataFrame:
        """The records at begin <= physical offset < end."""
        bounds = {"startingPhysicalOffset": begin, "endingPhysicalOffset": end}
        every: dict[str, Any] = {**bounds, "verifyCrc": True, **self._source}
        if allow_loss:
            every["failOnDataLoss"] = False
        return read_log(self._spark, columns=tuple(columns), **every)

    def closed_end(self, until_ms: int | None = None) -> int:
        """The end of the closed log files; until_ms: of those with all records stored before."""
        room, files, found = self.place.log_file_bytes, self.look.files, self.place.begin
        for start, _ in files:
            end = start - start % room + room
            later = [at for other, at in files if other >= end and at is not None]
            following_ms = later[0] if later else self.look.newest_timestamp_ms
            if end > self.place.end or (until_ms is not None and following_ms >= until_ms):
                break
            found = end
        return found


class LogWithArchive:
    """An archive and the live log behind it, as one log without gap or overlap."""

    def __init__(self, archive: Archive, live: Live) -> None:
        """Raises OffsetGone for a gap, InvalidValue for the archive of another store or for none
        if the log does not begin at 0; StoreDamaged, StoreUnavailable, Unavailable.
        """
        self._live, self._archived = live, None
        begin = self._live_offset = live.place.begin
        if archive.runs or begin > 0:
            self._archived = archive.records()
            archive.check_same_log(live)
            begin, self._live_offset = archive.runs[0].begin, archive.runs[-1].end
        where, found = f"{archive.place} and {live.place.where}", snapshot_of(live.look)
        self.snapshot = replace(found, where=where, begin_offset=begin)

    def read(self, columns: Sequence[str] = ()) -> DataFrame:
        """These columns of all records; all by default.  Raises InvalidValue.

        A where() on topic spares the archived files of the other topics.
        """
        names = tuple(column.name for column in columns_of(tuple(columns) or _ALL))
        live = self._live.read(names, self._live_offset, self.snapshot.end_offset)
        return live if self._archived is None else self._archived.select(*names).unionAll(live)


def archive_closed(archive: Archive, live: Live, until_ms: int | None = None) -> None:
    """Archive the closed log files that are not archived; see archive.runs.

    until_ms: only files with all records stored before.  Raises InvalidValue for the archive of
    another store; OffsetGone, StoreDamaged, StoreUnavailable, Unavailable.
    """
    begin, end = live.place.begin, live.closed_end(until_ms)
    if archive.runs:
        archive.check_same_log(live)
        archive.repair(live)
        begin = archive.runs[-1].end
    if begin < end:
        archive.add(live, begin, end)


def read_archive(spark: SparkSession, archive: str, columns: Sequence[str] = ()) -> DataFrame:
    """The records of an archive, all columns by default.  Raises InvalidValue, StoreDamaged."""
    names = [column.name for column in columns_of(tuple(columns) or _ALL)]
    return Archive(spark, archive).records().select(*names)


def check_names(names: Sequence[str], place: str) -> None:
    """Raises InvalidValue for names that are not those of an archive."""
    hadoop.check_names(names, place, *_NAMES)


def check_archive(archive: str, names: Sequence[str] | None, found: Look) -> None:
    """Raises InvalidValue for a place without an archive, unless the log has all its records.

    names: those in the place; None if they are not known.
    """
    check_names(names or (), archive)
    if names is not None and not names and found.place.begin > 0:
        rule = f"{_RULE}: the log begins at {found.place.begin}"
        raise InvalidValue("archive", archive, rule)


def _figures(log: DataFrame) -> tuple[Any, ...]:
    """Records, distinct places, bytes, and the identity of the newest record: in one pass."""
    size = F.sum(F.col("store_size").cast("bigint"))
    places = F.count_distinct("physical_offset")
    return tuple(log.agg(F.count("*"), places, size, _newest()).collect()[0])


def _last(log: DataFrame) -> tuple[int | str, ...]:
    """The identity of the newest record; empty if there is none."""
    return tuple(log.agg(_newest()).collect()[0][0] or ())


def _newest() -> Column:
    """The identity of the newest record, with its time as milliseconds."""
    moment = F.unix_millis("store_timestamp").alias("store_timestamp")
    names = [moment if name == "store_timestamp" else F.col(name) for name in _IDENTITY]
    return F.max(F.struct(*names))
