"""The entry of a record in its consume queue.

It has 20 bytes (reference §2.1): i64 physical offset, i32 size, i64 tags code.  Where messages
wait, the tags code is the time at which the message is due.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

ENTRY: Final = struct.Struct(">qiq")
ENTRY_BYTES: Final = ENTRY.size
PRE_BLANK: Final = ENTRY.pack(0, 0x7FFFFFFF, 0)
"""Fills the first file before the first entry, if that is not the file's first place."""


class Entry(NamedTuple):
    """tags_code: hash of the tags; in a schedule queue the deliver time, milliseconds."""

    physical_offset: int
    size: int
    tags_code: int
