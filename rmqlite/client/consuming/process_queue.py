"""The messages of one queue between pull and commit.

pulled -> ready -> started -> finished.  The lowest unfinished offset may be committed: messages
finish in any order, so a restart may repeat a message but never skips one.  No threads and no locks
here: backlog.py has both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rmqlite.kernel.requests.topics import Queue
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
