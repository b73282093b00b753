"""What waits: listed in due order, page by page, counted, and drawn up by time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmqlite.features.changes import pending
from rmqlite.features.changes.pending import Pending
from rmqlite.features.changes.requests import (
    PENDING_PAGE_MAX,
    TIMELINE_BOUNDS_MAX,
    PendingFilter,
    PendingMessage,
    PendingQuery,
    TimelineRequest,
)
from rmqlite.features.failure_kinds import NO_REASON
from rmqlite.kernel.records.key_hashes import topic_prefix
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.waits.wait_queue import LevelQueue
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import parse_levels
from rmqlite.kernel.words.message import Message
from rmqlite.kernel.words.names import SCHEDULE_TOPIC, retry_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.made_brokers import Make
from tests.support.messages import GROUP, TOPIC, received, save_group, send_back
from tests.support.pending import (
    CANCEL,
    FIRE,
    RESCHEDULE,
    by_filter,
    by_ids,
    counts,
    named,
    pages,
    true_counts,
    waiting,
    waiting_ids,
)
from tests.support.restarts import WAYS, Restart, crash
from tests.support.steps import done

TABLES = ("1s 5s 10s 30s", "10s 5s 1s 30s", "30s 30s 2s 1s", "1s 1s 1s 1s")
TOPICS = (TOPIC, "bills")


def wide(make: Make) -> BrokerUnderTest:
    """A broker after a busy while: many runs in every level, and gaps in them."""
    broker = make(message_delay_level=TABLES[0])
    random = Random(7)
    for turn in range(24):
        if turn % 4 == 3:
            broker.store.change_levels(parse_levels(random.choice(TABLES)))
        for _ in range(random.randint(1, 6)):
            number = broker.broker.counts.sent
            keys = tuple(f"k{n}" for n in random.sample(range(5), random.randint(0, 2)))
            message = named(
                f"m{number}",
                random.randint(1, 4),
                topic=random.choice(TOPICS),
                keys=keys,
                tags=random.choice(("", "Tag")),
                body=bytes(random.choice((1, 10, 20_000))),
            )
            broker.send(message, queue_id=random.randint(0, 3))
        if turn % 5 == 4:
            ids = [f"m{random.randrange(broker.broker.counts.sent)}" for _ in range(2)]
            by_ids(broker, random.choice((CANCEL, FIRE)), *ids)
            by_ids(broker, RESCHEDULE, ids[0], delay_level=random.randint(1, 4))
        broker.clock.forward(random.choice((0, 1, 300, 700)))
        broker.deliver()
    return broker


def plain_list(broker: BrokerUnderTest) -> list[PendingMessage]:
    """What waits, by reading every record of every level, and sorted by the rule."""
    found = []
    for topic, queue_id in broker.store.queue_keys():
        queue = broker.store.queue(topic, queue_id)
        if topic != SCHEDULE_TOPIC or queue is None:
            continue
        completed = broker.store.progress.of(queue_id + 1)
        for at, entry in enumerate(queue.read(0, 1 << 30)):
            if completed.next_open(at) != at:
                continue
            message = broker.store.read_message(entry.physical_offset, entry.size)
            found.append(
                PendingMessage(
                    queue_id + 1,
                    at,
                    entry.tags_code,
                    message.properties["REAL_TOPIC"],
                    int(message.properties["REAL_QID"]),
                    message.message_id,
                    message.tags,
                    message.keys,
                    message.born_timestamp_ms,
                    message.store_timestamp_ms,
                    message.physical_offset,
                    message.store_size,
                    len(message.body),
                    message.reconsume_times,
                    message.store_host,
                )
            )
    return sorted(found, key=lambda each: (each.deliver_at_ms, each.level, each.queue_offset))


def fits(each: PendingMessage, wanted: PendingFilter) -> bool:
    until_ms = wanted.due_until_ms
    return (
        (not wanted.levels or each.level in wanted.levels)
        and (not wanted.topic or each.topic == wanted.topic)
        and (not wanted.key or wanted.key in each.keys)
        and (not wanted.ids or each.message_id in wanted.ids)
        and each.deliver_at_ms >= wanted.due_from_ms
        and (until_ms is None or each.deliver_at_ms < until_ms)
    )


def some_filters(broker: BrokerUnderTest) -> Iterator[PendingFilter]:
    """Every field alone, and some together."""
    due = [each.deliver_at_ms for each in plain_list(broker)]
    middle = due[len(due) // 2]
    yield PendingFilter()
    for level in range(1, 7):
        yield PendingFilter(levels=(level,))
        yield PendingFilter(levels=(level, 1), topic=TOPIC, due_from_ms=middle)
    for topic in (*TOPICS, "nowhere"):
        yield PendingFilter(topic=topic)
    for number in range(6):
        yield PendingFilter(key=f"k{number}")
        yield PendingFilter(key=f"k{number}", due_until_ms=middle, topic=TOPIC)
    for begin in (due[0], middle, middle + 1, due[-1], due[-1] + 1):
        yield PendingFilter(due_from_ms=begin)
        yield PendingFilter(due_until_ms=begin)
        yield PendingFilter(due_from_ms=begin, due_until_ms=begin + 1)
    for each in plain_list(broker)[::7]:
        yield PendingFilter(ids=(each.message_id,))
        yield PendingFilter(ids=(each.message_id,), levels=(each.level,), topic=each.topic)
    yield PendingFilter(ids=("nobody",))
    yield PendingFilter(ids=tuple(each.message_id for each in plain_list(broker)[::3]))


@pytest.mark.parametrize("restart", [lambda _: None, *WAYS])
def test_every_filter_lists_what_fits_in_due_order(make: Make, restart: Restart) -> None:
    """Each message once, whole, wherever it waits; after a restart as before."""
    broker = wide(make)
    restart(broker)
    every = plain_list(broker)
    assert len(every) > 20
    queues = broker.broker.wait_queues
    assert any(isinstance(known, LevelQueue) and len(known.runs) > 2 for known in queues)
    for wanted in some_filters(broker):
        assert waiting(broker, wanted) == [each for each in every if fits(each, wanted)], wanted


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_pages_of_every_size_make_up_the_list(make: Make, size: int) -> None:
    """Nothing twice and nothing left out where one page ends and the next begins."""
    broker = wide(make)
    every = plain_list(broker)
    for wanted in some_filters(broker):
        found = pages(broker, wanted, size)
        assert all(len(page.messages) <= size for page in found)
        assert [m for page in found for m in page.messages] == [m for m in every if fits(m, wanted)]


@pytest.mark.parametrize("scan", [1, 2, 5])
def test_a_slice_may_look_at_few_and_the_pages_are_the_same(
    make: Make, monkeypatch: pytest.MonkeyPatch, scan: int
) -> None:
    """However little one step looks at, the steps together see everything."""
    broker = wide(make)
    every = plain_list(broker)
    monkeypatch.setattr(pending, "SCAN_MAX", scan)
    monkeypatch.setattr(pending, "PAGE_SLICES_MAX", 3)
    for wanted in some_filters(broker):
        assert waiting(broker, wanted, 4) == [each for each in every if fits(each, wanted)]


def test_of_very_many_with_one_key_each_thousand_is_in_due_order(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are there, each once: the order has a bound in what it costs, the list has none."""
    broker = make()
    broker.send(*[named(f"m{n}", 1 + n * 7 % 5, keys=("shared",)) for n in range(23)])
    monkeypatch.setattr(pending, "CANDIDATES_MAX", 5)
    wanted = PendingFilter(key="shared")
    for size in (1, 2, 5, 6, 100):
        found = waiting(broker, wanted, size)
        assert sorted(found, key=lambda each: each.physical_offset) == sorted(
            plain_list(broker), key=lambda each: each.physical_offset
        )
        newest = found[:5]
        assert newest == sorted(newest, key=lambda each: (each.deliver_at_ms, each.level))
    assert by_filter(broker, CANCEL, wanted, max_messages=4) == 23
    assert waiting(broker) == []


