"""What RocketMQ finds in a store that is handed over: the pending timers, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqlite.kernel.records.record import Written
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.errors import InvalidValue, StoreUnavailable
from rmqlite.kernel.words.message import (
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    TIMER_EXACT,
    TIMER_OUT_MS,
    UNIQ_KEY,
)
from rmqlite.kernel.words.names import CANCELLED_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from rmqlite.store_tools.moving.handover import DAY_MS, Handover, hand_over
from rmqlite.store_tools.moving.timer_files import CHECK, SLOT, UNIT
from tests.support.clock import FakeClock
from tests.support.stores import StoreUnderTest, contents, new_record, scheduled

SLOTS = 1_209_600
LOG_FILE_BYTES = 4_096
ORDERS_HASH = -1_008_770_331
"""Java's hash of "orders"."""


class Timers:
    """A store with timers, and what RocketMQ 5 would make of its files."""

    def __init__(self, under_test: StoreUnderTest) -> None:
        self.under_test = under_test
        self.root = under_test.root
        self.now_ms = under_test.clock.now_ms()

    def add(self, name: str, after_ms: int) -> Written:
        own = {UNIQ_KEY: name, REAL_TOPIC: "orders", REAL_QID: "0", TIMER_EXACT: "1"}
        own |= {TIMER_OUT_MS: str(self.now_ms + after_ms)}
        return self.under_test.append(new_record(name, TIMER_TOPIC, 0, properties=own))[0]

    def cancel(self, timer: Written) -> None:
        own = {TIMER_OUT_MS: "1", REAL_TOPIC: "orders", REAL_QID: "0"}
        end = timer.physical_offset + timer.size
        self.under_test.append(
            new_record("", "rmq_sys_SCHEDULE_CANCELLED", 0, properties=own, completes=end)
        )
        self.under_test.complete(TIMERS, timer.queue_offset)

    def hand_over(self, to: str, *, dry_run: bool = False) -> Handover:
        """Of the store after a crash; it is open again afterwards."""
        self.under_test.sync()
        self.under_test.crash()
        clock = FakeClock(self.now_ms)
        try:
            return hand_over(self.root, to, self.under_test.config, dry_run=dry_run, clock=clock)
        finally:
            self.under_test.open()

    def waiting(self, topic: str, queue_id: int, wait_queue: int) -> list[tuple[str, int]]:
        """Body and time from now on of what is pending, in the order of the queue."""
        store = self.under_test.store
        queue = store.queue(topic, queue_id)
        assert queue is not None
        waits = store.progress.of(wait_queue).open_between(queue.min_offset, queue.max_offset)
        entries = [queue.read(each, 1)[0] for each in waits]
        return [
            (store.read_message(each.physical_offset).body.decode(), each.tags_code - self.now_ms)
            for each in entries
        ]

    def check_point(self) -> tuple[int, ...]:
        return CHECK.unpack((self.root / "config" / "timercheck").read_bytes())

    def units(self) -> Iterator[tuple[int, ...]]:
        """Position and fields of each, up to the check point."""
        end, at = self.check_point()[1], 0
        log = b"".join(path.read_bytes() for path in sorted((self.root / "timerlog").iterdir()))
        while at < end:
            if int.from_bytes(log[at : at + 4]) != UNIT.size:
                blank = int.from_bytes(log[at : at + 4])
                assert log[at + 12 : at + 16] == b"\xcb\xd4\x31\x94"
                at += blank
                assert at % LOG_FILE_BYTES == 0
                continue
            yield at, *UNIT.unpack_from(log, at)
            at += UNIT.size

    def slots(self) -> dict[int, list[tuple[str, bool]]]:
        """Start of a slot, from now on -> name and roll bit of its timers, by the wheel."""
        wheel = (self.root / "timerwheel").read_bytes()
        assert len(wheel) == SLOTS * SLOT.size
        units = {at: fields for at, *fields in self.units()}
        found: dict[int, list[tuple[str, bool]]] = {}
        for second, first, last, count, _ in filter(any, SLOT.iter_unpack(wheel)):
            place = wheel.index(SLOT.pack(second, first, last, count, 0))
            assert place == second % SLOTS * SLOT.size
            names, at, oldest = [], last, last
            while at >= 0:
                _, previous, magic, written_ms, delay_ms, offset, _, topic_hash, _ = units[at]
                assert written_ms + delay_ms == second * 1_000
                name = self.under_test.store.read_message(offset).body.decode()
                names.append((name, magic == 3))
                assert topic_hash in (0, ORDERS_HASH)
                at, oldest = previous, at
            assert (oldest, len(names)) == (first, count)
            found[second * 1_000 - self.now_ms] = names[::-1]
        return found


@pytest.fixture
def timers(under_test: StoreUnderTest) -> Timers:
    return Timers(under_test)


