"""The table of the timers is a cache: whatever becomes of it, every timer is delivered once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from rmqlite.kernel.store import timer_index as index
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.timer_index import IndexMark, IndexWrite, TimerIndex, check_sqlite
from rmqlite.kernel.waits import unindexed
from rmqlite.kernel.words.errors import Overloaded, StoreUnavailable
from tests.support.timer_queues import TimersUnderTest

COUNT = 3_000


@pytest.fixture
def timers(tmp_path: Path) -> TimersUnderTest:
    """With timers in the table, completed ones among them, and newer ones in memory."""
    made = TimersUnderTest(tmp_path)
    made.add(*((at * 7) % 1_000 + 10 for at in range(COUNT)))
    made.written()
    made.complete(*range(100, 200))
    made.add(5, 500)
    return made


def execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


def truncate(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def overwrite(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8_192)
        file.write(b"\xa5" * (size - 8_192))


def link(path: Path) -> None:
    target = path.rename(path.with_name("elsewhere"))
    path.symlink_to(target)


def of_another_queue(path: Path) -> None:
    execute(path, "UPDATE mark SET physical_offset = physical_offset + 1")


WAYS: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "empty": lambda path: truncate(path, 0),
    "cut in the header": lambda path: truncate(path, 50),
    "cut after two pages": lambda path: truncate(path, 8_192),
    "pages overwritten": overwrite,
    "no database": lambda path: path.write_bytes(b"no database at all" * 1_000),
    "foreign": lambda path: execute(path, "DROP TABLE mark"),
    "other columns": lambda path: execute(path, "ALTER TABLE mark ADD COLUMN more INTEGER"),
    "older": lambda path: execute(path, "UPDATE mark SET format = 0"),
    "without a mark": lambda path: execute(path, "DELETE FROM mark"),
    "of another queue": of_another_queue,
    "ahead of its queue": lambda path: execute(path, "UPDATE mark SET upto = 1000000"),
    "a link": link,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_is_not_the_table_is_made_again(
    timers: TimersUnderTest, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """While the broker was down somebody did this to it."""
    timers.written()
    timers.index.close()
    WAYS[way](timers.path)
    timers.open()
    delivered = timers.deliver(600)
    timers.catch_up()
    timers.check()
    delivered += timers.deliver(10_000)
    assert len(set(delivered)) == len(delivered) == COUNT + 2 - 100
    said = [record.getMessage() for record in caplog.records]
    assert len([text for text in said if "is made again reason=" in text]) == (way != "deleted")
    # The new one is as good as the old one was.
    timers.add(20_000)
    timers.restart()
    timers.check()
    assert timers.rows() == 1


def test_a_table_that_fails_while_it_is_read_is_made_again(timers: TimersUnderTest) -> None:
    """Nothing is lost, and what is in memory is delivered meanwhile."""
    timers.written()
    timers.index.close()
    execute(timers.path, "DROP TABLE timers")
    timers.queue.keys._read_to = 0
    timers.add(20, 30)
    timers.queue.keys.catch_up()
    assert timers.deliver(15)[0] == (5, COUNT)
    timers.catch_up()
    timers.check()


def test_a_table_that_fails_in_a_write_is_made_again(timers: TimersUnderTest) -> None:
    """The thread that writes cannot do that: the broker does when the write has ended."""
    write = timers.begin()
    timers.index.close()
    execute(timers.path, "DROP TABLE timers")
    with pytest.raises(index.IndexDamaged) as caught:
        write.run()
    timers.add(7)
    timers.queue.keys.end_write(caught.value)
    timers.write = None
    timers.catch_up()
    timers.check()


def test_a_row_with_another_due_time_never_delivers_early(timers: TimersUnderTest) -> None:
    """SQLite has no checksums; the queue's entry is what counts."""
    timers.written()
    timers.index.close()
    execute(timers.path, "UPDATE timers SET due_ms = 1 WHERE queue_offset = 2500")
    timers.open()
    assert timers.deliver(4) == []
    timers.catch_up()
    timers.check()


