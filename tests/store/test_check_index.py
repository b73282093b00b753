"""The checker and the key index: whatever differs from the log's keys is told, nothing else."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import pytest

from rmqlite.kernel.records.key_hashes import (
    key_hash,
    key_hashes,
    keys_of,
    positive,
    token_hash,
    topic_prefix,
)
from rmqlite.kernel.records.record import NewRecord
from rmqlite.kernel.store.index_file import ENTRY, HEADER
from rmqlite.kernel.store.key_index import KeyIndex
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.store_tools.check import Finding, check
from rmqlite.store_tools.checking.index import (
    AHEAD,
    CHAIN,
    HEAD,
    NO_ENTRY,
    UNREADABLE,
    WRONG_ENTRY,
    IndexCheck,
)
from tests.support.brokers import LONG_BODIES, small_config
from tests.support.clock import FakeClock
from tests.support.files import QuickFiles
from tests.support.repairs import flip, overwrite
from tests.support.stores import (
    LOG_FILE_BYTES,
    StoreUnderTest,
    contents,
    findings,
    new_record,
    scheduled,
)
from tests.support.thinned import Thinned

SLOTS_AT = HEADER.size
ENTRIES_AT = HEADER.size + 4 * 7
ENTRIES = 8
"""How many a file holds: number 0 is never used."""


def keyed_record(number: int) -> NewRecord:
    """Four keys, one of them shared, one not ASCII."""
    keys = {"UNIQ_KEY": f"7F{number:030d}", "KEYS": f"order-{number} bill-{number % 3} ähnlich"}
    return new_record(f"order {number}", queue_id=number % 2, properties=keys)


@pytest.fixture
def keyed(tmp_path: Path) -> StoreUnderTest:
    """A sound store, closed, whose key index has six files and a half."""
    store = StoreUnderTest(tmp_path / "store")
    for number in range(13):
        store.append(keyed_record(number))
        store.clock.forward(1_500)
    store.close()
    assert len(index_files(store)) == 7
    assert store.findings() == []
    return store


def index_files(store: StoreUnderTest) -> list[Path]:
    return sorted((store.root / "index").iterdir())


def entry_at(number: int) -> int:
    return ENTRIES_AT + ENTRY.size * number


def only(store: StoreUnderTest) -> Finding:
    (finding,) = store.findings()
    return finding


# ---- what is found


def test_every_flipped_byte_is_found(keyed: StoreUnderTest, thinned: Thinned) -> None:
    """Of every header, slot and entry; told with the file, and with the field it is in."""
    for path in [index_files(keyed)[at] for at in (0, 1, -1)]:
        original = path.read_bytes()
        count = struct.unpack_from(">i", original, 36)[0]
        for position in (
            *thinned(range(ENTRIES_AT), 6),
            *thinned(range(entry_at(1), entry_at(count)), 6),
        ):
            flip(path, position, 0x80 >> position % 8)
            (finding,) = keyed.findings()
            assert finding.path == path, position
            if position < SLOTS_AT:
                assert (finding.what, finding.opening_mends) == (HEAD, True) or (
                    position >= 36 and finding.what == AHEAD
                )
                assert finding.position == position or finding.what == AHEAD
            else:
                begin = SLOTS_AT if position < ENTRIES_AT else ENTRIES_AT
                size = 4 if position < ENTRIES_AT else ENTRY.size
                assert finding.position == position - (position - begin) % size
                assert finding.what in (WRONG_ENTRY, CHAIN)
                assert not finding.opening_mends
            path.write_bytes(original)
    assert keyed.findings() == []


def test_what_is_wrong_is_said(keyed: StoreUnderTest) -> None:
    """What is there, and what the log wants there."""
    path = index_files(keyed)[1]
    right = ENTRY.unpack_from(path.read_bytes(), entry_at(3))
    flip(path, entry_at(3) + 11, 1)
    found = only(keyed)
    assert found.expected == f"hash {right[0]} of the record at {right[1]}, {right[2]} s"
    assert found.found == f"hash {right[0]} of the record at {right[1] ^ 1}, {right[2]} s"
    assert found.sentence == f"entry 3 is {found.found}; it should be {found.expected}"
    flip(path, entry_at(3) + 11, 1)
    flip(path, entry_at(3) + 19, 1)
    assert only(keyed).sentence == (
        f"entry 3 is chained to entry {right[3] ^ 1}, but its slot's entry before is {right[3]}"
    )
    flip(path, entry_at(3) + 19, 1)
    slot = key_hash("orders", "order-2") % 7
    (newest,) = struct.unpack_from(">I", path.read_bytes(), SLOTS_AT + 4 * slot)
    overwrite(path, SLOTS_AT + 4 * slot, bytes(4))
    said = f"slot {slot} begins with entry 0, but its newest one is {newest}"
    assert only(keyed).sentence == said


def without(data: bytes, number: int) -> bytes:
    """An index file in which an entry is missing, and all else was made without it."""
    header = list(HEADER.unpack_from(data))
    rows = [ENTRY.unpack_from(data, entry_at(n)) for n in range(1, header[5]) if n != number]
    return made(data, header, rows)


def with_one_more(data: bytes, number: int, key: str) -> bytes:
    """An index file in which a record has one more key, and the last entry has no room."""
    header = list(HEADER.unpack_from(data))
    rows = [ENTRY.unpack_from(data, entry_at(n)) for n in range(1, header[5])]
    rows.insert(number - 1, (key_hash("orders", key), *rows[number - 1][1:]))
    return made(data, header, rows[:-1])


def made(data: bytes, header: list[int], rows: list[tuple[int, ...]]) -> bytes:
    slots = [0] * 7
    entries = bytearray(data[ENTRIES_AT : entry_at(1)])
    for number, (hashed, offset, seconds, _) in enumerate(rows, 1):
        entries += ENTRY.pack(hashed, offset, seconds, slots[hashed % 7])
        slots[hashed % 7] = number
    # Counts and all as the store has persisted them.
    new = HEADER.pack(*header) + struct.pack(">7I", *slots) + entries
    return new.ljust(len(data), b"\0")


@pytest.mark.parametrize("number", [1, 4, ENTRIES])
def test_a_missing_entry_is_found(keyed: StoreUnderTest, number: int) -> None:
    """Though all chains are right; the file that follows is not blamed."""
    path = index_files(keyed)[2]
    path.write_bytes(without(path.read_bytes(), number))
    found = only(keyed)
    assert (found.path, found.what) == (path, WRONG_ENTRY)
    assert found.position == entry_at(number)


def test_an_entry_too_many_is_found(keyed: StoreUnderTest) -> None:
    """A key that no record has."""
    path = index_files(keyed)[2]
    path.write_bytes(with_one_more(path.read_bytes(), 5, "nobody's"))
    found = only(keyed)
    assert (found.path, found.position, found.what) == (path, entry_at(5), WRONG_ENTRY)


def test_each_wrong_file_is_told_once(keyed: StoreUnderTest) -> None:
    """What follows in it is made again with the rest."""
    files = index_files(keyed)
    for path in files[1:5:3]:
        for number in (2, 6):
            flip(path, entry_at(number), 1)
    flip(files[5], SLOTS_AT + 3, 1)
    found = [(each.path, each.position) for each in keyed.findings()]
    assert found == [
        (files[1], entry_at(2)),
        (files[4], entry_at(2)),
        (files[5], SLOTS_AT),
    ]


def test_keys_behind_the_last_entry_are_found(keyed: StoreUnderTest) -> None:
    """What the store was told of ends too soon."""
    tree = keyed.table("storeProgress.json")
    gone, *_ = tree["index"]["files"].pop()
    keyed.write_table("storeProgress.json", tree)
    (keyed.root / "index" / gone).unlink()
    found = only(keyed)
    assert (found.path, found.what) == (index_files(keyed)[-1], NO_ENTRY)
    assert found.position == entry_at(ENTRIES + 1)
    assert found.found == "none"


def test_a_count_that_no_record_accounts_for_is_found(keyed: StoreUnderTest) -> None:
    """Opening takes it back."""
    path = index_files(keyed)[-1]
    flip(path, 39, 0x02)
    found = only(keyed)
    assert (found.path, found.position, found.what) == (path, 36, AHEAD)
    assert found.opening_mends
    keyed.restart()
    keyed.close()
    assert keyed.findings() == []


@pytest.mark.one_of(4)
@pytest.mark.parametrize("which", [0, 3, -1])
@pytest.mark.parametrize("size", [0, 1, -1])
def test_a_file_of_another_length_is_told(keyed: StoreUnderTest, which: int, size: int) -> None:
    """Opening makes the index again; searches do without it until then."""
    path = index_files(keyed)[which]
    data = path.read_bytes()
    path.write_bytes(data[:size] if size < 1 else data + b"\0")
    found = only(keyed)
    assert (found.path, found.what, found.opening_mends) == (path, UNREADABLE, True)
    keyed.open()
    keyed.close()
    assert keyed.findings() == []


@pytest.mark.parametrize("which", [0, 3, -1])
def test_a_missing_file_is_told(keyed: StoreUnderTest, which: int) -> None:
    """And none of the others, whichever record they begin with."""
    path = index_files(keyed)[which]
    path.unlink()
    found = only(keyed)
    assert (found.path, found.what, found.opening_mends) == (path, UNREADABLE, True)


# ---- what is sound


def test_a_store_without_an_index_is_sound(keyed: StoreUnderTest) -> None:
    """Opening makes one."""
    shutil.rmtree(keyed.root / "index")
    assert keyed.findings() == []


def test_an_index_that_nobody_vouches_for_is_not_judged(keyed: StoreUnderTest) -> None:
    """RocketMQ tells of none; opening makes it again, whatever is there."""
    tree = keyed.table("storeProgress.json")
    for state in (None, 7, {}, {**tree["index"], "slots": 0}, {**tree["index"], "files": [[1]]}):
        keyed.write_table("storeProgress.json", {**tree, "index": state})
        flip(index_files(keyed)[1], entry_at(3) + 3, 1)
        assert keyed.findings() == []


def test_what_is_no_index_file_is_not_looked_at(keyed: StoreUnderTest) -> None:
    """Nor does a repair take it away."""
    (keyed.root / "index" / "NOTES").write_text("mine")
    (keyed.root / "index" / "99990101000000000").touch()
    assert keyed.findings() == []


def test_what_is_not_yet_in_the_index_is_no_finding(keyed: StoreUnderTest) -> None:
    """It is written behind the log; after a crash opening adds what is missing."""
    keyed.open()
    keyed.append(keyed_record(14))
    keyed.sync()
    assert keyed.findings() == []
    keyed.crash()
    assert keyed.findings() == []


def test_what_is_in_the_index_before_it_is_told_is_no_finding(keyed: StoreUnderTest) -> None:
    """Killed between the index and storeProgress.json: its newest file is ahead, and a new one."""
    before = contents(keyed.root / "config")
    for more in (1, 9):
        keyed.open()
        for number in range(more):
            keyed.append(keyed_record(20 + number))
        keyed.persist()
        keyed.crash()
        for name, data in before.items():
            (keyed.root / "config" / name).write_bytes(data or b"")
        assert keyed.findings() == []


def test_a_wrong_slot_is_found_in_a_file_that_is_ahead(keyed: StoreUnderTest) -> None:
    """What was told of must still be reached."""
    before = (keyed.root / "config" / "storeProgress.json").read_bytes()
    keyed.open()
    keyed.append(new_record("one more", properties={"KEYS": "one"}))
    keyed.persist()
    keyed.crash()
    (keyed.root / "config" / "storeProgress.json").write_bytes(before)
    assert keyed.findings() == []
    path = index_files(keyed)[-1]
    slots = struct.unpack_from(">7I", path.read_bytes(), SLOTS_AT)
    slot = next(slot for slot, number in enumerate(slots) if 0 < number <= 2)
    overwrite(path, SLOTS_AT + 4 * slot, bytes(4))
    assert only(keyed).what == CHAIN


def test_a_live_store_is_sound(keyed: StoreUnderTest) -> None:
    """Also while its last job was half done: slots may already name newer entries."""
    keyed.open()
    for number in range(30):
        keyed.append(keyed_record(30 + number))
        if number % 3 == 0:
            keyed.persist()
        assert keyed.findings() == []
    for number in range(3):
        keyed.append(keyed_record(60 + number))
    job = keyed.store.index.begin_flush()
    for part in job.parts:
        part.write_entries(keyed.files)
        assert keyed.findings() == []
    for part in job.parts:
        part.write_slots(keyed.files)
        assert keyed.findings() == []
    keyed.close()


def test_an_index_may_begin_in_the_middle_of_a_record(keyed: StoreUnderTest) -> None:
    """Its first file is full before the record's last key; retention then takes that file."""
    keyed.open()
    for number in range(40):
        keys = {"KEYS": f"a-{number} b-{number} c-{number} d-{number} e-{number}"}
        keyed.append(new_record("x" * 600, properties=keys))
    keyed.persist()
    before = (keyed.root / "config" / "storeProgress.json").read_bytes()
    keyed.store.drop_before(4 * LOG_FILE_BYTES)
    assert keyed.findings() == []
    keyed.close()
    assert keyed.findings() == []
    (keyed.root / "config" / "storeProgress.json").write_bytes(before)
    assert [each for each in keyed.findings() if each.path.parent.name == "index"] == []


