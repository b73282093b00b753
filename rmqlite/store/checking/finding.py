"""One inconsistency of a store: which file, which bytes, what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rmqlite.errors import StoreDamaged


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
    """What a crash leaves behind; opening the store puts it right, nothing else is needed."""

    def __str__(self) -> str:
        return f"{self.path} at byte {self.position}: {self.sentence}"


def from_error(error: StoreDamaged, what: str) -> Finding:
    """What an opening would be refused with."""
    return Finding(Path(error.path), error.position, what, str(error))
