"""All leases and leased queues of a broker, and their events in the log.

What a client or a due time changes is written to the journal first, and then done here.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from hmac import compare_digest
from itertools import islice, zip_longest
from typing import Final

from sortedcontainers import SortedKeyList

from rmqlite.features.leases.journal import FAR_EVENTS, LeaseJournal, done_in, lease_of
from rmqlite.features.leases.leased_queue import (
    KEY_BYTES,
    Lease,
    LeasedQueue,
    Places,
    Total,
    proof_of,
    was_received,
)
from rmqlite.features.leases.requests import NONCE_BITS, Handle
from rmqlite.features.leases.table_shapes import LeaseEvent, LeaseKind
from rmqlite.kernel import Steps
from rmqlite.kernel.failing import Failed, Failing
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.records.record import NewRecord
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.store.tables.tables import Tree
from rmqlite.kernel.words.errors import StoreUnavailable
from rmqlite.kernel.words.names import is_retry, retry_topic

RENEWED_MS: Final = 60_000
"""A renewed lease lasts so long each time."""
LEASES_AT_ONCE: Final = 10_000
"""How many leases a step looks at, in 2 ms."""
WRITTEN_AGAIN_AT_ONCE: Final = 8
"""How many leases that are far behind in the journal a step writes again."""
MOVES_OF_EVENT_MAX: Final = 1_000
"""How many queues one event moves, so that it fits into a record."""

Move = tuple[LeasedQueue, int]
"""A queue, and the queue offset at which it goes on."""
MakeEvent = Callable[[str, Places], NewRecord]


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
        parts.offsets.leases = self

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
        if handle.proof is not None and not compare_digest(proof_of(lease, handle), handle.proof):
            return None
        return queue

    def was_reset(self, group: str, topic: str, handle: Handle) -> bool:
        """Was a message leased, until somebody moved its group's offset?"""
        lease = self._leases.get(handle.lease)
        if lease is None or (lease.group, lease.topic) != (group, topic):
            return False
        if handle.proof is not None and not compare_digest(proof_of(lease, handle), handle.proof):
            return False
        name = retry_topic(group) if handle.is_retry else topic
        return (Queue(name, handle.queue_id), handle.queue_offset) in lease.reset

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
        elif stored.max_offset < known.done.below:
            # A crash took messages that were consumed: the next ones get their offsets.
            begin = stored.min_offset if committed is None else committed
            self._begin(group, [(known, min(begin, stored.max_offset))])
            self.commit([known])
        if stored.min_offset > known.done.below:
            known.skip_to(stored.min_offset)
            self.commit([known])
        return known

    def follow(
        self, group: str, offsets: Mapping[Queue, int], *, is_reset: bool
    ) -> Mapping[Queue, int]:
        """Go on at offsets that somebody else commits; those to commit, if more is done already.

        What is leased before them is done.  If a queue goes back, or an operator resets it to where
        it is, all its messages from there on come again.  Raises StoreUnavailable: nothing has
        changed.
        """
        known = self._queues.get(group)
        if known is None:
            return offsets
        moved = [
            (queue, offset)
            for each, offset in offsets.items()
            if (queue := known.get(each)) is not None and (is_reset or offset != queue.committed)
        ]
        if not moved:
            return offsets
        back: list[Move] = []
        forward: list[Move] = []
        for queue, offset in moved:
            is_back = offset <= queue.done.below if is_reset else offset < queue.committed
            (back if is_back else forward).append((queue, offset))
        if is_reset:
            # In the log, because a skip that a crash undoes would bring what an operator skipped.
            # An ordinary commit is on disk with the next persist, as for every group.
            self._write_moves(self._journal.skips, group, forward)
        self._begin(group, back)
        for queue, offset in forward:
            queue.note_reset(offset)
            queue.skip_to(offset)
        for queue, _ in moved:
            queue.committed = queue.done.below
            self.on_visible(group, queue.queue.topic)
        return {**offsets, **{queue.queue: queue.committed for queue, _ in moved}}

    def forget(self, group: str, queues: Collection[Queue]) -> None:
        """Forget leases and what is done: the group, or the topic, is deleted."""
        known = self._queues.get(group, {})
        gone = [each for queue in queues if (each := known.get(queue)) is not None]
        # With a full disk only a crash would bring them back.
        with suppress(StoreUnavailable):
            self._write_moves(self._journal.begins, group, [(queue, 0) for queue in gone])
        for queue in gone:
            self._forget(queue)

    def _begin(self, group: str, moves: Sequence[Move]) -> None:
        """Let queues begin anew.  Raises StoreUnavailable: nothing has changed."""
        self._write_moves(self._journal.begins, group, moves)
        for queue, offset in moves:
            queue.note_reset()
            queue.begin(offset)

    def _write_moves(self, event: MakeEvent, group: str, moves: Sequence[Move]) -> None:
        for begin in range(0, len(moves), MOVES_OF_EVENT_MAX):
            some = moves[begin : begin + MOVES_OF_EVENT_MAX]
            self._journal.write(event(group, [(queue, (offset,)) for queue, offset in some]))

    def _forget(self, queue: LeasedQueue) -> None:
        leases = set(queue.leased.values())
        queue.is_gone = True
        queue.begin(0)
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
                self._parts.offsets.write(queue.group, {queue.queue: below})

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
        moved: set[LeasedQueue] = set()
        """Queues with an event that is newer than the table of offsets."""
        for offset, event in self._journal.events(table):
            is_new = offset >= table.end
            self._replay(offset, event, is_new=is_new)
            if event.kind == "begins" and is_new:
                moved |= self._queues_in(event)
        for group in list(self._queues):
            for queue in list(self._queues[group].values()):
                self._begin_again(queue, is_moved=queue in moved)
        for client in list(self._under_way):
            self.doubt(*client)
        until_ms = self._parts.clock.now_ms() + RENEWED_MS
        for lease in list(self._leases.values()):
            if lease.is_renewed:
                # Its client needs the time to connect again.
                self._prolong(lease, max(lease.until_ms, until_ms))
            self.drop_if_empty(lease)

    def _begin_again(self, queue: LeasedQueue, *, is_moved: bool) -> None:
        """Take over a queue as the table and the events have it, unless it was deleted since."""
        group, name, parts = queue.group, queue.queue, self._parts
        if parts.groups.get(group) is None or parts.topics.get(name.topic) is None:
            self._forget(queue)
            return
        if not is_moved:
            queue.skip_to(parts.offsets.of(group).get(name, 0))
        self.commit([queue])

    def _replay(self, at: int, event: LeaseEvent, *, is_new: bool) -> None:
        """Do again what an event says; one that is not new says only what is leased."""
        lease = lease_of(event, at) if event.kind == "leased" else None
        places: list[tuple[LeasedQueue, list[int]]] = []
        groups = iter(event.message_groups)
        for topic, queue_id, runs in event.places:
            queue = self._made(event.group, Queue(topic, queue_id))
            offsets = [offset for begin, end in runs for offset in range(begin, end)]
            places.append((queue, offsets))
            if event.kind in ("begins", "skips"):
                _move_again(queue, event.kind, offsets[0], is_new=is_new)
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

    def _queues_in(self, event: LeaseEvent) -> set[LeasedQueue]:
        known = self._queues[event.group]
        return {known[Queue(topic, queue_id)] for topic, queue_id, _ in event.places}

    def _put_back(self, lease: Lease, places: Places) -> None:
        lease.places = places
        if (former := self._leases.get(lease.id)) is not None:
            # It was written again, with the messages that were left.
            self._drop(former)
        self._keep(lease)


def _move_again(queue: LeasedQueue, kind: LeaseKind, offset: int, *, is_new: bool) -> None:
    """Do again what a commit, reset or deletion did."""
    if kind == "begins":
        queue.begin(offset) if is_new else queue.forget()
    elif is_new:
        queue.skip_to(offset)
