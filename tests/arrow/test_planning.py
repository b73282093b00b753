"""What a load reads is settled where the driver is: bounds, slices, and what is out of range."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqlite.kernel.records.queue_entry import ENTRY_BYTES
from rmqlite.kernel.words.errors import InvalidValue, OffsetGone, RmqliteError, StoreDamaged
from rmqlite.kernel.words.levels import DEFAULT_LEVELS, LevelHistory, parse_levels
from rmqlite.kernel.words.names import SCHEDULE_TOPIC, TABLES_TOPIC, WAIT_TOPICS
from rmqlite.spark.arrow.partitions import LogSlice, Partition, QueueSlices, StorePlace
from rmqlite.spark.arrow.planning import Look, look_at_store, plan
from rmqlite.spark.arrow.rows import store_rows
from rmqlite.spark.options import parse_options
from tests.support.golden import unpack_golden
from tests.support.looking import untouched
from tests.support.plain_decoder import ALL, decoded_rows, every, read
from tests.support.repairs import overwrite
from tests.support.stores import StoreUnderTest, new_record


@pytest.fixture
def filled(tmp_path: Path) -> StoreUnderTest:
    """Two queues of orders, three levels, several log files, a second topic in between."""
    store = StoreUnderTest(tmp_path / "store")
    store.fill()
    store.clock.forward(10_000)
    store.send(*[f"bill {number}" for number in range(30)], topic="bills")
    store.clock.forward(10_000)
    store.fill()
    store.persist()
    store.crash()
    return store


def planned(root: Path, **options: str) -> list[Partition]:
    wanted = parse_options({"path": str(root), **options})
    return plan(wanted, look_at_store(wanted.path))


@pytest.mark.parametrize(
    ("options", "takes"),
    [
        ({"topic": "orders"}, lambda row: row["topic"] == "orders"),
        ({"topics": "bills, orders"}, lambda row: row["topic"] in ("bills", "orders")),
        ({"topic": SCHEDULE_TOPIC}, lambda row: row["topic"] == SCHEDULE_TOPIC),
        ({"topicPattern": "b?l*"}, lambda row: row["topic"] == "bills"),
        ({"topic": "nothing-there"}, lambda _: False),
        (
            {"topic": "orders", "queueIds": "1"},
            lambda row: (row["topic"], row["queue_id"]) == ("orders", 1),
        ),
        ({"queueIds": "1,2"}, lambda row: row["queue_id"] in (1, 2)),
        (
            {"topic": "bills", "startingOffsets": '{"bills": {"0": 7}}'},
            lambda row: row["topic"] == "bills" and row["queue_offset"] >= 7,
        ),
        (
            {"endingOffsets": '{"bills": {"0": 7}, "orders": {"0": -2}}'},
            lambda row: (
                row["topic"] in (*WAIT_TOPICS, TABLES_TOPIC)
                or (row["topic"] == "bills" and row["queue_offset"] < 7)
                or (row["topic"], row["queue_id"]) == ("orders", 1)
            ),
        ),
        ({"startingOffsets": "latest"}, lambda _: False),
        (
            {"startingPhysicalOffset": "1000", "endingPhysicalOffset": "5001"},
            lambda row: 1000 <= row["physical_offset"] < 5001,
        ),
        (
            {"topic": "bills", "endingPhysicalOffset": "12000"},
            lambda row: row["topic"] == "bills" and row["physical_offset"] < 12000,
        ),
    ],
)
def test_options_take_what_they_say(
    filled: StoreUnderTest, options: dict[str, str], takes: Callable[[dict[str, Any]], bool]
) -> None:
    """Whichever way is the shorter: over the log, or through the queues."""
    assert read(filled.root, **options) == [row for row in every(filled.root) if takes(row)]


def test_a_window_of_time_leaves_out_log_files(filled: StoreUnderTest) -> None:
    """A day of a long log must not cost all of it."""
    rows = every(filled.root)
    times = {row["store_timestamp"] for row in rows if row["topic"] == "bills"}
    window = {"startingTimestamp": str(min(times)), "endingTimestamp": str(max(times) + 1)}
    found = read(filled.root, **window)
    assert found == [row for row in rows if row["store_timestamp"] in times]
    slices = [each for each in planned(filled.root, **window) if isinstance(each, LogSlice)]
    covered = sum(each.end - each.begin for each in slices)
    assert covered < look_at_store(str(filled.root)).place.end


def test_few_records_are_found_through_their_queues(filled: StoreUnderTest) -> None:
    """Entries of 20 bytes instead of the whole log; packed into few tasks."""
    through = planned(filled.root, topic="bills")
    assert [type(each) for each in through] == [QueueSlices]
    assert len(planned(filled.root, topic="bills", rowsPerPartition="10")) == 3
    assert len(planned(filled.root, topic="bills", rowsPerPartition="1", maxPartitions="4")) == 4


def test_most_records_are_found_in_the_log(filled: StoreUnderTest) -> None:
    """Each slice lies in one file, and two tasks have as much to do."""
    slices = planned(filled.root)
    assert all(isinstance(each, LogSlice) for each in slices)
    assert len(planned(filled.root, sliceBytes="3000")) > len(slices)


@pytest.mark.parametrize(
    ("log_bytes", "options", "lengths"),
    [
        (100 << 20, {}, [100 << 20]),
        (600 << 20, {}, [100 << 20] * 6),
        (9 << 30, {}, [512 << 20] * 18),
        (4 << 30, {}, [512 << 20] * 8),
        (3 << 30, {"maxPartitions": "12"}, [256 << 20] * 12),
        (300 << 20, {"sliceBytes": "50m"}, [50 << 20] * 6),
    ],
)
def test_slices_are_long_enough_and_many_enough(
    log_bytes: int, options: dict[str, str], lengths: list[int]
) -> None:
    """A task costs Spark as much as some megabytes of log, and a single one uses one core."""
    room, levels = 1 << 30, LevelHistory.starting_with(parse_levels(DEFAULT_LEVELS))
    place = StorePlace("/store", "", room, 6_000_000, 0, log_bytes, log_bytes, levels)
    files = tuple((start, None) for start in range(0, log_bytes, room))
    found = plan(
        parse_options({"path": "/store"} | options), Look(place, 0, files, (), frozenset(), ())
    )
    assert [each.end - each.begin for each in found if isinstance(each, LogSlice)] == lengths


def test_partitions_are_small(filled: StoreUnderTest) -> None:
    """They go over the wire to every executor."""
    for partition in planned(filled.root, sliceBytes="2000"):
        assert len(pickle.dumps(partition)) < 2000


def test_looking_changes_nothing(filled: StoreUnderTest) -> None:
    """A broker may be at work there."""
    with untouched(filled.root):
        read(filled.root)
        read(filled.root, topic="bills", verifyCrc="true")


def test_one_end_for_all_partitions(filled: StoreUnderTest) -> None:
    """What comes in while tasks run is not half there."""
    options = parse_options({"path": str(filled.root), "topicPattern": "*"})
    before, partitions = every(filled.root), plan(options, look_at_store(options.path))
    filled.open()
    filled.send("late")
    filled.sync()
    found = [row for each in partitions for row in decoded_rows(store_rows(each, options, ALL))]
    assert found == before
    filled.crash()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"startingOffsets": '{"bills": {"0": 31}}'},
            "startingOffsets must be at most 30, where that queue ends now,"
            " not 'bills queue 0: 31'",
        ),
        (
            {"endingOffsets": '{"bils": {"0": 1}}'},
            "endingOffsets must be a queue that holds messages,"
            " not 'bils queue 0'; did you mean bills?",
        ),
        ({"endingPhysicalOffset": "99999999"}, "where the log ends"),
        ({"startingPhysicalOffset": "99999999"}, "where the log ends"),
    ],
)
def test_what_is_not_there_is_refused(
    filled: StoreUnderTest, options: dict[str, str], told: str
) -> None:
    """Offsets are a promise about rows; a promise is kept or refused."""
    with pytest.raises(InvalidValue, match=told.split(":")[-1].strip()[:40]) as caught:
        planned(filled.root, **options)
    assert told in str(caught.value)


def drop_first_file(store: StoreUnderTest) -> int:
    """What retention does; where the log begins now."""
    store.log_files()[0].unlink()
    return int(store.log_files()[0].name)


def test_what_retention_took_before_is_refused_or_passed_over(filled: StoreUnderTest) -> None:
    """Silently fewer rows would look like the whole."""
    begin = drop_first_file(filled)
    asked = {"startingOffsets": '{"orders": {"0": 0}}'}
    with pytest.raises(OffsetGone, match=r"orders queue 0: offset 0 is gone, the first one kept"):
        planned(filled.root, **asked)
    with pytest.raises(OffsetGone, match=str(begin)):
        planned(filled.root, startingPhysicalOffset="0")
    left = [row for row in every(filled.root) if row["physical_offset"] >= begin]
    assert read(filled.root, failOnDataLoss="false", **asked) == left


@pytest.mark.parametrize("topic", ["", "orders", "bills"])
def test_what_retention_takes_meanwhile_is_told_or_passed_over(
    filled: StoreUnderTest, topic: str
) -> None:
    """Between planning and reading a file may go."""
    given = {"path": str(filled.root), **({"topic": topic} if topic else {})}
    strict = parse_options(given)
    lenient = parse_options({**given, "failOnDataLoss": "false"})
    partitions = plan(strict, look_at_store(strict.path))
    begin = drop_first_file(filled)
    left = [
        row
        for row in every(filled.root)
        if row["physical_offset"] >= begin and topic in ("", row["topic"])
    ]
    found = [row for each in partitions for row in decoded_rows(store_rows(each, lenient, ALL))]
    assert sorted(found, key=lambda row: row["physical_offset"]) == left
    if topic != "bills":
        with pytest.raises(OffsetGone, match=str(begin) if not topic else "orders"):
            [list(store_rows(each, strict, ALL)) for each in partitions]


def damage(path: Path, position: int, new: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[position : position + len(new)] = new
    path.write_bytes(data)


@pytest.mark.parametrize("at", [0, 4, 12, 28, 84])
def test_a_damaged_head_is_told_with_its_place(filled: StoreUnderTest, at: int) -> None:
    """File and byte, so that rmqlite store check can be asked about it."""
    third = every(filled.root)[3]["physical_offset"]
    damage(filled.log_files()[0], third + at, b"\xf0\xf0\xf0\xf0")
    with pytest.raises(StoreDamaged, match=f"0000 is damaged at byte {third}: expected a record"):
        read(filled.root)


def test_a_damaged_body_is_told_when_asked_for(filled: StoreUnderTest) -> None:
    """It costs a pass over all bodies, so it is an option."""
    third = every(filled.root)[3]["physical_offset"]
    damage(filled.log_files()[0], third + 100, b"?")
    assert len(read(filled.root)) == len(every(filled.root))
    for more in ({}, {"topic": "orders"}):
        with pytest.raises(StoreDamaged, match=f"byte {third}: expected a body with CRC"):
            read(filled.root, verifyCrc="true", **more)


def test_a_log_that_ends_in_damage_is_not_read(filled: StoreUnderTest) -> None:
    """Its end is not known."""
    last = every(filled.root)[-4]["physical_offset"]
    path = filled.log_files()[-1]
    damage(path, last - int(path.name), b"\xff" * 8)
    with pytest.raises(RmqliteError, match="is damaged"):
        read(filled.root)


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_what_is_no_store_is_said(tmp_path: Path, name: str) -> None:
    """Not an empty table."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidValue, match=f"must be a .*{name}'"):
        planned(tmp_path / name)


