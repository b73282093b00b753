"""One file of the key index, as RocketMQ lays it out (reference §2.3), all big-endian:

     0  begin timestamp i64, end timestamp i64, begin physical offset i64, end physical
        offset i64, slots in use i32, number of the next entry i32
    40  slots    i32 each: number of the slot's newest entry, 0 for none
        entries  hash of the key i32, physical offset i64, seconds since begin i32, number
                 of the slot's entry before i32; number 0 is never used

Entries and slots change in memory; a Part holds the changes that are not on disk yet, for
another thread to write.  An entry and a header that counts it are on disk before a slot
points at it, so that a file can return to an earlier header after any crash.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from rmqlite.kernel.compiled import in_c
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.words.limits import INT32_MAX, INT64_MAX

HEADER: Final = struct.Struct(">qqqqii")
SLOT: Final = struct.Struct(">I")
ENTRY: Final = struct.Struct(">iqii")
INDEX_NAME_DIGITS: Final = 17
"""A file is named after the local time to the millisecond at which it was made."""
SECONDS_MAX: Final = INT32_MAX
"""The largest number of seconds; a later entry gets this one, too."""
PAGE_BYTES: Final = 4096
"""Bytes that are written when one slot has changed."""
_RUN_PAGES_MAX: Final = 64
_READ_BYTES: Final = 1 << 20
_SLOTS_AT: Final = HEADER.size
_SLOT_BYTES: Final = SLOT.size
_ENTRY_BYTES: Final = ENTRY.size
_get_slot = SLOT.unpack_from
_set_slot = SLOT.pack_into
_pack_entry = ENTRY.pack


class Shape(NamedTuple):
    """RocketMQ's maxHashSlotNum and maxIndexNum."""

    slots: int
    entries: int

    @property
    def entries_at(self) -> int:
        return _SLOTS_AT + _SLOT_BYTES * self.slots

    @property
    def file_bytes(self) -> int:
        return self.entries_at + _ENTRY_BYTES * self.entries


class Header(NamedTuple):
    """The header of an index file; the number of its first entry is 1."""

    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int
    used_slots: int
    next_number: int

    def can_become(self, later: Header) -> bool:
        """Is `later` of the same file, with as many entries or more?

        This holds for a torn header, too.
        """
        begin = (self.begin_ms, self.begin_offset)
        same_begin = begin == (later.begin_ms, later.begin_offset)
        return same_begin and self.next_number <= later.next_number


