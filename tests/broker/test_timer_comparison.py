"""The table of the timers is compared with the queue: a damaged one is found and made again."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rmqlite.kernel.process import indexing
from rmqlite.kernel.process.indexing import Indexing
from rmqlite.kernel.store import timer_index
from rmqlite.store_tools.check import check
from rmqlite.store_tools.checking.tables import WRONG_TABLE
from tests.support.brokers import BrokerUnderTest
from tests.support.loops import AtOnce, run_with
from tests.support.made_brokers import Make
from tests.support.messages import TOPIC, create_topic
from tests.support.timer_queues import TimersUnderTest
from tests.support.timers import send_drafts, timer_draft

MADE_AGAIN = "the index of the timers is made again"
HEADER_BYTES = 100
HARMS = {
    "a row is gone": "DELETE FROM timers WHERE queue_offset = 700",
    "all rows are gone": "DELETE FROM timers",
    "a row is due later": "UPDATE timers SET due_ms = due_ms + 64 WHERE queue_offset = 700",
    "a row is due earlier": "UPDATE timers SET due_ms = due_ms - 1 WHERE queue_offset = 700",
    "a row is of another timer": "UPDATE timers SET queue_offset = 500 WHERE queue_offset = 700",
    "a timer has two rows": "INSERT INTO timers VALUES (50000, 700)",
    "a row is a text": "UPDATE timers SET due_ms = 'soon' WHERE queue_offset = 700",
    "a row is a fraction": "UPDATE timers SET due_ms = due_ms + 0.5 WHERE queue_offset = 700",
    "a row is of no timer": "UPDATE timers SET queue_offset = -5 WHERE queue_offset = 700",
}


def execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


@pytest.fixture
def timers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TimersUnderTest:
    """With a table of several pages that takes several steps, and completed rows in it."""
    monkeypatch.setattr(timer_index, "ROWS_A_STEP", 100)
    monkeypatch.setattr(timer_index, "CHUNK_OFFSETS", 128)
    made = TimersUnderTest(tmp_path)
    made.add(*((at * 7) % 1_000 + 10 for at in range(1_000)))
    made.complete(*range(300, 310))
    made.written()
    return made


@pytest.mark.one_of(2)
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("is_running", [True, False])
def test_a_wrong_row_is_found_and_the_table_made_again(
    timers: TimersUnderTest, harm: str, is_running: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A start believed it, and that timer never came."""
    if not is_running:
        timers.index.close()
    execute(timers.path, HARMS[harm])
    if is_running:
        timers.queue.keys.begin_comparison()
    else:
        timers.open()
    timers.catch_up()
    assert [each.getMessage().split(" reason=")[0] for each in caplog.records] == [MADE_AGAIN]
    timers.written()
    timers.kill()
    timers.catch_up()
    timers.check()
    assert len(timers.deliver(2_000)) == 990
    assert len(caplog.records) == 1


def test_a_comparison_of_a_sound_table_finds_nothing(
    timers: TimersUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """Though timers come, go, move into the table and leave it between two steps."""
    for step in range(300):
        timers.add(1 + step, 5_000 - step)
        if step % 3 == 0:
            timers.complete(timers.waiting()[len(timers.waiting()) // 2][1])
        if step % 7 == 0:
            timers.deliver(step)
        if step % 20 == 0:
            timers.written()
        if not timers.queue.keys.is_comparing:
            timers.queue.keys.begin_comparison()
        timers.queue.keys.compare()
    timers.catch_up()
    timers.check()
    assert not caplog.records


def test_rows_of_retained_entries_are_not_missed(
    timers: TimersUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """Retention removes entries before anybody notes that their timers are gone."""
    timers.queue.keys.begin_comparison()
    timers.queue.queue.min_offset = 600
    while timers.queue.keys.is_comparing:
        timers.queue.keys.compare()
    assert not caplog.records


def test_a_flipped_bit_of_the_table_loses_no_timer(tmp_path: Path) -> None:
    """Rows, pages, header, mark: each timer is there after the start's comparison."""
    timers = TimersUnderTest(tmp_path)
    timers.add(*((at * 7) % 50 + 10 for at in range(12)))
    timers.complete(3)
    timers.written()
    timers.index.close()
    good = timers.path.read_bytes()
    places = [at for at, byte in enumerate(good) if byte or at < HEADER_BYTES]
    assert len(places) > 400
    # Each takes 15 ms on a busy machine; all bytes were tried once.
    for at in places[::4]:
        for path in timers.path.parent.iterdir():
            path.unlink()
        timers.path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        timers.open()
        timers.catch_up()
        assert timers.listed() == timers.waiting(), f"byte {at}"
        timers.index.close()


@pytest.fixture
def broker(make: Make) -> BrokerUnderTest:
    """Closed, with three timers in its table."""
    made = make()
    create_topic(made, TOPIC)
    delays_ms = (60_000, 50_000, 40_000)
    send_drafts(
        made, [timer_draft(f"t{each}", {"TIMER_DELAY_MS": str(each)}) for each in delays_ms]
    )
    timers = made.broker.wait_queues.timers
    assert timers is not None
    write = timers.keys.begin_write()
    made.sync()
    write.run()
    timers.keys.end_write()
    made.restart()
    return made


def beside(broker: BrokerUnderTest, seconds: float) -> None:
    """Let the broker's task run for a while."""

    async def main() -> None:
        task = Indexing(broker.broker, broker.clock, AtOnce(1), lambda _: None)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.gather(task.write(), task.catch_up()), seconds)
        task.close()

    run_with(broker.clock, main())


def test_a_start_and_idle_minutes_compare(
    broker: BrokerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """Disks forget while a broker runs, too."""
    path = broker.config.store_path / "timers" / "timers.db"
    delete = "DELETE FROM timers WHERE queue_offset = 1"
    broker.store.timers.close()
    execute(path, delete)
    (finding,) = check(broker.config.store_path)
    assert (finding.what, finding.opening_mends) == (WRONG_TABLE, True)
    broker.restart()
    beside(broker, 3)
    assert [each.getMessage().split(" reason=")[0] for each in caplog.records] == [MADE_AGAIN]
    execute(path, delete)
    beside(broker, indexing.COMPARE_S + 10)
    assert len(caplog.records) == 2
    assert broker.deliver() == 3