def test_a_table_of_topics_that_cannot_be_read_hides_no_record(filled: StoreUnderTest) -> None:
    """The log has everything; the table only says which topics have no record yet."""
    table = filled.root / "config" / "topics.json"
    row = {"topicName": "fresh", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    table.write_text(json.dumps({"topicConfigTable": {"fresh": row}}))
    assert look_at_store(str(filled.root)).has_topic("fresh")
    table.write_text("{")
    found = look_at_store(str(filled.root))
    assert (found.has_topic("fresh"), found.has_topic("bills")) == (False, True)
    assert read(filled.root) == every(filled.root)


def test_a_store_without_records_has_no_rows(tmp_path: Path) -> None:
    """A broker that was started and never used."""
    store = StoreUnderTest(tmp_path / "store")
    store.close()
    assert read(store.root) == []
    assert read(store.root, topic="orders") == []


def test_many_records_across_batches_and_files(tmp_path: Path) -> None:
    """A filter that leaves few of many rows still gives batches of some size."""
    store = StoreUnderTest(tmp_path / "store", log_file_bytes=1 << 17)
    for number in range(40):
        store.append(*[new_record("x" * 30, f"t{n % 7}", n % 2) for n in range(number, 60)])
    store.close()
    rows = every(store.root)
    options = parse_options({"path": str(store.root), "topicPattern": "t[0-5]"})
    batches = [
        b
        for each in plan(options, look_at_store(options.path))
        for b in store_rows(each, options, ALL)
    ]
    assert decoded_rows(batches) == [row for row in rows if row["topic"] != "t6"]


def zeroed(root: Path, folder: Path, begin: int, end: int) -> None:
    """Overwrite entries begin <= queue offset < end of a queue."""
    files = sorted(folder.iterdir())
    for queue_offset in range(begin, end):
        number, at = divmod(queue_offset * ENTRY_BYTES, files[0].stat().st_size)
        overwrite(root / files[number], at, bytes(ENTRY_BYTES))


def damaged_folder(root: Path, rows: list[dict[str, Any]], **options: str) -> Path | None:
    """The folder that a load finds damaged; None if it has these rows."""
    try:
        found = read(root, **options)
    except StoreDamaged as error:
        return Path(error.path).parent
    assert found == rows
    return None


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_load_by_topic_never_has_fewer_rows_than_the_log(
    filled: StoreUnderTest, tmp_path: Path, is_ours: bool
) -> None:
    """Zeros at a queue's head were taken for entries that retention had removed: 55 of 60 rows.

    Wherever else they are, the searches by halves may come to them, or not.
    """
    golden = filled.root if is_ours else unpack_golden(tmp_path) / "clean"
    topic, queue_id, width = ("bills", 0, 1) if is_ours else ("orders", 1, 37)
    rows = [
        each for each in every(golden) if (each["topic"], each["queue_id"]) == (topic, queue_id)
    ]
    seen = set()
    for first in range(0, len(rows), width):
        root = tmp_path / f"{first}"
        shutil.copytree(golden, root)
        folder = root / "consumequeue" / topic / str(queue_id)
        zeroed(root, folder, first, min(len(rows), first + 1 + first % 5))
        found = damaged_folder(root, rows, topic=topic, queueIds=str(queue_id))
        assert found in (None, folder)
        seen.add(found is None)
    # Without its last entry one of ours is made again from the log, and lacks nothing.
    assert seen == ({True, False} if is_ours else {False})
