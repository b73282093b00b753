"""The reader: it sees what opening the store would, from outside, and touches nothing."""

from __future__ import annotations

import random
import shutil
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records.queue_entry import ENTRY, Entry
from rmqlite.kernel.records.record import NewRecord, Written
from rmqlite.kernel.store.disk.segments import Segments
from rmqlite.kernel.store.log.log_walk import LogWalk, Window
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.errors import InvalidValue, MessageNotFound, StoreDamaged
from rmqlite.kernel.words.message import DELAY, KEYS, REAL_TOPIC, TAGS, UNIQ_KEY, StoredMessage
from rmqlite.kernel.words.names import SCHEDULE_TOPIC, WAIT_TOPICS, dlq_topic, retry_topic
from rmqlite.store_tools.reader import MessageFilter, StoreReader, StoreState
from rmqlite.store_tools.repairing.places import encode_anonymous, encode_named
from tests.support.brokers import small_config
from tests.support.clock import FakeClock
from tests.support.files import ForgetfulFiles, QuickFiles
from tests.support.golden import INDEX, unpack_timers
from tests.support.looking import untouched
from tests.support.stores import (
    LOG_FILE_BYTES,
    StoreUnderTest,
    new_record,
    scheduled,
    tagged,
)
from tests.support.thinned import Thinned, by_turns

HOUR_MS = 3_600_000


def keyed(body: bytes | str, key: str, queue_id: int = 0) -> NewRecord:
    return new_record(body, queue_id=queue_id, properties={TAGS: key, KEYS: key})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreUnderTest]:
    """An open store with a bit of everything, its progress somewhat behind."""
    each = StoreUnderTest(tmp_path / "store")
    each.fill()
    each.append(*(keyed("k" * 300, f"tag-{number % 3}") for number in range(9)))
    each.persist()
    waiting = each.append(scheduled("due soon", 2), scheduled("due late", 3))
    each.send("late", "later")
    each.clock.forward(5_000)
    each.deliver(2, waiting[0])
    yield each
    each.store.release()


def found(root: Path, **wanted: Any) -> list[StoredMessage]:
    with untouched(root), StoreReader(root) as reader:
        return list(reader.messages(MessageFilter(**wanted)))


def places(messages: Sequence[StoredMessage]) -> list[int]:
    return [each.physical_offset for each in messages]


def everything(store: MessageStore) -> list[StoredMessage]:
    """All messages of an open store, as its broker would read them, in the order of the log."""
    messages = []
    for topic, queue_id in store.queue_keys():
        queue = store.queue(topic, queue_id)
        assert queue is not None
        for entry in queue.read(queue.min_offset, 1 << 20):
            # What stands where a record was lost is no message.
            with suppress(MessageNotFound):
                messages.append(store.read_message(entry.physical_offset, entry.size))
    kept = [message for message in messages if message.reconsume_times >= 0]
    return sorted(kept, key=lambda message: message.physical_offset)


def assert_seen_as_opened(config: BrokerConfig) -> None:
    """What a reader says of a store that nobody has open is what opening it gives."""
    root = config.store_path
    with untouched(root), StoreReader(root) as reader:
        overview = reader.overview()
        info = overview.info()
        ranges = {(q.topic, q.queue_id): (q.min_offset, q.max_offset) for q in overview.queues()}
        weights = {(q.topic, q.queue_id): q.bytes for q in overview.queues()}
        levels = {level.level: level for level in overview.levels()}
        plain = list(reader.messages(MessageFilter()))
        waiting = list(reader.messages(MessageFilter(is_scheduled=True)))
        states = [reader.waiting(message) for message in waiting]
    store = MessageStore(config, QuickFiles(), FakeClock())
    try:
        messages = everything(store)
        assert (info.end, info.damage) == (store.end, None)
        assert info.newest_timestamp_ms == store.newest_timestamp_ms
        assert sorted([*plain, *waiting], key=lambda m: m.physical_offset) == messages
        for key in store.queue_keys():
            queue = store.queue(*key)
            assert queue is not None
            low, high = ranges.pop(key, (0, 0))
            assert high == queue.max_offset
            assert low == queue.min_offset or low == high
            entries = queue.read(queue.min_offset, 1 << 20)
            assert weights.get(key, 0) == sum(entry.size for entry in entries)
        assert ranges == {}
        due: dict[int, list[Entry]] = {}
        for message, state in zip(waiting, states, strict=True):
            assert state is not None
            queue = store.queue(message.topic, message.queue_id)
            assert queue is not None
            entry = queue.entry(message.queue_offset)
            assert entry is not None
            completed = store.progress.of(state.level)
            is_open = completed.next_open(message.queue_offset) == message.queue_offset
            assert (state.deliver_at_ms, state.is_pending) == (entry.tags_code, is_open)
            if is_open:
                due.setdefault(state.level, []).append(entry)
        for level, seen in levels.items():
            entries = due.get(level, [])
            assert seen.pending == len(entries)
            assert seen.next_due_ms == min((e.tags_code for e in entries), default=None)
            oldest = min((e.physical_offset for e in entries), default=None)
            assert seen.oldest_physical_offset == oldest
    finally:
        store.release()


