"""One inconsistency of a store, with file and bytes; and the verdict over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from rmqlite.kernel.records import record
from rmqlite.kernel.records.record import BLANK_BYTES, Head
from rmqlite.kernel.store.commit_log import CommitLog
from rmqlite.kernel.words.errors import StoreDamaged


class Verdict(StrEnum):
    """The result of a check."""

    SOUND = "sound"
    NOT_CLOSED = "not-closed"
    """Its process was killed: the next start completes the store, and no message is lost."""
    INCONSISTENT = "inconsistent"


def verdict(found: Sequence[Finding], *, is_closed: bool) -> Verdict:
    """The verdict over all findings; is_closed=False: leftovers are to be expected."""
    if is_closed:
        return Verdict.INCONSISTENT if found else Verdict.SOUND
    is_sound = all(each.is_leftover for each in found)
    return Verdict.NOT_CLOSED if is_sound else Verdict.INCONSISTENT


@dataclass(frozen=True, slots=True)
class Finding:
    """One inconsistency; position: a byte of the file, 0 if the whole file is meant.

    what: a stable code for programs.  expected, found: the two values, if there are such.
    size: the number of wrong bytes from position on, 0 if unknown.
    """

    path: Path
    position: int
    what: str
    sentence: str
    expected: str = ""
    found: str = ""
    size: int = 0
    opening_mends: bool = False
    """Opening the store puts it right; nothing else is needed."""
    count: int = 1
    """The number of successive wrong entries in this finding."""
    is_leftover: bool = False
    """A killed process leaves this: no message is lost, and opening the store completes it."""

    def __str__(self) -> str:
        return f"{self.path} at byte {self.position}: {self.sentence}"


def from_error(error: StoreDamaged, what: str) -> Finding:
    """The finding for an error with which opening the store would fail."""
    return Finding(Path(error.path), error.position, what, str(error))


class Damage(NamedTuple):
    """Bytes from `begin` on that are no record; follows: where the next sound one begins.

    newest_timestamp_ms: of the records before.  was_on_disk: the bytes were synced; otherwise
    they were never acknowledged.
    """

    begin: int
    follows: int | None
    newest_timestamp_ms: int
    was_on_disk: bool


class Gap(NamedTuple):
    """A record whose queue offset is not the expected one.

    last_offset: physical offset of its queue's record before.
    """

    head: Head
    expected: int
    last_offset: int


def what_is_wrong(log: CommitLog, position: int) -> str:
    """A phrase for the bytes at a position where a record or a blank should be."""
    room = log.segment_bytes - position % log.segment_bytes
    data = log.read_raw(position, min(BLANK_BYTES, room))
    if len(data) < BLANK_BYTES:
        return "too few bytes for a record"
    size, magic = record.BLANK.unpack_from(data)
    if magic == record.BLANK_MAGIC:
        return f"a blank of {size} bytes where {room} are left"
    if magic != record.MAGIC:
        return f"neither a record nor a blank: {data[:8].hex(' ', 4)}"
    data = log.read_raw(position, min(size, room)) if size > 0 else b""
    head = record.read_head(data)
    if head is None:
        return f"a record of {size} bytes whose lengths do not add up"
    if head.physical_offset != position:
        return f"a record that says it is at {head.physical_offset}, not at {position}"
    if record.has_sound_body(head, data):
        return "a record whose properties are torn"
    return f"a record whose body does not fit its CRC {head.body_crc:#010x}"
