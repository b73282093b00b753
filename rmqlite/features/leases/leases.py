"""Leases: which client has which messages of a queue, until when.

A client receives messages of a topic, whichever queue they are in, and acknowledges each.  Until
then no other client of its group gets them.  When a lease ends, its messages have failed: of an
ordinary group each becomes a retry or a dead letter, like one that a consumer sends back, so that
it waits on disk; of a group that consumes in order it is visible again in its place.

A lease of a push consumer is renewed while the client is a member of its group, unless its answer
may be lost: if the call breaks, the messages are visible at once; if its connection or the broker
ends within RECEIVED_MS, the lease is not renewed any more.  What is leased and done is in the log
(journal.py).  All below done is the group's committed offset, so that consumers of other protocols
go on from there; an offset that somebody else commits counts here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from rmqlite.features.leases.ending import Ending
from rmqlite.features.leases.lease_table import LeaseTable
from rmqlite.features.leases.leased_queue import (
    RECEIVED_MS,
    Lease,
    LeasedQueue,
    Places,
    begun_ms,
    handle_of,
)
from rmqlite.features.leases.requests import (
    AckRequest,
    FailRequest,
    Handle,
    InvisibleChange,
    ReceiveRequest,
)
from rmqlite.features.leases.taking import (
    BYTES_MAX,
    Delivery,
    Receive,
    Received,
    Taken,
    peek_at,
    take_from,
)
from rmqlite.kernel import Steps
from rmqlite.kernel.config.config import KEYS
from rmqlite.kernel.failing import Failing
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import WAIT_TOPICS
from rmqlite.kernel.requests.groups import GroupInfo
from rmqlite.kernel.requests.topics import Queue, TopicInfo
from rmqlite.kernel.tables.topics import check_queue
from rmqlite.kernel.words import names
from rmqlite.kernel.words.errors import (
    HandleInvalid,
    InvalidValue,
    Overloaded,
    PermissionMissing,
    StoreUnavailable,
)
from rmqlite.kernel.words.limits import (
    CLIENT_ID_BYTES_MAX,
    INVISIBLE_MS_MAX,
    RECEIVE_MESSAGES_MAX,
    check_length,
)
from rmqlite.kernel.words.names import retry_topic

ATTEMPT_ID_BYTES_MAX: Final = 64
QUEUES_AT_ONCE: Final = 100
"""How many queues a step of a receive looks at."""
_NOT_LEASED: Final = frozenset(
    {
        *WAIT_TOPICS,
        names.HALF_TOPIC,
        names.HALF_ENDS_TOPIC,
        names.CANCELLED_TOPIC,
        names.BULK_JOBS_TOPIC,
        names.REDRIVE_JOBS_TOPIC,
        names.LEASES_TOPIC,
        names.TABLES_TOPIC,
    }
)
"""What lies here is no message yet, or none any more."""


class Leases:
    """What clients ask about leases."""

    def __init__(self, parts: BrokerParts, failing: Failing) -> None:
        """Raises StoreDamaged for a table that cannot be read."""
        self._parts = parts
        self._turn = 0
        self.table = LeaseTable(parts, failing)
        self.ending = Ending(parts, failing, self.table)
        self.limited: dict[str, Callable[[ReceiveRequest], Steps[Received]]] = {}
        """In place of receive_unlimited() for groups that have a rate limit."""

    # ---- receiving

    def receive(self, request: ReceiveRequest) -> Steps[Received]:
        """Lease messages to a client, in steps; there may be none.

        Raises GroupUnknown, TopicUnknown, QueueUnknown, PermissionMissing, InvalidValue,
        Overloaded, StoreDamaged.
        """
        return self.limited.get(request.group, self.receive_unlimited)(request)

    def receive_unlimited(self, request: ReceiveRequest) -> Steps[Received]:
        group, topic = self.check_receive(request)
        if (known := self.attempt_of(request)) is not None:
            return self._again(known)
        lease = self.table.new(
            request.group,
            request.topic,
            request.client_id,
            RECEIVED_MS if request.auto_renew else request.invisible_ms,
            is_renewed=request.auto_renew,
            attempt_id=request.attempt_id,
        )
        asked = Receive(request, lease, group.orderly)
        try:
            yield from self._look(asked, topic)
            while not asked.drop_reset():
                yield from self._look(asked, topic)
        except BaseException:
            # Also if the caller is gone, and nobody takes the next step.
            self.table.let_go(lease, _places(asked.taken))
            if asked.was_passed_over:
                self.table.on_visible(request.group, request.topic)
            raise
        if asked.taken:
            self.table.begin(lease, _places(asked.taken))
        self._parts.counts.pull(request.topic, request.group, len(asked.taken))
        deliveries = [_delivery(each, lease) for each in asked.taken]
        has_more = asked.room <= 0 or asked.was_passed_over or asked.has_left
        return Received(tuple(deliveries), begun_ms(lease), _left_ms(lease), has_more)

    def take_back(self, received: Received) -> None:
        """The client has not got this answer: its messages are visible at once."""
        lease = self.table.of_id(received.messages[0].handle.lease) if received.messages else None
        if lease is not None and (places := lease.held()):
            # With a full disk they are visible when the lease ends.
            lease.is_doubtful = True
            with suppress(StoreUnavailable):
                self.ending.give_back(lease, places, is_broken=True)

    def peek(self, request: ReceiveRequest) -> Steps[tuple[Record, ...]]:
        """Messages that a receive would find now, in steps.  Raises what receive() raises."""
        group, topic = self._parts.readable(request.group, request.topic)
        self._check(request, topic)
        lease = self.table.new(request.group, request.topic, "", 0, is_renewed=False)
        asked = Receive(request, lease, group.orderly)
        found: list[Record] = []
        for queue in self._queues_for(request, topic):
            found += yield from peek_at(self._parts, self.table, queue, asked)
            yield
            size = sum([record.head.size for record in found])
            if len(found) >= request.max_messages or size >= BYTES_MAX:
                break
        return tuple(found[: request.max_messages])

    def check_receive(self, request: ReceiveRequest) -> tuple[GroupInfo, TopicInfo]:
        """Raises what receive() raises, whether or not there are messages."""
        group, topic = self._parts.readable(request.group, request.topic)
        self._check(request, topic)
        self._parts.membership.check_receiver(request.group, request.client_id)
        return group, topic

    def _check(self, request: ReceiveRequest, topic: TopicInfo) -> None:
        check_leased(topic.topic)
        check_length("client_id", request.client_id, CLIENT_ID_BYTES_MAX)
        check_length("attempt_id", request.attempt_id, ATTEMPT_ID_BYTES_MAX)
        if not 1 <= request.max_messages <= RECEIVE_MESSAGES_MAX:
            rule = f"1 to {RECEIVE_MESSAGES_MAX}"
            raise InvalidValue("max_messages", request.max_messages, rule)
        least = 0 if request.auto_renew else 1
        _check_invisible(request.invisible_ms, least)
        if request.queue_id >= 0:
            check_queue(topic, request.queue_id, topic.read_queues)
        config = self._parts.config
        if self.table.total.messages + request.max_messages > config.leased_messages_max:
            raise Overloaded(KEYS["leased_messages_max"], config.leased_messages_max)

    def attempt_of(self, request: ReceiveRequest) -> Lease | None:
        """The lease of a receive whose answer the client has not got, if all of it is left."""
        lease = self.table.of_attempt(request.group, request.attempt_id)
        if not request.attempt_id or lease is None or not lease.left:
            return None
        if not self.table.is_current(lease):
            return None
        is_same = (lease.topic, lease.client_id) == (request.topic, request.client_id)
        return lease if is_same else None

    def _again(self, lease: Lease) -> Received:
        found = [
            _delivery(Taken(queue, record), lease)
            for queue, offsets in lease.held()
            for _, record in self.table.records(queue, offsets)
            if record is not None
        ]
        return Received(tuple(found), self._parts.clock.now_ms(), _left_ms(lease))

    def _look(self, asked: Receive, topic: TopicInfo) -> Steps[None]:
        """Look at each queue; again at one that another receive was reading, when it has ended."""
        queues: Iterable[LeasedQueue] = self._queues_for(asked.request, topic)
        while True:
            for number, queue in enumerate(queues, 1):
                yield from take_from(self._parts, queue, asked)
                # What a filter leaves out is done, although nobody acknowledges it.
                self.table.commit([queue])
                if asked.room <= 0:
                    return
                if number % QUEUES_AT_ONCE == 0:
                    yield
            queues, asked.passed_over = asked.passed_over, []
            still_read = [queue for queue in queues if queue.is_being_read]
            if asked.taken or still_read or not queues:
                # Who reads one of these wakes a call that waits, when it has ended.
                for queue in still_read:
                    queue.was_passed_over = True
                return

    def _queues_for(self, request: ReceiveRequest, topic: TopicInfo) -> Iterator[LeasedQueue]:
        """The queues to look at, another one first each time."""
        own: Sequence[int] = range(topic.read_queues)
        if request.queue_id >= 0:
            own = (request.queue_id,)
        retries = retry_topic(request.group)
        queues = [Queue(request.topic, each) for each in own]
        queues += [Queue(retries, each) for each in range(self._parts.topics.read_queues(retries))]
        self._turn += 1
        for number in range(len(queues)):
            queue = queues[(self._turn + number) % len(queues)]
            known = self.table.queue(request.group, queue)
            if known is not None:
                yield known

    # ---- the client's word

    def ack(self, request: AckRequest) -> tuple[bool, ...]:
        """Messages are done; False for each handle that is not valid.  Raises StoreUnavailable.

        If somebody has moved the group's offset meanwhile, the acknowledgement changes nothing.
        """
        found = [self.table.find(request.group, request.topic, each) for each in request.handles]
        done: dict[LeasedQueue, list[int]] = {}
        for queue, handle in zip(found, request.handles, strict=True):
            if queue is not None:
                done.setdefault(queue, []).append(handle.queue_offset)
        if done:
            self.table.finish(request.group, [*done.items()])
        return tuple(
            [
                queue is not None or self.table.was_reset(request.group, request.topic, handle)
                for queue, handle in zip(found, request.handles, strict=True)
            ]
        )

    def change(self, request: InvisibleChange) -> Handle:
        """A message is visible again at another time; its new handle.

        A push consumer says so of a message that it has failed: that one waits on disk, and the
        handle ends.  Raises HandleInvalid, InvalidValue, StoreUnavailable.
        """
        _check_invisible(request.invisible_ms, 0)
        queue, lease = self._found(request.group, request.topic, request.handle)
        offset = request.handle.queue_offset
        in_order = self.ending.is_in_order(request.group)
        if request.counts and not in_order and (lease.is_renewed or not request.invisible_ms):
            # A push consumer has its wait from the policy, but without jitter and in its own units.
            by_policy = lease.is_renewed and self._parts.groups.policy(request.group).is_exact
            delay_ms = None if by_policy else request.invisible_ms
            self.ending.fail(request.group, queue, [offset], delay_ms=delay_ms)
            return request.handle
        if not request.invisible_ms:
            places = [(queue, [offset])]
            if request.counts:
                self.table.give_back(lease, places, counts=True)
            else:
                self.ending.give_back(lease, places)
            return request.handle
        changed = self.table.new(
            lease.group,
            lease.topic,
            lease.client_id,
            request.invisible_ms,
            is_renewed=False,
            counts=request.counts,
        )
        message_group = queue.message_group(offset)
        queue.lease(offset, changed, message_group)
        self.table.begin(changed, ((queue, (offset,)),))
        self.table.drop_if_empty(lease)
        return handle_of(changed, queue, offset)

    def fail(self, request: FailRequest) -> None:
        """A message is a retry, or a dead letter.  Raises HandleInvalid, StoreUnavailable, and
        InvalidValue and Overloaded if no timer can wait for delay_ms."""
        queue, _ = self._found(request.group, request.topic, request.handle)
        if request.delay_ms and not request.is_dead:
            self._parts.timers.check("delay_ms", request.delay_ms, request.delay_ms)
        self.ending.fail(
            request.group,
            queue,
            [request.handle.queue_offset],
            delay_ms=request.delay_ms,
            is_dead=request.is_dead,
            reason=request.reason,
        )

    def release(self, group: str, client_id: str) -> Steps[None]:
        """What a client has leased is visible again, and has not failed; in steps."""
        leases = yield from self.table.of_client(group, client_id)
        for lease in leases:
            if places := lease.held():
                self.ending.give_back(lease, places)
                yield

    def _found(self, group: str, topic: str, handle: Handle) -> tuple[LeasedQueue, Lease]:
        """Raises HandleInvalid."""
        queue = self.table.find(group, topic, handle)
        if queue is None:
            raise HandleInvalid(handle.text if handle.proof else handle.queue_offset)
        return queue, queue.leased[handle.queue_offset]


def _check_invisible(invisible_ms: int, least: int) -> None:
    if not least <= invisible_ms <= INVISIBLE_MS_MAX:
        raise InvalidValue("invisible_ms", invisible_ms, f"{least} to {INVISIBLE_MS_MAX}")


def _places(taken: Sequence[Taken]) -> Places:
    places: dict[LeasedQueue, list[int]] = {}
    for each in taken:
        places.setdefault(each.queue, []).append(each.record.head.queue_offset)
    return tuple([(queue, tuple(offsets)) for queue, offsets in places.items()])


def _delivery(taken: Taken, lease: Lease) -> Delivery:
    handle = handle_of(lease, taken.queue, taken.record.head.queue_offset)
    return Delivery(taken.record, lease.topic, handle, taken.attempt)


def _left_ms(lease: Lease) -> int:
    return lease.until_ms - begun_ms(lease)


def check_leased(topic: str) -> None:
    """Raises PermissionMissing for a topic whose messages are leased to nobody.

    One that failed would be delivered by way of a retry topic, although it waits for its time, or
    its producer has not committed it.
    """
    if topic in _NOT_LEASED:
        raise PermissionMissing(topic, "receiving from", "the topic is the broker's own")
