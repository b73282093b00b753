"""The pages of a redrive: its preview, and the outcomes of a job's dead letters, one by one.

A preview judges the dead letters as a job does and changes nothing.  The broker remembers nothing
between two pages: a preview's cursor has the ranges of dead letters at the first page, and the
position behind the last one.

Outcomes are read from the job's records.  A record's outcomes count only up to the beginning of
the job's next record; so of a step that a crash has torn, only the messages in the log count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from rmqlite.broker.redrive.jobs import RedriveJobs
from rmqlite.broker.redrive.judge import Judged
from rmqlite.broker.redrive.records import At, JobProgress, QueuePart, Step
from rmqlite.broker.steps import Steps
from rmqlite.errors import InvalidValue
from rmqlite.names import REDRIVE_JOBS_TOPIC
from rmqlite.records.record import tags_hash
from rmqlite.requests.redrive import (
    GROUPS_NAMED_MAX,
    OUTCOMES_DEFAULT,
    OUTCOMES_MAX,
    SAMPLES_MAX,
    DeadLetterOutcome,
    OutcomesPage,
    OutcomesQuery,
    RedriveOutcome,
    RedrivePreview,
    TopicCount,
)
from rmqlite.store.message_store import MessageStore

PAGE_RECORDS_MAX: Final = 100
"""Records that one page reads at most; then it is answered, full or not."""
_ENTRIES_AT_ONCE: Final = 512
_PLACE: Final = re.compile(r"[0-9]{1,19}\.[0-9]{1,19}")
_CURSOR_RULE: Final = "the cursor of the previous page, or empty"
PAGE_SLICES_MAX: Final = 40
"""Slices of one page, about 0.1 s, so that the caller sees progress."""
_CURSOR: Final = re.compile(r"[0-9]{1,9}\.[0-9]{1,17}(?:_[0-9]{1,9}\.[0-9]{1,17}\.[0-9]{1,17})+")
Look = Callable[[JobProgress], tuple[At, list[Judged]]]
"""The next slice of letters: the position behind it, and the dead letters that match."""
ReadersOf = Callable[[str], tuple[str, ...]]
"""The names of the groups that get the messages of a topic."""


def page_of(store: MessageStore, jobs: RedriveJobs, query: OutcomesQuery) -> Steps[OutcomesPage]:
    """The next outcomes, in steps: other calls may run at every yield.

    Raises JobUnknown, InvalidValue, StoreUnavailable.
    """
    progress = jobs.get(query.job_id)
    limit = query.max_letters or OUTCOMES_DEFAULT
    if not 1 <= limit <= OUTCOMES_MAX:
        rule = f"0 for the default, {OUTCOMES_DEFAULT}, or 1 to {OUTCOMES_MAX}"
        raise InvalidValue("max_letters", query.max_letters, rule)
    first, skipped = _read_cursor(query.cursor)
    dead_letters: list[DeadLetterOutcome] = []
    steps = _steps(store, jobs, query.job_id, first)
    step = next(steps, None)
    records = 0
    while step is not None:
        place, done = step
        step = next(steps, None)
        upto = step[1].begin if step else progress.at
        runs = [
            run for run in done.before(upto) if not query.outcomes or run.outcome in query.outcomes
        ]
        begin = skipped if place == first else 0
        found = list(islice(done.dead_letters(runs), begin, begin + limit - len(dead_letters) + 1))
        if len(dead_letters) + len(found) > limit:
            taken = limit - len(dead_letters)
            return OutcomesPage((*dead_letters, *found[:taken]), f"{place}.{begin + taken}")
        dead_letters += found
        records += 1
        if records == PAGE_RECORDS_MAX and step is not None:
            return OutcomesPage(tuple(dead_letters), f"{step[0]}.0")
        yield
    return OutcomesPage(tuple(dead_letters))


def _steps(
    store: MessageStore, jobs: RedriveJobs, job_id: str, first: int
) -> Iterator[tuple[int, Step]]:
    """A job's records with their queue offsets, from queue offset `first` on."""
    queue = store.queue(REDRIVE_JOBS_TOPIC, 0)
    if queue is None:
        return
    records = jobs.records_of(job_id)
    code = tags_hash(job_id)
    begin = max(first, records.start, queue.min_offset)
    for start in range(begin, records.stop, _ENTRIES_AT_ONCE):
        entries = queue.read(start, min(_ENTRIES_AT_ONCE, records.stop - start))
        for queue_offset, entry in enumerate(entries, start):
            if entry.tags_code != code:
                continue
            (walked,) = store.read_records([entry])
            step = walked and jobs.step_in(walked)
            if step and step.progress.job.job_id == job_id:
                yield queue_offset, step


def _read_cursor(text: str) -> tuple[int, int]:
    """The queue offset of a record, and the number of its outcomes on earlier pages."""
    if not text:
        return 0, 0
    if not _PLACE.fullmatch(text):
        raise InvalidValue("cursor", text, _CURSOR_RULE)
    place, skipped = map(int, text.split("."))
    return place, skipped


def preview(progress: JobProgress, look: Look, readers_of: ReadersOf) -> Steps[RedrivePreview]:
    """The next page for a job that was not started, in steps: other calls may run at a yield.

    Raises StoreUnavailable.
    """
    began = progress.job.looked_at
    counts = Counter[RedriveOutcome]()
    topics = Counter[str]()
    samples: dict[bool, list[DeadLetterOutcome]] = {True: [], False: []}
    for _ in range(PAGE_SLICES_MAX):
        if progress.at.part == len(progress.parts):
            break
        queue_id = progress.parts[progress.at.part].queue_id
        at, dead_letters = look(progress)
        for each in dead_letters:
            counts[each.outcome] += 1
            if each.outcome is RedriveOutcome.SENT:
                topics[each.topic] += 1
            chosen = samples[each.outcome is RedriveOutcome.REFUSED]
            if len(chosen) < SAMPLES_MAX:
                chosen.append(each.shown(queue_id))
        progress = progress.moved(at)
        yield
    return RedrivePreview(
        letters=progress.job.letters,
        looked_at=progress.job.looked_at - began,
        sent=counts[RedriveOutcome.SENT],
        already=counts[RedriveOutcome.ALREADY],
        refused=counts[RedriveOutcome.REFUSED],
        topics=with_groups(topics, readers_of),
        samples=tuple([*samples[True], *samples[False]][:SAMPLES_MAX]),
        cursor=cursor_text(progress) if progress.at.part < len(progress.parts) else "",
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


def cursor_text(progress: JobProgress) -> str:
    """A preview's position and ranges of dead letters as text."""
    return "_".join(".".join(map(str, each)) for each in (progress.at, *progress.parts))


def read_cursor(text: str) -> tuple[At, tuple[QueuePart, ...]]:
    """The inverse of cursor_text().  Raises InvalidValue."""
    if _CURSOR.fullmatch(text):
        position, *queues = [tuple(map(int, each.split("."))) for each in text.split("_")]
        at, parts = At(*position), tuple([QueuePart(*each) for each in queues])
        if at.part < len(parts):
            part = parts[at.part]
            if part.begin <= at.queue_offset <= part.end:
                return at, parts
    raise InvalidValue("cursor", text, _CURSOR_RULE)