def test_a_full_disk_costs_no_timer(timers: TimersUnderTest) -> None:
    """The write may run again; until then all are in memory, and are delivered."""
    timers.written()
    writer = timers.index._writer
    assert writer is not None
    timers.add(*range(2_000, 12_000))
    writer.execute("PRAGMA max_page_count = 1").fetchall()
    write = timers.begin()
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as caught:
            write.run()
        assert caught.value.is_full
    timers.check()
    assert timers.deliver(600)[0] == (5, COUNT)
    timers.add(700)
    writer.execute("PRAGMA max_page_count = 1000000").fetchall()
    write.run()
    timers.end()
    timers.check()
    timers.written()
    timers.kill()
    timers.check()
    assert timers.rows() == len(timers.waiting())


def test_only_the_brokers_user_may_read_the_table(tmp_path: Path) -> None:
    """As every file of a store; SQLite itself would let others read it."""
    table = TimerIndex(SystemFiles(), tmp_path / "timers")
    table.make_folder()
    table.write(IndexWrite(table, 0, (), (), IndexMark(0, -1, -1, 0)))
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "timers").iterdir()}
    assert modes.keys() == {"timers.db", "timers.db-wal", "timers.db-shm"}
    assert set(modes.values()) == {0o600}
    table.close()


def test_too_many_timers_in_memory_are_refused(
    timers: TimersUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as the table cannot be written; a retry helps."""
    monkeypatch.setattr(unindexed, "UNINDEXED_MAX", 10)
    timers.queue.keys.unindexed.check_room()
    timers.add(*range(50, 61))
    with pytest.raises(Overloaded):
        timers.queue.keys.unindexed.check_room()
    write = timers.begin()
    with pytest.raises(Overloaded):
        timers.queue.keys.unindexed.check_room()
    write.run()
    timers.end()
    timers.queue.keys.unindexed.check_room()


def test_many_timers_of_one_millisecond_are_neighbours(tmp_path: Path) -> None:
    """They leave in slices of that many, and only the next ones are in memory."""
    timers = TimersUnderTest(tmp_path)
    for _ in range(10):
        timers.add(*[50] * 2_000)
    timers.written()
    timers.kill()
    assert not timers.queue.first_due(49, 1_000)
    first = 0
    while timers.queue.next_due_ms() is not None:
        offsets = timers.queue.first_due(50, 700)
        assert offsets
        assert offsets == range(first, first + len(offsets))
        first = offsets[-1] + 1
        assert len(timers.queue.keys._window) <= 2 * 1_024
        timers.complete(*offsets)
    assert first == 20_000
    timers.written()
    assert timers.rows() == 0


def test_a_row_leaves_only_when_its_completion_is_on_disk(timers: TimersUnderTest) -> None:
    """Else a power cut would lose the completion and leave no row: the timer would be lost."""
    timers.written()
    timers.complete(2_000)
    write = timers.queue.keys.begin_write()
    assert write.log_end == timers.log_end > timers.durable_end
    timers.complete(2_001)
    # Not what was completed since.
    assert [key & index.OFFSETS for key in write.gone] == [2_000]


def test_rows_that_a_crash_has_left_are_found(timers: TimersUnderTest) -> None:
    """They would be counted, and two years later read in vain."""
    timers.written()
    timers.complete(*range(1_000, 2_000))
    timers.kill()
    timers.catch_up()
    timers.check()
    timers.written()
    assert timers.rows() == len(timers.waiting())


def test_entries_that_were_removed_are_not_counted(timers: TimersUnderTest) -> None:
    """Retention may take the beginning of the queue when the disk is full."""
    timers.written()
    timers.queue.queue.min_offset = 1_500
    timers.queue.skip_removed()
    timers.ended += [(each, 0) for each in range(1_500) if not 100 <= each < 200]
    timers.catch_up()
    timers.check()


def test_an_old_sqlite_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, not at the first timer."""
    check_sqlite()
    monkeypatch.setattr(index, "SQLITE_LEAST", (99, 0, 0))
    with pytest.raises(StoreUnavailable, match=r"SQLite 99\.0\.0 or newer"):
        check_sqlite()
