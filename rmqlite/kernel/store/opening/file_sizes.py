"""The lengths of a store's files, read from the files' names and lengths.

RocketMQ loads a store only if all log files have one length, all queue files another, and
all files of the key index a third (reference §1.5, §2.1, §2.3).  So a store keeps the lengths
that it began with; the configuration decides only for a store without files.  A single file
of another length among many is damage, and does not change the rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice, pairwise
from pathlib import Path
from typing import Final, NamedTuple

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.config.table_shapes import ProgressTable
from rmqlite.kernel.records import record
from rmqlite.kernel.records.queue_entry import ENTRY_BYTES
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.regular_file import REGULAR
from rmqlite.kernel.store.disk.segments import NAME_DIGITS, is_numbered
from rmqlite.kernel.store.dispatch import queue_keys
from rmqlite.kernel.store.index_file import (
    ENTRY,
    HEADER,
    INDEX_NAME_DIGITS,
    SLOT,
    Shape,
    read_header,
)
from rmqlite.kernel.store.opening.recovery import PROGRESS_TABLE
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.words.errors import StoreDamaged

QUEUES_ASKED_MAX: Final = 256
"""The most queue folders whose files are measured: all queue files have one length."""
_BYTES_MAX: Final = 2**31 - 1
_LOG_BYTES_MIN: Final = 512
"""A shorter file has no room for a record and its mark."""
_SLOTS_MAX: Final = 100_000_000
_ENTRIES_MAX: Final = 80_000_000
_TAIL_BYTES: Final = 8 << 20
"""Bytes before a file's end in which its last record is searched."""
_PLACE_AT: Final = 28
"""The position of the physical offset in a record."""
_READ_BYTES: Final = 1 << 20


class Sizes(NamedTuple):
    """The lengths of a store's files."""

    log_file_bytes: int
    queue_file_bytes: int


class _Found(NamedTuple):
    size: int
    path: Path
    """A file that has this length, or has a neighbour at this distance."""


class _File(NamedTuple):
    path: Path
    size: int

    @property
    def start(self) -> int:
        return int(self.path.name)


def sizes_of(files: Files, root: Path, config: BrokerConfig | None = None) -> Sizes:
    """The lengths of the files at root; the configured ones for missing files.

    Raises ConfigInvalid for a key that is set to another length than the files have, and
    StoreDamaged for a log whose only file was cut off and whose old length is unknown.
    """
    config = config or BrokerConfig()
    return Sizes(
        _agreed(config, "mapped_file_size_commit_log", _of_log(files, root, config)),
        _agreed(config, "mapped_file_size_consume_queue", _of_queues(files, root)),
    )


def has_lengths(files: Files, root: Path) -> bool:
    """Are lengths of both kinds to be read?  Otherwise a living writer may still choose others."""
    return has_log(files, root) and _of_queues(files, root) is not None


def index_shape(files: Files, root: Path, config: BrokerConfig) -> Shape:
    """Slots and entries of the files of the key index.

    Values that the configuration sets win: an index of another shape is rebuilt from the log.
    The others come from the newest file.
    """
    found = _shape_found(files, root)
    slots, entries = config.max_hash_slots, config.max_index_entries
    if found is not None and "max_hash_slots" not in config.model_fields_set:
        slots = found.slots
    if found is not None and "max_index_entries" not in config.model_fields_set:
        entries = found.entries
    return Shape(slots, entries)


def has_log(files: Files, root: Path) -> bool:
    """Has the store a log file, whose length is the rule for the others?"""
    return any(each.size for each in _listed(files, root / "commitlog"))


def _agreed(config: BrokerConfig, name: str, found: _Found | None) -> int:
    wanted: int = getattr(config, name)
    if found is None or found.size == wanted:
        return wanted
    if name in config.model_fields_set:
        rule = (
            f"the store has files of {found.size} bytes and keeps that length, see {found.path};"
            f" leave the key out, or set it to {found.size}"
        )
        raise config.refusal(name, rule)
    return found.size


# ---- log and queues


def _of_log(files: Files, root: Path, config: BrokerConfig) -> _Found | None:
    listed = _listed(files, root / "commitlog")
    if len(listed) != 1 or not listed[0].size:
        return _usual([listed], _LOG_BYTES_MIN)
    # A single file has no neighbour that would show a cut.
    path, size = only = listed[0]
    progress = _progress(files, root)
    recorded = progress.log_file_bytes if progress else 0
    is_set = "mapped_file_size_commit_log" in config.model_fields_set
    wanted = config.mapped_file_size_commit_log if is_set else None
    if _LOG_BYTES_MIN <= recorded <= _BYTES_MAX and (recorded > size or recorded == wanted):
        return _Found(recorded, path)
    if _LOG_BYTES_MIN <= size <= _BYTES_MAX and not _is_cut(files, only):
        return _Found(size, path)
    if wanted is None or wanted < size:
        expected = "the end of a log file"
        found = "another end, and the file's length is unknown: set mappedFileSizeCommitLog"
        raise StoreDamaged(str(path), size, expected, found)
    return None