def test_records_that_are_not_plain_have_their_keys(keyed: StoreUnderTest) -> None:
    """Committed ones, scheduled ones under the topic they wait in, odd blanks."""
    keyed.open()
    keyed.append(new_record("x", sys_flag=0x8, properties={"KEYS": "half", "UNIQ_KEY": "u"}))
    keyed.append(scheduled("later", 2))
    keyed.append(new_record("odd", properties={"KEYS": "  two   blanks ", "XKEYS": "no"}))
    keyed.close()
    assert keyed.findings() == []


@pytest.mark.parametrize("which", ["clean", "killed"])
def test_the_index_that_is_made_of_rocketmqs_log_is_sound(golden: Path, which: str) -> None:
    """Half messages and rolled back ones included; and it is compared."""
    root = golden / which
    MessageStore(small_config(root, **LONG_BODIES), QuickFiles(), FakeClock()).close({})
    assert list(check(root)) == []
    path = max((root / "index").iterdir())
    flip(path, path.read_bytes().rindex(b"\1"), 1)
    assert [each.path for each in check(root)] == [path]


@pytest.mark.parametrize("times_ms", [[9_000, 3_000, 9_500], [0, 2**31 * 1000, 2**31 * 1000]])
def test_times_that_an_entry_cannot_tell_are_no_finding(
    tmp_path: Path, times_ms: list[int]
) -> None:
    """A clock that went back, and a file of 68 years."""
    folder = tmp_path / "index"
    files = QuickFiles()
    index = KeyIndex(files, folder, slots=7, entries=9)
    for number, time_ms in enumerate(times_ms):
        index.add([(topic_prefix("orders"), b"KEYS\x01key", 100 * number, time_ms)])
    index.begin_flush().run()
    for wrong_by_ms, count in ((0, 0), (1_000, 1)):
        checking = IndexCheck(
            *(files, folder, index.state()),
            persisted_end=300,
            log_begin=lambda: 0,
            is_live=False,
        )
        prefix = topic_prefix("orders")
        times_ms[0] += wrong_by_ms
        for number, time_ms in enumerate(reversed(times_ms) if wrong_by_ms else times_ms):
            checking.want([(prefix, b"KEYS\x01key", 100 * number, time_ms)])
        assert len(list(checking.finish(300, ()))) == count


