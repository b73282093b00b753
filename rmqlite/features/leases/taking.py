"""Finds the messages of a queue that a client may have now.

First come those that are visible again, then those that nobody has seen yet.  Of a group that
consumes in order a message has to wait while an older one of its message group is leased or waits
itself.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from rmqlite.features.leases.lease_table import LeaseTable
from rmqlite.features.leases.leased_queue import Lease, LeasedQueue
from rmqlite.features.leases.requests import Handle, ReceiveRequest
from rmqlite.kernel import Steps
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.pulling import pull
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.requests.messages import PullRequest, PullStatus
from rmqlite.kernel.retry import origin_of, times_failed
from rmqlite.kernel.words.message import MESSAGE_GROUP
from rmqlite.kernel.words.names import is_retry

BYTES_MAX: Final = 1 << 20
"""The most bytes of messages in one receive; a longer message comes alone."""
WAITING_MAX: Final = 1_000
"""How many messages of a queue may be seen and wait for an older one of their message group, and at
how many that are visible again one receive looks."""


class Taken(NamedTuple):
    """A message that the client gets."""

    queue: LeasedQueue
    record: Record

    def is_leased(self, lease: Lease) -> bool:
        return self.queue.leased.get(self.record.head.queue_offset) is lease

    @property
    def attempt(self) -> int:
        """1 for the first delivery to the group."""
        head = self.record.head
        failed = self.queue.failed_in_place.get(head.queue_offset, 0)
        return times_failed(head, self.queue.group) + failed + 1


@dataclass(slots=True)
class Receive:
    """A receive, and what it has found so far."""

    request: ReceiveRequest
    lease: Lease
    in_order: bool
    taken: list[Taken] = field(default_factory=list)
    size: int = 0
    passed_over: list[LeasedQueue] = field(default_factory=list)
    """Queues that another receive was reading."""
    was_passed_over: bool = False
    """Has another receive left a queue out, because this one was reading it?"""
    has_left: bool = False
    """Was a message left for a receive of its own?"""
    _message_groups: set[tuple[LeasedQueue, str]] = field(default_factory=set)
    """Those whose next messages the client has got here; it may get more of them."""

    @property
    def room(self) -> int:
        """How many more messages the client may get."""
        if self.size >= BYTES_MAX:
            return 0
        return self.request.max_messages - len(self.taken)

    def fits(self, queue: LeasedQueue, record: Record) -> bool:
        """May the client get this message, too?"""
        return not self.taken if _is_alone(queue, record) else self.room > 0

    def take(self, queue: LeasedQueue, record: Record, message_group: str) -> None:
        head = record.head
        # At once: another receive may run before the next step of this one.
        queue.lease(head.queue_offset, self.lease, message_group)
        self._message_groups.add((queue, message_group))
        self.taken.append(Taken(queue, record))
        self.size += _share(queue, record)

    def drop_reset(self) -> bool:
        """Leave out messages whose leases a reset of offsets has ended meanwhile.

        False if there were messages, and none is left.
        """
        left = [each for each in self.taken if each.is_leased(self.lease)]
        if len(left) == len(self.taken):
            return True
        self.taken, self.size = left, sum([_share(each.queue, each.record) for each in left])
        return bool(left)

    def must_wait(self, queue: LeasedQueue, message_group: str, waiting: Collection[str]) -> bool:
        """Is an older message of a message group leased, or does it wait itself?"""
        if not message_group:
            return False
        if message_group in waiting:
            return True
        is_own = (queue, message_group) in self._message_groups
        return queue.is_group_leased(message_group) and not is_own


def _is_alone(queue: LeasedQueue, record: Record) -> bool:
    """Must a message be alone in its answer?

    A client that cannot take it must get the others, and it may be the reason why an answer broke.
    """
    return record.head.size >= BYTES_MAX or record.head.queue_offset in queue.broken


def _share(queue: LeasedQueue, record: Record) -> int:
    """The bytes of an answer that a message takes: all of them if it must be alone."""
    return BYTES_MAX if _is_alone(queue, record) else record.head.size


def take_from(parts: BrokerParts, queue: LeasedQueue, asked: Receive) -> Steps[None]:
    """Find messages of a queue, in steps.  Raises what pull() raises."""
    while (yield from _take_visible(parts, queue, asked)):
        yield
    # While one receive reads on, others must not read the same messages.
    if queue.is_being_read:
        asked.passed_over.append(queue)
        return
    queue.is_being_read = True
    try:
        yield from _take_new(parts, queue, asked)
    finally:
        asked.was_passed_over |= queue.was_passed_over
        queue.is_being_read = queue.was_passed_over = False


def _take_visible(parts: BrokerParts, queue: LeasedQueue, asked: Receive) -> Steps[bool]:
    """True if some of them are finished instead: look again."""
    stored = parts.store.queue(queue.queue.topic, queue.queue.queue_id)
    if not queue.visible or stored is None:
        return False
    waiting: set[str] = set()
    offsets: list[int] = []
    for offset in queue.visible.islice(0, WAITING_MAX):
        topic, message_group = queue.visible[offset]
        if topic != asked.request.topic:
            continue
        if len(offsets) >= asked.room:
            break
        if asked.must_wait(queue, message_group, waiting):
            waiting.add(message_group)
        else:
            offsets.append(offset)
    entries = [stored.read(offset, 1)[0] for offset in offsets]
    found = [record for record in parts.store.read_records(entries) if record]
    left = yield from parts.filters.left(asked.request.group, found)
    if len(left) < len(offsets):
        # They have expired, or retention has taken them; others may have had a turn meanwhile.
        queue.finish({*offsets} - {record.head.queue_offset for record in left})
        return True
    for record in left:
        offset = record.head.queue_offset
        if not asked.fits(queue, record):
            # Those behind it wait for it: they may be of its message group.
            asked.has_left = True
            return False
        asked.take(queue, record, queue.visible[offset].message_group)
    return False


def _take_new(parts: BrokerParts, queue: LeasedQueue, asked: Receive) -> Steps[None]:
    request, topic, begun = asked.request, asked.request.topic, queue.begun
    while asked.room > 0 and not asked.has_left:
        if asked.in_order and len(queue.visible) >= WAITING_MAX:
            return
        if queue.is_gone:
            return
        if queue.begun != begun:
            # Its offset was reset while others had their turn.
            begun = queue.begun
            asked.drop_reset()
        begin = queue.cursor(topic)
        pulled = yield from pull(parts, pull_of(queue, request, begin, asked))
        if queue.begun != begun:
            continue
        if pulled.status is PullStatus.OFFSET_MOVED:
            if pulled.next_offset <= begin:
                return
            queue.skip_to(pulled.next_offset)
            continue
        if pulled.status is PullStatus.NO_NEW_MESSAGE and pulled.next_offset == begin:
            return
        found = {record.head.queue_offset: record for record in pulled.records}
        unwanted = [n for n in range(begin, pulled.next_offset) if n not in found]
        queue.finish([each for each in unwanted if not queue.has_seen(each)])
        queue.cursors[topic] = pulled.next_offset
        _sort(queue, asked, found.values())
        yield


def _sort(queue: LeasedQueue, asked: Receive, found: Iterable[Record]) -> None:
    """Give new messages to the client; those that must wait for an older one are visible now."""
    topic = asked.request.topic
    waiting = {each.message_group for each in queue.visible.values()} if asked.in_order else set()
    for record in found:
        offset = record.head.queue_offset
        if queue.has_seen(offset) or (queue.is_retry and not is_of(record, topic)):
            continue
        message_group = message_group_of(record) if asked.in_order else ""
        is_left = not asked.fits(queue, record)
        asked.has_left |= is_left
        if is_left or asked.must_wait(queue, message_group, waiting):
            queue.see(offset, topic, message_group)
            waiting.add(message_group)
        else:
            asked.take(queue, record, message_group)


def pull_of(queue: LeasedQueue, request: ReceiveRequest, begin: int, asked: Receive) -> PullRequest:
    """What a retry topic holds has passed the filter before."""
    topic, queue_id = queue.queue.topic, queue.queue.queue_id
    is_filtered = not queue.is_retry
    return PullRequest(
        request.group,
        topic,
        queue_id,
        begin,
        request.expression if is_filtered else "*",
        max_messages=asked.room,
        max_bytes=BYTES_MAX - asked.size,
        sql=request.sql if is_filtered else "",
    )


def is_of(record: Record, topic: str) -> bool:
    """Is a retry one of this topic?  One that names no topic is of any."""
    origin = origin_of(record.head)
    return origin in (topic, "") or is_retry(origin)


def message_group_of(record: Record) -> str:
    """Messages without a group are in order, too."""
    return record.properties.text(MESSAGE_GROUP) or "\x00"


class Delivery(NamedTuple):
    """A delivered message.

    record: as it lies in the log, perhaps in a retry topic.  topic: the one it was sent to.
    attempt: 1 for the first delivery to the group.
    """

    record: Record
    topic: str
    handle: Handle
    attempt: int


@dataclass(frozen=True, slots=True)
class Received:
    """messages: they are invisible for invisible_ms from received_at_ms on; there may be none.

    has_more: perhaps there are more that the client did not ask for.  waits_for: as of Pulled.
    """

    messages: tuple[Delivery, ...]
    received_at_ms: int
    invisible_ms: int
    has_more: bool = False
    waits_for: Hashable = None


def peek_at(
    parts: BrokerParts, table: LeaseTable, queue: LeasedQueue, asked: Receive
) -> Steps[list[Record]]:
    """Messages of a queue, in steps; of those that nobody has seen yet only the next few.

    Raises what pull() raises.
    """
    topic, room = asked.request.topic, asked.room
    seen = (
        offset
        for offset, (of_topic, message_group) in queue.visible.items()
        if of_topic == topic and not queue.is_group_leased(message_group)
    )
    offsets = list(islice(seen, room))
    found = [record for _, record in table.records(queue, offsets) if record is not None]
    begin = queue.cursor(topic)
    pulled = yield from pull(parts, pull_of(queue, asked.request, begin, asked))
    for record in pulled.records:
        if queue.has_seen(record.head.queue_offset) or (
            queue.is_retry and not is_of(record, topic)
        ):
            continue
        if not asked.in_order or not queue.is_group_leased(message_group_of(record)):
            found.append(record)
    return found[:room]
