"""The push consumer against a small broker: what is consumed, committed, sent back, and when."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqlite.client import (
    CONSUME_SUCCESS,
    DEAD_LETTER,
    RECONSUME_LATER,
    ConsumeFrom,
    ConsumeResult,
    Message,
    PushConsumer,
    RetryLater,
    reconsume_later,
)
from rmqlite.client.consuming import broker_link
from rmqlite.kernel.requests.groups import (
    Assignment,
    HeartbeatRequest,
    OffsetsCommit,
    OffsetsQuery,
    Subscription,
)
from rmqlite.kernel.requests.messages import PullRequest, PullStatus
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import (
    BrokerClosing,
    GroupUnknown,
    InvalidName,
    InvalidValue,
    Refused,
    TopicUnknown,
)
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.kernel.words.names import retry_topic
from rmqlite.protocols.native.bytes.messages import PullResult
from tests.support.fake_broker import STORED_MS, WAIT_S, FakeBroker, raises

NEVER_MS = 3_600_000
ONE_BYTES = 98
"""Of a record with a body of one letter, in the topic "orders"."""
QUEUE = Queue("orders", 0)
RETRY = Queue(retry_topic("g"), 0)


class Seen:
    """A listener that remembers, and that answers, waits or fails as it is told per body."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self.messages: list[StoredMessage] = []
        self.results: dict[str, ConsumeResult | None] = {}
        self.errors: dict[str, BaseException] = {}
        self.gates: dict[str, threading.Event] = {}

    def __call__(self, message: StoredMessage) -> ConsumeResult | None:
        name = message.body.decode()
        with self._broker.changed:
            self.messages.append(message)
            self._broker.changed.notify_all()
        if name in self.gates:
            assert self.gates[name].wait(WAIT_S)
        if name in self.errors:
            raise self.errors[name]
        return self.results.get(name, CONSUME_SUCCESS)

    @property
    def names(self) -> list[str]:
        return [m.body.decode() for m in self.messages]


class LineSeen(logging.Filter):
    """Sees a line of the client's log when it is written."""

    def __init__(self, line: str) -> None:
        super().__init__()
        self.line = line
        self.seen = threading.Event()

    def filter(self, record: logging.LogRecord) -> bool:
        if self.line in record.getMessage():
            self.seen.set()
        return True

    def __enter__(self) -> None:
        broker_link.log.addFilter(self)

    def __exit__(self, *_: object) -> None:
        broker_link.log.removeFilter(self)


Make = Callable[..., PushConsumer]


@pytest.fixture
def seen(broker: FakeBroker) -> Seen:
    broker.add_queues("orders")
    return Seen(broker)


@pytest.fixture
def make(broker: FakeBroker, seen: Seen) -> Iterator[Make]:
    made: list[PushConsumer] = []

    def consumer(**options: Any) -> PushConsumer:
        start = options.pop("start", True)
        expression = options.pop("expression", "*")
        options = {"commit_interval_ms": 10, "close_timeout_ms": 2_000, **options}
        made.append(PushConsumer(broker.endpoint, "g", seen, **options))
        made[-1].subscribe("orders", expression)
        if start:
            made[-1].start()
        return made[-1]

    yield consumer
    for gate in seen.gates.values():
        gate.set()
    for each in made:
        each.close()


def fill(broker: FakeBroker, names: str, queue_id: int = 0, **fields: Any) -> None:
    for name in names:
        broker.add(Message("orders", name.encode(), **fields), queue_id)


# ---- consuming


def test_every_message_is_consumed_and_then_committed(
    broker: FakeBroker, seen: Seen, make: Make
) -> None:
    """What was there before the start, and what comes after."""
    fill(broker, "ab")
    make()
    broker.until(lambda: len(seen.names) == 2)
    fill(broker, "c")
    broker.until(lambda: broker.committed.get(QUEUE) == 3)
    assert sorted(seen.names) == ["a", "b", "c"]


