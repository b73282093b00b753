"""Repair: what it says, that it changes nothing until told to, and that a store opens after it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqlite.kernel.records.queue_entry import ENTRY, ENTRY_BYTES, PRE_BLANK
from rmqlite.kernel.records.record import encode_blank, read_head
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.log.checksums import BLOCK_BYTES, mark_position
from rmqlite.kernel.store.log.repaired_place import is_anonymous, is_repaired
from rmqlite.kernel.words.errors import InvalidValue, MessageNotFound, StoreLocked, StoreUnavailable
from rmqlite.kernel.words.property_string import PropertyString
from rmqlite.store_tools.repair import plan_repair, repair
from rmqlite.store_tools.repairing.places import encode_anonymous, encode_named
from tests.support.files import FOR_GOOD, FaultyFiles, QuickFiles
from tests.support.repairs import (
    Known,
    filled,
    flip,
    known,
    lost,
    overwrite,
    planned,
    refusal,
    repaired,
)
from tests.support.stores import (
    LOG_FILE_BYTES,
    QUEUE_FILE_BYTES,
    StoreUnderTest,
    contents,
    new_record,
)
from tests.support.thinned import Thinned, by_turns

QUEUE_FILE = f"{0:020d}"


@pytest.fixture
def store(tmp_path: Path) -> StoreUnderTest:
    """A store of several files, open."""
    return filled(tmp_path / "store")


@pytest.fixture
def before(store: StoreUnderTest) -> Known:
    return known(store)


@pytest.fixture
def closed(store: StoreUnderTest, before: Known) -> StoreUnderTest:
    """The same, closed; before has what was in it."""
    assert before
    store.close()
    return store


def place_in(store: StoreUnderTest, physical_offset: int) -> tuple[Path, int]:
    start = physical_offset - physical_offset % store.log_file_bytes
    return store.root / "commitlog" / f"{start:020d}", physical_offset - start


def wipe(store: StoreUnderTest, begin: int, size: int, byte: bytes = b"\0") -> bytes:
    """Overwrite a part of the log; what was there."""
    path, at = place_in(store, begin)
    there = path.read_bytes()[at : at + size]
    overwrite(path, at, byte * size)
    return there


def whats(store: StoreUnderTest) -> list[str]:
    return [action.what for action in planned(store).actions]


# ---- nothing to do


@pytest.mark.parametrize("end", ["close", "crash"])
def test_a_sound_store_needs_nothing(store: StoreUnderTest, end: str) -> None:
    """Closed, or killed in mid-write."""
    getattr(store, end)()
    assert planned(store).actions == ()


def test_what_opening_mends_is_left_to_it(store: StoreUnderTest) -> None:
    """A torn tail that nobody was promised, and queues that nobody has written yet."""
    store.send("promised")
    store.sync()
    end = store.store.end
    store.crash()
    path, at = place_in(store, end)
    overwrite(path, at, b"torn" * 20)
    shutil.rmtree(store.root / "consumequeue" / "orders")
    plan = planned(store)
    assert plan.actions == ()
    assert {finding.opening_mends for finding in plan.findings} == {True}
    store.open()
    assert store.findings() == []


def test_a_store_that_a_broker_holds_is_left_alone(store: StoreUnderTest) -> None:
    """Neither planned nor done; another process is asked, as a lock is a process's."""
    script = (
        "import sys; from pathlib import Path; from rmqlite.store_tools.repair import plan_repair\n"
        "plan_repair(Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", script, str(store.root)]
    assert StoreLocked.__name__ in subprocess.run(command, capture_output=True, text=True).stderr


# ---- single bytes


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("at", "log_file_bytes"),
    by_turns(
        [1, 6, 9, 14, 25, 33, 37, 50, 58, 80, 86, 90, 103, 105], [LOG_FILE_BYTES, 2 * BLOCK_BYTES]
    ),
)
def test_a_single_changed_byte_is_named(tmp_path: Path, at: int, log_file_bytes: int) -> None:
    """The record that it is in becomes a place, or keeps its bytes; no other message is lost."""
    store = filled(tmp_path / "store", log_file_bytes=log_file_bytes)
    before = known(store)
    store.close()
    key = ("orders", 1, 3)
    path, begin = place_in(store, before[key][0])
    flip(path, begin + at, 0x93)
    name = "orders queue 1, queue offset 3"
    damaged = path.read_bytes()[begin : begin + before[key][1]]
    assert refusal(store).path == str(path)
    plan = planned(store)
    action = plan.actions[0]
    assert action.what in ("repaired-place", "accepted-bytes", "mended-header")
    assert any(each.startswith(name) for each in (*action.lost, *action.about))
    side = repaired(store, plan)
    after = known(store)
    if action.what == "repaired-place":
        kept = (side / "commitlog" / f"{path.name}@{begin}").read_bytes()
        assert kept == damaged
        assert lost(before, after) == [key]
    else:
        # Only a pointer at nothing is cleared.
        now = path.read_bytes()[begin : begin + before[key][1]]
        assert now == (damaged[:76] + bytes(8) + damaged[84:] if at == 80 else damaged)
        assert lost(before, after) == []


