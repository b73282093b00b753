"""What became of a job's messages in the group that failed, counted from the log.

A message of the job has failed, and waits in the schedule; or it is not consumed yet; or it is
a dead letter again; all others the group has consumed.  The log and the committed offsets say all
of that, so the counts are the same after a crash.

A message moves on while this reads, so the order matters: the schedule, the queues, what the
schedule got meanwhile, and the dead letters last.  One that is found twice counts as dead.
"""

from __future__ import annotations

from typing import Final

from rmqlite.broker.finding.matching import redriven_from
from rmqlite.broker.finding.reading import property_slices
from rmqlite.broker.parts import BrokerParts
from rmqlite.broker.pulling import offset_at
from rmqlite.broker.redrive.jobs import RedriveJobs
from rmqlite.broker.steps import Steps
from rmqlite.message import REAL_TOPIC, REDRIVEN_BY, find_property, property_marker
from rmqlite.names import REDRIVE_JOBS_TOPIC, dlq_topic, is_system_group, retry_topic
from rmqlite.records.wait_queues import queue_of
from rmqlite.requests.redrive import RedriveJob, RedriveResults, RedriveSpec
from rmqlite.requests.topics import Queue
from rmqlite.store.dispatch import QueueKey
from rmqlite.store.progress import CompletedOffsets

LOOK_MAX: Final = 200_000
"""Records that one count reads at most, in two seconds; then it says that it is not complete."""
_BY: Final = property_marker(REDRIVEN_BY)
_REAL_TOPIC: Final = property_marker(REAL_TOPIC)
_TO_ORIGINAL: Final = "each letter went to its original topic, for every group that reads it"
_TOO_MANY: Final = f"only {LOOK_MAX:,} records were read, and there are more"
_GONE: Final = "the log has no longer all records since the job began"


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
