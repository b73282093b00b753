"""The pull consumer: positions, commits and seeks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from rmqlite.client import Message, PullConsumer, forks
from rmqlite.client.consuming.queue_reader import parse_tags
from rmqlite.kernel.requests.messages import PullRequest, PullStatus
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import (
    InvalidName,
    InvalidValue,
    QueueUnknown,
    Refused,
    TopicUnknown,
)
from rmqlite.protocols.native.bytes.messages import PullResult
from tests.support.fake_broker import STORED_MS, WAIT_S, FakeBroker

QUEUE = Queue("orders", 0)


@pytest.fixture
def consumer(broker: FakeBroker) -> Iterator[PullConsumer]:
    broker.add_queues("orders", 2)
    for number in range(5):
        broker.add(Message("orders", str(number).encode(), tags=f"T{number % 2}"))
    with PullConsumer(broker.endpoint, "readers") as consumer:
        yield consumer


def bodies(result: Any) -> str:
    return b"".join(m.body for m in result.messages).decode()


def test_the_queues_of_a_topic_are_listed(consumer: PullConsumer) -> None:
    """A reader without membership shares them out itself."""
    assert consumer.queues("orders") == [Queue("orders", 0), Queue("orders", 1)]


def test_pulls_go_on_where_the_one_before_ended(consumer: PullConsumer) -> None:
    """From the beginning, as nothing was committed."""
    pulled = [bodies(consumer.pull("orders", 0, max_messages=2)) for _ in range(4)]
    assert pulled == ["01", "23", "4", ""]


def test_a_new_consumer_goes_on_at_the_committed_offset(
    broker: FakeBroker, consumer: PullConsumer
) -> None:
    """What commit() is for."""
    consumer.pull("orders", 0, max_messages=3)
    consumer.commit()
    with PullConsumer(broker.endpoint, "readers") as next_consumer:
        assert next_consumer.committed(QUEUE) == 3
        assert bodies(next_consumer.pull("orders", 0)) == "34"


def test_nothing_is_committed_unasked(broker: FakeBroker, consumer: PullConsumer) -> None:
    """Neither by a pull nor by close."""
    consumer.pull("orders", 0)
    consumer.close()
    assert not broker.asked["CommitOffsets"]


def test_a_pull_with_an_offset_leaves_the_position(consumer: PullConsumer) -> None:
    """Looking something up does not lose the place."""
    consumer.pull("orders", 0, max_messages=2)
    assert bodies(consumer.pull("orders", 0, 4)) == "4"
    assert consumer.position(QUEUE) == 2


def test_one_queue_can_be_committed_alone_and_anywhere(
    broker: FakeBroker, consumer: PullConsumer
) -> None:
    """A lower offset is a seek back for the whole group."""
    consumer.pull("orders", 0, max_messages=2)
    consumer.pull("orders", 1)
    consumer.commit(QUEUE)
    assert broker.committed == {QUEUE: 2}
    consumer.commit(QUEUE, 1)
    assert broker.committed == {QUEUE: 1}
    with pytest.raises(InvalidValue, match="queue_offset"):
        consumer.commit(queue_offset=1)


def test_an_empty_expression_of_sql_is_refused(consumer: PullConsumer) -> None:
    """It would read every message; None reads every message."""
    assert bodies(consumer.pull("orders", 0, sql=None))
    for pull in (consumer.pull, consumer.pull_async):
        with pytest.raises(InvalidValue, match="sql"):
            pull("orders", 0, 0, sql="")


def test_seeking_moves_the_position(consumer: PullConsumer) -> None:
    """By offset, by time, to either end."""
    consumer.seek(QUEUE, 3)
    assert bodies(consumer.pull("orders", 0)) == "34"
    assert consumer.seek_to_begin(QUEUE) == 0
    assert bodies(consumer.pull("orders", 0, max_messages=1)) == "0"
    assert consumer.seek_to_end(QUEUE) == 5
    assert consumer.pull("orders", 0).status is PullStatus.NO_NEW_MESSAGE
    assert consumer.seek_to_time(QUEUE, STORED_MS + 2_500) == 2
    assert bodies(consumer.pull("orders", 0, max_messages=1)) == "2"


def test_a_position_outside_of_the_queue_moves_to_where_messages_are(
    consumer: PullConsumer,
) -> None:
    """Retention may have deleted what it pointed to; the next pull goes on."""
    consumer.seek(QUEUE, 99)
    moved = consumer.pull("orders", 0)
    assert (moved.status, moved.messages) == (PullStatus.OFFSET_MOVED, ())
    assert consumer.position(QUEUE) == moved.next_offset == 5


def test_a_queue_that_is_not_there_is_refused(consumer: PullConsumer) -> None:
    """With the queues that there are."""
    with pytest.raises(QueueUnknown, match="no queue 7"):
        consumer.pull("orders", 7)


def test_a_group_name_is_checked_before_anything_is_asked(broker: FakeBroker) -> None:
    """The first pull would be a late place to learn it."""
    with pytest.raises(InvalidName):
        PullConsumer(broker.endpoint, "no blanks allowed")


def test_the_wait_and_the_expression_reach_the_broker(
    broker: FakeBroker, consumer: PullConsumer
) -> None:
    """Both are the broker's to do."""
    consumer.pull("orders", 0, expression="T0", sql="n > 1", wait_ms=7, max_messages=9)
    request = PullRequest(
        "readers", "orders", 0, 0, "T0", 9, wait_ms=7, sql="n > 1", as_records=True
    )
    assert broker.asked["Pull"] == [request]


