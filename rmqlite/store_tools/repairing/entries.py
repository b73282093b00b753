"""Queue entries that point into damaged parts of the log: they name the lost records."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from rmqlite.kernel.records.queue_entry import ENTRY, ENTRY_BYTES, PRE_BLANK
from rmqlite.kernel.records.record import RECORD_BYTES_MIN, Head
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.dispatch import QueueKey, queue_keys
from rmqlite.kernel.words.errors import StoreDamaged
from rmqlite.store_tools.checking.folders import queue_folder

POINTERS_MAX: Final = 100_000
"""The most entries in memory; records behind them are lost without a name."""
_BLOCK_ENTRIES: Final = 8192
NO_SIZE: Final = ENTRY.unpack(PRE_BLANK)[1]
"""The size in the entries that fill up a first file; they point at no record."""
Interval = tuple[int, int]
"""Physical offsets begin <= n < end."""


class Pointer(NamedTuple):
    """A queue entry, seen from the record that it points at."""

    key: QueueKey
    queue_offset: int
    size: int
    tags_code: int


class Pointers:
    """The entries that point into some intervals of the log, by physical offset."""

    def __init__(
        self, files: Files, root: Path, file_bytes: int, intervals: Sequence[Interval]
    ) -> None:
        self._at: dict[int, list[Pointer]] = {}
        pointing = _pointing_into(files, root, file_bytes, intervals)
        for physical_offset, pointer in islice(pointing, POINTERS_MAX):
            self._at.setdefault(physical_offset, []).append(pointer)
        self._positions = sorted(self._at)

    def at(self, physical_offset: int) -> Sequence[Pointer]:
        """The entries for a record that begins there."""
        return self._at.get(physical_offset, ())

    def next_behind(self, physical_offset: int) -> int | None:
        """The next physical offset behind this one that an entry points at."""
        at = bisect_right(self._positions, physical_offset)
        return self._positions[at] if at < len(self._positions) else None

    def ranges_from(self, physical_offset: int) -> dict[QueueKey, tuple[int, int]]:
        """Lowest and highest queue offset of the entries that point there or behind."""
        ranges: dict[QueueKey, tuple[int, int]] = {}
        for position in self._positions[bisect_left(self._positions, physical_offset) :]:
            for key, queue_offset, _, _ in self._at[position]:
                low, high = ranges.get(key, (queue_offset, queue_offset))
                ranges[key] = (min(low, queue_offset), max(high, queue_offset))
        return ranges


def pointer_of(head: Head, pointers: Pointers) -> Pointer | None:
    """The queue entry that points at a record; if several do, one that agrees with it."""
    fitting = [each for each in pointers.at(head.physical_offset) if each.size == head.size]
    for each in fitting:
        if (each.key, each.queue_offset) == ((head.topic, head.queue_id), head.queue_offset):
            return each
    return fitting[0] if fitting else None


def _pointing_into(
    files: Files, root: Path, file_bytes: int, intervals: Sequence[Interval]
) -> Iterator[tuple[int, Pointer]]:
    if not intervals:
        return
    ordered = _merged(intervals)
    begins = [begin for begin, _ in ordered]
    lowest, highest = begins[0], ordered[-1][1]
    for key in queue_keys(files, root):
        try:
            queue = ConsumeQueue(files, queue_folder(root, key), file_bytes)
        except StoreDamaged:
            continue
        for begin in range(queue.files_begin, queue.files_end, _BLOCK_ENTRIES):
            data = queue.bytes_at(begin, _BLOCK_ENTRIES)
            whole = data[: len(data) - len(data) % ENTRY_BYTES]
            for at, (physical_offset, size, code) in enumerate(ENTRY.iter_unpack(whole), begin):
                if lowest <= physical_offset < highest and RECORD_BYTES_MIN <= size < NO_SIZE:
                    before = bisect_right(begins, physical_offset) - 1
                    if physical_offset < ordered[before][1]:
                        yield physical_offset, Pointer(key, at, size, code)


def _merged(intervals: Sequence[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged
