"""A log in random pieces, entered by a store that was never the master."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from rmqlite.features.standby import copied_store
from rmqlite.features.standby.copied_store import CopiedStore, end_in_file
from rmqlite.features.standby.following import take_clock
from rmqlite.kernel.store.log.checksums import Mark
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.walk import Completing, Redo
from rmqlite.kernel.words.errors import StoreUnavailable
from rmqlite.kernel.words.message import Message
from rmqlite.store_tools.check import check
from tests.support.brokers import LONG_BODIES, BrokerUnderTest, small_config
from tests.support.clock import START_MS, FakeClock, FakeMachine
from tests.support.files import QuickFiles
from tests.support.stores import contents

TOPIC = "orders"
HOUR_MS = 3_600_000


def busy_master(folder: Path) -> BrokerUnderTest:
    """Its log has every kind of record that enters a queue, and fills three files."""
    master, chance = BrokerUnderTest(folder, **LONG_BODIES), Random(46)
    for turn in range(12):
        master.send(*[Message(TOPIC, b"%d" % turn, keys=(f"a-{n}", "b")) for n in range(150)])
        master.send(*[Message(f"new-{turn}-{n}", bytes(200)) for n in range(8)])
        master.send(*[Message(TOPIC, bytes(90), delay_level=1 + n % 3) for n in range(100)])
        instants = [timedelta(seconds=chance.randint(1, 40)) for _ in range(100)]
        master.send(*[Message(TOPIC, b"at an instant", deliver_after=each) for each in instants])
        master.send(Message(TOPIC, bytes(90_000)))
        master.clock.forward(5_000)
        master.deliver()
    return master


@contextmanager
def copy_of(folder: Path, clock: FakeClock | None = None) -> Iterator[CopiedStore]:
    store = CopiedStore(small_config(folder, **LONG_BODIES), QuickFiles(), clock or FakeClock())
    store.agree()
    try:
        yield store
    finally:
        store.release()


def pieces(master: BrokerUnderTest, begin: int, chance: Random) -> Iterator[bytes]:
    """The rest of its log, as the master sends it: no piece reaches into the next file."""
    size, end = master.store.log_file_bytes, master.store.end
    while begin < end:
        length = min(chance.choice((1, 50, 3_000, 128 << 10)), size - begin % size, end - begin)
        yield master.store.read(begin, length)
        begin += length


def without_marks(store: MessageStore) -> list[bytes]:
    """The log's files, but for the places where each broker notes what is on its disk."""
    size = store.log_file_bytes
    return [store.read(begin, size - 512) for begin in range(0, store.end, size)]


@pytest.mark.usefixtures("each_form")
def test_what_comes_in_pieces_is_entered_as_an_opening_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps end anywhere, persists and crashes come between: the check compares every entry."""
    monkeypatch.setattr(copied_store, "STEPS_S", 0.0)
    monkeypatch.setattr(copied_store, "STEP_BYTES", 2_000)
    master, chance = busy_master(tmp_path / "master"), Random(1)
    (tmp_path / "copy").mkdir()
    for _ in range(4):
        with copy_of(tmp_path / "copy") as store:
            limit = master.store.end if _ == 3 else store.end + (700 << 10)
            for data in pieces(master, store.end, chance):
                store.receive(store.wanted, data)
                while store.enter():
                    if chance.random() < 0.01:
                        store.persist({})
                if store.end >= limit:
                    break
    with copy_of(tmp_path / "copy") as store:
        assert store.end == master.store.end
        assert without_marks(store) == without_marks(master.store)
        for key in master.store.queue_keys():
            own, other = store.queue(*key), master.store.queue(*key)
            assert own is not None
            assert other is not None
            assert own.bytes_at(0, own.max_offset) == other.bytes_at(0, other.max_offset)
        assert store.progress.delay_offsets() == master.store.progress.delay_offsets()
        store.persist({})
    master.close()
    assert not list(check(tmp_path / "copy"))


def test_a_step_is_short_whatever_is_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one turn of the loop there is time for few records that complete others."""
    monkeypatch.setattr(copied_store, "STEP_RECORDS", 5)
    completed, complete = [0], Redo._complete

    def counted(redo: Redo, completing: Completing) -> None:
        completed[-1] += 1
        complete(redo, completing)

    monkeypatch.setattr(Redo, "_complete", counted)
    master = busy_master(tmp_path / "master")
    (tmp_path / "copy").mkdir()
    with copy_of(tmp_path / "copy") as store:
        for data in pieces(master, 0, Random(2)):
            store.receive(store.wanted, data)
            while next(store._steps, True) is None:
                completed.append(0)
    # One more is taken by itself, at the end of each step.
    assert 5 <= max(completed) <= 6
    master.close()


