"""One inconsistency of a store: which file, which bytes, what is wrong; and what all come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rmqlite.errors import StoreDamaged


class Verdict(StrEnum):
    """What a check comes to."""

    SOUND = "sound"
    NOT_CLOSED = "not-closed"
    """Its process was killed: the next start completes the store, and no message is lost."""
    INCONSISTENT = "inconsistent"


def verdict(found: Sequence[Finding], *, is_closed: bool) -> Verdict:
    """found: all that a check has found.  is_closed: else leftovers are what is to be expected."""
    if is_closed:
        return Verdict.INCONSISTENT if found else Verdict.SOUND
    is_sound = all(each.is_leftover for each in found)
    return Verdict.NOT_CLOSED if is_sound else Verdict.INCONSISTENT


@dataclass(frozen=True, slots=True)
class Finding:
    """position: a byte of the file, 0 where all of it is meant.

    what: a stable code for programs.  expected, found: where there is one of each.  size: how
    many bytes from the position on are concerned, 0 when that is not known.
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
    """How many wrong entries, one behind the other, are told as one."""
    is_leftover: bool = False
    """A killed process leaves this: no message is lost, and opening the store completes it."""

    def __str__(self) -> str:
        return f"{self.path} at byte {self.position}: {self.sentence}"


def from_error(error: StoreDamaged, what: str) -> Finding:
    """What an opening would be refused with."""
    return Finding(Path(error.path), error.position, what, str(error))
