"""The producer: what it sends, how often, in whose company, and what it says when it cannot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any

import pytest

from rmqlite.client import Message, Producer
from rmqlite.client.batcher import CALLS_IN_FLIGHT_MAX
from rmqlite.features.changes.requests import read_handle
from rmqlite.kernel.words.errors import (
    BrokerClosing,
    BrokerUnreachable,
    DelayUnknown,
    InvalidValue,
    MessageTooLarge,
    Refused,
    RmqliteError,
)
from rmqlite.protocols.native.bytes.messages import SendResult
from tests.support.fake_broker import WAIT_S, FakeBroker, Sent

NEVER_MS = 3_600_000
"""A linger that no test outlives."""


def message(name: str, **fields: Any) -> Message:
    return Message("orders", name.encode(), **fields)


@pytest.fixture
def make(broker: FakeBroker) -> Iterator[Callable[..., Producer]]:
    made: list[Producer] = []

    def producer(**options: Any) -> Producer:
        made.append(Producer(broker.endpoint, "makers", **{"send_timeout_ms": 20_000, **options}))
        return made[-1]

    yield producer
    for each in made:
        each.close()


def failing(broker: FakeBroker, times: int, error: RmqliteError) -> Callable[[Any], Any]:
    """An answer that is an error so many times."""
    left = iter(range(times))

    def answer(request: Sent) -> Any:
        if next(left, None) is not None:
            raise error
        return broker.plain("Send", request)

    return answer


def refusing(broker: FakeBroker, *names: str) -> Callable[[Sent], Any]:
    """An answer that refuses every call with one of these bodies in it."""

    def answer(request: Sent) -> Any:
        for each in request.messages:
            if each.body.decode() in names:
                raise InvalidValue("body", each.body.decode(), "another one")
        return broker.plain("Send", request)

    return answer


# ---- send


def test_a_send_tells_where_the_message_is(broker: FakeBroker, make: Any) -> None:
    """Group, birth time and chosen queue travel along."""
    result = make().send(message("a", tags="T", keys="k1 k2"), queue_id=3)
    assert (result.topic, result.queue_id, result.queue_offset) == ("orders", 3, 0)
    (request,) = broker.asked["Send"]
    assert (request.producer_group, request.queue_id) == ("makers", 3)
    assert request.born_at_ms > 0
    assert result.message_id == request.messages[0].message_id


def test_the_broker_chooses_the_queue_when_nobody_else_does(broker: FakeBroker, make: Any) -> None:
    """-1 on the wire, as the protocol says."""
    make().send(message("a"))
    assert broker.asked["Send"][0].queue_id == -1


def test_a_message_id_given_is_kept(broker: FakeBroker, make: Any) -> None:
    """Someone who forwards a message wants it recognised."""
    assert make().send(message("a", message_id="mine")).message_id == "mine"
    assert broker.asked["Send"][0].messages[0].message_id == "mine"


def test_the_message_id_is_the_same_in_every_attempt(broker: FakeBroker, make: Any) -> None:
    """Consumers recognise a message that was stored twice because an answer was lost."""
    broker.answers["Send"] = failing(broker, 2, BrokerClosing())
    result = make(retries=2).send(message("a"))
    assert {r.messages[0].message_id for r in broker.asked["Send"]} == {result.message_id}
    assert len(broker.asked["Send"]) == 3


def test_after_the_last_retry_the_error_is_raised(broker: FakeBroker, make: Any) -> None:
    """Two retries are three attempts, as in RocketMQ."""
    broker.answers["Send"] = failing(broker, 9, BrokerClosing())
    with pytest.raises(BrokerClosing):
        make(retries=2).send(message("a"))
    assert len(broker.asked["Send"]) == 3


def test_a_refused_send_is_not_repeated(broker: FakeBroker, make: Any) -> None:
    """It can never work."""
    broker.answers["Send"] = refusing(broker, "bad")
    with pytest.raises(InvalidValue):
        make().send(message("bad"))
    assert len(broker.asked["Send"]) == 1


def test_a_send_fails_within_its_timeout_when_nobody_is_there(
    broker: FakeBroker, make: Any
) -> None:
    """The timeout is of all attempts together, not of each."""
    producer = make(send_timeout_ms=300)
    broker.stop()
    with pytest.raises(BrokerUnreachable):
        producer.send(message("a"))
    broker.start()


def test_a_send_survives_a_restart_of_the_broker(broker: FakeBroker, make: Any) -> None:
    """A retry waits for the connection instead of failing again at once."""
    producer = make()
    producer.send(message("a"))
    broker.stop()
    again = threading.Thread(target=broker.start)
    answered = producer.send_async(message("b"))
    again.start()
    assert answered.result(WAIT_S).queue_offset == 1
    again.join()


# ---- delay


def test_a_delay_is_sent_as_it_is(broker: FakeBroker, make: Any) -> None:
    """The broker finds its level, by the table that is in force when it stores the message."""
    broker.levels = "7s 10m 1h"
    make().send(message("a", delay="10m"))
    sent = broker.asked["Send"][0].messages[0]
    assert sent.delay == "10m"


def test_a_delay_that_a_new_table_lacks_is_refused_by_the_broker(
    broker: FakeBroker, make: Any
) -> None:
    """The producer's table is up to half a minute old; the error names the one in force."""
    producer = make()
    producer.send(message("a", delay="10s"))

    def refuse(_: Sent) -> Any:
        raise DelayUnknown("10s", "1s 1h")

    broker.answers["Send"] = refuse
    with pytest.raises(DelayUnknown, match="1s 1h"):
        producer.send(message("b", delay="10s"))