def test_rocketmq_5_has_each_pending_timer_in_its_slot(timers: Timers) -> None:
    """A slot is taken when it is over: so a due time of a whole second ends its slot."""
    timers.add("whole", 5_000)
    timers.add("later", 5_999)
    timers.cancel(timers.add("cancelled", 5_500))
    timers.add("first", 100)
    timers.add("overdue", -30 * DAY_MS)
    timers.cancel(timers.add("last", 7_000))
    found = timers.hand_over("5.3")
    assert found == Handover(4, 1, timers.now_ms - 30 * DAY_MS, timers.now_ms + 5_999)
    assert timers.slots() == {
        # RocketMQ goes on behind the entry of the last unit; its slot is over.
        -1_000: [("last", False)],
        0: [("overdue", False), ("first", False)],
        4_000: [("whole", False)],
        5_000: [("later", False)],
    }
    next_slot_ms, log_end, *next_entries, _, _, _, _ = timers.check_point()
    assert (next_slot_ms, log_end) == (timers.now_ms, 5 * UNIT.size)
    assert next_entries == [6, 6]


def test_a_far_timer_gets_a_slot_in_which_rocketmq_gives_it_the_next(timers: Timers) -> None:
    """Not all far ones in one slot: RocketMQ appends each of them anew."""
    for days in (1, 3, 500, 5):
        timers.add(f"{days} days", days * DAY_MS)
    timers.hand_over("5.4")
    found = {at: names for at, names in timers.slots().items() if at >= 0}
    assert found == {
        DAY_MS - 1_000: [("1 days", False)],
        DAY_MS: [("3 days", True)],
        DAY_MS + 28_800_000: [("5 days", True)],
        DAY_MS + 57_600_000: [("500 days", True)],
    }


def test_the_timer_log_has_the_file_length_that_it_had(timers: Timers) -> None:
    """RocketMQ does not start with another one; a file ends with a blank."""
    folder = timers.root / "timerlog"
    folder.mkdir()
    for number in range(2):
        path = folder / f"{number * LOG_FILE_BYTES:020d}"
        path.write_bytes(b"\1" * LOG_FILE_BYTES)
    (timers.root / "timerwheel.5000").touch()
    for number in range(200):
        timers.add(f"{number}", number * 77)
    timers.hand_over("5.5")
    assert [path.stat().st_size for path in folder.iterdir()] == [LOG_FILE_BYTES] * 3
    names = [name for _, slot in sorted(timers.slots().items())[1:] for name, _ in slot]
    assert names == [f"{number}" for number in range(200)]
    assert not (timers.root / "timerwheel.5000").exists()


@pytest.mark.parametrize("to", ["5.3", "4.9"])
def test_a_store_without_timers_may_be_handed_over(timers: Timers, to: str) -> None:
    """And one whose timers are all completed."""
    assert timers.hand_over(to) == Handover(0, 0, 0, 0)
    timers.cancel(timers.add("cancelled", 5_500))
    assert timers.hand_over(to).pending == 0
    assert timers.waiting(TIMER_TOPIC, 0, TIMERS) == []


def test_handing_over_changes_nothing_here_and_may_be_repeated(timers: Timers) -> None:
    """Whoever changes the mind goes on here."""
    timers.add("one", 60_000)
    timers.cancel(timers.add("two", 60_000))
    timers.hand_over("5.3")
    first, before = contents(timers.root / "timerlog"), timers.under_test.view()
    timers.hand_over("5.3")
    assert contents(timers.root / "timerlog") == first
    assert timers.under_test.view() == before
    assert timers.waiting(TIMER_TOPIC, 0, TIMERS) == [("one", 60_000)]


@pytest.mark.parametrize("to", ["5.3", "4.9"])
def test_a_dry_run_hands_nothing_over(timers: Timers, to: str) -> None:
    """It says what would be."""
    timers.add("one", 60_000)
    before = timers.under_test.view()
    planned = timers.hand_over(to, dry_run=True)
    assert timers.under_test.view() == before
    assert not (timers.root / "timerwheel").exists()
    assert timers.hand_over(to) == planned


@pytest.mark.parametrize("to", ["5.3", "4.9"])
def test_what_waits_in_a_level_is_behind_what_does_not(timers: Timers, to: str) -> None:
    """RocketMQ knows a level by one offset: it would deliver what was cancelled behind another.

    The due times stay, also if the queues are made anew; an overdue message is due in a second.
    """
    under_test = timers.under_test
    for name, after_ms in {
        "overdue": 7_000,
        "older": 1_000,
        "cancelled": 500,
        "newer": 500,
    }.items():
        (written,) = under_test.append(scheduled(name, 2))
        if name == "cancelled":
            own = {DELAY: "2", REAL_TOPIC: "orders", REAL_QID: "0"}
            end = written.physical_offset + written.size
            under_test.append(new_record("", CANCELLED_TOPIC, 0, properties=own, completes=end))
            under_test.complete(2, written.queue_offset)
        under_test.clock.forward(after_ms)
    timers.now_ms = under_test.clock.now_ms()
    timers.hand_over(to)
    expected = [("overdue", 1_000), ("older", 3_000), ("newer", 4_500)]
    for is_lost in (False, True):
        if is_lost:
            under_test.crash()
            for path in (timers.root / "config").glob("storeProgress.json*"):
                path.unlink()
            under_test.open()
        assert timers.waiting(SCHEDULE_TOPIC, 1, 2) == expected
        assert under_test.store.progress.of(2).count_above == 0


