"""What a user asks about redrives: a preview, the outcomes of a job, and its results.

A preview judges the dead letters as a job does and changes nothing.  The broker remembers nothing
between two pages: a preview's cursor has the ranges of dead letters at the first page, and the
position behind the last one.

Outcomes are read from the job's records.  A record's outcomes count only up to the beginning of
the job's next record; so of a step that a crash has torn, only the messages in the log count.

Results are what became of a job's messages in the group that failed, counted from the log.  A
message of the job has failed, and waits in the schedule; or it is not consumed yet; or it is a dead
letter again; all others the group has consumed.  The log and the committed offsets say all of that,
so the counts are the same after a crash.  A message moves on while this reads, so order matters:
the schedule, the queues, what the schedule got meanwhile, and the dead letters last.  One that is
found twice counts as dead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from rmqlite.features.cursors import CURSOR_RULE, cursor_text, read_cursor
from rmqlite.features.dead_letters.reading import property_slices
from rmqlite.features.finding.matching import redriven_from
from rmqlite.features.redrive.jobs import At, JobProgress, JobStep, QueuePart, RedriveJobs
from rmqlite.features.redrive.judge import Judged
from rmqlite.features.redrive.requests import (
    GROUPS_NAMED_MAX,
    OUTCOMES_DEFAULT,
    OUTCOMES_MAX,
    SAMPLES_MAX,
    DeadLetterOutcome,
    OutcomesPage,
    OutcomesQuery,
    ReadersOfTopic,
    RedriveJob,
    RedriveOutcome,
    RedrivePreview,
    RedriveResults,
    RedriveSpec,
)
from rmqlite.kernel import Steps
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.pulling import offset_at
from rmqlite.kernel.records.record import tags_hash
from rmqlite.kernel.records.wait_queues import queue_of
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.store.dispatch import QueueKey
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import REAL_TOPIC, REDRIVEN_BY, find_property, property_marker
from rmqlite.kernel.words.names import REDRIVE_JOBS_TOPIC, dlq_topic, is_system_group, retry_topic

PAGE_RECORDS_MAX: Final = 100
"""Records that one page reads at most; then it is answered, full or not."""
_ENTRIES_AT_ONCE: Final = 512
PAGE_SLICES_MAX: Final = 40
"""Slices of one page, about 0.1 s, so that the caller sees progress."""
Look = Callable[[JobProgress], tuple[At, list[Judged]]]
"""The next slice: the position behind it, and the dead letters that match."""
ReadersOf = Callable[[str], tuple[str, ...]]
"""The names of the groups that get the messages of a topic."""
LOOK_MAX: Final = 200_000
"""Records that one count reads at most, in two seconds; then it says that it is not complete."""
_BY: Final = property_marker(REDRIVEN_BY)
_REAL_TOPIC: Final = property_marker(REAL_TOPIC)
_TO_ORIGINAL: Final = "each letter went to its original topic, for every group that reads it"
_TOO_MANY: Final = f"only {LOOK_MAX:,} records were read, and there are more"
_GONE: Final = "the log has no longer all records since the job began"


def page_of(store: MessageStore, jobs: RedriveJobs, query: OutcomesQuery) -> Steps[OutcomesPage]:
    """The next outcomes, in steps: other calls may run at every yield.

    Raises JobUnknown, InvalidValue, StoreUnavailable.
    """
    progress = jobs.get(query.job_id)
    limit = query.max_letters or OUTCOMES_DEFAULT
    if not 1 <= limit <= OUTCOMES_MAX:
        rule = f"0 for the default, {OUTCOMES_DEFAULT}, or 1 to {OUTCOMES_MAX}"
        raise InvalidValue("max_letters", query.max_letters, rule)
    first, skipped = read_cursor(query.cursor, 2) if query.cursor else (0, 0)
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
) -> Iterator[tuple[int, JobStep]]:
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
        cursor=preview_cursor(progress) if progress.at.part < len(progress.parts) else "",
    )


def with_groups(topics: Counter[str], readers_of: ReadersOf) -> tuple[ReadersOfTopic, ...]:
    """The numbers of messages to each topic, the most first, and the groups that get them."""
    found, room = [], GROUPS_NAMED_MAX
    for topic, count in topics.most_common():
        groups = readers_of(topic)
        named = groups[:room]
        room -= len(named)
        found.append(ReadersOfTopic(topic, count, named, len(groups) - len(named)))
    return tuple(found)


def preview_cursor(progress: JobProgress) -> str:
    """A preview's position and ranges of dead letters as text."""
    return "_".join(cursor_text(*each) for each in (progress.at, *progress.parts))


