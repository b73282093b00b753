"""The preview of a redrive, page by page: it judges the letters as a job does.

It changes nothing, and the broker remembers nothing between two pages: the cursor has the
ranges of letters at the first page, and the position behind the last one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Final

from rmqlite.broker.redrive.judge import Judged
from rmqlite.broker.redrive.records import At, JobProgress, QueuePart
from rmqlite.broker.steps import Steps
from rmqlite.errors import InvalidValue
from rmqlite.requests.redrive import (
    GROUPS_NAMED_MAX,
    SAMPLES_MAX,
    RedrivenLetter,
    RedriveOutcome,
    RedrivePreview,
    TopicCount,
)

PAGE_SLICES_MAX: Final = 40
"""Slices of one page, about 0.1 s, so that the caller sees progress."""
_CURSOR: Final = re.compile(r"[0-9]{1,9}\.[0-9]{1,17}(?:_[0-9]{1,9}\.[0-9]{1,17}\.[0-9]{1,17})+")
Look = Callable[[JobProgress], tuple[At, list[Judged]]]
"""The next slice of letters: the position behind it, and the letters that match."""
ReadersOf = Callable[[str], tuple[str, ...]]
"""The names of the groups that get the messages of a topic."""


def preview(kept: JobProgress, look: Look, readers_of: ReadersOf) -> Steps[RedrivePreview]:
    """The next page for a job that was not started, in steps: other calls may run at a yield.

    Raises StoreUnavailable.
    """
    began = kept.job.looked_at
    counts = Counter[RedriveOutcome]()
    topics = Counter[str]()
    samples: dict[bool, list[RedrivenLetter]] = {True: [], False: []}
    for _ in range(PAGE_SLICES_MAX):
        if kept.at.part == len(kept.parts):
            break
        queue_id = kept.parts[kept.at.part].queue_id
        at, letters = look(kept)
        for each in letters:
            counts[each.outcome] += 1
            if each.outcome is RedriveOutcome.SENT:
                topics[each.topic] += 1
            chosen = samples[each.outcome is RedriveOutcome.REFUSED]
            if len(chosen) < SAMPLES_MAX:
                chosen.append(
                    RedrivenLetter(queue_id, *each[:2], each.topic, each.message_id, each.why)
                )
        kept = kept.moved(at)
        yield
    return RedrivePreview(
        letters=kept.job.letters,
        looked_at=kept.job.looked_at - began,
        sent=counts[RedriveOutcome.SENT],
        already=counts[RedriveOutcome.ALREADY],
        refused=counts[RedriveOutcome.REFUSED],
        topics=with_groups(topics, readers_of),
        samples=tuple([*samples[True], *samples[False]][:SAMPLES_MAX]),
        cursor=cursor_text(kept) if kept.at.part < len(kept.parts) else "",
    )


def with_groups(topics: Counter[str], readers_of: ReadersOf) -> tuple[TopicCount, ...]:
    """The numbers of messages to each topic, the most first, and the groups that get them."""
    found, room = [], GROUPS_NAMED_MAX
    for topic, count in topics.most_common():
        groups = readers_of(topic)
        named = groups[:room]
        room -= len(named)
        found.append(TopicCount(topic, count, named, len(groups) - len(named)))
    return tuple(found)


def cursor_text(kept: JobProgress) -> str:
    """A preview's position and ranges of letters as text."""
    return "_".join(".".join(map(str, each)) for each in (kept.at, *kept.parts))


def read_cursor(text: str) -> tuple[At, tuple[QueuePart, ...]]:
    """The inverse of cursor_text().  Raises InvalidValue."""
    if _CURSOR.fullmatch(text):
        told, *queues = [tuple(map(int, each.split("."))) for each in text.split("_")]
        at, parts = At(*told), tuple([QueuePart(*each) for each in queues])
        if at.part < len(parts):
            part = parts[at.part]
            if part.begin <= at.queue_offset <= part.end:
                return at, parts
    raise InvalidValue("cursor", text, "the cursor of the previous page, or empty")
