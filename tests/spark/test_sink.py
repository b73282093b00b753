"""The sink without Spark: batches of rows in, messages in a real store, refused rows out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import types

from rmqlite.features.bulk.requests import BulkMatch, BulkRequest
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import BrokerUnreachable, DelayUnknown, InvalidName, InvalidValue
from rmqlite.spark.sink import sink
from rmqlite.spark.sink.rows import SinkOptions, parts_of
from rmqlite.spark.sink.sink import BulkStreamWriter, BulkWriter, Sent, refused_folder, send
from tests.spark.sinks import SinkBroker

SCHEMA = types.StructType(
    [
        types.StructField("body", types.BinaryType()),
        types.StructField("topic", types.StringType()),
        types.StructField("message_key", types.StringType()),
        types.StructField("delay_level", types.IntegerType()),
    ]
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SinkBroker]:
    """A real broker on a real store, behind gRPC."""
    made = SinkBroker(tmp_path)
    yield made
    made.close()


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": pa.array([], pa.binary())} | columns)


def rows(ids: Sequence[str], *, topic: str | None = "orders", level: int = 2) -> pa.RecordBatch:
    """Messages as a job would give them, in the order of SCHEMA."""
    return batch(
        body=pa.array([each.encode() for each in ids], pa.binary()),
        topic=pa.array([topic] * len(ids), pa.string()),
        message_key=pa.array(ids, pa.string()),
        delay_level=pa.array([level] * len(ids), pa.int32()),
    )


def request_of(record_batch: pa.RecordBatch, **options: Any) -> BulkRequest:
    given = SinkOptions(**{"topic": "orders", **options})
    (part,) = parts_of(record_batch, given, job_id="j", id_prefix="j:0", first_row=0)
    return part.request


def sent(broker: SinkBroker, *batches: pa.RecordBatch, job_id: str = "j", **options: Any) -> Sent:
    given = broker.options(**options)
    return send(iter(batches), given, job_id=job_id, id_prefix=f"{job_id}:0")


def refused_rows(path: str, job_id: str) -> list[dict[str, Any]]:
    """In the order of their ids."""
    files = [*Path(refused_folder(path, job_id)).iterdir()]
    found = [row for file in files for row in parquet.read_table(file).to_pylist()]
    return sorted(found, key=lambda row: str(row["message_key"]))


# ---- rows become requests


def test_columns_arrive_as_they_are() -> None:
    """Texts, tokens, pairs and numbers; null is none."""
    request = request_of(
        batch(
            body=["text", "é", ""],
            topic=["a", "b", "c"],
            tags=["red", None, ""],
            keys=pa.array([["k", "l"], [], None]),
            properties=pa.array(
                [[("p", "q"), ("r", "s")], None, []], pa.map_(pa.string(), pa.string())
            ),
            delay_level=pa.array([1, None, 3], pa.int64()),
            message_key=pa.array([7, 8, 9], pa.int64()),
        ),
        topic="",
    )
    assert request.bodies == (b"text", "é".encode(), b"")
    assert request.topics == ("a", "b", "c")
    assert request.tags == ("red", "", "")
    assert request.keys == ("k l", "", "")
    assert request.properties == ("p\x01q\x02r\x01s", "", "")
    assert request.delay_levels == (1, 0, 3)
    assert request.message_ids == ("7", "8", "9")
    assert (request.delays, request.deliver_at_ms, request.job_id) == ((), (), "j")


def test_an_instant_is_never_before_what_was_asked() -> None:
    """Spark counts microseconds, the broker milliseconds."""
    microseconds = [1_700_000_000_000_000, 1_700_000_000_000_001, None, 0, -5]
    column = pa.array(microseconds, pa.timestamp("us", tz="UTC"))
    request = request_of(batch(body=[b"x"] * 5, deliver_at=column), match=BulkMatch.LONGER)
    assert request.deliver_at_ms == (1_700_000_000_000, 1_700_000_000_001, 0, 1, 1)
    request = request_of(batch(body=[b"x"], deliver_at=pa.array([1_700_000_000_000])))
    assert request.deliver_at_ms == (1_700_000_000_000,)


def test_options_stand_for_all_rows() -> None:
    """And travel once."""
    request = request_of(batch(body=[b"x"] * 3, topic=["a", "b", "c"]), delay="10m")
    assert (request.topics, request.delays, len(request.bodies)) == (("orders",), ("10m",), 3)


def test_ids_without_a_column_are_places() -> None:
    """The same when the task runs again, whatever its batches are."""
    options = SinkOptions(topic="t", batch_size=2)
    parts = list(
        parts_of(batch(body=[b"x"] * 5), options, job_id="job", id_prefix="job:3", first_row=10)
    )
    ids = [each for part in parts for each in part.request.message_ids]
    assert ids == [f"job:3:{n}" for n in range(10, 15)]
    assert [list(part.rows) for part in parts] == [[0, 1], [2, 3], [4]]


def test_a_named_column_has_the_ids() -> None:
    """Else it is message_key, if there is one."""
    columns = {"body": [b"x"], "order": ["o-1"], "message_key": ["k-1"]}
    assert request_of(batch(**columns), dedup_column="order").message_ids == ("o-1",)
    assert request_of(batch(**columns)).message_ids == ("k-1",)


def test_a_call_has_a_few_megabytes() -> None:
    """However many rows a batch of Spark has."""
    options = SinkOptions(topic="t")
    record_batch = batch(body=[bytes(1 << 20)] * 20)
    parts = list(parts_of(record_batch, options, job_id="j", id_prefix="j", first_row=0))
    assert sum(len(part.rows) for part in parts) == 20
    assert max(len(part.rows) for part in parts) <= 8


def test_what_cannot_be_sent_is_refused_row_by_row() -> None:
    """Null bodies, topics and ids, text that is none, numbers too large, bad properties."""
    no_text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers())
    pairs = pa.map_(pa.string(), pa.string())
    cases: list[tuple[str, dict[str, Any]]] = [
        ("body", {"body": pa.array([b"x", None, b"x"])}),
        ("topic", {"topic": pa.array(["t", None, "t"])}),
        ("message_key", {"message_key": pa.array(["a", None, "c"])}),
        ("tags", {"tags": pa.concat_arrays([pa.array(["a"]), no_text, pa.array(["c"])])}),
        ("delay_level", {"delay_level": pa.array([1, 2**40, 1])}),
        ("properties", {"properties": pa.array([None, [("DELAY", "3")], None], pairs)}),
        ("properties", {"properties": pa.array([None, [("a", None)], None], pairs)}),
    ]
    for field, columns in cases:
        given = {"body": [b"x"] * 3, "topic": ["t"] * 3} | columns
        (part,) = parts_of(batch(**given), SinkOptions(), job_id="j", id_prefix="j:0", first_row=0)
        assert list(part.rows) == [0, 2]
        assert len(part.request.bodies) == len(part.request.message_ids) == 2
        ((row, refusal),) = part.refused.items()
        assert (row, refusal.field) == (1, field)
        assert part.request.already_refused == (refusal,)


# ---- sending


def test_every_row_is_scheduled_once(broker: SinkBroker) -> None:
    """Also when the task runs again, from its first row or with other batches."""
    ids = [f"id-{n}" for n in range(50)]
    assert sent(broker, rows(ids[:30]), rows(ids[30:]), batch_size=7) == Sent(50, 50)
    assert sent(broker, rows(ids), batch_size=20) == Sent(50, 0)
    assert broker.stored() == 50
    job = broker.job("j")
    assert (job.accepted, job.duplicates, job.refused) == (50, 50, 0)


def test_a_task_without_rows_sends_nothing(broker: SinkBroker) -> None:
    """Spark runs it all the same."""
    assert sent(broker) == Sent(0, 0)
    assert sent(broker, rows([])) == Sent(0, 0)
    assert broker.calls == []


def test_the_first_refused_row_fails_the_task(broker: SinkBroker) -> None:
    """Named by its id, with the broker's rule, as our error."""
    with pytest.raises(InvalidName) as raised:
        sent(broker, rows(["good"]), rows(["bad-1", "bad-2"], topic="a b"), rows(["later"]))
    assert "the row with message id 'bad-1' was refused" in str(raised.value)
    assert raised.value.field == "topic"
    with pytest.raises(InvalidValue, match=r"'x' was refused: topic must be a value, not 'null'"):
        sent(broker, rows(["x"], topic=None))
    with pytest.raises(DelayUnknown):
        sent(broker, rows(["y"]).select(["body", "topic"]), delay="11m")