# ---- repaired places


def test_a_damaged_record_becomes_a_repaired_place(closed: StoreUnderTest, before: Known) -> None:
    """It is named, it is kept beside, and no other message moves."""
    begin, size, _ = before["orders", 1, 2]
    there = wipe(closed, begin + 95, 7, b"?")
    path, at = place_in(closed, begin)
    assert (refusal(closed).path, refusal(closed).position) == (str(path), at)
    plan = planned(closed)
    place = plan.actions[0]
    assert (place.what, place.path, place.position) == ("repaired-place", path, at)
    assert "body does not fit its CRC" in place.wrong
    assert place.lost == ("orders queue 1, queue offset 2",)
    side = repaired(closed, plan)
    kept = (side / "commitlog" / f"{path.name}@{at}").read_bytes()
    assert len(kept) == size
    assert kept[95:102] == b"?" * 7 != there
    after = known(closed)
    assert lost(before, after) == [("orders", 1, 2)]
    queue = closed.store.queue("orders", 1)
    assert queue is not None
    entry = queue.entry(2)
    assert entry is not None
    assert (entry.physical_offset, entry.size, entry.tags_code) == (begin, size, 0)
    assert closed.store.read_records([entry]) == [None]
    with pytest.raises(MessageNotFound):
        closed.store.read_message(begin, size)
    sent = closed.send("next", queue_id=1)[0]
    assert sent.queue_offset == queue.max_offset - 1
    closed.crash()
    closed.open()
    assert lost(before, {k: v for k, v in known(closed).items() if k in before}) == [
        ("orders", 1, 2)
    ]


def test_records_without_headers_are_named_by_their_queues(
    closed: StoreUnderTest, before: Known
) -> None:
    """A wiped-out sector: each record has an entry that points at it."""
    begins = sorted((begin, key) for key, (begin, _, _) in before.items())
    inside = [(begin, key) for begin, key in begins if begin >= begins[3][0]][:4]
    first = inside[0][0] + 20
    wipe(closed, first, inside[-1][0] + 60 - first)
    (action, *_) = planned(closed).actions
    assert action.remedy.startswith("4 repaired places, ")
    assert [name.rpartition(" ")[2] for name in action.lost] == [str(key[2]) for _, key in inside]
    repaired(closed)
    assert lost(before, known(closed)) == sorted(key for _, key in inside)


def test_without_queues_one_place_stands_for_all(closed: StoreUnderTest, before: Known) -> None:
    """How many there were is not known; those behind keep their queue offsets all the same."""
    begins = sorted(before.values())
    first, last = begins[4], begins[7]
    wipe(closed, first[0], last[0] + last[1] - first[0])
    shutil.rmtree(closed.root / "consumequeue")
    (action, *_) = planned(closed).actions
    assert action.lost == (f"{last[0] + last[1] - first[0]} bytes of unknown messages",)
    repaired(closed)
    gone = sorted(key for key, value in before.items() if first[0] <= value[0] <= last[0])
    assert lost(before, known(closed)) == gone
    closed.close()
    place = read_head(closed.log_files()[0].read_bytes(), first[0] % LOG_FILE_BYTES)
    assert place is not None
    assert is_anonymous(place)
    # From the log alone, once more.
    shutil.rmtree(closed.root / "consumequeue")
    closed.open()
    assert lost(before, known(closed)) == gone


def test_a_stretch_may_reach_over_a_files_end(closed: StoreUnderTest, before: Known) -> None:
    """The last record, the blank behind it, and the next file's first record."""
    last = max(value for value in before.values() if value[0] < LOG_FILE_BYTES)
    first = min(value for value in before.values() if value[0] >= LOG_FILE_BYTES)
    wipe(closed, last[0] + 30, LOG_FILE_BYTES - last[0] - 30, b"?")
    wipe(closed, first[0], 40, b"?")
    gone = sorted(key for key, value in before.items() if value in (last, first))
    repaired(closed)
    assert lost(before, known(closed)) == gone
    data = closed.log_files()[0].read_bytes()
    end = last[0] + last[1]
    if data[end : end + 8] != encode_blank(LOG_FILE_BYTES - end):
        # There is room for a place of its own.
        end += int.from_bytes(data[end : end + 4], "big")
    assert data[end : end + 8] == encode_blank(LOG_FILE_BYTES - end)
    assert not any(data[end + 8 : mark_position(LOG_FILE_BYTES)])