def test_a_consumer_goes_on_at_the_committed_offset(
    broker: FakeBroker, seen: Seen, make: Make
) -> None:
    """It is the group's, not the consumer's."""
    fill(broker, "abc")
    broker.committed[QUEUE] = 2
    make()
    broker.until(lambda: broker.committed[QUEUE] == 3)
    assert seen.names == ["c"]


@pytest.mark.parametrize(
    ("consume_from", "names"),
    [
        (ConsumeFrom.FIRST_OFFSET, "abcd"),
        (ConsumeFrom.LAST_OFFSET, "d"),
        (STORED_MS + 2_000, "bcd"),
    ],
)
def test_a_new_group_starts_where_it_is_told(
    broker: FakeBroker, seen: Seen, make: Make, consume_from: Any, names: str
) -> None:
    """At the beginning, at the end, or at a store time."""
    fill(broker, "abc")
    make(consume_from=consume_from)
    broker.until(lambda: len(broker.asked["Pull"]) > 0)
    fill(broker, "d")
    broker.until(lambda: broker.committed.get(QUEUE) == 4)
    assert sorted(seen.names) == list(names)


def test_a_start_at_the_end_is_committed_at_once(broker: FakeBroker, make: Make) -> None:
    """Another member that takes over before the first message must not start at a later end."""
    fill(broker, "abc")
    make(consume_from=ConsumeFrom.LAST_OFFSET)
    broker.until(lambda: broker.committed.get(QUEUE) == 3)


def test_tags_are_compared_themselves_not_only_by_hash(
    broker: FakeBroker, seen: Seen, make: Make
) -> None:
    """The broker filters by hash and this one not at all; other tags still count as read."""
    for tag in ("A", "B", "C", "A"):
        fill(broker, tag.lower(), tags=tag)
    make(expression="A || C")
    broker.until(lambda: broker.committed.get(QUEUE) == 4)
    assert sorted(seen.names) == ["a", "a", "c"]
    assert broker.asked["Pull"][0].expression == "A || C"


def test_sql_goes_to_the_broker_with_each_pull_but_not_for_retries(broker: FakeBroker) -> None:
    """A retry matched when it came the first time, and retries have more properties."""
    fill(broker, "a", tags="A")
    broker.add_queues(retry_topic("g"))
    with PushConsumer(broker.endpoint, "g", lambda _: CONSUME_SUCCESS) as consumer:
        consumer.subscribe("orders", "A", sql="n > 1")
        consumer.start()
        broker.until(lambda: len({each.topic for each in broker.asked["Pull"]}) == 2)
    asked = {(each.topic, each.expression, each.sql) for each in broker.asked["Pull"]}
    assert asked == {("orders", "A", "n > 1"), (retry_topic("g"), "*", "")}
    (subscription,) = broker.asked["Heartbeat"][0].subscriptions
    assert subscription == Subscription("orders", "A", "n > 1")


def test_a_listener_can_be_given_as_a_decorator(broker: FakeBroker, seen: Seen) -> None:
    """And stays an ordinary function."""
    fill(broker, "a")
    with PushConsumer(broker.endpoint, "g") as consumer:
        consumer.subscribe("orders")

        @consumer.listen
        def listener(message: StoredMessage) -> ConsumeResult | None:
            return seen(message)

        consumer.start()
        broker.until(lambda: seen.names == ["a"])
        assert callable(listener)


# ---- failing


def test_a_failed_message_comes_back_under_its_original_topic(
    broker: FakeBroker, seen: Seen, make: Make
) -> None:
    """The listener need not know that retries travel through a topic of their own."""
    broker.add_queues(retry_topic("g"))
    fill(broker, "a")
    seen.results["a"] = RECONSUME_LATER
    make(max_reconsume_times=5)
    broker.until(lambda: len(seen.messages) >= 2)
    seen.results.clear()
    assert [(m.topic, m.reconsume_times) for m in seen.messages[:2]] == [
        ("orders", 0),
        ("orders", 1),
    ]
    request = broker.asked["SendBack"][0]
    assert (request.group, request.delay_level, request.max_reconsume_times) == ("g", 0, 5)
    assert request.physical_offset == broker.queues[QUEUE][0].physical_offset


