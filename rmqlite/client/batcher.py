"""Calls of many messages, made of those that are sent one by one.

Sends that block share calls: the first sender makes its call at once, on its own thread.  While
CALLS_MAX calls are under way, later senders wait; when a call ends, one of the waiting senders
makes a call for all of them.  A call costs the broker about as much as thirty messages do, so this
is worth more than any tuning of the call itself.

For sends that do not block, one thread owns the calls: it starts one when enough has gathered (a
number, a size) or the first message has waited long enough (the linger), repeats calls that failed
for now, and gives every message its own outcome.  A call stores all of its messages or none, so one
bad message would fail its neighbours: a refused call is halved and sent again until the bad one is
alone.  An event loop that sends one message alone starts the call itself, and gets the outcome from
gRPC's thread: the batcher's thread would cost a fifth of the client's CPU more.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from rmqlite.client.channel import CallAttempts, Started
from rmqlite.client.forks import CallFuture
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import InvalidValue, Refused, RmqliteError, Unavailable, restore
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.native.bytes.messages import SendResult

CALLS_IN_FLIGHT_MAX: Final = 4
"""More would only make the batches smaller; fewer would leave the broker waiting."""
ALONE_BYTES_MAX: Final = 64 * 1024
"""A longer message is encoded on the batcher's thread: an event loop does not wait so long."""
_RECORD_BYTES: Final = 128
"""The approximate size of a message in a call, without its body and its properties."""
Outcome: TypeAlias = tuple[SendResult, ...] | RmqliteError
StartCall: TypeAlias = Callable[
    [tuple[Message, ...], float, bool, Callable[[Outcome], None]], Started
]
"""Start one Send: messages, timeout in seconds, whether to wait for a connection, on_done."""
CALLS_MAX: Final = 2
"""Enough that the broker always has a call; 3 are smaller: the broker works a fifth more."""
Results: TypeAlias = tuple[SendResult, ...]
Call: TypeAlias = Callable[[tuple[Message, ...]], Results]


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """messages_max and size_bytes_max limit one call; in_flight_max: messages without an
    outcome."""

    linger_s: float
    messages_max: int
    size_bytes_max: int
    in_flight_max: int
    timeout_s: float
    retries: int

    def __post_init__(self) -> None:
        if self.linger_s < 0:
            raise InvalidValue("linger_ms", self.linger_s * 1000, "0 or more")
        if self.timeout_s <= 0:
            raise InvalidValue("send_timeout_ms", self.timeout_s * 1000, "more than 0")
        if self.retries < 0:
            raise InvalidValue("retries", self.retries, "0 or more")
        for name, value in (
            ("batch_messages_max", self.messages_max),
            ("batch_bytes_max", self.size_bytes_max),
            ("in_flight_max", self.in_flight_max),
        ):
            if value < 1:
                raise InvalidValue(name, value, "1 or more")


@dataclass(slots=True)
class _Entry:
    message: Message
    size_bytes: int
    future: CallFuture[SendResult]


@dataclass(slots=True)
class _Call:
    """Messages that travel together, through all attempts."""

    entries: list[_Entry]
    attempts: CallAttempts
    due_s: float = 0.0


@dataclass(slots=True)
class _Todo:
    """What the thread does next, decided under the lock and done outside of it."""

    finished: list[tuple[_Call, Outcome]] = field(default_factory=list)
    call: _Call | None = None