def test_a_page_goes_on_behind_what_was_delivered_or_cancelled_meanwhile(
    under_test: BrokerUnderTest,
) -> None:
    """The cursor names a place, not a message."""
    for number in range(12):
        under_test.send(named(f"{number:02d}", 1 + number % 2))
        under_test.clock.forward(10)
    query = PendingQuery(PendingFilter(), "", 4)
    page = done(under_test.broker[Pending].pages(query))
    seen = [each.message_id for each in page.messages]
    # The page's last one, and the next page's first.
    by_ids(under_test, CANCEL, "06", "08")
    under_test.clock.forward(900)
    under_test.deliver()
    under_test.send(named("later", 1))
    crash(under_test)
    query = PendingQuery(PendingFilter(), page.cursor, 1_000)
    rest = done(under_test.broker[Pending].pages(query))
    assert seen == ["00", "02", "04", "06"]
    assert [each.message_id for each in rest.messages] == [
        *("10", "01", "03", "05", "07", "09", "11")
    ]


def test_retries_are_listed_by_group_with_how_often_they_failed(
    under_test: BrokerUnderTest,
) -> None:
    """A group's retry topic is where they will be delivered."""
    message = received(under_test, message_id="a", keys="k")
    for group in (GROUP, "audit"):
        save_group(under_test, group=group)
        send_back(under_test, message, group=group)
    (mine,) = waiting(under_test, PendingFilter(topic=retry_topic(GROUP)))
    assert (mine.message_id, mine.keys, mine.reconsume_times) == ("a", ("k",), 1)
    assert len(waiting(under_test, PendingFilter(key="k"))) == 2
    assert len(waiting(under_test, PendingFilter(ids=("a",)))) == 2


