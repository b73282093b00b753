"""The dead letters that were sent again, and the jobs that did it, read from the jobs' records.

For each queue of dead letters it is a set of queue offsets; a hundred thousand in a row take
two numbers.  The dead letters of forgotten jobs remain, as those of an earlier job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from rmqlite.kernel.store.dispatch import QueueKey
from rmqlite.kernel.store.progress import CompletedOffsets

EARLIER: Final = "an earlier job"
"""The name of all forgotten jobs."""
IMPORTED: Final = "dlq import"
"""The name of all imports; no job can have one of these two: they have blanks."""
_Offsets = dict[int, CompletedOffsets]
"""By queue id."""


class Redriven:
    """Queue offsets by the topic and queue that dead letters were redriven from."""

    def __init__(self) -> None:
        self.version = 0
        """Rises with every change."""
        self._all: dict[QueueKey, CompletedOffsets] = {}
        self._jobs: dict[str, dict[str, _Offsets]] = {}
        """Topic -> job id -> sent offsets, in the order of the jobs' first sends; the forgotten
        ones come first, under EARLIER."""

    def of(self, topic: str, queue_id: int) -> CompletedOffsets:
        """The offsets that any job has sent again; the caller must not change them."""
        return self._all.get((topic, queue_id)) or CompletedOffsets()

    def job_of(self, topic: str, queue_id: int, queue_offset: int) -> str:
        """The last job that has sent this dead letter again, or EARLIER; empty if none has."""
        if not self.of(topic, queue_id).count_between(queue_offset, queue_offset + 1):
            return ""
        return next(self.jobs_of(topic, queue_id, queue_offset), EARLIER)

    def jobs_of(self, topic: str, queue_id: int, queue_offset: int) -> Iterator[str]:
        """Every job that has sent this dead letter again, the last one first; no forgotten job."""
        for job_id, by_queue in reversed(self._jobs.get(topic, {}).items()):
            known = by_queue.get(queue_id)
            if known is not None and known.count_between(queue_offset, queue_offset + 1):
                yield job_id

    def add(self, job_id: str, topic: str, queue_id: int, start: int, end: int) -> None:
        """Note that a job has sent the dead letters start <= n < end; a second call changes
        nothing."""
        jobs = self._jobs.setdefault(topic, {EARLIER: {}})
        _add(jobs.setdefault(job_id, {}), queue_id, start, end)
        every = self._all.get((topic, queue_id))
        if every is None:
            every = self._all[topic, queue_id] = CompletedOffsets()
        every.add(start, end)
        self.version += 1

    def forget(self, job_id: str, topic: str) -> None:
        """Move a job's dead letters to EARLIER."""
        jobs = self._jobs.get(topic, {})
        for queue_id, sent in jobs.pop(job_id, {}).items():
            for start, end in sent.ranges():
                _add(jobs[EARLIER], queue_id, start, end)
        self.version += 1

    def to_json(self, topic: str, job_id: str = EARLIER) -> Any:
        """The offsets that a job, or the forgotten ones, have sent of a topic; a tree for json."""
        by_queue = self._jobs.get(topic, {}).get(job_id, {})
        return {str(queue_id): sent.to_json() for queue_id, sent in sorted(by_queue.items())}

    def load(
        self,
        topic: str,
        tree: Mapping[Any, Any],
        job_id: str = EARLIER,
        *,
        end_of: Callable[[str, int], int],
    ) -> None:
        """Add a tree of to_json(), up to the end of each queue: end_of(topic, queue id)."""
        for queue_id, sent in tree.items():
            # The tree is from a longer log: dead letters that come now were not redriven.
            upto = end_of(topic, int(queue_id))
            for start, end in CompletedOffsets.from_json(sent).ranges():
                if start < upto:
                    self.add(job_id, topic, int(queue_id), start, min(end, upto))

    def topics(self) -> list[str]:
        """Every topic whose dead letters were redriven."""
        return sorted(self._jobs)


def _add(by_queue: _Offsets, queue_id: int, start: int, end: int) -> None:
    known = by_queue.get(queue_id)
    if known is None:
        known = by_queue[queue_id] = CompletedOffsets()
    known.add(start, end)
