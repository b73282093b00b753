"""Gaps in a queue's offsets: finds the record whose header has changed.

The queue's own entries show which record it is.  Without entries it is the record behind the
gap if its successor does not follow it, or else a record with which another queue seems to
begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rmqlite.errors import StoreDamaged
from rmqlite.records.record import Head
from rmqlite.store.checking.damage import Gap
from rmqlite.store.checking.folders import queue_folder
from rmqlite.store.commit_log import CommitLog
from rmqlite.store.consume_queue import ConsumeQueue
from rmqlite.store.disk.files import Files
from rmqlite.store.log.repaired_place import encode_anonymous
from rmqlite.store.repairing.changes import Overwrite
from rmqlite.store.repairing.entries import Pointer, Pointers
from rmqlite.store.repairing.headers import mend_header, name_of, place_of, pointer_of
from rmqlite.store.repairing.log import head_at
from rmqlite.store.repairing.plan import PLACE, Action

LOOK_AHEAD_RECORDS: Final = 100_000
MISSING_MAX: Final = 1_000
"""A longer gap has another cause than one changed record."""


class Gaps:
    """Closes the gaps of one log."""

    def __init__(
        self, log: CommitLog, files: Files, root: Path, file_bytes: int, starts: Sequence[Head]
    ) -> None:
        """file_bytes: of a queue's files.  starts: records with which queues begin."""
        self._log = log
        self._files = files
        self._root = root
        self._file_bytes = file_bytes
        self._starts = starts

    def close(self, gap: Gap, pointers: Pointers) -> Iterator[Action]:
        """Mend the wrong header, or replace its record by a repaired place.

        pointers: the entries that point at the record behind the gap.
        """
        head = gap.head
        pointer = pointer_of(head, pointers)
        mending = [mend_header(self._log, head, pointer, head.store_timestamp_ms)]
        if mending == [None]:
            mending = list(self._mend_missing(gap))
        actions = [each for each in mending if each is not None]
        yield from actions or [self._give_up(each, gap) for each in self._culprits(gap)]

    def _mend_missing(self, gap: Gap) -> Iterator[Action | None]:
        """Mend the headers of the records that the queue's missing offsets point at."""
        head = gap.head
        key = (head.topic, head.queue_id)
        missing = range(gap.expected, head.queue_offset)
        if len(missing) > MISSING_MAX:
            return
        try:
            queue = ConsumeQueue(self._files, queue_folder(self._root, key), self._file_bytes)
        except StoreDamaged:
            return
        for queue_offset in missing:
            entry = queue.read_beyond(queue_offset)
            if entry is None or not gap.last_offset < entry.physical_offset < head.physical_offset:
                continue
            there = head_at(self._log, entry.physical_offset, head.physical_offset)
            if there is not None and there.size == entry.size:
                pointer = Pointer(key, queue_offset, entry.size, entry.tags_code)
                yield mend_header(self._log, there, pointer, there.store_timestamp_ms)

    def _culprits(self, gap: Gap) -> Sequence[Head]:
        head = gap.head
        missing = range(gap.expected, head.queue_offset)
        follows = self._next_of_queue(head)
        if follows is not None and follows.queue_offset != head.queue_offset + 1:
            return [head]
        strays = [
            each
            for each in self._starts
            if gap.last_offset < each.physical_offset < head.physical_offset
            and each.queue_offset in missing
        ]
        return strays[: len(missing)] or [head]

    def _next_of_queue(self, head: Head) -> Head | None:
        log, key = self._log, (head.topic, head.queue_id)
        at = head.physical_offset + head.size
        for _ in range(LOOK_AHEAD_RECORDS):
            file_end = at - at % log.segment_bytes + log.segment_bytes
            found = head_at(log, at, file_end)
            if found is None:
                found = head_at(log, file_end, file_end + log.segment_bytes)
            if found is None or (found.topic, found.queue_id) == key:
                return found
            at = found.physical_offset + found.size
        return None

    def _give_up(self, head: Head, gap: Gap) -> Action:
        data = encode_anonymous(head.physical_offset, head.size, head.store_timestamp_ms)
        path, position = place_of(self._log, head.physical_offset)
        return Action(
            PLACE,
            path,
            position,
            f"queue offset {gap.head.queue_offset} does not follow {gap.expected - 1}, and no"
            " queue entry says which record has changed",
            f"a repaired place of {head.size} bytes, which consumers skip",
            (Overwrite(path, position, data),),
            (name_of(head),),
            lost_messages=1,
        )