def test_refused_rows_are_collected_with_their_reason(broker: SinkBroker, tmp_path: Path) -> None:
    """All their columns, in a file of each task: the driver's memory would have an end."""
    path = str(tmp_path / "refused")
    given = {"is_collecting": True, "refused_path": path, "in_flight": 1}
    options = broker.options(job_id="night/1", **given)
    writer = BulkWriter(options, SCHEMA, overwrite=False)
    batches = [rows(["a", "b"]), rows(["c"], topic="a b"), rows(["d"], topic=None)]
    messages = [writer.write(iter(batches)), writer.write(iter([rows(["e"], level=99)])), None]
    writer.commit(messages)
    found = refused_rows(path, "night/1")
    assert [row["message_key"] for row in found] == ["c", "d", "e"]
    assert [row["code"] for row in found] == ["invalid-name", "invalid-value", "invalid-value"]
    assert "1 to 18" in found[2]["reason"]
    assert (found[2]["body"], found[2]["delay_level"]) == (b"e", 99)
    job = broker.job("night/1")
    assert (job.accepted, job.refused) == (2, 3)
    assert [each.message_id for each in job.samples] == ["c", "d", "e"]


def test_a_row_with_an_empty_body_is_refused_and_no_other(
    broker: SinkBroker, tmp_path: Path
) -> None:
    """RocketMQ's Java consumer fails at an empty body; the reason stands beside the row."""
    path = str(tmp_path / "refused")
    options = broker.options(job_id="j", is_collecting=True, refused_path=path)
    writer = BulkWriter(options, SCHEMA, overwrite=False)
    given = rows(["a", "b", "c"]).set_column(0, "body", pa.array([b"a", b"", b"c"]))
    writer.commit([writer.write(iter([given]))])
    (found,) = refused_rows(path, "j")
    assert (found["body"], found["code"]) == (b"", "invalid-value")
    assert "at least 1 byte" in found["reason"]
    assert (broker.job("j").accepted, broker.job("j").refused) == (2, 1)