# ---- with other damage


def test_what_the_log_has_lost_is_not_told_of_the_index(keyed: StoreUnderTest) -> None:
    """A damaged record, a changed key, a lost tail: the log's fault, and told as its own."""
    for position, data in ((600, b"!!!!"), (-1, bytes(300))):
        copied = keyed.root.with_name(f"copy{position}")
        shutil.copytree(keyed.root, copied)
        path = min((copied / "commitlog").iterdir())
        at = keyed.store.end - 300 if position < 0 else position
        overwrite(path, at, data)
        found = findings(copied)
        assert found
        assert {each.path.parent.name for each in found} <= {"commitlog", "orders", "0", "1"} | {
            "config"
        }
    path = keyed.log_files()[0]
    overwrite(path, path.read_bytes().index(b"order-5"), b"O")
    found = keyed.findings()
    assert found
    assert [each for each in found if each.path.parent.name == "index"] == []


# ---- keys and hashes


def test_the_bytes_of_many_keys_give_the_same_hashes() -> None:
    """Together, or one by one; long ones and others than ASCII included."""
    chance = random.Random(1)
    for count in (0, 1, 2, 33, 128, 1000):
        tokens = [
            bytes(chance.choices(range(1, 127), k=chance.randrange(1, 33))) for _ in range(count)
        ]
        prefixes = [chance.randrange(1 << 32) for _ in tokens]
        one_by_one = [
            positive(token_hash(prefix, token))
            for prefix, token in zip(prefixes, tokens, strict=True)
        ]
        assert key_hashes(prefixes, tokens) == one_by_one
    odd = [b"x" * 33, "schlüssel".encode(), b"plain"]
    assert key_hashes([1, 2, 3], odd) == [
        positive(token_hash(prefix, token)) for prefix, token in zip([1, 2, 3], odd, strict=True)
    ]


