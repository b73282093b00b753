"""AdminClient: topics, groups, the schedule, dead letters and redrives."""

from __future__ import annotations

from rmqlite.client.channel import Connection
from rmqlite.features.rows import A, Q, Row


class AdminCalls:
    """Calls over one connection, with one time limit."""

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    def _ask(self, rpc: Row[Q, A], value: Q) -> A:
        return self._connection.call(rpc, value, self._timeout_s)
