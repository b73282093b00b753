"""Where a message is stored, which is not always where it is going.

A message with a delay level is stored under SCHEDULE_TOPIC_XXXX, one queue per level; one that
waits for an instant under rmq_sys_wheel_timer; a half message of a transaction under
RMQ_SYS_TRANS_HALF_TOPIC.  All carry their destination in two properties.  route(), hidden() and
route_half() hide them, record.destination() reads it; nothing else writes these properties.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from rmqlite.kernel.records.drafts import Draft, fresh, joined
from rmqlite.kernel.records.record import NewRecord
from rmqlite.kernel.records.wait_queues import TIMERS, QueueKey, queue_of
from rmqlite.kernel.words.errors import MessageTooLarge
from rmqlite.kernel.words.limits import PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import (
    CLUSTER,
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    TIMER_EXACT,
    TIMER_OUT_MS,
    WAIT,
)
from rmqlite.kernel.words.names import HALF_TOPIC
from rmqlite.kernel.words.property_string import PropertyString

_KEY_END: Final = b"\x01"
_PAIR_END: Final = b"\x02"
_WAIT: Final = WAIT.encode()
QUEUE_ID_MAX: Final = 10**9
LEVEL_MAX: Final = 99
"""A queue id and a delay level with the most digits: how long a property string may become."""


class Routing(NamedTuple):
    """Where a message is stored, and which properties it gets there.

    pairs: these properties as bytes.  ending: they as the end of a property string.  markers: the
    first bytes of each.
    """

    topic: str
    queue_id: int
    properties: dict[str, str]
    pairs: dict[bytes, bytes]
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
def route_timer(topic: str, queue_id: int, cluster: str) -> Routing:
    """The routing of timers to a queue, but for the instant."""
    properties = {CLUSTER: cluster} if cluster else {}
    properties |= {REAL_TOPIC: topic, REAL_QID: str(queue_id), TIMER_EXACT: "1"}
    return _routing(*queue_of(TIMERS), properties)


def hidden(
    own: bytes, topic: str, queue_id: int, *, level: int = 0, due_ms: int = 0, cluster: str = ""
) -> tuple[QueueKey, PropertyString]:
    """The queue and the property string with which a message to a queue is stored.

    own: its string so far.  level: that of the table at which it waits, or else due_ms: the instant
    for which it waits; with neither it does not wait.
    """
    if level or not due_ms:
        place = route(topic, queue_id, level, cluster)
        return (place.topic, place.queue_id), routed(own, place)
    place = route_timer(topic, queue_id, cluster)
    out = f"{TIMER_OUT_MS}\x01{due_ms}".encode()
    return (place.topic, place.queue_id), PropertyString(joined(routed(own, place).encoded, out))


@lru_cache(maxsize=4096)
def route_half(topic: str, queue_id: int, cluster: str) -> Routing:
    """The routing of half messages that go to a queue once they are committed."""
    properties = {CLUSTER: cluster, REAL_TOPIC: topic, REAL_QID: str(queue_id)}
    return _routing(HALF_TOPIC, 0, properties)


def _routing(topic: str, queue_id: int, properties: dict[str, str]) -> Routing:
    pairs = {name.encode(): value.encode() for name, value in properties.items()}
    markers = tuple([name + _KEY_END for name in pairs])
    return Routing(topic, queue_id, properties, pairs, _joined(pairs), markers)


def routed(own: bytes, place: Routing) -> PropertyString:
    """The property string of a message that is stored at a place; own: its string so far.

    Nearly always the new pairs are added at the end.  If the string has some of them already, a
    pair with the same value stays in its place, and so does its own WAIT.
    """
    for marker in place.markers:
        if marker in own:
            break
    else:
        return PropertyString(joined(own, place.ending))
    properties = PropertyString(own)
    there = properties.pairs
    changes = {name: value for name, value in place.pairs.items() if there.get(name) != value}
    if _WAIT in there:
        changes.pop(_WAIT, None)
    if not there.keys().isdisjoint(changes):
        return properties.edited({name.decode(): value for name, value in changes.items()})
    # As for a client's delayed message: the same bytes as edited() makes, for a third of the time.
    return PropertyString(joined(own, _joined(changes)))


def _joined(pairs: dict[bytes, bytes]) -> bytes:
    return _PAIR_END.join([name + _KEY_END + value for name, value in pairs.items()])


def record_of(
    draft: Draft, level: int, due_ms: int = 0, *, cluster: str, store_host: bytes
) -> NewRecord:
    """The record of a draft that waits at a level of the table, or for an instant, or does not.

    Raises MessageTooLarge.
    """
    key, properties = hidden(
        draft.properties,
        draft.topic,
        draft.queue_id,
        level=level,
        due_ms=due_ms,
        cluster=cluster,
    )
    if len(properties.encoded) > PROPERTIES_BYTES_MAX:
        check_property_string(properties)
    return fresh(draft, store_host, *key, properties)


def check_property_string(properties: PropertyString) -> None:
    """Raises MessageTooLarge for a property string that no record can hold."""
    size = len(properties.encoded)
    if size > PROPERTIES_BYTES_MAX:
        rule = f"at most {PROPERTIES_BYTES_MAX} bytes as a property string"
        raise MessageTooLarge("properties", size, rule)
