"""Groups with a rate limit: their pulls and receives take tokens before they look for messages.

A call takes as many tokens as it may have messages, looks for no more than that, and gives back
what it has not used; also if it fails.  What it hands out is gone, whether or not its client gets
it.  A call that finds no token waits in line, whichever protocol it comes from: one timer for each
limit wakes the first of the line, and when that one has looked, the next.  A call that does not
wait gets tokens only while the line is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from rmqlite.features.leases.leases import Leases
from rmqlite.features.leases.requests import ReceiveRequest
from rmqlite.features.leases.taking import Received
from rmqlite.features.rate_limits.requests import burst_of
from rmqlite.features.rate_limits.token_bucket import TokenBucket
from rmqlite.kernel import Steps
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.pulling import MESSAGES_DEFAULT, Pulled
from rmqlite.kernel.requests.groups import GroupInfo
from rmqlite.kernel.requests.messages import PullRequest
from rmqlite.kernel.service.waiting import ParkedCalls
from rmqlite.kernel.words.clock import elapsed_s

LOOKS_S: Final = 0.1
"""A woken call has looked by then, or it was cancelled, and the next one is woken."""
LOOK_AGAIN_S: Final = 3_600.0
"""The longest timer."""
T = TypeVar("T")


class Timer(Protocol):
    """What asyncio's call_later() returns."""

    def cancel(self) -> None: ...


Later = Callable[[float, Callable[[], None]], Timer]


class Line:
    """The calls that wait for tokens of one bucket; wakes the one that waits for longest."""

    def __init__(self, bucket: TokenBucket, parked: ParkedCalls, later: Later) -> None:
        self._bucket = bucket
        self._parked = parked
        self._later = later
        self._timer: Timer | None = None
        self._is_woken = False
        """Was the first call woken, and has it not yet looked?  The timer is its time limit."""

    def may_look(self) -> bool:
        """Is it the turn of the call that asks?"""
        if self._is_woken:
            self._end_timer()
            return True
        return not self.length

    @property
    def length(self) -> int:
        """How many calls wait; those parked with this line as their key."""
        return self._parked.count_of(self)

    def wake_later(self) -> None:
        """A call waits, or is about to."""
        if self._timer is None:
            seconds = min(self._bucket.seconds_left(), LOOK_AGAIN_S)
            self._timer = self._later(seconds, self._wake)

    def changed(self) -> None:
        """There are more tokens than the timer counted on, or they come at another rate."""
        if self.length and not self._is_woken:
            self._end_timer()
            self.wake_later()

    def end_waits(self) -> None:
        """There is no limit any more."""
        self._end_timer()
        self._parked.wake([self])

    def _wake(self) -> None:
        self._timer, self._is_woken = None, False
        if not self.length:
            return
        if self._bucket.seconds_left() > 0:
            self.wake_later()
            return
        self._parked.wake_one(self)
        self._is_woken = True
        self._timer = self._later(LOOKS_S, self._wake)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._is_woken = None, False


class RateLimit:
    """The limit of one group."""

    def __init__(self, broker: Broker, group: str, bucket: TokenBucket, line: Line) -> None:
        self._group = group
        self._store = broker.store
        self._clock = broker.parts.clock
        self._counts = broker.counts
        self._leases = broker[Leases]
        self._pull = broker.pull_unlimited
        self._pull_messages_max = broker.parts.config.pull_messages_max
        self._bucket = bucket
        self.line = line

    def set_rate(self, per_second: float, burst: int) -> None:
        self._bucket.set_rate(per_second, burst)
        self.line.changed()

    def pull(self, request: PullRequest) -> Steps[Pulled]:
        """Broker.pull() of no more messages than there are tokens."""
        queue = self._store.queue(request.topic, request.queue_id)
        is_number = 0 <= request.max_messages <= self._pull_messages_max
        at = request.queue_offset
        if queue is None or not queue.min_offset <= at < queue.max_offset or not is_number:
            # It finds no message, and its caller waits for one; or it is refused.
            return (yield from self._pull(request))
        pulled = yield from self._limited(
            request.max_messages or MESSAGES_DEFAULT,
            request.wait_ms,
            lambda most: self._pull(replace(request, max_messages=most)),
            lambda found: len(found.records),
        )
        if pulled is not None:
            return pulled
        # All that refuses a pull refuses it also while there are no tokens.
        at_end = yield from self._pull(replace(request, queue_offset=queue.max_offset))
        return replace(at_end, next_offset=at, waits_for=self.line)

    def receive(self, request: ReceiveRequest) -> Steps[Received]:
        """Leases.receive() of no more messages than there are tokens."""
        self._leases.check_receive(request)
        if self._leases.attempt_of(request) is not None:
            # Its messages have taken theirs.
            return (yield from self._leases.receive_unlimited(request))
        received = yield from self._limited(
            request.max_messages,
            request.wait_ms,
            lambda most: self._leases.receive_unlimited(replace(request, max_messages=most)),
            lambda found: len(found.messages),
        )
        if received is not None:
            return received
        return Received((), self._clock.now_ms(), 0, waits_for=self.line)

    def _limited(
        self,
        wanted: int,
        wait_ms: int,
        look: Callable[[int], Steps[T]],
        count: Callable[[T], int],
    ) -> Steps[T | None]:
        """What a look finds; None: there is no token."""
        taken = self._bucket.take_tokens(wanted) if self.line.may_look() else 0
        if self.line.length or (wait_ms and not taken):
            self.line.wake_later()
        if not taken:
            self._counts.held_back_at_ms[self._group] = self._clock.now_ms()
            self._counts.held_back[self._group] += wait_ms > 0
            return None
        used = 0
        try:
            found = yield from look(taken)
            used = count(found)
        finally:
            if used < taken:
                self._bucket.give_back(taken - used)
                self.line.changed()
        return found


class RateLimits:
    """The limits of all groups that have one."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._limits: dict[str, RateLimit] = {}
        self._parked: ParkedCalls | None = None
        broker.groups.on_change.append(self._changed)

    def begin(
        self, parked: ParkedCalls, later: Later, now_s: Callable[[], float] = elapsed_s
    ) -> None:
        """From now on there are calls.  later: calls a function after so many seconds."""
        self._parked, self._later, self._now_s = parked, later, now_s
        self._limits.clear()
        self._changed([info.group for info in self._broker.groups.all()])

    def _changed(self, groups: Iterable[str]) -> None:
        for group in groups:
            info, limit = self._broker.groups.get(group), self._limits.get(group)
            if info is not None and info.max_per_second:
                if limit is not None:
                    limit.set_rate(*_numbers(info))
                elif self._parked is not None:
                    self._begin(group, info, self._parked)
            elif limit is not None:
                del self._limits[group]
                del self._broker.limited_pulls[group]
                del self._broker[Leases].limited[group]
                limit.line.end_waits()

    def _begin(self, group: str, info: GroupInfo, parked: ParkedCalls) -> None:
        bucket = TokenBucket(*_numbers(info), self._now_s)
        limit = RateLimit(self._broker, group, bucket, Line(bucket, parked, self._later))
        self._limits[group] = limit
        self._broker.limited_pulls[group] = limit.pull
        self._broker[Leases].limited[group] = limit.receive


def _numbers(info: GroupInfo) -> tuple[float, int]:
    return info.max_per_second, burst_of(info.max_per_second, info.burst)
