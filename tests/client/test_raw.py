"""The raw reader: chunk after chunk, one ahead, and what it does when the broker goes away."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from rmqlite.client.raw import RawReader
from rmqlite.features.raw_log.requests import (
    LogRead,
    LogReadRequest,
    LogSnapshot,
    LogSnapshotRequest,
    QueueRead,
    QueueReadRequest,
)
from rmqlite.kernel.requests.broker import DatedTable
from rmqlite.kernel.requests.topics import Queue, QueueRange, TimeQuery
from rmqlite.kernel.words.errors import BrokerClosing, BrokerUnreachable, OffsetGone, TopicUnknown
from tests.support.eventually import eventually
from tests.support.fake_broker import FakeBroker, failing_at

LOG = bytes(range(256)) * 40


def log_of(data: bytes, step: int) -> Callable[[LogReadRequest], LogRead]:
    """A log with these bytes, at most step of them a call."""

    def answer(request: LogReadRequest) -> LogRead:
        upto = min(len(data), request.begin_offset + step)
        if request.end_offset is not None:
            upto = min(upto, request.end_offset)
        return LogRead(data[request.begin_offset : upto], upto)

    return answer


@pytest.fixture
def reader(broker: FakeBroker) -> Iterator[RawReader]:
    with RawReader(broker.endpoint, patience_ms=20_000, chunk_bytes=1_000) as reader:
        yield reader


def test_a_snapshot_arrives_whole(broker: FakeBroker, reader: RawReader) -> None:
    """Every field; and the topics that it is about are named."""
    found = LogSnapshot(
        *(1 << 40, 1 << 41, 1 << 30, 5, 4, "b"),
        (DatedTable(0, "1s"), DatedTable(7, "2s")),
        (QueueRange(Queue("orders", 0), 3, 1 << 40, 4),),
    )
    broker.answers["GetLogSnapshot"] = lambda _: found
    assert reader.snapshot(["orders"]) == found
    assert broker.asked["GetLogSnapshot"] == [LogSnapshotRequest(("orders",))]


def test_the_log_comes_in_chunks_with_their_offsets(broker: FakeBroker, reader: RawReader) -> None:
    """However the broker cuts them; nothing behind the end is asked for."""
    broker.answers["ReadLog"] = log_of(LOG, 700)
    chunks = list(reader.log(5, 5_000))
    assert b"".join([data for _, data in chunks]) == LOG[5:5_000]
    assert [at for at, _ in chunks] == list(range(5, 5_000, 700))
    assert {(each.end_offset, each.max_bytes) for each in broker.asked["ReadLog"]} == {
        (5_000, 1_000)
    }
    assert list(reader.log(9, 9)) == []


def test_the_next_chunk_is_asked_for_while_one_is_used(
    broker: FakeBroker, reader: RawReader
) -> None:
    """So decoding and reading go on together; but only one is asked for ahead."""
    broker.answers["ReadLog"] = log_of(LOG, 1_000)
    asked = broker.asked["ReadLog"]
    chunks = reader.log(0, len(LOG))
    next(chunks)
    eventually(lambda: len(asked) == 2, "one is asked for ahead")
    next(chunks)
    eventually(lambda: len(asked) == 3, "one is asked for ahead")


def test_a_reader_that_is_left_gives_up_what_is_under_way(
    broker: FakeBroker, reader: RawReader
) -> None:
    """Who looks at a first chunk only is not kept by the second; and may read on later."""
    broker.answers["ReadLog"] = log_of(LOG, 1_000)
    chunks = reader.log(0, len(LOG))
    next(chunks)
    chunks.close()  # type: ignore[attr-defined]
    assert b"".join([data for _, data in reader.log(0, len(LOG))]) == LOG


def test_reading_ends_where_there_is_nothing_more(broker: FakeBroker, reader: RawReader) -> None:
    """An answer that does not move is no reason to ask for ever."""
    broker.answers["ReadLog"] = log_of(LOG[:100], 1_000)
    assert list(reader.log(0, 10_000)) == [(0, LOG[:100])]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_broker_that_goes_away_for_a_moment_is_waited_for(
    broker: FakeBroker, reader: RawReader, at: int
) -> None:
    """Reading may be repeated, a call that was made ahead, too."""
    broker.answers["ReadLog"] = failing_at(at, log_of(LOG, 1_000), BrokerClosing())
    assert b"".join([data for _, data in reader.log(0, 3_000)]) == LOG[:3_000]


def test_a_broker_that_comes_back_is_found_again(broker: FakeBroker, reader: RawReader) -> None:
    """Also when its port was closed in between."""
    broker.answers["ReadLog"] = log_of(LOG, 1_000)
    chunks = reader.log(0, len(LOG))
    parts = [next(chunks)[1]]
    broker.stop()
    broker.start()
    parts += [data for _, data in chunks]
    assert b"".join(parts) == LOG


def test_a_broker_that_stays_away_is_told(broker: FakeBroker) -> None:
    """After the patience that was asked for."""
    broker.answers["ReadLog"] = log_of(LOG, 1_000)
    with RawReader(broker.endpoint, patience_ms=300, chunk_bytes=1_000) as reader:
        chunks = reader.log(0, len(LOG))
        next(chunks)
        broker.stop()
        with pytest.raises(BrokerUnreachable):
            list(chunks)
    broker.start()


def test_a_wrong_endpoint_is_told_at_once(broker: FakeBroker) -> None:
    """The first question is not repeated; a typing error should not look like a slow broker."""
    broker.stop()
    with (
        RawReader(broker.endpoint, patience_ms=600_000) as reader,
        pytest.raises(BrokerUnreachable),
    ):
        reader.snapshot()
    broker.start()


@pytest.mark.parametrize("at", [0, 1])
def test_what_is_gone_is_not_asked_for_again(
    broker: FakeBroker, reader: RawReader, at: int
) -> None:
    """A refusal comes through at once, also of a call made ahead."""
    gone = OffsetGone("the commit log", 5, 100)
    broker.answers["ReadLog"] = failing_at(at, log_of(LOG, 1_000), gone)
    with pytest.raises(OffsetGone, match="first one kept is 100"):
        list(reader.log(0, len(LOG)))
    assert len(broker.asked["ReadLog"]) == at + 1


def test_a_queue_comes_in_chunks_of_whole_records(broker: FakeBroker, reader: RawReader) -> None:
    """What the broker skipped is no end, and an empty chunk is not given."""
    answers = {
        3: QueueRead(b"three four", 5),
        5: QueueRead(b"", 8),
        8: QueueRead(b"eight", 9),
    }
    broker.answers["ReadQueue"] = lambda request: answers[request.begin_queue_offset]
    assert list(reader.queue("orders", 2, 3, 9)) == [b"three four", b"eight"]
    assert broker.asked["ReadQueue"] == [
        QueueReadRequest("orders", 2, begin, 9, 1_000) for begin in (3, 5, 8)
    ]


def test_an_offset_is_looked_up_by_time(broker: FakeBroker, reader: RawReader) -> None:
    """The broker's own look-up, as consumers use it."""
    broker.answers["SearchOffset"] = lambda _: 17
    assert reader.offset_at("orders", 1, 1_000) == 17
    assert broker.asked["SearchOffset"] == [TimeQuery(Queue("orders", 1), 1_000)]


def test_progress_is_told_for_a_group(broker: FakeBroker, reader: RawReader) -> None:
    """So that what reads in bulk has a lag like any other consumer."""
    (queue,) = broker.add_queues("orders")
    reader.commit("shop", {queue: 17})
    assert broker.committed[queue] == 17


def test_a_topic_that_is_not_there_is_told(broker: FakeBroker, reader: RawReader) -> None:
    """As the broker says it."""
    broker.answers["GetLogSnapshot"] = failing_at(0, lambda _: None, TopicUnknown("nothing"))
    with pytest.raises(TopicUnknown, match="nothing"):
        reader.snapshot(["nothing"])
