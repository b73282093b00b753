"""The messages of one queue between pull and commit.

pulled -> ready -> started -> finished.  What may be committed is the lowest offset that is
not finished: messages finish in any order, and a restart repeats but never skips one.
No thread and no lock: backlog.py has both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sortedcontainers import SortedDict

from rmqlite.message import StoredMessage
from rmqlite.requests.topics import Queue


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """Of one queue: no more is pulled while one of them is reached.  bytes: of records."""

    messages_max: int
    size_bytes_max: int


class ProcessQueue:
    """One queue's time with this consumer; the queue coming back later is another one.

    committed_offset: what the broker is known to remember.  on_room: called when messages
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
        """Taken by a listener and neither finished nor abandoned."""
        self.running = 0
        """Of these, with a listener that has not returned."""
        self.is_lost = False
        self.is_waiting_for_room = False
        self._limits = limits
        self._in_flight: SortedDict[int, StoredMessage] = SortedDict()
        self._size_bytes = 0

    @property
    def commit_offset(self) -> int:
        """Everything below is finished."""
        if self._in_flight:
            lowest: int = self._in_flight.keys()[0]
            return min(lowest, self.next_offset)
        return self.next_offset

    @property
    def is_full(self) -> bool:
        return (
            len(self._in_flight) >= self._limits.messages_max
            or self._size_bytes >= self._limits.size_bytes_max
        )

    def put(self, messages: Iterable[StoredMessage], next_offset: int) -> None:
        """Take over what was pulled; the next pull is at next_offset."""
        for message in messages:
            # A queue that moved back gives messages again that are still under way.
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
        """A started message is done with."""
        self.started -= 1
        del self._in_flight[message.queue_offset]
        self._size_bytes -= message.store_size

    def abandon(self) -> None:
        """A started message stays unfinished: whoever reads this queue next gets it again."""
        self.started -= 1

    def lose(self) -> None:
        """Another consumer reads this queue now; what was not started is dropped."""
        self.is_lost = True
        self.ready.clear()