def test_the_retry_topic_is_read_from_its_beginning_and_whole(
    broker: FakeBroker, seen: Seen, make: Make
) -> None:
    """Failures from before this start are not skipped, whatever their tags."""
    broker.add(Message(RETRY.topic, b"failed before", tags="Z"))
    make(consume_from=ConsumeFrom.LAST_OFFSET, expression="A")
    broker.until(lambda: seen.names == ["failed before"])


def test_an_exception_sends_the_message_back_with_the_error_as_reason(
    broker: FakeBroker, seen: Seen, make: Make
) -> None:
    """So that the dead letter tells why."""
    fill(broker, "a")
    seen.errors["a"] = KeyError("customer")
    make()
    broker.until(lambda: broker.committed.get(QUEUE) == 1)
    assert broker.asked["SendBack"][0].reason == "KeyError: 'customer'"


def test_a_listener_can_make_a_dead_letter_at_once(
    broker: FakeBroker, seen: Seen, make: Make
) -> None:
    """Some failures no retry can mend."""
    fill(broker, "a")
    seen.results["a"] = reconsume_later(delay_level=DEAD_LETTER, reason="hopeless")
    make()
    broker.until(lambda: Queue("%DLQ%g", 0) in broker.queues)
    request = broker.asked["SendBack"][0]
    assert (request.delay_level, request.reason) == (-1, "hopeless")


def test_an_offset_waits_until_the_broker_took_the_message_back(
    broker: FakeBroker, seen: Seen, make: Make
) -> None:
    """A commit before that would lose the message in a crash."""
    fill(broker, "ab")
    seen.results["a"] = RECONSUME_LATER
    broker.answers["SendBack"] = raises(BrokerClosing())
    make()
    broker.until(lambda: len(broker.asked["SendBack"]) >= 3)
    assert broker.committed.get(QUEUE, 0) == 0
    del broker.answers["SendBack"]
    broker.until(lambda: broker.committed.get(QUEUE) == 2)


def test_a_failed_message_that_retention_deleted_is_let_go(
    broker: FakeBroker, seen: Seen, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """It can never be sent back, and must not hold up the queue; a line in the log says so."""
    fill(broker, "a")
    seen.results["a"] = RECONSUME_LATER
    seen.gates["a"] = threading.Event()
    make()
    broker.until(lambda: seen.names == ["a"])
    broker.queues[QUEUE][0] = broker.add(Message("elsewhere", b"x"))
    seen.gates["a"].set()
    broker.until(lambda: broker.committed.get(QUEUE) == 1)
    assert "gone from the broker" in caplog.text


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(1), KeyboardInterrupt()])
def test_a_thread_survives_whatever_its_listener_raises(
    broker: FakeBroker, seen: Seen, make: Make, error: BaseException
) -> None:
    """Its message is sent back with the reason, the next ones are consumed, close() is quick."""
    fill(broker, "abc")
    seen.errors["a"] = error
    consumer = make(consume_threads=1, close_timeout_ms=NEVER_MS)
    broker.until(lambda: broker.committed.get(QUEUE) == 3)
    assert seen.names[:3] == ["a", "b", "c"]
    (sent_back,) = broker.asked["SendBack"][:1]
    assert sent_back.reason == f"{type(error).__name__}: {error}"
    del seen.errors["a"]
    consumer.close()
    assert not broker.members


# ---- commits and flow control


def test_a_running_message_holds_back_the_commit_of_later_ones(
    broker: FakeBroker, seen: Seen, make: Make
) -> None:
    """The lowest unfinished offset is committed, so a crash repeats it."""
    fill(broker, "abc")
    seen.gates["b"] = threading.Event()
    make()
    broker.until(lambda: broker.committed.get(QUEUE) == 1 and len(seen.names) == 3)
    seen.gates["b"].set()
    broker.until(lambda: broker.committed[QUEUE] == 3)


