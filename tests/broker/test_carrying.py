"""A pending timer must not keep its log file: it is carried to the log's end (promise P9)."""

from __future__ import annotations

from heapq import merge
from pathlib import Path
from random import Random

import pytest

from rmqlite.features.changes.changes import Changes
from rmqlite.features.changes.requests import (
    ChangeByFilter,
    ChangeByIds,
    ChangeOutcome,
    PendingFilter,
)
from rmqlite.kernel.records.completion import Completion, completion_of
from rmqlite.kernel.records.queue_entry import Entry
from rmqlite.kernel.records.record import COMMITTED, TRANSACTION_TYPE, NewRecord
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.retention import STEP_MAX
from rmqlite.kernel.words.errors import StoreUnavailable
from rmqlite.kernel.words.message import RESCHEDULED_FROM, TIMER_EXACT
from rmqlite.kernel.words.names import TIMER_TOPIC
from tests.support.brokers import BrokerUnderTest
from tests.support.files import FaultyFiles
from tests.support.log_files import HOUR_MS, NOW_MS, RETENTION, SEGMENT, age, fill, starts
from tests.support.made_brokers import Make
from tests.support.messages import TOPIC, bodies, create_topic, delayed
from tests.support.restarts import WAYS, Restart
from tests.support.steps import done
from tests.support.stores import new_record
from tests.support.timers import send_timer
from tests.support.transactions import end, send_half

DAY_MS = 24 * HOUR_MS
YEAR_MS = 365 * DAY_MS


@pytest.fixture
def broker(make: Make) -> BrokerUnderTest:
    """Files of 128 KiB, kept for 72 hours."""
    opened = make(**RETENTION)
    create_topic(opened, TOPIC)
    return opened


def one_round(broker: BrokerUnderTest, now_ms: int = NOW_MS) -> int:
    """All that retention does with files of this age; how many timers it has carried."""
    carried = 0
    for _ in range(3):
        broker.persist()
        broker.broker.retention.clean(now_ms)
        carried += done(broker.broker.retention.carry())
    return carried


def timers(broker: BrokerUnderTest) -> list[Record]:
    """The records of the pending timers, in due order."""
    known = broker.broker.wait_queues[TIMERS]
    entries = [place.entry for place in merge(*known.places_behind(-1, 0, -1))]
    found = broker.store.read_records(entries, check_bodies=False)
    return [each for each in found if each is not None]


def deliver_at(broker: BrokerUnderTest, due_ms: int, count: int) -> None:
    """So many are due then, and none a millisecond before."""
    broker.clock.forward(due_ms - 1 - broker.clock.now_ms())
    assert broker.deliver() == 0
    broker.clock.forward(1)
    assert broker.deliver() == count


def put(broker: BrokerUnderTest, record: NewRecord) -> None:
    """A record put into the timers' queue by hand, as another writer would."""
    (at,) = broker.store.append([record])
    broker.broker.wait_queues.notice(TIMERS, at.queue_offset, at.due_ms)


@pytest.mark.parametrize("restart", WAYS)
def test_an_expired_file_goes_and_its_timer_stays(
    broker: BrokerUnderTest, restart: Restart
) -> None:
    """Nothing but its place changes, and it is delivered once, at its instant."""
    due_ms = broker.clock.now_ms() + YEAR_MS
    send_timer(broker, "a", TIMER_DELAY_MS=YEAR_MS)
    (before,) = timers(broker)
    fill(broker, 2)
    age(broker)
    assert one_round(broker) == 1
    assert starts(broker) == [2]
    restart(broker)
    (after,) = timers(broker)
    assert after.head.physical_offset >= 2 * SEGMENT
    assert after.properties.encoded == before.properties.encoded
    assert after.body == before.body
    assert after.head.completes == before.end
    assert completion_of(after.head.topic, after.properties) is Completion.CARRIED
    deliver_at(broker, due_ms, 1)
    assert bodies(broker)[-1] == "a"
    restart(broker)
    assert broker.deliver() == 0


@pytest.mark.parametrize(("size", "stays"), [(32_000, False), (33_000, True)])
def test_a_file_with_too_many_timers_stays(broker: BrokerUnderTest, size: int, stays: bool) -> None:
    """Above a quarter carrying costs more than it frees."""
    send_timer(broker, "a".ljust(size, "."), UNIQ_KEY="a", TIMER_DELAY_MS=YEAR_MS)
    fill(broker, 1)
    age(broker)
    assert one_round(broker) == (0 if stays else 1)
    assert starts(broker) == ([0, 1] if stays else [1])
    pin = broker.broker.retention.pin
    assert (pin.level, pin.kept_bytes) == ((TIMERS, SEGMENT) if stays else (0, 0))


def test_a_full_file_goes_with_those_behind_it(broker: BrokerUnderTest) -> None:
    """A quarter of all that becomes free: else one full file would keep all later ones."""
    for name in "abc":
        send_timer(broker, name.ljust(38_000, "."), UNIQ_KEY=name, TIMER_DELAY_MS=YEAR_MS)
    fill(broker, 3)
    age(broker)
    assert one_round(broker) == 0
    fill(broker, 1)
    age(broker)
    assert one_round(broker) == 3
    assert starts(broker)[0] == 4
    assert [each.body[:1] for each in timers(broker)] == [b"a", b"b", b"c"]


