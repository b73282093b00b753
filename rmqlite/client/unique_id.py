"""RocketMQ's unique message id (reference §5.1): 32 upper-case hex characters.

    ip 4 | pid 2 | token 4 | ms since the start of the local month 4 | counter 2

RocketMQ's token is the hash of a class loader; here it is random per generator, so that
two producers never share an id: not in one process, not in two containers whose processes have
the same id and address, and not in two children of one process.
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable
from typing import Final

from rmqlite.client.forks import follow, process_id
from rmqlite.kernel.words.clock import month_start_ms, wall_ms

TOGETHER_MAX: Final = 1_000
"""Ids that are made together: 65,536 of one millisecond would begin to repeat."""
_LONGER_THAN_A_MONTH_MS: Final = 32 * 86_400_000


class UniqueIds:
    """Makes unique ids.  Usable from any thread, and in a forked child.  now_ms: the wall clock."""

    def __init__(self, now_ms: Callable[[], int] = wall_ms) -> None:
        self._now_ms = now_ms
        self._newest_ms = 0
        self._month_ms = 0
        self.begin_anew()
        follow(self)

    def begin_anew(self) -> None:
        """Draw another prefix: the ids of this process."""
        prefix = own_address() + (process_id() & 0xFFFF).to_bytes(2, "big")
        self._prefix = (prefix + secrets.token_bytes(4)).hex().upper()
        self._lock = threading.Lock()
        self._counter = secrets.randbelow(1 << 16)
        # The parent may have been between two of these at the fork.
        self._next_month_ms = 0

    def next(self) -> str:
        (found,) = self._some(1)
        return found

    def take(self, count: int) -> list[str]:
        """So many ids, for a third of the time of next()."""
        return [
            each
            for first in range(0, count, TOGETHER_MAX)
            for each in self._some(min(TOGETHER_MAX, count - first))
        ]

    def _some(self, count: int) -> list[str]:
        """Ids of one millisecond."""
        with self._lock:
            # A clock that steps back would repeat milliseconds and so, after 65,536, ids.
            self._newest_ms = max(self._newest_ms, self._now_ms())
            if self._newest_ms >= self._next_month_ms:
                self._month_ms = month_start_ms(self._newest_ms)
                self._next_month_ms = month_start_ms(self._month_ms + _LONGER_THAN_A_MONTH_MS)
            first = self._counter + 1
            self._counter = (self._counter + count) & 0xFFFF
            # From the 25th day on the milliseconds need the 32nd bit, as in Java's cast.
            since_ms = (self._newest_ms - self._month_ms) & 0xFFFFFFFF
        start = f"{self._prefix}{since_ms:08X}"
        return [f"{start}{number & 0xFFFF:04X}" for number in range(first, first + count)]


def own_address() -> bytes:
    """The 4 bytes of the address that this machine would send from; 127.0.0.1 without a net."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # Connecting a datagram socket picks a route and sends nothing.
            probe.connect(("192.0.2.1", 9))
            return socket.inet_aton(probe.getsockname()[0])
    except OSError:
        return socket.inet_aton("127.0.0.1")


def own_client_id() -> str:
    """A unique name for this client: "ip@pid#random", similar to RocketMQ's."""
    return f"{socket.inet_ntoa(own_address())}@{process_id()}#{secrets.token_hex(4)}"