@pytest.mark.parametrize("limit", [{"cached_messages_max": 4}, {"cached_bytes_max": 4 * ONE_BYTES}])
def test_a_full_cache_stops_the_pulls_of_its_queue_only(
    broker: FakeBroker, seen: Seen, make: Make, limit: dict[str, int]
) -> None:
    """By number or by size; the other queue goes on, and this one does when there is room."""
    broker.add_queues("orders", 2)
    seen.gates["x"] = threading.Event()
    fill(broker, "x" * 10, 0)
    fill(broker, "abcdefgh", 1)
    make(pull_batch=2, consume_threads=4, **limit)
    broker.until(lambda: broker.committed.get(Queue("orders", 1)) == 8)
    pulled = [r.queue_offset for r in broker.asked["Pull"] if r.queue_id == 0 and r.topic[0] == "o"]
    assert pulled == [0, 2]
    seen.gates["x"].set()
    broker.until(lambda: broker.committed[QUEUE] == 10)


def test_a_queue_whose_offset_comes_late_has_a_thread(
    broker: FakeBroker, seen: Seen, make: Make
) -> None:
    """The messages of the other queue hang in all the threads that they may have."""
    broker.add_queues("orders", 2)
    seen.gates["x"] = threading.Event()
    fill(broker, "x" * 10, 0)
    fill(broker, "a", 1)

    def late(query: OffsetsQuery) -> dict[Queue, int]:
        if Queue("orders", 1) in query.queues:
            broker.until(lambda: len(seen.messages) >= 3)
        return {queue: 0 for queue in query.queues}

    broker.answers["QueryOffsets"] = late
    make(consume_threads=4)
    broker.until(lambda: broker.committed.get(Queue("orders", 1)) == 1)
    seen.gates["x"].set()


def test_an_offset_outside_of_the_queue_goes_on_where_messages_are(
    broker: FakeBroker, seen: Seen, make: Make
) -> None:
    """Retention deleted what the group had not read."""
    fill(broker, "abc")
    broker.committed[QUEUE] = 77
    make()
    broker.until(lambda: broker.committed[QUEUE] == 3)
    fill(broker, "d")
    broker.until(lambda: seen.names == ["d"])


def test_a_queue_that_cannot_be_read_does_not_stop_the_others(
    broker: FakeBroker, seen: Seen, make: Make
) -> None:
    """Each has its own calls and its own pauses."""
    broker.add_queues("orders", 2)
    fill(broker, "ab", 1)

    def answer(request: PullRequest) -> PullResult:
        if request.queue_id == 0:
            raise GroupUnknown("g")
        if request.queue_offset == 2:
            return PullResult(PullStatus.NO_NEW_MESSAGE, 2, 0, 2)
        return PullResult(PullStatus.FOUND, 2, 0, 2, tuple(broker.queues[Queue("orders", 1)]))

    broker.answers["Pull"] = answer
    make()
    broker.until(lambda: sorted(seen.names) == ["a", "b"])


# ---- membership


def test_a_new_assignment_starts_and_stops_queues(
    broker: FakeBroker, seen: Seen, make: Make
) -> None:
    """Without a restart, as soon as the broker says so."""
    zero, one = broker.add_queues("orders", 2)
    fill(broker, "a", 0)
    broker.assign("me", [zero])
    consumer = make(client_id="me")
    broker.until(lambda: broker.committed.get(zero) == 1)
    assert consumer.queues == (zero,)
    broker.assign("me", [one])
    broker.until(lambda: consumer.queues == (one,))
    fill(broker, "b", 0)
    fill(broker, "c", 1)
    broker.until(lambda: broker.committed.get(one) == 1)
    assert (consumer.queues, seen.names, broker.committed[zero]) == ((one,), ["a", "c"], 1)


def test_a_lost_queue_is_committed_once_with_what_was_finished(
    broker: FakeBroker, seen: Seen, make: Make
) -> None:
    """Its messages that were not started are dropped; what finishes later commits nothing."""
    fill(broker, "abc")
    seen.gates["b"] = threading.Event()
    broker.assign("me", [QUEUE])
    make(client_id="me", consume_threads=1, commit_interval_ms=NEVER_MS)
    broker.until(lambda: seen.names == ["a", "b"])
    broker.assign("me", [])
    broker.until(lambda: len(broker.asked["CommitOffsets"]) == 1)
    assert broker.committed == {QUEUE: 1}
    seen.gates["b"].set()
    broker.assign("me", [RETRY])
    fill_retry = broker.add(Message(RETRY.topic, b"later"))
    broker.until(lambda: seen.names[-1] == fill_retry.body.decode())
    assert seen.names == ["a", "b", "later"]
    assert broker.committed == {QUEUE: 1}


