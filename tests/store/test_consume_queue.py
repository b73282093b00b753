"""Entries of 20 bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqlite.kernel.records.queue_entry import ENTRY, ENTRY_BYTES, Entry
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.disk.files import SystemFiles

PER_FILE = 10


def queue_in(folder: Path) -> ConsumeQueue:
    return ConsumeQueue(SystemFiles(), folder, PER_FILE * ENTRY_BYTES)


def write(queue: ConsumeQueue, *entries: Entry) -> None:
    queue.write(queue.max_offset, b"".join(ENTRY.pack(*entry) for entry in entries))
    queue.advance(queue.max_offset + len(entries))


def some_entries(count: int) -> list[Entry]:
    return [Entry(100 * n, 100, n) for n in range(count)]


def test_an_entry_has_the_bytes_that_rocketmq_writes(tmp_path: Path) -> None:
    """i64, i32, i64, big-endian (reference §2.1)."""
    write(queue_in(tmp_path), Entry(0x0102030405060708, 0x11121314, -2))
    first = (tmp_path / f"{0:020d}").read_bytes()[:ENTRY_BYTES]
    assert first == bytes.fromhex("0102030405060708 11121314 fffffffffffffffe")


def test_a_queue_that_begins_late_is_filled_up_to_there(tmp_path: Path) -> None:
    """G3: what RocketMQ puts before the first entry of a first file."""
    queue = queue_in(tmp_path)
    queue.begin_at(23)
    write(queue, Entry(7, 8, 9))
    (path,) = tmp_path.iterdir()
    assert path.name == f"{20 * ENTRY_BYTES:020d}"
    filler = bytes.fromhex("0000000000000000 7fffffff 0000000000000000")
    assert path.read_bytes()[: 4 * ENTRY_BYTES] == filler * 3 + ENTRY.pack(7, 8, 9)
    assert queue.entry(23) == Entry(7, 8, 9)


def test_only_what_lies_in_the_queue_is_read(tmp_path: Path) -> None:
    """Before and behind there is nothing, whatever the files hold."""
    queue = queue_in(tmp_path)
    write(queue, *some_entries(25))
    queue.drop_before(1_250)
    assert (queue.min_offset, queue.max_offset) == (13, 25)
    assert queue.entry(12) is None
    assert queue.entry(25) is None
    assert queue.entry(24) == Entry(2_400, 100, 24)
    assert queue.read(23, 10) == some_entries(25)[23:]
    assert queue.read(25, 10) == []


def test_dropping_takes_files_whose_records_are_gone(tmp_path: Path) -> None:
    """A queue file goes when its last entry's record went."""
    queue = queue_in(tmp_path)
    write(queue, *some_entries(35))
    assert queue.drop_before(900) == []
    assert len(queue.drop_before(2_000)) == 2
    assert queue.min_offset == 20
    assert len(queue.drop_before(1 << 40)) == 1
    assert (queue.min_offset, queue.max_offset) == (35, 35)


@pytest.mark.parametrize("physical_offset", range(-50, 3_600, 50))
def test_the_first_entry_at_or_behind_a_physical_offset_is_found(
    tmp_path: Path, physical_offset: int
) -> None:
    """By halving: a queue may have a hundred million entries."""
    queue = queue_in(tmp_path)
    write(queue, *some_entries(33))
    plain = [n for n in range(33) if 100 * n >= physical_offset]
    assert queue.first_with(physical_offset) == (plain[0] if plain else 33)


def test_what_lies_behind_the_end_is_cut(tmp_path: Path) -> None:
    """A stale entry must not become a message that nobody sent."""
    queue = queue_in(tmp_path)
    write(queue, *some_entries(25))
    queue.advance(11)
    queue.cut()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 2 * PER_FILE * ENTRY_BYTES
    assert queue.bytes_at(11, 9) == bytes(9 * ENTRY_BYTES)
    assert queue_in(tmp_path).recovered_end() == 11


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 25])
def test_a_queue_without_records_goes_on_where_its_files_end(tmp_path: Path, count: int) -> None:
    """Queue offsets that consumers have committed must not be given out again."""
    write(queue_in(tmp_path), *some_entries(count)) if count else None
    assert queue_in(tmp_path).recovered_end() == count


@pytest.mark.parametrize(("had", "begins"), [(5, 37), (25, 52), (5, 0)])
def test_a_queue_that_begins_elsewhere_leaves_no_gap_between_its_files(
    tmp_path: Path, had: int, begins: int
) -> None:
    """Files of an older life are in the way; with a gap the next opening would refuse."""
    old = queue_in(tmp_path)
    if begins:
        write(old, *some_entries(had))
    else:
        old.begin_at(40)
        write(old, *some_entries(had))
    queue = queue_in(tmp_path)
    queue.begin_at(begins)
    write(queue, Entry(7, 8, 9))
    again = queue_in(tmp_path)
    assert again.read_beyond(begins) == Entry(7, 8, 9)