def test_a_damaged_blank_is_written_anew(closed: StoreUnderTest, before: Known) -> None:
    """No message was there, and none is told as lost."""
    path = closed.log_files()[0]
    last = max(value for value in before.values() if value[0] < LOG_FILE_BYTES)
    at = last[0] + last[1]
    original = path.read_bytes()
    overwrite(path, at + 1, b"\x07\x07")
    assert refusal(closed).position == at
    action = planned(closed).actions[0]
    assert action.remedy == "the blank at the file's end is written anew"
    repaired(closed)
    assert lost(before, known(closed)) == []
    closed.close()
    assert path.read_bytes()[: at + 8] == original[: at + 8]


def test_what_is_too_short_for_a_place_goes_to_its_neighbour(
    closed: StoreUnderTest, before: Known
) -> None:
    """A queue entry that is wrong by a few bytes must not leave a hole that nothing fits in."""
    begin, size, _ = before["orders", 0, 3]
    wipe(closed, begin, size)
    path = closed.root / "consumequeue" / "orders" / "0" / QUEUE_FILE
    overwrite(path, 3 * ENTRY_BYTES, ENTRY.pack(begin + 50, size - 50, 7))
    repaired(closed)
    assert lost(before, known(closed)) == [("orders", 0, 3)]


def test_a_level_goes_on_behind_a_repaired_place(closed: StoreUnderTest, before: Known) -> None:
    """It can never be delivered: it counts as completed, and nothing waits for it."""
    topic = "SCHEDULE_TOPIC_XXXX"
    pending = [key for key in before if key[:2] == (topic, 2)][-3]
    begin, size, _ = before[pending]
    waiting = closed.store.progress.of(3).below
    wipe(closed, begin + 90, size - 95)
    repaired(closed)
    completed = closed.store.progress.of(3)
    assert completed.next_open(pending[2]) == pending[2] + 1
    assert completed.below == waiting
    assert lost(before, known(closed)) == [pending]


def test_the_timers_go_on_behind_a_repaired_place(closed: StoreUnderTest, before: Known) -> None:
    """The lost one is completed; for RocketMQ 5, it is the recall of a timer whose time is over."""
    key = ("rmq_sys_wheel_timer", 0, 2)
    begin, size, _ = before[key]
    wipe(closed, begin + 90, size - 95)
    repaired(closed)
    completed = closed.store.progress.of(TIMERS)
    assert list(completed.open_between(0, 4)) == [0]
    assert lost(before, known(closed)) == [key]
    head = read_head(raw(closed, begin, size))
    assert head is not None
    properties = PropertyString(head.properties)
    assert properties.number("TIMER_OUT_MS") == head.store_timestamp_ms
    assert properties.get("TIMER_DEL_UNIQKEY") == b"REPAIRED"


def test_a_place_is_what_rocketmq_passes_over() -> None:
    """Rolled back: no queue entry of RocketMQ's; a scheduled one names a destination that its
    delivery discards, as one without any would stop the level for ever."""
    place = {"physical_offset": 500, "size": 300, "store_timestamp_ms": 77}
    data = encode_named("SCHEDULE_TOPIC_XXXX", 2, 9, **place)
    head = read_head(bytes(500) + data, 500)
    assert len(data) == 300
    assert head is not None
    assert (head.topic, head.queue_id, head.queue_offset) == ("SCHEDULE_TOPIC_XXXX", 2, 9)
    assert (head.physical_offset, head.size, head.store_timestamp_ms) == (500, 300, 77)
    assert (head.sys_flag, head.reconsume_times) == (0xC, -1)
    assert head.properties == (
        b"REPAIRED\x011\x02REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010"
    )
    assert is_repaired(head)
    assert not is_anonymous(head)


@pytest.mark.parametrize("size", [92, 93, 97, 98, 107, 108, 109, 1000])
def test_a_place_has_exactly_the_size_of_what_was_lost(size: int) -> None:
    """Also where there is no room for the property, or not even for the topic."""
    head = read_head(
        encode_named("orders", 1, 5, physical_offset=0, size=size, store_timestamp_ms=1)
    )
    assert head is not None
    assert head.size == size
    assert is_repaired(head)
    assert (head.topic == "orders") == (size >= 97) != is_anonymous(head)
    anonymous = read_head(encode_anonymous(0, size, 1))
    assert anonymous is not None
    assert is_anonymous(anonymous)
    assert (b"REPAIRED" in anonymous.properties) == (size >= 102)


# ---- what only the checksum tells


