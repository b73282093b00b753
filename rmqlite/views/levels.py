"""Delay levels, and beside them the timers, as a person reads them.

A level of -1 stands for the timers: messages that wait for an instant of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

TIMER: Final = "timer"


def level_text(level: int) -> str:
    """In a column of levels: "3", "timer"."""
    return TIMER if level < 0 else str(level)


def level_name(level: int) -> str:
    """In a sentence: "level 3", "timer"."""
    return TIMER if level < 0 else f"level {level}"


def waiting_text(level: int) -> str:
    """One that waits: "a message of level 3", "a timer"; 0: "an open half message"."""
    if level <= 0:
        return f"a {TIMER}" if level else "an open half message"
    return f"a message of level {level}"


def levels_text(levels: Sequence[int]) -> str:
    """Several in a sentence: "level 3", "levels 3 and 5", "timers", "timers and level 3"."""
    numbers = [str(level) for level in levels if level > 0]
    parts = ["timers"] * (len(numbers) < len(levels))
    if numbers:
        parts.append(f"level{'s' * (len(numbers) > 1)} {' and '.join(numbers)}")
    return " and ".join(parts)


def delay_text(level: int, delay: str) -> str:
    """In a column of delays; delay: as the table spells it, empty if only an older table had it."""
    return "any" if level < 0 else delay or "(old)"