# ---- the same as opening it


def test_a_store_closed_cleanly_is_seen_as_opened(store: StoreUnderTest) -> None:
    """Ranges, weights, levels, every message with its state."""
    store.close()
    assert_seen_as_opened(store.config)


def test_a_crashed_store_is_seen_as_opened(store: StoreUnderTest) -> None:
    """Behind the persisted point the log alone says what there is."""
    store.crash()
    assert_seen_as_opened(store.config)


@pytest.mark.parametrize("table", ["storeProgress.json", "consumequeue", "both"])
def test_what_can_be_made_again_need_not_be_there(store: StoreUnderTest, table: str) -> None:
    """Opening makes them from the log, and so does looking, without writing them."""
    store.close()
    for name in ("storeProgress.json", "storeProgress.json.bak"):
        if table != "consumequeue":
            (store.root / "config" / name).unlink(missing_ok=True)
    if table != "storeProgress.json":
        shutil.rmtree(store.root / "consumequeue")
    assert_seen_as_opened(store.config)


def test_a_store_on_which_rocketmq_ran_for_long_is_not_walked_from_our_progress(
    store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queues say where the log ends; what we had delivered stays delivered."""
    store.persist()
    store.append(tagged("theirs", "tag"), scheduled("theirs", 1), scheduled("theirs", 3))
    store.crash()
    (store.root / "abort").unlink()
    monkeypatch.setattr("rmqlite.store_tools.reading.snapshot.FOREIGN_BYTES", -(1 << 40))
    assert_seen_as_opened(store.config)


def test_queues_that_do_not_fit_the_log_are_not_believed(store: StoreUnderTest) -> None:
    """Their last entry tells: then everything comes from the log."""
    store.close()
    path = store.root / "consumequeue" / "orders" / "1" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    queue = store.store.queue("orders", 1)
    assert queue is not None
    data[(queue.max_offset - 1) * ENTRY.size] ^= 1
    path.write_bytes(data)
    assert_seen_as_opened(store.config)


@pytest.mark.seeds(3, 30)
def test_at_any_moment_a_store_is_seen_as_opened(tmp_path: Path, seed: int) -> None:
    """Random sends, deliveries, changed levels, persists, retention; then a crash or a stop."""
    chance = random.Random(seed)
    each = StoreUnderTest(tmp_path / "store")
    waiting: list[tuple[int, Written]] = []
    for _ in range(chance.randint(1, 60)):
        each.clock.forward(chance.choice((0, 1, 700)))
        step = chance.random()
        if step < 0.4:
            each.append(tagged("x" * chance.randint(0, 900), "tag", queue_id=chance.randint(0, 2)))
        elif step < 0.7:
            level = chance.randint(1, 4)
            batch = [scheduled(f"{n}" * chance.randint(1, 90), level) for n in range(3)]
            waiting += [(level, written) for written in each.append(*batch)]
        elif step < 0.9 and waiting:
            level, written = waiting.pop(chance.randrange(len(waiting)))
            each.deliver(level, written)
        elif step < 0.94:
            each.persist()
        elif step < 0.97:
            each.restart(chance.choice(("1s 5s 10s", "3s 1s", "1s 1s 1s 9s")))
        elif not waiting:
            each.persist()
            each.store.drop_before(chance.randint(0, each.store.end))
    each.close() if chance.random() < 0.3 else each.crash()
    assert_seen_as_opened(each.config)


def test_a_log_cut_at_any_byte_ends_where_recovery_would_cut_it(
    tmp_path: Path, thinned: Thinned
) -> None:
    """A crash can leave any prefix of the last batch."""
    each = StoreUnderTest(tmp_path / "store")
    each.send("first")
    each.persist()
    begin = each.store.end
    each.append(tagged("second" * 5, "tag"), new_record("third", properties={"a": "b"}))
    end = each.store.end
    each.crash()
    path = each.log_files()[0]
    whole = path.read_bytes()
    for cut in thinned(range(begin, end + 1), 12):
        path.write_bytes(whole[:cut] + bytes(len(whole) - cut))
        with StoreReader(each.root) as reader:
            info = reader.overview().info()
            bodies = [message.body for message in reader.messages(MessageFilter())]
        assert info.damage is None
        assert bodies == [b"first", b"second" * 5, b"third"][: len(bodies)]
        copy = tmp_path / "copy"
        shutil.copytree(each.root, copy)
        opened = StoreUnderTest(copy)
        assert opened.store.end == info.end
        opened.store.release()
        shutil.rmtree(copy)


def is_below(folder: str, path: Path) -> bool:
    return folder in path.parts


def test_after_a_power_cut_the_reader_ends_where_the_store_does(
    tmp_path: Path, thinned: Thinned
) -> None:
    """What was not synced may be there in part, in the log and in the queues."""
    for seed in thinned(range(20), 9):
        chance = random.Random(seed)
        files = ForgetfulFiles()
        each = StoreUnderTest(tmp_path / str(seed), files=files)
        each.fill()
        for _ in range(chance.randint(1, 12)):
            each.append(tagged("y" * chance.randint(0, 700), "tag"), scheduled("w", 1))
            if chance.random() < 0.3:
                each.sync()
        each.crash()
        kept = chance.choice(("commitlog", "consumequeue", "config", "nothing"))
        survives = partial(is_below, kept)
        files.power_cut(torn_bytes=chance.randint(0, 3_000), surviving=survives)
        assert_seen_as_opened(each.config)


def test_a_log_without_its_tail_is_seen_as_opened(tmp_path: Path, thinned: Thinned) -> None:
    """Cut off before what was on disk once: opening says so, or refuses; so does looking."""
    each = StoreUnderTest(tmp_path / "store")
    each.fill()
    each.close()
    path = each.log_files()[-1]
    whole, base = path.read_bytes(), int(path.name)
    end = each.store.end - base
    for cut in [1, *thinned(range(40, end, 61), 8), end - 1]:
        for is_short in (False, True):
            copy = tmp_path / "copy"
            shutil.copytree(each.root, copy)
            short = copy / "commitlog" / path.name
            short.write_bytes(whole[:cut] + bytes(0 if is_short else len(whole) - cut))
            config = each.config.model_copy(update={"store_path": copy})
            try:
                assert_seen_as_opened(config)
            except StoreDamaged:
                with pytest.raises(StoreDamaged):
                    look_at_all(copy)
                with pytest.raises(StoreDamaged):
                    MessageStore(config, QuickFiles(), FakeClock())
            shutil.rmtree(copy)


def look_at_all(root: Path) -> None:
    with StoreReader(root) as reader:
        for is_scheduled in (False, True):
            for _ in reader.messages(MessageFilter(is_scheduled=is_scheduled)):
                pass


def test_a_deliver_time_that_rocketmq_made_up_is_seen_as_opened(store: StoreUnderTest) -> None:
    """Its abnormal recovery leaves a hash, or 0, where a time should be (reference §4.4)."""
    store.close()
    for level, made_up in ((1, 0), (2, 2_598_919), (3, -5)):
        path = store.root / "consumequeue" / SCHEDULE_TOPIC / str(level - 1) / f"{0:020d}"
        data = bytearray(path.read_bytes())
        for at in range(0, 60, 20):
            position, size, _ = ENTRY.unpack_from(data, at)
            ENTRY.pack_into(data, at, position, size, made_up)
        path.write_bytes(data)
    # As RocketMQ does when it starts.
    (store.root / "lock").write_bytes(b"lock")
    assert_seen_as_opened(store.config)


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("is_persisted", [True, False])
def test_a_repaired_place_is_seen_as_opened(
    store: StoreUnderTest, is_named: bool, is_persisted: bool
) -> None:
    """No queue offset changes, nobody is given it, and nothing waits for it."""
    sizes = {}
    for lost in (new_record("lost"), scheduled("lost", 3)):
        (at,) = store.append(lost)
        store.append(lost._replace(body=b"kept", body_crc=zlib.crc32(b"kept") & 0x7FFFFFFF))
        sizes[at] = lost
    store.crash()
    for at, lost in sizes.items():
        place = encode_anonymous(at.physical_offset, at.size, at.store_timestamp_ms)
        if is_named:
            place = encode_named(
                lost.topic,
                lost.queue_id,
                at.queue_offset,
                physical_offset=at.physical_offset,
                size=at.size,
                store_timestamp_ms=at.store_timestamp_ms,
            )
        path = (
            store.root
            / "commitlog"
            / f"{at.physical_offset // LOG_FILE_BYTES * LOG_FILE_BYTES:020d}"
        )
        data = bytearray(path.read_bytes())
        begin = at.physical_offset % LOG_FILE_BYTES
        data[begin : begin + at.size] = place
        path.write_bytes(data)
    if is_persisted:
        store.open()
        store.close()
    assert_seen_as_opened(store.config)
    with StoreReader(store.root) as reader:
        bodies = [m.body for m in reader.messages(MessageFilter(topic="orders"))]
        waiting = [m.body for m in reader.messages(MessageFilter(is_scheduled=True))]
    assert b"lost" not in bodies + waiting
    assert (bodies[-1], waiting[-1]) == (b"kept", b"kept")


@pytest.mark.parametrize("which", ["clean", "killed"])
def test_a_store_of_rocketmqs_is_seen_as_opened(golden: Path, which: str) -> None:
    """Without any table of ours; and again with ours, when we have crashed on it."""
    config = small_config(golden / which, **INDEX)
    assert_seen_as_opened(config)
    assert_seen_as_opened(config)


@pytest.mark.parametrize("which", ["clean", "killed"])
def test_a_store_with_timers_of_rocketmqs_is_seen_as_opened(tmp_path: Path, which: str) -> None:
    """Also by whoever looks before the first broker of ours opens it."""
    config = small_config(unpack_timers(tmp_path, which)[0], **INDEX)
    assert_seen_as_opened(config)
    assert_seen_as_opened(config)


@pytest.mark.parametrize("which", ["clean", "killed"])
def test_the_newest_time_is_known_where_nothing_had_to_be_walked(golden: Path, which: str) -> None:
    """Else what RocketMQ left pending would all seem overdue, today being years later."""
    with StoreReader(golden / which) as reader:
        newest = max(each.store_timestamp_ms for each in reader.messages(MessageFilter()))
        assert reader.layout().newest_timestamp_ms >= newest > 0


@pytest.mark.parametrize("gone", ["orders", "SCHEDULE_TOPIC_XXXX", "checkpoint"])
def test_a_killed_rocketmqs_queues_may_lack_what_the_log_has(golden: Path, gone: str) -> None:
    """A power cut takes queues, too: they were synced a minute ago."""
    root = golden / "killed"
    for path in sorted((root / "consumequeue" / gone).rglob("0*")):
        if path.is_file():
            data = path.read_bytes()
            path.write_bytes(data[: len(data) // 4] + bytes(len(data) - len(data) // 4))
    if gone == "checkpoint":
        (root / gone).unlink()
    assert_seen_as_opened(small_config(root, **INDEX))


# ---- filters


def sample(under_test: StoreUnderTest) -> list[StoredMessage]:
    """Retries, dead letters, keys and ids beside what is there; all messages of the store."""
    for number in range(30):
        topic = ("orders", "audit", retry_topic("g"), dlq_topic("g"))[number % 4]
        properties = {KEYS: f"k{number % 7} k{number % 3}", UNIQ_KEY: f"ID{number:030}"}
        under_test.append(new_record("z" * 300, topic, number % 2, properties=properties))
        waiting = {KEYS: f"k{number % 7}", DELAY: "1", REAL_TOPIC: topic}
        waiting[UNIQ_KEY] = f"ID{number:030}"
        under_test.append(new_record("w", SCHEDULE_TOPIC, 0, properties=waiting))
        under_test.clock.forward(100)
        if number == 20:
            under_test.persist()
    return everything(under_test.store)


def test_every_way_to_a_message_gives_the_same(
    store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch, thinned: Thinned
) -> None:
    """By queue, by walk, in window, from text: what a filter takes does not depend on it."""
    messages = sample(store)
    times = [message.store_timestamp_ms for message in messages]
    chance = random.Random(7)
    for _ in thinned(range(300), 15):
        topic = chance.choice(("", "orders", "aud*", "*", "?rders", "%DLQ%g", "none"))
        group = chance.choice(("", "", "g")) if not topic else ""
        queue_id = chance.choice((None, None, 0, 1))
        low, high = chance.choice((None, 0, 12)), chance.choice((None, 13, 40))
        since, until = sorted(chance.choices(times, k=2))
        key = chance.choice(("", "", "k1", "k5", "tag-1"))
        is_scheduled = chance.random() < 0.3
        wanted = MessageFilter(
            topic=topic,
            queue_id=queue_id,
            from_offset=low,
            to_offset=high,
            since_ms=chance.choice((None, since)),
            until_ms=chance.choice((None, until + 1)),
            key=key,
            group=group,
            is_scheduled=is_scheduled,
        )

        def takes(message: StoredMessage, wanted: MessageFilter = wanted) -> bool:
            name = message.topic
            if (name in WAIT_TOPICS) != wanted.is_scheduled:
                return False
            if wanted.is_scheduled:
                name = message.properties.get(REAL_TOPIC, "")
            fits = {
                "": not wanted.group or name in (retry_topic("g"), dlq_topic("g")),
                "aud*": name.startswith("aud"),
                "*": True,
                "?rders": name == "orders",
            }.get(wanted.topic, name == wanted.topic)
            at, offset = message.store_timestamp_ms, message.queue_offset
            return (
                fits
                and wanted.queue_id in (None, message.queue_id)
                and (wanted.from_offset or 0) <= offset < (wanted.to_offset or 1 << 60)
                and (wanted.since_ms or 0) <= at < (wanted.until_ms or 1 << 60)
                and (not wanted.key or wanted.key in message.keys)
            )

        expected = [message for message in messages if takes(message)]
        for share, probed in ((0.0, 1 << 60), (1e9, 1 << 60), (0.0, 1)):
            # Over the log, by the queues, by the key index, whatever is shorter.
            monkeypatch.setattr("rmqlite.store_tools.reading.search.WALK_SHARE", share)
            monkeypatch.setattr("rmqlite.store_tools.reading.search.PROBED_BYTES", probed)
            with StoreReader(store.root) as reader:
                search = reader.search(wanted)
                got = [message for batch in search.batches() for message in batch]
            assert places(got) == places(expected), wanted
            assert got == expected
            assert 0 <= search.done <= search.total


def test_an_id_finds_a_message_wherever_it_is(store: StoreUnderTest, thinned: Thinned) -> None:
    """By the producer's id every copy, those that wait included; by the offset id just one."""
    messages = sample(store)
    name = f"ID{4:030}"
    same = [message for message in messages if message.message_id == name]
    assert {message.topic for message in same} == {"orders", SCHEDULE_TOPIC}
    assert places(found(store.root, message_id=name)) == places(same)
    assert places(found(store.root, message_id=name, topic="orders")) == places(same)
    assert [m.topic for m in found(store.root, message_id=name, is_scheduled=True)] == [
        SCHEDULE_TOPIC
    ]
    for number in thinned(range(len(messages)), 4):
        message = messages[number]
        (only,) = found(store.root, message_id=message.offset_message_id.lower())
        assert only == message
    assert found(store.root, message_id="0" * 32) == []
    assert found(store.root, message_id="0A000001000004D2" + "f" * 16) == []


def test_the_key_index_spares_the_walk(
    store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as its writer vouches for it; behind that, the log is walked as ever."""
    messages = sample(store)
    known = store.store.persisted_end
    walked: list[int] = []

    class Watched(LogWalk):
        def __init__(self, log: Segments, begin: int, end: int, **options: Any) -> None:
            walked.append(begin)
            super().__init__(log, begin, end, **options)

    monkeypatch.setattr("rmqlite.store_tools.reading.search.PROBED_BYTES", 1)
    monkeypatch.setattr("rmqlite.store_tools.reading.search.LogWalk", Watched)
    for key in ("k0", "k6", "tag-0"):
        expected = [m for m in messages if key in m.keys and m.topic not in WAIT_TOPICS]
        assert found(store.root, key=key) == expected
    name = messages[-1].message_id
    assert found(store.root, message_id=name) == [m for m in messages if m.message_id == name]
    assert set(walked) == {known}
    for path in (store.root / "index").iterdir():
        path.unlink()
    assert found(store.root, message_id=name) == [m for m in messages if m.message_id == name]
    assert walked[-1] == 0


def test_a_broken_record_is_told_by_the_key_index_too(
    store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index knows that it was there."""
    monkeypatch.setattr("rmqlite.store_tools.reading.search.PROBED_BYTES", 1)
    messages = everything(store.store)
    number = next(n for n, m in enumerate(messages) if m.keys == ("tag-2",))
    message = broken(store, number, 4)
    with StoreReader(store.root) as reader:
        search = reader.search(MessageFilter(key="tag-2"), skip_damaged=True)
        got = [place for batch in search.batches() for place in places(batch)]
    expected = [m.physical_offset for m in messages if m.keys == ("tag-2",)]
    assert got == [place for place in expected if place != message.physical_offset]
    assert search.damaged == 1


def test_a_topic_or_a_queue_is_read_in_its_order(store: StoreUnderTest) -> None:
    """Queue offsets ascend, and those of the tail are there."""
    queue = store.store.queue("orders", 0)
    assert queue is not None
    offsets = [m.queue_offset for m in found(store.root, topic="orders", queue_id=0)]
    assert offsets == list(range(queue.max_offset))
    some = found(store.root, topic="orders", queue_id=0, from_offset=2, to_offset=4)
    assert [message.queue_offset for message in some] == [2, 3]


def test_many_queues_are_put_in_order_block_by_block(
    store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few entries in memory at a time the order is the same."""
    sample(store)
    store.persist()
    monkeypatch.setattr("rmqlite.store_tools.reading.search.ROWS_MAX", 1)
    monkeypatch.setattr("rmqlite.store_tools.reading.queue_view.BLOCK_ENTRIES", 3)
    for _ in range(3):
        store.send(*["more"] * 40)
        store.append(*(tagged("t", "tag", topic="audit") for _ in range(40)))
    store.persist()
    everywhere = places([m for m in everything(store.store) if m.topic not in WAIT_TOPICS])
    assert places(found(store.root, topic="*")) == everywhere


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"queue_id": -1}, "queue_id must be 0 or more"),
        ({"from_offset": 5, "to_offset": 5}, "to_offset must be more than"),
        ({"since_ms": 9, "until_ms": 1}, "until_ms must be more than"),
        ({"topic": "t", "group": "g"}, "a topic or a group, not both"),
        ({"key": "two words"}, "one key, without blanks"),
    ],
)
def test_a_filter_that_cannot_be_is_refused(wanted: dict[str, Any], said: str) -> None:
    """Field, value and rule."""
    with pytest.raises(InvalidValue, match=said):
        MessageFilter(**wanted)


# ---- figures


def test_segments_say_what_is_in_them(store: StoreUnderTest) -> None:
    """Each file with its first and last record; a file made in advance holds none."""
    store.close()
    messages = everything(store.store)
    spare = store.log_files()[-1].with_name(f"{len(store.log_files()) * LOG_FILE_BYTES:020d}")
    spare.write_bytes(bytes(LOG_FILE_BYTES))
    with StoreReader(store.root) as reader:
        segments = reader.overview().segments()
    assert [segment.path for segment in segments] == store.log_files()
    for segment in segments[:-1]:
        start = segment.physical_offset
        mine = [m for m in messages if start <= m.physical_offset < start + LOG_FILE_BYTES]
        assert segment.record_bytes == sum(message.store_size for message in mine)
        assert segment.first_timestamp_ms == mine[0].store_timestamp_ms
        assert segment.last_timestamp_ms == mine[-1].store_timestamp_ms
        assert segment.allocated_bytes > 0
    spare_info = segments[-1]
    assert (spare_info.record_bytes, spare_info.first_timestamp_ms) == (0, 0)


def test_the_message_that_pins_old_files_is_named(tmp_path: Path) -> None:
    """The oldest undelivered one, and the bytes of whole files that only it keeps."""
    each = StoreUnderTest(tmp_path / "store")
    each.send(*["x" * 500] * 10)
    (waiting,) = each.append(scheduled("wait", 3))
    each.send(*["x" * 500] * 20)
    each.close()
    files = len(each.log_files())
    newest_ms = max(path.stat().st_mtime_ns for path in each.log_files()) // 1_000_000
    with StoreReader(each.root) as reader:
        overview = reader.overview()
        assert overview.pin(0) is None
        pin = overview.pin(newest_ms + 1)
        assert reader.old_before_ms() < newest_ms
    assert pin is not None
    assert (pin.level, pin.physical_offset) == (3, waiting.physical_offset)
    assert pin.deliver_at_ms == waiting.store_timestamp_ms + 10_000
    first = waiting.physical_offset // LOG_FILE_BYTES
    assert pin.kept_bytes == (files - 1 - first) * LOG_FILE_BYTES


def test_lag_is_the_distance_to_the_end(store: StoreUnderTest) -> None:
    """By group, topic and queue, from the table that the broker writes."""
    table = {"orders@workers": {0: 2, 1: 3}, "orders@audit": {0: 99}, "gone@workers": {0: 7}}
    store.store.persist({"consumerOffset.json": lambda: {"offsetTable": table}})
    queue = store.store.queue("orders", 0)
    assert queue is not None
    with StoreReader(store.root) as reader:
        lags = reader.overview().lags()
    said = [(lag.group, lag.topic, lag.queue_id, lag.committed_offset) for lag in lags]
    assert said == [
        ("audit", "orders", 0, 99),
        ("workers", "gone", 0, 7),
        ("workers", "orders", 0, 2),
        ("workers", "orders", 1, 3),
    ]
    assert [lag.lag for lag in lags][:3] == [0, 0, queue.max_offset - 2]


def test_how_far_progress_is_behind(store: StoreUnderTest) -> None:
    """That much is walked at the next opening."""
    end = store.store.persisted_end
    with StoreReader(store.root) as reader:
        info = reader.overview().info()
    assert info.behind_bytes == store.store.end - end > 0
    store.close()
    with StoreReader(store.root) as reader:
        info = reader.overview().info()
        disk = reader.overview().disk()
    assert (info.state, info.behind_bytes) == (StoreState.CLOSED, 0)
    assert disk.log_bytes == len(store.log_files()) * LOG_FILE_BYTES
    assert 0 < disk.used_ratio < 1


def test_an_abort_file_that_nobody_holds_means_a_crash(store: StoreUnderTest) -> None:
    """RocketMQ's own sign."""
    store.crash()
    with StoreReader(store.root) as reader:
        assert reader.overview().info().state is StoreState.CRASHED


# ---- what is no store, and what is broken


def test_what_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    """A wrong path names itself and the rule."""
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    with untouched(tmp_path):
        with pytest.raises(InvalidValue, match=r"must be a folder that exists, not '.*missing'"):
            StoreReader(tmp_path / "missing")
        with pytest.raises(InvalidValue, match="a folder that exists"):
            StoreReader(tmp_path / "file")
        with pytest.raises(InvalidValue, match=r"must be a store's folder.*, not '.*empty'"):
            StoreReader(tmp_path / "empty")


def test_a_store_in_which_nothing_is_yet_is_shown_empty(tmp_path: Path) -> None:
    """A broker that has just been started for the first time."""
    each = StoreUnderTest(tmp_path / "store")
    with untouched(each.root), StoreReader(each.root) as reader:
        overview = reader.overview()
        info = overview.info()
        assert (info.begin, info.end, info.newest_timestamp_ms) == (0, 0, 0)
        assert overview.segments() == []
        assert overview.queues() == []
        assert [level.pending for level in overview.levels()] == [0, 0, 0]
        assert overview.pin(1 << 62) is None
        assert list(reader.messages(MessageFilter())) == []
        assert list(reader.messages(MessageFilter(topic="orders"))) == []
    each.store.release()


def test_a_gap_between_files_is_refused(store: StoreUnderTest) -> None:
    """As opening would refuse it."""
    store.send(*["x" * 900] * 10)
    store.close()
    store.log_files()[1].unlink()
    with pytest.raises(StoreDamaged, match="a gap"):
        StoreReader(store.root)


def broken(under_test: StoreUnderTest, number: int, at: int) -> StoredMessage:
    """Flip a byte of a message's record; close the store."""
    message = everything(under_test.store)[number]
    under_test.close()
    path = (
        under_test.root
        / "commitlog"
        / f"{message.physical_offset // LOG_FILE_BYTES * LOG_FILE_BYTES:020d}"
    )
    data = bytearray(path.read_bytes())
    data[message.physical_offset % LOG_FILE_BYTES + at] ^= 0x41
    path.write_bytes(data)
    return message


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    ("at", "wanted"), by_turns([0, 4, 30, 86, 90], [{}, {"topic": "orders"}, {"key": "tag-2"}])
)
def test_what_is_broken_is_named_after_all_that_is_sound(
    store: StoreUnderTest, at: int, wanted: dict[str, Any]
) -> None:
    """P10: file and byte; with skip_damaged it is counted and the rest is given."""
    all_places = places(found(store.root, **wanted))
    messages = everything(store.store)
    number = next(n for n, m in enumerate(messages) if n > 3 and m.keys == ("tag-2",))
    message = broken(store, number, at)
    assert message.physical_offset in all_places
    got: list[int] = []
    with untouched(store.root), StoreReader(store.root) as reader:
        batches = reader.search(MessageFilter(**wanted)).batches()
        with pytest.raises(StoreDamaged) as raised:
            got.extend(place for batch in batches for place in places(batch))
        search = reader.search(MessageFilter(**wanted), skip_damaged=True)
        rest = [place for batch in search.batches() for place in places(batch)]
    error = raised.value
    assert int(Path(error.path).name) + error.position == message.physical_offset
    assert got == [place for place in all_places if place < message.physical_offset]
    assert rest == [place for place in all_places if place != message.physical_offset]
    assert search.damaged == 1
    assert search.first_damage is not None


def flipped_is_told(root: Path, path: Path, position: int, whole: bytes) -> bool:
    """Is a message that has changed told, by any look at it?"""
    data = bytearray(whole)
    data[position] ^= 0x10
    path.write_bytes(data)
    try:
        with StoreReader(root) as reader:
            for is_scheduled in (False, True):
                list(reader.messages(MessageFilter(is_scheduled=is_scheduled)))
    except StoreDamaged:
        return True
    finally:
        path.write_bytes(whole)
    return False


def test_any_byte_that_changed_is_told(tmp_path: Path, thinned: Thinned) -> None:
    """P10: also where RocketMQ's record has no CRC; nothing of a closed store is exempt."""
    each = StoreUnderTest(tmp_path / "store")
    each.append(keyed("body", "key"), scheduled("wait", 1))
    end = each.store.end
    each.close()
    path = each.log_files()[0]
    whole = path.read_bytes()
    places = thinned(range(end), 4)
    assert [at for at in places if not flipped_is_told(each.root, path, at, whole)] == []


def test_any_byte_that_changed_is_told_between_two_checksums(
    tmp_path: Path, thinned: Thinned
) -> None:
    """Of large files, stretch by stretch; with skip_damaged the messages are given all the same."""
    each = StoreUnderTest(tmp_path / "store", log_file_bytes=1 << 19)
    for number in range(900):
        each.append(*[keyed("x" * 900, f"k{number}", n) for n in range(2)])
    each.close()
    chance = random.Random(5)
    paths = each.log_files()[:2]
    for path in paths:
        whole = path.read_bytes()
        for _ in thinned(range(40), 4):
            at = chance.randrange(len(whole) - 2_000)
            assert flipped_is_told(each.root, path, at, whole), at
    data = bytearray(paths[1].read_bytes())
    data[data.index(b"KEYS") + 5] ^= 1
    paths[1].write_bytes(data)
    with StoreReader(each.root) as reader:
        for wanted, expected in ((MessageFilter(), 1_800), (MessageFilter(queue_id=1), 900)):
            search = reader.search(wanted, skip_damaged=True)
            assert sum(len(batch) for batch in search.batches()) == expected
            assert search.damaged == 1
            assert "have changed since they were written" in str(search.first_damage)


def test_a_wrong_queue_entry_is_named(store: StoreUnderTest) -> None:
    """The queue's file, not the log's."""
    store.close()
    path = store.root / "consumequeue" / "orders" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    entries = [ENTRY.unpack_from(data, at) for at in (0, 20)]
    data[:20] = ENTRY.pack(*entries[1])
    path.write_bytes(data)
    with StoreReader(store.root) as reader:
        with pytest.raises(StoreDamaged, match="orders queue 0, queue offset 0") as raised:
            list(reader.messages(MessageFilter(topic="orders")))
        search = reader.search(MessageFilter(topic="orders"), skip_damaged=True)
        offsets = [m.queue_offset for batch in search.batches() for m in batch if m.queue_id == 0]
    assert (raised.value.path, raised.value.position) == (str(path), 0)
    assert (offsets[0], search.damaged) == (1, 1)


def test_damage_in_the_tail_ends_the_log_there_and_is_said(store: StoreUnderTest) -> None:
    """A live store's tail is not damaged; this one is, as something sound follows."""
    before = store.store.persisted_end
    number = next(n for n, m in enumerate(everything(store.store)) if m.body == b"late")
    message = broken(store, number, 92)
    for name in ("storeProgress.json", "storeProgress.json.bak"):
        (store.root / "config" / name).unlink()
    with StoreReader(store.root) as reader:
        info = reader.overview().info()
        assert info.damage is not None
        assert before < info.end == message.physical_offset
        with pytest.raises(StoreDamaged):
            list(reader.messages(MessageFilter()))
        list(reader.messages(MessageFilter(until_ms=1)))
        search = reader.search(MessageFilter(), skip_damaged=True)
        behind = [m for batch in search.batches() for m in batch if m.physical_offset > info.end]
    assert search.damaged == 1
    assert behind


# ---- while somebody writes


def test_what_is_written_after_opening_is_not_shown(store: StoreUnderTest) -> None:
    """One end, taken once: two looks of one reader agree."""
    with StoreReader(store.root) as reader:
        before = places(list(reader.messages(MessageFilter())))
        store.send(*["new" * 100] * 30)
        assert places(list(reader.messages(MessageFilter()))) == before
        assert places(list(reader.messages(MessageFilter(topic="orders"))))[-1] == before[-1]


@pytest.mark.parametrize("wanted", [{}, {"topic": "*"}, {"key": "tag-1"}])
def test_files_that_retention_takes_meanwhile_are_passed_over(
    tmp_path: Path, wanted: dict[str, Any]
) -> None:
    """Reading goes on at the new minimum, and the search says so."""
    each = StoreUnderTest(tmp_path / "store")
    for number in range(200):
        each.append(keyed("x" * 200, f"tag-{number % 3}", number % 2))
    each.persist()
    with StoreReader(each.root) as reader:
        search = reader.search(MessageFilter(**wanted))
        each.store.drop_before(each.store.end - 2 * LOG_FILE_BYTES)
        got = [place for batch in search.batches() for place in places(batch)]
        info = reader.overview().info()
        assert next(s.physical_offset for s in reader.overview().segments()) > info.begin
        assert reader.overview().pin(1 << 62) is None
    assert search.gone_before == each.store.min_offset
    left = [m for m in everything(each.store) if not wanted.get("key") or "tag-1" in m.keys]
    assert got == places(left)
    each.store.release()


def test_files_that_retention_takes_while_a_reader_opens_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The opening walk goes on behind them; queues begin anew at their first record there."""
    each = StoreUnderTest(tmp_path / "store")
    waiting = each.append(scheduled("early", 2))
    each.deliver(2, *waiting)
    for number in range(200):
        each.append(keyed("x" * 200, f"tag-{number % 3}", number % 2))
        if number % 9 == 0:
            each.deliver(2, *each.append(scheduled("soon", 2)))
    waiting = each.append(scheduled("late", 2))

    class Watched(LogWalk):
        def __iter__(self) -> Iterator[Window]:
            for window in super().__iter__():
                yield window
                if not each.store.min_offset:
                    each.store.drop_before(each.store.end - 3 * LOG_FILE_BYTES)

    monkeypatch.setattr("rmqlite.kernel.store.tables.logged_tables.LogWalk", Watched)
    with StoreReader(each.root) as reader:
        assert reader.overview().info().damage is None
        assert places(list(reader.messages(MessageFilter()))) == places(
            [m for m in everything(each.store) if m.topic not in WAIT_TOPICS]
        )
        assert [level.pending for level in reader.overview().levels()] == [0, 1, 0]
        ranges = {
            (q.topic, q.queue_id): (q.min_offset, q.max_offset) for q in reader.overview().queues()
        }
        for key in each.store.queue_keys():
            queue = each.store.queue(*key)
            assert queue is not None
            if queue.min_offset < queue.max_offset:
                assert ranges[key] == (queue.min_offset, queue.max_offset)
    each.store.release()


def test_a_store_that_is_written_all_the_time_reads_as_a_prefix(tmp_path: Path) -> None:
    """Open and read between any two writes of a batch: always a prefix, never an error."""
    sent: list[bytes] = []
    seen: list[int] = []

    class Watched(ForgetfulFiles):
        def write(self, path: Path, position: int, data: bytes) -> None:
            for part in (data[: len(data) // 3], data):
                super().write(path, position, part)
                look()

    def look() -> None:
        with StoreReader(tmp_path / "store") as reader:
            info = reader.overview().info()
            bodies = [m.body for m in reader.messages(MessageFilter(topic="orders"))]
        assert info.damage is None
        assert bodies == sent[: len(bodies)]
        seen.append(len(bodies))

    each = StoreUnderTest(tmp_path / "store", files=Watched())
    for number in range(25):
        batch = [f"{number}-{n}".encode() * 20 for n in range(number % 4 + 1)]
        sent += batch
        each.send(*batch)
        if number % 9 == 8:
            each.persist()
    assert seen == sorted(seen)
    assert max(seen) == len(sent)
    each.store.release()
