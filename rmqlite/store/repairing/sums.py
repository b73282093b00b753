"""What checksums can mend, and how they are made anew.

A CRC-32 is linear: what one changed byte does to it depends only on the change and on how
far the end is.  So where a single byte of a block has changed, the difference of the two
checksums says which one it was and what it was before.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from rmqlite.store.checking.sums import Span, sums_path
from rmqlite.store.commit_log import CommitLog
from rmqlite.store.files import Files
from rmqlite.store.log.checksums import BLOCK_BYTES, Mark, encode_mark, mark_position
from rmqlite.store.repairing.changes import Change, Overwrite, Resize

MENDED_SPAN_BYTES_MAX: Final = 1 << 20
"""In a longer span too many single bytes would explain any difference."""
_SUM_BYTES: Final = 4


def _table() -> list[int]:
    rows = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        rows.append(value)
    return rows


_TABLE: Final = _table()
"""How a byte changes the checksum of what ends with it."""
_BYTES: Final = {row: value for value, row in enumerate(_TABLE)}
_BY_TOP: Final = {row >> 24: value for value, row in enumerate(_TABLE)}


def changed_byte(size: int, wanted: int, found: int) -> tuple[int, int] | None:
    """The one byte of so many whose change makes the difference: where, and what to XOR.

    None when no byte does, or more than one could.
    """
    candidates = []
    difference = wanted ^ found
    for at in range(size - 1, -1, -1):
        change = _BYTES.get(difference)
        if change is not None:
            candidates.append((at, change))
        # One byte back: which difference became this one behind a byte that is right?
        value = _BY_TOP[difference >> 24]
        difference = (difference ^ _TABLE[value]) << 8 & 0xFFFF_FFFF | value
    return candidates[0] if len(candidates) == 1 else None


def mended_bytes(log: CommitLog, spans: Iterable[Span]) -> Iterator[tuple[Span, int, bytes]]:
    """Where single bytes have changed: the span, the physical offset, the byte as it was."""
    for span in spans:
        begin, end = span.first.position, span.claim.position
        if end - begin <= MENDED_SPAN_BYTES_MAX:
            found = changed_byte(end - begin, span.claim.chain, span.found)
            if found is not None:
                at, change = found
                (now,) = log.read_raw(begin + at, 1)
                yield span, begin + at, bytes([now ^ change])


def is_summed(log: CommitLog, files: Files, start: int) -> bool:
    """Has the log file that begins there any checksums?"""
    path = sums_path(log, start)
    return path.name in files.names(path.parent) or log.log_end.mark_of(start) is not None


def new_sums(
    log: CommitLog, files: Files, start: int, content_end: int, synced_end: int
) -> Iterator[Change]:
    """The table and the mark of the file that begins there, from the bytes it has now."""
    blocks = log.segment_bytes // BLOCK_BYTES
    sums = bytearray()
    at, chain = start, 0
    while at < content_end:
        data = log.read_raw(at, min(BLOCK_BYTES, content_end - at))
        chain = zlib.crc32(data, chain)
        at += len(data)
        if len(data) < BLOCK_BYTES:
            break
        sums += chain.to_bytes(_SUM_BYTES, "big")
    path = sums_path(log, start)
    if blocks and path.name not in files.names(path.parent):
        yield Resize(path, blocks * _SUM_BYTES)
    if blocks:
        yield Overwrite(path, 0, bytes(sums).ljust(blocks * _SUM_BYTES, b"\0"))
    place = mark_position(log.segment_bytes)
    # Where RocketMQ wrote, a record may lie there.
    if content_end <= start + place:
        mark = Mark(synced_end, content_end, chain)
        yield Overwrite(log.path_at(start), place, encode_mark(mark))
