"""The outcomes of a job's letters, one by one, read from the job's records.

A record's outcomes count only up to the beginning of the job's next record; so of a step that
a crash has torn, only the messages in the log count.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from rmqlite.broker.redrive.jobs import RedriveJobs, read_step
from rmqlite.broker.redrive.records import Step
from rmqlite.broker.steps import Steps
from rmqlite.errors import InvalidValue
from rmqlite.names import REDRIVE_JOBS_TOPIC
from rmqlite.records.record import tags_hash
from rmqlite.requests.redrive import (
    OUTCOMES_DEFAULT,
    OUTCOMES_MAX,
    OutcomesPage,
    OutcomesQuery,
    RedrivenLetter,
)
from rmqlite.store.message_store import MessageStore

PAGE_RECORDS_MAX: Final = 100
"""Records that one page reads at most; then it is answered, full or not."""
_ENTRIES_AT_ONCE: Final = 512
_NUMBER_DIGITS_MAX: Final = 19


def page_of(store: MessageStore, jobs: RedriveJobs, query: OutcomesQuery) -> Steps[OutcomesPage]:
    """The next outcomes, in steps: other calls may run at every yield.

    Raises JobUnknown, InvalidValue, StoreUnavailable.
    """
    kept = jobs.get(query.job_id)
    limit = query.max_letters or OUTCOMES_DEFAULT
    if not 1 <= limit <= OUTCOMES_MAX:
        rule = f"0 for the default, {OUTCOMES_DEFAULT}, or 1 to {OUTCOMES_MAX}"
        raise InvalidValue("max_letters", query.max_letters, rule)
    first, skipped = _read_cursor(query.cursor)
    letters: list[RedrivenLetter] = []
    steps = _steps(store, jobs, query.job_id, first)
    step = next(steps, None)
    records = 0
    while step is not None:
        place, told = step
        step = next(steps, None)
        upto = step[1].begin if step else kept.at
        runs = [
            run for run in told.before(upto) if not query.outcomes or run.outcome in query.outcomes
        ]
        begin = skipped if place == first else 0
        found = list(islice(told.letters(runs), begin, begin + limit - len(letters) + 1))
        if len(letters) + len(found) > limit:
            taken = limit - len(letters)
            return OutcomesPage((*letters, *found[:taken]), f"{place}.{begin + taken}")
        letters += found
        records += 1
        if records == PAGE_RECORDS_MAX and step is not None:
            return OutcomesPage(tuple(letters), f"{step[0]}.0")
        yield
    return OutcomesPage(tuple(letters))


def _steps(
    store: MessageStore, jobs: RedriveJobs, job_id: str, first: int
) -> Iterator[tuple[int, Step]]:
    """A job's records with their queue offsets, from queue offset `first` on."""
    queue = store.queue(REDRIVE_JOBS_TOPIC, 0)
    if queue is None:
        return
    records = jobs.records_of(job_id)
    code = tags_hash(job_id)
    begin = max(first, records.first, queue.min_offset)
    for start in range(begin, records.last + 1, _ENTRIES_AT_ONCE):
        entries = queue.read(start, min(_ENTRIES_AT_ONCE, records.last + 1 - start))
        for queue_offset, entry in enumerate(entries, start):
            if entry.tags_code != code:
                continue
            (walked,) = store.read_records([entry])
            step = walked and read_step(walked)
            if step and step.kept.job.job_id == job_id:
                yield queue_offset, step


def _read_cursor(text: str) -> tuple[int, int]:
    """The queue offset of a record, and the number of its outcomes on earlier pages."""
    if not text:
        return 0, 0
    parts = text.split(".")
    if len(parts) != 2 or not all(
        part.isascii() and part.isdigit() and len(part) <= _NUMBER_DIGITS_MAX for part in parts
    ):
        raise InvalidValue("cursor", text, "the cursor of the previous page, or empty")
    return int(parts[0]), int(parts[1])
