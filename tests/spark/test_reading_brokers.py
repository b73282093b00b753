"""What a broker of ours wrote, decoded from its files and over the wire."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from rmqlite.client import Message, Producer
from rmqlite.features.operating.deleting import Deleting
from rmqlite.kernel.words.errors import Unavailable
from rmqlite.kernel.words.names import dlq_topic, retry_topic
from rmqlite.spark.arrow import records
from rmqlite.spark.arrow.partitions import LogSlice, QueueSlices
from rmqlite.spark.arrow.planning import look_at_store
from rmqlite.spark.options import parse_options
from rmqlite.spark.partitions import look, plan, read_partition
from rmqlite.spark.reading import snapshot
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import OF_ANY_DISK
from tests.support.brokers import LONG_BODIES, BrokerUnderTest
from tests.support.messages import GROUP, send_back
from tests.support.pending import CANCEL, FIRE, RESCHEDULE, by_ids, deliver_all, named
from tests.support.plain_decoder import ALL, Row, decoded_rows, every, read


def test_all_that_a_broker_does_to_messages_is_decoded(tmp_path: Path) -> None:
    """Retries, dead letters, deliveries, and the four other ends of a wait."""
    broker = BrokerUnderTest(tmp_path / "store")
    broker.send(*[named(each, 1) for each in ("due", "fire", "cancel", "move")])
    by_ids(broker, FIRE, "fire")
    by_ids(broker, CANCEL, "cancel")
    by_ids(broker, RESCHEDULE, "move", delay_level=2)
    deliver_all(broker)
    broker.send(Message("orders", b"bad", keys="k1"))
    failed = broker.messages("orders")[-1]
    send_back(broker, failed, reason="no ärticle")
    deliver_all(broker)
    retried = broker.messages(retry_topic(GROUP))[-1]
    send_back(broker, retried, delay_level=-1, reason="never")
    broker.close()
    found = read(broker.config.store_path)
    assert found == every(broker.config.store_path)
    assert {row["completion"] for row in found} == {
        *(None, "delivered", "fired", "rescheduled", "cancelled"),
    }
    (letter,) = [row for row in found if row["topic"] == dlq_topic(GROUP)]
    assert letter["origin_topic"] == "orders"
    assert letter["origin_queue_offset"] == failed.queue_offset
    assert letter["origin_message_id"] == failed.offset_message_id
    assert (letter["delivery_attempts"], letter["failure_reason"]) == (2, "never")
    assert letter["first_failure_timestamp"] < letter["last_failure_timestamp"]
    ends = {row["end_offset"] for row in found if row["deliver_timestamp"] is not None}
    assert {row["completes"] for row in found} <= {None, *ends}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A real broker with several log files, two topics, and messages that wait."""
    keys = OF_ANY_DISK | {"mappedFileSizeCommitLog": "131072", "maxMessageSize": "37500"}
    with BrokerProcess(tmp_path_factory.mktemp("running"), keys) as broker:
        with Producer(broker.endpoint, "shop") as producer:
            for number in range(30):
                body = bytes([number]) * 11_250
                producer.send(Message("orders", body, keys=f"k{number}", tags="t"))
            messages = [Message("bills", b"%d" % n, delay_level=n % 3 * 9) for n in range(300)]
            producer.send_batch(messages)
        yield broker


def over_the_wire(broker: BrokerProcess, **options: str) -> list[Row]:
    wanted = parse_options({"endpoint": broker.endpoint, **options})
    found: list[Row] = []
    for partition in plan(wanted):
        found += decoded_rows(read_partition(partition, wanted, ALL))
    return sorted(found, key=lambda row: row["physical_offset"])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sliceBytes": "40k"},
        {"topic": "bills"},
        {"topicPattern": "SCHEDULE*"},
        {"topics": "orders,bills", "queueIds": "0,2"},
        {"startingOffsets": '{"bills": {"0": 3}}', "topic": "bills"},
        {"verifyCrc": "true", "batchRows": "7"},
    ],
)
def test_a_broker_gives_what_its_files_hold(
    running: BrokerProcess, options: dict[str, str]
) -> None:
    """The same decoder, the same options; the bytes come over gRPC."""
    found = over_the_wire(running, **options)
    assert found
    assert found == read(running.store, **options)


