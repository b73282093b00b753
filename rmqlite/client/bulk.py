"""Schedule very many messages: several calls in flight, and an outcome for every message.

Every message has an id, which is its unique id: the broker stores it once per topic.  So a
call without an answer is repeated, and a whole run may be repeated too.  The caller's thread owns
everything; gRPC's threads only deliver answers.
"""

from __future__ import annotations

import enum
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from rmqlite.client.channel import Closing, Connection, retry_pause_s
from rmqlite.client.credentials import Credentials
from rmqlite.client.forks import CallFuture, follow
from rmqlite.client.unique_id import UniqueIds
from rmqlite.features.bulk.requests import (
    SCHEDULE_BULK,
    BulkAnswer,
    BulkMatch,
    BulkRequest,
    Refusal,
    RefusedAt,
    property_text,
)
from rmqlite.features.rows import check_job_id
from rmqlite.kernel.words.clock import elapsed_s, wall_ms
from rmqlite.kernel.words.errors import InvalidValue, MessageTooLarge, RmqliteError, Unavailable
from rmqlite.kernel.words.levels import Delay, delay_text
from rmqlite.kernel.words.limits import MESSAGE_ID_BYTES_MAX
from rmqlite.kernel.words.message import check_field_types

BATCH_MESSAGES: Final = 500
"""A larger call is no cheaper per message, and other clients wait longer for the broker."""
CALLS_IN_FLIGHT: Final = 4
BATCH_BYTES_MAX: Final = 2 << 20
RETRY_S_MIN: Final = 1.0
"""A repeated call has at least this timeout, even if less is left of retry_ms."""


@dataclass(frozen=True, slots=True)
class BulkMessage:
    """A message to schedule in bulk.

    At most one of delay_level, delay ("10m" or a timedelta, kept as text) and deliver_at_ms may be
    set; without one, or with a past instant, the message is delivered at once.  message_id: a
    message with the same id counts as the same message; empty: a new id, so that the broker
    recognises repeated calls but not repeated runs.  keys: tokens, or one text with blanks between
    them.
    Raises InvalidValue.
    """

    topic: str
    body: bytes
    message_id: str = ""
    tags: str = ""
    keys: str | Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    delay_level: int = 0
    delay: Delay = ""
    deliver_at_ms: int = 0

    def __post_init__(self) -> None:
        try:
            _ = self.topic + self.tags + self.message_id + _keys_text(self.keys)
            levels = self.delay_level.__class__ is self.deliver_at_ms.__class__ is int
            if self.body.__class__ is not bytes or not levels:
                check_field_types(self)
            if self.delay != "":
                object.__setattr__(self, "delay", delay_text(self.delay))
            if self.properties or self.properties.__class__ is not dict:
                property_text(self.properties)
        except (TypeError, ValueError, AttributeError):
            check_field_types(self)  # names the wrong type; in nearly all messages there is none
            raise


class BulkStatus(enum.Enum):
    """The outcome of a message."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """It was sent before; nothing was stored now."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class BulkOutcome:
    """error: why it was refused; else None."""

    message_id: str
    status: BulkStatus
    error: RmqliteError | None = None


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """Counts of the outcomes so far."""

    accepted: int = 0
    duplicates: int = 0
    refused: int = 0

    @property
    def messages(self) -> int:
        return self.accepted + self.duplicates + self.refused

    def plus(self, answer: BulkAnswer) -> BulkProgress:
        return BulkProgress(
            self.accepted + answer.accepted,
            self.duplicates + len(answer.duplicates),
            self.refused + len(answer.refused),
        )


@dataclass(slots=True)
class _Call:
    """One request, through all its attempts."""

    request: BulkRequest
    answered: CallFuture[BulkAnswer] = field(init=False)
    attempt: int = 0
    failing_since_s: float = 0.0