def test_changed_bytes_that_nobody_knows_are_accepted(
    closed: StoreUnderTest, before: Known
) -> None:
    """Two of them are too many for the checksum: they stay, and the records are named."""
    begins = [before["orders", 0, 1][0], before["orders", 1, 1][0]]
    for begin in begins:
        path, at = place_in(closed, begin)
        flip(path, at + 49)
    assert "have changed since they were written" in str(refusal(closed))
    (accepted, *others) = planned(closed).actions
    assert accepted.what == "accepted-bytes"
    assert {"orders queue 0, queue offset 1", "orders queue 1, queue offset 1"} <= set(
        accepted.about
    )
    assert [each.what for each in others] == ["new-checksums", "moved-aside"]
    repaired(closed)
    assert lost(before, known(closed)) == []


HEADER_FIELDS: dict[str, tuple[int, bytes]] = {
    "queue id": (12, b"\0\0\2\3"),
    "queue offset ahead": (20, b"\0\0\0\0\0\0\3\7"),
    "queue offset behind": (20, b"\xff\0\0\0\0\0\0\1"),
    "negative queue offset": (20, b"\xff\xff\0\0\0\0\0\1"),
    "transaction type": (36, b"\0\0\1\x0c"),
    "timestamp ahead": (56, b"\x7f\x01\0\0\0\0\0\0"),
    "timestamp behind": (56, b"\0\0\0\0\0\0\0\x09"),
}


@pytest.mark.parametrize("field", HEADER_FIELDS)
def test_a_header_that_cannot_be_right_is_given_up(
    closed: StoreUnderTest, before: Known, field: str
) -> None:
    """Accepted as it is, its message would be in the wrong place or time."""
    at, data = HEADER_FIELDS[field]
    begin, _, _ = before["orders", 1, 4]
    path, position = place_in(closed, begin)
    view = closed.view()
    overwrite(path, position + at, data)
    action = planned(closed).actions[0]
    assert (action.what, action.position) == ("repaired-place", position)
    assert action.lost == ("orders queue 1, queue offset 4",)
    repaired(closed)
    assert lost(before, known(closed)) == [("orders", 1, 4)]
    assert closed.view()["newest"] == view["newest"]


def test_a_topic_that_its_queue_entry_does_not_confirm_is_given_up(
    closed: StoreUnderTest, before: Known
) -> None:
    """Else the record would be in a queue of its own."""
    begin, _, body = before["orders", 1, 4]
    path, position = place_in(closed, begin)
    at = position + 88 + len(body) + 1
    assert path.read_bytes()[at : at + 6] == b"orders"
    overwrite(path, at, b"ordErz")
    assert planned(closed).actions[0].lost == ("orders queue 1, queue offset 4",)
    repaired(closed)
    assert lost(before, known(closed)) == [("orders", 1, 4)]
    assert not any(topic == "ordErz" for topic, _ in closed.store.queue_keys())


def test_a_scheduled_record_with_a_wrong_time_is_given_up(
    closed: StoreUnderTest, before: Known
) -> None:
    """P2: its deliver time would be made up; it is completed, and nothing waits for it."""
    key = ("SCHEDULE_TOPIC_XXXX", 1, 2)
    path, position = place_in(closed, before[key][0])
    overwrite(path, position + 56, b"\x7f\x01\0\0\0\0\0\0")
    repaired(closed)
    assert lost(before, known(closed)) == [key]
    assert closed.store.progress.of(2).next_open(key[2]) == key[2] + 1


def test_a_header_that_no_queue_confirms_is_given_up(closed: StoreUnderTest, before: Known) -> None:
    """The records behind it keep their queue offsets."""
    begin, _, _ = before["orders", 1, 4]
    path, position = place_in(closed, begin)
    overwrite(path, position + 20, b"\0\0\0\0\0\0\3\7")
    shutil.rmtree(closed.root / "consumequeue")
    action = planned(closed).actions[0]
    assert (action.what, action.position) == ("repaired-place", position)
    assert "does not follow" in action.wrong
    repaired(closed)
    assert lost(before, known(closed)) == [("orders", 1, 4)]


def test_a_pointer_at_nothing_is_cleared(closed: StoreUnderTest, before: Known) -> None:
    """What it delivered may be delivered once more, and that is said."""
    pointing = [begin for begin, size, _ in before.values() if any(raw(closed, begin, size)[76:84])]
    path, position = place_in(closed, pointing[0])
    overwrite(path, position + 80, b"\x7f\x7f")
    actions = planned(closed).actions
    assert ("mended-header", position) in [(each.what, each.position) for each in actions]
    repaired(closed)
    assert lost(before, known(closed)) == []
    assert not any(raw(closed, pointing[0], 100)[76:84])


def raw(store: StoreUnderTest, begin: int, size: int) -> bytes:
    path, at = place_in(store, begin)
    return path.read_bytes()[at : at + size]


