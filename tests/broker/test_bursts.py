"""Much that is due at once: in slices, the earliest first, no faster than is allowed."""

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from rmqlite.kernel.records.queue_entry import ENTRY_BYTES
from rmqlite.kernel.schedule import schedule
from rmqlite.kernel.schedule.schedule import REST_MS, REST_MS_MAX
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.waits.wait_queue import READ_ENTRIES
from rmqlite.kernel.words.levels import parse_levels
from rmqlite.kernel.words.limits import NEW_QUEUES_MAX
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from tests.support.brokers import BrokerUnderTest
from tests.support.clock import FakeClock
from tests.support.deliveries import most_in_a_second
from tests.support.files import FOR_GOOD, FaultyFiles
from tests.support.made_brokers import Make
from tests.support.messages import TOPIC, bodies, delayed, level_status
from tests.support.pending import FIRE, by_ids, forward_to, named

pytestmark = pytest.mark.usefixtures("each_form")


def queue_of(level: int, file: int = 0) -> str:
    """The path of a file of a level's queue."""
    return f"{SCHEDULE_TOPIC}/{level - 1}/{file:020d}"


def due_order(broker: BrokerUnderTest) -> list[tuple[int, int, int]]:
    """Deliver time, level and place of what was delivered, in the order of its topic."""
    by_end = {}
    for topic, queue_id in broker.store.queue_keys():
        queue = broker.store.queue(topic, queue_id)
        if topic == SCHEDULE_TOPIC and queue is not None:
            for at, entry in enumerate(queue.read(0, 1 << 30)):
                place = (entry.tags_code, queue_id + 1, at)
                by_end[entry.physical_offset + entry.size] = place
    return [by_end[each.prepared_transaction_offset] for each in broker.messages(TOPIC)]


# ---- the earliest first


@pytest.mark.parametrize("slice_max", [1, 2, 3, 7, 100, 500])
def test_the_earliest_of_a_level_leaves_first(make: Make, slice_max: int) -> None:
    """Whatever a slice takes, and though the levels' tables changed in between."""
    broker = make(deliver_batch_max=slice_max)
    random = Random(slice_max)
    for turn in range(40):
        if turn % 9 == 8:
            random_table = random.choice(("1s 5s 2s", "4s 1s 3s", "2s 2s 2s"))
            broker.store.change_levels(parse_levels(random_table))
        messages = [delayed("x", random.randint(1, 3)) for _ in range(random.randint(1, 4))]
        broker.send(*messages)
        broker.clock.forward(random.choice((0, 1, 40)))
    count = broker.broker.counts.sent
    broker.clock.forward(10_000)
    assert broker.deliver() == count
    order = due_order(broker)
    assert len(order) == count
    for level in (1, 2, 3):
        of_level = [place for place in order if place[1] == level]
        assert of_level == sorted(of_level)
    if slice_max == 1:
        assert order == sorted(order)


