"""Deliver due messages: one task for each wait queue, which sleeps until its next one is due.

A task is made when a wait queue has its first message.  Due messages are delivered in slices.
Tasks with more than a slice take turns, and other calls get theirs after some slices; a message
that has just become due does not wait for these turns.  So a burst delays no other wait queue and
no send for long.  If a slice cannot be stored, because the disk is full for example, all tasks
rest, and delivery continues where it failed.
"""

from __future__ import annotations

import asyncio
from typing import Final

from rmqlite.kernel.broker import Broker
from rmqlite.kernel.process.loops import Outage
from rmqlite.kernel.service.group_commit import GroupCommit
from rmqlite.kernel.service.turns import let_others, set_or_late
from rmqlite.kernel.words.clock import WAKE_MS_MAX, Clock, elapsed_s
from rmqlite.kernel.words.errors import StoreUnavailable

SLICES_S: Final = 0.002
"""After so long, other calls get their turns: a slice takes 0.3 to 4 ms, the turns 0.15."""
RETRY_S: Final = 1.0
"""How long delivery rests after an append failed; doubled after each further failure."""
RETRY_S_MAX: Final = 8.0
"""The longest rest: so long after there is space again, delivery continues at the latest."""


class Announcements:
    """The broker's listener: what it appends concerns the group commit and the delivery."""

    commit: GroupCommit
    delivery: DeliveryTasks

    def appended(self, topic: str, queue_id: int) -> None:
        self.commit.appended(topic, queue_id)

    def due_sooner(self, wait_queue: int) -> None:
        self.delivery.due_sooner(wait_queue)


class DeliveryTasks:
    """The tasks that deliver."""

    def __init__(self, broker: Broker, clock: Clock, tasks: asyncio.TaskGroup) -> None:
        self._broker = broker
        self._clock = clock
        self._tasks = tasks
        self._outage = Outage("delivery failed, it is tried again", "delivery continues")
        self._turn = asyncio.Lock()
        """Held by one of the tasks that have more than a slice; they get it in their order."""
        self._even_at_s = elapsed_s()
        """When others have had as much time as the slices took."""
        self._rests_until_ms = 0
        self._wakes: dict[int, asyncio.Event] = {}
        """Wakes the task of each wait queue."""
        self._running = [tasks.create_task(self._watch(), name="overdue deliveries")]
        for known in broker.wait_queues:
            self.due_sooner(known.id)

    def due_sooner(self, wait_queue: int) -> None:
        """Look again: its earliest message may now be due before its task would wake."""
        wake = self._wakes.get(wait_queue)
        if wake is not None:
            wake.set()
            return
        self._wakes[wait_queue] = wake = asyncio.Event()
        run = self._run(wait_queue, wake)
        self._running.append(self._tasks.create_task(run, name=f"delivery {wait_queue}"))

    def wake_overdue(self) -> None:
        """Wake the tasks that sleep too long, because the clock has jumped meanwhile."""
        now_ms = self._clock.now_ms()
        for wait_queue, wake in self._wakes.items():
            due_ms = self._broker.wait_queues.next_due_ms(wait_queue)
            if due_ms is not None and due_ms <= now_ms:
                wake.set()

    def close(self) -> None:
        """End the tasks."""
        for task in self._running:
            task.cancel()

    async def _run(self, wait_queue: int, wake: asyncio.Event) -> None:
        """Raises FlushFailed."""
        has_more = False
        while True:
            wake.clear()
            if has_more or self._is_time_for_others() or self._rest_s() > 0:
                async with self._turn:
                    await self._let_others()
                    due_ms = self._deliver(wait_queue)
            else:
                due_ms = self._deliver(wait_queue)
            left_s = None if due_ms is None else self._clock.seconds_until(due_ms)
            has_more = left_s is not None and left_s <= 0
            if left_s is None:
                await wake.wait()
            elif left_s > 0:
                await set_or_late(wake, left_s)

    def _deliver(self, wait_queue: int) -> int | None:
        """Deliver one slice.  Return when the next message is due.  Raises FlushFailed."""
        began_s, end = elapsed_s(), self._broker.store.end
        try:
            due_ms = self._broker.deliver(wait_queue)
        except StoreUnavailable as error:
            rest_s = min(RETRY_S * 2**self._outage.failures, RETRY_S_MAX)
            self._outage.failed(error)
            self._rests_until_ms = self._clock.now_ms() + int(rest_s * 1000)
            return self._clock.now_ms()
        if self._outage.failures and self._broker.store.end > end:
            self._outage.succeeded()
        self._even_at_s = max(self._even_at_s, began_s) + 2 * (elapsed_s() - began_s)
        self._rests_until_ms = self._broker.schedule.paced_until_ms()
        return due_ms

    async def _let_others(self) -> None:
        """Rest until slices can be stored, or let others if it is their time."""
        if (rest_s := self._rest_s()) > 0:
            await asyncio.sleep(rest_s)
        elif self._is_time_for_others():
            # Whoever waits in this pass of the loop, too, does not begin in it.
            await asyncio.sleep(0)
            self._even_at_s = elapsed_s()
            await let_others()

    def _is_time_for_others(self) -> bool:
        return self._even_at_s - elapsed_s() >= SLICES_S

    def _rest_s(self) -> float:
        return self._clock.seconds_until(self._rests_until_ms)

    async def _watch(self) -> None:
        """Notice that the machine was suspended."""
        while True:
            await asyncio.sleep(WAKE_MS_MAX / 1000)
            self.wake_overdue()