class BulkScheduler(Closing):
    """Schedules in bulk at the broker at endpoint ("host:port").  Used by one thread.

    job_id: the broker counts outcomes under it, for AdminClient.job() and `rmqlite job show`; a
    repeated run uses the same one.  match: EXACT or LONGER, which level a delay means.

    timeout_ms: limit of one call, which may wait behind calls of many other senders. retry_ms: how
    long a call is repeated while the broker is away; then its error is raised, such as
    BrokerUnreachable.  credentials: what they lack
    comes from the environment.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        job_id: str = "",
        match: BulkMatch = BulkMatch.EXACT,
        batch_messages: int = BATCH_MESSAGES,
        in_flight: int = CALLS_IN_FLIGHT,
        timeout_ms: float = 30_000,
        retry_ms: float = 60_000,
        credentials: Credentials | None = None,
    ) -> None:
        for name, value in (("batch_messages", batch_messages), ("in_flight", in_flight)):
            if value < 1:
                raise InvalidValue(name, value, "1 or more")
        if job_id:
            check_job_id(job_id)
        self.progress = BulkProgress()
        self._job_id = job_id
        self._match = match
        self._batch_messages = batch_messages
        self._in_flight = in_flight
        self._timeout_s = timeout_ms / 1000
        self._retry_s = retry_ms / 1000
        self._ids = UniqueIds()
        self._connection = Connection(endpoint, credentials=credentials)
        self.begin_anew()
        follow(self)

    def begin_anew(self) -> None:
        """For a forked child."""
        self._pause = threading.Event()

    def schedule(self, messages: Iterable[BulkMessage]) -> Iterator[BulkOutcome]:
        """The outcome of each message, in order, while the next messages are under way.

        The iteration drives the sending: it sends nothing on its own.  Raises Unavailable if the
        broker stays away: messages sent before may be stored; the same messages may be sent again.
        """
        for request, answer in self.answers(self._requests(messages)):
            yield from outcomes(request, answer)

    def schedule_all(self, messages: Iterable[BulkMessage]) -> BulkProgress:
        """schedule(), but returns only the counts.  Raises the errors of schedule()."""
        before = self.progress
        deque(self.answers(self._requests(messages)), maxlen=0)
        now = self.progress
        return BulkProgress(
            now.accepted - before.accepted,
            now.duplicates - before.duplicates,
            now.refused - before.refused,
        )

    def answers(self, requests: Iterable[BulkRequest]) -> Iterator[tuple[BulkRequest, BulkAnswer]]:
        """The answer to each request, in order, with several calls in flight.

        A message too large for a call is refused alone.  Raises Refused if a call as a whole is
        wrong, and Unavailable like schedule().
        """
        waiting = iter(requests)
        flying: deque[_Call] = deque()
        while True:
            room = self._in_flight - len(flying)
            flying.extend(self._start(request) for request in islice(waiting, room))
            if not flying:
                return
            call = flying.popleft()
            answer = self._answer(call)
            self.progress = self.progress.plus(answer)
            yield call.request, answer

    def close(self) -> None:
        self._pause.set()
        self._connection.close()

    # ---- inside

    def _requests(self, messages: Iterable[BulkMessage]) -> Iterator[BulkRequest]:
        waiting = iter(messages)
        while batch := list(islice(waiting, self._batch_messages)):
            yield from self._cut(self._request(batch))

    def _request(self, batch: Sequence[BulkMessage]) -> BulkRequest:
        columns = {
            "bodies": tuple([each.body for each in batch]),
            "message_ids": tuple([each.message_id or self._ids.next() for each in batch]),
            "topics": _column([each.topic for each in batch]),
            "tags": _column([each.tags for each in batch]),
            "keys": _column([_keys_text(each.keys) for each in batch]),
            "properties": _column(
                [property_text(each.properties) if each.properties else "" for each in batch]
            ),
            "delay_levels": _column([each.delay_level for each in batch]),
            "delays": _column([str(each.delay) for each in batch]),
            "deliver_at_ms": _column([each.deliver_at_ms for each in batch]),
        }
        arguments: dict[str, Any] = columns
        return BulkRequest(
            **arguments, match=self._match, job_id=self._job_id, born_at_ms=wall_ms()
        )

    def _cut(self, request: BulkRequest) -> Iterator[BulkRequest]:
        """The request in parts, each with one message or at most BATCH_BYTES_MAX of bodies."""
        count = len(request.bodies)
        if count < 2 or sum(map(len, request.bodies)) <= BATCH_BYTES_MAX:
            yield request
            return
        yield from self._cut(request.part(0, count // 2))
        yield from self._cut(request.part(count // 2, count))

    def _start(self, request: BulkRequest) -> _Call:
        call = _Call(request)
        self._try(call)
        return call

    def _try(self, call: _Call) -> None:
        """Make the call, or repeat it; call.answered gets its outcome."""
        call.answered = answered = CallFuture[BulkAnswer]()
        timeout_s, wait = self._timeout_s, call.attempt > 0
        if wait:
            left_s = call.failing_since_s + self._retry_s - elapsed_s()
            timeout_s = min(timeout_s, max(RETRY_S_MIN, left_s))
        try:
            self._connection.start(
                SCHEDULE_BULK, call.request, timeout_s, answered.settle, wait_for_ready=wait
            )
        except RmqliteError as error:
            answered.settle(error)

    def _answer(self, call: _Call) -> BulkAnswer:
        """Wait for the answer; repeat the call while the broker is away."""
        while True:
            try:
                return call.answered.result()
            except Unavailable:
                # Count from here: until now the thread may have waited for earlier calls.
                if call.attempt == 0:
                    call.failing_since_s = elapsed_s()
                pause_s = retry_pause_s(call.attempt)
                late = elapsed_s() + pause_s - call.failing_since_s >= self._retry_s
                if late or self._pause.wait(pause_s):
                    raise
                call.attempt += 1
                self._try(call)
            except MessageTooLarge as error:
                return self._halved(call.request, error)

    def _halved(self, request: BulkRequest, error: MessageTooLarge) -> BulkAnswer:
        """Send a too large request in two halves; refuse a message that is too large alone."""
        count = len(request.bodies)
        counted = request.already_refused
        if count < 2:
            message_id = request.message_ids[0] if count else ""
            # Cut the id: perhaps it is the part that is too long.
            refusal = Refusal.of(message_id[:MESSAGE_ID_BYTES_MAX], error)
            # This call has no message: it only makes the job's record count the refusal.
            rest = replace(request.part(0, 0), already_refused=(*counted, refusal))
            self._answer(self._start(rest))
            return BulkAnswer(0, refused=(RefusedAt(0, refusal),))
        half = count // 2
        begin = replace(request.part(0, half), already_refused=counted)
        first = self._answer(self._start(begin))
        second = self._answer(self._start(request.part(half, count)))
        return BulkAnswer(
            first.accepted + second.accepted,
            first.duplicates + tuple([half + at for at in second.duplicates]),
            first.refused
            + tuple([RefusedAt(half + each.position, each.refusal) for each in second.refused]),
        )


def outcomes(request: BulkRequest, answer: BulkAnswer) -> Iterator[BulkOutcome]:
    """The outcome of each message of a request, in order."""
    duplicates = set(answer.duplicates)
    refused = {each.position: each.refusal for each in answer.refused}
    for position, message_id in enumerate(request.message_ids):
        if position in refused:
            yield BulkOutcome(message_id, BulkStatus.REFUSED, refused[position].error())
        elif position in duplicates:
            yield BulkOutcome(message_id, BulkStatus.DUPLICATE)
        else:
            yield BulkOutcome(message_id, BulkStatus.ACCEPTED)


def _keys_text(keys: str | Sequence[str]) -> str:
    return keys if isinstance(keys, str) else " ".join(keys)


def _column(values: list[Any]) -> tuple[Any, ...]:
    """The values; one value if all are equal, none if all are empty."""
    first = values[0]
    if values.count(first) != len(values):
        return tuple(values)
    return (first,) if first else ()