def test_a_message_that_fails_after_its_queue_is_lost_is_not_sent_back(
    broker: FakeBroker, seen: Seen, make: Make
) -> None:
    """The queue's new reader gets it anyway; a second chain of retries would begin."""
    fill(broker, "a")
    seen.gates["a"] = threading.Event()
    seen.results["a"] = RECONSUME_LATER
    broker.assign("me", [QUEUE])
    consumer = make(client_id="me")
    broker.until(lambda: seen.names == ["a"])
    broker.assign("me", [])
    broker.until(lambda: consumer.queues == () and len(broker.asked["Heartbeat"]) >= 3)
    seen.gates["a"].set()
    consumer.close()
    assert not broker.asked["SendBack"]
    assert broker.committed.get(QUEUE, 0) == 0


def test_a_heartbeat_tells_group_member_and_subscriptions(broker: FakeBroker, make: Make) -> None:
    """And, once there is one, the assignment that it works by."""
    consumer = make(expression="A || B", heartbeat_interval_ms=7_777)
    broker.until(lambda: len(broker.asked["Heartbeat"]) == 3)
    request = broker.asked["Heartbeat"][2]
    assert (request.group, request.client_id) == ("g", consumer.client_id)
    assert [(s.topic, s.expression) for s in request.subscriptions] == [("orders", "A || B")]
    assert (request.known_epoch, request.wait_ms) == (broker.epoch, 7_777)


# ---- starting, outages, closing


def test_a_start_that_can_never_work_is_refused(broker: FakeBroker, make: Make) -> None:
    """In the caller's protocol, not in a background log."""
    consumer = make(start=False)
    broker.answers["Heartbeat"] = raises(GroupUnknown("g"))
    with pytest.raises(GroupUnknown):
        consumer.start()
    del broker.answers["Heartbeat"]
    consumer.start()


def test_what_must_be_said_before_the_start_is_refused_after_it(make: Make) -> None:
    """A group's members must agree, so nothing changes while one runs; nor after its end."""
    consumer = make()
    with pytest.raises(Refused, match=r"was started already; do it before start\(\)"):
        consumer.subscribe("more")
    with pytest.raises(Refused, match="was started"):
        consumer.start()
    consumer.close()
    with pytest.raises(Refused, match="was closed"):
        consumer.start()


def test_a_start_without_a_listener_or_a_subscription_says_what_is_missing(
    broker: FakeBroker,
) -> None:
    """It would have nothing to do; said later, it starts."""
    broker.add_queues("orders")
    with PushConsumer(broker.endpoint, "g") as consumer:
        with pytest.raises(Refused, match=r"no listener: .* call listen\(\) before start"):
            consumer.start()
        consumer.listen(lambda _: CONSUME_SUCCESS)
        with pytest.raises(Refused, match=r"no subscription: call subscribe\(\) .* before start"):
            consumer.start()
        consumer.subscribe("orders")
        consumer.start()


def test_a_with_block_alone_does_not_start_it(broker: FakeBroker, seen: Seen) -> None:
    """Else there would be no place inside it to say what to consume."""
    with PushConsumer(broker.endpoint, "g", seen) as consumer:
        consumer.subscribe("orders")
        assert consumer.queues == ()
    assert not broker.asked["Heartbeat"]


def test_bad_options_are_refused_by_name(broker: FakeBroker) -> None:
    """Before anything is asked."""
    with pytest.raises(InvalidValue, match="consume_threads"):
        PushConsumer(broker.endpoint, "g", consume_threads=0)
    with pytest.raises(InvalidValue, match=r"consume_from.*looks like seconds"):
        PushConsumer(broker.endpoint, "g", consume_from=1_763_632_800)
    with pytest.raises(InvalidValue, match="sql"):
        PushConsumer(broker.endpoint, "g").subscribe("orders", sql=" ")
    with pytest.raises(InvalidName):
        PushConsumer(broker.endpoint, "a b")


