"""What is made from the log can be made again: queues, progress, deliver times."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqlite.kernel.records.queue_entry import ENTRY, ENTRY_BYTES
from rmqlite.kernel.store.key_index import IndexJob, KeyIndex
from rmqlite.kernel.words.errors import StoreDamaged
from rmqlite.kernel.words.message import DELAY
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from tests.support.stores import (
    LOG_FILE_BYTES,
    QUEUE_FILE_BYTES,
    StoreUnderTest,
    contents,
    new_record,
    scheduled,
)
from tests.support.thinned import by_turns


def remove_progress(root: Path) -> None:
    for path in (root / "config").glob("storeProgress.json*"):
        path.unlink()


def remove_tables(root: Path) -> None:
    shutil.rmtree(root / "config")


def remove_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def remove_schedule(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / SCHEDULE_TOPIC)


def remove_one_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "orders" / "0")


def remove_a_first_queue_file(root: Path) -> None:
    sorted((root / "consumequeue" / "orders" / "0").iterdir())[0].unlink()


def remove_a_last_queue_file(root: Path) -> None:
    sorted((root / "consumequeue" / "orders" / "0").iterdir())[-1].unlink()


def remove_all_but_the_log(root: Path) -> None:
    remove_queues(root)
    remove_tables(root)


def damage_progress(root: Path) -> None:
    for path in (root / "config").glob("storeProgress.json*"):
        path.write_text('{"physicalOffset": "no number", "queues": []}')


def remove_index(root: Path) -> None:
    shutil.rmtree(root / "index")


def remove_a_first_index_file(root: Path) -> None:
    min((root / "index").iterdir()).unlink()


def shorten_the_index(root: Path) -> None:
    path = max((root / "index").iterdir())
    path.write_bytes(path.read_bytes()[:-1])


def damage_the_indexs_header(root: Path) -> None:
    path = max((root / "index").iterdir())
    path.write_bytes(b"\x7f" * 40 + path.read_bytes()[40:])


def remove_checkpoint_and_checksums(root: Path) -> None:
    (root / "checkpoint").unlink()
    shutil.rmtree(root / "checksums", ignore_errors=True)


LOSSES: list[Callable[[Path], None]] = [
    remove_progress,
    remove_tables,
    remove_queues,
    remove_schedule,
    remove_one_queue,
    remove_a_first_queue_file,
    remove_a_last_queue_file,
    remove_all_but_the_log,
    damage_progress,
    remove_index,
    remove_a_first_index_file,
    shorten_the_index,
    damage_the_indexs_header,
    remove_checkpoint_and_checksums,
]


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("lose", "end"), by_turns(LOSSES, ["close", "crash"]))
def test_what_is_lost_is_made_again(
    under_test: StoreUnderTest, lose: Callable[[Path], None], end: str
) -> None:
    """The log is the only truth: the store opens equal to the one that was closed."""
    under_test.fill()
    under_test.send(*["x"] * 10)
    before = under_test.view()
    under_test.persist()
    index = contents(under_test.root / "index")
    getattr(under_test, end)()
    lose(under_test.root)
    under_test.open()
    assert under_test.view() == before
    assert contents(under_test.root / "index") == index


@pytest.mark.parametrize("lose", [remove_progress, remove_index])
def test_a_long_walk_writes_its_keys_meanwhile(
    under_test: StoreUnderTest, lose: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else those of ten million records lie in memory until its end; a kill in it does no harm."""
    monkeypatch.setattr("rmqlite.kernel.store.dispatch._INDEXED_TOGETHER", 3)
    monkeypatch.setattr("rmqlite.kernel.store.dispatch._WRITTEN_TOGETHER", 5)
    under_test.fill()
    before = under_test.view()
    under_test.close()
    index = contents(under_test.root / "index")
    lose(under_test.root)
    flushed, left = KeyIndex.flushed, [2]

    def killed(keys: KeyIndex, job: IndexJob) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        flushed(keys, job)

    with monkeypatch.context() as patched:
        patched.setattr(KeyIndex, "flushed", killed)
        with pytest.raises(KeyboardInterrupt):
            under_test.open()
    under_test.open()
    assert under_test.view() == before
    assert contents(under_test.root / "index") == index