class IndexEntry(NamedTuple):
    """One entry, for the checker; seconds: since its file's begin_ms."""

    path: Path
    number: int
    key_hash: int
    physical_offset: int
    seconds: int
    previous: int


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Changes to write to one file; create_bytes: its length, 0 if the file exists."""

    path: Path
    create_bytes: int
    header: Header
    entries_position: int
    entries: bytes
    image: bytearray
    pages: frozenset[int]
    kept: dict[int, bytearray]
    """Copies of pages that changed since the Part was made, as they were then."""

    def write_entries(self, files: Files) -> None:
        if self.create_bytes:
            files.make_folder(self.path.parent)
            files.create(self.path, self.create_bytes)
        files.write(self.path, self.entries_position, self.entries)
        # Count before slots: RocketMQ treats a slot that points beyond the count as empty.
        files.write(self.path, 0, HEADER.pack(*self.header))

    def write_slots(self, files: Files) -> None:
        for run in _runs(self.pages):
            pieces = []
            for page in run:
                now = _page(self.image, page)
                # Copy first, then look in kept: the other thread stores a page there before
                # it changes the page.
                pieces.append(self.kept.get(page, now))
            files.write(self.path, _page_position(run[0]), b"".join(pieces))


class IndexFile:
    """An index file; one thread uses it, another may write its Parts."""

    __slots__ = (
        "_dirty",
        "_files",
        "_frozen",
        "_image",
        "_is_made",
        "_kept",
        "_shape",
        "_slots",
        "_tail",
        "_written",
        "begin_ms",
        "begin_offset",
        "end_ms",
        "end_offset",
        "next_number",
        "path",
        "used_slots",
    )

    def __init__(
        self, files: Files, path: Path, shape: Shape, header: Header, *, is_made: bool = True
    ) -> None:
        """is_made: the file exists and has this header."""
        self.path = path
        (
            self.begin_ms,
            self.end_ms,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            self.next_number,
        ) = header
        self._files = files
        self._shape = shape
        self._slots = shape.slots
        self._is_made = is_made
        self._written = header.next_number  # entries below are on disk, later ones in the tail
        self._tail = bytearray()
        # The bytes before the entries, while slots change; the header's bytes are unused.
        self._image = bytearray() if is_made else bytearray(shape.entries_at)
        self._dirty: set[int] = set()  # pages that changed since the last Part
        self._frozen: frozenset[int] = frozenset()  # pages of the last Part, while it may run
        self._kept: dict[int, bytearray] = {}

    @property
    def header(self) -> Header:
        return Header(
            self.begin_ms,
            self.end_ms,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            self.next_number,
        )

    @property
    def is_flushed(self) -> bool:
        return self._is_made and not self._tail and not self._dirty and not self._frozen

    # ---- writing

    def enter(
        self, hashes: Sequence[int], physical_offsets: Sequence[int], times_ms: Sequence[int]
    ) -> None:
        """Add an entry for each key; the file must have room, and its slots be in memory."""
        entries, used = enter_keys(
            self._image,
            hashes,
            physical_offsets,
            times_ms,
            self._slots,
            self.begin_ms,
            self.next_number,
            self._dirty,
            self._touch,
        )
        self._tail += entries
        self.used_slots += used
        self.next_number += len(hashes)
        self.end_ms = times_ms[-1]
        self.end_offset = physical_offsets[-1]

    def begin_flush(self) -> FileChanges | None:
        """The changes to write; None if there are none.

        Without a call of flushed(), it repeats the earlier Part, which must not run any more.
        """
        if self.is_flushed:
            return None
        self._frozen |= self._dirty
        self._dirty.clear()
        self._kept = {}
        return FileChanges(
            self.path,
            0 if self._is_made else self._shape.file_bytes,
            self.header,
            self._shape.entries_at + _ENTRY_BYTES * self._written,
            bytes(self._tail),
            self._image,
            self._frozen,
            self._kept,
        )

    def flushed(self, part: FileChanges) -> None:
        """Note that the last Part is on disk."""
        self._is_made = True
        del self._tail[: len(part.entries)]
        self._written = part.header.next_number
        self._frozen = frozenset()
        self._kept = {}
        if self.is_flushed and self.next_number >= self._shape.entries:
            self._image = bytearray()

    def load_slots(self) -> None:
        """Read the slots from the file, so that enter() may follow."""
        end = self._shape.entries_at
        self._image = bytearray(end)
        at = self._files.next_data(self.path, 0)
        while at < end:
            data = self._files.read(self.path, at, min(_READ_BYTES, end - at))
            self._image[at : at + len(data)] = data
            at = self._files.next_data(self.path, at + len(data))

    def take_back(self) -> None:
        """Remove the entries behind the header's count; durable on return."""
        image = self._image
        pages = set()
        for slot, (number,) in enumerate(SLOT.iter_unpack(bytes(image[_SLOTS_AT:]))):
            if number >= self.next_number:
                position = _SLOTS_AT + _SLOT_BYTES * slot
                _set_slot(image, position, self._counted(number))
                pages.add(position // PAGE_BYTES)
        for run in _runs(pages):
            data = b"".join(_page(image, page) for page in run)
            self._files.write(self.path, _page_position(run[0]), data)
        self._files.sync(self.path)
        # Header last: it must not be right before the slots are.
        self._files.write(self.path, 0, HEADER.pack(*self.header))
        self._files.sync(self.path)
        self._files.cut(self.path, self._shape.entries_at + _ENTRY_BYTES * self.next_number)

    def _touch(self, page: int) -> None:
        if page in self._frozen:
            self._kept[page] = _page(self._image, page)
        self._dirty.add(page)

    # ---- reading

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Physical offsets under a hash that may lie in the range of times, newest first."""
        position = _SLOTS_AT + _SLOT_BYTES * (key_hash % self._shape.slots)
        if self._image:
            (number,) = _get_slot(self._image, position)
        else:
            (number,) = SLOT.unpack(self._files.read(self.path, position, _SLOT_BYTES))
        number = self._counted(number)
        while number:
            found, physical_offset, seconds, previous = self._entry(number)
            # RocketMQ counts the first entry's seconds from the end of the previous file.
            first_ms = self.begin_ms + 1000 * (0 if number == 1 else seconds)
            if first_ms + 999 < begin_ms and seconds < SECONDS_MAX:
                return
            # 0 seconds: as old as the first entry, or older because the clock went back.
            if found == key_hash and (first_ms <= end_ms or not seconds):
                yield physical_offset
            number = previous if 0 < previous < number else 0

    def find_any(
        self, hashes: Sequence[int], begin_ms: int, min_offset: int
    ) -> Iterator[tuple[int, int]]:
        """Entries of any of the hashes since begin_ms and min_offset: (ordinal, physical offset).

        This is for very many hashes, nearly all of them new: one with an empty slot takes
        0.3 µs, where find() takes 1.5.
        """
        image, slots = self._image, self._slots
        for at, key_hash in enumerate(hashes):
            if image:
                (number,) = _get_slot(image, _SLOTS_AT + _SLOT_BYTES * (key_hash % slots))
                if not number:
                    continue
            for physical_offset in self.find(key_hash, begin_ms, INT64_MAX):
                if physical_offset < min_offset:
                    break
                yield at, physical_offset

    def entries(self) -> Iterator[IndexEntry]:
        """The entries on disk, in the order of the log."""
        step = _READ_BYTES // _ENTRY_BYTES
        for first in range(1, self._written, step):
            count = min(step, self._written - first)
            position = self._shape.entries_at + _ENTRY_BYTES * first
            data = self._files.read(self.path, position, _ENTRY_BYTES * count)
            for number, entry in enumerate(ENTRY.iter_unpack(data), first):
                yield IndexEntry(self.path, number, *entry)

    def _counted(self, number: int) -> int:
        """The entry that a slot points at; from one beyond the count, its chain leads there."""
        while self.next_number <= number < self._shape.entries:
            previous = self._entry(number)[3]
            number = previous if previous < number else 0
        return number if 0 < number < self.next_number else 0

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        if self._written <= number < self.next_number:
            return ENTRY.unpack_from(self._tail, _ENTRY_BYTES * (number - self._written))
        position = self._shape.entries_at + _ENTRY_BYTES * number
        return ENTRY.unpack(self._files.read(self.path, position, _ENTRY_BYTES))


def read_header(files: Files, path: Path) -> Header:
    header = Header(*HEADER.unpack(files.read(path, 0, HEADER.size)))
    # RocketMQ writes no header before the first entry.
    return header if header.next_number else header._replace(next_number=1)


def _page_position(page: int) -> int:
    """The position at which the slots of a page begin."""
    return max(_SLOTS_AT, page * PAGE_BYTES)


def _page(image: bytearray, page: int) -> bytearray:
    return image[_page_position(page) : (page + 1) * PAGE_BYTES]


def _runs(pages: Iterable[int]) -> Iterator[list[int]]:
    """Groups of successive pages, each written in one piece."""
    run: list[int] = []
    for page in sorted(pages):
        if run and (page != run[-1] + 1 or len(run) >= _RUN_PAGES_MAX):
            yield run
            run = []
        run.append(page)
    if run:
        yield run


@in_c
def enter_keys(
    image: bytearray,
    hashes: Sequence[int],
    places: Sequence[int],
    times: Sequence[int],
    slots: int,
    begin_ms: int,
    number: int,
    dirty: set[int],
    touch: Callable[[int], None],
) -> tuple[bytes, int]:
    """Write the numbers of new entries into the slots in an index file's image.

    hashes, places, times: of the keys; their physical offsets and timestamps.  number: of the first
    entry.  touch: is called for each page that changes and is not in dirty.  Returns the entries,
    and how many slots are no longer empty.  C takes a seventh of the time.
    """
    entries: list[bytes] = []
    last_ms, seconds, used = begin_ms, 0, 0
    for key_hash, place, timestamp_ms in zip(hashes, places, times, strict=True):
        if timestamp_ms != last_ms:
            last_ms = timestamp_ms
            seconds = min(max(0, (timestamp_ms - begin_ms) // 1000), SECONDS_MAX)
        position = _SLOTS_AT + _SLOT_BYTES * (key_hash % slots)
        page = position // PAGE_BYTES
        if page not in dirty:
            touch(page)
        (previous,) = _get_slot(image, position)
        used += not previous
        _set_slot(image, position, number)
        entries.append(_pack_entry(key_hash, place, seconds, previous))
        number += 1
    return b"".join(entries), used
