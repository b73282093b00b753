"""The key index: RocketMQ's bytes, and the same ones again after whatever went wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import count, pairwise, product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from rmqlite.kernel import compiled
from rmqlite.kernel.records import record
from rmqlite.kernel.records.key_hashes import (
    Suffix,
    key_hash,
    positive,
    text_hash,
    token_hash,
    topic_prefix,
)
from rmqlite.kernel.records.record import Head
from rmqlite.kernel.store.disk.files import Files, ReadOnlyFiles
from rmqlite.kernel.store.index_file import ENTRY, HEADER, SECONDS_MAX, Header, Shape
from rmqlite.kernel.store.key_index import IndexJob, KeyIndex
from rmqlite.kernel.words.errors import StoreDamaged, StoreUnavailable
from rmqlite.kernel.words.message import KEYS, UNIQ_KEY, encode_properties
from rmqlite.kernel.words.property_string import PropertyString
from tests.support.files import QuickFiles
from tests.support.golden import unpack_golden
from tests.support.stores import contents
from tests.support.thinned import Thinned

pytestmark = pytest.mark.usefixtures("each_form")

SLOTS = 1500
"""More than a page of them."""
ENTRIES = 40
"""39 in a file: the first number is not used."""
BEGIN_MS = 1_700_000_000_000
LOG_FILE_BYTES = 1 << 20
TOPIC = "orders"


class Record(NamedTuple):
    """What add() is given."""

    topic: str
    properties: PropertyString
    physical_offset: int
    store_timestamp_ms: int


class Disk(QuickFiles):
    """Takes so many more calls, then fails; a power cut loses any of what was not synced."""

    def __init__(self, calls: int = 1 << 30) -> None:
        super().__init__()
        self.calls = calls
        self._durable: dict[Path, bytes] = {}
        self._unsynced: dict[Path, list[tuple[int, bytes]]] = {}

    def create(self, path: Path, size: int) -> None:
        self._take(path)
        super().create(path, size)
        self._durable[path] = b""
        self._unsynced[path] = [(0, bytes(size))]

    def write(self, path: Path, position: int, data: bytes) -> None:
        self._take(path)
        self._durable.setdefault(path, path.read_bytes())
        self._unsynced.setdefault(path, []).append((position, data))
        super().write(path, position, data)

    def sync(self, path: Path) -> None:
        self._take(path)
        self._durable[path] = path.read_bytes()
        self._unsynced[path] = []

    def cut(self, path: Path, position: int, end: int | None = None) -> None:
        self._take(path)
        super().cut(path, position, end)
        self._durable[path] = path.read_bytes()
        self._unsynced[path] = []

    def remove(self, path: Path) -> None:
        self._take(path)
        super().remove(path)
        self._durable.pop(path, None)
        self._unsynced.pop(path, None)

    def power_cut(self, chance: Random) -> None:
        for path, writes in self._unsynced.items():
            data = bytearray(self._durable[path])
            for position, sector in sectors(writes):
                if chance.random() < 0.5:
                    data += bytes(max(0, position + len(sector) - len(data)))
                    data[position : position + len(sector)] = sector
            if data:
                data += bytes(Shape(SLOTS, ENTRIES).file_bytes - len(data))
            path.write_bytes(data)
        self._unsynced.clear()

    def _take(self, path: Path) -> None:
        if not self.calls:
            raise StoreUnavailable("use", str(path), "told to fail")
        self.calls -= 1


def sectors(writes: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Writes in the pieces that a disk writes whole or not at all."""
    for position, data in writes:
        end = position + len(data)
        edges = [position, *range(position - position % 512 + 512, end, 512), end]
        for begin, until in pairwise(edges):
            yield begin, data[begin - position : until - position]


def properties(unique: str = "", keys: str = "") -> PropertyString:
    pairs = {"colour": "red", KEYS: keys, UNIQ_KEY: unique, "TAGS": "TagA"}
    found = {name: value for name, value in pairs.items() if value}
    return PropertyString(encode_properties(found))


def some_records(number: int) -> list[Record]:
    """Of every kind: without keys, with several, unlike ASCII, of one key again and again."""
    kinds: list[Callable[[int], PropertyString]] = [
        lambda n: properties(f"{n:032X}", f"order-{n} customer-{n % 5}"),
        lambda n: properties(f"{n:032X}"),
        lambda _: properties(),
        lambda n: properties(keys=f"bücher-{n % 3}  🚚 last"),
        lambda n: properties(f"{n:056X}", f"order-{n} order-{n}"),
    ]
    return [
        Record(
            (TOPIC, "SCHEDULE_TOPIC_XXXX")[n % 3 == 0],
            kinds[n % 5](n),
            200 * n,
            BEGIN_MS + 70 * n + (n >= 40) * 86_400_000,
        )
        for n in range(number)
    ]


