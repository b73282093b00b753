"""Makes the checksums and the mark of a log file anew, from its present bytes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from rmqlite.store.checking.sums import sums_path
from rmqlite.store.commit_log import CommitLog
from rmqlite.store.disk.files import Files
from rmqlite.store.log.checksums import BLOCK_BYTES, Mark, encode_mark, mark_position
from rmqlite.store.repairing.changes import Change, Overwrite, Resize

_SUM_BYTES: Final = 4


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
