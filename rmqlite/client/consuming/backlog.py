"""The messages that wait for a listener, over all queues: the only state that threads share.

Takers (listener threads, or the one thread that hands messages to an event loop) take messages from
the queues in turn.  One queue may not hold all threads, so a queue whose messages are slow or hang
leaves threads for the others.

A taker sleeps while it finds nothing.  Whatever makes a message takeable wakes one, and that wakes
the next while there is more: so while a message can be taken, somebody who takes it is awake.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence

from rmqlite.client.consuming.process_queue import ProcessQueue
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.message import StoredMessage


class Backlog:
    """The process queues of a consumer with `threads` listener threads.  Thread-safe."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._queues: dict[Queue, ProcessQueue] = {}
        self._expected = 0
        self._share = threads
        """How many threads one queue may hold."""
        self._turns: deque[ProcessQueue] = deque()
        self._started = 0
        self._stopped = False
        # One lock, two things to wait for: listeners wait for work, close() for quiet.
        lock = threading.Lock()
        self._work = threading.Condition(lock)
        self._quiet = threading.Condition(lock)

    def expect(self, queues: int) -> None:
        """So many queues are assigned: each leaves threads for the others before they are added."""
        with self._work:
            self._expected = queues
            self._share_anew()

    def add(self, queue: ProcessQueue) -> None:
        with self._work:
            self._queues[queue.queue] = queue
            self._share_anew()

    def put(self, queue: ProcessQueue, messages: Sequence[StoredMessage], next_offset: int) -> bool:
        """Add pulled messages; returns whether there is room to pull more.

        If not, queue.on_room is called as soon as there is room.
        """
        with self._work:
            if queue.is_lost:
                return False
            was_ready = bool(queue.ready)
            queue.put(messages, next_offset)
            if queue.ready and not was_ready:
                self._turns.append(queue)
            if messages:
                self._wake_one()
            queue.is_waiting_for_room = queue.is_full
            return not queue.is_waiting_for_room

    def take(self) -> tuple[ProcessQueue, StoredMessage] | None:
        """Wait for a message to consume; None once stopped."""
        with self._work:
            while not self._stopped:
                taken = self._next()
                if taken is not None:
                    # One thread wakes the next while there is work: waking all of them for a batch
                    # that two finish quickly costs more than the work.
                    self._wake_one()
                    return taken
                self._work.wait()
        return None

    def returned(
        self,
        queue: ProcessQueue,
        message: StoredMessage,
        *,
        is_finished: bool,
        takes_next: bool = False,
    ) -> None:
        """A listener returned; unless is_finished, finish() or abandon() follows.

        takes_next: the caller calls take() itself, so nobody else has to be woken.
        """
        with self._work:
            queue.running -= 1
            if queue.ready and not takes_next and queue.running < self._share:
                self._work.notify()
            has_room = is_finished and self._finish(queue, message)
        if has_room:
            queue.on_room()

    def finish(self, queue: ProcessQueue, message: StoredMessage) -> None:
        """The broker took a message back, or no longer has it: its offset may be committed."""
        with self._work:
            has_room = self._finish(queue, message)
        if has_room:
            queue.on_room()

    def abandon(self, queue: ProcessQueue) -> None:
        """A message will be consumed again, here or elsewhere: its offset stays."""
        with self._work:
            queue.abandon()
            self._settled_one()

    def lose(self, queues: Iterable[ProcessQueue]) -> dict[Queue, int]:
        """Drop queues; returns their offsets that are not committed yet."""
        with self._work:
            lost = list(queues)
            for queue in lost:
                queue.lose()
                self._queues.pop(queue.queue, None)
                if queue in self._turns:
                    self._turns.remove(queue)
            self._share_anew()
            return _uncommitted(lost)

    def uncommitted(self) -> dict[Queue, int]:
        """The offset of every queue whose offset is not committed yet."""
        with self._work:
            return _uncommitted(self._queues.values())

    def committed(self, offsets: dict[Queue, int]) -> None:
        """The broker has committed these offsets."""
        with self._work:
            for queue, offset in offsets.items():
                if queue in self._queues:
                    self._queues[queue].committed_offset = offset

    def stop(self) -> None:
        """Start no listener from now on; take() returns None."""
        with self._work:
            self._stopped = True
            self._work.notify_all()

    @property
    def unfinished(self) -> int:
        """How many started messages are neither finished nor abandoned."""
        return self._started

    def wait_quiet(self, timeout_s: float, besides: int = 0) -> bool:
        """Wait until at most `besides` started messages are unfinished; False at the timeout."""
        deadline_s = elapsed_s() + timeout_s
        with self._quiet:
            while self._started > besides:
                if not self._quiet.wait(max(0.0, deadline_s - elapsed_s())):
                    return self._started <= besides
            return True

    def _finish(self, queue: ProcessQueue, message: StoredMessage) -> bool:
        """Finish a message; is there room again in a queue that waited for it?"""
        queue.finish(message)
        self._settled_one()
        if queue.is_full or queue.is_lost or not queue.is_waiting_for_room:
            return False
        queue.is_waiting_for_room = False
        return True

    def _settled_one(self) -> None:
        self._started -= 1
        if self._stopped:
            self._quiet.notify_all()

    def _next(self) -> tuple[ProcessQueue, StoredMessage] | None:
        for _ in range(len(self._turns)):
            queue = self._turns.popleft()
            if queue.running < self._share:
                message = queue.start()
                self._started += 1
                if queue.ready:
                    self._turns.append(queue)
                return queue, message
            self._turns.append(queue)
        return None

    def _wake_one(self) -> None:
        for queue in self._turns:
            if queue.running < self._share:
                self._work.notify()
                return

    def _share_anew(self) -> None:
        """All threads but one per other queue, at least half."""
        others = max(0, max(self._expected, len(self._queues)) - 1)
        self._share = max(1, self._threads // 2, self._threads - others)
        self._wake_one()


def _uncommitted(queues: Iterable[ProcessQueue]) -> dict[Queue, int]:
    return {
        queue.queue: offset
        for queue in queues
        if (offset := queue.commit_offset) != queue.committed_offset
    }