KEYS_USED = [
    *(f"order-{n}" for n in range(90)),
    *(f"{n:032X}" for n in range(90)),
    *(f"customer-{n}" for n in range(5)),
    *("bücher-0", "bücher-1", "bücher-2", "🚚", "last", "nobody's"),
]


def new_index(folder: Path, files: Files | None = None) -> KeyIndex:
    return KeyIndex(files or QuickFiles(), folder / "index", slots=SLOTS, entries=ENTRIES)


def add(index: KeyIndex, records: Sequence[Record]) -> None:
    """In one call, as an append does."""
    index.add([(topic_prefix(each.topic), each.properties.encoded, *each[2:]) for each in records])


def enter(
    index: KeyIndex, topic: str, own: PropertyString, physical_offset: int, time_ms: int
) -> None:
    """A record by itself."""
    add(index, [Record(topic, own, physical_offset, time_ms)])


def flush(index: KeyIndex) -> IndexJob:
    job = index.begin_flush()
    job.run()
    index.flushed(job)
    return job


def filled(folder: Path, records: Sequence[Record]) -> KeyIndex:
    """An index that nothing ever interrupted, on disk."""
    index = new_index(folder)
    add(index, records)
    flush(index)
    return index


@cache
def tokens(each: Record) -> list[str]:
    text = each.properties.encoded.decode()
    pairs = dict(pair.split("\1") for pair in text.split("\2") if "\1" in pair)
    return [pairs.get(UNIQ_KEY, ""), *pairs.get(KEYS, "").split(" ")]


def found_by_hand(records: Sequence[Record], key: str, topic: str = TOPIC) -> list[int]:
    return [
        each.physical_offset
        for each in reversed(records)
        if each.topic == topic and key in tokens(each)
    ]


def check_finds(index: KeyIndex, records: Sequence[Record]) -> None:
    for key in KEYS_USED:
        assert list(index.find(TOPIC, key)) == found_by_hand(records, key), key


def java_hash(text: str) -> int:
    """As Java's documentation defines it, signed."""
    data = text.encode("utf-16-be")
    units = struct.unpack(f">{len(data) // 2}H", data)
    hashed = 0
    for power, unit in enumerate(reversed(units)):
        hashed = (hashed + unit * pow(31, power, 2**32)) % 2**32
    return hashed - 2**32 if hashed >= 2**31 else hashed


# ---- the hash


def test_the_hash_is_rocketmqs() -> None:
    """Vectors of the reference, and of Java itself."""
    assert key_hash("TopicA", "key1") == 641858179
    assert java_hash("TopicA#key1") in (641858179, -641858179)
    # Math.abs leaves this one negative; RocketMQ makes it 0.
    assert java_hash("polygenelubricants") == -(2**31)
    assert positive(text_hash("polygenelubricants")) == 0


@pytest.mark.parametrize("length", [*range(70), 1000, 32_767])
def test_the_fast_hash_is_the_plain_one(length: int) -> None:
    """Bytes are folded up to 32 at a time: each length is another case."""
    chance = Random(length)
    for letters in (["\x7f"], [chr(n) for n in range(1, 128)]):
        token = "".join(chance.choices(letters, k=length))
        assert positive(token_hash(text_hash("orders#"), token.encode())) == abs(
            java_hash(f"orders#{token}")
        )


@pytest.mark.parametrize("token", ["ü", "Bücher-17", "🚚", "鍵" * 20, "a" * 31 + "é"])
def test_other_characters_are_hashed_as_javas(token: str) -> None:
    """By UTF-16 units: two for what lies beyond the basic plane."""
    assert token_hash(text_hash("orders#"), token.encode()) == text_hash(f"orders#{token}")
    assert Suffix.of(token).behind(text_hash("orders#")) == text_hash(f"orders#{token}")
    assert key_hash("orders", token) == abs(java_hash(f"orders#{token}"))


# ---- RocketMQ's own files