PROPERTIES = {
    b"UNIQ_KEY\x01u\x02KEYS\x01a b\x02": [b"u", b"a", b"b"],
    b"KEYS\x01a\x02UNIQ_KEY\x01u": [b"u", b"a"],
    b"TAGS\x01t\x02UNIQ_KEY\x01u": [b"u"],
    b"KEYS\x01 a  a ": [b"a", b"a"],
    b"XKEYS\x01a\x02XUNIQ_KEY\x01u": [],
    b"UNIQ_KEY\x01\x02KEYS\x01": [],
    b"UNIQ_KEY\x01u\x02UNIQ_KEY\x01v\x02KEYS\x01a\x02KEYS\x01b": [b"v", b"b"],
    b"UNIQ_KEY\x01u\x02KEYS\x01a\x02KEYS\x01\x02UNIQ_KEY\x01": [b"u", b"a"],
    b"UNIQ_KEY\x01u\0v": [b"u\0v"],
    b"": [],
}


def test_the_keys_of_many_records_are_those_of_each() -> None:
    """Whatever else their properties hold, and whoever stands beside them."""
    chance = random.Random(2)
    batches = [[each] * 3 for each in PROPERTIES]
    batches += [chance.choices(list(PROPERTIES), k=chance.randrange(9)) for _ in range(300)]
    for batch in batches:
        records = [(n, each, 100 + n, 200 + n) for n, each in enumerate(batch)]
        keys = keys_of(records)
        wanted = [(n, t, 100 + n, 200 + n) for n, e in enumerate(batch) for t in PROPERTIES[e]]
        assert list(zip(*keys, strict=True)) == wanted


def test_a_prefix_is_what_stands_before_every_key() -> None:
    """As KeyIndex joins topic and key."""
    assert key_hashes([topic_prefix("orders")], [b"order-1"]) == [key_hash("orders", "order-1")]