def test_what_was_delivered_is_not_counted(broker: BrokerUnderTest) -> None:
    """A file that was too full is looked at again when fewer of its timers wait."""
    for number in range(8):
        body = str(number).ljust(9_000, ".")
        send_timer(broker, body, UNIQ_KEY=body[:1], TIMER_DELAY_MS=YEAR_MS + number)
    fill(broker, 1)
    age(broker)
    assert one_round(broker) == 0
    broker.clock.forward(YEAR_MS + 4)
    assert broker.deliver() == 5
    age(broker)
    assert one_round(broker) == 3


def test_a_younger_file_keeps_its_timers(broker: BrokerUnderTest) -> None:
    """They are carried when the file may go, not before."""
    send_timer(broker, "a", TIMER_DELAY_MS=YEAR_MS)
    fill(broker, 2)
    age(broker, hours=71)
    assert one_round(broker) == 0
    assert starts(broker) == [0, 1, 2]
    assert broker.broker.retention.pin.kept_bytes == 0


@pytest.mark.parametrize("keeper", ["level", "half"])
def test_other_pending_messages_keep_their_file(broker: BrokerUnderTest, keeper: str) -> None:
    """Their timers stay, too: carrying them would free nothing."""
    send_timer(broker, "a", TIMER_DELAY_MS=YEAR_MS)
    fill(broker, 1)
    if keeper == "level":
        broker.send(delayed("b", 18))
    else:
        half = send_half(broker, "b")
    fill(broker, 2)
    age(broker)
    assert one_round(broker) == 1
    assert starts(broker) == [1, 2, 3]
    pin = broker.broker.retention.pin
    assert (pin.level, pin.kept_bytes) == (18 if keeper == "level" else 0, 2 * SEGMENT)
    if keeper == "level":
        broker.clock.forward(2 * HOUR_MS)
        broker.deliver()
    else:
        end(broker, half)
    age(broker)
    one_round(broker)
    assert starts(broker) == [3]


def test_records_of_others_are_carried_as_they_are(tmp_path: Path) -> None:
    """RocketMQ's have no TIMER_EXACT; a body may be damaged; both keep what they have."""
    broker = BrokerUnderTest(tmp_path, **RETENTION)
    create_topic(broker, TOPIC)
    due_ms = broker.clock.now_ms() + YEAR_MS
    foreign = {"TIMER_OUT_MS": str(due_ms), "REAL_TOPIC": TOPIC, "REAL_QID": "0"}
    put(broker, new_record(b"foreign", TIMER_TOPIC, 0, properties=foreign))
    damaged = new_record(b"damaged", TIMER_TOPIC, 0, properties={**foreign, TIMER_EXACT: "1"})
    put(broker, damaged._replace(body_crc=4711))
    before = [each.properties.encoded for each in timers(broker)]
    fill(broker, 1)
    age(broker)
    assert one_round(broker) == 2
    after = timers(broker)
    assert [each.properties.encoded for each in after] == before
    assert {each.body: each.has_sound_body() for each in after} == {
        b"foreign": True,
        b"damaged": False,
    }
    deliver_at(broker, due_ms, 1)
    deliver_at(broker, due_ms + 1_000, 1)
    broker.store.release()


@pytest.mark.parametrize("origin", ["transaction", "reschedule"])
def test_a_record_that_ends_something_else_is_carried(broker: BrokerUnderTest, origin: str) -> None:
    """The new record ends the old one's wait, and not a second time what that one has ended."""
    if origin == "transaction":
        end(broker, send_half(broker, "a", TIMER_DELAY_MS=str(YEAR_MS)))
    else:
        send_timer(broker, "a", TIMER_DELAY_MS=1)
        (first,) = timers(broker)
        due = {"TIMER_OUT_MS": str(broker.clock.now_ms() + YEAR_MS), RESCHEDULED_FROM: "-1"}
        again = new_record(b"a", TIMER_TOPIC, 0)
        properties = first.properties.edited(due)
        put(broker, again._replace(properties=properties, completes=first.end))
        broker.store.progress.complete(TIMERS, 0, 1, {TOPIC: 1})
        broker.broker.wait_queues[TIMERS].advance()
    (before,) = timers(broker)
    assert bool(before.head.sys_flag & TRANSACTION_TYPE == COMMITTED) == (origin == "transaction")
    fill(broker, 1)
    age(broker)
    one_round(broker)
    (after,) = timers(broker)
    assert after.head.completes == before.end
    assert not after.head.sys_flag & TRANSACTION_TYPE
    assert after.properties.get(RESCHEDULED_FROM) is None
    broker.crash()
    broker.open()
    assert len(timers(broker)) == 1
    broker.clock.forward(YEAR_MS)
    assert broker.deliver() == 1