@pytest.mark.parametrize("to", ["", "4.8", "5", "6.0"])
def test_another_version_is_refused(timers: Timers, to: str) -> None:
    """By its name."""
    with pytest.raises(InvalidValue, match=r"one of 4.9, 5.3"):
        timers.hand_over(to)


# ---- 4.9


def test_4_9_has_the_timers_in_due_order_in_a_level_behind_all_others(timers: Timers) -> None:
    """4.9 looks at the head of a level's queue, and at no message before its time."""
    timers.under_test.append(scheduled("waits", 2))
    for name, after_ms in {"c": 9 * DAY_MS, "a": 1_234, "b": 60_000, "late": -5_000}.items():
        timers.add(name, after_ms)
    timers.cancel(timers.add("cancelled", 5_500))
    found = timers.hand_over("4.9")
    assert found.levels == "1s 5s 10s 10d"
    expected = [("late", -5_000), ("a", 1_234), ("b", 60_000), ("c", 9 * DAY_MS)]
    for is_lost in (False, True):
        if is_lost:
            timers.under_test.crash()
            for path in (timers.root / "config").glob("storeProgress.json*"):
                path.unlink()
            timers.under_test.open()
        assert timers.waiting(SCHEDULE_TOPIC, 3, 4) == expected
        assert timers.waiting(TIMER_TOPIC, 0, TIMERS) == []
    assert timers.hand_over("4.9") == found
    assert timers.waiting(SCHEDULE_TOPIC, 3, 4) == expected
    timers.add("d", 30_000)
    assert timers.hand_over("4.9").levels == "1s 5s 10s 10d 10d"
    assert timers.waiting(SCHEDULE_TOPIC, 4, 5) == [("d", 30_000)]


def test_after_4_9_rocketmq_5_has_what_is_left_in_the_levels(timers: Timers) -> None:
    """They are timers again, each once; RocketMQ 5 would never deliver from such a level."""
    timers.under_test.append(scheduled("waits", 2))
    for name, after_ms in {"a": 1_234, "b": 60_000, "c": DAY_MS, "late": -5_000}.items():
        timers.add(name, after_ms)
    timers.hand_over("4.9")
    left = sorted(timers.waiting(SCHEDULE_TOPIC, 3, 4))
    timers.add("d", 5_000)
    left.append(("d", 5_000))
    for is_dry_run in (True, False, False):
        found = timers.hand_over("5.3", dry_run=is_dry_run)
        assert (found.pending, found.overdue, found.levels) == (5, 1, "")
        assert (found.first_due_ms, found.last_due_ms) == (
            timers.now_ms - 5_000,
            timers.now_ms + DAY_MS,
        )
        assert bool(timers.waiting(SCHEDULE_TOPIC, 3, 4)) == is_dry_run
    assert sorted(timers.waiting(TIMER_TOPIC, 0, TIMERS)) == sorted(left)
    # A slot that is over says where RocketMQ goes on.
    slots = [names for start_ms, names in timers.slots().items() if start_ms > -1_000]
    assert sorted(name for names in slots for name, _ in names) == ["a", "b", "c", "d", "late"]
    assert timers.waiting(SCHEDULE_TOPIC, 1, 2)[0][0] == "waits"
    # The log itself says so, too.
    timers.under_test.crash()
    for path in (timers.root / "config").glob("storeProgress.json*"):
        path.unlink()
    timers.under_test.open()
    assert timers.waiting(SCHEDULE_TOPIC, 3, 4) == []
    assert sorted(timers.waiting(TIMER_TOPIC, 0, TIMERS)) == sorted(left)


def test_a_handover_that_was_interrupted_goes_on(
    timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each timer once; in another level, because those before it wait in the first one."""
    for number in range(250):
        timers.add(f"{number}", (number + 1) * 1_000)
    append, calls = MessageStore.append, iter(range(3))

    def fails(store: MessageStore, *given: object) -> list[Written]:
        if next(calls) == 2:
            raise StoreUnavailable("write to", "commitlog", "the disk is full")
        return append(store, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(MessageStore, "append", fails)
    with pytest.raises(StoreUnavailable):
        timers.hand_over("4.9")
    monkeypatch.undo()
    timers.hand_over("4.9")
    names = [
        name for level in (4, 5) for name, _ in timers.waiting(SCHEDULE_TOPIC, level - 1, level)
    ]
    assert names == [f"{number}" for number in range(250)]


def test_a_table_of_levels_that_is_full_is_refused(tmp_path: Path) -> None:
    """4.9 would deliver none of a level that its table has not."""
    full = StoreUnderTest(tmp_path / "full", levels=" ".join(["1s"] * 64))
    timers = Timers(full)
    timers.add("one", 60_000)
    with pytest.raises(InvalidValue, match="fewer than 64 levels"):
        timers.hand_over("4.9")
    assert timers.waiting(TIMER_TOPIC, 0, TIMERS) == [("one", 60_000)]
    full.crash()