def test_an_older_progress_is_a_place_to_begin(under_test: StoreUnderTest) -> None:
    """As after RocketMQ ran on the store: the table is old, the log went on."""
    under_test.fill()
    under_test.persist()
    old = under_test.table("storeProgress.json")
    under_test.fill()
    before = under_test.view()
    under_test.close()
    under_test.write_table("storeProgress.json", old)
    under_test.open()
    assert under_test.view() == before
    assert 0 < under_test.store.recovered < before["end"]  # type: ignore[operator]


def test_a_progress_ahead_of_the_log_is_not_believed(under_test: StoreUnderTest) -> None:
    """A log restored from an older copy: the queues must not show what is no longer there."""
    under_test.fill()
    under_test.close()
    saved = {path.name: path.read_bytes() for path in under_test.log_files()}
    under_test.open()
    before = under_test.view()
    waiting = under_test.append(*[scheduled("more" * 100, 1)] * 20)
    under_test.clock.forward(1_000)
    under_test.deliver(1, *waiting)
    under_test.close()
    for path in under_test.log_files():
        path.unlink()
    for name, data in saved.items():
        (under_test.root / "commitlog" / name).write_bytes(data)
    (under_test.root / "config" / "delayOffset.json").unlink()
    (under_test.root / "config" / "delayOffset.json.bak").unlink()
    under_test.open()
    assert under_test.view() == before


@pytest.mark.parametrize("lose", [remove_queues, remove_schedule, remove_progress])
def test_deliver_times_survive_a_change_of_levels(
    under_test: StoreUnderTest, lose: Callable[[Path], None]
) -> None:
    """P5: each record keeps the delay that its level had when it was stored."""
    under_test.append(scheduled("before", 2))
    under_test.restart("1s 1h 10s 1d")
    under_test.append(scheduled("after", 2), scheduled("new level", 4))
    under_test.restart("7s")
    under_test.append(scheduled("last", 1))
    before = under_test.view()
    queue = under_test.store.queue(SCHEDULE_TOPIC, 1)
    assert queue is not None
    waits = [
        entry.tags_code - under_test.store.read_message(entry.physical_offset).store_timestamp_ms
        for entry in queue.read(0, 10)
    ]
    assert waits == [5_000, 3_600_000]
    under_test.close()
    lose(under_test.root)
    under_test.open()
    assert under_test.view() == before


def test_a_promised_deliver_time_stays_without_the_history(under_test: StoreUnderTest) -> None:
    """delayLevels.json is ours alone: a store from RocketMQ has queues but no history."""
    under_test.append(scheduled("soon", 2))
    before = under_test.view()
    under_test.close()
    remove_tables(under_test.root)
    under_test.open("1s 1h")
    assert under_test.view() == before
    # For check: what was in force then.
    under_test.write_table(
        "delayLevels.json",
        {
            "tables": [
                {"inForceFrom": 0, "messageDelayLevel": "1s 5s 10s"},
                {"inForceFrom": under_test.clock.now_ms(), "messageDelayLevel": "1s 1h"},
            ]
        },
    )


def test_a_deliver_time_that_rocketmq_made_up_is_corrected(under_test: StoreUnderTest) -> None:
    """Its abnormal recovery writes the tags hash, and a 2 h message is due in 1970 (§4.4)."""
    (waiting,) = under_test.append(scheduled("in five seconds", 2))
    before = under_test.view()
    under_test.crash()
    remove_progress(under_test.root)
    path = under_test.root / "consumequeue" / SCHEDULE_TOPIC / "1" / f"{0:020d}"
    entry = ENTRY.pack(waiting.physical_offset, waiting.size, 2598919)
    path.write_bytes(entry.ljust(QUEUE_FILE_BYTES, b"\0"))
    under_test.open()
    assert under_test.view() == before


@pytest.mark.one_of(3)
@pytest.mark.parametrize("code", [2598919, -1234567, 0, (1 << 31) - 1, -(1 << 31)])
@pytest.mark.parametrize("pending", range(3))
def test_a_made_up_deliver_time_is_found_behind_the_persisted_point_too(
    under_test: StoreUnderTest, code: int, pending: int
) -> None:
    """RocketMQ ran on the store and made its queues again, and our table says: all known."""
    waiting = under_test.append(*[scheduled(f"later {n}", 2) for n in range(5)])
    under_test.clock.forward(5_000)
    under_test.deliver(2, *waiting[:2])
    before = under_test.view()
    under_test.close()
    known = under_test.table("storeProgress.json")
    made_up = waiting[2 + pending]
    assert known["physicalOffset"] > made_up.physical_offset
    path = under_test.root / "consumequeue" / SCHEDULE_TOPIC / "1" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    ENTRY.pack_into(data, (2 + pending) * ENTRY_BYTES, made_up.physical_offset, made_up.size, code)
    path.write_bytes(data)
    (under_test.root / "lock").write_bytes(b"lock")
    under_test.open()
    assert under_test.view() == before


