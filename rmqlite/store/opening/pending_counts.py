"""Counts pending messages per topic anew, for levels whose counts are wrong.

The counts are updated at each append, and by the walk after a crash.  They are wrong if
RocketMQ ran on the store since, if an older rmqlite wrote the tables, or if somebody removed
files; then opening reads the pending records themselves, once.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Final

from rmqlite.records.completion import topic_ahead
from rmqlite.records.stored import Record
from rmqlite.records.wait_queues import wait_queue_name, wait_queue_of
from rmqlite.store.commit_log import CommitLog
from rmqlite.store.consume_queue import ConsumeQueue
from rmqlite.store.dispatch import Dispatch
from rmqlite.store.progress import CompletedOffsets

_ENTRIES_AT_ONCE: Final = 8192

logger = logging.getLogger(__name__)


def count_pending(log: CommitLog, dispatch: Dispatch) -> None:
    """Count levels anew whose counts do not add up to their pending records."""
    pending = dispatch.progress.pending
    for (topic, queue_id), queue in dispatch.queues.items():
        level = wait_queue_of(topic, queue_id)
        if not level:
            continue
        completed = dispatch.progress.of(level)
        waiting = queue.max_offset - completed.below - completed.count_above
        if sum(pending.get(level, {}).values()) != waiting:
            name = wait_queue_name(level)
            logger.info("pending messages of %s are counted anew pending=%d", name, waiting)
            pending[level] = _counted(log, queue, completed)


def open_records(
    log: CommitLog, queue: ConsumeQueue, completed: CompletedOffsets
) -> Iterator[tuple[int, Record | None]]:
    """The queue offset and the record of all that waits; None if the record cannot be read."""
    for start in range(completed.below, queue.max_offset, _ENTRIES_AT_ONCE):
        entries = queue.read(start, _ENTRIES_AT_ONCE)
        for queue_offset in completed.open_between(start, start + len(entries)):
            entry = entries[queue_offset - start]
            yield queue_offset, log.read_head(entry.physical_offset, entry.size)


def _counted(log: CommitLog, queue: ConsumeQueue, completed: CompletedOffsets) -> Counter[str]:
    found = (record for _, record in open_records(log, queue, completed))
    return Counter(topic_ahead(each.properties) if each else "" for each in found)
