"""Sends of several threads share calls: those that gather during other calls go together.

The first sender makes its call at once, on its own thread.  While CALLS_MAX calls are under way,
later senders wait; when a call ends, one of the waiting senders makes a call for all of them.  A
call costs the broker about as much as thirty messages do, so this is worth more than any tuning of
the call itself.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from rmqlite.client.producing.batcher import BatchLimits
from rmqlite.kernel.words.errors import Refused, RmqliteError, Unavailable, restore
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.native.bytes.messages import SendResult

CALLS_MAX: Final = 2
"""Enough that the broker always has a call; 3 are smaller: the broker works a fifth more."""

Results: TypeAlias = tuple[SendResult, ...]
Call: TypeAlias = Callable[[tuple[Message, ...]], Results]


class _Group:
    """Messages of one sender, who is woken for an outcome, or to make the next call.

    sends: the groups of the call that this sender must make, its own first, or empty.
    """

    __slots__ = ("messages", "outcome", "sends", "size_bytes", "woken")

    def __init__(self, messages: tuple[Message, ...], size_bytes: int) -> None:
        self.messages = messages
        self.size_bytes = size_bytes
        self.outcome: Results | RmqliteError | None = None
        self.sends: list[_Group] = []
        self.woken = threading.Lock()
        self.woken.acquire()


class SharedCalls:
    """call: sends these messages now, all or none, with its own retries."""

    def __init__(self, call: Call, limits: BatchLimits) -> None:
        self._call = call
        self._limits = limits
        self._lock = threading.Lock()
        self._waiting: deque[_Group] = deque()
        self._calls = 0

    def send(self, messages: tuple[Message, ...], size_bytes: int) -> Results:
        """Send messages; returns results in their order.  Raises `call`'s error for them alone.

        size_bytes: of these messages together.
        """
        with self._lock:
            is_alone = self._calls < CALLS_MAX
            if is_alone:
                self._calls += 1
            else:
                group = _Group(messages, size_bytes)
                self._waiting.append(group)
        if is_alone:
            try:
                return self._call(messages)
            finally:
                with self._lock:
                    self._hand_over()
        self._wait(group)
        if group.sends:
            self._lead(group)
        if isinstance(group.outcome, RmqliteError):
            raise group.outcome
        assert group.outcome is not None
        return group.outcome

    def _wait(self, group: _Group) -> None:
        try:
            group.woken.acquire()
        except BaseException:
            # Interrupted: nobody may wait for a call that this thread will never make.
            with self._lock:
                if group in self._waiting:
                    self._waiting.remove(group)
                elif group.sends:
                    self._waiting.extendleft(reversed(group.sends[1:]))
                    self._hand_over()
            raise

    def _lead(self, leader: _Group) -> None:
        """Make a call for the leader and those that waited; then let the next one lead."""
        followers = leader.sends[1:]
        try:
            self._send_together(leader.sends)
        except BaseException:
            for group in followers:
                group.outcome = group.outcome or Unavailable("the call was interrupted")
            raise
        finally:
            with self._lock:
                self._hand_over()
            for group in followers:
                group.woken.release()

    def _send_together(self, groups: Sequence[_Group]) -> None:
        try:
            results = self._call(tuple([each for group in groups for each in group.messages]))
        except Refused as error:
            if len(groups) == 1:
                groups[0].outcome = error
            else:
                # One of them caused it: send each alone, so that each gets its own outcome.
                for group in groups:
                    self._send_together([group])
        except RmqliteError as error:
            for group in groups:
                # Each sender raises its own: a traceback belongs to one thread.
                group.outcome = restore(
                    error.code, str(error), field=error.field, value=error.value, rule=error.rule
                )
        else:
            at = 0
            for group in groups:
                group.outcome = results[at : at + len(group.messages)]
                at += len(group.messages)

    def _hand_over(self) -> None:
        """Let the first waiting sender make a call for as many groups as the limits allow."""
        if not self._waiting:
            self._calls -= 1
            return
        leader = self._waiting.popleft()
        leader.sends = [leader]
        messages, size = len(leader.messages), leader.size_bytes
        while self._waiting:
            messages += len(self._waiting[0].messages)
            size += self._waiting[0].size_bytes
            if messages > self._limits.messages_max or size > self._limits.size_bytes_max:
                break
            leader.sends.append(self._waiting.popleft())
        leader.woken.release()