def test_tags_that_only_share_a_hash_are_left_out(consumer: PullConsumer) -> None:
    """The broker compares hashes; here it lets everything through."""
    assert bodies(consumer.pull("orders", 0, expression="T1 || T9")) == "13"
    consumer.seek_to_begin(QUEUE)
    nothing = consumer.pull("orders", 0, expression="T9")
    assert (nothing.status, nothing.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 5)


def test_a_tag_expression_reads_as_in_rocketmq(broker: FakeBroker) -> None:
    """Blanks round a tag do not count; "*" and nothing take everything."""
    message = broker.add(Message("t", b"x", tags="A"))
    untagged = replace(message, properties={})
    for everything in ("*", "", "  "):
        assert parse_tags(everything).takes(message)
        assert parse_tags(everything).takes(untagged)
    assert parse_tags("B||  A ").takes(message)
    assert not parse_tags("B || AA").takes(message)
    assert not parse_tags("A").takes(untagged)


def test_a_pull_need_not_hold_a_thread(consumer: PullConsumer) -> None:
    """Who reads many queues waits for all of them at once; the position is not touched."""
    assert bodies(consumer.pull_async("orders", 0, 3).result(10)) == "34"
    assert bodies(consumer.pull_async("orders", 0, 0, expression="T1").result(10)) == "13"
    assert consumer.position(QUEUE) == 0


@pytest.mark.parametrize("error", [SystemExit(), KeyboardInterrupt()])
def test_a_callback_of_a_pull_ends_no_thread(
    broker: FakeBroker, consumer: PullConsumer, error: BaseException
) -> None:
    """It runs on gRPC's thread, which has the answers of all calls of this consumer."""
    let_go, failed = threading.Event(), threading.Event()

    def answer(request: PullRequest) -> Any:
        assert let_go.wait(WAIT_S)
        return broker.plain("Pull", request)

    def fail(_: Future[PullResult]) -> None:
        failed.set()
        raise error

    broker.answers["Pull"] = answer
    pulls = [consumer.pull_async("orders", 0, offset) for offset in (3, 4)]
    pulls[0].add_done_callback(fail)
    let_go.set()
    assert [bodies(pull.result(WAIT_S)) for pull in pulls] == ["34", "4"]
    assert failed.wait(WAIT_S)
    assert bodies(consumer.pull_async("orders", 0, 2).result(WAIT_S)) == "234"


def test_a_pull_without_a_thread_fails_like_any_other(
    broker: FakeBroker, consumer: PullConsumer
) -> None:
    """The error is the broker's, not gRPC's."""

    def unknown(_: Any) -> Any:
        raise TopicUnknown("orders")

    broker.answers["Pull"] = unknown
    with pytest.raises(TopicUnknown):
        consumer.pull_async("orders", 0, 0).result(10)


def test_a_pull_that_cannot_begin_is_forgotten(consumer: PullConsumer) -> None:
    """Futures are remembered until they are settled, for a child that is forked meanwhile."""
    consumer.close()
    before = set(forks._open.futures)
    with pytest.raises(Refused):
        consumer.pull_async("orders", 0, 0)
    assert set(forks._open.futures) == before
