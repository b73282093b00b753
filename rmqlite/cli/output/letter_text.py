"""A dead letter as text: its place, why it failed, and how often it was redriven."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Final

from rmqlite.cli.output.terminal import printable
from rmqlite.names import DLQ_PREFIX
from rmqlite.requests.letters import Letter

_PLACE: Final = re.compile(rf"(?:{DLQ_PREFIX})?([%|a-zA-Z0-9_-]+):([0-9]{{1,9}}):([0-9]{{1,18}})")


def place_text(letter: Letter) -> str:
    """GROUP:QUEUE:OFFSET, which never names another dead letter."""
    return f"{letter.group}:{letter.queue_id}:{letter.queue_offset}"


def parse_place(text: str) -> tuple[str, int, int] | None:
    """The inverse, also for the property REDRIVEN_FROM; None for any other text."""
    found = _PLACE.fullmatch(text)
    return (found[1], int(found[2]), int(found[3])) if found else None


def reason_line(reason: str) -> str:
    """The first line of a reason; a stack trace is for peek."""
    first, _, more = reason.strip().partition("\n")
    return f"{printable(first.strip())}{' …' if more else ''}" or "no reason given"


def redriven_text(letter: Letter) -> str:
    """The redrives of a letter; empty for none."""
    parts = []
    if letter.redriven_by:
        parts.append(f"redriven by job {letter.redriven_by}")
    if letter.redriven_before:
        times = "once" if letter.redriven_before == 1 else f"{letter.redriven_before:,} times"
        parts.append(f"had been redriven {times} before it died")
    return printable(", ".join(parts))


def letters_text(count: int) -> str:
    return f"{count:,} dead {'letter' if count == 1 else 'letters'}"


def letter_tree(letter: Letter) -> dict[str, Any]:
    """A letter's fields, and two names that a program can pass to other commands."""
    names = {"place": place_text(letter), "offset_message_id": letter.offset_message_id}
    return dataclasses.asdict(letter) | names
