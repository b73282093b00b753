"""The key index up to the last persist: files, headers, entries, chains, slots.

storeProgress.json records the state of the index.  Opening removes everything behind that
state, so a check ignores it.  The recorded entries are read in order, and the chains are
computed again on the way: each entry names the one before it in its slot.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.regular_file import REGULAR
from rmqlite.kernel.store.index_file import ENTRY, HEADER, SLOT, Header, Shape, read_header
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
