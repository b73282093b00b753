"""The blocks of a log: some megabytes of bytes each, and where records begin in them.

The same walk reads a store's files and a broker's chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from rmqlite.arrow.partitions import LogSlice
from rmqlite.arrow.records import (
    Bytes,
    Longs,
    Source,
    UnsoundRecord,
    candidates,
    chained,
    gathered,
    is_blank,
    synced,
)
from rmqlite.records.record import RECORD_BYTES_MIN

WINDOW_BYTES: Final = 4 << 20
"""The most bytes of the log in one batch; more is not faster, and takes more memory."""
_BLANK_BYTES: Final = 8
Block = tuple[Bytes, int | None, Longs]
"""Bytes, the physical offset of the first byte, and where records begin in the bytes."""


def log_blocks(source: Source, wanted: LogSlice) -> Iterator[Block]:
    """The records that begin in a slice.

    Raises UnsoundRecord at bytes that are neither a record nor a blank.
    """
    room = wanted.place.log_file_bytes
    file_begin = wanted.begin - wanted.begin % room
    file_end = file_begin + room
    position = synced(source, wanted.begin, file_begin)
    while position < wanted.end:
        upto = min(position + WINDOW_BYTES, wanted.end)
        data, base = source.at(position, upto - position + RECORD_BYTES_MIN)
        starts = candidates(data, base, position - base, upto - base)
        sizes = gathered(data, starts, ">i4").astype(np.int64)
        rows, following = chained(starts, sizes, position - base)
        if not len(rows):
            blank = data[position - base : position - base + _BLANK_BYTES].tobytes()
            if position == file_end or is_blank(blank, file_end - position):
                return
            raise UnsoundRecord(position)
        position = base + following
        starts = starts[rows]
        if following > len(data):
            # The last record ends behind the window.  A file has its bytes already.
            first = base + int(starts[0])
            data, moved = source.at(first, position - first)
            starts, base = starts + (base - moved), moved
        yield data, base, starts[starts >= wanted.begin - base]
