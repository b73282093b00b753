"""The key index, its files up to the last persist, and against the log.

storeProgress.json records the state of the index.  Opening removes everything behind that
state, so a check ignores it.  The recorded entries are read in order, and the chains are
computed again on the way: each entry names the one before it in its slot.

The same records make the same entries, so the keys of the walk over the log are hashed in bulk and
compared with the index files block by block.  Only the first wrong entry of each file is reported,
because a repair rebuilds the whole index.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from rmqlite.kernel.records import record
from rmqlite.kernel.records.key_hashes import Keyed, key_hashes, keys_of, topic_prefix
from rmqlite.kernel.records.record import Head
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.regular_file import REGULAR
from rmqlite.kernel.store.index_file import (
    ENTRY,
    HEADER,
    SECONDS_MAX,
    SLOT,
    Header,
    Shape,
    read_header,
)
from rmqlite.kernel.store.key_index import recorded
from rmqlite.store_tools.checking.finding import Finding

CHAIN: Final = "index-chain"
HEAD: Final = "index-header"
UNREADABLE: Final = "unreadable-index"
AHEAD: Final = "index-ahead"
BLOCK_ENTRIES: Final = 8192
_SLOTS_AT_ONCE: Final = 1 << 18
_COUNT_AT: Final = 36
_WORD: Final = "I"
_ENTRY_WORDS: Final = ENTRY.size // SLOT.size
"""Words of an entry: hash, two of the physical offset, seconds, previous entry."""
NO_ENTRY: Final = "missing-index-entry"
WRONG_ENTRY: Final = "wrong-index-entry"
INDEX_FAULTS: Final = (NO_ENTRY, WRONG_ENTRY, CHAIN)
"""Faults that only a rebuild of the index mends; opening rebuilds it if a file is missing."""
HASHED_AT_ONCE: Final = 512
"""Records hashed at once: more would not fit into a processor's cache."""
_NOWHERE: Final = -1


class Block(NamedTuple):
    """Successive entries of a file; chain_fault: the wrong chain of the last one, if any."""

    file: RecordedFile
    first: int
    data: bytes
    chain_fault: Finding | None

    @property
    def entries(self) -> int:
        return len(self.data) // ENTRY.size

    @property
    def first_hash(self) -> int:
        return int(ENTRY.unpack_from(self.data)[0])

    def holds(self, hashes: array[int], offsets: array[int], seconds: Sequence[int]) -> bool:
        """Do the entries have these hashes, offsets and seconds?  Chains are not compared."""
        words = _words(self.data)
        halves = _words(_big_endian(offsets))
        columns = (hashes, halves[::2], halves[1::2], array(_WORD, seconds))
        return all(words[at::_ENTRY_WORDS] == each for at, each in enumerate(columns))


class RecordedFile:
    """One file, up to the count of its recorded header; it may have grown since."""

    def __init__(
        self, files: Files, path: Path, shape: Shape, header: Header, *, counted: int
    ) -> None:
        """counted: the next entry's number in the file's own header; 0: it cannot be read."""
        self.path = path
        self.header = header
        self.counted = counted
        self._files = files
        self._shape = shape
        self._slots = array(_WORD)
        self._next = 1 if counted else 0

    @property
    def is_ahead(self) -> bool:
        return self.counted > self.header.next_number

    @property
    def is_over(self) -> bool:
        """Were all entries read?"""
        return self._next == self.header.next_number

    def position_of(self, number: int) -> int:
        return self._shape.entries_at + ENTRY.size * number

    def read(self) -> Block | None:
        """The next entries; None behind the last, and if the file is gone."""
        if not self._next:
            return None
        if not self._slots:
            self._slots = array(_WORD, bytes(SLOT.size * self._shape.slots))
        first = self._next
        wanted = min(BLOCK_ENTRIES, self.header.next_number - first)
        data = self._files.read(self.path, self.position_of(first), ENTRY.size * wanted)
        data = data[: len(data) - len(data) % ENTRY.size]
        if not data:
            return None
        words = _words(data)
        found, right = words[4::_ENTRY_WORDS], self._chain(words[::_ENTRY_WORDS])
        fault = None
        if found != right:
            at = next(at for at, each in enumerate(found) if each != right[at])
            fault = self._chain_fault(first + at, right[at], found[at])
            data = data[: ENTRY.size * (at + 1)]
        self._next += len(data) // ENTRY.size
        return Block(self, first, data, fault)

    def close(self) -> None:
        """Free the slots, which take 20 MB of memory."""
        self._slots = array(_WORD)

    def wrong_slot(self, *, may_be_ahead: bool) -> Finding | None:
        """A slot that does not name its newest entry; call it when all entries were read.

        may_be_ahead: a slot may name an entry behind the recorded ones.
        """
        for begin in range(0, self._shape.slots, _SLOTS_AT_ONCE):
            wanted = self._slots[begin : begin + _SLOTS_AT_ONCE]
            data = self._files.read(self.path, *self._slots_at(begin, len(wanted)))
            there = _words(data)
            # Shorter or empty data: retention has just removed the file.
            if there == wanted or len(there) < len(wanted):
                continue
            for slot, (right, wrong) in enumerate(zip(wanted, there, strict=True), begin):
                if right != wrong and not (may_be_ahead and wrong >= self.header.next_number):
                    text = f"slot {slot} begins with entry {wrong}, but its newest one is {right}"
                    position, _ = self._slots_at(slot, 1)
                    return Finding(
                        self.path, position, CHAIN, text, str(right), str(wrong), SLOT.size
                    )
        return None

    def _slots_at(self, slot: int, count: int) -> tuple[int, int]:
        return HEADER.size + SLOT.size * slot, SLOT.size * count

    def _chain(self, hashes: array[int]) -> array[int]:
        """The right previous entry for each of the next entries."""
        slots, size, number = self._slots, self._shape.slots, self._next
        previous = array(_WORD)
        append = previous.append
        for each in hashes:
            slot = each % size
            append(slots[slot])
            slots[slot] = number
            number += 1
        return previous

    def _chain_fault(self, number: int, right: int, wrong: int) -> Finding:
        text = f"entry {number} is chained to entry {wrong}, but its slot's entry before is {right}"
        position = self.position_of(number)
        return Finding(self.path, position, CHAIN, text, str(right), str(wrong), size=ENTRY.size)


