"""Why a client makes a change: one entry of the metadata of an Admin call of rmqlite.v1.

rmqlite-note-bin   text in UTF-8, one line of at most 500 characters
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.kernel.words.errors import InvalidValue

NOTE: Final = "rmqlite-note-bin"
"""gRPC takes any bytes for a name that ends so, but only ASCII for others."""


def note_metadata(note: str) -> tuple[tuple[str, bytes], ...]:
    """The entry for a note; none without one."""
    return ((NOTE, note.encode()),) if note else ()


def read_note(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """The note in a call's metadata, which is not checked yet.  Raises InvalidValue."""
    for key, value in metadata:
        if key == NOTE and isinstance(value, bytes):
            try:
                return value.decode()
            except UnicodeDecodeError as error:
                raise InvalidValue(NOTE, f"{len(value)} bytes", "text in UTF-8") from error
    return ""
