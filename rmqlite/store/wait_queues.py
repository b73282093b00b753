"""Which queues hold messages that wait, and when a record in one of them is due.

A wait queue is a queue of the store whose entries are due times (an entry's tags code is
its record's due time), with a note of which entries are completed (progress.py).  There is
one kind of it: a delay level, whose records lie in SCHEDULE_TOPIC_XXXX, in the queue level - 1.
The writer, recovery, the readers, check and the Arrow decoder all find due times and wait queues
with these functions.  So only these functions change for another kind of wait queue.
"""

from __future__ import annotations

from rmqlite.levels import LevelHistory
from rmqlite.names import SCHEDULE_TOPIC

QueueKey = tuple[str, int]
"""Topic and queue id."""


def wait_queue_of(topic: str, queue_id: int) -> int:
    """The id of a queue as a wait queue, 1 or more; 0 if nothing waits in the queue.

    The id of a delay level is the level.  Tables, cursors and answers name wait queues by it.
    """
    return queue_id + 1 if topic == SCHEDULE_TOPIC else 0


def queue_of(wait_queue: int) -> QueueKey:
    """The queue that holds a wait queue."""
    return SCHEDULE_TOPIC, wait_queue - 1


def when_due_ms(levels: LevelHistory, topic: str, queue_id: int, stored_ms: int) -> int:
    """When a record is due that was stored in this queue at stored_ms; 0 if it does not wait."""
    level = wait_queue_of(topic, queue_id)
    return stored_ms + levels.delay_ms(level, stored_ms) if level else 0


def when_stored_ms(levels: LevelHistory, topic: str, queue_id: int, due_ms: int) -> int | None:
    """When a record of this queue was stored if it is due at due_ms; None if none can be."""
    level = wait_queue_of(topic, queue_id)
    for _, table in reversed(levels.entries) if level else ():
        at_ms = due_ms - table.delay_ms(level)
        if when_due_ms(levels, topic, queue_id, at_ms) == due_ms:
            return at_ms
    return None