def test_a_consumer_may_start_before_its_broker(tmp_path: Path) -> None:
    """The order in which processes come up is nobody's choice."""
    broker = FakeBroker(tmp_path)
    broker.add_queues("orders")
    seen = Seen(broker)
    with PushConsumer(broker.endpoint, "g", seen) as consumer:
        consumer.subscribe("orders")
        consumer.start()
        assert not consumer.wait_assigned(0)
        broker.start()
        fill(broker, "a")
        assert consumer.wait_assigned(20_000)
        broker.until(lambda: seen.names == ["a"])
    broker.stop()


def test_a_broker_that_was_away_is_found_again(
    broker: FakeBroker, seen: Seen, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """By itself, and with one line per outage, not one per call."""
    broker.add_queues("orders", 8)
    away = LineSeen("the broker is away")
    with caplog.at_level(logging.WARNING), away:
        make()
        fill(broker, "a")
        broker.until(lambda: broker.committed.get(QUEUE) == 1)
        broker.stop()
        assert away.seen.wait(WAIT_S)
        fill(broker, "b")
        broker.start()
        broker.until(lambda: broker.committed[QUEUE] == 2)
    assert seen.names == ["a", "b"]
    assert caplog.text.count("the broker is away") == 1


def test_after_a_failed_heartbeat_the_assignment_is_asked_for_whatever_its_epoch(
    broker: FakeBroker, make: Make
) -> None:
    """It may be another broker, whose same number is not the same assignment."""
    left = iter([False, False, True])

    def answer(request: HeartbeatRequest) -> Assignment:
        if next(left, False):
            raise BrokerClosing
        queues = () if request.known_epoch else (QUEUE,)
        return Assignment(5, queues, ("me",))

    broker.answers["Heartbeat"] = answer
    make()
    broker.until(lambda: len(broker.asked["Heartbeat"]) >= 4)
    assert [r.known_epoch for r in broker.asked["Heartbeat"][:4]] == [0, 0, 5, 0]


def test_close_lets_listeners_finish_commits_and_leaves(
    broker: FakeBroker, seen: Seen, make: Make
) -> None:
    """In this order, so that the next reader repeats nothing that was finished."""
    fill(broker, "abc")
    seen.gates["a"] = threading.Event()
    consumer = make(consume_threads=1, commit_interval_ms=NEVER_MS, close_timeout_ms=20_000)
    broker.until(lambda: seen.names == ["a"])
    order: list[str] = []

    def commit(request: OffsetsCommit) -> None:
        order.append("commit")
        broker.plain("CommitOffsets", request)

    def leave(_: Any) -> None:
        order.append("leave")

    broker.answers.update({"CommitOffsets": commit, "Leave": leave})
    closer = threading.Thread(target=consumer.close)
    closer.start()
    assert not order
    seen.gates["a"].set()
    closer.join(WAIT_S)
    assert (order, seen.names, broker.committed[QUEUE]) == (["commit", "leave"], ["a"], 1)


def test_a_message_failed_while_closing_is_still_sent_back(
    broker: FakeBroker, seen: Seen, make: Make
) -> None:
    """Closing waits for the broker's answer too."""
    fill(broker, "a")
    seen.gates["a"] = threading.Event()
    seen.results["a"] = RECONSUME_LATER
    consumer = make(close_timeout_ms=20_000)
    broker.until(lambda: seen.names == ["a"])
    closer = threading.Thread(target=consumer.close)
    closer.start()
    seen.gates["a"].set()
    closer.join(WAIT_S)
    assert len(broker.asked["SendBack"]) == 1
    assert broker.committed[QUEUE] == 1


def test_close_does_not_wait_forever_for_a_listener_that_hangs(
    broker: FakeBroker, seen: Seen, make: Make
) -> None:
    """Its message is not committed, so it is delivered again."""
    fill(broker, "a")
    seen.gates["a"] = threading.Event()
    consumer = make(close_timeout_ms=50)
    broker.until(lambda: seen.names == ["a"])
    consumer.close()
    assert broker.committed.get(QUEUE, 0) == 0
    assert not broker.members


def test_a_listener_may_close_its_consumer(broker: FakeBroker) -> None:
    """It does not wait for itself."""
    broker.add_queues("orders")
    fill(broker, "a")
    closed = threading.Event()
    consumer = PushConsumer(broker.endpoint, "g", close_timeout_ms=60_000)
    consumer.subscribe("orders")

    @consumer.listen
    def listener(_: StoredMessage) -> ConsumeResult:
        consumer.close()
        closed.set()
        return CONSUME_SUCCESS

    consumer.start()
    assert listener is not None
    assert closed.wait(WAIT_S)
    assert not broker.members


def test_a_listener_may_be_the_last_one(broker: FakeBroker, seen: Seen, make: Make) -> None:
    """It stops the listening and returns: its own message is done, the next is untouched."""
    fill(broker, "abc")
    consumer = make(start=False, consume_threads=1)

    def last(message: StoredMessage) -> ConsumeResult:
        if message.body == b"b":
            consumer.stop_listening()
        return seen(message) or RECONSUME_LATER

    consumer.listen(last)
    consumer.start()
    broker.until(lambda: broker.committed.get(QUEUE) == 2)
    assert broker.members == {consumer.client_id}
    consumer.close()
    assert seen.names == ["a", "b"]
    assert (broker.committed[QUEUE], broker.asked["SendBack"]) == (2, [])


def test_closing_while_the_broker_is_away_ends(broker: FakeBroker, make: Make) -> None:
    """Commit and leave fail, and are repeated by nobody."""
    fill(broker, "a")
    consumer = make(commit_interval_ms=NEVER_MS)
    broker.until(lambda: len(broker.asked["Pull"]) > 1)
    broker.stop()
    consumer.close()
    broker.start()


def test_a_consumer_says_why_nothing_will_come(
    broker: FakeBroker, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic misspelt, and a pattern where tags match whole, were waited for in silence."""
    broker.answers["GetRoute"] = raises(TopicUnknown("ordres"))
    consumer = make(start=False)
    consumer.subscribe("ordres", "*.error || paid")
    consumer.start()
    pattern, unknown = [each for each in caplog.messages if " comes" in each]
    assert "there are no patterns: only the tag '*.error' itself comes" in pattern
    assert unknown.startswith(
        "nothing comes before the topic exists group=g: no topic named 'ordre"
    )
    with pytest.raises(Refused, match="was started already; start\\(\\) is called once"):
        consumer.start()


def test_a_close_that_waits_says_for_what(
    broker: FakeBroker, make: Make, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    """At Ctrl-C a program seemed to hang for half a minute."""
    broker.add(Message("orders", b"a"))
    seen.gates["a"] = threading.Event()
    consumer = make(close_timeout_ms=1_100)
    broker.until(lambda: seen.names == ["a"])
    consumer.close()
    seen.gates["a"].set()
    assert "closing: waiting for 1 listeners, at most 1.1 s; a second Ctrl-C ends the wait" in (
        caplog.text
    )


def test_a_wait_that_the_broker_cannot_keep_gives_way_to_the_policy(
    broker: FakeBroker, seen: Seen, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the message would be sent back again and again, and hold up its queue."""
    fill(broker, "a")
    seen.errors["a"] = RetryLater("3650d", "later")
    refused = InvalidValue("delay_ms", 315_360_000_000, "at most 63072000000 ms from now")
    broker.answers["SendBack"] = raises(refused)
    make()
    broker.until(lambda: len(broker.asked["SendBack"]) >= 2)
    del broker.answers["SendBack"]
    broker.until(lambda: broker.committed.get(QUEUE) == 1)
    first, second = broker.asked["SendBack"][:2]
    assert (first.delay_ms, second.delay_ms) == (315_360_000_000, 0)
    assert first.reason == second.reason == "later"
    assert "a message comes again by its group's policy: delay_ms must be" in caplog.text