@pytest.fixture(params=["clean", "killed"])
def golden(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return unpack_golden(tmp_path) / str(request.param)


def log_records(root: Path) -> Iterator[Head]:
    """Every record of a log of small files."""
    data = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    position = 0
    while True:
        head = record.read_head(data, position)
        if head is not None:
            yield head
            position += head.size
        elif data[position + 4 : position + 8] == struct.pack(">i", record.BLANK_MAGIC):
            position += LOG_FILE_BYTES - position % LOG_FILE_BYTES
        else:
            return


def test_the_index_of_rocketmqs_log_is_rocketmqs(golden: Path, tmp_path: Path) -> None:
    """Byte by byte, header included; transactions, batches, retries and schedule are in it.

    The file's name differs: RocketMQ takes the wall clock when it makes the file, here it
    is the first record's time, so that the same log makes the same names.
    """
    index = KeyIndex(QuickFiles(), tmp_path / "index", slots=1000, entries=8000)
    for head in log_records(golden):
        if head.sys_flag & record.TRANSACTION_TYPE != record.ROLLBACK:
            enter(
                index,
                head.topic,
                PropertyString(head.properties),
                head.physical_offset,
                head.store_timestamp_ms,
            )
    flush(index)
    [theirs] = (golden / "index").iterdir()
    [ours] = (tmp_path / "index").iterdir()
    assert ours.read_bytes() == theirs.read_bytes()
    assert 0 <= int(theirs.name) - int(ours.name) < 1000


def test_rocketmqs_files_are_read(golden: Path) -> None:
    """Every record is found by its own keys, and looking changes nothing."""
    before = contents(golden / "index")
    index = KeyIndex.reading(ReadOnlyFiles(), golden / "index", slots=1000, entries=8000)
    heads = [
        each
        for each in log_records(golden)
        if each.sys_flag & record.TRANSACTION_TYPE != record.ROLLBACK
    ]
    for head in heads[::17]:
        own = PropertyString(head.properties)
        each = Record(head.topic, own, head.physical_offset, head.store_timestamp_ms)
        for key in filter(None, tokens(each)):
            time = each.store_timestamp_ms
            found = index.find(each.topic, key, begin_ms=time, end_ms=time)
            assert each.physical_offset in list(found)
    numbers = [entry.number for entry in index.entries()]
    assert numbers == list(range(1, 1 + len(numbers)))
    [header] = index.headers().values()
    assert header.next_number == 1 + len(numbers)
    assert contents(golden / "index") == before


# ---- what is entered, what is found


def test_a_record_is_entered_under_its_id_then_its_keys(tmp_path: Path) -> None:
    """RocketMQ's order, which makes its bytes; only a blank separates, and none is empty."""
    index = new_index(tmp_path)
    enter(index, TOPIC, properties("ID", " a  b\tc "), 500, BEGIN_MS)
    enter(index, TOPIC, properties(), 700, BEGIN_MS + 9)
    enter(index, TOPIC, properties(keys="a"), 900, BEGIN_MS + 1000)
    flush(index)
    wanted = ["ID", "a", "b\tc"]
    reader = KeyIndex.reading(ReadOnlyFiles(), tmp_path / "index", slots=SLOTS, entries=ENTRIES)
    [path] = reader.headers()
    assert list(reader.entries()) == [
        *((path, n, key_hash(TOPIC, key), 500, 0, 0) for n, key in enumerate(wanted, 1)),
        (path, 4, key_hash(TOPIC, "a"), 900, 1, 2),
    ]
    assert reader.headers() == {path: Header(BEGIN_MS, BEGIN_MS + 1000, 500, 900, 3, 5)}


def test_what_is_not_flushed_is_found(tmp_path: Path) -> None:
    """In memory, in a job, on disk: find() sees all of them, newest first."""
    records = some_records(80)
    index = new_index(tmp_path)
    for begin in range(0, 80, 10):
        add(index, records[begin : begin + 10])
        check_finds(index, records[: begin + 10])
        job = index.begin_flush()
        check_finds(index, records[: begin + 10])
        if begin % 20:
            job.run()
            index.flushed(job)
            check_finds(index, records[: begin + 10])


def test_another_topics_message_is_not_found(tmp_path: Path) -> None:
    """The topic is part of what is hashed."""
    index = new_index(tmp_path)
    enter(index, TOPIC, properties("ID", "a"), 100, BEGIN_MS)
    enter(index, "SCHEDULE_TOPIC_XXXX", properties("ID", "a"), 200, BEGIN_MS)
    assert list(index.find(TOPIC, "a")) == [100]
    assert list(index.find("SCHEDULE_TOPIC_XXXX", "ID")) == [200]
    assert list(index.find("payments", "ID")) == []


def test_keys_of_one_hash_are_all_candidates(tmp_path: Path) -> None:
    """Java's hash of "Aa" is that of "BB": only the message itself tells which it is."""
    index = new_index(tmp_path)
    enter(index, TOPIC, properties("Aa"), 100, BEGIN_MS)
    enter(index, TOPIC, properties("BB"), 200, BEGIN_MS)
    assert list(index.find(TOPIC, "Aa")) == list(index.find(TOPIC, "BB")) == [200, 100]


def test_keys_of_one_slot_are_told_apart(tmp_path: Path) -> None:
    """One slot holds them all, each with its hash."""
    index = KeyIndex(QuickFiles(), tmp_path / "index", slots=1, entries=ENTRIES)
    for n in range(30):
        enter(index, TOPIC, properties(f"order-{n % 10}"), 100 * n, BEGIN_MS)
    for n in range(10):
        assert list(index.find(TOPIC, f"order-{n}")) == [2000 + 100 * n, 1000 + 100 * n, 100 * n]


def test_a_key_given_twice_is_found_once(tmp_path: Path) -> None:
    """RocketMQ also enters a record twice when it recovers."""
    index = new_index(tmp_path)
    enter(index, TOPIC, properties("a", "a a"), 100, BEGIN_MS)
    assert list(index.find(TOPIC, "a")) == [100]


def test_a_record_is_entered_under_the_last_of_several_pairs(tmp_path: Path) -> None:
    """As RocketMQ reads them, which finds it by its own index after a change of brokers."""
    index = new_index(tmp_path)
    encoded = (properties("first", "a").encoded, properties("last", "b").encoded)
    several = PropertyString(b"\x02".join(encoded))
    enter(index, TOPIC, several, 100, BEGIN_MS)
    found = {key: list(index.find(TOPIC, key)) for key in ("first", "a", "last", "b")}
    assert found == {"first": [], "a": [], "last": [100], "b": [100]}


def test_a_time_window_loses_nothing(tmp_path: Path) -> None:
    """Entries keep whole seconds; RocketMQ misses what lies up to a second behind (#5174)."""
    index = new_index(tmp_path)
    for n in range(60):
        enter(index, TOPIC, properties(keys="a"), 100 * n, BEGIN_MS + 70 * n)
    for begin_ms, length_ms in product(range(0, 4001, 250), (0, 1, 999, 1000, 2500)):
        window = (BEGIN_MS + begin_ms, BEGIN_MS + begin_ms + length_ms)
        inside = [100 * n for n in range(60) if window[0] <= BEGIN_MS + 70 * n <= window[1]]
        found = list(index.find(TOPIC, "a", begin_ms=window[0], end_ms=window[1]))
        assert found == sorted(found, reverse=True), window
        assert set(inside) <= set(found), window
        # Wider by less than a second on each side.
        assert len(found) <= len(inside) + 2 * 15, window


def test_a_clock_that_went_back_hides_nothing(tmp_path: Path) -> None:
    """RocketMQ's log may have it; such an entry has 0 seconds."""
    index = new_index(tmp_path)
    enter(index, TOPIC, properties(keys="a"), 100, BEGIN_MS)
    enter(index, TOPIC, properties(keys="a"), 200, BEGIN_MS - 60_000)
    assert list(index.find(TOPIC, "a", end_ms=BEGIN_MS - 60_000)) == [200, 100]


def test_seconds_end_at_the_largest_number(tmp_path: Path) -> None:
    """68 years behind a file's first record; what is later still is found."""
    index = new_index(tmp_path)
    late_ms = BEGIN_MS + 1000 * SECONDS_MAX + 5_000_000
    enter(index, TOPIC, properties(keys="a"), 100, BEGIN_MS)
    enter(index, TOPIC, properties(keys="a"), 200, late_ms)
    assert list(index.find(TOPIC, "a", begin_ms=late_ms)) == [200]


def test_a_record_is_not_entered_again(tmp_path: Path) -> None:
    """The walk after a start may begin before what is in the index already."""
    records = some_records(30)
    index = filled(tmp_path, records)
    before = contents(tmp_path / "index")
    add(index, records)
    assert index.begin_flush().parts == ()
    assert contents(tmp_path / "index") == before


# ---- files


def test_a_full_file_is_followed_by_another(tmp_path: Path) -> None:
    """At maxIndexNum, in the middle of a record if need be, as in RocketMQ."""
    records = [
        Record(TOPIC, properties(f"{n}", f"order-{n}"), 100 * n, BEGIN_MS + 86_400_000 * n)
        for n in range(40)
    ]
    index = filled(tmp_path, records)
    headers = list(index.headers().values())
    assert [each.next_number for each in headers] == [40, 40, 3]
    assert [(each.begin_offset, each.end_offset) for each in headers] == [
        (0, 1900),
        (1900, 3800),
        (3900, 3900),
    ]
    for n in range(40):
        assert list(index.find(TOPIC, f"order-{n}")) == [100 * n]
        day = records[n].store_timestamp_ms
        assert list(index.find(TOPIC, f"{n}", begin_ms=day, end_ms=day)) == [100 * n]
        assert list(index.find(TOPIC, f"{n}", begin_ms=day + 1000)) == []


def test_names_ascend_whatever_the_clock_says(tmp_path: Path) -> None:
    """RocketMQ reads files in the order of their names; a full one may take no millisecond."""
    index = new_index(tmp_path)
    for n in range(100):
        back_ms = 3_600_000 * (n > 60)
        enter(index, TOPIC, properties(f"{n}"), 100 * n, BEGIN_MS + 999 - back_ms)
    flush(index)
    names = [path.name for path in sorted((tmp_path / "index").iterdir())]
    assert [int(name) - int(names[0]) for name in names] == [0, 1, 2]
    assert all(len(name) == 17 for name in names)
    assert [path.name for path in index.headers()] == names


def test_files_before_an_offset_are_dropped(tmp_path: Path) -> None:
    """Whole ones only, and never the newest."""
    records = some_records(80)
    index = filled(tmp_path, records)
    paths, headers = list(index.headers()), list(index.headers().values())
    assert len(paths) > 2
    assert index.drop_before(headers[0].end_offset) == []
    assert index.drop_before(headers[0].end_offset + 1) == [paths[0]]
    assert not paths[0].exists()
    assert index.drop_before(1 << 40) == paths[1:-1]
    assert [path for path in paths if path.exists()] == [paths[-1]]
    kept = [each for each in records if each.physical_offset > headers[-1].begin_offset]
    assert list(index.find(TOPIC, tokens(kept[-1])[-1]))
    add(index, some_records(90)[80:])
    flush(index)
    reopened = new_index(tmp_path)
    assert reopened.load(index.state())


def test_a_file_that_is_not_on_disk_is_not_dropped(tmp_path: Path) -> None:
    """A job may be writing it."""
    index = new_index(tmp_path)
    add(index, some_records(80))
    job = index.begin_flush()
    assert index.drop_before(1 << 40) == []
    job.run()
    index.flushed(job)
    assert index.drop_before(1 << 40)


def test_little_is_written_for_little(tmp_path: Path) -> None:
    """A page of the slots and the entry, never the whole file."""

    class Counting(QuickFiles):
        written = 0

        def write(self, path: Path, position: int, data: bytes) -> None:
            self.written += len(data)
            super().write(path, position, data)

    files = Counting()
    index = KeyIndex(files, tmp_path / "index", slots=1_000_000, entries=1000)
    add(index, some_records(20))
    flush(index)
    files.written = 0
    enter(index, TOPIC, properties("one more"), 1 << 20, BEGIN_MS)
    assert files.written == 0
    flush(index)
    assert files.written == HEADER.size + ENTRY.size + 4096
    assert index.begin_flush().parts == ()


def test_a_job_writes_the_moment_it_was_made_at(tmp_path: Path) -> None:
    """While it runs records come in, into the same slots as before."""
    records = some_records(80)
    late = iter(records[20:])

    class Busy(QuickFiles):
        def write(self, path: Path, position: int, data: bytes) -> None:
            super().write(path, position, data)
            for each in (next(late, None), next(late, None), next(late, None)):
                if each is not None:
                    add(index, [each])

    index = new_index(tmp_path / "busy", Busy())
    add(index, records[:20])
    job, state = index.begin_flush(), index.state()
    job.run()
    filled(tmp_path / "quiet", records[:20])
    assert contents(tmp_path / "busy") == contents(tmp_path / "quiet")
    index.flushed(job)
    assert new_index(tmp_path / "busy").load(state)
    assert contents(tmp_path / "busy") == contents(tmp_path / "quiet")
    add(index, list(late))
    flush(index)
    filled(tmp_path / "all", records)
    assert contents(tmp_path / "busy") == contents(tmp_path / "all")


# ---- crashes


def test_a_clean_restart_goes_on(tmp_path: Path, thinned: Thinned) -> None:
    """After any number of records, the file just full among them."""
    records = some_records(80)
    filled(tmp_path / "whole", records)
    for number in thinned(range(81), 4, 3):
        folder = tmp_path / str(number)
        state = filled(folder, records[:number]).state()
        before = contents(folder)
        index = new_index(folder)
        assert index.load(state)
        assert contents(folder) == before
        check_finds(index, records[:number])
        add(index, records[number:])
        flush(index)
        assert contents(folder) == contents(tmp_path / "whole")


def stopped_at_every_call(
    tmp_path: Path, first: int, second: int, step: int = 1
) -> Iterator[tuple[Path, Disk, dict[str, object]]]:
    """A store that fails at the n-th call of its second job, and the state before that job."""
    records = some_records(second)
    for calls in count(step=step):
        folder = tmp_path / f"{first}-{calls}"
        disk = Disk()
        index = new_index(folder, disk)
        add(index, records[:first])
        flush(index)
        state = index.state()
        add(index, records[first:second])
        job = index.begin_flush()
        disk.calls = calls
        try:
            job.run()
            is_done = True
        except StoreUnavailable:
            is_done = False
        yield folder, disk, state
        if is_done:
            return


@pytest.mark.parametrize("first", [0, 5, 17, 30, 60])
def test_a_crash_at_any_call_of_a_job_costs_nothing(
    tmp_path: Path, first: int, is_long: bool
) -> None:
    """The index is taken back to the state, and adding again makes the very same bytes."""
    records = some_records(90)
    filled(tmp_path / "whole", records)
    whole = contents(tmp_path / "whole")
    for folder, disk, state in stopped_at_every_call(tmp_path, first, 75, 1 if is_long else 5):
        disk.close()
        index = new_index(folder)
        assert index.load(state)
        check_finds(index, records[:first])
        add(index, records[first:])
        flush(index)
        assert contents(folder) == whole
        check_finds(index, records)


@pytest.mark.parametrize("first", [0, 5, 17, 30])
@pytest.mark.seeds(1, 6)
def test_a_power_cut_at_any_call_of_a_job_costs_nothing(
    tmp_path: Path, first: int, seed: int, is_long: bool
) -> None:
    """Any of what was not synced is lost, or torn; then the start itself is interrupted."""
    chance = Random(f"{first} {seed}")
    records = some_records(90)
    filled(tmp_path / "whole", records)
    whole = contents(tmp_path / "whole")
    for folder, disk, state in stopped_at_every_call(tmp_path, first, 75, 1 if is_long else 5):
        disk.power_cut(chance)
        disk.close()
        for calls in (*chance.choices(range(5), k=8), 1 << 30):
            second_disk = Disk(calls)
            index = new_index(folder, second_disk)
            try:
                assert index.load(state)
            except StoreUnavailable:
                second_disk.power_cut(chance)
        check_finds(index, records[:first])
        add(index, records[first:])
        flush(index)
        assert contents(folder) == whole
        check_finds(index, records)


@pytest.mark.parametrize("torn_at", range(HEADER.size))
def test_a_torn_header_costs_nothing(tmp_path: Path, torn_at: int) -> None:
    """No disk should tear within a sector; one that does loses no key."""
    records = some_records(60)
    filled(tmp_path / "whole", records)
    index = filled(tmp_path / "torn", records[:12])
    state = index.state()
    add(index, records[12:16])
    job = index.begin_flush()
    path = job.parts[0].path
    _patched(0, HEADER.pack(*job.parts[0].header)[:torn_at])(path)
    index = new_index(tmp_path / "torn")
    assert index.load(state)
    add(index, records[12:])
    flush(index)
    assert contents(tmp_path / "torn") == contents(tmp_path / "whole")


def test_the_next_job_does_what_a_failed_one_did_not(tmp_path: Path, thinned: Thinned) -> None:
    """A full disk, then room again: nothing is forgotten."""
    records = some_records(80)
    filled(tmp_path / "whole", records)
    for calls in thinned(range(40), 5):
        folder = tmp_path / str(calls)
        disk = Disk()
        index = new_index(folder, disk)
        add(index, records[:10])
        flush(index)
        for begin in (10, 30):
            add(index, records[begin : begin + 20])
            disk.calls = calls % 12
            job = index.begin_flush()
            try:
                job.run()
            except StoreUnavailable:
                continue
            index.flushed(job)
        disk.calls = 1 << 30
        check_finds(index, records[:50])
        add(index, records[50:])
        flush(index)
        assert contents(folder) == contents(tmp_path / "whole")
        assert new_index(folder).load(index.state())


def test_entries_of_a_log_that_was_cut_leave_no_trace(tmp_path: Path) -> None:
    """RocketMQ ran on the store, and what it had not synced is gone from the log."""
    records = some_records(60)
    other = [
        Record(TOPIC, properties(f"other-{n}", "customer-1"), 4000 + 100 * n, BEGIN_MS + 2000)
        for n in range(60)
    ]
    filled(tmp_path / "whole", records)
    index = filled(tmp_path / "cut", records[:20])
    state = index.state()
    add(index, other)
    flush(index)
    index = new_index(tmp_path / "cut")
    assert index.load(state)
    filled(tmp_path / "before", records[:20])
    assert contents(tmp_path / "cut") == contents(tmp_path / "before")
    check_finds(index, records[:20])
    add(index, records[20:])
    flush(index)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


# ---- what does not fit


def test_an_index_without_a_state_is_made_anew(tmp_path: Path) -> None:
    """RocketMQ's files, or those of a lost storeProgress.json."""
    records = some_records(80)
    filled(tmp_path / "whole", records)
    filled(tmp_path / "old", records[:70])
    index = new_index(tmp_path / "old")
    assert not index.load(None)
    index.clear()
    assert contents(tmp_path / "old" / "index") == {}
    add(index, records)
    flush(index)
    assert contents(tmp_path / "old") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"slots": SLOTS, "entries": ENTRIES},
        {"slots": SLOTS, "entries": ENTRIES, "files": [["20261120132526553"]]},
        {"slots": SLOTS, "entries": ENTRIES, "files": [["20261120132526553", 1, 2, 3, "x", 5, 6]]},
        {"slots": SLOTS, "entries": ENTRIES, "files": [["20261120132526553", 1, 2, 3, 4, 5, 6]]},
        {"slots": SLOTS, "entries": ENTRIES, "files": 7},
        {"slots": SLOTS + 1, "entries": ENTRIES, "files": []},
        {"slots": SLOTS, "entries": ENTRIES + 1, "files": []},
    ],
)
def test_a_state_of_something_else_is_refused(tmp_path: Path, state: dict[str, object]) -> None:
    """Malformed, of another shape, or of a file that is not there."""
    filled(tmp_path, some_records(80))
    assert not new_index(tmp_path).load(state)


