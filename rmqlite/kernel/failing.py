"""What becomes of a message that a group has failed: one way for each protocol.

A consumer sends a message back, or its lease ends.  Either way retry.py decides, the record of the
retry or dead letter is made here, and whoever asked for it with record() appends it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.reading import record_at
from rmqlite.kernel.records.record import NewRecord
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import WAIT_TOPICS, wait_queue_of
from rmqlite.kernel.requests.messages import SendBackRequest, SendBackResult
from rmqlite.kernel.retry import Failure, after_failure, failed_record, times_failed
from rmqlite.kernel.words.clock import Clock
from rmqlite.kernel.words.errors import InvalidValue, Overloaded
from rmqlite.kernel.words.names import retry_topic

SENT_BACK_MS: Final = 15 * 60_000
"""So long a send-back is remembered: after it, RocketMQ's clients send back a message whose
listener still runs."""
SENT_BACK_MAX: Final = 20_000
"""How many of them, with 400 bytes each; beyond it the oldest is forgotten."""


class Failed(NamedTuple):
    """A retry, or a dead letter, and its record; count it once that is appended."""

    group: str
    failure: Failure
    record: NewRecord

    @property
    def topic(self) -> str:
        return self.failure.topic


class _Delivery(NamedTuple):
    """gives_up: the consumer asks for a dead letter, which is more than another retry."""

    group: str
    physical_offset: int
    gives_up: bool


class SentBack:
    """What became of the deliveries that were sent back of late.

    Two processes with one client id read the same queues, so both fail a message that one of them
    should have.  If each send-back made a retry, there would be four of the next attempt and
    thousands of dead letters in the end.  A retry is already there; so the second gets the answer
    of the first.  If the group goes back to an older offset, the message is delivered anew, and
    may fail anew.  A restart of the broker forgets all.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._results: OrderedDict[_Delivery, tuple[int, SendBackResult]] = OrderedDict()
        """The oldest first."""
        self._of_group: dict[str, set[_Delivery]] = {}

    def __len__(self) -> int:
        return len(self._results)

    def result(self, request: SendBackRequest) -> SendBackResult | None:
        known = self._results.get(_delivery(request))
        if known is None or self._clock.now_ms() - known[0] >= SENT_BACK_MS:
            return None
        return known[1]

    def note(self, request: SendBackRequest, result: SendBackResult) -> None:
        key = _delivery(request)
        self._results[key] = self._clock.now_ms(), result
        self._results.move_to_end(key)
        self._of_group.setdefault(key.group, set()).add(key)
        if len(self._results) > SENT_BACK_MAX:
            oldest, _ = self._results.popitem(last=False)
            self._of_group[oldest.group].discard(oldest)
            if not self._of_group[oldest.group]:
                del self._of_group[oldest.group]

    def forget(self, group: str) -> None:
        """The group gets messages again, or is deleted."""
        for key in self._of_group.pop(group, ()):
            del self._results[key]


def _delivery(request: SendBackRequest) -> _Delivery:
    return _Delivery(request.group, request.physical_offset, request.delay_level < 0)


class Failing:
    """Makes the records of failed messages, and the topics that these go to."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self.sent_back = SentBack(parts.clock)
        parts.offsets.on_back = self.sent_back.forget
        self.exact_ms: Callable[[Record, SendBackRequest, int], int | None] = lambda *_: None
        """How long a message waits that had failed so often before; None: at a level."""

    def send_back(self, request: SendBackRequest) -> SendBackResult:
        """Broker.send_back()."""
        # First of all: an unknown group is the caller's clearer mistake.
        self._parts.groups.wanted(request.group)
        if (known := self.sent_back.result(request)) is not None:
            return known
        failed = self.record(record_at(self._parts.store, request.physical_offset), request)
        (at,) = self._parts.appending.append([failed.record])
        self.count(failed)
        level = wait_queue_of(failed.record.topic, failed.record.queue_id)
        times = failed.record.reconsume_times
        result = SendBackResult(failed.topic, times, level, at.due_ms)
        self.sent_back.note(request, result)
        return result

    def record(
        self,
        failed: Record,
        request: SendBackRequest,
        *,
        delay_ms: int | None = None,
        failed_in_place: int = 0,
    ) -> Failed:
        """What becomes of a message that a group failed.

        delay_ms: of a retry, instead of what the request and the policy say; 0 means at once.
        failed_in_place: how often the group has failed it since its record was written.  Raises
        GroupUnknown, InvalidName, InvalidValue, Overloaded, PermissionMissing, StoreUnavailable.
        """
        parts = self._parts
        if failed.head.topic in WAIT_TOPICS:
            rule = "a message that a consumer can have received"
            raise InvalidValue("physical_offset", request.physical_offset, rule)
        info = parts.with_retry_topic(request.group)
        retries = parts.topics.wanted(retry_topic(info.group))
        now_ms, due_ms = parts.clock.now_ms(), None
        times = times_failed(failed.head, info.group) + failed_in_place
        level = parts.groups.policy(info.group).level(times, parts.store.levels.current)
        if delay_ms is None:
            delay_ms = self.exact_ms(failed, request, times)
        if delay_ms is not None:
            if self._is_timer(delay_ms):
                due_ms = now_ms + delay_ms if delay_ms > 0 else 0
            else:
                level = parts.store.levels.current.level_from(delay_ms)
        failure = after_failure(
            failed,
            request,
            info,
            level,
            now_ms,
            parts.room,
            due_ms=due_ms,
            failed_in_place=failed_in_place,
        )
        queue_id = 0
        if failure.is_dead:
            parts.topics.ensure(failure.topic, 1)
        else:
            # The topic's queues: the group's may have changed since its retry topic was made.
            queues = min(retries.read_queues, retries.write_queues)
            queue_id = request.physical_offset % max(1, queues)
        table = parts.store.levels.current
        return Failed(info.group, failure, failed_record(failed, failure, queue_id, table))

    def count(self, failed: Failed) -> None:
        counts = self._parts.counts
        counted = counts.dead if failed.failure.is_dead else counts.retried
        counted[failed.group] += 1

    def _is_timer(self, delay_ms: int) -> bool:
        """May a retry wait exactly so long?  If not, it waits at the next longer level."""
        if delay_ms <= 0:
            return True
        try:
            self._parts.timers.check("invisible_ms", delay_ms, delay_ms)
        except (InvalidValue, Overloaded):
            return False
        return True
