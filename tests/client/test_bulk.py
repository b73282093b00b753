"""The bulk sender: calls in flight, repeated calls, and an outcome for every message."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rmqlite.client import AdminClient, BulkJob, BulkMessage, BulkProgress, BulkScheduler
from rmqlite.client.bulk import BATCH_BYTES_MAX, BulkOutcome, BulkStatus
from rmqlite.features.bulk.requests import BulkAnswer, BulkMatch, BulkRequest, Refusal, RefusedAt
from rmqlite.kernel.words.errors import (
    BrokerUnreachable,
    InvalidValue,
    JobUnknown,
    MessageTooLarge,
    StoreUnavailable,
)
from tests.support.fake_broker import WAIT_S, FakeBroker


@pytest.fixture
def bulk_broker(broker: FakeBroker) -> FakeBroker:
    """A broker that remembers ids, and refuses a body that says so."""
    known: set[str] = set()

    def answer(request: BulkRequest) -> BulkAnswer:
        duplicates, refused = [], []
        for position, message_id in enumerate(request.message_ids):
            if request.bodies[position] == b"bad":
                refusal = Refusal.of(message_id, InvalidValue("body", "bad", "a good one"))
                refused.append(RefusedAt(position, refusal))
            elif message_id in known:
                duplicates.append(position)
            known.add(message_id)
        accepted = len(request.bodies) - len(duplicates) - len(refused)
        return BulkAnswer(accepted, tuple(duplicates), tuple(refused))

    broker.answers["ScheduleBulk"] = answer
    return broker


@pytest.fixture
def made() -> Iterator[Callable[..., BulkScheduler]]:
    """Makes bulk senders; closes them all."""
    senders: list[BulkScheduler] = []

    def make(broker: FakeBroker, **settings: Any) -> BulkScheduler:
        senders.append(BulkScheduler(broker.endpoint, **settings))
        return senders[-1]

    yield make
    for each in senders:
        each.close()


Make = Callable[..., BulkScheduler]


def messages(count: int, first: int = 0) -> Iterator[BulkMessage]:
    for n in range(first, first + count):
        yield BulkMessage("orders", b"x", f"id-{n}", delay_level=3)


def asked(broker: FakeBroker) -> list[BulkRequest]:
    return broker.asked["ScheduleBulk"]


def test_every_message_has_its_outcome_in_order(bulk_broker: FakeBroker, made: Make) -> None:
    """One call at a time here, for the fake broker takes several in any order."""
    sender = made(bulk_broker, batch_messages=2, in_flight=1)
    rows = [
        BulkMessage("orders", b"bad" if name == "c" else b"x", name) for name in ("a", "b", "c")
    ]
    found = list(sender.schedule([*rows, rows[0]]))
    assert found[:2] == [BulkOutcome(name, BulkStatus.ACCEPTED) for name in ("a", "b")]
    assert found[2].status is BulkStatus.REFUSED
    assert isinstance(found[2].error, InvalidValue)
    assert (found[2].error.field, found[2].error.rule) == ("body", "a good one")
    assert found[3] == BulkOutcome("a", BulkStatus.DUPLICATE)
    assert sender.progress == BulkProgress(2, 1, 1)
    assert sender.progress.messages == 4


def test_columns_that_are_the_same_travel_once(bulk_broker: FakeBroker, made: Make) -> None:
    """Most jobs have one topic and one delay."""
    sender = made(bulk_broker, job_id="import", match=BulkMatch.LONGER)
    sender.schedule_all(
        [
            BulkMessage("orders", b"1", "a", "red", ("k", "l"), {"p": "q"}, delay="10m"),
            BulkMessage("orders", b"2", "b", "", "m n", delay="10m"),
        ]
    )
    (request,) = asked(bulk_broker)
    assert request == BulkRequest(
        (b"1", b"2"),
        ("a", "b"),
        ("orders",),
        ("red", ""),
        ("k l", "m n"),
        ("p\x01q", ""),
        (),
        ("10m",),
        (),
        BulkMatch.LONGER,
        "import",
        request.born_at_ms,
    )
    assert request.born_at_ms > 0


def test_a_message_without_an_id_gets_one(bulk_broker: FakeBroker, made: Make) -> None:
    """So that a call that is repeated is recognised."""
    sender = made(bulk_broker)
    sender.schedule_all([BulkMessage("orders", b"x")] * 3)
    (request,) = asked(bulk_broker)
    assert len(set(request.message_ids)) == 3


def test_several_calls_are_in_flight(bulk_broker: FakeBroker, made: Make) -> None:
    """Else the broker waits for the sender, and the sender for the broker."""
    together = threading.Barrier(3, timeout=WAIT_S)
    plain = bulk_broker.answers["ScheduleBulk"]

    def answer(request: BulkRequest) -> BulkAnswer:
        together.wait()
        return plain(request)  # type: ignore[no-any-return]

    bulk_broker.answers["ScheduleBulk"] = answer
    sender = made(bulk_broker, batch_messages=10, in_flight=3)
    assert sender.schedule_all(messages(90)) == BulkProgress(90)


def test_no_more_is_read_than_is_in_flight(bulk_broker: FakeBroker, made: Make) -> None:
    """A source of a billion rows is not read into memory."""
    read: list[int] = []

    def source() -> Iterator[BulkMessage]:
        for n, message in enumerate(messages(1_000)):
            read.append(n)
            yield message

    sender = made(bulk_broker, batch_messages=10, in_flight=2)
    outcomes = sender.schedule(source())
    next(outcomes)
    assert len(read) == 20


def test_a_call_that_failed_for_now_is_made_again(bulk_broker: FakeBroker, made: Make) -> None:
    """Its ids tell the broker that they are the same messages."""
    plain = bulk_broker.answers["ScheduleBulk"]
    failing = [StoreUnavailable("write to", "x", "full"), BrokerUnreachable("gone")]

    def answer(request: BulkRequest) -> BulkAnswer:
        if failing:
            raise failing.pop()
        return plain(request)  # type: ignore[no-any-return]

    bulk_broker.answers["ScheduleBulk"] = answer
    sender = made(bulk_broker, in_flight=1)
    assert sender.schedule_all(messages(3)) == BulkProgress(3)
    assert len(asked(bulk_broker)) == 3
    assert len({request.message_ids for request in asked(bulk_broker)}) == 1


def test_a_broker_that_stays_away_is_told_as_that(bulk_broker: FakeBroker, made: Make) -> None:
    """After a bounded time, and the sender can be closed."""
    sender = made(bulk_broker, retry_ms=0)
    bulk_broker.stop()
    with pytest.raises(BrokerUnreachable):
        sender.schedule_all(messages(3))
    bulk_broker.start()
    assert sender.progress == BulkProgress()


def test_what_is_too_large_for_a_call_is_halved(bulk_broker: FakeBroker, made: Make) -> None:
    """And who is too large alone is refused, and counted."""
    plain = bulk_broker.answers["ScheduleBulk"]

    def answer(request: BulkRequest) -> BulkAnswer:
        if sum(map(len, request.bodies)) > 4:
            raise MessageTooLarge("messages", 5, "at most 4 bytes")
        return plain(request)  # type: ignore[no-any-return]

    bulk_broker.answers["ScheduleBulk"] = answer
    sender = made(bulk_broker)
    rows = [BulkMessage("t", b"x" * size, f"id-{n}") for n, size in enumerate((1, 3, 9, 2, 1))]
    found = list(sender.schedule(rows))
    assert [each.status.value[0] for each in found] == ["a", "a", "r", "a", "a"]
    assert isinstance(found[2].error, MessageTooLarge)
    told = [each for request in asked(bulk_broker) for each in request.already_refused]
    assert [each.message_id for each in told] == ["id-2"]


def test_a_call_that_can_never_work_is_raised(bulk_broker: FakeBroker, made: Make) -> None:
    """Such as one of more messages than the broker takes: no message is to blame."""

    def answer(_: BulkRequest) -> BulkAnswer:
        raise InvalidValue("messages", 5_000, "1 to 1000 in one call (maxBulkMessages)")

    bulk_broker.answers["ScheduleBulk"] = answer
    with pytest.raises(InvalidValue, match="maxBulkMessages"):
        made(bulk_broker).schedule_all(messages(3))
    assert len(asked(bulk_broker)) == 1


def test_large_bodies_make_more_calls(bulk_broker: FakeBroker, made: Make) -> None:
    """A call has a few megabytes, however many messages that are."""
    body = bytes(1 << 20)
    rows = [BulkMessage("t", body, f"id-{n}") for n in range(5)]
    assert made(bulk_broker).schedule_all(rows) == BulkProgress(5)
    calls = [sum(map(len, request.bodies)) for request in asked(bulk_broker)]
    assert max(calls) <= BATCH_BYTES_MAX < sum(calls)


@pytest.mark.parametrize(
    "wrong",
    [
        {"body": "text"},
        {"body": b"x", "properties": {"DELAY": "3"}},
        {"body": b"x", "properties": {"a": ""}},
        {"body": b"x", "properties": {"a": "b\x02TAGS\x01x"}},
        {"body": b"x", "properties": {"a\x01": "b"}},
    ],
)
def test_a_message_that_cannot_be_written_is_refused_when_it_is_made(wrong: Any) -> None:
    """As Message is."""
    with pytest.raises(InvalidValue):
        BulkMessage("orders", **wrong)


@pytest.mark.parametrize("settings", [{"batch_messages": 0}, {"in_flight": 0}, {"job_id": "a b"}])
def test_settings_are_checked(settings: dict[str, Any]) -> None:
    """Before anything is sent."""
    with pytest.raises(InvalidValue):
        BulkScheduler("127.0.0.1:1", **settings)


def test_an_administrator_sees_jobs(broker: FakeBroker) -> None:
    """One with its samples, or all of them."""
    job = BulkJob("import", 3, 2, 1, 4, 5, 6, (Refusal("a", "b", "c"),))

    def get(job_id: str) -> BulkJob:
        if job_id != "import":
            raise JobUnknown(job_id)
        return job

    broker.answers |= {"GetBulkJob": get, "ListBulkJobs": lambda _: (job, BulkJob("other"))}
    with AdminClient(broker.endpoint) as admin:
        assert admin.job("import") == job
        assert admin.jobs() == (job, BulkJob("other"))
        with pytest.raises(JobUnknown, match="no job named 'x'"):
            admin.job("x")