def test_queues_of_a_broker_are_read_by_their_offsets(running: BrokerProcess) -> None:
    """As a stream reads them."""
    options = parse_options({"endpoint": running.endpoint})
    queues = look(options).queues
    found = decoded_rows(read_partition(QueueSlices(queues), options, ALL))
    assert sorted(found, key=lambda row: row["physical_offset"]) == every(running.store)


def test_a_slice_over_the_wire_may_begin_in_a_body(
    running: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking back for a record is another read of the broker."""
    monkeypatch.setattr(records, "WINDOW_BYTES", 6_250)
    monkeypatch.setattr("rmqlite.spark.arrow.records.LOOK_BACK_BYTES", 12_500)
    assert over_the_wire(running, sliceBytes="25k") == every(running.store)


def test_a_snapshot_of_a_broker_is_that_of_its_files(running: BrokerProcess) -> None:
    """Nothing is being sent."""
    over, files = snapshot(endpoint=running.endpoint), snapshot(path=str(running.store))
    assert (over.begin_offset, over.end_offset) == (files.begin_offset, files.end_offset)
    assert over.newest_timestamp_ms == files.newest_timestamp_ms
    assert look_at_store(str(running.store)).queues == tuple(
        each
        for each in look(parse_options({"endpoint": running.endpoint})).queues
        if each[2] < each[3]
    )


def test_a_broker_that_stays_away_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a slice: no partial result looks like a whole one."""
    from rmqlite.client import raw

    monkeypatch.setattr(records, "WINDOW_BYTES", 200_000)
    with BrokerProcess(tmp_path, OF_ANY_DISK | {"maxMessageSize": "400000"}) as broker:
        with Producer(broker.endpoint, "shop") as producer:
            for number in range(40):
                producer.send(Message("orders", bytes([number]) * 190_000))
        options = parse_options({"endpoint": broker.endpoint})
        (partition,) = plan(options)
        assert isinstance(partition, LogSlice)
        monkeypatch.setattr(raw, "RawReader", partial(raw.RawReader, patience_ms=5_000))
        batches = read_partition(partition, options, ("topic",))
        next(batches)
        broker.kill()
        with pytest.raises(Unavailable):
            list(batches)
    with pytest.raises(Unavailable):
        plan(options)


@pytest.mark.parametrize("options", [{}, {"queueIds": "0,1"}, {"startingOffsets": "earliest"}])
def test_a_deleted_topic_has_the_same_rows_however_they_are_asked_for(
    deleted: BrokerProcess, options: dict[str, str]
) -> None:
    """Its queues are empty, but the log still has its records, as a where() over all rows shows."""
    queue_ids = [int(each) for each in options.get("queueIds", "0,1,2,3").split(",")]
    for topic, count in (("gone", 6), ("again", 7)):
        rows = [row for row in every(deleted.store) if row["topic"] == topic]
        assert len(rows) == count
        wanted = [row for row in rows if row["queue_id"] in queue_ids]
        for pattern in ({"topic": topic}, {"topicPattern": f"{topic[:-1]}*"}):
            assert over_the_wire(deleted, **pattern, **options) == wanted
            assert read(deleted.store, **pattern, **options) == wanted
    # Only the log is read for these; few messages of others are found through their queues.
    few = parse_options({"endpoint": deleted.endpoint, "topic": "few"})
    assert [type(each) for each in plan(few)] == [QueueSlices]


@pytest.fixture(scope="module")
def deleted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with a topic that was deleted, one that was also made again, and two others."""
    keys = {"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "4000"}
    process = BrokerProcess(tmp_path_factory.mktemp("deleted"), OF_ANY_DISK | keys)
    broker = BrokerUnderTest(process.store, **LONG_BODIES)
    for topic, count in (("gone", 6), ("again", 5), ("many", 50), ("few", 2)):
        for n in range(count):
            broker.send(Message(topic, b"%d" % n), queue_id=n % 4)
    for topic in ("gone", "again"):
        broker.broker[Deleting].delete_topic(topic)
    broker.send(Message("again", b"new"), Message("again", b"newer"))
    broker.close()
    with process:
        yield process
