"""A dead letter as text: its place, why it failed, and how often it was redriven."""

from __future__ import annotations

import dataclasses
from typing import Any

from rmqlite.cli.output.terminal import printable
from rmqlite.requests.dead_letters import DeadLetter


def place_text(letter: DeadLetter) -> str:
    """GROUP:QUEUE:OFFSET, which never names another dead letter."""
    return f"{letter.group}:{letter.queue_id}:{letter.queue_offset}"


def reason_line(reason: str) -> str:
    """The first line of a reason; a stack trace is for peek."""
    first, _, more = reason.strip().partition("\n")
    return f"{printable(first.strip())}{' …' if more else ''}" or "no reason given"


def redriven_text(letter: DeadLetter) -> str:
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


def letter_tree(letter: DeadLetter) -> dict[str, Any]:
    """A letter's fields, and two names that a program can pass to other commands."""
    names = {"place": place_text(letter), "offset_message_id": letter.offset_message_id}
    return dataclasses.asdict(letter) | names
