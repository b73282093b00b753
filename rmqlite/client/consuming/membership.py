"""Membership in a group: heartbeats, each of which waits for the next assignment.

The broker distributes the queues.  It answers a heartbeat with the next assignment; until then the
waiting heartbeat costs nothing.  Belongs to the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from rmqlite.client.channel import Connection, retry_pause_s
from rmqlite.client.consuming.broker_link import BrokerLink, LinkCall
from rmqlite.client.consuming.loop import Loop
from rmqlite.kernel.requests.groups import Assignment, HeartbeatRequest, LeaveRequest, Subscription
from rmqlite.kernel.words.errors import RmqliteError, Unavailable
from rmqlite.protocols.native.bytes import rpcs

ANSWER_S_MAX: Final = 5.0
SPIN_PAUSE_S: Final = 0.02

log = logging.getLogger(__name__)


class OwnMembership:
    """on_assignment is called for every new epoch."""

    def __init__(
        self,
        group: str,
        client_id: str,
        subscriptions: tuple[Subscription, ...],
        wait_ms: int,
        link: BrokerLink,
        loop: Loop,
        on_assignment: Callable[[Assignment], None],
    ) -> None:
        self._group = group
        self._client_id = client_id
        self._subscriptions = subscriptions
        self._wait_ms = wait_ms
        self._link = link
        self._loop = loop
        self._on_assignment = on_assignment
        self._known_epoch = 0
        self._failures = 0
        self._asked: LinkCall | None = None
        self._stopped = False

    def join(self, connection: Connection, timeout_s: float) -> None:
        """Send the first heartbeat, before start(), and wait.  Raises Refused if it cannot work.

        A broker that is away is no error: a consumer may start before its broker.
        """
        # The next heartbeat logs that the broker is away.
        with suppress(Unavailable):
            connection.call(rpcs.HEARTBEAT, self._request(0), timeout_s)

    def start(self) -> None:
        """Send heartbeats from now on."""
        if not self._stopped:
            timeout_s = self._wait_ms / 1000 + ANSWER_S_MAX
            request = self._request(self._wait_ms)
            self._asked = self._link.ask(rpcs.HEARTBEAT, request, timeout_s, self._on_outcome)

    def stop(self) -> None:
        """Send no more heartbeats."""
        self._stopped = True
        if self._asked is not None:
            self._asked.cancel()

    def leave(self, connection: Connection, timeout_s: float) -> None:
        """Tell the broker, after stop(), that the queues are free.  Not on the loop: it blocks."""
        try:
            connection.call(rpcs.LEAVE, LeaveRequest(self._group, self._client_id), timeout_s)
        except RmqliteError as error:
            log.warning("the broker does not know that we left group=%s: %s", self._group, error)

    def _request(self, wait_ms: int) -> HeartbeatRequest:
        return HeartbeatRequest(
            self._group, self._client_id, self._subscriptions, self._known_epoch, wait_ms
        )

    def _on_outcome(self, outcome: Assignment | RmqliteError) -> None:
        if isinstance(outcome, RmqliteError):
            # A restarted broker counts epochs from the start: 0 asks for the assignment of any
            # epoch.
            self._known_epoch = 0
            if self._failures == 0 and not outcome.can_retry:
                log.error("the heartbeat is refused group=%s: %s", self._group, outcome)
            self._loop.later(retry_pause_s(self._failures), self.start)
            self._failures += 1
            return
        self._failures = 0
        if outcome.epoch == self._known_epoch:
            self._loop.later(SPIN_PAUSE_S, self.start)
            return
        self._known_epoch = outcome.epoch
        self._on_assignment(outcome)
        self.start()
