"""Archives closed log files as Parquet, so that retention may delete them.

The job writes a segment, reads and counts it again, and only then writes its manifest.  A second
run archives only the segments that are missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.observation import Observation

from rmqlite.clock import wall_ms
from rmqlite.errors import StoreUnavailable
from rmqlite.spark.archived_log import (
    ALL,
    FIRST,
    Live,
    check_same_log,
    first_of,
    first_record,
    parquet_of,
)
from rmqlite.spark.manifest import Archive, First, Segment, segment_folder

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from rmqlite.arrow.planning import Look

CODEC: Final = "zstd"


@dataclass(frozen=True, slots=True)
class Archived:
    """A closed segment of the log; is_new: this run has archived it."""

    segment: Segment
    is_new: bool


class ArchiveJob:
    """Archives a store's or a broker's closed log files.  Only one job may write to one place."""

    def __init__(
        self,
        spark: SparkSession,
        place: str,
        *,
        path: str = "",
        endpoint: str = "",
        found: Look | None = None,
    ) -> None:
        """place: a folder on any file system that Hadoop supports.  found: an earlier look.

        Raises InvalidValue for a folder with other files or with the archive of another store;
        StoreDamaged, StoreUnavailable, Unavailable.
        """
        self._live = Live(spark, path=path, endpoint=endpoint, found=found)
        self._archive = Archive(spark, place)
        segments = self._archive.segments()
        check_same_log(self._live, segments, place)
        self._known = {each.begin: each for each in segments}

    @property
    def closed(self) -> list[tuple[int, int]]:
        """The begin and the end of each closed log file; the last file is still written."""
        room, end = self._live.place.log_file_bytes, self._live.place.end
        bounds = [(start, start - start % room + room) for start, _ in self._live.look.files]
        return [(low, high) for low, high in bounds if high <= end]

    def run(self, until_ms: int | None = None) -> Iterator[Archived]:
        """Yields each closed segment once it is archived; until_ms: only older segments."""
        for begin, end in self.closed:
            if until_ms is not None and self._following_ms(end) >= until_ms:
                return
            known = self._known.get(begin)
            if known is not None and self._archive.is_whole(known):
                yield Archived(known, is_new=False)
                continue
            segment = self._write(begin, end)
            self._known[begin] = segment
            yield Archived(segment, is_new=True)

    def deletable(self) -> list[Segment]:
        """The archived segments that are still in the log, from its begin on without a gap."""
        found = []
        for begin, _ in self.closed:
            if begin not in self._known:
                break
            found.append(self._known[begin])
        return found

    def _write(self, begin: int, end: int) -> Segment:
        folder = self._archive.folder.child(segment_folder(begin))
        seen = Observation()
        log = self._live.read(ALL, begin, end).observe(seen, *_figures())
        log.write.mode("overwrite").option("compression", CODEC).parquet(folder)
        kept = parquet_of(self._live.spark, folder)
        found = kept.agg(*_figures(), first_record().alias("first")).collect()[0].asDict()
        first = found.pop("first")
        _check_kept(folder, seen.get, found)
        segment = Segment(
            begin,
            end,
            found["records"],
            found["record_bytes"],
            found["first_timestamp_ms"],
            found["last_timestamp_ms"],
            First(**first.asDict()),
            self._archive.files_of(begin),
            self._live.place.where,
            wall_ms(),
        )
        self._archive.add(segment)
        return segment

    def _following_ms(self, end: int) -> int:
        """The store timestamp of the first record behind a closed file."""
        known = dict(self._live.look.files).get(end)
        if known is not None:
            return known
        if end >= self._live.place.end:
            return self._live.look.newest_timestamp_ms
        first = first_of(self._live.read(FIRST, end, end + 1))
        return first.store_timestamp_ms if first else self._live.look.newest_timestamp_ms


def _figures() -> list[Column]:
    """The figures that are computed while a segment is written, and again when it is read."""
    return [
        F.count("*").alias("records"),
        F.sum(F.col("store_size").cast("bigint")).alias("record_bytes"),
        F.min("physical_offset").alias("first_offset"),
        F.max("end_offset").alias("last_end"),
        F.unix_millis(F.min("store_timestamp")).alias("first_timestamp_ms"),
        F.unix_millis(F.max("store_timestamp")).alias("last_timestamp_ms"),
    ]


def _check_kept(folder: str, seen: dict[str, Any], found: dict[str, Any]) -> None:
    """Raises StoreUnavailable unless the written records were read again, each once."""
    if seen != found:
        raise StoreUnavailable("verify", folder, f"wrote {seen}, read {found}")
    if not found["records"]:
        raise StoreUnavailable("archive", folder, "its log file has no record")
    if found["record_bytes"] > found["last_end"] - found["first_offset"]:
        raise StoreUnavailable("verify", folder, "it has records more than once")
