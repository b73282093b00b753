"""Turns delay="10m" into the level that is exactly that long in the broker's table.

The broker's table is cached for half a minute, and fetched once more before a delay is refused, so
that a level that was just added is found.  The delay is sent, too, and the broker uses it, so that
a table that was just changed delays no message wrongly; the level is for a broker before 0.3.0,
whose table changes only with a restart.
"""

from __future__ import annotations

import threading
from typing import Final

from rmqlite.client.channel import Connection
from rmqlite.kernel.requests.topics import RouteRequest
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import DelayUnknown, InvalidValue, must_be_type
from rmqlite.kernel.words.levels import LevelTable, parse_levels
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.native.bytes import rpcs

TABLE_AGE_S_MAX: Final = 30.0


class LevelLookup:
    """Resolves delays by the table of the broker behind a connection.  Usable from any thread."""

    def __init__(self, connection: Connection, timeout_s: float, retries: int) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._retries = retries
        self._lock = threading.Lock()
        self._table: LevelTable | None = None
        self._asked_at_s = 0.0

    def resolve(self, message: Message) -> Message:
        """The message with the delay_level of its delay in the cached table.

        Raises DelayUnknown, InvalidValue, and the errors of a call to the broker.
        """
        if message.__class__ is not Message:
            # Here, because every message comes by: another value would fail far from its cause.
            if isinstance(message, str | bytes):
                what = type(message).__name__
                raise InvalidValue("message", what, "a Message(topic, body): send(Message(...))")
            if not isinstance(message, Message):
                raise must_be_type("message", "Message", message)
        if message.delay is None:
            return message
        delay = str(message.delay)
        # One thread asks, the others wait for its answer instead of asking too.
        with self._lock:
            fresh = self._table is None or elapsed_s() - self._asked_at_s > TABLE_AGE_S_MAX
            table = self._ask(message.topic) if fresh or self._table is None else self._table
            try:
                level = table.level_lasting(delay)
            except DelayUnknown:
                if fresh:
                    raise
                level = self._ask(message.topic).level_lasting(delay)
        return message.at_level(level)

    def _ask(self, topic: str) -> LevelTable:
        # A route contains the broker's table; create: the send would create the topic too.
        request = RouteRequest(topic, create=True)
        route = self._connection.call_repeatedly(
            rpcs.GET_ROUTE, request, self._timeout_s, retries=self._retries
        )
        self._table = parse_levels(route.message_delay_level)
        self._asked_at_s = elapsed_s()
        return self._table
