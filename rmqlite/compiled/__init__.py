"""The compiled form of the hottest loops, if this installation has it.

pip compiles the C beside this file where it finds a compiler, and does without elsewhere.  Each
loop has a plain Python form, which also does the work wherever the compiled form returns None:
for everything that is out of the ordinary, and for everything that is refused.  Both forms make
the same bytes and the same values.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

INTERFACE: Final = 17
"""Counts the changes of _loops.pyi; a library that was built before the last is not used."""
SPAN: Final = Struct("=5i")
"""A message of a batch: its flag; where its body begins and ends, and its property string."""
ROW: Final = Struct("=IIq")
"""A packed record: its length, the number of its queue, and its tags code or a timer's due time."""
KEY: Final = Struct("=II")
"""A key of a packed record: the hash under which the index has it, and the record's number."""

try:
    from rmqlite.compiled import _loops

    loops = _loops
    is_on = loops.INTERFACE == INTERFACE
except ImportError:
    is_on = False


def form() -> str:
    """Which form runs: compiled or plain."""
    return "compiled" if is_on else "plain"
