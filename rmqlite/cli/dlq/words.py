"""How a dead letter is spoken of: where it lies, when it failed, why."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Final

from rmqlite.cli.status import span_text
from rmqlite.cli.terminal import printable, time_text
from rmqlite.letter_requests import Letter
from rmqlite.names import DLQ_PREFIX

NOT_ALL: Final = 1
"""The exit code when nothing was found, or not all was done."""
_PLACE: Final = re.compile(rf"(?:{DLQ_PREFIX})?([%|a-zA-Z0-9_-]+):([0-9]{{1,9}}):([0-9]{{1,18}})")


def place_text(letter: Letter) -> str:
    """GROUP:QUEUE:OFFSET, which names a dead letter for good."""
    return f"{letter.group}:{letter.queue_id}:{letter.queue_offset}"


def parse_place(text: str) -> tuple[str, int, int] | None:
    """The inverse, also of what the property REDRIVEN_FROM says; None for what is no place."""
    found = _PLACE.fullmatch(text)
    return (found[1], int(found[2]), int(found[3])) if found else None


def second_text(timestamp_ms: int) -> str:
    """A moment in local time to the second; "-" for never."""
    return time_text(timestamp_ms).partition(".")[0]


def age_text(timestamp_ms: int, now_ms: int) -> str:
    """How long ago: "5m 3s ago", "just now"; "-" for never."""
    if not timestamp_ms:
        return "-"
    age_ms = now_ms - timestamp_ms
    return f"{span_text(age_ms)} ago" if age_ms >= 1_000 else "just now"


def reason_line(reason: str) -> str:
    """The first line of a reason; a stack trace is for peek."""
    first, _, more = reason.strip().partition("\n")
    return f"{printable(first.strip())}{' …' if more else ''}" or "no reason given"


def redriven_text(letter: Letter) -> str:
    """What redrives have had to do with it; empty for none."""
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
    """Its fields, and the two names that a program can go on with."""
    names = {"place": place_text(letter), "offset_message_id": letter.offset_message_id}
    return dataclasses.asdict(letter) | names