def test_only_queues_with_new_entries_are_persisted_again(tmp_path: Path) -> None:
    """With 10,000 queues each persist would else look at all of them, in the loop."""
    master = BrokerUnderTest(tmp_path / "master", **LONG_BODIES)
    (tmp_path / "copy").mkdir()
    with copy_of(tmp_path / "copy") as store:
        master.send(*[Message(f"topic-{n}", b"x") for n in range(20)])
        for data in pieces(master, 0, Random(3)):
            store.receive(store.wanted, data)
        store.persist({})
        begin = store.end
        master.send(Message("topic-7", b"x"))
        for data in pieces(master, begin, Random(3)):
            store.receive(store.wanted, data)
        while store.enter():
            pass
        store.begin_persist({})
        assert store._dispatch._flush.keys == {("topic-7", 0)}
    master.close()


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    """What did not fit comes again when there is room, from the last whole record on."""
    master = busy_master(tmp_path / "master")
    (tmp_path / "copy").mkdir()
    with copy_of(tmp_path / "copy") as store:
        store.receive(0, master.store.read(0, 100_000))
        with pytest.raises(StoreUnavailable, match="came, not those at"):
            store.receive(99, b"x")
        store.begin_again()
        assert store.wanted == store.end < 100_000
        for data in pieces(master, store.end, Random(4)):
            store.receive(store.wanted, data)
        while store.enter():
            pass
        assert store.end == master.store.end
    master.close()


def test_nothing_is_saved_before_the_master_has_agreed(tmp_path: Path) -> None:
    """Its end may be cut off; and a close leaves what a kill leaves, which any start recovers."""
    master = busy_master(tmp_path / "copy")
    master.persist()
    master.send(Message(TOPIC, b"perhaps only here"))
    master.crash()
    before = contents(tmp_path / "copy" / "config")
    config = small_config(tmp_path / "copy", **LONG_BODIES)
    store = CopiedStore(config, QuickFiles(), FakeClock())
    assert (store.durable_end < store.end, store.recovered) == (True, 1)
    store.persist({"redriveJobs.json": dict})
    job = store.begin_persist({})
    store.agree()
    job.run()
    store.persisted(job)
    assert store.durable_end == store.end
    assert contents(tmp_path / "copy" / "config") == before
    store.is_agreed = False
    store.close({})
    assert contents(tmp_path / "copy" / "config") == before
    with copy_of(tmp_path / "copy") as again:
        assert again.recovered == 1
        again.persist({})
    assert contents(tmp_path / "copy" / "config") != before
    assert not list(check(tmp_path / "copy"))


@pytest.mark.parametrize("room", range(41, 58))
def test_a_full_file_goes_with_its_blank(
    tmp_path: Path, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that ends just before the mark of the file; without it a standby is stuck there."""
    size = 1 << 16
    master = BrokerUnderTest(
        tmp_path, mapped_file_size_commit_log=size, max_message_bytes=size // 2
    )
    # The first message makes the topic, which is a record, too.
    ends = []
    for _ in range(2):
        master.send(Message(TOPIC, b"x"))
        ends.append(master.store.end)
    head = ends[1] - ends[0] - 1
    master.send(Message(TOPIC, bytes(size // 2 - ends[1])))
    master.send(Message(TOPIC, bytes(size - room - master.store.end - head)))
    assert master.store.end == size - room
    master.send(Message(TOPIC, b"in the next file"))
    assert end_in_file(master.store, 0) == size - room + 8
    # Of what is not synced the mark knows nothing, and while sends are refused no sync comes.
    monkeypatch.setattr(copied_store, "decode_mark", lambda _: Mark(ends[0], ends[0], 0))
    for known in (0, ends[1], size - room):
        assert end_in_file(master.store, 0, known) == size - room + 8
    master.close()


@pytest.mark.parametrize("off_ms", [-HOUR_MS, HOUR_MS])
def test_no_message_is_early_by_another_clock(tmp_path: Path, off_ms: int) -> None:
    """A promoted standby goes on with the clock by which messages were promised."""
    master = BrokerUnderTest(tmp_path / "master", **LONG_BODIES)
    master.clock.forward(60_000)
    master.send(Message(TOPIC, b"level", delay_level=3))
    master.send(Message(TOPIC, b"timer", deliver_after=timedelta(seconds=30)))
    stored_ms = master.clock.now_ms()
    (tmp_path / "copy").mkdir()
    clock = FakeClock(machine=FakeMachine(START_MS + off_ms))
    with copy_of(tmp_path / "copy", clock) as store:
        store.receive(0, master.store.read(0, master.store.end))
        take_clock(clock, stored_ms)
        # The next word.
        clock.not_before(stored_ms)
        assert clock.now_ms() == stored_ms
        store.persist({})
    master.close()
    # Also in a process that knows the time only from the store and the machine.
    promoted = BrokerUnderTest(
        tmp_path / "copy", clock=FakeClock(machine=clock.machine), **LONG_BODIES
    )
    promoted.clock.forward(stored_ms + 9_999 - promoted.clock.now_ms())
    assert promoted.deliver() == 0
    promoted.clock.forward(1)
    assert promoted.deliver() == 1
    promoted.clock.forward(19_999)
    assert promoted.deliver() == 0
    promoted.clock.forward(1)
    assert promoted.deliver() == 1
    promoted.close()
