"""The key index against the log: every key of every record, in the order of the log.

The same records make the same entries, so the walk's keys are hashed in bulk and compared
with the index files block by block.  Only the first wrong entry of each file is reported,
because a repair rebuilds the whole index.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rmqlite.kernel.records import record
from rmqlite.kernel.records.key_hashes import Keyed, key_hashes, keys_of, topic_prefix
from rmqlite.kernel.records.record import Head
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.index_file import ENTRY, SECONDS_MAX
from rmqlite.store_tools.checking.finding import Finding
from rmqlite.store_tools.checking.index_files import CHAIN, Block, RecordedFile, RecordedIndex

NO_ENTRY: Final = "missing-index-entry"
WRONG_ENTRY: Final = "wrong-index-entry"
INDEX_FAULTS: Final = (NO_ENTRY, WRONG_ENTRY, CHAIN)
"""Faults that only a rebuild of the index mends; opening rebuilds it if a file is missing."""
HASHED_AT_ONCE: Final = 512
"""Records hashed at once: more would not fit into a processor's cache."""
_NOWHERE: Final = -1


class IndexCheck:
    """Receives every indexed record, in the order of the log."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        state: Mapping[str, Any] | None,
        *,
        persisted_end: int,
        log_begin: Callable[[], int],
        is_live: bool,
    ) -> None:
        """state: the index's state() of the last persist, when the log ended at persisted_end;
        it has the keys of all records before.  log_begin: the log's minimum now.
        """
        state = state if persisted_end else None
        self._recorded = RecordedIndex(files, folder, state, log_begin=log_begin)
        self._left = list(self._recorded.files)
        self._is_wanted = bool(self._left)
        self._persisted_end = persisted_end
        self._log_begin = log_begin
        self._begin_then = 0
        self._is_live = is_live
        self._unknown: list[tuple[int, int]] = []
        self._faults: list[tuple[int, Finding]] = []
        """Findings, each with the physical offset of its record."""
        self._records: list[Keyed] = []
        self._hashes = array("I")
        self._places = array("q")
        self._times = array("q")
        self._block: Block | None = None
        self._is_aligned = True

    # ---- the log's keys

    def want(self, records: Sequence[Keyed]) -> None:
        """Take the log's next records; all lie before the persisted end, or all behind it."""
        if not self._is_wanted or not records or records[0][2] >= self._persisted_end:
            return
        self._records += records
        whole = len(self._records) // HASHED_AT_ONCE * HASHED_AT_ONCE
        if whole:
            self._hash(whole)
            self._compare()

    def want_head(self, head: Head) -> None:
        """Take the log's next record, unless it is not indexed."""
        if record.is_indexed(head.sys_flag):
            prefix, place = topic_prefix(head.topic), head.physical_offset
            self.want([(prefix, head.properties, place, head.store_timestamp_ms)])

    def skip(self, begin: int, end: int) -> None:
        """Note damaged bytes of the log: their keys are unknown."""
        self._unknown.append((begin, end))

    def finish(self, log_end: int, changed: Sequence[tuple[int, int]]) -> Iterator[Finding]:
        """All findings, at the end of the walk.

        changed: intervals of the log with changed bytes; keys there may be wrong.
        """
        self.skip(log_end, self._persisted_end)
        self._hash(len(self._records))
        self._compare(is_over=True)
        yield from self._recorded.found
        for place, fault in self._faults:
            if not any(begin <= place < end for begin, end in changed):
                yield fault
        if log_end == self._persisted_end and not self._is_live:
            surplus = self._recorded.surplus()
            if surplus is not None:
                yield surplus

    def _hash(self, count: int) -> None:
        """Hash the keys of the first waiting records."""
        for at in range(0, count, HASHED_AT_ONCE):
            prefixes, tokens, places, times = keys_of(self._records[at : at + HASHED_AT_ONCE])
            self._hashes.extend(key_hashes(prefixes, tokens))
            self._places.extend(places)
            self._times.extend(times)
        del self._records[:count]

    # ---- the files' entries

    def _compare(self, *, is_over: bool = False) -> None:
        """Compare blocks as far as the log's keys reach; is_over: no more keys will come."""
        while self._left:
            file = self._left[0]
            if not self._is_aligned:
                self._forget(bisect_left(self._places, file.header.begin_offset))
                if not self._places and not is_over:
                    return
            block = self._block = self._block or file.read()
            if block is None:
                self._end_file(file)
            elif is_over or len(self._places) >= block.entries:
                self._block = None
                if not self._is_aligned:
                    self._align(block)
                self._compare_block(block)
            else:
                return
        if self._places:
            self._report_missing()

    def _compare_block(self, block: Block) -> None:
        count, begin_ms = block.entries, block.file.header.begin_ms
        if block.chain_fault is None and len(self._places) >= count:
            times = self._times[:count]
            # A clock may have gone back, and a damaged record may have any time.
            if begin_ms <= min(times) and max(times) <= begin_ms + 1000 * SECONDS_MAX:
                seconds = [(each - begin_ms) // 1000 for each in times]
                if block.holds(self._hashes[:count], self._places[:count], seconds):
                    self._forget(count)
                    return
        at, begin_offset = 0, block.file.header.begin_offset
        right = self._entry(at, begin_ms)
        for number, (*found, _) in enumerate(ENTRY.iter_unpack(block.data), block.first):
            if found == right:
                at += 1
                right = self._entry(at, begin_ms)
            elif found[1] < begin_offset or not self._is_unknown(found[1]):
                self._report_wrong(block.file, number, found, right)
                return
        self._forget(at)
        if block.chain_fault is not None:
            self._report(_NOWHERE, block.chain_fault)

    def _entry(self, at: int, begin_ms: int) -> list[int] | None:
        """A waiting key as an entry; None behind the last one."""
        if at >= len(self._places):
            return None
        seconds = min(max(0, (self._times[at] - begin_ms) // 1000), SECONDS_MAX)
        return [self._hashes[at], self._places[at], seconds]

    def _is_unknown(self, physical_offset: int) -> bool:
        """Is the record there no longer in the log, or damaged?"""
        if physical_offset >= self._begin_then:
            # Ask only from the last answer on: a file may have millions of older entries.
            self._begin_then = self._log_begin()
        if physical_offset < self._begin_then:
            return True
        return any(begin <= physical_offset < end for begin, end in self._unknown)

    def _end_file(self, file: RecordedFile) -> None:
        if not file.is_over:
            # It cannot be read, or retention has just taken it.
            self._next_file()
            return
        fault = file.wrong_slot(may_be_ahead=self._is_live or file.is_ahead)
        if fault is not None:
            self._faults.append((_NOWHERE, fault))
        file.close()
        del self._left[0]

    def _next_file(self) -> None:
        """Give this file up, and go on with the keys of the next one."""
        self._left.pop(0).close()
        self._is_aligned = False
        if not self._left:
            self._is_wanted = False
            self._forget(len(self._places))

    def _align(self, block: Block) -> None:
        """Skip keys before the block: a file may begin in the middle of a record's keys."""
        at, begin = 0, block.file.header.begin_offset
        ends = bisect_left(self._places, begin + 1)
        while at < ends and self._hashes[at] != block.first_hash:
            at += 1
        self._forget(at)
        self._is_aligned = True

    def _forget(self, count: int) -> None:
        del self._hashes[:count], self._places[:count], self._times[:count]

    # ---- what is wrong

    def _report_wrong(
        self, file: RecordedFile, number: int, found: list[int], right: list[int] | None
    ) -> None:
        wanted = _shown(right) if right is not None else "none"
        text = f"entry {number} is {_shown(found)}; it should be {wanted}"
        place = right[1] if right is not None else _NOWHERE
        at = (file.path, file.position_of(number))
        self._report(place, Finding(*at, WRONG_ENTRY, text, wanted, _shown(found), ENTRY.size))

    def _report_missing(self) -> None:
        """Report keys of the log behind the last entry of the index."""
        file = self._recorded.files[-1]
        place = self._places[0]
        text = f"no entry for a key of the record at {place}, nor for any key behind it"
        position = file.position_of(file.header.next_number)
        wanted = self._entry(0, file.header.begin_ms)
        assert wanted is not None
        fault = Finding(file.path, position, NO_ENTRY, text, _shown(wanted), "none", ENTRY.size)
        self._faults.append((place, fault))
        self._is_wanted = False
        self._forget(len(self._places))

    def _report(self, place: int, fault: Finding) -> None:
        self._faults.append((place, fault))
        self._next_file()


def _shown(entry: list[int]) -> str:
    """An entry in words."""
    key_hash, physical_offset, seconds = entry
    return f"hash {key_hash} of the record at {physical_offset}, {seconds} s"
