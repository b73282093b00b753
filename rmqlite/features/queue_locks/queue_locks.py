"""Which member of a group may read a queue alone: the locks of ordered consumers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.tables.shares import AccountShares
from rmqlite.kernel.words.clock import Clock

LOCK_MS: Final = 60_000
_EXPIRY_MS: Final = 1_000
"""How often at most those that are over are looked for, at the next call."""


class _Lock(NamedTuple):
    client_id: str
    until_ms: int
    account: str


class QueueLocks:
    """Which member of a group may read a queue alone: the locks of ordered consumers.

    A lock ends if its member does not take it again within a minute (reference §9.7).  Locks live
    in memory: after a restart members take them again, and until then nobody holds any.
    maxConsumerOffsets also limits their number.
    """

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[Queue, _Lock]] = {}
        self._expired_ms = clock.now_ms()
        self._shares = AccountShares("maxConsumerOffsets", config.consumer_offsets_max)

    def lock(
        self, group: str, client_id: str, queues: Collection[Queue], account: str = ""
    ) -> frozenset[Queue]:
        """Lock what nobody else holds; the queues of these that the member holds now.

        account: for which they are counted.  Raises Overloaded.
        """
        now_ms = self._clock.now_ms()
        self._expire(now_ms)
        held = self._groups.get(group, {})
        free = {queue for queue in queues if _is_free(held.get(queue), client_id, now_ms)}
        self._shares.check(account, len(free - held.keys()))
        if free:
            held = self._groups.setdefault(group, held)
            for queue in free & held.keys():
                self._free(held, queue)
            held.update(dict.fromkeys(free, _Lock(client_id, now_ms + LOCK_MS, account)))
            self._shares.add(account, len(free))
        return frozenset(free)

    def unlock(self, group: str, client_id: str, queues: Collection[Queue]) -> None:
        """End the member's locks of these queues."""
        held = self._groups.get(group, {})
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id == client_id:
                self._free(held, queue)
        if not held:
            self._groups.pop(group, None)

    def _expire(self, now_ms: int) -> None:
        """Forget the locks that are over."""
        if now_ms < self._expired_ms + _EXPIRY_MS:
            return
        self._expired_ms = now_ms
        for group, held in list(self._groups.items()):
            for queue, lock in list(held.items()):
                if lock.until_ms <= now_ms:
                    self._free(held, queue)
            if not held:
                del self._groups[group]

    def _free(self, held: dict[Queue, _Lock], queue: Queue) -> None:
        self._shares.add(held.pop(queue).account, -1)


def _is_free(lock: _Lock | None, client_id: str, now_ms: int) -> bool:
    return lock is None or lock.client_id == client_id or lock.until_ms <= now_ms