class Batcher:
    """Any thread may call add(); outcomes are set, and callbacks run, on its own thread.

    is_begun: whoever calls add() then calls begin_gathered().  Without a linger, results are set on
    gRPC's thread then, errors not; so callbacks must return at once.
    """

    def __init__(
        self, start_call: StartCall, limits: BatchLimits, *, is_begun: bool = False
    ) -> None:
        self._start_call = start_call
        self._limits = limits
        self._is_begun = is_begun and limits.linger_s == 0
        self._is_connected = False
        """Has a call had a result?  The first one makes the connection, which takes a while."""
        self._changed = threading.Condition()
        self._gathering: deque[_Entry] = deque()
        self._gathering_bytes = 0
        self._gathering_since_s = 0.0
        self._waiting: deque[_Call] = deque()
        self._finished: list[tuple[_Call, Outcome]] = []
        self._calls_in_flight = 0
        self._in_flight = 0
        self._flushing = 0
        self._closing = False
        self._thread: threading.Thread | None = None

    def add(self, message: Message) -> Future[SendResult]:
        """Send this soon.  Blocks while in_flight_max is reached.  Raises Refused once closed.

        On the batcher's own thread, in a callback, it does not block: only that thread can
        make room.
        """
        size = size_bytes(message)
        with self._changed:
            while (
                self._in_flight >= self._limits.in_flight_max
                and not self._closing
                and threading.current_thread() is not self._thread
            ):
                self._changed.wait()
            if self._closing:
                raise Refused("this producer is closed", field="producer", rule="make a new one")
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="rmqlite-batcher", daemon=True
                )
                self._thread.start()
            was_full = self._is_full()
            entry = _Entry(message, size, CallFuture())
            self._gathering.append(entry)
            self._gathering_bytes += entry.size_bytes
            self._in_flight += 1
            is_first = len(self._gathering) == 1
            if is_first:
                self._gathering_since_s = elapsed_s()
            # Wake the thread only if it must act: a wake-up costs more than a message.
            if (is_first and not self._is_begun) or (self._is_full() and not was_full):
                self._changed.notify_all()
        return entry.future

    def begin_gathered(self) -> None:
        """Send what has gathered: one short message alone on this thread, without a wait for the
        batcher's, which does everything else.
        """
        with self._changed:
            is_late = not self._gathering or self._calls_in_flight >= CALLS_IN_FLIGHT_MAX
            if is_late or not self._is_begun:
                return
            is_alone = self._in_flight == 1 and self._gathering_bytes <= ALONE_BYTES_MAX
            if not is_alone or not self._is_connected:
                self._changed.notify_all()
                return
            call = _Call(self._take(), self._attempts(elapsed_s()))
        self._start(call)

    def flush(self) -> None:
        """Send at once what has gathered; return when everything added has its outcome."""
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            try:
                while self._in_flight:
                    self._changed.wait()
            finally:
                self._flushing -= 1

    def close(self) -> None:
        """flush(), and accept no more messages."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    # ---- the thread

    def _run(self) -> None:
        while (todo := self._next()) is not None:
            for call, outcome in todo.finished:
                self._finish(call, outcome)
            if todo.call is not None:
                self._start(todo.call)

    def _next(self) -> _Todo | None:
        """Wait until there is something to do; None when closed and done."""
        with self._changed:
            while True:
                todo = _Todo(self._finished)
                self._finished = []
                wait_s = None
                if self._calls_in_flight < CALLS_IN_FLIGHT_MAX:
                    todo.call, wait_s = self._next_call(elapsed_s())
                if todo.finished or todo.call is not None:
                    return todo
                if self._closing and not self._in_flight:
                    return None
                self._changed.wait(wait_s)

    def _next_call(self, now_s: float) -> tuple[_Call | None, float | None]:
        """A call to start now, or the seconds until there may be one."""
        waits_s = []
        for call in self._waiting:
            if call.due_s <= now_s:
                self._waiting.remove(call)
                return call, None
            waits_s.append(call.due_s - now_s)
        if self._gathering:
            linger_s = self._gathering_since_s + self._limits.linger_s - now_s
            if linger_s <= 0 or self._is_full() or self._flushing or self._closing:
                return _Call(self._take(), self._attempts(now_s)), None
            waits_s.append(linger_s)
        return None, min(waits_s, default=None)

    def _take(self) -> list[_Entry]:
        taken: list[_Entry] = []
        taken_bytes = 0
        while self._gathering and len(taken) < self._limits.messages_max:
            taken_bytes += self._gathering[0].size_bytes
            # A message larger than the limit still travels, alone.
            if taken and taken_bytes > self._limits.size_bytes_max:
                break
            taken.append(self._gathering.popleft())
        self._gathering_bytes -= sum(entry.size_bytes for entry in taken)
        # The messages left behind keep _gathering_since_s: they wait no longer than linger_s.
        return taken

    def _attempts(self, now_s: float) -> CallAttempts:
        return CallAttempts(self._limits.retries, now_s + self._limits.timeout_s)

    def _is_full(self) -> bool:
        return (
            len(self._gathering) >= self._limits.messages_max
            or self._gathering_bytes >= self._limits.size_bytes_max
        )

    def _start(self, call: _Call) -> None:
        messages = tuple([entry.message for entry in call.entries])
        with self._changed:
            self._calls_in_flight += 1
        on_done = partial(self._answered, call)
        try:
            self._start_call(messages, call.attempts.left_s(), call.attempts.failed > 0, on_done)
        except RmqliteError as error:
            on_done(error)

    def _answered(self, call: _Call, outcome: Outcome) -> None:
        is_result = not isinstance(outcome, RmqliteError)
        with self._changed:
            self._calls_in_flight -= 1
            self._is_connected |= is_result
            if not (is_result and self._is_begun):
                self._finished.append((call, outcome))
                self._changed.notify_all()
                return
        self._finish(call, outcome)

    def _finish(self, call: _Call, outcome: Outcome) -> None:
        now_s = elapsed_s()
        if isinstance(outcome, Refused) and len(call.entries) > 1:
            half = len(call.entries) // 2
            for entries in (call.entries[half:], call.entries[:half]):
                self._waiting.appendleft(_Call(entries, self._attempts(now_s)))
            return
        error = outcome if isinstance(outcome, Unavailable) else None
        pause_s = call.attempts.pause_s_after(error) if error else None
        if pause_s is not None:
            call.due_s = now_s + pause_s
            self._waiting.append(call)
            return
        for index, entry in enumerate(call.entries):
            entry.future.settle(outcome if isinstance(outcome, RmqliteError) else outcome[index])
        # Set the outcomes first: when flush() returns, all of them must be set.
        with self._changed:
            is_full = self._in_flight >= self._limits.in_flight_max
            self._in_flight -= len(call.entries)
            # Else nobody waits but the batcher's thread, which has nothing to do.
            if is_full or self._gathering or self._waiting or self._flushing or self._closing:
                self._changed.notify_all()


def size_bytes(message: Message) -> int:
    """The approximate size of a message in a call."""
    size = len(message.body) + _RECORD_BYTES
    for key, value in message.properties.items():
        size += len(key) + len(value)
    return size


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