def test_only_files_of_the_tasks_that_counted_stay(
    broker: SinkBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that went well replaces what the run before it, or a task that failed, has left."""
    monkeypatch.setattr(sink, "HELD_BYTES_MAX", 1)
    path = str(tmp_path / "refused")
    options = broker.options(job_id="j", is_collecting=True, refused_path=path, batch_size=1)
    bad = rows(["a", "b"], topic="a b")
    for given, count in ((bad, 2), (rows(["a"]), 0)):
        writer = BulkWriter(options, SCHEMA, overwrite=False)
        writer.write(iter([bad]))
        writer.commit([writer.write(iter([given]))])
        assert len(refused_rows(path, "j")) == count


def test_each_batch_of_a_stream_has_its_refused_rows(broker: SinkBroker, tmp_path: Path) -> None:
    """A later batch must not delete those of the one before."""
    path = str(tmp_path / "refused")
    options = broker.options(job_id="s", is_collecting=True, refused_path=path)
    writer = BulkStreamWriter(options, SCHEMA, overwrite=False)
    writer.commit([writer.write(iter([rows(["a"], topic="a b")]))], 0)
    writer.commit([None], 1)
    assert [row["message_key"] for row in refused_rows(path, "s-0")] == ["a"]
    assert refused_rows(path, "s-1") == []


def test_a_broker_that_is_away_fails_the_task(broker: SinkBroker) -> None:
    """After a bounded time, with our error."""
    options = broker.options()
    broker.service.stop()
    with pytest.raises(BrokerUnreachable):
        send(iter([rows(["a"])]), options, job_id="j", id_prefix="j:0")
    broker.service.start()


def test_a_rate_is_kept(broker: SinkBroker) -> None:
    """Evenly, in small calls."""
    began_s = elapsed_s()
    assert sent(broker, rows([f"id-{n}" for n in range(60)]), max_per_second=200).accepted == 60
    assert elapsed_s() - began_s >= 40 / 200
    assert {len(call.bodies) for call in broker.calls} == {20}


# ---- plans


def test_a_plan_asks_the_broker_once(broker: SinkBroker) -> None:
    """A level that it does not have fails before any task."""
    with pytest.raises(InvalidValue, match="delayLevel"):
        BulkWriter(
            broker.options(delay_level=19), SCHEMA.__class__(SCHEMA.fields[:3]), overwrite=False
        )
    with pytest.raises(InvalidValue, match="append"):
        BulkWriter(broker.options(), SCHEMA, overwrite=True)
    assert broker.calls == []


def test_a_job_without_a_name_gets_one_for_all_tasks(broker: SinkBroker) -> None:
    """A repetition of a task must have the ids of the first try."""
    first, second = (BulkWriter(broker.options(), SCHEMA, overwrite=False) for _ in range(2))
    assert first.options.job_id
    assert first.options.job_id != second.options.job_id


def test_a_stream_without_a_name_is_its_query(broker: SinkBroker) -> None:
    """Outside of Spark there is no query; inside its id is in the context of the task."""
    writer = BulkStreamWriter(broker.options(), SCHEMA, overwrite=False)
    done = writer.write(iter([rows(["a"]).select(["body", "topic"])]))
    assert isinstance(done, Sent)
    assert broker.calls[0].message_ids == ("stream:0:0:0",)
    assert broker.job("stream").accepted == 1
    writer.commit([done], 0)
    writer.abort([None], 0)