# ---- the log's end


def test_a_lost_tail_is_cut(closed: StoreUnderTest, before: Known) -> None:
    """What is lost is named; the next messages take its queue offsets."""
    begins = sorted((value[0], key) for key, value in before.items())
    (begin, first), *others = begins[-5:]
    there = wipe(closed, begin, closed.log_file_bytes - begin % closed.log_file_bytes - 200)
    path, at = place_in(closed, begin)
    error = refusal(closed)
    assert (error.path, error.position) == (str(path), at)
    action = planned(closed).actions[0]
    assert (action.what, action.position) == ("cut-tail", at)
    assert "bytes that were on disk are lost" in action.remedy
    assert len(action.lost) == len({key[:2] for _, key in begins[-5:]})
    repaired(closed)
    gone = sorted([first, *(key for _, key in others)])
    assert lost(before, known(closed)) == gone
    assert begin - 200 < closed.store.end <= begin
    assert any(there)


def test_a_broken_tail_is_kept_beside(closed: StoreUnderTest, before: Known) -> None:
    """The last record, in part; its bytes are in the side folder."""
    key = max(before, key=lambda each: before[each][0])
    begin, size, _ = before[key]
    wipe(closed, begin + 20, 40, b"?")
    path, at = place_in(closed, begin)
    broken = path.read_bytes()[at : at + size]
    side = repaired(closed)
    kept = (side / "commitlog" / f"{path.name}@{at}").read_bytes()
    assert kept[:size] == broken
    assert lost(before, known(closed)) == [key]
    assert closed.store.end == begin


def test_files_behind_a_lost_end_go(closed: StoreUnderTest, before: Known) -> None:
    """They held nothing that is sound; all of them is kept."""
    files = closed.log_files()
    original = {path.name: path.read_bytes() for path in files}
    start = int(files[1].name)
    for path in files[1:]:
        overwrite(path, 0, b"?" * mark_position(LOG_FILE_BYTES))
    side = repaired(closed)
    assert lost(before, known(closed)) == sorted(k for k, v in before.items() if v[0] >= start)
    assert {path.name for path in (side / "commitlog").iterdir()} >= set(original) - {files[0].name}
    assert closed.store.end <= start


def test_a_cut_off_file_is_told_though_opening_would_take_it(
    closed: StoreUnderTest, before: Known
) -> None:
    """What was lost is named before it is forgotten."""
    key = max(before, key=lambda each: before[each][0])
    path, at = place_in(closed, before[key][0])
    path.write_bytes(path.read_bytes()[: at + 30])
    actions = planned(closed).actions
    assert [each.what for each in actions[:2]] == ["length-restored", "cut-tail"]
    repaired(closed)
    assert lost(before, known(closed)) == [key]


# ---- files and tables


def test_a_foreign_file_is_moved_aside(closed: StoreUnderTest, before: Known) -> None:
    """RocketMQ and we refuse to open with it."""
    foreign = closed.root / "commitlog" / ".DS_Store"
    foreign.write_text("mine")
    refusal(closed)
    (action,) = planned(closed).actions
    assert (action.what, action.path) == ("moved-aside", foreign)
    side = repaired(closed)
    assert not foreign.exists()
    assert (side / "commitlog" / ".DS_Store").read_text() == "mine"
    assert lost(before, known(closed)) == []


def test_a_foreign_folder_is_moved_aside(closed: StoreUnderTest) -> None:
    """With all that is in it."""
    folder = closed.root / "consumequeue" / "orders" / "0" / "lost+found"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "file").write_text("mine")
    side = repaired(closed, files=SystemFiles())
    assert not folder.exists()
    kept = side / "consumequeue" / "orders" / "0" / "lost+found" / "deep" / "file"
    assert kept.read_text() == "mine"


def test_a_file_that_is_too_long_gets_its_length_again(
    closed: StoreUnderTest, before: Known
) -> None:
    """What was behind its end is kept."""
    path = closed.log_files()[0]
    path.write_bytes(path.read_bytes() + b"surplus")
    refusal(closed)
    side = repaired(closed)
    assert (side / "commitlog" / f"{path.name}@{LOG_FILE_BYTES}").read_bytes() == b"surplus"
    assert lost(before, known(closed)) == []


def test_a_missing_middle_file_loses_only_its_own(closed: StoreUnderTest, before: Known) -> None:
    """The records behind are kept: an empty file takes its place."""
    closed.open()
    closed.send(*["x" * 900] * 12)
    before = known(closed)
    closed.close()
    path = closed.log_files()[2]
    start = int(path.name)
    path.unlink()
    assert "a gap" in str(refusal(closed))
    actions = planned(closed).actions
    assert (actions[0].what, actions[0].path) == ("made-file", path)
    assert "its content is lost" in actions[0].remedy
    repaired(closed)
    inside = range(start, start + LOG_FILE_BYTES)
    assert lost(before, known(closed)) == sorted(k for k, v in before.items() if v[0] in inside)