def test_rocketmqs_delay_offsets_are_adopted(under_test: StoreUnderTest) -> None:
    """What it delivered while it ran on the store bears no pointer back; it is not repeated."""
    under_test.append(*[scheduled("soon", 2)] * 5)
    under_test.close()
    under_test.write_table("delayOffset.json", {"offsetTable": {"2": 3}})
    under_test.open()
    assert under_test.store.progress.of(2).ranges() == [(0, 3)]


def test_a_delay_offset_beyond_its_queue_is_clamped(under_test: StoreUnderTest) -> None:
    """Or the next messages of that level would never be delivered."""
    under_test.append(*[scheduled("soon", 2)] * 5)
    under_test.close()
    under_test.write_table("delayOffset.json", {"offsetTable": {"2": 9, "3": 4, "77": 1}})
    under_test.open()
    assert under_test.store.progress.delay_offsets() == {2: 5}
    under_test.append(scheduled("next", 2))
    assert under_test.store.progress.of(2).below == 5
    under_test.persist()


def test_a_delay_offset_behind_ours_changes_nothing(under_test: StoreUnderTest) -> None:
    """It is persisted every ten seconds; the log knows better."""
    waiting = under_test.append(*[scheduled("soon", 1)] * 5)
    under_test.clock.forward(1_000)
    under_test.deliver(1, *waiting[:4])
    under_test.close()
    under_test.write_table("delayOffset.json", {"offsetTable": {"1": 2}})
    under_test.open()
    assert under_test.store.progress.delay_offsets() == {1: 4}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"offsetTable":{"x":"y"}}', '{"offsetTable":[]}'])
def test_unreadable_delay_offsets_cost_nothing(under_test: StoreUnderTest, text: str) -> None:
    """They are a copy of what the log says."""
    waiting = under_test.append(*[scheduled("soon", 1)] * 2)
    under_test.clock.forward(1_000)
    under_test.deliver(1, *waiting)
    under_test.close()
    for path in (under_test.root / "config").glob("delayOffset.json*"):
        path.write_text(text)
    under_test.open()
    assert under_test.store.progress.delay_offsets() == {1: 2}


def test_an_unreadable_history_of_levels_is_damage(under_test: StoreUnderTest) -> None:
    """Guessing would break promises: the sentence names the file."""
    under_test.close()
    path = under_test.root / "config" / "delayLevels.json"
    text = path.read_text()
    path.write_text('{"tables": []}')
    with pytest.raises(StoreDamaged, match=r"delayLevels\.json"):
        under_test.open()
    path.write_text(text)
    under_test.open()


def test_a_topic_that_was_made_again_begins_anew(under_test: StoreUnderTest) -> None:
    """RocketMQ deletes a topic's queues, not its records; queue offsets then begin at 0."""
    under_test.send(*["old"] * 25)
    under_test.close()
    remove_one_queue(under_test.root)
    # As RocketMQ would go on: the next record of the topic has queue offset 0 again.
    table = under_test.table("storeProgress.json")
    del table["queues"]["orders"]
    under_test.write_table("storeProgress.json", table)
    under_test.open()
    under_test.send("new", "newer")
    assert under_test.bodies() == [b"new", b"newer"]
    under_test.crash()
    remove_progress(under_test.root)
    under_test.open()
    assert under_test.bodies() == [b"new", b"newer"]


def test_stale_queue_files_are_replaced(under_test: StoreUnderTest) -> None:
    """Queues of an older copy of the store, while the log lost its first files since."""
    under_test.send(*["x" * 300] * 3)
    under_test.close()
    saved = under_test.root.with_name("saved")
    shutil.copytree(under_test.root / "consumequeue", saved)
    under_test.open()
    under_test.send(*["y" * 300] * 60)
    under_test.store.drop_before(4 * LOG_FILE_BYTES)
    before = under_test.view()
    under_test.crash()
    remove_queues(under_test.root)
    shutil.copytree(saved, under_test.root / "consumequeue")
    under_test.open()
    assert under_test.view() == before
    under_test.crash()
    under_test.open()
    assert under_test.view() == before


