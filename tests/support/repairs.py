"""Stores to damage, and repairs that must keep their promises whatever was damaged."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqlite.kernel.records.completion import topic_ahead
from rmqlite.kernel.records.record import read_head
from rmqlite.kernel.records.wait_queues import wait_queue_of
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.words.errors import StoreDamaged
from rmqlite.kernel.words.levels import parse_levels
from rmqlite.kernel.words.property_string import PropertyString
from rmqlite.store_tools.repair import Plan, plan_repair, repair
from rmqlite.store_tools.repairing.plan import TopicCount, TopicCounts
from tests.support.clock import FakeClock
from tests.support.files import QuickFiles
from tests.support.rocketmq_rules import violations
from tests.support.stores import (
    LOG_FILE_BYTES,
    QUEUE_FILE_BYTES,
    StoreUnderTest,
    contents,
    scheduled,
    tagged,
)

LEVELS = "1s 5s 10s"
Known = dict[tuple[str, int, int], tuple[int, int, bytes]]
"""By topic, queue id and queue offset: physical offset, size and body."""
Hit = tuple[int, int]
"""Physical offsets begin <= n < end."""


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int, mask: int = 0x41) -> None:
    overwrite(path, position, bytes([path.read_bytes()[position] ^ mask]))


def filled(folder: Path, log_file_bytes: int = LOG_FILE_BYTES) -> StoreUnderTest:
    """Two queues, three levels, some of them delivered; part of it came after a persist."""
    store = StoreUnderTest(folder, log_file_bytes=log_file_bytes)
    store.fill()
    store.persist()
    for number in range(8):
        store.append(tagged(f"more {number}" * 12, "tag", queue_id=number % 2))
        store.append(scheduled(f"later {number}" * 6, 1 + number % 3))
    store.clock.forward(1_000)
    store.append(tagged("last", "tag"))
    store.sync()
    return store


def known(store: StoreUnderTest) -> Known:
    """Every message that the queues hold."""
    found: Known = {}
    for topic, queue_id in store.store.queue_keys():
        queue = store.store.queue(topic, queue_id)
        assert queue is not None
        for queue_offset in range(queue.min_offset, queue.max_offset):
            entry = queue.entry(queue_offset)
            assert entry is not None
            (walked,) = store.store.read_records([entry])
            if walked is not None:
                place = (topic, queue_id, queue_offset)
                found[place] = (entry.physical_offset, entry.size, walked.body)
    return found


def lost(before: Known, after: Known) -> list[tuple[str, int, int]]:
    """Which messages are not what they were; none may be somewhere else."""
    assert {key: after[key] for key in after} == {key: before[key] for key in after}
    return sorted(before.keys() - after.keys())


def refusal(store: StoreUnderTest) -> StoreDamaged:
    """What an opening is refused with; it changes nothing."""
    before = contents(store.root)
    with pytest.raises(StoreDamaged) as caught:
        store.open()
    assert contents(store.root) == before
    return caught.value


def planned(store: StoreUnderTest) -> Plan:
    """A plan; making it changes nothing."""
    before = contents(store.root)
    plan = plan_repair(
        store.root,
        config=store.config,
        levels=parse_levels(LEVELS),
    )
    assert contents(store.root) == before
    return plan


def repaired(store: StoreUnderTest, plan: Plan | None = None, files: Files | None = None) -> Path:
    """The side folder of a repair; the store is sound then, opens, and needs no other one."""
    disk = files or QuickFiles()
    clock = FakeClock(store.clock.now_ms())
    plan = plan or planned(store)
    side = repair(plan, files=disk, clock=clock)
    found = [str(each) for each in store.findings() if not each.what.startswith("delivered-")]
    assert not found, found
    assert planned(store).actions == ()
    assert_rocketmq_loads(store)
    store.open()
    if plan.actions:
        assert plan.after == counted(store), (plan.after, counted(store))
    return side


def counted(store: StoreUnderTest) -> TopicCounts:
    """What the open store itself holds for each topic: what a preview must have said."""
    found: TopicCounts = {}
    for (topic, queue_id, queue_offset), (physical_offset, size, _) in known(store).items():
        count = TopicCount(1, 0, size)
        if wait_queue := wait_queue_of(topic, queue_id):
            completed = store.store.progress.of(wait_queue)
            if completed.next_open(queue_offset) != queue_offset:
                continue
            head = read_head(store.store.read(physical_offset, size))
            assert head is not None
            topic, count = topic_ahead(PropertyString(head.properties)), TopicCount(0, 1, size)
        found[topic] = found.get(topic, TopicCount()).plus(count)
    # By topic they may differ, where a scheduled record's own properties are damaged.
    pending = [sum(topics.values()) for topics in store.store.progress.pending.values()]
    assert sum(pending) == sum(each.pending for each in found.values())
    return dict(sorted(found.items()))


def assert_rocketmq_loads(store: StoreUnderTest) -> None:
    """Its rules still hold; what they say of places that stand for several is ours alone."""
    broken = violations(
        store.root,
        log_file_bytes=store.log_file_bytes,
        queue_file_bytes=QUEUE_FILE_BYTES,
        index_slots=store.config.max_hash_slots,
        index_entries=store.config.max_index_entries,
    )
    broken = [each for each in broken if not each.endswith("belongs elsewhere")]
    assert not broken, broken


class Original:
    """A store to damage copies of."""

    def __init__(self, folder: Path, log_file_bytes: int, end: str) -> None:
        self.store = filled(folder, log_file_bytes)
        self.known: Known = known(self.store)
        getattr(self.store, end)()

    def copy(self, folder: Path) -> StoreUnderTest:
        shutil.copytree(self.store.root, folder)
        copied = StoreUnderTest.__new__(StoreUnderTest)
        copied.__dict__.update(self.store.__dict__)
        copied.root = folder
        copied.config = self.store.config.model_copy(update={"store_path": folder})
        return copied


def damage(root: Path, chance: random.Random, log_file_bytes: int) -> Iterator[Hit]:
    """Change one file somehow; what of the log it hits."""
    paths = [path for path in sorted(root.rglob("*")) if path.is_file() and path.stat().st_size]
    in_log = [path for path in paths if path.parent.name == "commitlog"]
    path = chance.choice(in_log if in_log and chance.random() < 0.5 else paths)
    data = bytearray(path.read_bytes())
    at = chance.randrange(max(1, len(data.rstrip(b"\0"))))
    size = min(chance.choice([1, 2, 3, 20, 100, 700]), len(data) - at)
    kind = chance.choice(["flip"] * 4 + ["wipe"] * 2 + ["junk", "shift", "cut", "remove"])
    if kind == "flip":
        size = 1
        data[at] ^= chance.randrange(1, 256)
    elif kind == "wipe":
        data[at : at + size] = bytes(size)
    elif kind == "junk":
        data[at : at + size] = chance.randbytes(size)
    elif kind == "shift":
        begin = chance.randrange(len(data))
        data[at : at + size] = data[begin : begin + size].ljust(size, b"\0")
    elif kind == "cut":
        size = log_file_bytes - at
        del data[at:]
    else:
        at, size = 0, log_file_bytes
    if kind == "remove":
        path.unlink()
    else:
        path.write_bytes(data)
    if path.parent.name == "commitlog":
        yield int(path.name) + at, int(path.name) + at + size
