"""Which member of a group may read a queue alone: the locks of ordered consumers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from rmqlite.clock import Clock
from rmqlite.config import BrokerConfig
from rmqlite.errors import Overloaded
from rmqlite.requests.topics import Queue

LOCK_MS: Final = 60_000


class _Lock(NamedTuple):
    client_id: str
    until_ms: int


class QueueLocks:
    """Which member of a group may read a queue alone: the locks of ordered consumers.

    A lock ends if its member does not take it again within a minute (reference §9.7).  Locks live
    in memory: after a restart members take them again, and until then nobody holds any.
    maxConsumerOffsets also limits their number.
    """

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._groups: dict[str, dict[Queue, _Lock]] = {}
        self._count = 0

    def lock(self, group: str, client_id: str, queues: Collection[Queue]) -> frozenset[Queue]:
        """Lock what nobody else holds; the queues of these that the member holds now.

        Raises Overloaded.
        """
        now_ms = self._clock.now_ms()
        held = self._groups.get(group, {})
        free = {queue for queue in queues if _is_free(held.get(queue), client_id, now_ms)}
        added = len(free - held.keys())
        if self._count + added > self._config.consumer_offsets_max:
            raise Overloaded("maxConsumerOffsets", self._config.consumer_offsets_max)
        if free:
            self._count += added
            held = self._groups.setdefault(group, held)
            held.update(dict.fromkeys(free, _Lock(client_id, now_ms + LOCK_MS)))
        return frozenset(free)

    def unlock(self, group: str, client_id: str, queues: Collection[Queue]) -> None:
        """End the member's locks of these queues."""
        held = self._groups.get(group, {})
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id == client_id:
                del held[queue]
                self._count -= 1
        if not held:
            self._groups.pop(group, None)

    def expire(self) -> None:
        """Forget the locks that are over."""
        now_ms = self._clock.now_ms()
        for group, held in list(self._groups.items()):
            for queue, lock in list(held.items()):
                if lock.until_ms <= now_ms:
                    del held[queue]
                    self._count -= 1
            if not held:
                del self._groups[group]


def _is_free(lock: _Lock | None, client_id: str, now_ms: int) -> bool:
    return lock is None or lock.client_id == client_id or lock.until_ms <= now_ms
