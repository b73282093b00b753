"""What an operator asks two brokers that have the same messages."""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType
from typing import Final

from rmqlite.features.rows import Row


@dataclass(frozen=True, slots=True)
class PromoteRequest:
    """Makes a standby the master; force: also if there is a living master."""

    force: bool = False


PROMOTE: Final = Row("Admin", "Promote", PromoteRequest, int)
"""Answers how many bytes of the master's log it lacks, as far as it knows."""
SWITCH: Final = Row("Admin", "Switch", NoneType, str)
"""Answers the address of the broker that is the master now."""