def _shorter(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _patched(position: int, data: bytes) -> Callable[[Path], None]:
    def patch(path: Path) -> None:
        whole = bytearray(path.read_bytes())
        whole[position : position + len(data)] = data
        path.write_bytes(whole)

    return patch


@pytest.mark.parametrize("which", [0, -1])
@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        _shorter,
        lambda path: path.write_bytes(b""),
        _patched(0, struct.pack(">q", 1)),
        _patched(16, struct.pack(">q", 77)),
        _patched(36, struct.pack(">i", 2)),
        _patched(36, struct.pack(">i", 0)),
    ],
)
def test_a_damaged_file_is_noticed(
    tmp_path: Path, which: int, damage: Callable[[Path], None]
) -> None:
    """Missing, of a wrong length, or with a header that says something else."""
    index = filled(tmp_path, some_records(80))
    damage(list(index.headers())[which])
    assert not new_index(tmp_path).load(index.state())


def test_files_that_retention_took_are_not_missed(tmp_path: Path) -> None:
    """They went with the log, after the state was written."""
    index = filled(tmp_path, some_records(80))
    state = index.state()
    oldest, following = list(index.headers().values())[:2]
    index.drop_before(oldest.end_offset + 1)
    assert not new_index(tmp_path).load(state)
    assert not new_index(tmp_path).load(state, min_offset=oldest.end_offset)
    reopened = new_index(tmp_path)
    assert reopened.load(state, min_offset=oldest.end_offset + 1)
    assert next(iter(reopened.headers().values())) == following


