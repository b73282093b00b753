"""One inconsistency of a store, with file and bytes; and the verdict over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rmqlite.errors import StoreDamaged


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
