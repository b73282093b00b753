"""Calls whose answers arrive on the loop; an outage logs one line, not one per call."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from rmqlite.client.channel import Connection, Started
from rmqlite.client.consuming.loop import Loop
from rmqlite.features.rows import Row
from rmqlite.kernel.words.errors import BrokerClosing, BrokerUnreachable, RmqliteError

Q = TypeVar("Q")
A = TypeVar("A")

log = logging.getLogger(__name__)


class LinkCall:
    """A call under way; belongs to the loop."""

    __slots__ = ("is_given_up", "started")

    def __init__(self) -> None:
        self.is_given_up = False
        self.started: Started | None = None

    def cancel(self) -> None:
        """Give it up; its outcome is not delivered any more."""
        self.is_given_up = True
        if self.started is not None:
            self.started.cancel()


class BrokerLink:
    """ask() and its on_outcome run on the loop's thread."""

    def __init__(self, connection: Connection, loop: Loop, name: str) -> None:
        self._connection = connection
        self._loop = loop
        self._name = name
        self._is_away = False
        self._turns = 0

    def ask(
        self,
        rpc: Row[Q, A],
        value: Q,
        timeout_s: float,
        on_outcome: Callable[[A | RmqliteError], None],
    ) -> LinkCall:
        """Start a call; on_outcome gets the answer or the error, unless it is cancelled first."""
        asked = LinkCall()
        turns = self._turns

        def deliver(outcome: Any) -> None:
            if not asked.is_given_up:
                self._note(outcome, turns)
                on_outcome(outcome)

        def post(outcome: A | RmqliteError) -> None:
            self._loop.post(lambda: deliver(outcome))

        try:
            asked.started = self._connection.start(rpc, value, timeout_s, post)
        except RmqliteError as error:
            post(error)
        return asked

    def _note(self, outcome: object, turns: int) -> None:
        # Skip a call that began before the last change: its outcome is older than that change.
        is_away = isinstance(outcome, (BrokerUnreachable, BrokerClosing))
        if turns != self._turns or is_away is self._is_away:
            return
        self._turns += 1
        self._is_away = is_away
        if is_away:
            log.warning("the broker is away, trying again consumer=%s: %s", self._name, outcome)
        else:
            log.warning("the broker is back consumer=%s", self._name)