class RecordedIndex:
    """All files that the last persist recorded, the oldest first."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        state: Mapping[str, Any] | None,
        *,
        log_begin: Callable[[], int],
    ) -> None:
        """state: KeyIndex.state() of the last persist.  log_begin: the log's minimum now.

        `files` is empty if there is no state, and if all its files are missing.
        """
        self.found: list[Finding] = []
        """Findings about whole files; opening rebuilds the index then."""
        self.files: list[RecordedFile] = []
        self._files = files
        read_state = recorded(state)
        if read_state is None:
            return
        shape, headers = read_state
        there = set(files.names(folder))
        if not there.isdisjoint(headers):
            for name, header in headers.items():
                # A missing file is no fault if its records are gone: retention removes them first.
                if name in there or header.end_offset >= log_begin():
                    counted = self._look(folder / name, shape, header, max(headers))
                    file = RecordedFile(files, folder / name, shape, header, counted=counted)
                    self.files.append(file)

    def surplus(self) -> Finding | None:
        """A finding for entries without a record; call it if the log ends at the last persist."""
        for file in self.files:
            number, count = file.header.next_number, file.counted
            if file.is_ahead and self._offset(file, number) != file.header.end_offset:
                text = f"counts {count - 1} entries, but the log's records have {number - 1}"
                fault = _finding(file.path, _COUNT_AT, AHEAD, text, str(number), str(count))
                return replace(fault, is_leftover=True)
        return None

    def _offset(self, file: RecordedFile, number: int) -> int:
        """An entry's physical offset.

        After a crash RocketMQ enters the last record once more, so an equal offset is right.
        """
        data = self._files.read(file.path, file.position_of(number), ENTRY.size)
        return int(ENTRY.unpack(data)[1]) if len(data) == ENTRY.size else -1

    def _look(self, path: Path, shape: Shape, header: Header, newest: str) -> int:
        """The next entry's number in the file's own header; 0 if it cannot be read."""
        kind = self._files.kind(path)
        if kind not in ("", REGULAR):
            text = f"{kind}, not {REGULAR}"
            self.found.append(_finding(path, 0, UNREADABLE, text, REGULAR, kind))
            return 0
        size = self._files.size(path)
        if size != shape.file_bytes:
            text = f"{size} bytes long instead of {shape.file_bytes}"
            wrong = _finding(path, 0, UNREADABLE, text, str(shape.file_bytes), str(size))
            self.found.append(wrong)
            return 0
        found = read_header(self._files, path)
        has_grown = path.name == newest and header.can_become(found)
        if found == header or (has_grown and found.next_number > header.next_number):
            return found.next_number
        # The header is torn or has changed.
        pairs = zip(HEADER.pack(*header), HEADER.pack(*found), strict=True)
        position = next(at for at, (right, wrong) in enumerate(pairs) if right != wrong)
        text = f"its header says {(*found,)}, but it was {(*header,)} at the last persist"
        self.found.append(_finding(path, position, HEAD, text, str((*header,)), str((*found,))))
        return found.next_number if has_grown else 0


def last_indexed(files: Files, folder: Path) -> int | None:
    """The physical offset of the last record in the index; None if there is no index."""
    name = max(files.names(folder), default="")
    return read_header(files, folder / name).end_offset if name else None


def _words(data: bytes) -> array[int]:
    words = array(_WORD, data)
    if sys.byteorder == "little":
        words.byteswap()
    return words


def _big_endian(numbers: array[int]) -> bytes:
    turned = numbers[:]
    if sys.byteorder == "little":
        turned.byteswap()
    return turned.tobytes()


def _finding(path: Path, position: int, what: str, text: str, expected: str, found: str) -> Finding:
    return Finding(path, position, what, text, expected, found, opening_mends=True)


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
