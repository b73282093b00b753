"""Rate limits whose time is moved by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rmqlite.features.rate_limits.rate_limits import RateLimits, Timer
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.requests.groups import GroupChange
from rmqlite.kernel.service.waiting import ParkedCalls
from tests.support.messages import GROUP


class HandTimer:
    def __init__(self, at_s: float, call: Callable[[], None]) -> None:
        self.at_s = at_s
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class HandTime:
    """Seconds, and timers that end when the time has come."""

    def __init__(self) -> None:
        self.now_s = 5_000.0
        self._timers: list[HandTimer] = []

    def read(self) -> float:
        return self.now_s

    def later(self, seconds: float, call: Callable[[], None]) -> Timer:
        self._timers.append(timer := HandTimer(self.now_s + seconds, call))
        return timer

    @property
    def running(self) -> Sequence[HandTimer]:
        """The timers that have not ended."""
        self._timers = [each for each in self._timers if not each.is_cancelled]
        return self._timers

    def forward(self, seconds: float) -> None:
        """Time passes; a timer that ends may start another."""
        until_s = self.now_s + seconds
        while due := [each for each in self.running if each.at_s <= until_s]:
            first = min(due, key=lambda each: each.at_s)
            self._timers.remove(first)
            self.now_s = max(self.now_s, first.at_s)
            first.call()
        self.now_s = until_s


def begin_limits(broker: Broker, parked: ParkedCalls | None = None) -> HandTime:
    """The limits of a broker's groups, by a time that stands still."""
    time = HandTime()
    calls = parked or ParkedCalls("maxParkedPolls", 10)
    broker[RateLimits].begin(calls, time.later, time.read)
    return time


def limit(broker: Broker, per_second: float, burst: int = 0, group: str = GROUP) -> None:
    broker.groups.change(GroupChange(group, max_per_second=per_second, burst=burst))


def most_above(handed_out: Sequence[tuple[float, int]], per_second: float) -> float:
    """How many messages more than per_second * t came at most in t seconds.

    handed_out: when, and how many.
    """
    most = 0.0
    for begin in range(len(handed_out)):
        count = 0
        for at_s, messages in handed_out[begin:]:
            count += messages
            most = max(most, count - per_second * (at_s - handed_out[begin][0]))
    return most