def _of_queues(files: Files, root: Path) -> _Found | None:
    keys = islice(queue_keys(files, root), QUEUES_ASKED_MAX)
    folders = (root / "consumequeue" / topic / str(queue_id) for topic, queue_id in keys)
    return _usual((_listed(files, folder) for folder in folders), ENTRY_BYTES, unit=ENTRY_BYTES)


def _listed(files: Files, folder: Path) -> list[_File]:
    """The files of a folder whose names are positions, in order."""
    return [_File(path, files.size(path)) for path in _numbered(files, folder, NAME_DIGITS)]


def _numbered(files: Files, folder: Path, digits: int) -> list[Path]:
    """The regular files of a folder whose names are numbers with this many digits, in order."""
    return [
        folder / name
        for name in files.names(folder)
        if is_numbered(name, digits) and files.kind(folder / name) == REGULAR
    ]


def _usual(folders: Iterable[list[_File]], size_min: int, unit: int = 1) -> _Found | None:
    """The most frequent length of files and distance of neighbours.

    After a crash a file may lack its length; then only its name counts.
    """
    lengths, votes = Counter[int](), Counter[int]()
    paths: dict[int, Path] = {}
    for listed in folders:
        recorded = [(each.size, each, lengths) for each in listed]
        recorded += [(other.start - one.start, one, votes) for one, other in pairwise(listed)]
        for size, file, counts in recorded:
            is_length = size_min <= size <= _BYTES_MAX and size % unit == 0
            if is_length and file.start % size == 0:
                counts[size] += 1
                paths.setdefault(size, file.path)
    votes.update(lengths)
    if not votes:
        return None
    usual = max(votes, key=lambda size: (votes[size], lengths[size] > 0, size))
    return _Found(usual, paths[usual])


def _is_cut(files: Files, file: _File) -> bool:
    """Does a log file end in the middle of a record, or of the blank behind the last one?"""
    begin = max(0, file.size - _TAIL_BYTES)
    data = files.read(file.path, begin, file.size - begin)
    at = data.rfind(record.MAGIC_BYTES) - 4
    while at >= 0:
        size, place = data[at : at + 4], data[at + _PLACE_AT : at + _PLACE_AT + 8]
        if int.from_bytes(place) == file.start + begin + at:
            rest = data[at + int.from_bytes(size) :]
            if len(rest) < record.BLANK_BYTES:
                # A whole file has at least a blank's head here.
                return True
            left, magic = record.BLANK.unpack_from(rest)
            return magic in (record.MAGIC, record.BLANK_MAGIC) and left > len(rest)
        at = data.rfind(record.MAGIC_BYTES, 0, at + 4) - 4
    return False


# ---- the key index


def _shape_found(files: Files, root: Path) -> Shape | None:
    """The shape from the progress table if it fits the newest file, or else from that file."""
    named = _numbered(files, root / "index", INDEX_NAME_DIGITS)
    there = [path for path in named if files.size(path)]
    size = files.size(there[-1]) if there else 0
    progress = _progress(files, root)
    recorded = progress.index if progress else None
    with suppress(KeyError, TypeError, ValueError):
        shape = Shape(int(recorded["slots"]), int(recorded["entries"])) if recorded else Shape(0, 0)
        if _is_possible(shape) and (not there or shape.file_bytes == size):
            return shape
    return _shape_in(files, there[-1], size) if there else None


def _shape_in(files: Files, path: Path, size: int) -> Shape | None:
    """The shape of a file, from the end and the number of its entries.

    These two show where the entries begin.  Behind the last entry there are only zeros, and
    room for whole entries up to the file's end.
    """
    if size < HEADER.size:
        return None
    header = read_header(files, path)
    end = max((at + len(data.rstrip(b"\0")) for at, data in _data(files, path, size)), default=0)
    end += (size - end) % ENTRY.size
    slots, rest = divmod(end - HEADER.size - ENTRY.size * header.next_number, SLOT.size)
    entries = (size - HEADER.size - SLOT.size * slots) // ENTRY.size
    shape = Shape(slots, entries)
    if header.next_number < 2 or rest or not _is_possible(shape) or shape.file_bytes != size:
        return None
    for number, offset in ((1, header.begin_offset), (header.next_number - 1, header.end_offset)):
        data = files.read(path, shape.entries_at + ENTRY.size * number, ENTRY.size)
        if len(data) < ENTRY.size or ENTRY.unpack(data)[1] != offset:
            return None
    return shape


def _is_possible(shape: Shape) -> bool:
    """Could the configuration have this shape?  RocketMQ maps an index file of 2 GiB at most."""
    return 1 <= shape.slots <= _SLOTS_MAX and 2 <= shape.entries <= _ENTRIES_MAX


def _data(files: Files, path: Path, size: int) -> Iterator[tuple[int, bytes]]:
    """The pieces of a file that are not all zeros, with their positions."""
    at = 0
    while (at := files.next_data(path, at)) < size:
        data = files.read(path, at, min(_READ_BYTES, size - at))
        if any(data):
            yield at, data
        at += max(1, len(data))


def _progress(files: Files, root: Path) -> ProgressTable | None:
    """storeProgress.json; None if it is missing or unreadable."""
    with suppress(StoreDamaged):
        return tables.load_as(files, root / "config" / PROGRESS_TABLE, ProgressTable)
    return None