def read_preview_cursor(text: str) -> tuple[At, tuple[QueuePart, ...]]:
    """The inverse of preview_cursor().  Raises InvalidValue."""
    # An offset of 17 digits is still a place in a file that can be looked for.
    position, *queues = text.split("_")
    at = At(*read_cursor(position, 2, digits_max=17))
    parts = tuple([QueuePart(*read_cursor(each, 3, digits_max=17)) for each in queues])
    if at.part < len(parts) and parts[at.part].begin <= at.queue_offset <= parts[at.part].end:
        return at, parts
    raise InvalidValue("cursor", text, CURSOR_RULE)


class Results:
    """Counts the results of jobs in one broker's store; changes nothing."""

    def __init__(self, broker: BrokerParts, jobs: RedriveJobs) -> None:
        self._broker = broker
        self._jobs = jobs

    def of(self, job_id: str) -> Steps[RedriveResults]:
        """The results of a job's messages, in steps.  Raises JobUnknown, StoreUnavailable."""
        job = self._jobs.get(job_id).job
        why = self._why_not(job.spec)
        if why:
            return RedriveResults(why=why)
        count = _Count(self._broker, job)
        yield from count.run()
        waiting, dead = len(count.waiting), len(count.dead)
        partly = "" if count.is_complete else _TOO_MANY
        return RedriveResults(
            is_counted=True,
            consumed=max(0, job.sent - waiting - dead),
            waiting=waiting,
            dead=dead,
            why=_GONE if self._is_cut(job_id) else partly,
        )

    def _why_not(self, spec: RedriveSpec) -> str:
        """Why the messages of a job are not counted; empty if they are."""
        group, topic = spec.group, spec.to_topic
        if is_system_group(group) or not (topic or spec.to_group):
            return _TO_ORIGINAL
        if topic and group not in self._broker.readers_of(topic):
            return f"group {group} does not read topic {topic}"
        return ""

    def _is_cut(self, job_id: str) -> bool:
        """Has retention removed records from behind the beginning of the job?"""
        queue = self._broker.store.queue(REDRIVE_JOBS_TOPIC, 0)
        return queue is None or self._jobs.records_of(job_id).start < queue.min_offset


class _Count:
    """One count; waiting, dead: the places of the dead letters that the messages were."""

    def __init__(self, broker: BrokerParts, job: RedriveJob) -> None:
        self.waiting: set[bytes] = set()
        self.dead: set[bytes] = set()
        self.is_complete = True
        self._store = broker.store
        self._job = job
        self._job_id = job.job_id.encode()
        retries = retry_topic(job.spec.group)
        self._topics = {retries, job.spec.to_topic or retries}
        self._committed = broker.offsets.of(job.spec.group)
        self._room = LOOK_MAX

    def run(self) -> Steps[None]:
        waits: dict[int, int] = {}
        yield from self._schedule(waits)
        queues = [key for key in self._store.queue_keys() if key[0] in self._topics]
        for key in queues:
            begin = self._committed.get(Queue(*key), 0)
            yield from self._look(key, begin, self.waiting)
        yield from self._schedule(waits)
        dead = dlq_topic(self._job.spec.group)
        for key in [key for key in self._store.queue_keys() if key[0] == dead]:
            yield from self._look(key, 0, self.dead)
        self.waiting -= self.dead

    def _schedule(self, begins: dict[int, int]) -> Steps[None]:
        """Look at the messages that wait in each level; later at those that came since."""
        progress = self._store.progress
        for level in sorted(progress.pending):
            if level in begins or any(progress.pending[level][topic] for topic in self._topics):
                queue = self._store.queue(*queue_of(level))
                end = queue.max_offset if queue else 0
                begin = begins.get(level, progress.of(level).below)
                yield from self._look(queue_of(level), begin, self.waiting, progress.of(level))
                begins[level] = end

    def _look(
        self,
        key: QueueKey,
        begin: int,
        found: set[bytes],
        completed: CompletedOffsets | None = None,
    ) -> Steps[None]:
        """Add the job's messages of a queue; completed: those of a level that do not wait."""
        queue = self._store.queue(*key)
        if queue is None or begin >= queue.max_offset:
            return
        begin = max(begin, offset_at(self._store, queue, self._job.created_at_ms))
        end = queue.max_offset
        if end - begin > self._room:
            end = begin + self._room
            self.is_complete = False
        self._room -= max(0, end - begin)
        for first, several in property_slices(self._store, queue, begin, end):
            for queue_offset, properties in enumerate(several, first):
                if properties is None or find_property(properties, _BY) != self._job_id:
                    continue
                if completed is not None and not self._waits(properties, queue_offset, completed):
                    continue
                place = redriven_from(properties)
                if place:
                    found.add(place)
            yield
        yield

    def _waits(self, properties: bytes, queue_offset: int, completed: CompletedOffsets) -> bool:
        """Does a record of the schedule wait for this group, or in the topic that it reads?"""
        topic = (find_property(properties, _REAL_TOPIC) or b"").decode("utf-8", "replace")
        return topic in self._topics and completed.next_open(queue_offset) == queue_offset