def test_a_queue_whose_records_are_gone_keeps_its_offsets(under_test: StoreUnderTest) -> None:
    """Consumers have committed offsets in it; to begin at 0 again would hide new messages."""
    under_test.send(*["old"] * 13, topic="rare")
    under_test.send(*["x" * 900] * 20)
    under_test.store.drop_before(2 * LOG_FILE_BYTES)
    assert under_test.send("new", topic="rare")[0].queue_offset == 13
    under_test.store.drop_before(3 * LOG_FILE_BYTES)
    under_test.close()
    remove_progress(under_test.root)
    under_test.open()
    assert under_test.send("newer", topic="rare")[0].queue_offset == 14


def test_rocketmqs_retention_is_noticed(under_test: StoreUnderTest) -> None:
    """It removes log and queue files while our table still tells of them."""
    under_test.send(*["x" * 300] * 60)
    under_test.close()
    for path in under_test.log_files()[:4]:
        path.unlink()
    under_test.open()
    expected = under_test.view()
    low = under_test.store.queue("orders", 0)
    assert low is not None
    first = low.min_offset
    assert first >= 40
    under_test.crash()
    table = under_test.table("storeProgress.json")
    table["queues"]["orders"]["0"] = [0, 60]
    under_test.write_table("storeProgress.json", table)
    under_test.open()
    assert under_test.view() == expected


def test_scheduled_records_that_expired_are_over(under_test: StoreUnderTest) -> None:
    """RocketMQ's retention does not wait for them; delivery must go on behind them."""
    under_test.append(*[scheduled("x" * 300, 2)] * 20)
    under_test.close()
    under_test.log_files()[0].unlink()
    under_test.open()
    queue = under_test.store.queue(SCHEDULE_TOPIC, 1)
    assert queue is not None
    assert under_test.store.progress.of(2).below == queue.min_offset > 0


def test_prepared_transactions_have_no_queue_entry(under_test: StoreUnderTest) -> None:
    """RocketMQ's half messages and roll-backs; a committed one's pointer is no delivery."""
    under_test.append(scheduled("waits", 1))
    under_test.crash()
    under_test.open()
    (committed,) = under_test.append(
        new_record("committed", sys_flag=0x8, completes=7, properties={DELAY: "1"})
    )
    under_test.crash()
    (path,) = under_test.log_files()
    # Make it a prepared one on disk: its type lies in the sys flag's lowest byte.
    data = bytearray(path.read_bytes())
    remove_progress(under_test.root)
    under_test.open()
    assert under_test.bodies() == [b"committed"]
    assert under_test.store.progress.delay_offsets() == {}
    under_test.crash()
    data[committed.physical_offset + 39] = 0x4
    path.write_bytes(data)
    remove_progress(under_test.root)
    remove_queues(under_test.root)
    under_test.open()
    assert under_test.bodies() == []


@pytest.mark.parametrize(("signature", "is_kept"), [(b"lock", True), (b"rmql", False)])
def test_who_had_the_store_last_is_known_from_its_lock(
    tmp_path: Path, signature: bytes, is_kept: bool
) -> None:
    """RocketMQ delayed it by a table of its own; what we wrote ourselves may be torn instead."""
    under_test = StoreUnderTest(tmp_path / "store")
    under_test.persist()
    (waiting,) = under_test.append(scheduled("waits", 2))
    under_test.crash()
    (under_test.root / "lock").write_bytes(signature)
    path = under_test.root / "consumequeue" / SCHEDULE_TOPIC / "1" / f"{0:020d}"
    promised_ms = waiting.store_timestamp_ms + 60_000
    path.write_bytes(
        ENTRY.pack(waiting.physical_offset, waiting.size, promised_ms)
        + path.read_bytes()[ENTRY_BYTES:]
    )
    under_test.open()
    queue = under_test.store.queue(SCHEDULE_TOPIC, 1)
    assert queue is not None
    entry = queue.entry(0)
    assert entry is not None
    assert entry.tags_code == (promised_ms if is_kept else waiting.store_timestamp_ms + 5_000)
    assert (under_test.root / "lock").read_bytes() == b"rmql"
