"""All leases and leased queues of a broker, and their events in the log.

What a client or a due time changes is written to the journal first, and then done here.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from hmac import compare_digest
from itertools import islice, zip_longest
from typing import Final

from sortedcontainers import SortedKeyList

from rmqlite.broker.failing import Failed, Failing
from rmqlite.broker.leases.journal import FAR_EVENTS, LeaseJournal, done_in
from rmqlite.broker.leases.leased_queue import KEY_BYTES, Lease, LeasedQueue, Places, Total
from rmqlite.broker.parts import BrokerParts
from rmqlite.broker.steps import Steps
from rmqlite.errors import StoreUnavailable
from rmqlite.names import is_retry, retry_topic
from rmqlite.records.stored import Record
from rmqlite.requests.leases import NONCE_BITS, PROOF_BYTES, Handle
from rmqlite.requests.topics import Queue
from rmqlite.store.tables.tables import Tree
from rmqlite.table_shapes import LeaseEvent

RECEIVED_MS: Final = 5_000
"""So long after its begin the answer with a lease is at its client, or the call is known to be
broken.  A lease that is renewed lasts so long at first."""
RENEWED_MS: Final = 60_000
"""A renewed lease lasts so long each time."""
LEASES_AT_ONCE: Final = 10_000
"""How many leases a step looks at, in 2 ms."""
WRITTEN_AGAIN_AT_ONCE: Final = 8
"""How many leases that are far behind in the journal a step writes again."""


class LeaseTable:
    """Leases by id, client, attempt and end; leased queues by group."""

    def __init__(self, parts: BrokerParts, failing: Failing) -> None:
        """Raises StoreDamaged for a table that cannot be read."""
        self._parts = parts
        self._failing = failing
        self._journal = LeaseJournal(parts)
        self._queues: dict[str, dict[Queue, LeasedQueue]] = {}
        self._leases: dict[int, Lease] = {}
        """By id; the one whose record is the oldest comes first."""
        self._by_end: SortedKeyList[Lease, int] = SortedKeyList(key=lambda each: each.until_ms)
        self._of_attempt: dict[tuple[str, str], Lease] = {}
        self._under_way: dict[tuple[str, str], set[Lease]] = {}
        """By group and client: leases that are renewed, and whose answers may be lost still."""
        self.total = Total()
        self.on_visible: Callable[[str, str], None] = lambda _group, _topic: None
        """Called with group and topic when messages are visible again."""
        self.on_end_sooner: Callable[[], None] = lambda: None
        """Called when a lease ends sooner than all others."""
        self._load()

    def leased(self, group: str) -> dict[Queue, int]:
        """How many messages of each queue are leased to a group."""
        return {
            queue: len(known.leased)
            for queue, known in self._queues.get(group, {}).items()
            if known.leased
        }

    def holder(self, group: str, queue: Queue, queue_offset: int) -> str:
        """The client to which a message is leased; empty if it is not."""
        known = self._queues.get(group, {}).get(queue)
        lease = known.leased.get(queue_offset) if known else None
        return lease.client_id if lease else ""

    # ---- leases

    def first_to_end(self) -> Lease | None:
        """The lease that ends before all others; it may have no messages left."""
        return self._by_end[0] if self._by_end else None

    def of_client(self, group: str, client_id: str) -> Steps[list[Lease]]:
        """The leases of a client, in steps: it is asked for once, so nobody keeps a list."""
        leases = list(self._leases.values())
        found: list[Lease] = []
        for begin in range(0, len(leases), LEASES_AT_ONCE):
            if begin:
                yield
            part = leases[begin : begin + LEASES_AT_ONCE]
            found += [each for each in part if (each.group, each.client_id) == (group, client_id)]
        return found

    def of_attempt(self, group: str, attempt_id: str) -> Lease | None:
        return self._of_attempt.get((group, attempt_id))

    def of_id(self, lease_id: int) -> Lease | None:
        return self._leases.get(lease_id)

    def renew(self, lease: Lease, until_ms: int) -> None:
        """The lease lasts on.  The first time the journal gets it, too: it was received."""
        is_first = not was_received(lease)
        self._prolong(lease, until_ms)
        if not is_first:
            return
        self._settled(lease)
        if not lease.is_doubtful:
            # With a full disk only a crash would end it.
            with suppress(StoreUnavailable):
                self._write_again(lease)

    def doubt(self, group: str, client_id: str) -> None:
        """What is under way to a client may be lost."""
        for lease in self._under_way.pop((group, client_id), ()):
            lease.is_doubtful = True

    def _settled(self, lease: Lease) -> None:
        """Its answer is not under way any more."""
        client = lease.group, lease.client_id
        if (leases := self._under_way.get(client)) is not None:
            leases.discard(lease)
            if not leases:
                del self._under_way[client]

    def _prolong(self, lease: Lease, until_ms: int) -> None:
        self._by_end.remove(lease)
        lease.until_ms = until_ms
        self._by_end.add(lease)

    def new(
        self,
        group: str,
        topic: str,
        client_id: str,
        invisible_ms: int,
        *,
        is_renewed: bool,
        attempt_id: str = "",
        counts: bool = True,
    ) -> Lease:
        now_ms = self._parts.clock.now_ms()
        lease_id = Handle.lease_of(now_ms, secrets.randbits(NONCE_BITS))
        while lease_id in self._leases:
            lease_id = Handle.lease_of(now_ms, secrets.randbits(NONCE_BITS))
        return Lease(
            lease_id,
            secrets.token_bytes(KEY_BYTES),
            group=group,
            topic=topic,
            client_id=client_id,
            until_ms=now_ms + invisible_ms,
            is_renewed=is_renewed,
            attempt_id=attempt_id,
            counts=counts,
        )

    def begin(self, lease: Lease, places: Places) -> None:
        """The lease is in force; its messages are marked as leased already."""
        lease.places = places
        # A full disk must not keep consumers from what is there; only a crash would end the lease.
        with suppress(StoreUnavailable):
            self._write(lease)
        self._keep(lease)

    def write_again(self) -> None:
        """Write leases again that are far behind in the journal.  Raises StoreUnavailable."""
        end = self._journal.end
        for lease in list(islice(self._leases.values(), WRITTEN_AGAIN_AT_ONCE)):
            if lease.journal_offset >= end - FAR_EVENTS:
                return
            self._write_again(lease)

    def _write_again(self, lease: Lease) -> None:
        self._write(lease)
        self._leases[lease.id] = self._leases.pop(lease.id)

    def _write(self, lease: Lease) -> None:
        end = self._journal.end
        self._journal.write(self._journal.leased(lease))
        lease.journal_offset = end

    def _keep(self, lease: Lease) -> None:
        self._leases[lease.id] = lease
        if lease.attempt_id:
            self._of_attempt[lease.group, lease.attempt_id] = lease
        self._by_end.add(lease)
        if lease.is_renewed and not was_received(lease):
            self._under_way.setdefault((lease.group, lease.client_id), set()).add(lease)
        if self._by_end[0] is lease:
            self.on_end_sooner()

    def drop_if_empty(self, lease: Lease) -> None:
        if not lease.left and self._leases.get(lease.id) is lease:
            self._drop(lease)

    def _drop(self, lease: Lease) -> None:
        del self._leases[lease.id]
        self._by_end.remove(lease)
        self._settled(lease)
        if self._of_attempt.get((lease.group, lease.attempt_id)) is lease:
            del self._of_attempt[lease.group, lease.attempt_id]

    # ---- messages

    def finish(self, group: str, places: Places, failed: Sequence[Failed] = ()) -> None:
        """Messages are done; failed: what became of them."""
        self._journal.write(self._journal.done(group, places), [each.record for each in failed])
        for each in failed:
            self._failing.count(each)
        for queue, offsets in places:
            leases = {lease for each in offsets if (lease := queue.leased.get(each)) is not None}
            has_order = any(queue.message_group(each) for each in offsets)
            queue.finish(offsets)
            self._parts.offsets.note_progress(group, queue.queue)
            for lease in leases:
                self.drop_if_empty(lease)
                if has_order:
                    # The next ones of their message groups have waited for them.
                    self.on_visible(group, lease.topic)
        self.commit([queue for queue, _ in places])

    def give_back(self, lease: Lease, places: Places, *, counts: bool) -> None:
        """Messages are visible again; counts: they have failed.  Raises StoreUnavailable."""
        self._journal.write(self._journal.visible(lease, places, counts=counts))
        self.let_go(lease, places, counts=counts)

    def let_go(self, lease: Lease, places: Places, *, counts: bool = False) -> None:
        """give_back() for a lease that is not in force yet."""
        for queue, offsets in places:
            for offset in offsets:
                if queue.leased.get(offset) is lease:
                    queue.give_back(offset, lease.topic, counts=counts)
        self.drop_if_empty(lease)
        if places:
            self.on_visible(lease.group, lease.topic)

    def find(self, group: str, topic: str, handle: Handle) -> LeasedQueue | None:
        """The queue of a message whose handle is valid."""
        name = retry_topic(group) if handle.is_retry else topic
        queue = self._queues.get(group, {}).get(Queue(name, handle.queue_id))
        lease = queue.leased.get(handle.queue_offset) if queue else None
        if queue is None or lease is None or lease.id != handle.lease or lease.topic != topic:
            return None
        if not self.is_current(lease):
            return None
        if handle.proof is not None and not compare_digest(_proof(lease, handle), handle.proof):
            return None
        return queue

    def is_current(self, lease: Lease) -> bool:
        return lease.is_renewed or lease.until_ms > self._parts.clock.now_ms()

    def records(
        self, queue: LeasedQueue, offsets: Sequence[int]
    ) -> Iterator[tuple[int, Record | None]]:
        """The records of messages; None for one that retention, or a deletion, has taken."""
        stored = self._parts.store.queue(queue.queue.topic, queue.queue.queue_id)
        for offset in offsets:
            entry = stored.entry(offset) if stored else None
            record = None
            if entry is not None:
                (record,) = self._parts.store.read_records([entry], check_bodies=False)
            yield offset, record

    # ---- queues and their committed offsets

    def queue(self, group: str, queue: Queue) -> LeasedQueue | None:
        """A queue as it is now; None if it has never had a message.

        Raises Overloaded if the group would have too many queues with an offset.
        """
        stored = self._parts.store.queue(queue.topic, queue.queue_id)
        if stored is None:
            return None
        offsets = self._parts.offsets
        known = self._queues.get(group, {}).get(queue)
        committed = offsets.of(group).get(queue)
        if known is None:
            begin = stored.min_offset if committed is None else committed
            offsets.check(group, {queue: begin})
            known = self._made(group, queue)
            known.begin(begin)
            self.commit([known])
        elif committed != known.committed or stored.max_offset < known.done.below:
            # Somebody else has committed it, or the topic was made anew.
            begin = stored.min_offset if committed is None else committed
            begin = min(begin, stored.max_offset)
            if begin > known.done.below:
                known.skip_to(begin)
            else:
                self._journal.write(self._journal.begins(known, begin))
                known.begin(begin)
            self.commit([known])
        if stored.min_offset > known.done.below:
            known.skip_to(stored.min_offset)
            self.commit([known])
        return known

    def follow(self, group: str) -> None:
        """Take over the offsets that somebody else has committed for a group.

        Raises StoreUnavailable.
        """
        for queue in list(self._queues.get(group, {})):
            self.queue(group, queue)

    def forget_group(self, group: str) -> None:
        """Forget the leases and queues of a group that is deleted."""
        for queue in list(self._queues.get(group, {}).values()):
            self._forget(queue)

    def _forget(self, queue: LeasedQueue) -> None:
        leases = set(queue.leased.values())
        queue.forget()
        for lease in leases:
            self.drop_if_empty(lease)
        del self._queues[queue.group][queue.queue]
        if not self._queues[queue.group]:
            del self._queues[queue.group]

    def _made(self, group: str, queue: Queue) -> LeasedQueue:
        known = self._queues.setdefault(group, {}).get(queue)
        if known is None:
            known = LeasedQueue(group, queue, self.total, is_retry=is_retry(queue.topic))
            self._queues[group][queue] = known
        return known

    def commit(self, queues: Sequence[LeasedQueue] | set[LeasedQueue]) -> None:
        for queue in queues:
            below = queue.done.below
            if queue.committed != below or queue.queue not in self._parts.offsets.of(queue.group):
                queue.committed = below
                self._parts.offsets.commit(queue.group, {queue.queue: below})

    # ---- the table and the start

    def tree(self) -> dict[str, Tree]:
        """The table to persist, by its name, or {} if the file on disk is current."""
        oldest = next(iter(self._leases.values()), None)
        queues = [queue for queues in self._queues.values() for queue in queues.values()]
        return self._journal.tree(queues, oldest)

    def _load(self) -> None:
        table = self._journal.load()
        for row in table.queues:
            queue = self._made(row.group, Queue(row.topic, row.queue_id))
            queue.done = done_in(row.done)
            queue.failed_in_place = dict(row.failed)
        for offset, event in self._journal.events(table):
            self._replay(offset, event, is_new=offset >= table.end)
        for group in list(self._queues):
            for queue in list(self._queues[group].values()):
                self._begin_again(queue)
        for client in list(self._under_way):
            self.doubt(*client)
        until_ms = self._parts.clock.now_ms() + RENEWED_MS
        for lease in list(self._leases.values()):
            if lease.is_renewed:
                # Its client needs the time to connect again.
                self._prolong(lease, max(lease.until_ms, until_ms))
            self.drop_if_empty(lease)

    def _begin_again(self, queue: LeasedQueue) -> None:
        """Take over a queue as the table and the events have it, unless it was deleted since."""
        group, name, parts = queue.group, queue.queue, self._parts
        if parts.groups.get(group) is None or parts.topics.get(name.topic) is None:
            self._forget(queue)
            return
        queue.skip_to(parts.offsets.of(group).get(name, 0))
        self.commit([queue])

    def _replay(self, at: int, event: LeaseEvent, *, is_new: bool) -> None:
        """Do again what an event says; one that is not new says only what is leased."""
        lease = _lease_of(event, at) if event.kind == "leased" else None
        places: list[tuple[LeasedQueue, list[int]]] = []
        groups = iter(event.message_groups)
        for topic, queue_id, runs in event.places:
            queue = self._made(event.group, Queue(topic, queue_id))
            offsets = [offset for begin, end in runs for offset in range(begin, end)]
            places.append((queue, offsets))
            if event.kind == "begins":
                queue.begin(offsets[0]) if is_new else queue.forget()
            elif event.kind == "done" and is_new:
                queue.finish(offsets)
            elif event.kind == "visible":
                for offset in filter(queue.leased.__contains__, offsets):
                    queue.give_back(offset, event.topic, counts=event.counts and is_new)
            elif lease is not None:
                # All offsets have a message group, or none has.
                for offset, message_group in zip_longest(offsets, islice(groups, len(offsets))):
                    if queue.done.is_open(offset):
                        queue.lease(offset, lease, message_group or "")
        if lease is not None:
            self._put_back(lease, places)

    def _put_back(self, lease: Lease, places: Places) -> None:
        lease.places = places
        if (former := self._leases.get(lease.id)) is not None:
            # It was written again, with the messages that were left.
            self._drop(former)
        self._keep(lease)


def _lease_of(event: LeaseEvent, at: int) -> Lease:
    """The lease that an event begins, or writes again."""
    lease = Lease(
        event.lease,
        bytes.fromhex(event.key),
        group=event.group,
        topic=event.topic,
        client_id=event.client,
        until_ms=event.until,
        is_renewed=event.renewed,
        attempt_id=event.attempt,
        counts=event.counts,
    )
    lease.journal_offset = at
    return lease


def handle_of(lease: Lease, queue: LeasedQueue, offset: int) -> Handle:
    handle = Handle(lease.id, queue.is_retry, queue.queue.queue_id, offset)
    return handle._replace(proof=_proof(lease, handle))


def _proof(lease: Lease, handle: Handle) -> bytes:
    """Only who knows the lease's key can make it, and only for this place, group and topic."""
    names = f"\0{lease.group}\0{lease.topic}".encode()
    return blake2b(handle.place + names, key=lease.key, digest_size=PROOF_BYTES).digest()


def begun_ms(lease: Lease) -> int:
    return lease.id >> NONCE_BITS


def was_received(lease: Lease) -> bool:
    """Is the answer with a lease that is renewed at its client for certain?"""
    return lease.until_ms > begun_ms(lease) + RECEIVED_MS