def test_a_missing_middle_file_without_queues(closed: StoreUnderTest, before: Known) -> None:
    """Who was in it is not known; queue offsets behind it stay."""
    closed.open()
    closed.send(*["x" * 900] * 12)
    before = known(closed)
    closed.close()
    path = closed.log_files()[2]
    start = int(path.name)
    path.unlink()
    shutil.rmtree(closed.root / "consumequeue")
    repaired(closed)
    inside = range(start, start + LOG_FILE_BYTES)
    assert lost(before, known(closed)) == sorted(k for k, v in before.items() if v[0] in inside)


TABLES = {
    "delayOffset.json": "deliveries are found in the log",
    "delayLevels.json": "made again from the log",
    "storeProgress.json": "nothing is lost: it is made again from the log",
    "consumerOffset.json": "groups begin again where their consumers start",
    "subscriptionGroup.json": "with default settings",
    "topics.json": "made again from the existing queues: orders",
    "consumerFilter.json": "rmqlite does not need it",
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_nobody_can_read_is_moved_aside(
    closed: StoreUnderTest, before: Known, name: str
) -> None:
    """What that means is said for each."""
    view = closed.view()
    for generation in (name, name + ".bak"):
        (closed.root / "config" / generation).write_bytes(b'{"torn')
    actions = planned(closed).actions
    assert actions[0].path == closed.root / "config" / name
    assert any(TABLES[name] in each.remedy for each in actions)
    side = repaired(closed)
    assert (side / "config" / name).read_bytes() == b'{"torn'
    assert (side / "config" / f"{name}.bak").read_bytes() == b'{"torn'
    assert lost(before, known(closed)) == []
    assert closed.view() == view


def test_a_killed_repair_leaves_a_store_that_counts_as_closed(
    closed: StoreUnderTest, before: Known
) -> None:
    """The file abort stayed, although nothing was appended that has to be recovered."""
    flip(closed.log_files()[0], 95)
    plan = planned(closed)
    files = FaultyFiles()
    files.fail("replace", where=lambda path: path.name == "checkpoint", times=FOR_GOOD)
    with pytest.raises(StoreUnavailable):
        repair(plan, files=files, clock=closed.clock)
    assert not (closed.root / "abort").exists()
    assert lost(before, known(closed)) == [("orders", 0, 0)]
    assert not (closed.root / "abort").exists()


def test_topics_are_made_again_from_the_queues(closed: StoreUnderTest) -> None:
    """With as many queues as there are."""
    path = closed.root / "config" / "topics.json"
    path.write_text('{"topicConfigTable":{"orders":{}}}')
    repaired(closed)
    (row,) = closed.table("topics.json")["topicConfigTable"].values()
    assert (row["topicName"], row["readQueueNums"], row["writeQueueNums"], row["perm"]) == (
        *("orders", 2, 2, 6),
    )


def test_a_previous_generation_takes_the_place_of_a_broken_one(closed: StoreUnderTest) -> None:
    """And is not lost with the next write."""
    config = closed.root / "config"
    closed.write_table("topics.json.bak", {"topicConfigTable": {}})
    (config / "topics.json").write_text("{")
    (action,) = planned(closed).actions
    assert action.remedy == "moved aside; the previous generation takes its place"
    repaired(closed)
    assert not (config / "topics.json").exists()


def test_a_delay_offset_that_is_ahead_would_swallow_messages(closed: StoreUnderTest) -> None:
    """It says that more was delivered than was ever scheduled."""
    view = closed.view()
    closed.write_table("delayOffset.json", {"offsetTable": {"2": 99}})
    (closed.root / "config" / "delayOffset.json.bak").unlink()
    assert whats(closed) == ["moved-aside"]
    repaired(closed)
    assert closed.view() == view


@pytest.mark.parametrize(
    "change",
    [
        {"physicalOffset": 10},
        {"physicalOffset": 1 << 40},
        {"checksum": 7},
        {"queues": {}},
        {"completed": {}},
    ],
)
def test_a_progress_that_is_wrong_is_made_again(
    closed: StoreUnderTest, before: Known, change: dict[str, Any]
) -> None:
    """The log knows better."""
    view = closed.view()
    closed.write_table("storeProgress.json", closed.table("storeProgress.json") | change)
    assert "moved-aside" in whats(closed)
    repaired(closed)
    assert lost(before, known(closed)) == []
    assert closed.view() == view


def test_levels_that_nobody_knows_must_be_given(closed: StoreUnderTest) -> None:
    """Else deliver times would be made up."""
    for path in (closed.root / "config").glob("delayLevels.json*"):
        path.unlink()
    # The log has them, too.
    log = closed.log_files()[0]
    flip(log, log.read_bytes().index(b'"delayLevels.json"'))
    with pytest.raises(InvalidValue, match="no record of its delay levels"):
        plan_repair(closed.root)
    repaired(closed)


# ---- checksums, queues

ENTRY_FAULTS: dict[str, Callable[[int, int, int], tuple[int, int, int]]] = {
    "missing": lambda *_: (0, 0, 0),
    "elsewhere": lambda at, size, code: (at + 1, size, code),
    "size": lambda at, size, code: (at, size + 1, code),
    "tags": lambda at, size, code: (at, size, code + 1),
}


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    ("fault", "folder"),
    by_turns(ENTRY_FAULTS, ["orders/1", "SCHEDULE_TOPIC_XXXX/1", "rmq_sys_wheel_timer/0"]),
)
def test_a_wrong_queue_entry_is_made_again(
    closed: StoreUnderTest, before: Known, folder: str, fault: str
) -> None:
    """From the log; a deliver time by the levels that were in force."""
    view = closed.view()
    path = closed.root / "consumequeue" / folder / QUEUE_FILE
    entry = ENTRY.unpack_from(path.read_bytes(), 2 * ENTRY_BYTES)
    wrong = ENTRY.pack(*ENTRY_FAULTS[fault](*entry))
    overwrite(path, 2 * ENTRY_BYTES, wrong)
    (action, *_) = planned(closed).actions
    assert (action.what, action.path, action.position) == ("cleared-entries", path, 40)
    side = repaired(closed)
    assert (side / "consumequeue" / folder / f"{QUEUE_FILE}@40").read_bytes() == wrong
    assert lost(before, known(closed)) == []
    assert closed.view() == view


