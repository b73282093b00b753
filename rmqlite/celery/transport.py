"""The transport: one connection of kombu's, whose waits for messages cross no thread of its own.

A worker waits for all its queues at once: each has one call under way, and what they find comes
into one queue here, in the order in which it came.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from typing import Any, ClassVar, Final

from kombu.transport import virtual

from rmqlite import __version__
from rmqlite.celery.channel import Arrival, Channel
from rmqlite.celery.clients import PORT, Clients
from rmqlite.client.forks import step_aside
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import Refused, Unavailable

HOLDS_PER_LEASE: Final = 3
"""How often a lease is made longer before it would end."""


class Transport(virtual.Transport):
    Channel = Channel
    default_port = PORT
    driver_type = driver_name = "rmqlite"
    connection_errors = (*virtual.Transport.connection_errors, Unavailable)
    channel_errors = (*virtual.Transport.channel_errors, Refused)
    implements = virtual.Transport.implements.extend(
        exchange_type=frozenset({"direct", "topic", "fanout"})
    )
    is_tls: ClassVar[bool] = False

    def __init__(self, client: Any, **named: Any) -> None:
        super().__init__(client, **named)
        self.clients = Clients(client, is_tls=self.is_tls)
        self.temporary: set[str] = set()
        """Queues that are deleted with their consumer."""
        self.arrivals: queue.Queue[Arrival | None] = queue.Queue()
        """None: a message was settled, so that there is room for another one."""
        self.ready: deque[Arrival] = deque()
        self._keeper: threading.Thread | None = None
        self._closed = threading.Event()

    def driver_version(self) -> str:
        return __version__

    def establish_connection(self) -> Any:
        self.clients.check()
        step_aside(self)
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        self._closed.set()
        self.step_aside()
        super().close_connection(connection)
        self.clients.disconnect()

    def close_channel(self, channel: Any) -> None:
        """Of a connection that is closed, the clients give back all that is leased."""
        if not self._closed.is_set():
            channel.return_leases()
        super().close_channel(channel)

    def step_aside(self) -> None:
        for channel in self.channels:
            channel.give_up()

    def drain_events(self, _connection: Any, timeout: float | None = None) -> None:
        """Deliver one message.  Raises TimeoutError if none comes, Unavailable and Refused."""
        until_s = None if timeout is None else elapsed_s() + timeout
        while not self._deliver_one():
            for channel in self.channels:
                channel.ask()
            left_s = None if until_s is None else max(0.0, until_s - elapsed_s())
            try:
                arrival = self.arrivals.get(timeout=left_s)
            except queue.Empty:
                raise TimeoutError from None
            if arrival is not None and not arrival.channel.closed:
                self.ready.extend(arrival.channel.taken(arrival))

    def _deliver_one(self) -> bool:
        arrival = next((each for each in self.ready if each.channel.can_take(each)), None)
        if arrival is None:
            return False
        self.ready.remove(arrival)
        callback = self._callbacks.get(arrival.queue)
        if callback is None:
            arrival.channel.put_back(arrival)
        else:
            callback(arrival.payload)
        return True

    def keep_leases(self, lease_s: float) -> None:
        """Make the leases longer while this connection is open, from another thread.

        The worker's own may be busy with a task for hours.
        """
        if self._keeper is None or not self._keeper.is_alive():
            self._keeper = threading.Thread(
                target=self._keep, args=(lease_s,), name="rmqlite-leases", daemon=True
            )
            self._keeper.start()

    def _keep(self, lease_s: float) -> None:
        while not self._closed.wait(lease_s / HOLDS_PER_LEASE):
            for channel in list(self.channels):
                channel.hold()


class TlsTransport(Transport):
    is_tls = True
