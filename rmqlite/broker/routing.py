"""Where a message is stored, which is not always where it is going.

A delayed message is stored under SCHEDULE_TOPIC_XXXX, one queue per level, and carries its
destination in two properties.  route() hides it, record.destination() reads it; nothing else
in the house writes these properties.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from rmqlite.levels import LevelTable
from rmqlite.message import DELAY, REAL_QID, REAL_TOPIC, WAIT
from rmqlite.names import SCHEDULE_TOPIC


def route(
    topic: str, queue_id: int, level: int, properties: MutableMapping[str, str], table: LevelTable
) -> tuple[str, int]:
    """The topic and queue id to store under; properties change for a level of 1 or more."""
    if level <= 0:
        return topic, queue_id
    level = table.clamp(level)
    properties[DELAY] = str(level)
    properties[REAL_TOPIC] = topic
    properties[REAL_QID] = str(queue_id)
    # RocketMQ's delayed records bear it; a consumer of the raw log may look for it.
    properties.setdefault(WAIT, "true")
    return SCHEDULE_TOPIC, level - 1
