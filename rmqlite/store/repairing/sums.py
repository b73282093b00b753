"""Mends single bytes by their checksums, and makes checksums anew.

A CRC-32 is linear: the effect of one changed byte depends only on the change and on its
distance from the end.  So if a single byte of a block has changed, the difference of the two
checksums shows its position and its old value.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from rmqlite.store.checking.sums import Span, sums_path
from rmqlite.store.commit_log import CommitLog
from rmqlite.store.disk.files import Files
from rmqlite.store.log.checksums import BLOCK_BYTES, Mark, encode_mark, mark_position
from rmqlite.store.repairing.changes import Change, Overwrite, Resize

MENDED_SPAN_BYTES_MAX: Final = 1 << 20
"""In a longer span a random difference too often looks like one changed byte."""
_SUM_BYTES: Final = 4


def _table() -> list[int]:
    rows = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        rows.append(value)
    return rows


_TABLE: Final = _table()
"""The change of a checksum by a change of the last byte, by the XOR of that byte."""
_BYTES: Final = {row: value for value, row in enumerate(_TABLE)}
_BY_TOP: Final = {row >> 24: value for value, row in enumerate(_TABLE)}


def changed_byte(size: int, wanted: int, found: int) -> tuple[int, int] | None:
    """Position and XOR of the one changed byte that explains two checksums of size bytes.

    None if no byte explains them, or more than one could.
    """
    candidates = []
    difference = wanted ^ found
    for at in range(size - 1, -1, -1):
        change = _BYTES.get(difference)
        if change is not None:
            candidates.append((at, change))
        # One byte back: find the difference that became this one after an unchanged byte.
        value = _BY_TOP[difference >> 24]
        difference = (difference ^ _TABLE[value]) << 8 & 0xFFFF_FFFF | value
    return candidates[0] if len(candidates) == 1 else None


def mended_bytes(log: CommitLog, spans: Iterable[Span]) -> Iterator[tuple[Span, int, bytes]]:
    """For each span with one changed byte: the span, the physical offset, the old byte."""
    for span in spans:
        begin, end = span.first.position, span.claim.position
        if end - begin <= MENDED_SPAN_BYTES_MAX:
            found = changed_byte(end - begin, span.claim.chain, span.found)
            if found is not None:
                at, change = found
                (now,) = log.read_raw(begin + at, 1)
                yield span, begin + at, bytes([now ^ change])


def is_summed(log: CommitLog, files: Files, start: int) -> bool:
    """Has the log file that begins at start any checksums?"""
    path = sums_path(log, start)
    return path.name in files.names(path.parent) or log.log_end.mark_of(start) is not None


def new_sums(
    log: CommitLog, files: Files, start: int, content_end: int, synced_end: int
) -> Iterator[Change]:
    """The table and the mark of the file that begins at start, from its present bytes."""
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
    # In a file that RocketMQ wrote, a record may lie in the mark's place.
    if content_end <= start + place:
        mark = Mark(synced_end, content_end, chain)
        yield Overwrite(log.path_at(start), place, encode_mark(mark))