def test_only_what_waits_for_an_instant_has_a_recall_handle(broker: FakeBroker, make: Any) -> None:
    """The answer has the instant of a level, too: a handle of that one would recall nothing."""
    producer = make()
    result = producer.send(message("a", message_id="mine"))._replace(deliver_at_ms=5_000)
    handle = producer.recall_handle(message("a", deliver_after="5s"), result)
    assert read_handle(handle) == ("orders", "fake", 5_000, "mine")
    asked = len(broker.asked["GetRoute"])
    assert not producer.recall_handle(message("a", delay="5s"), result)
    assert not producer.recall_handle(message("a", delay_level=2), result)
    past = result._replace(deliver_at_ms=0)
    assert not producer.recall_handle(message("a", deliver_at=1_000_000_000_000), past)
    assert len(broker.asked["GetRoute"]) == asked


def test_the_level_table_is_asked_for_once(broker: FakeBroker, make: Any) -> None:
    """A send costs one call, not two."""
    producer = make()
    for _ in range(3):
        producer.send(message("a", delay="10s"))
    assert len(broker.asked["GetRoute"]) == 1


def test_a_delay_without_a_level_is_refused_and_nothing_sent(broker: FakeBroker, make: Any) -> None:
    """A nearly right delay would be a surprise hours later."""
    with pytest.raises(DelayUnknown, match="11m"):
        make().send(message("a", delay="11m"))
    assert not broker.asked["Send"]


def test_a_level_added_a_moment_ago_is_found(broker: FakeBroker, make: Any) -> None:
    """The table is asked for once more before a delay is refused."""
    producer = make()
    producer.send(message("a", delay="10s"))
    broker.levels = "10s 45s"
    producer.send(message("b", delay="45s"))
    assert broker.asked["Send"][1].messages[0].delay == "45s"


# ---- send_batch


def test_a_batch_keeps_order_and_may_mix_topics_and_delays(broker: FakeBroker, make: Any) -> None:
    """RocketMQ forbids both; nothing here needs that."""
    batch = [Message("a", b"0", delay="5s"), Message("b", b"1"), Message("a", b"2", delay_level=1)]
    results = make().send_batch(batch)
    assert [r.topic for r in results] == ["a", "b", "a"]
    sent = broker.asked["Send"][0].messages
    assert [(m.delay, m.delay_level) for m in sent] == [("5s", 0), (None, 0), (None, 1)]


def test_a_batch_is_cut_at_its_limits(broker: FakeBroker, make: Any) -> None:
    """By number and by size; a message above the size goes alone."""
    make(batch_messages_max=2).send_batch([message(n) for n in "abcde"])
    assert broker.names_sent() == [["a", "b"], ["c", "d"], ["e"]]
    broker.asked.clear()
    large = "x" * 900
    make(batch_bytes_max=1_000).send_batch([message(n) for n in ("a", large, "b", "c")])
    assert broker.names_sent() == [["a"], [large], ["b", "c"]]


def test_a_batch_that_the_broker_finds_too_large_goes_in_parts(
    broker: FakeBroker, make: Any
) -> None:
    """Its limits may be lower than the producer's; a message alone is refused for itself."""

    def at_most_two(request: Sent) -> Any:
        if len(request.messages) > 2 or request.messages[0].body == b"bad":
            raise MessageTooLarge("messages", len(request.messages), "1 to 2 in one call")
        return broker.plain("Send", request)

    broker.answers["Send"] = at_most_two
    results = make().send_batch([message(n) for n in "abcde"])
    assert len(results) == 5
    assert [names for names in broker.names_sent() if len(names) <= 2] == [
        ["a", "b"],
        ["c"],
        ["d", "e"],
    ]
    with pytest.raises(MessageTooLarge) as caught:
        make().send_batch([message(n) for n in ("a", "bad", "c")])
    assert caught.value.__notes__ == ["1 of 3 messages were stored before this"]


