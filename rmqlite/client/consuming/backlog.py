"""The messages between pull and commit, over all queues: the only state that threads share.

In each queue: pulled -> ready -> started -> finished.  The lowest unfinished offset may be
committed: messages finish in any order, so a restart may repeat a message but never skips one.

Takers (listener threads, or the one thread that hands messages to an event loop) take messages from
the queues in turn.  One queue may not hold all threads, so a queue whose messages are slow or hang
leaves threads for the others.

A taker sleeps while it finds nothing.  Whatever makes a message takeable wakes one, and that wakes
the next while there is more: so while a message can be taken, somebody who takes it is awake.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.message import StoredMessage


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """The limits of one queue: while one is reached, nothing is pulled.  Bytes are of records."""

    messages_max: int
    size_bytes_max: int


class ProcessQueue:
    """One queue while this consumer reads it; a queue that comes back later is a new object.

    committed_offset: the last offset that the broker confirmed.  on_room: called when messages
    finished and a full queue is below its limits again.
    """

    __slots__ = (
        "_in_flight",
        "_limits",
        "_size_bytes",
        "committed_offset",
        "is_lost",
        "is_waiting_for_room",
        "next_offset",
        "on_room",
        "queue",
        "ready",
        "running",
        "started",
    )

    def __init__(
        self,
        queue: Queue,
        next_offset: int,
        committed_offset: int | None,
        limits: CacheLimits,
        on_room: Callable[[], None],
    ) -> None:
        self.queue = queue
        self.next_offset = next_offset
        self.committed_offset = committed_offset
        self.on_room = on_room
        self.ready: deque[StoredMessage] = deque()
        self.started = 0
        """Messages that a listener took and that are neither finished nor abandoned."""
        self.running = 0
        """Started messages whose listener has not returned."""
        self.is_lost = False
        self.is_waiting_for_room = False
        self._limits = limits
        self._in_flight: dict[int, StoredMessage] = {}
        self._size_bytes = 0

    @property
    def commit_offset(self) -> int:
        """The offset to commit: all messages below it are finished."""
        return min(self.next_offset, min(self._in_flight, default=self.next_offset))

    @property
    def is_full(self) -> bool:
        return (
            len(self._in_flight) >= self._limits.messages_max
            or self._size_bytes >= self._limits.size_bytes_max
        )

    def put(self, messages: Iterable[StoredMessage], next_offset: int) -> None:
        """Add pulled messages; the next pull is at next_offset."""
        for message in messages:
            # After a queue moved back, a pull repeats messages that are still under way.
            if message.queue_offset not in self._in_flight:
                self._in_flight[message.queue_offset] = message
                self._size_bytes += message.store_size
                self.ready.append(message)
        self.next_offset = next_offset

    def start(self) -> StoredMessage:
        """The next ready message, for a listener."""
        self.started += 1
        self.running += 1
        return self.ready.popleft()

    def finish(self, message: StoredMessage) -> None:
        """Remove a started message: it is done."""
        self.started -= 1
        del self._in_flight[message.queue_offset]
        self._size_bytes -= message.store_size

    def abandon(self) -> None:
        """Leave a started message unfinished: the next reader of this queue gets it again."""
        self.started -= 1

    def lose(self) -> None:
        """Another consumer reads this queue now: drop the messages that were not started."""
        self.is_lost = True
        self.ready.clear()


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