def test_a_slice_is_bounded_in_count_and_in_bytes(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One append each: what comes between two is a send's or a pull's turn."""
    monkeypatch.setattr(schedule, "DELIVER_BYTES_MAX", 10_000)
    broker = make(deliver_batch_max=5)
    random = Random(3)
    for number in range(60):
        size = random.choice((1, 10, 3_000, 12_000))
        broker.send(named(str(number), 1 + number % 2, body=bytes(size)))
    broker.clock.forward(5_000)
    delivered = end = 0
    while delivered < 60:
        before, begin = delivered, broker.store.end
        broker.deliver_slice()
        delivered, end = broker.broker.schedule.delivered, broker.store.end
        assert 1 <= delivered - before <= 5
        assert end - begin <= 10_000 or delivered - before == 1


def test_a_send_between_two_slices_takes_its_place(make: Make) -> None:
    """A shorter delay that is due earlier leaves before the rest of a burst."""
    broker = make(deliver_batch_max=2, message_delay_level="10s 1s")
    broker.send(*[delayed(f"long {n}", 1) for n in range(3)])
    broker.clock.forward(8_000)
    broker.send(delayed("short", 2))
    broker.clock.forward(1_500)
    broker.send(*[delayed(f"later {n}", 1) for n in range(2)])
    broker.clock.forward(60_000)
    broker.deliver()
    assert bodies(broker) == ["short", "long 0", "long 1", "long 2", "later 0", "later 1"]


# ---- no faster than is allowed


def run_at_rate(broker: BrokerUnderTest, until_ms: int) -> list[tuple[int, int]]:
    """Deliver as the server does, up to a time: when, and how many."""
    done = []
    while True:
        now_ms = broker.clock.now_ms()
        before = broker.broker.schedule.delivered
        due_ms = broker.deliver_slice()
        count = broker.broker.schedule.delivered - before
        if count:
            done.append((now_ms, count))
        if due_ms is None or due_ms > until_ms:
            return done
        assert due_ms > now_ms or count, "it turns in circles"
        forward_to(broker, due_ms)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("rate", [1, 2, 3, 7, 19, 20, 21, 30, 39, 100, 250])
@pytest.mark.parametrize("slice_max", [3, 500])
def test_no_second_sees_more_than_the_rate_and_a_burst_has_nearly_all_of_it(
    make: Make, rate: int, slice_max: int
) -> None:
    """In any window of a second, not only from one full second to the next."""
    broker = make(deliver_rate_max=rate, deliver_batch_max=slice_max)
    count = 6 * rate
    broker.send(*[delayed("x", 1 + n % 2) for n in range(count)])
    broker.clock.forward(5_000)
    begin_ms = broker.clock.now_ms()
    done = run_at_rate(broker, begin_ms + 60_000)
    assert sum(each for _, each in done) == count
    assert most_in_a_second(done) <= rate
    assert done[-1][0] - begin_ms <= 6_000 / 0.94
    broker.sync()
    order = due_order(broker)
    assert order == sorted(order)


class SlowFiles(SystemFiles):
    """Each write takes a while, and time passes."""

    clock: FakeClock
    write_ms = 0

    def write(self, path: Path, position: int, data: bytes) -> None:
        super().write(path, position, data)
        self.clock.forward(self.write_ms)


@pytest.mark.parametrize("write_ms", [1, 7, 30, 200])
def test_the_rate_holds_for_what_is_in_the_log_however_slow_the_disk(
    make: Make, write_ms: int
) -> None:
    """What counts is when records can be read, not when somebody began to write them."""
    files = SlowFiles()
    clock = files.clock = FakeClock()
    broker = make(files=files, clock=clock, deliver_rate_max=40)
    broker.send(*[delayed("x", 1) for _ in range(200)])
    clock.forward(1_000)
    files.write_ms = write_ms
    seen = []
    while (due_ms := broker.next_due_ms()) is not None:
        before = broker.broker.schedule.delivered
        due_ms = broker.deliver_slice()
        count = broker.broker.schedule.delivered - before
        if count:
            seen.append((clock.now_ms(), count))
        forward_to(broker, due_ms or 0)
    files.write_ms = 0
    assert sum(count for _, count in seen) == 200
    assert most_in_a_second(seen) <= 40
    broker.sync()
    stored = [(message.store_timestamp_ms, 1) for message in broker.messages(TOPIC)]
    assert most_in_a_second(stored) <= 40


@pytest.mark.parametrize("rate", [10, 20, 100])
def test_what_trickles_in_below_the_rate_is_not_late(make: Make, rate: int) -> None:
    """A limit is for bursts: it costs nobody a millisecond who does not need it."""
    broker = make(deliver_rate_max=rate)
    gap_ms = 1_000 // rate
    for number in range(50):
        broker.send(delayed(str(number), 1))
        run_at_rate(broker, broker.clock.now_ms())
        broker.clock.forward(gap_ms)
        run_at_rate(broker, broker.clock.now_ms())
    run_at_rate(broker, broker.clock.now_ms() + 2_000)
    assert broker.broker.schedule.delivered == 50
    assert level_status(broker, 1).lateness_max_ms < gap_ms


def test_what_somebody_fires_goes_at_once_whatever_the_rate(make: Make) -> None:
    """It is asked for by hand; the limit is for what the clock lets loose."""
    broker = make(deliver_rate_max=1)
    broker.send(*[named(str(n), 5) for n in range(10)])
    assert len(by_ids(broker, FIRE, *map(str, range(10)))) == 10
    assert len(bodies(broker)) == 10


def test_without_a_limit_nothing_waits(make: Make) -> None:
    """0 is the default."""
    broker = make()
    broker.send(*[delayed("x", 1) for _ in range(500)])
    broker.clock.forward(1_000)
    done = run_at_rate(broker, broker.clock.now_ms())
    assert sum(count for _, count in done) == 500
    assert {at for at, _ in done} == {broker.clock.now_ms()}


# ---- a level that cannot be read


def test_a_level_that_cannot_be_read_rests_and_holds_up_no_other(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Longer every time, said once; when it can be read again it goes on in its order."""
    files = FaultyFiles()
    broker = make(files=files)
    broker.send(*[delayed(f"one {n}", 1) for n in range(3)])
    broker.send(*[delayed(f"two {n}", 2) for n in range(3)])
    broker.clock.forward(5_000)
    files.fail("read", where=lambda path: queue_of(1) in str(path), times=FOR_GOOD)
    rests = []
    with caplog.at_level(logging.INFO):
        for _ in range(6):
            due_ms = broker.broker.deliver(1)
            assert due_ms is not None
            tries = files.failed["read"]
            # Whoever asks too early reads nothing.
            assert broker.broker.deliver(1) == due_ms
            assert broker.broker.deliver(2) is None
            assert files.failed["read"] == tries
            rests.append(due_ms - broker.clock.now_ms())
            forward_to(broker, due_ms)
        broker.sync()
        assert bodies(broker) == ["two 0", "two 1", "two 2"]
        assert rests == [REST_MS << n if n < 4 else REST_MS_MAX for n in range(6)]
        files.heal()
        assert broker.deliver() == 3
    assert bodies(broker)[3:] == ["one 0", "one 1", "one 2"]
    said = [each for each in caplog.messages if each.startswith("wait queue can")]
    assert [each.split(" level=")[0] for each in said] == [
        "wait queue cannot be read, will be tried again",
        "wait queue can be read again",
    ]


def test_a_log_that_cannot_be_read_is_no_dead_letter(make: Make) -> None:
    """An I/O error passes; a message must not be given up for it."""
    files = FaultyFiles()
    broker = make(files=files)
    broker.send(*[delayed(str(n), 1 + n % 2) for n in range(6)])
    broker.clock.forward(5_000)
    files.fail("read", where=lambda path: "commitlog" in path.parts, times=FOR_GOOD)
    for _ in range(5):
        forward_to(broker, broker.deliver_slice() or 0)
    assert broker.broker.status(0).undeliverable == 0
    files.heal()
    broker.clock.forward(REST_MS_MAX)
    assert broker.deliver() == 6
    assert bodies(broker) == ["1", "3", "5", "0", "2", "4"]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("slice_max", [1, 50, 128, 199, 200, 201, 300, 500])
@pytest.mark.parametrize("file_entries", [READ_ENTRIES, 200])
def test_an_error_behind_what_was_delivered_delivers_nothing_twice(
    make: Make, slice_max: int, file_entries: int
) -> None:
    """Its queue's second file is the one that fails: the first is delivered, and others are."""
    files = FaultyFiles()
    broker = make(
        files=files,
        deliver_batch_max=slice_max,
        mapped_file_size_consume_queue=ENTRY_BYTES * file_entries,
    )
    for begin in range(0, 300, 30):
        broker.send(*[delayed(f"one {begin + n:03d}", 1) for n in range(30)])
        broker.send(*[delayed(f"two {begin + n:03d}", 2) for n in range(30)], queue_id=1)
    broker.clock.forward(10_000)
    second = queue_of(1, ENTRY_BYTES * file_entries)
    files.fail("read", where=lambda path: second in str(path), times=FOR_GOOD)
    for _ in range(700):
        due_ms = broker.deliver_slice()
        if due_ms is None or due_ms > broker.clock.now_ms():
            break
    broker.sync()
    one = [f"one {n:03d}" for n in range(300)]
    two = [f"two {n:03d}" for n in range(300)]
    came = len(bodies(broker))
    assert file_entries - READ_ENTRIES < came <= file_entries
    assert (bodies(broker), bodies(broker, queue_id=1)) == (one[:came], two)
    files.heal()
    broker.clock.forward(60_000)
    broker.deliver()
    assert (bodies(broker), bodies(broker, queue_id=1)) == (one, two)
    broker.crash()
    broker.open()
    assert broker.deliver() == 0


def test_a_slice_makes_few_new_queues(make: Make) -> None:
    """The first message of a queue makes its files: 200 of them at once would be 40 ms."""
    broker = make()
    topics = [f"{TOPIC}-{number % 120}" for number in range(360)]
    for begin in range(0, len(topics), NEW_QUEUES_MAX):
        part = topics[begin : begin + NEW_QUEUES_MAX]
        broker.send(*[delayed("x", 1, topic) for topic in part])
    broker.clock.forward(1_000)
    counts, due_ms = [0], broker.next_due_ms()
    while due_ms is not None:
        due_ms = broker.deliver_slice()
        counts.append(len([topic for topic, _ in broker.store.queue_keys() if topic in topics]))
    broker.sync()
    assert broker.broker.schedule.delivered == 360
    assert [len(broker.messages(topic)) for topic in topics[:120]] == [3] * 120
    assert max(after - before for before, after in pairwise(counts)) <= NEW_QUEUES_MAX
