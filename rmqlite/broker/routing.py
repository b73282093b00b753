"""Where a message is stored, which is not always where it is going.

A delayed message is stored under SCHEDULE_TOPIC_XXXX, one queue per level, a half message of a
transaction under RMQ_SYS_TRANS_HALF_TOPIC.  Both carry their destination in two properties.
route() and route_half() hide them, record.destination() reads it; nothing else in the house
writes these properties.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from rmqlite.message import CLUSTER, DELAY, REAL_QID, REAL_TOPIC, WAIT, encode_properties
from rmqlite.names import HALF_TOPIC
from rmqlite.property_string import PropertyString
from rmqlite.store.wait_queues import queue_of


class Routing(NamedTuple):
    """Where a message is stored, and which properties it gets there.

    ending: these properties, encoded as the end of a property string.  markers: the first bytes
    of each property.
    """

    topic: str
    queue_id: int
    properties: dict[str, str]
    ending: bytes
    markers: tuple[bytes, ...]


@lru_cache(maxsize=4096)
def route(topic: str, queue_id: int, level: int, cluster: str = "") -> Routing:
    """The routing of messages to a queue; level 0 does not wait, others must be in the table.

    cluster: the cluster name that the message gets; "" for none.
    """
    properties = {CLUSTER: cluster} if cluster else {}
    if level:
        properties = {DELAY: str(level), **properties, REAL_TOPIC: topic, REAL_QID: str(queue_id)}
        # RocketMQ's delayed records have it; a consumer of the raw log may look for it.
        properties[WAIT] = "true"
        topic, queue_id = queue_of(level)
    return _routing(topic, queue_id, properties)


@lru_cache(maxsize=4096)
def route_half(topic: str, queue_id: int, cluster: str) -> Routing:
    """The routing of half messages that go to a queue once they are committed."""
    properties = {CLUSTER: cluster, REAL_TOPIC: topic, REAL_QID: str(queue_id)}
    return _routing(HALF_TOPIC, 0, properties)


def _routing(topic: str, queue_id: int, properties: dict[str, str]) -> Routing:
    markers = tuple([f"{name}\x01".encode() for name in properties])
    return Routing(topic, queue_id, properties, encode_properties(properties), markers)


def routed(own: bytes, place: Routing) -> PropertyString:
    """The property string of a message that is stored at a place; own: its string so far.

    Nearly always the new pairs are added at the end.  If the string has some of them already, a
    pair with the same value stays in its place, and so does its own WAIT.
    """
    _, _, wanted, ending, markers = place
    for marker in markers:
        if marker in own:
            break
    else:
        return _ending_with(own, ending)
    properties = PropertyString(own)
    changes = {
        name: value for name, value in wanted.items() if properties.get(name) != value.encode()
    }
    if properties.get(WAIT) is not None:
        changes.pop(WAIT, None)
    if any(properties.get(name) is not None for name in changes):
        return properties.edited(changes)
    # As for a client's delayed message: the same bytes as edited() makes, for a third of the time.
    return _ending_with(own, encode_properties(changes))


def _ending_with(own: bytes, ending: bytes) -> PropertyString:
    if not own or not ending or own[-1] == 2:
        return PropertyString(own + ending)
    return PropertyString(b"%b\x02%b" % (own, ending))