def test_a_failed_batch_says_how_much_was_stored(broker: FakeBroker, make: Any) -> None:
    """Each call is all or none, the calls before it are done."""
    broker.answers["Send"] = refusing(broker, "c")
    with pytest.raises(InvalidValue) as caught:
        make(batch_messages_max=2).send_batch([message(n) for n in "abcd"])
    assert caught.value.__notes__ == ["2 of 4 messages were stored before this"]


def test_an_empty_batch_asks_nothing(broker: FakeBroker, make: Any) -> None:
    """Empty is a value."""
    assert make().send_batch([]) == []
    assert not broker.asked["Send"]


# ---- send_async


def test_a_full_batch_does_not_linger(broker: FakeBroker, make: Any) -> None:
    """By number of messages."""
    producer = make(linger_ms=NEVER_MS, batch_messages_max=3)
    futures = [producer.send_async(message(n)) for n in "abc"]
    assert [f.result(WAIT_S).queue_offset for f in futures] == [0, 1, 2]
    assert broker.names_sent() == [["a", "b", "c"]]


def test_a_heavy_batch_does_not_linger(broker: FakeBroker, make: Any) -> None:
    """By size, and it stays below the size: the second message waits for the next call."""
    producer = make(linger_ms=NEVER_MS, batch_bytes_max=1_000)
    first = producer.send_async(message("x" * 600))
    producer.send_async(message("y" * 600))
    first.result(WAIT_S)
    producer.flush()
    assert [len(call) for call in broker.names_sent()] == [1, 1]


def test_a_lonely_message_lingers_and_goes(broker: FakeBroker, make: Any) -> None:
    """Nobody has to flush."""
    make(linger_ms=1).send_async(message("a")).result(WAIT_S)
    assert broker.names_sent() == [["a"]]


def test_messages_that_wait_behind_calls_in_flight_travel_together(
    broker: FakeBroker, make: Any
) -> None:
    """The slower the broker, the larger the batches."""
    gate = threading.Event()

    def answer(request: Sent) -> Any:
        gate.wait(WAIT_S)
        return broker.plain("Send", request)

    broker.answers["Send"] = answer
    producer = make(linger_ms=0)
    for number in range(CALLS_IN_FLIGHT_MAX):
        producer.send_async(message(f"first {number}"))
        broker.until(lambda wanted=number: len(broker.asked["Send"]) > wanted)  # type: ignore[misc]
    for number in range(10):
        producer.send_async(message(f"more {number}"))
    gate.set()
    producer.flush()
    assert [len(call) for call in broker.names_sent()] == [1] * CALLS_IN_FLIGHT_MAX + [10]


def test_flush_returns_when_every_future_is_done(broker: FakeBroker, make: Any) -> None:
    """After it, nothing is on the way."""
    producer = make(linger_ms=NEVER_MS)
    futures = [producer.send_async(message(str(n))) for n in range(600)]
    producer.flush()
    assert all(f.done() for f in futures)
    assert sum(len(call) for call in broker.names_sent()) == 600


def test_close_sends_what_has_gathered_and_takes_no_more(make: Any) -> None:
    """Leaving the with block loses nothing."""
    producer = make(linger_ms=NEVER_MS)
    with producer:
        future = producer.send_async(message("a"))
    assert future.result(0).queue_offset == 0
    with pytest.raises(Refused, match="this producer is closed"):
        producer.send_async(message("b"))
    with pytest.raises(Refused, match="closed"):
        producer.send(message("b"))