# ---- counting


@pytest.mark.parametrize("restart", [lambda _: None, *WAYS])
def test_counts_are_what_waits(make: Make, restart: Restart) -> None:
    """By level and topic, and they add up to the levels' own."""
    broker = wide(make)
    restart(broker)
    every = plain_list(broker)
    assert counts(broker) == true_counts(broker) == Counter((m.level, m.topic) for m in every)
    by_level = Counter[int]()
    for (level, _), count in counts(broker).items():
        by_level[level] += count
    for status in broker.broker.status(0).levels:
        assert status.pending == by_level[status.level]


def test_counting_reads_nothing(make: Make) -> None:
    """However many wait, by level and topic it is a table in memory."""
    files = CountingFiles()
    broker = make(files=files)
    broker.send(*[named(str(n), 1 + n % 4) for n in range(300)])
    files.read_bytes = 0
    assert sum(counts(broker).values()) == 300
    assert files.read_bytes == 0


@pytest.mark.parametrize("levels", [(), (1,), (2, 4), (9,)])
def test_a_timeline_adds_up_to_the_list(make: Make, levels: tuple[int, ...]) -> None:
    """Before the first instant, between each two, and from the last one on."""
    broker = wide(make)
    every = plain_list(broker)
    due = sorted({each.deliver_at_ms for each in every})
    for bounds in (
        due[:TIMELINE_BOUNDS_MAX],
        [due[0] - 1, due[0], due[0] + 1],
        [due[-1] + 1],
        [0],
        due[::3],
    ):
        answered = done(broker.broker[Pending].timeline(TimelineRequest(tuple(bounds), levels)))
        for line in answered:
            assert not levels or line.level in levels
            mine = [each.deliver_at_ms for each in every if each.level == line.level]
            edges = [0, *bounds, 1 << 62]
            assert list(line.counts) == [
                sum(begin <= due_ms < end for due_ms in mine) for begin, end in pairwise(edges)
            ]


def test_a_timeline_reads_as_little_of_many_as_of_few(make: Make) -> None:
    """Bisection: of a hundred times as many it reads a little more."""
    read = []
    for count in (30, 3_000):
        files = CountingFiles()
        broker = make(files=files, mapped_file_size_consume_queue=400_000)
        for begin in range(0, count, 30):
            broker.send(*[named(str(begin + n), 5) for n in range(30)])
            broker.clock.forward(1)
        files.read_bytes = 0
        bounds = tuple(broker.clock.now_ms() + 59_900 + 10 * n for n in range(10))
        (line,) = done(broker.broker[Pending].timeline(TimelineRequest(bounds, (5,))))
        assert sum(line.counts) == count
        read.append(files.read_bytes)
    assert read[1] < 4 * read[0]


# ---- what it costs