def test_entries_of_no_record_are_blotted_out(closed: StoreUnderTest) -> None:
    """Before the first record of a queue, where opening looks at nothing."""
    closed.open()
    closed.send(*["x" * 900] * 30)
    closed.store.drop_before(7 * LOG_FILE_BYTES)
    closed.close()
    path = min((closed.root / "consumequeue" / "orders" / "0").iterdir())
    overwrite(path, 0, ENTRY.pack(closed.store.end - 1, 100, 0))
    repaired(closed)
    assert path.read_bytes()[:ENTRY_BYTES] == PRE_BLANK


@pytest.mark.parametrize("how", ["foreign", "short", "long", "missing"])
def test_queue_files_are_put_in_order(closed: StoreUnderTest, how: str) -> None:
    """Whatever they were, the log has what belongs in them."""
    closed.open()
    closed.send(*["x"] * 40)
    before, view = known(closed), closed.view()
    closed.close()
    folder = closed.root / "consumequeue" / "orders" / "0"
    second = sorted(folder.iterdir())[1]
    if how == "foreign":
        (folder / "9").write_bytes(bytes(QUEUE_FILE_BYTES))
    elif how == "short":
        second.write_bytes(second.read_bytes()[:77])
    elif how == "long":
        second.write_bytes(second.read_bytes() + b"x")
    else:
        second.unlink()
    refusal(closed)
    repaired(closed)
    assert lost(before, known(closed)) == []
    assert closed.view() == view


def test_a_wrong_checksum_is_made_anew_and_no_byte_of_the_log(tmp_path: Path) -> None:
    """The bytes straight through tell which of the two is wrong."""
    store = StoreUnderTest(tmp_path / "store", log_file_bytes=6 * BLOCK_BYTES)
    for number in range(250):
        store.send(f"{number}" * 400)
    before = known(store)
    store.close()
    end = store.store.end
    original = store.log_files()[0].read_bytes()[:end]
    table = store.root / "checksums" / QUEUE_FILE
    sound = table.read_bytes()
    overwrite(table, 8, b"\1\2\3\4")
    (finding,) = store.findings()
    assert (finding.what, finding.path, finding.position) == ("wrong-checksum", table, 8)
    assert whats(store) == ["new-checksums"]
    repaired(store)
    assert lost(before, known(store)) == []
    store.close()
    assert table.read_bytes() == sound
    assert store.log_files()[0].read_bytes()[:end] == original


def test_a_broken_mark_is_written_anew(closed: StoreUnderTest, before: Known) -> None:
    """Without it a lost end would be taken for an end."""
    flip(closed.log_files()[0], mark_position(LOG_FILE_BYTES) + 12)
    assert [each.what for each in closed.findings()] == ["broken-mark"]
    assert whats(closed) == ["new-checksums"]
    repaired(closed)
    assert lost(before, known(closed)) == []


# ---- the side folder, and being interrupted