@pytest.mark.parametrize("error", [ValueError(), SystemExit(), KeyboardInterrupt()])
def test_the_thread_survives_whatever_a_callback_raises(
    make: Any, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """Else every later send waits forever; the other callbacks run, and the log has a line."""
    called = threading.Event()

    def fail(_: Future[SendResult]) -> None:
        raise error

    producer = make(linger_ms=NEVER_MS)
    future = producer.send_async(message("a"))
    future.add_done_callback(fail)
    future.add_done_callback(lambda _: called.set())
    producer.flush()
    assert called.wait(WAIT_S)
    assert "a callback of a future failed" in caplog.text
    again = producer.send_async(message("b"))
    producer.flush()
    assert again.done()
    with pytest.raises(type(error)) if not isinstance(error, Exception) else nullcontext():
        again.add_done_callback(fail)  # at once, on this thread: its interrupt is its own


def test_a_message_is_sent_as_it_was_when_it_was_checked(broker: FakeBroker, make: Any) -> None:
    """Its properties are read again on another thread: a change would end that thread."""
    properties = {"a": "1"}
    producer = make(linger_ms=NEVER_MS)
    producer.send_async(Message("t", b"x", properties=properties))
    properties["TAGS"] = "never checked"
    producer.flush()
    assert broker.asked["Send"][0].messages[0].properties["a"] == "1"
    assert "TAGS" not in broker.asked["Send"][0].messages[0].properties


def test_a_bad_message_does_not_fail_its_neighbours(broker: FakeBroker, make: Any) -> None:
    """A call is all or none; the others are sent again without the bad ones."""
    broker.answers["Send"] = refusing(broker, "3", "17")
    producer = make(linger_ms=NEVER_MS, batch_messages_max=20)
    futures = [producer.send_async(message(str(n))) for n in range(20)]
    producer.flush()
    bad = [n for n, f in enumerate(futures) if f.exception(WAIT_S)]
    assert bad == [3, 17]
    assert isinstance(futures[3].exception(), InvalidValue)
    kept = [m.body for messages in broker.queues.values() for m in messages]
    assert sorted(kept) == sorted(str(n).encode() for n in range(20) if n not in bad)


def test_a_batch_is_sent_again_under_the_same_ids(broker: FakeBroker, make: Any) -> None:
    """As a single send is."""
    broker.answers["Send"] = failing(broker, 1, BrokerClosing())
    producer = make(linger_ms=NEVER_MS, batch_messages_max=2)
    futures = [producer.send_async(message(n)) for n in "ab"]
    ids = [f.result(WAIT_S).message_id for f in futures]
    assert [[m.message_id for m in r.messages] for r in broker.asked["Send"]] == [ids, ids]


def test_after_the_last_retry_every_future_of_the_batch_fails(
    broker: FakeBroker, make: Any
) -> None:
    """A batch that was not refused but could not be stored is nobody's fault."""
    broker.answers["Send"] = failing(broker, 9, BrokerClosing())
    producer = make(linger_ms=NEVER_MS, batch_messages_max=2, retries=1)
    futures = [producer.send_async(message(n)) for n in "ab"]
    assert [type(f.exception(WAIT_S)) for f in futures] == [BrokerClosing, BrokerClosing]
    assert len(broker.asked["Send"]) == 2


def test_at_in_flight_max_a_sender_waits_for_room(broker: FakeBroker, make: Any) -> None:
    """Memory is bounded by the limit, not by the sender's speed."""
    gate = threading.Event()

    def answer(request: Sent) -> Any:
        gate.wait(WAIT_S)
        return broker.plain("Send", request)

    broker.answers["Send"] = answer
    producer = make(linger_ms=0, in_flight_max=2)
    first = [producer.send_async(message(n)) for n in "ab"]
    third_added = threading.Event()

    def add_third() -> None:
        producer.send_async(message("c"))
        third_added.set()

    sender = threading.Thread(target=add_third)
    sender.start()
    broker.until(lambda: len(broker.asked["Send"]) >= 1)
    assert not third_added.is_set()
    gate.set()
    sender.join(WAIT_S)
    assert third_added.is_set()
    assert any(f.done() for f in first)


def test_a_callback_may_send_although_there_is_no_room(broker: FakeBroker, make: Any) -> None:
    """Callbacks run on the thread that makes the room; waiting there would wait forever."""
    producer = make(linger_ms=0, in_flight_max=1)
    second: list[Any] = []
    first = producer.send_async(message("a"))
    first.add_done_callback(lambda _: second.append(producer.send_async(message("b"))))
    first.result(WAIT_S)
    producer.flush()
    broker.until(lambda: len(broker.queues) == 1 and len(next(iter(broker.queues.values()))) == 2)


@pytest.mark.parametrize(
    "option",
    [
        {"linger_ms": -1},
        {"batch_messages_max": 0},
        {"batch_bytes_max": 0},
        {"in_flight_max": 0},
        {"retries": -1},
        {"send_timeout_ms": 0},
    ],
)
def test_an_impossible_limit_is_refused_by_name(make: Any, option: dict[str, int]) -> None:
    """A zero would only show as a producer that hangs."""
    with pytest.raises(InvalidValue, match=next(iter(option))):
        make(**option)