class CountingFiles(SystemFiles):
    """Counts what is read from the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0

    def read(self, path: Path, position: int, size: int) -> bytes:
        data = super().read(path, position, size)
        self.read_bytes += len(data)
        return data


@pytest.mark.parametrize(
    "wanted", [PendingFilter(), PendingFilter(key="k"), PendingFilter(topic=TOPIC)]
)
def test_large_bodies_are_not_read(make: Make, wanted: PendingFilter) -> None:
    """Of a record above 16 KiB only what is before and behind the body."""
    files = CountingFiles()
    broker = make(files=files)
    for number in range(20):
        broker.send(named(str(number), 5, body=bytes(40_000), keys="k"))
    files.read_bytes = 0
    found = waiting(broker, wanted)
    assert [each.body_size for each in found] == [40_000] * 20
    assert files.read_bytes < 20 * 2_000


def test_a_page_costs_what_it_shows_not_what_waits(make: Make) -> None:
    """A page from the middle of thousands reads no more than one of few."""
    files = CountingFiles()
    broker = make(files=files, mapped_file_size_consume_queue=400_000)
    for begin in range(0, 3_000, 30):
        broker.send(*[named(str(begin + n), 5) for n in range(30)])
        broker.clock.forward(1)
    broker.broker[Pending].slice(PendingFilter(), "", 10)
    files.read_bytes = 0
    middle = PendingFilter(due_from_ms=broker.clock.now_ms() + 60_000 - 50)
    found, _ = broker.broker[Pending].slice(middle, "", 10)
    assert len(found) == 10
    scanned = pending.SCAN_MAX * (20 + found[0].head.size)
    assert files.read_bytes < 2 * scanned


def test_looking_changes_nothing(make: Make) -> None:
    """Not a byte of the log, and nothing of what is kept in memory."""
    broker = wide(make)
    before = (broker.store.end, broker.store.progress.to_json(), counts(broker))
    for wanted in some_filters(broker):
        waiting(broker, wanted, 3)
    list(done(broker.broker[Pending].timeline(TimelineRequest((0, 1)))))
    assert (broker.store.end, broker.store.progress.to_json(), counts(broker)) == before


# ---- odd ones


def test_a_message_from_an_ipv6_broker_is_listed_like_any_other(make: Make) -> None:
    """IPv6 hosts make a longer head; a large body lies behind it."""
    broker = make(broker_ip="::1")
    topic = TopicInfo(TOPIC, 4, 4)
    broker.broker.topics.create(topic)
    broker.send(named("a", 5, body=bytes(50_000)), named("b", 5))
    assert [each.store_host for each in waiting(broker)] == ["[::1]:10911"] * 2
    assert waiting(broker) == plain_list(broker)


def test_a_key_is_a_whole_key(under_test: BrokerUnderTest) -> None:
    """Not a part of one, and not an id; a message with a key twice is there once."""
    under_test.send(
        Message(
            TOPIC, b"x", keys=("order-1", "order-12", "order-1"), delay_level=5, message_id="x"
        ),
        Message(TOPIC, b"x", keys=("x",), delay_level=5, message_id="order-1"),
    )
    assert waiting_ids(under_test, PendingFilter(key="order-1")) == ["x"]
    assert waiting_ids(under_test, PendingFilter(key="order")) == []
    assert waiting_ids(under_test, PendingFilter(key="x")) == ["order-1"]
    assert waiting_ids(under_test, PendingFilter(ids=("x",))) == ["x"]


def test_a_record_that_the_index_names_twice_is_listed_and_changed_once(
    under_test: BrokerUnderTest,
) -> None:
    """RocketMQ enters records again after a crash."""
    under_test.send(named("a", 5, keys=("k",)), named("b", 5, keys=("k",)))
    index = under_test.store.index
    for each in waiting(under_test):
        index._end_offset = -1
        record = under_test.store.read(each.physical_offset, each.store_size)
        place = (each.physical_offset, each.store_timestamp_ms)
        index.add([(topic_prefix(SCHEDULE_TOPIC), record[record.index(b"KEYS") :], *place)])
    assert waiting_ids(under_test, PendingFilter(key="k")) == ["a", "b"]
    assert by_filter(under_test, FIRE, PendingFilter(key="k")) == 2
    assert len(under_test.messages(TOPIC)) == 2
    under_test.close()
    index_files = (under_test.config.store_path / "index").iterdir()
    for path in list(index_files):
        path.unlink()
    under_test.open()


# ---- what is refused


@pytest.mark.parametrize(
    ("query", "field"),
    [
        (PendingQuery(max_messages=-1), "max_messages"),
        (PendingQuery(max_messages=PENDING_PAGE_MAX + 1), "max_messages"),
        (PendingQuery(PendingFilter(levels=(1, 0))), "levels"),
        (PendingQuery(PendingFilter(levels=(-2,))), "levels"),
        (PendingQuery(PendingFilter(key="two keys")), "key"),
        (PendingQuery(PendingFilter(reason="x" * 1_025)), "reason"),
        (PendingQuery(PendingFilter(due_from_ms=5, due_until_ms=5)), "due_until_ms"),
        (PendingQuery(PendingFilter(due_until_ms=0)), "due_until_ms"),
        (PendingQuery(cursor="x"), "cursor"),
        (PendingQuery(cursor="1.2.3"), "cursor"),
        (PendingQuery(cursor="1.2.3.4.5"), "cursor"),
        (PendingQuery(cursor="1.2.3."), "cursor"),
        (PendingQuery(cursor="1.2.-.4"), "cursor"),
        (PendingQuery(cursor="1.2.3.²"), "cursor"),
        (PendingQuery(cursor="1.2.3." + "9" * 20), "cursor"),
    ],
)
def test_a_query_that_cannot_be_meant_is_refused(
    under_test: BrokerUnderTest, query: PendingQuery, field: str
) -> None:
    """With field, value and rule."""
    under_test.send(named("a", 5))
    with pytest.raises(InvalidValue) as refused:
        done(under_test.broker[Pending].pages(query))
    assert refused.value.field == field


@pytest.mark.parametrize(
    "bounds", [(), (2, 1), (1, 1), (1, 2, 2, 3), tuple(range(TIMELINE_BOUNDS_MAX + 1))]
)
def test_instants_that_make_no_timeline_are_refused(
    under_test: BrokerUnderTest, bounds: tuple[int, ...]
) -> None:
    """Before the first level is looked at."""
    with pytest.raises(InvalidValue) as refused:
        done(under_test.broker[Pending].timeline(TimelineRequest(bounds)))
    assert refused.value.field == "bounds_ms"


@pytest.mark.parametrize("cursor", ["0.0.0.0", "-1.-5.-9.3", "9999999999999999999.1.1.1"])
def test_a_cursor_that_nobody_gave_costs_nothing(under_test: BrokerUnderTest, cursor: str) -> None:
    """Whatever numbers it has: a page, and no error."""
    under_test.send(named("a", 5, keys="k"))
    for wanted in (PendingFilter(), PendingFilter(key="k")):
        page: Any = done(under_test.broker[Pending].pages(PendingQuery(wanted, cursor)))
        assert len(page.messages) <= 1


def test_retries_are_found_by_what_their_failure_says(under_test: BrokerUnderTest) -> None:
    """By the topic they came from, their tag and their reason; the same filter changes them."""
    save_group(under_test)
    for number, (topic, tags, reason) in enumerate(
        [
            (TOPIC, "Paid", "no stock\nat line 1"),
            (TOPIC, "New", "time-out"),
            ("bills", "Paid", "NO STOCK left"),
            ("bills", "Paid", ""),
        ]
    ):
        message = received(under_test, topic=topic, tags=tags, message_id=f"m{number}")
        send_back(under_test, message, reason=reason)
    under_test.send(named("m4", 3, topic="bills", tags="Paid"))

    def ids(**wanted: Any) -> list[str]:
        return waiting_ids(under_test, PendingFilter(**wanted))

    assert ids(reason="No Stock") == ["m0", "m2"]
    assert ids(origin_topic=TOPIC) == ["m0", "m1"]
    assert ids(origin_topic="bills") == ["m2", "m3", "m4"]
    assert ids(origin_topic="bills", topic=retry_topic(GROUP)) == ["m2", "m3"]
    assert ids(tag="Paid") == ["m0", "m2", "m3", "m4"]
    assert ids(tag="Pai") == []
    assert ids(tag="Paid", reason="stock", origin_topic="bills") == ["m2"]
    assert ids(ids=("m0", "m1", "m2"), reason="stock") == ["m0", "m2"]
    assert ids(ids=("m1",), reason="stock") == []
    (first, *_) = waiting(under_test, PendingFilter(ids=("m0",)))
    place = f"{SCHEDULE_TOPIC}:{first.level - 1}:{first.queue_offset}"
    for own in (first.offset_message_id, place):
        assert ids(ids=(own, "m3")) == ["m0", "m3"]
    assert ids(failure_kind="time-out") == ["m1"]
    # A message that never failed is not one that failed without a reason.
    assert ids(failure_kind=NO_REASON) == ids(reason=NO_REASON) == ["m3"]
    assert by_filter(under_test, CANCEL, PendingFilter(reason="stock"), dry_run=True) == 2
    assert by_filter(under_test, CANCEL, PendingFilter(reason="stock")) == 2
    assert ids() == ["m1", "m3", "m4"]
