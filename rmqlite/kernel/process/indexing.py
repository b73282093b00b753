"""Keeps the table of the timers up to date: one thread writes into it, one batch at a time.

A batch waits until the log behind it is on disk.  If it cannot be written, because the disk is
full for example, it is tried again after a pause; its timers stay in memory until then.  After a
start the timers that are not in the table are read from their queue, in steps beside the calls.
Then, and every ten minutes, the table is compared with the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from rmqlite.kernel.broker import Broker
from rmqlite.kernel.process.loops import Outage
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.service.turns import next_slice
from rmqlite.kernel.store.timer_index import IndexDamaged, IndexWrite
from rmqlite.kernel.waits.timer_queue import TimerKeys
from rmqlite.kernel.words.clock import Clock
from rmqlite.kernel.words.errors import StoreUnavailable

WRITE_S: Final = 2.0
"""How long changes gather, unless there are many of them earlier."""
LOOK_S: Final = 0.1
IDLE_LOOK_S: Final = 0.5
"""How often to look whether there are timers."""
RETRY_S: Final = 1.0
"""How long to rest after a failure; doubled after each further one."""
RETRY_S_MAX: Final = 8.0
COMPARE_S: Final = 600.0
"""How long after a comparison of the table the next one begins; it takes LOOK_S a step."""


class Indexing:
    """Two loops, run by the server until they are cancelled; then close() writes once more."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        thread: ThreadPoolExecutor,
        due_sooner: Callable[[int], None],
    ) -> None:
        """due_sooner: called with the wait queue whose earliest message is earlier than before."""
        self._broker = broker
        self._clock = clock
        self._due_sooner = due_sooner
        self._thread = thread
        self._loop = asyncio.get_running_loop()
        self._write: IndexWrite | None = None
        self._compare_at_s = 0.0
        self._write_outage = Outage(
            "timers cannot be indexed, will be tried again", "timers are indexed again"
        )
        self._read_outage = Outage(
            "the queue of the timers cannot be read, will be tried again",
            "the queue of the timers is read again",
        )

    async def catch_up(self) -> None:
        """Read what the table does not have, whenever there is something."""
        while True:
            keys, is_more = self._keys, False
            try:
                is_more = keys is not None and self._catch_up(keys)
                self._read_outage.succeeded()
            except StoreUnavailable as error:
                await self._rest(self._read_outage, error)
            if is_more:
                await next_slice()
            else:
                await asyncio.sleep(IDLE_LOOK_S if keys is None else LOOK_S)

    def _catch_up(self, keys: TimerKeys) -> bool:
        """A step; wakes delivery if it finds an earlier timer.  Raises StoreUnavailable."""
        least = keys.least
        try:
            return keys.catch_up() or self._compare(keys)
        finally:
            if keys.least < least:
                self._due_sooner(TIMERS)

    def _compare(self, keys: TimerKeys) -> bool:
        """A step of a comparison; True if the next one may follow at once.

        While timers are due, their delivery comes first.
        """
        if not keys.is_comparing:
            if self._loop.time() >= self._compare_at_s:
                keys.begin_comparison()
            return False
        self._compare_at_s = self._loop.time() + COMPARE_S
        is_urgent = keys.compare()
        timers = self._broker.wait_queues.timers
        due_ms = timers.next_due_ms() if timers else None
        return is_urgent and (due_ms is None or due_ms > self._clock.now_ms())

    async def write(self) -> None:
        """Write what has gathered."""
        next_s = 0.0
        while True:
            keys = self._keys
            await asyncio.sleep(IDLE_LOOK_S if keys is None else LOOK_S)
            if keys is None or not keys.unindexed.changes:
                continue
            if keys.unindexed.is_full or self._loop.time() >= next_s:
                next_s = self._loop.time() + WRITE_S
                await self._write_all(keys)

    async def _write_all(self, keys: TimerKeys) -> None:
        error: IndexDamaged | None = None
        while True:
            try:
                if self._write is None:
                    self._write = keys.begin_write()
                while self._broker.store.durable_end < self._write.log_end:
                    await asyncio.sleep(LOOK_S)
                await self._loop.run_in_executor(self._thread, self._write.run)
            except StoreUnavailable as failure:
                await self._rest(self._write_outage, failure)
                continue
            except IndexDamaged as failure:
                error = failure
            break
        self._write_outage.succeeded()
        self._write = None
        keys.end_write(error)

    def close(self) -> None:
        """Write what is left; loops and thread have ended.  Raises FlushFailed.

        Without it the next start reads from the queue what is left.
        """
        keys, store = self._keys, self._broker.store
        if keys is None:
            return
        sync = store.begin_sync()
        sync.run()
        store.synced(sync)
        if store.durable_end < store.end:
            # It might be cut off.
            return
        try:
            if self._write is not None:
                # Nobody noted whether it ended: it may run twice.
                self._write.run()
                keys.end_write()
            if keys.unindexed.changes:
                keys.begin_write().run()
        except StoreUnavailable as error:
            self._write_outage.failed(error)
        except IndexDamaged:
            # The next start finds that, too.
            return

    @property
    def _keys(self) -> TimerKeys | None:
        timers = self._broker.wait_queues.timers
        return timers.keys if timers is not None else None

    @staticmethod
    async def _rest(outage: Outage, error: StoreUnavailable) -> None:
        outage.failed(error)
        await asyncio.sleep(min(RETRY_S * 2 ** (outage.failures - 1), RETRY_S_MAX))
