"""A failed message as text: a dead letter, or a retry that its group will get again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rmqlite.features.dead_letters.requests import DeadLetter, DeadLetterFilter
from rmqlite.kernel.words.visible import printable
from rmqlite.views.counts import counted, times_text
from rmqlite.views.times import time_text

NO_REASON: Final = "no reason given"


def place_text(letter: DeadLetter) -> str:
    """GROUP:QUEUE:OFFSET, which never names another dead letter."""
    return f"{letter.group}:{letter.queue_id}:{letter.queue_offset}"


def origin_text(letter: DeadLetter) -> str:
    """The topic that a message comes from; empty if it is not known.

    "(claimed)": only the client that sent it to the group's retry topic says so.
    """
    if letter.claimed_topic:
        return f"{printable(letter.claimed_topic)} (claimed)"
    return printable(letter.origin_topic)


def reason_line(reason: str) -> str:
    """The first line of a reason; a stack trace is for peek."""
    first, _, more = reason.strip().partition("\n")
    return f"{printable(first.strip())}{' …' if more else ''}" or NO_REASON


def redriven_text(letter: DeadLetter) -> str:
    """The redrives of a dead letter; empty for none."""
    parts = []
    if letter.redriven_by:
        parts.append(f"redriven by job {letter.redriven_by}")
    if letter.redriven_before:
        times = times_text(letter.redriven_before)
        parts.append(f"had been redriven {times} before it died")
    return printable(", ".join(parts))


def attempts_max(letter: DeadLetter, of_group: int | None) -> int | None:
    """The attempts before a message is dead; the sender's limit comes before the group's."""
    limit = letter.max_reconsume_times
    return of_group if limit is None else limit + 1


def attempt_text(letter: DeadLetter, of_group: int | None) -> str:
    """The next attempt of a retry: "3 of 17"; the first delivery was an attempt, too."""
    most = attempts_max(letter, of_group)
    return f"{letter.delivery_attempts + 1}{'' if most is None else f' of {most}'}"


def letters_text(count: int) -> str:
    return counted(count, "dead letter")


def filter_text(wanted: DeadLetterFilter) -> str:
    """A filter for a person: "topic orders, failed before …"; empty without a condition."""
    return ", ".join([f"{name} {value}" for name, value in filter_facts(wanted)])


def filter_facts(wanted: DeadLetterFilter) -> Iterator[tuple[str, str]]:
    """The conditions of a filter, by name."""
    if wanted.topic:
        yield "topic", wanted.topic
    if wanted.tag:
        yield "tag", wanted.tag
    if wanted.key:
        yield "key", wanted.key
    if wanted.reason:
        yield "reason with", repr(wanted.reason)
    if wanted.since_ms:
        yield "failed since", time_text(wanted.since_ms)
    if wanted.until_ms is not None:
        yield "failed before", time_text(wanted.until_ms)
    if wanted.ids:
        yield "id", " or ".join(wanted.ids)
    if wanted.failure_kind:
        yield "reasons of the kind", repr(wanted.failure_kind)
    if wanted.job_id:
        yield "sent by job", wanted.job_id