def test_what_is_no_index_file_stays(tmp_path: Path) -> None:
    """RocketMQ passes over a name that is no number, too."""
    index = filled(tmp_path, some_records(10))
    note = tmp_path / "index" / "note.txt"
    note.write_text("do not touch")
    assert new_index(tmp_path).load(index.state())
    new_index(tmp_path).clear()
    assert contents(tmp_path / "index") == {"note.txt": b"do not touch"}


def test_a_reader_refuses_files_of_another_shape(tmp_path: Path) -> None:
    """Slots and entries cannot be told from a length: the wrong ones would find nothing."""
    index = filled(tmp_path, some_records(80))
    folder = tmp_path / "index"
    with pytest.raises(StoreDamaged, match="12500 bytes"):
        KeyIndex.reading(ReadOnlyFiles(), folder, slots=SLOTS + 1390, entries=45)
    _patched(36, struct.pack(">i", ENTRIES + 1))(next(iter(index.headers())))
    with pytest.raises(StoreDamaged, match="next entry"):
        KeyIndex.reading(ReadOnlyFiles(), folder, slots=SLOTS, entries=ENTRIES)


@pytest.mark.parametrize("previous", [0, 9, 10, 11, 39, 40, 1 << 30, -1])
def test_a_damaged_chain_ends(tmp_path: Path, previous: int) -> None:
    """Wherever an entry points, each step of a search goes back."""
    index = KeyIndex(QuickFiles(), tmp_path / "index", slots=1, entries=ENTRIES)
    for n in range(1, ENTRIES):
        enter(index, TOPIC, properties(keys="a"), 100 * n, BEGIN_MS)
    flush(index)
    [path] = index.headers()
    _patched(HEADER.size + 4 + ENTRY.size * 10 + 16, struct.pack(">i", previous))(path)
    reader = KeyIndex.reading(ReadOnlyFiles(), path.parent, slots=1, entries=ENTRIES)
    for limit in (ENTRIES, 5):
        _patched(36, struct.pack(">i", limit))(path)
        reader = KeyIndex.reading(ReadOnlyFiles(), path.parent, slots=1, entries=ENTRIES)
        found = list(reader.find(TOPIC, "a"))
        behind = [1000, *range(900, 0, -100)] if previous == 9 else [1000]
        assert found == [n for n in [*range(3900, 1000, -100), *behind] if n < 100 * limit]


