"""What a group has done, leased and not yet seen of one queue.

    below done.below     done: acknowledged, a retry by now, or not wanted by the filter
    between              done, leased, visible again, or of a topic that nobody has asked for yet
    from its cursor on   not seen yet

A retry topic holds messages of all topics of its group, and a client asks for one topic.  So a
queue has a cursor for each topic that was asked for.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

from sortedcontainers import SortedDict

from rmqlite.features.leases.requests import NONCE_BITS, PROOF_BYTES, Handle
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.store.progress import CompletedOffsets

KEY_BYTES: Final = 16
RECEIVED_MS: Final = 5_000
"""So long after its begin the answer with a lease is at its client, or the call is known to be
broken.  A lease that is renewed lasts so long at first."""
RETURNS_MAX: Final = 16
"""So often a message may come back to be visible without having failed, because its client left or
wants it later.  Each further time is a failed attempt: it may be what ends its clients."""


class Visible(NamedTuple):
    """A message that was seen and may be leased.

    message_group: its messages are leased in order; "" if the group of consumers asks for no order.
    """

    topic: str
    message_group: str


@dataclass(slots=True)
class Total:
    """How many messages of all queues are leased, and how many are visible again."""

    leased: int = 0
    visible: int = 0

    @property
    def messages(self) -> int:
        return self.leased + self.visible


class LeasedQueue:
    """One queue, as far as one group has consumed it."""

    __slots__ = (
        "_leased_groups",
        "_message_groups",
        "_total",
        "begun",
        "broken",
        "committed",
        "cursors",
        "done",
        "failed_in_place",
        "group",
        "is_being_read",
        "is_gone",
        "is_retry",
        "leased",
        "queue",
        "returned",
        "visible",
        "was_passed_over",
    )

    def __init__(self, group: str, queue: Queue, total: Total, *, is_retry: bool) -> None:
        self._total = total
        self.leased: dict[int, Lease] = {}
        self.visible: SortedDict[int, Visible] = SortedDict()
        self.group = group
        self.queue = queue
        self.is_retry = is_retry
        self.is_being_read = False
        """One receive at a time moves the cursors."""
        self.was_passed_over = False
        """Did another receive leave the queue out meanwhile?  The one that reads wakes it then."""
        self.committed = 0
        """The offset that is committed."""
        self.begun = 0
        """How often it began anew: what was being read meanwhile does not count then."""
        self.is_gone = False
        """Was it deleted?"""
        self.begin(0)

    def begin(self, offset: int) -> None:
        """All before this queue offset is done, and nothing behind it was seen."""
        self.done = CompletedOffsets([(0, offset)] if offset else ())
        self.begun += 1
        self.forget()
        self.failed_in_place: dict[int, int] = {}
        """How often a message failed since its record was written."""

    def forget(self) -> None:
        """Nothing is leased, and nothing that is not done was seen."""
        for lease in self.leased.values():
            lease.left -= 1
        self._total.leased -= len(self.leased)
        self._total.visible -= len(self.visible)
        self.leased.clear()
        self.visible.clear()
        self.cursors: dict[str, int] = {}
        self.broken: set[int] = set()
        """Messages of an answer that broke: each comes alone, because it may be the reason."""
        self.returned: dict[int, int] = {}
        """How often a message came back to be visible without having failed.  A restart of the
        broker forgets it."""
        self._message_groups: dict[int, str] = {}
        """Of the leased messages that have one."""
        self._leased_groups: Counter[str] = Counter()

    def cursor(self, topic: str) -> int:
        return max(self.cursors.get(topic, 0), self.done.below)

    def has_seen(self, offset: int) -> bool:
        """Is the message done, leased or visible?"""
        return not self.done.is_open(offset) or offset in self.leased or offset in self.visible

    def is_group_leased(self, message_group: str) -> bool:
        return bool(message_group) and message_group in self._leased_groups

    def lease(self, offset: int, lease: Lease, message_group: str = "") -> None:
        self._end(offset)
        self._hide(offset)
        self.leased[offset] = lease
        lease.left += 1
        self._total.leased += 1
        if message_group:
            self._message_groups[offset] = message_group
            self._leased_groups[message_group] += 1

    def message_group(self, offset: int) -> str:
        """Of a leased message."""
        return self._message_groups.get(offset, "")

    def finish(self, offsets: Iterable[int]) -> None:
        """These messages are done."""
        for offset in offsets:
            self._end(offset)
            self._hide(offset)
            self.failed_in_place.pop(offset, None)
            self.broken.discard(offset)
            self.returned.pop(offset, None)
            self.done.add(offset, offset + 1)

    def see(self, offset: int, topic: str, message_group: str) -> None:
        """A message may be leased, and is before the cursor."""
        self.visible[offset] = Visible(topic, message_group)
        self._total.visible += 1

    def give_back(self, offset: int, topic: str, *, counts: bool) -> None:
        """A leased message is visible again; counts: it has failed."""
        self.see(offset, topic, self._end(offset))
        if counts:
            self.returned.pop(offset, None)
            self.failed_in_place[offset] = self.failed_in_place.get(offset, 0) + 1

    def came_back(self, offsets: Iterable[int], *, is_broken: bool) -> None:
        """Messages are visible again without having failed; is_broken: their answer broke."""
        for offset in offsets:
            if is_broken:
                self.broken.add(offset)
            else:
                self.returned[offset] = self.returned.get(offset, 0) + 1

    def is_spent(self, offset: int, *, is_broken: bool) -> bool:
        """Has a message come back so often that it fails the next time?

        Once for a broken answer: the second time it was alone in it, so it is the reason.
        """
        return offset in self.broken if is_broken else self.returned.get(offset, 0) >= RETURNS_MAX

    def note_reset(self, below: int | None = None) -> None:
        """Let leases know which of their messages a reset ends: those before an offset, or all.

        They stay until their time is over, so that their clients can acknowledge.
        """
        for offset, lease in self.leased.items():
            if below is None or offset < below:
                lease.reset |= {(self.queue, offset)}

    def skip_to(self, offset: int) -> None:
        """All before this queue offset is done, or gone."""
        if offset > self.done.below:
            gone = [each for each in (*self.leased, *self.visible) if each < offset]
            self.finish(gone)
            self.done.add(0, offset)

    def _end(self, offset: int) -> str:
        """End the lease of a message; its message group."""
        lease = self.leased.pop(offset, None)
        if lease is not None:
            lease.left -= 1
            self._total.leased -= 1
        message_group = self._message_groups.pop(offset, "")
        if message_group:
            self._leased_groups[message_group] -= 1
            if not self._leased_groups[message_group]:
                del self._leased_groups[message_group]
        return message_group

    def _hide(self, offset: int) -> None:
        if self.visible.pop(offset, None) is not None:
            self._total.visible -= 1


Places = Sequence[tuple[LeasedQueue, Collection[int]]]
"""Queue offsets in several queues."""


class Lease:
    """What one receive has leased to a client, until when."""

    __slots__ = (
        "attempt_id",
        "client_id",
        "counts",
        "group",
        "id",
        "is_doubtful",
        "is_renewed",
        "journal_offset",
        "key",
        "left",
        "places",
        "reset",
        "topic",
        "until_ms",
    )

    def __init__(
        self,
        id: int,
        key: bytes,
        *,
        group: str,
        topic: str,
        client_id: str,
        until_ms: int,
        is_renewed: bool,
        attempt_id: str = "",
        counts: bool = True,
    ) -> None:
        """key: only who has received a message can prove it.  is_renewed: while its client lives.
        counts: is its end a failed attempt?
        """
        self.counts = counts
        self.id = id
        self.key = key
        # Very many leases have the same ones.
        self.group = sys.intern(group)
        self.topic = sys.intern(topic)
        self.client_id = sys.intern(client_id)
        self.until_ms = until_ms
        self.is_renewed = is_renewed
        self.is_doubtful = False
        """Has the client perhaps never got the answer?  Then it is renewed once at most."""
        self.attempt_id = attempt_id
        self.places: Sequence[tuple[LeasedQueue, Collection[int]]] = ()
        self.left = 0
        """How many of its messages are still leased."""
        self.journal_offset = 0
        """The queue offset of its record."""
        self.reset: frozenset[tuple[Queue, int]] = frozenset()
        """Its messages that a reset of offsets has ended: to acknowledge them changes nothing."""

    def held(self) -> list[tuple[LeasedQueue, list[int]]]:
        """The messages that are still leased."""
        return [
            (queue, left)
            for queue, offsets in self.places
            if (left := [each for each in offsets if queue.leased.get(each) is self])
        ]


def handle_of(lease: Lease, queue: LeasedQueue, offset: int) -> Handle:
    handle = Handle(lease.id, queue.is_retry, queue.queue.queue_id, offset)
    return handle._replace(proof=proof_of(lease, handle))


def proof_of(lease: Lease, handle: Handle) -> bytes:
    """Only who knows the lease's key can make it, and only for this place, group and topic."""
    names = f"\0{lease.group}\0{lease.topic}".encode()
    return blake2b(handle.place + names, key=lease.key, digest_size=PROOF_BYTES).digest()


def begun_ms(lease: Lease) -> int:
    return lease.id >> NONCE_BITS


def was_received(lease: Lease) -> bool:
    """Is the answer with a lease that is renewed at its client for certain?"""
    return lease.until_ms > begun_ms(lease) + RECEIVED_MS