def test_the_report_tells_all(closed: StoreUnderTest, before: Known) -> None:
    """Readable, with where everything went."""
    begin, _, _ = before["orders", 1, 2]
    wipe(closed, begin + 95, 7, b"?")
    side = repaired(closed)
    assert side.parent == closed.root
    assert side.name.startswith("repaired-")
    report = json.loads((side / "report.json").read_text())
    first = report["actions"][0]
    assert (first["what"], first["path"]) == ("repaired-place", f"commitlog/{QUEUE_FILE}")
    assert first["lost"] == ["orders queue 1, queue offset 2"]
    assert (closed.root / first["kept"][0]).exists()
    assert len(report["findings"]) == 2


def test_two_repairs_have_two_folders(closed: StoreUnderTest) -> None:
    """Also within one second."""
    sides = set()
    for name in ("a", "b"):
        (closed.root / "commitlog" / name).write_text("mine")
        sides.add(repaired(closed))
        closed.close()
    assert len(sides) == 2


class Failing(QuickFiles):
    """The n-th change fails, and all that follow: the process is gone."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.left = calls

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise StoreUnavailable("write to", "disk", "the process is gone")

    def create(self, path: Path, size: int) -> None:
        self._count()
        super().create(path, size)

    def write(self, path: Path, position: int, data: bytes) -> None:
        if self.left == 0:
            # Torn in the middle.
            super().write(path, position, data[: len(data) // 2])
        self._count()
        super().write(path, position, data)

    def replace(self, path: Path, data: bytes, *, keep_previous: bool = False) -> None:
        self._count()
        super().replace(path, data, keep_previous=keep_previous)

    def remove(self, path: Path) -> None:
        self._count()
        super().remove(path)

    def cut(self, *place: Any, **options: Any) -> None:
        self._count()
        super().cut(*place, **options)


def test_a_repair_may_be_interrupted_anywhere(
    closed: StoreUnderTest, before: Known, thinned: Thinned
) -> None:
    """What was removed is in one of the side folders, and a new repair goes on."""
    begin, size, _ = before["orders", 1, 2]
    wipe(closed, begin + 90, 9, b"?")
    tail = max(value[0] for value in before.values())
    wipe(closed, tail + 30, 20, b"?")
    (closed.root / "commitlog" / ".DS_Store").write_text("mine")
    (closed.root / "config" / "delayOffset.json").write_bytes(b"{")
    broken = raw(closed, begin, size)
    untouched = contents(closed.root)
    gone = sorted(k for k, v in before.items() if v[0] in (begin, tail))
    for calls in thinned(range(1_000), 13):
        folder = closed.root.with_name(f"copy{calls}")
        shutil.copytree(closed.root, folder)
        copy = copy_of(closed, folder)
        try:
            repaired(copy, files=Failing(calls))
            break
        except StoreUnavailable:
            copy.crash()
            sides = list(folder.glob("repaired-*"))
            changed = {
                name
                for name, data in contents(folder).items()
                if not name.startswith("repaired-") and untouched.get(name) != data
            }
            assert not changed or any((side / "report.json").exists() for side in sides)
            repaired(copy)
        assert lost(before, known(copy)) == gone, calls
        kept = [path.read_bytes() for path in folder.glob(f"repaired-*/commitlog/*@{begin}*")]
        assert broken in kept, calls
        copy.crash()
        shutil.rmtree(folder)
    assert 20 < calls < 900


def copy_of(store: StoreUnderTest, folder: Path) -> StoreUnderTest:
    """The same store elsewhere, not opened."""
    copy = StoreUnderTest.__new__(StoreUnderTest)
    copy.__dict__.update(store.__dict__)
    copy.root = folder
    copy.config = store.config.model_copy(update={"store_path": folder})
    copy.files = QuickFiles()
    return copy


# ---- the key index


def test_a_wrong_key_index_is_made_again(tmp_path: Path) -> None:
    """Moved aside; what it has to say is in the log."""
    store = StoreUnderTest(tmp_path / "store")
    for number in range(12):
        keys = {"UNIQ_KEY": f"7F{number:030d}", "KEYS": f"order-{number}"}
        store.append(new_record(f"order {number}", properties=keys))
    store.close()
    original = contents(store.root / "index")
    path = sorted((store.root / "index").iterdir())[1]
    flip(path, 40 + 4 * 7 + 3 * 20 + 3)
    broken = path.read_bytes()
    (action,) = planned(store).actions
    assert (action.what, action.path.parent.name) == ("moved-aside", "index")
    assert action.remedy == "the key index is moved aside, and made again from the log"
    side = repaired(store)
    assert (side / "index" / path.name).read_bytes() == broken
    store.close()
    assert contents(store.root / "index") == original
