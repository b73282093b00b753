"""The simple consumer: asks for messages when it wants some, and says of each what became of it.

It has no thread, no queues of its own and no offsets: the broker leases each message to one member
of the group.  So a slow message holds up nothing, and more members than queues are of use.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Final, NamedTuple, TypeAlias

from rmqlite.client.channel import Closing, Connection
from rmqlite.client.consuming.listener import reason_text
from rmqlite.client.consuming.queue_reader import EVERYTHING, given_sql, parse_tags
from rmqlite.client.credentials import Credentials
from rmqlite.client.forks import CallFuture, process_id
from rmqlite.client.tracing import Tracing
from rmqlite.client.unique_id import own_client_id
from rmqlite.features.rows import A, Q, Row
from rmqlite.features.simple_consumer.requests import (
    RECEIVE,
    RELEASE,
    SETTLE,
    SETTLEMENTS_MAX,
    LeasedRecords,
    Outcome,
    Settlement,
    SettleRequest,
    SubscribedReceive,
)
from rmqlite.kernel.requests.groups import LeaveRequest, Subscription
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.compression import inflated
from rmqlite.kernel.words.errors import HandleInvalid, InvalidValue, Refused, RmqliteError
from rmqlite.kernel.words.levels import Wait, wait_ms
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.kernel.words.names import check_group, check_topic
from rmqlite.protocols.native.bytes.rpcs import messages_of

RETRIES: Final = 2
"""Every call here may run twice: a receive gets the same messages again."""
_STORED: Final = tuple([each.name for each in fields(StoredMessage)])


@dataclass(frozen=True, slots=True)
class LeasedMessage(StoredMessage):
    """A message that a consumer has received, with the topic that it was sent to.

    attempt: 1 for the first delivery to the group.  handle: names the lease; hold() replaces it.
    """

    attempt: int
    handle: str = field(repr=False, compare=False)


Some: TypeAlias = LeasedMessage | Iterable[LeasedMessage]


class Settling(NamedTuple):
    """A call, and the messages that it is about, in its order."""

    request: SettleRequest
    messages: Sequence[LeasedMessage]

    def take_handles(self, handles: tuple[str, ...]) -> None:
        """Take the answer.  Raises HandleInvalid for the first message whose lease had ended."""
        for message, handle in zip(self.messages, handles, strict=True):
            if handle:
                # Whoever has the message means its lease, which has another name now.
                object.__setattr__(message, "handle", handle)
        for message, handle in zip(self.messages, handles, strict=True):
            if not handle:
                raise HandleInvalid(message.handle)


class Receiver:
    """What the simple consumers of threads and of event loops have in common."""

    def __init__(
        self,
        endpoint: str,
        group: str,
        *,
        timeout_ms: float = 10_000,
        client_id: str | None = None,
        credentials: Credentials | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        check_group(group)
        self.group: Final = group
        self._connection = Connection(endpoint, credentials=credentials)
        self._timeout_s = timeout_ms / 1000
        self._spans = tracing.spans(endpoint, group) if tracing else None
        self._given = client_id
        self._process, self._client_id = 0, ""
        self._subscriptions: dict[str, Subscription] = {}
        self._unanswered = ""

    @property
    def client_id(self) -> str:
        """Another one in a forked child: it is another member."""
        if self._process != process_id():
            self._process, self._client_id = process_id(), self._given or own_client_id()
        return self._client_id

    def subscribe(
        self, topic: str, expression: str = EVERYTHING, *, sql: str | None = None
    ) -> None:
        """Receive a topic's messages from now on.  expression, sql: as of PullConsumer.pull().

        All members of a group must subscribe to the same.  What the group has failed of a topic
        comes with it.
        """
        check_topic(topic)
        self._subscriptions[topic] = Subscription(topic, expression, given_sql(sql))

    def _asked(
        self, max_messages: int, wait: Wait | None, invisible: Wait, attempt_id: str = ""
    ) -> SubscribedReceive:
        """attempt_id: of a receive that got no answer; it gets the same.  Raises InvalidValue."""
        if not self._subscriptions:
            raise InvalidValue("subscriptions", "none", "subscribe() comes before receive()")
        return SubscribedReceive(
            self.group,
            self.client_id,
            tuple(self._subscriptions.values()),
            max_messages,
            wait_ms("invisible", invisible),
            0 if wait is None else wait_ms("wait", wait),
            attempt_id or secrets.token_hex(8),
        )

    def _leaving(self) -> LeaveRequest:
        return LeaveRequest(self.group, self.client_id)

    def _sorted(
        self, began_at_ms: int, found: LeasedRecords
    ) -> tuple[list[LeasedMessage], list[Settlement]]:
        """The messages of an answer, and what to say of those that nobody gets."""
        stored = messages_of(found.records)
        self._note(began_at_ms, stored, found.topic)
        messages: list[LeasedMessage] = []
        settlements: list[Settlement] = []
        takes = parse_tags(self._subscriptions[found.topic].expression).takes if stored else None
        for message, attempt, handle in zip(stored, found.attempts, found.handles, strict=True):
            if takes is not None and attempt == 1 and not takes(message):
                # A tag with the hash of another one, by which the broker compares.
                settlements.append(Settlement(found.topic, handle, Outcome.ACK))
                continue
            try:
                plain = inflated(message)
            except Refused as error:
                reason = reason_text(error)
                settlements.append(Settlement(found.topic, handle, Outcome.FAIL, reason=reason))
            else:
                values = {name: getattr(plain, name) for name in _STORED} | {"topic": found.topic}
                messages.append(LeasedMessage(**values, attempt=attempt, handle=handle))
        return messages, settlements

    def _note(
        self, began_at_ms: int, found: Sequence[StoredMessage] | RmqliteError, topic: str = ""
    ) -> None:
        """A receive has ended.  topic: of what was found."""
        if self._spans is not None:
            named = topic or next(iter(self._subscriptions), "")
            self._spans.received(Queue(named, -1), began_at_ms, found)

    def _settling(
        self,
        some: Some,
        outcome: Outcome,
        delay: int | None = None,
        reason: str | BaseException = "",
    ) -> Iterator[Settling]:
        """One call, or a few for very many messages.  Raises InvalidValue."""
        text = reason_text(reason)
        messages = [some] if isinstance(some, LeasedMessage) else list(some)
        for at in range(0, len(messages), SETTLEMENTS_MAX):
            part = messages[at : at + SETTLEMENTS_MAX]
            said = [Settlement(each.topic, each.handle, outcome, delay, text) for each in part]
            yield Settling(SettleRequest(self.group, tuple(said)), part)


def _ignore(_: object) -> None:
    pass


class SimpleConsumer(Receiver, Closing):
    """Receives messages of topics for a group, and settles each.  Usable from any thread.

    timeout_ms: of one method, without the wait of a receive.  client_id: unique in the group;
    generated if None.  credentials: what they lack comes from the environment.  tracing: make a
    span of each receive that finds messages.

    Methods that settle take one message or several, which then share a call.  They raise
    HandleInvalid if a lease has ended; the others' words are done.  After an answer was lost, and
    the call repeated, it is raised also for what the first attempt has done.  Every method raises
    RmqliteError; Unavailable if the broker did not answer in time, after RETRIES retries.
    """

    def receive(
        self, max_messages: int = 1, *, wait: Wait | None = "1s", invisible: Wait = "30s"
    ) -> list[LeasedMessage]:
        """Up to max_messages, 1 to 32, of one of the topics; none if none comes in time.

        wait: how long the broker waits for a first message, at most its maxPullWait; None: not at
        all.  invisible: how long no other member gets them; a message that is not settled by then
        has failed.  A body that cannot be inflated fails its message, and nobody gets it.
        Raises TopicUnknown, GroupUnknown, ExpressionInvalid, InvalidValue.
        """
        request = self._asked(max_messages, wait, invisible)
        began_at_ms = wall_ms()
        try:
            answer = self._ask(RECEIVE, request, request.wait_ms)
        except RmqliteError as error:
            self._note(began_at_ms, error)
            raise
        messages, settlements = self._sorted(began_at_ms, answer)
        if settlements:
            # Without that word they come again, and the others are not lost for it.
            with suppress(RmqliteError):
                self._ask(SETTLE, SettleRequest(self.group, tuple(settlements)))
        return messages

    def receive_async(
        self, max_messages: int = 1, *, wait: Wait | None = "1s", invisible: Wait = "30s"
    ) -> CallFuture[list[LeasedMessage]]:
        """receive() without a thread that waits, and without retries.

        One at a time.  The next one after an error gets what the broker leased to the lost answer.
        The future's callbacks run on gRPC's own thread.
        """
        future: CallFuture[list[LeasedMessage]] = CallFuture()
        request = self._asked(max_messages, wait, invisible, self._unanswered)
        self._unanswered = request.attempt_id
        began_at_ms = wall_ms()

        def answered(outcome: LeasedRecords | RmqliteError) -> None:
            if isinstance(outcome, RmqliteError):
                self._note(began_at_ms, outcome)
                future.settle(outcome)
                return
            self._unanswered = ""
            messages, settlements = self._sorted(began_at_ms, outcome)
            if settlements:
                refused = SettleRequest(self.group, tuple(settlements))
                with suppress(RmqliteError):
                    self._connection.start(SETTLE, refused, self._timeout_s, _ignore)
            future.settle(messages)

        timeout_s = self._timeout_s + request.wait_ms / 1000
        try:
            started = self._connection.start(RECEIVE, request, timeout_s, answered)
        except RmqliteError as error:
            future.settle(error)
            raise
        future.give_up = started.cancel
        return future

    def ack(self, messages: Some) -> None:
        """They are done; nobody in the group gets them again.  On disk when it returns."""
        self._settle(self._settling(messages, Outcome.ACK))

    def hold(self, messages: Some, invisible: Wait) -> None:
        """They take longer: no other member gets them for so long from now on."""
        held_ms = wait_ms("invisible", invisible)
        self._settle(self._settling(messages, Outcome.HOLD, held_ms))

    def fail(
        self, messages: Some, reason: str | BaseException = "", *, after: Wait | None = None
    ) -> None:
        """They come again, or are dead letters after too many times.

        reason: stored with them; of an exception its type and text.  after: when they come again;
        None: as the group's retry policy says.
        """
        delay_ms = None if after is None else wait_ms("after", after)
        self._settle(self._settling(messages, Outcome.FAIL, delay_ms, reason))

    def bury(self, messages: Some, reason: str | BaseException = "") -> None:
        """They can never be consumed: they are dead letters now."""
        self._settle(self._settling(messages, Outcome.BURY, reason=reason))

    def give_back(self, messages: Some) -> None:
        """They are visible again at once, and have not failed; a thousand times at most."""
        self._settle(self._settling(messages, Outcome.GIVE_BACK))

    def close(self) -> None:
        """Leave the group; what is not settled is visible again at once, and has not failed."""
        try:
            # Without that word the leases end by themselves.
            with suppress(RmqliteError):
                self._connection.call(RELEASE, self._leaving(), self._timeout_s)
        finally:
            self._connection.close()

    def _settle(self, calls: Iterable[Settling]) -> None:
        for each in calls:
            handles = self._ask(SETTLE, each.request)
            each.take_handles(handles)

    def _ask(self, row: Row[Q, A], value: Q, waiting_ms: int = 0) -> A:
        timeout_s = self._timeout_s + waiting_ms / 1000
        return self._connection.call_repeatedly(row, value, timeout_s, retries=RETRIES)
