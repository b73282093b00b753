"""The manifests of an archive: one small JSON file for each segment, written last of all.

A segment without a manifest does not count, whatever its folder has; so after a crash a segment
is archived as a whole or not at all.  Before a segment is read, its files are compared with its
manifest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from rmqlite import __version__
from rmqlite.errors import InvalidValue, StoreDamaged
from rmqlite.spark.hadoop import HadoopFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA_VERSION: Final = 1
"""It grows when an older reader would misread the manifest."""
_FOLDER: Final = "_manifest"
_SEGMENT: Final = "segment="


@dataclass(frozen=True, slots=True)
class First:
    """The first record of a segment: no two stores have the same."""

    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp_ms: int
    body_crc: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A log file in an archive: begin <= physical offset < end.

    record_bytes: the bytes of its records in the log.  files: name -> bytes of each file.
    """

    begin: int
    end: int
    records: int
    record_bytes: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    first: First
    files: dict[str, int]
    source: str
    archived_at_ms: int
    rmqlite: str = __version__
    schema_version: int = SCHEMA_VERSION

    @property
    def folder(self) -> str:
        return segment_folder(self.begin)

    @property
    def archived_bytes(self) -> int:
        return sum(self.files.values())


def segment_folder(begin: int) -> str:
    """The folder's name: the log file's name, in Spark's spelling of a partition."""
    return f"{_SEGMENT}{begin:020d}"


def check_names(names: Sequence[str], place: str) -> None:
    """Raises InvalidValue for names that are not those of an archive."""
    strange = [name for name in names if name[0] not in "._" and not name.startswith(_SEGMENT)]
    if strange:
        rule = f"an archive, or an empty folder; this one has {strange[0]} in it"
        raise InvalidValue("archive", place, rule)


class Archive:
    """The manifests of an archive.  Every method may raise StoreUnavailable."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        self.place = place
        self.folder = HadoopFolder(spark, place)

    def segments(self) -> list[Segment]:
        """All segments, the oldest first; empty if there is no archive.

        Raises InvalidValue for a folder with other files, StoreDamaged.
        """
        check_names(self.folder.names(), self.place)
        listed = [name for name in self.folder.names(_FOLDER) if name.endswith(".json")]
        return [self._segment(f"{_FOLDER}/{name}") for name in listed]

    def is_whole(self, segment: Segment) -> bool:
        """Has the folder every file of the manifest, with the length in the manifest?"""
        if segment.folder not in self.folder.names():
            return False
        sizes = self.folder.sizes(segment.folder)
        return all(sizes.get(name) == size for name, size in segment.files.items())

    def check_whole(self, segment: Segment) -> None:
        """Raises StoreDamaged unless the segment is whole."""
        if not self.is_whole(segment):
            raise StoreDamaged(
                self.folder.child(segment.folder),
                0,
                f"{len(segment.files)} files of {segment.archived_bytes} bytes, as in its manifest",
                "other files, or none",
            )

    def files_of(self, begin: int) -> dict[str, int]:
        """The Parquet files in a segment's folder: name -> bytes."""
        sizes = self.folder.sizes(segment_folder(begin))
        return {name: size for name, size in sizes.items() if name.endswith(".parquet")}

    def add(self, segment: Segment) -> None:
        """Write the manifest of a segment: from now on the segment counts."""
        text = json.dumps(asdict(segment), indent=1)
        self.folder.write_text(f"{_FOLDER}/{segment.begin:020d}.json", text + "\n")

    def _segment(self, name: str) -> Segment:
        place = self.folder.child(name)
        try:
            tree: dict[str, Any] = json.loads(self.folder.read_text(name))
            if tree["schema_version"] > SCHEMA_VERSION:
                rule = f"written by rmqlite {tree['rmqlite']}, which is newer: upgrade this one"
                raise InvalidValue("archive", place, rule)
            known = {each.name: tree[each.name] for each in fields(Segment)}
            return Segment(**known | {"first": First(**tree["first"])})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreDamaged(place, 0, "the manifest of a segment", repr(error)) from error