def test_a_record_that_cannot_be_read_keeps_its_file(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It becomes a dead letter when it is due, and not earlier."""
    send_timer(broker, "a", TIMER_DELAY_MS=YEAR_MS)
    send_timer(broker, "b", TIMER_DELAY_MS=YEAR_MS)
    fill(broker, 1)
    age(broker)
    read = broker.store.read_records
    lost = timers(broker)[0].head.physical_offset

    def read_others(entries: list[Entry], *, check_bodies: bool = True) -> list[Record | None]:
        found = read(entries, check_bodies=check_bodies)
        return [each if each and each.head.physical_offset != lost else None for each in found]

    monkeypatch.setattr(broker.store, "read_records", read_others)
    assert one_round(broker) == 1
    assert starts(broker) == [0, 1]
    assert broker.broker.retention.pin.level == TIMERS


def test_a_full_disk_stops_the_round_and_loses_nothing(make: Make) -> None:
    """The next round goes on."""
    files = FaultyFiles()
    broker = make(files=files, **RETENTION)
    create_topic(broker, TOPIC)
    count = 2 * STEP_MAX + 1
    for number in range(count):
        send_timer(broker, str(number), TIMER_DELAY_MS=YEAR_MS)
    fill(broker, 2)
    age(broker)
    broker.persist()
    broker.broker.retention.clean(NOW_MS)
    files.fail("write", after=2, times=10**9, is_full=True)
    with pytest.raises(StoreUnavailable):
        done(broker.broker.retention.carry())
    files.heal()
    carried = broker.broker.wait_queues[TIMERS].queue.max_offset - count
    assert 0 < carried < count
    assert len(timers(broker)) == count
    assert one_round(broker) == count - carried
    assert starts(broker) == [2]
    assert len(timers(broker)) == count


def test_carrying_leaves_half_of_the_free_room(make: Make) -> None:
    """It must not fill the disk that it is to make free."""
    files = FaultyFiles()
    broker = make(files=files, **RETENTION)
    create_topic(broker, TOPIC)
    send_timer(broker, "a".ljust(10_000, "."), UNIQ_KEY="a", TIMER_DELAY_MS=YEAR_MS)
    fill(broker, 1)
    age(broker)
    files.free_bytes = 20_000
    assert one_round(broker) == 0
    files.free_bytes = 21_000
    assert one_round(broker) == 1


def test_a_disk_under_pressure_carries_from_younger_files(make: Make) -> None:
    """Above diskSpaceCleanForciblyRatio, from one part of the log at a time."""
    files = FaultyFiles()
    broker = make(files=files, **{**RETENTION, "clean_forcibly": True})
    create_topic(broker, TOPIC)
    for name in "ab":
        send_timer(broker, name, TIMER_DELAY_MS=YEAR_MS)
        fill(broker, 1)
    age(broker, hours=1)
    broker.persist()
    files.used = 0.99
    broker.broker.retention.clean(NOW_MS)
    assert done(broker.broker.retention.carry()) == 1
    assert one_round(broker) == 1
    assert starts(broker) == [2]


def test_a_timer_of_two_years_survives_many_rounds(make: Make, is_long: bool) -> None:
    """The disk holds what has not expired and what is pending; its id finds the newest record."""
    broker, rounds = make(**RETENTION), 100 if is_long else 20
    create_topic(broker, TOPIC)
    random, names = Random(32), ["a", "b", "c"]
    due_ms = broker.clock.now_ms() + 2 * YEAR_MS
    for name in names:
        send_timer(broker, name, TIMER_DELAY_MS=2 * YEAR_MS)
    for _ in range(rounds):
        broker.clock.forward(700 * DAY_MS // rounds)
        fill(broker, 1)
        age(broker)
        assert one_round(broker) == 3
        assert len(starts(broker)) == 1
        random.choice(WAYS)(broker)
    request = ChangeByIds(ScheduleAction.CANCEL, ("b",))
    (changed,) = done(broker.broker[Changes].by_ids(request))
    assert changed.outcome is ChangeOutcome.DONE
    deliver_at(broker, due_ms, 2)
    assert bodies(broker)[-2:] == ["a", "c"]


def test_a_change_by_pages_meets_what_is_carried_between_two_pages(broker: BrokerUnderTest) -> None:
    """But not what the change itself has rescheduled, and retention has carried then."""
    for at, name in enumerate("abc"):
        send_timer(broker, name, TIMER_DELAY_MS=YEAR_MS + at)
    cursor, changed = "", 0
    for number in range(3):
        if number == 1:
            fill(broker, 1)
            age(broker)
            assert one_round(broker) == 3
        request = ChangeByFilter(
            ScheduleAction.RESCHEDULE,
            PendingFilter(topic=TOPIC),
            deliver_after_ms=YEAR_MS + DAY_MS,
            cursor=cursor,
            max_messages=1,
        )
        page = done(broker.broker[Changes].by_filter(request))
        changed, cursor = changed + page.changed, page.cursor
    assert changed == 3
    while cursor:
        again = ChangeByFilter(ScheduleAction.CANCEL, PendingFilter(topic=TOPIC), cursor=cursor)
        page = done(broker.broker[Changes].by_filter(again))
        cursor = page.cursor
        assert page.changed == 0
    assert len(timers(broker)) == 3
