"""The committed offsets of each group in each queue: RocketMQ's config/consumerOffset.json."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from rmqlite.kernel import Steps
from rmqlite.kernel.config.config import KEYS, BrokerConfig
from rmqlite.kernel.config.table_shapes import ConsumerOffsetsTable
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.tables.tables import Snapshot, Tree
from rmqlite.kernel.words.clock import Clock
from rmqlite.kernel.words.errors import InvalidValue, Overloaded

TABLE: Final = "consumerOffset.json"
_STEP_OFFSETS: Final = 5_000
"""The offsets of one step that only sorts them: 2 ms."""


class Places(Protocol):
    """Whoever keeps places of its own beside the committed offsets: here the leases."""

    def follow(
        self, group: str, offsets: Mapping[Queue, int], *, is_reset: bool
    ) -> Mapping[Queue, int]:
        """Go on at these offsets before they are committed; those to commit instead.

        Raises StoreUnavailable: nothing has changed.
        """

    def forget(self, group: str, queues: Collection[Queue]) -> None:
        """These offsets are forgotten."""


class ConsumerOffsets:
    """The next queue offset to read, by group and queue.

    All offsets go through here, whoever commits, resets or deletes them.  So here, and nowhere
    else, the leases learn of it: what they have done may not overwrite an offset that somebody
    else has committed since.
    """

    def __init__(self, store: MessageStore, config: BrokerConfig, clock: Clock) -> None:
        self._store = store
        self._config = config
        self._clock = clock
        self._offsets: dict[str, dict[Queue, int]] = {}
        self._progressed: dict[str, dict[Queue, int]] = {}
        """When a group last went on in a queue since the start; only where it has an offset."""
        self._groups_of: dict[str, set[str]] = {}
        """The groups with an offset in a topic."""
        self.leases: Places | None = None
        self.on_back: Callable[[str], None] = lambda _group: None
        """Called with a group that goes back in a queue, or whose offsets are forgotten."""
        table = store.load_table(TABLE, ConsumerOffsetsTable) or ConsumerOffsetsTable()
        for name, offsets in table.offset_table.items():
            topic, _, group = name.partition("@")
            for queue_id, offset in offsets.items():
                queue = Queue(topic, queue_id)
                # A crash may have taken unsynced messages that were already consumed.
                known = max(0, min(offset, self._max_offset(queue)))
                self._offsets.setdefault(group, {})[queue] = known
                self._groups_of.setdefault(topic, set()).add(group)
        self._count = sum(map(len, self._offsets.values()))
        self.changes = 0
        """Grows with each change of an offset."""

    def groups(self) -> Collection[str]:
        return self._offsets.keys()

    def of(self, group: str) -> dict[Queue, int]:
        """All committed offsets of a group; the caller must not change them."""
        return self._offsets.get(group, {})

    def by_topic(self, group: str) -> Steps[dict[str, dict[int, int]]]:
        """All committed offsets of a group, by topic and queue id, in steps."""
        table: dict[str, dict[int, int]] = {}
        known = self.of(group)
        for number, queue in enumerate(tuple(known), 1):
            if number % _STEP_OFFSETS == 0:
                yield
            offset = known.get(queue)
            # None: its topic was deleted between two steps.
            if offset is not None:
                table.setdefault(queue.topic, {})[queue.queue_id] = offset
        return table

    def groups_of(self, topic: str) -> frozenset[str]:
        """The groups that have committed an offset in a topic."""
        return frozenset(self._groups_of.get(topic, ()))

    def forget_group(self, group: str) -> None:
        """Forget all offsets of a group; that is on disk after the next persist."""
        self.changes += 1
        gone = self._offsets.pop(group, {})
        self.on_back(group)
        if self.leases is not None:
            self.leases.forget(group, gone)
        self._progressed.pop(group, None)
        self._count -= len(gone)
        for topic in {queue.topic for queue in gone}:
            self._groups_of[topic].discard(group)

    def forget_topic(self, topic: str) -> None:
        """Forget every group's offsets in a topic; that is on disk after the next persist."""
        self.changes += 1
        for group in self._groups_of.pop(topic, set()):
            known = self._offsets[group]
            gone = [queue for queue in known if queue.topic == topic]
            if self.leases is not None:
                self.leases.forget(group, gone)
            for queue in gone:
                del known[queue]
                self._progressed.get(group, {}).pop(queue, None)
            self._count -= len(gone)
            if not known:
                del self._offsets[group]
                self._progressed.pop(group, None)

    def committed(self, queue: Queue) -> dict[str, int]:
        """The committed offset of every group in a queue."""
        return {group: known[queue] for group, known in self._offsets.items() if queue in known}

    def check(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Raises InvalidValue; Overloaded if there would be too many pairs of group and queue."""
        for queue, offset in offsets.items():
            highest = self._max_offset(queue)
            if not 0 <= offset <= highest:
                rule = f"0 to {highest}, the end of {queue.topic} queue {queue.queue_id}"
                raise InvalidValue("queue_offset", offset, rule)
        known = self.of(group)
        # Not a difference of the keys: that would walk over all queues of the group.
        added = sum([queue not in known for queue in offsets])
        most = self._config.consumer_offsets_max
        if added and self._count + added > most:
            raise Overloaded(KEYS["consumer_offsets_max"], most)

    def commit(self, group: str, offsets: Mapping[Queue, int], *, is_reset: bool = False) -> None:
        """Store offsets in memory; call check() first.

        They are on disk after the next persist; after a crash before it the group reads some
        messages again.  is_reset: by an operator, so that all messages from there on come again.
        Raises StoreUnavailable if the group has leases: nothing has changed.
        """
        if self.leases is not None:
            offsets = self.leases.follow(group, offsets, is_reset=is_reset)
        known = self.of(group)
        if is_reset or any(offset < known.get(queue, 0) for queue, offset in offsets.items()):
            self.on_back(group)
        self.write(group, offsets)

    def write(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """commit() for the leases themselves."""
        self.changes += 1
        known = self._offsets.setdefault(group, {})
        before = len(known)
        for queue, offset in offsets.items():
            if offset > known.get(queue, 0):
                self.note_progress(group, queue)
        known.update(offsets)
        added = len(known) - before
        self._count += added
        if added:
            for queue in offsets:
                self._groups_of.setdefault(queue.topic, set()).add(group)

    def note_progress(self, group: str, queue: Queue) -> None:
        """The group has finished a message in this queue, where it has or gets an offset."""
        self._progressed.setdefault(group, {})[queue] = self._clock.now_ms()

    def progressed_at_ms(self, group: str, queue: Queue) -> int:
        """When a group last finished a message in a queue; 0 if it has not since the start."""
        return self._progressed.get(group, {}).get(queue, 0)

    def snapshot(self) -> Snapshot:
        """The present offsets, in RocketMQ's shape: "topic@group" -> queue id -> offset."""
        now = [(group, offsets.copy()) for group, offsets in self._offsets.items()]

        def tree() -> Tree:
            table: dict[str, dict[int, int]] = {}
            for group, offsets in now:
                for queue, offset in sorted(offsets.items()):
                    table.setdefault(f"{queue.topic}@{group}", {})[queue.queue_id] = offset
            return {"offsetTable": table}

        return tree

    def _max_offset(self, queue: Queue) -> int:
        stored = self._store.queue(queue.topic, queue.queue_id)
        return stored.max_offset if stored else 0