def test_the_first_entry_has_its_files_time(tmp_path: Path) -> None:
    """RocketMQ counts its seconds from the end of the file before, and then misses it."""
    index = new_index(tmp_path)
    enter(index, TOPIC, properties(keys="a"), 100, BEGIN_MS)
    flush(index)
    [path] = index.headers()
    _patched(Shape(SLOTS, ENTRIES).entries_at + ENTRY.size + 12, struct.pack(">i", 9000))(path)
    reader = KeyIndex.reading(ReadOnlyFiles(), path.parent, slots=SLOTS, entries=ENTRIES)
    assert list(reader.find(TOPIC, "a", begin_ms=BEGIN_MS, end_ms=BEGIN_MS)) == [100]
    assert list(reader.find(TOPIC, "a", begin_ms=BEGIN_MS + 9_000_000)) == []


def test_a_reader_beside_a_writer_sees_a_moment(tmp_path: Path) -> None:
    """At each call of a job: all of the moment before, and none of it twice."""
    records = some_records(75)
    for folder, disk, _ in stopped_at_every_call(tmp_path, 30, 75):
        disk.close()
        reader = KeyIndex.reading(ReadOnlyFiles(), folder / "index", slots=SLOTS, entries=ENTRIES)
        for key in KEYS_USED:
            found = list(reader.find(TOPIC, key))
            assert found == sorted(set(found), reverse=True)
            assert set(found_by_hand(records[:30], key)) <= set(found)
            assert set(found) <= set(found_by_hand(records, key))


def test_entries_that_cannot_be_written_are_an_error() -> None:
    """And no crash; whoever calls the compiled form is wrong."""
    if not compiled.is_on:
        return
    image, touched = bytearray(HEADER.size + 40), set[int]()

    def entered(
        hashes: Sequence[int], places: Sequence[int], times: Sequence[int], slots: int = 10
    ) -> tuple[bytes, int]:
        found: tuple[bytes, int] = compiled.loops.enter_keys(
            image, hashes, places, times, slots, 0, 1, touched, touched.add
        )
        return found

    both = ENTRY.pack(7, 300, 0, 0) + ENTRY.pack(17, 600, 9, 1)
    assert entered([7, 17], (300, 600), [0, 9_999]) == (both, 1)
    assert touched == {0}
    wrong: Any = "x"
    for hashes, places, times in (([7], [300], []), ([-1], [300], [0]), ([7], [2**64], [0])):
        with pytest.raises((ValueError, OverflowError)):
            entered(hashes, places, times)
    with pytest.raises(TypeError):
        entered([7], [wrong], [0])
    for slots, key in ((0, 1), (1000, 999)):
        with pytest.raises(ValueError, match="slot"):
            entered([key], [300], [0], slots)
