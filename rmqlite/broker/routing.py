"""Where a message is stored, which is not always where it is going.

A delayed message is stored under SCHEDULE_TOPIC_XXXX, one queue per level, and carries its
destination in two properties.  route() hides it, record.destination() reads it; ending() is
route() for very many; nothing else in the house writes these properties.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from rmqlite.levels import LevelTable
from rmqlite.message import CLUSTER, DELAY, KEY_END, PAIR_END, REAL_QID, REAL_TOPIC, WAIT
from rmqlite.store.wait_queues import queue_of


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
    return queue_of(level)


def ending(cluster: str, topic: str, level: int, queue_id: int) -> tuple[str, int, str]:
    """Topic and queue id to store under, and how the property string ends.

    The same for all messages of a topic and a level: level 0 is now, another one is in the
    table.
    """
    if level <= 0:
        return topic, queue_id, f"{PAIR_END}{CLUSTER}{KEY_END}{cluster}"
    properties = {DELAY: level, CLUSTER: cluster, REAL_TOPIC: topic, REAL_QID: queue_id}
    pairs = [f"{PAIR_END}{name}{KEY_END}{value}" for name, value in properties.items()]
    return *queue_of(level), f"{''.join(pairs)}{PAIR_END}{WAIT}{KEY_END}true"
