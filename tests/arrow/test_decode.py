"""The decoder gives, value for value, what reading record by record gives."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqlite.kernel.records import record
from rmqlite.kernel.records.completion import UNDELIVERABLE_TOPIC
from rmqlite.kernel.records.encoding import encode
from rmqlite.kernel.records.record import NewRecord
from rmqlite.kernel.records.wait_queues import WAIT_TOPICS, when_due_ms
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.names import CANCELLED_TOPIC, HALF_TOPIC
from rmqlite.spark.arrow import records, rows
from rmqlite.spark.arrow.columns import COLUMNS
from rmqlite.spark.arrow.partitions import QueueSlices
from rmqlite.spark.arrow.planning import look_at_store, plan
from rmqlite.spark.arrow.rows import store_rows
from rmqlite.spark.options import parse_options
from tests.support.brokers import small_config
from tests.support.clock import FakeClock
from tests.support.drawn_records import encoded, new_records
from tests.support.files import QuickFiles
from tests.support.golden import rows as entries_of
from tests.support.golden import unpack_golden
from tests.support.plain_decoder import Row, decoded_rows, plain_rows, read
from tests.support.stores import StoreUnderTest, new_record
from tests.support.thinned import part_of

ALL = tuple(column.name for column in COLUMNS)

TIMER_PAIRS = {
    "TIMER_OUT_MS": ["1763700000000", "0", "999999999999999999", "soon"],
    "TIMER_DELIVER_MS": ["1763700000400", "1763700001000", "1763700001001"],
    "TIMER_DELAY_MS": ["400"],
    "TIMER_EXACT": ["1"],
    "RESCHEDULED_FROM": ["-1", "3", "0", "-12", ""],
    "RETRY_TOPIC": ["orders"],
    "DELAY": ["3", "0"],
    "FIRED": ["1"],
    "REAL_TOPIC": ["orders", HALF_TOPIC, "rmq_sys_REVIVE_LOG_c"],
    "REAL_QID": ["0", "x"],
    "UNIQ_KEY": ["A1"],
    "TIMER_DEL_UNIQKEY": ["A1", "orders+A1"],
    "TIMER_ROLL_TIMES": ["2"],
}
timer_strings = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(values) for name, values in TIMER_PAIRS.items()}
).map(lambda found: b"\x02".join(f"{name}\x01{value}".encode() for name, value in found.items()))
timer_records = st.builds(
    lambda topic, queue_id, properties, sys_flag, completes: new_record(
        "x", topic, queue_id, sys_flag=sys_flag, properties=properties, completes=completes
    ),
    st.sampled_from(
        [*WAIT_TOPICS, *WAIT_TOPICS, CANCELLED_TOPIC, UNDELIVERABLE_TOPIC, HALF_TOPIC, "orders"]
    ),
    st.sampled_from([0, 0, 0, 1]),
    timer_strings,
    st.sampled_from([0, 0, 8]),
    st.sampled_from([0, 77]),
)


def write_store(root: Path, log: bytes) -> None:
    """A store that has only this log, in one file."""
    (root / "commitlog").mkdir(parents=True)
    path = root / "commitlog" / f"{0:020d}"
    path.write_bytes(log + bytes(max(64, 1 << 14) - len(log) % (1 << 14)))


def fast_rows(root: Path, **options: str) -> list[Row]:
    wanted = parse_options({"path": str(root), **options})
    found: list[Row] = []
    for partition in plan(wanted, look_at_store(wanted.path)):
        found += decoded_rows(store_rows(partition, wanted, ALL))
    return found


def slow_rows(root: Path) -> list[Row]:
    place = look_at_store(str(root)).place
    return list(plain_rows(root, place.levels, place.queue_file_bytes))


def comparable(row: Row) -> Row:
    """A clock that was wrong by ages is null in Arrow."""
    is_sane = abs(row["born_timestamp"]) < 1 << 53
    return row | {"born_timestamp": row["born_timestamp"] if is_sane else None}


@settings(max_examples=part_of(150))
@given(news=st.lists(st.one_of(new_records, timer_records), min_size=1, max_size=12))
def test_random_records_decode_as_one_by_one(news: list[NewRecord]) -> None:
    """Whatever a body or a property string holds; half of them are not even properties."""
    import numpy as np

    log = encoded(news)
    data = np.frombuffer(log + bytes(100), np.uint8)
    starts = records.candidates(data, 0, 0, len(log))
    sizes = records.gathered(data, starts, ">i4").astype(np.int64)
    kept, end = records.chained(starts, sizes, 0)
    assert end == len(log)
    found = records.RecordArray(data, 0, starts[kept])
    keep = found.head["sys_flag"] & record.NO_ENTRY == 0
    found = found.only(keep)
    from rmqlite.kernel.words.levels import DEFAULT_LEVELS, LevelHistory, parse_levels
    from rmqlite.spark.arrow.decode import Decoder
    from rmqlite.spark.arrow.waits import Dues
    from tests.support.plain_decoder import plain_row

    levels = LevelHistory.starting_with(parse_levels(DEFAULT_LEVELS))
    fast = decoded_rows([Decoder(COLUMNS, Dues(levels)).batch(found)])
    slow, position = [], 0
    while position < len(log):
        head = record.read_head(log, position)
        assert head is not None
        position += head.size
        if not head.sys_flag & 4:
            due_ms = when_due_ms(
                levels, head.topic, head.queue_id, head.store_timestamp_ms, head.properties
            )
            slow.append(comparable(plain_row(head, log, due_ms)))
    assert fast == slow


@pytest.mark.parametrize("which", ["clean", "killed"])
def test_a_store_of_rocketmqs_decodes_as_one_by_one(tmp_path: Path, which: str) -> None:
    """Its retries, dead letters and transactions are not ours in every detail."""
    root = unpack_golden(tmp_path) / which
    fast, slow = fast_rows(root), slow_rows(root)
    assert len(slow) > 50
    assert fast == slow


@pytest.fixture
def filled(tmp_path: Path) -> StoreUnderTest:
    """Several log files, scheduled records and deliveries, a table of levels that changed."""
    store = StoreUnderTest(tmp_path / "store")
    store.fill()
    store.restart("2s 7s 20s")
    store.fill()
    store.close()
    return store


def test_a_store_of_several_files_decodes_as_one_by_one(filled: StoreUnderTest) -> None:
    """Blanks between files, deliveries, promises of two tables of levels."""
    assert fast_rows(filled.root) == slow_rows(filled.root)
    assert {row["completion"] for row in slow_rows(filled.root)} == {None, "delivered"}


def test_slices_may_begin_anywhere(filled: StoreUnderTest) -> None:
    """A record belongs to the slice in which it begins: none is lost, none given twice."""
    slow = slow_rows(filled.root)
    for slice_bytes in (97, 400, 1500, 4096):
        assert fast_rows(filled.root, sliceBytes=str(slice_bytes)) == slow, slice_bytes


def test_windows_and_searches_may_end_anywhere(
    filled: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record across a window's end, a magic number across a chunk's."""
    slow = slow_rows(filled.root)
    for bytes_at_once, slice_bytes in ((200, 300), (200, 4096), (1000, 300), (1000, 4096)):
        monkeypatch.setattr(records, "WINDOW_BYTES", bytes_at_once)
        monkeypatch.setattr(rows, "WINDOW_BYTES", bytes_at_once)
        monkeypatch.setattr(records, "CHUNK_BYTES", bytes_at_once // 3)
        monkeypatch.setattr(records, "LOOK_BACK_BYTES", bytes_at_once)
        fast = fast_rows(filled.root, sliceBytes=str(slice_bytes))
        assert fast == slow, (bytes_at_once, slice_bytes)


def test_the_queues_lead_to_the_same_records(filled: StoreUnderTest) -> None:
    """By their queue offsets, however many at once."""
    slow, found = slow_rows(filled.root), look_at_store(str(filled.root))
    for batch_rows in (1, 5, 1000):
        options = parse_options({"path": str(filled.root), "batchRows": str(batch_rows)})
        every = decoded_rows(store_rows(QueueSlices(found.queues, found.place), options, ALL))
        assert sorted(every, key=lambda row: row["physical_offset"]) == slow, batch_rows


def test_records_that_are_in_no_queue_file_are_found_in_the_log(filled: StoreUnderTest) -> None:
    """A power cut takes the entries first; the log has what was promised."""
    for path in (filled.root / "consumequeue").rglob("0000*"):
        path.unlink()
    (filled.root / "config" / "storeProgress.json").unlink()
    found = look_at_store(str(filled.root))
    options = parse_options({"path": str(filled.root)})
    every = decoded_rows(store_rows(QueueSlices(found.queues, found.place), options, ALL))
    assert sorted(every, key=lambda row: row["physical_offset"]) == slow_rows(filled.root)


def hostile_body(place: int, count: int) -> bytes:
    """A body that holds whole records which say that they lie where they do."""
    body = b""
    while len(body) < count:
        fake = new_record(b"fake", "stolen")
        at = {"queue_offset": 0, "physical_offset": place + len(body), "store_timestamp_ms": 1}
        body += encode(fake, **at)
    return body


@pytest.mark.parametrize("slice_bytes", [150, 900, 1 << 20])
def test_a_body_that_looks_like_records_is_a_body(tmp_path: Path, slice_bytes: int) -> None:
    """Also where a slice begins in the middle of it; a sender may know where the log ends."""
    config = small_config(tmp_path / "store")
    store = MessageStore(config, QuickFiles(), FakeClock())
    for number in range(5):
        store.append([new_record(f"before {number}")])
        store.append([new_record(hostile_body(store.end + record.HEAD.size, 2000))])
    store.append([new_record(b"after")])
    store.close({})
    found = fast_rows(tmp_path / "store", sliceBytes=str(slice_bytes))
    assert found == slow_rows(tmp_path / "store")
    assert {row["topic"] for row in found} == {"orders"}


def test_records_of_several_queues_are_put_in_the_order_of_the_log() -> None:
    """Columns are copied by ascending positions."""
    import numpy as np

    log = encoded([new_record(f"{n}", "orders", n % 2) for n in range(8)])
    data = np.frombuffer(log, np.uint8)
    starts = records.candidates(data, 0, 0, len(log))
    parts = [records.RecordArray(data, 0, starts[1::2]), records.RecordArray(data, 0, starts[0::2])]
    assert records.joined(parts).starts.tolist() == starts.tolist()


def test_arrow_and_spark_agree_on_every_column() -> None:
    """Spark compares the schema of a batch to the letter: order, types, time zone."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from rmqlite.spark.arrow.decode import arrow_schema
    from rmqlite.spark.source import spark_schema

    wanted = to_arrow_schema(spark_schema(COLUMNS), timezone="UTC")
    assert arrow_schema(COLUMNS).equals(wanted)


def test_decoding_loads_neither_spark_nor_grpc_nor_the_brokers_rooms() -> None:
    """An executor, and rmqlite store export, have Arrow and numpy, and need no more."""
    script = (
        "import sys; from rmqlite.spark.arrow import rows, partitions, planning\n"
        "light = ('', '.disk', '.disk.regular_file', '.disk.system', '.wait_queues')\n"
        "print(*[m for m in sys.modules if m.split('.')[0] in "
        "('pyspark', 'grpc', 'pydantic', 'pandas') "
        "or m.startswith('rmqlite.kernel.store') "
        "and m.removeprefix('rmqlite.kernel.store') not in light])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_every_record_that_rocketmq_gave_a_queue_is_a_row(tmp_path: Path) -> None:
    """Half messages and op records of its transactions, too: they lie in two topics of theirs."""
    golden = unpack_golden(tmp_path)
    entries = Counter(row["topic"] for row in entries_of(golden))
    assert entries["RMQ_SYS_TRANS_HALF_TOPIC"] == 9
    assert entries["RMQ_SYS_TRANS_OP_HALF_TOPIC"] == 6
    assert Counter(row["topic"] for row in read(golden / "clean")) == entries
    for topic, count in entries.items():
        assert len(read(golden / "clean", topic=topic)) == count
