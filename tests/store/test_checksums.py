"""Every byte of the log is trusted or reported: running checksums and the synced mark."""

from __future__ import annotations

import random
import re
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from rmqlite.kernel.store.disk.segments import Segments
from rmqlite.kernel.store.log.checksums import (
    BLOCK_BYTES,
    MARK_BYTES,
    Checksums,
    Mark,
    Point,
    decode_mark,
    encode_mark,
    mark_position,
)
from tests.support.files import ForgetfulFiles, QuickFiles
from tests.support.repairs import overwrite, refusal
from tests.support.stores import LOG_FILE_BYTES, StoreUnderTest, scheduled, tagged
from tests.support.thinned import Thinned

MARK_PLACE = mark_position(LOG_FILE_BYTES)
STRIDE: Final = 4


def written_store(root: Path) -> StoreUnderTest:
    under_test = StoreUnderTest(root)
    for number in range(14):
        under_test.append(tagged(f"order {number}" * 40, "tag", queue_id=number % 2))
    (waiting,) = under_test.append(scheduled("soon", 1))
    under_test.sync()
    under_test.clock.forward(1_000)
    under_test.deliver(1, waiting)
    under_test.append(tagged("last", "tag"))
    under_test.sync()
    return under_test


@pytest.mark.parametrize(("end", "first"), [("close", 0), ("crash", 2)])
def test_every_flipped_byte_is_reported(
    tmp_path: Path, end: str, first: int, thinned: Thinned
) -> None:
    """Header and properties, which have no CRC in RocketMQ's format, as well as bodies.

    One byte of STRIDE, and others in each case: an opening for each takes time.
    """
    under_test = written_store(tmp_path / "store")
    log_end = under_test.store.end
    getattr(under_test, end)()
    flipped = 0
    for path in under_test.log_files():
        whole = path.read_bytes()
        start = int(path.name)
        last = min(log_end - start, len(whole[:MARK_PLACE].rstrip(b"\0")))
        for position in thinned(range(first, last, STRIDE), 16):
            flipped_byte = whole[position] ^ random.Random(position).randrange(1, 256)
            overwrite(path, position, bytes([flipped_byte]))
            error = refusal(under_test)
            assert error.path == str(path)
            assert error.position <= position
            overwrite(path, position, whole[position : position + 1])
            flipped += 1
    assert flipped > LOG_FILE_BYTES / STRIDE / 16
    under_test.open()


def test_a_flipped_byte_of_a_record_is_told_with_the_record(tmp_path: Path) -> None:
    """Where the record's own CRC or lengths tell, the position is the record's."""
    under_test = written_store(tmp_path / "store")
    second = under_test.store.queue("orders", 1)
    assert second is not None
    entry = second.read(1, 1)[0]
    under_test.close()
    overwrite(under_test.log_files()[0], entry.physical_offset + 88, b"!")
    assert refusal(under_test).position == entry.physical_offset


def test_a_flipped_byte_of_a_header_is_told_with_its_block(tmp_path: Path) -> None:
    """64 KiB: what opening says of a change that only the checksum has noticed."""
    under_test = StoreUnderTest(tmp_path / "store", log_file_bytes=4 * BLOCK_BYTES)
    for number in range(220):
        under_test.send(f"{number}" * 300)
    under_test.close()
    path = under_test.log_files()[0]
    place = next(
        at.start() for at in re.finditer(b"orders", path.read_bytes()) if at.start() > 70_000
    )
    # The born host of the next record; nothing reads it.
    overwrite(path, place + 8 + 49, b"\x7f")
    error = refusal(under_test)
    assert (error.path, error.position) == (str(path), BLOCK_BYTES)
    assert "have changed since they were written" in str(error)


def test_the_marks_own_bytes_are_no_records(tmp_path: Path) -> None:
    """Without its mark a store opens all the same: by what was persisted."""
    under_test = written_store(tmp_path / "store")
    before = under_test.view()
    under_test.close()
    for path in under_test.log_files():
        for byte in range(MARK_BYTES):
            at = MARK_PLACE + byte
            overwrite(path, at, bytes([path.read_bytes()[at] ^ 0x41]))
            under_test.open()
            assert under_test.view() == before
            under_test.close()


def test_a_lost_end_below_the_mark_is_damage(tmp_path: Path) -> None:
    """Zeros where something was on disk: the mark knows, nothing is shortened in silence."""
    under_test = written_store(tmp_path / "store")
    last = under_test.send("acknowledged")[0]
    under_test.sync()
    under_test.crash()
    overwrite(under_test.log_files()[-1], last.physical_offset % LOG_FILE_BYTES, bytes(last.size))
    error = refusal(under_test)
    assert error.position == last.physical_offset % LOG_FILE_BYTES
    assert f"the log was on disk up to {last.physical_offset + last.size}" in str(error)


def test_a_cut_off_tail_is_told_loudly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As after restoring an older copy of a file: the store opens with what is left."""
    under_test = written_store(tmp_path / "store")
    last = under_test.send("acknowledged")[0]
    under_test.close()
    path = under_test.log_files()[-1]
    position = last.physical_offset % LOG_FILE_BYTES
    path.write_bytes(path.read_bytes()[: position + 30].ljust(LOG_FILE_BYTES, b"\0"))
    under_test.open()
    assert under_test.store.end == last.physical_offset
    assert f"position={position} lost_bytes={last.size}" in caplog.text
    under_test.crash()
    assert under_test.findings() == []


@pytest.mark.parametrize("torn_at", [512, 513, 800, 1_023])
def test_what_was_never_promised_may_have_holes(tmp_path: Path, torn_at: int) -> None:
    """A power cut loses some sectors, or their rest: the log ends at the first hole."""
    files = ForgetfulFiles()
    under_test = StoreUnderTest(tmp_path / "store", files=files)
    under_test.send("promised")
    under_test.sync()
    end = under_test.store.end
    under_test.send("x" * 1_000, "y" * 1_000, "z" * 200)
    under_test.crash()
    (path,) = under_test.log_files()
    # Of three records the first has lost a sector in its middle, the others are whole.
    overwrite(path, torn_at, bytes(1_024 - torn_at))
    under_test.open()
    assert under_test.bodies() == [b"promised"]
    assert under_test.store.end == end
    under_test.send("next")
    under_test.crash()
    assert under_test.findings() == []


def test_a_header_that_changed_beyond_the_mark_is_damage_when_records_follow(
    tmp_path: Path,
) -> None:
    """Only sectors that were never written are excused."""
    under_test = StoreUnderTest(tmp_path / "store")
    under_test.send("promised")
    under_test.sync()
    first = under_test.send("one", "two")[0]
    under_test.crash()
    overwrite(under_test.log_files()[0], first.physical_offset + 88, b"!")
    assert refusal(under_test).position == first.physical_offset


def test_a_mark_is_in_one_sector() -> None:
    """On disk as a whole, or as it was before."""
    for size in (1024, 4096, 70_000, 1 << 20, 1 << 30, 1000, 513, 5000):
        place = mark_position(size)
        assert 0 <= place <= size - MARK_BYTES
        assert place // 512 == (place + MARK_BYTES - 1) // 512
    mark = Mark(1 << 40, (1 << 40) + 5, 0xFFFFFFFF)
    encoded = encode_mark(mark)
    assert len(encoded) == MARK_BYTES
    assert decode_mark(encoded) == mark
    assert decode_mark(encoded[:-1] + b"?") is None


@pytest.fixture
def sums(tmp_path: Path) -> Iterator[tuple[Checksums, Segments]]:
    files = QuickFiles()
    segments = Segments(files, tmp_path / "commitlog", 4 * BLOCK_BYTES)
    yield Checksums(files, tmp_path / "checksums", segments), segments
    files.close()


def test_the_chain_is_the_crc_of_everything_before(sums: tuple[Checksums, Segments]) -> None:
    """However the bytes were cut into writes; at each 64 KiB it is kept."""
    checksums, segments = sums
    chance = random.Random(1)
    data = chance.randbytes(3 * BLOCK_BYTES + 1_000)
    point, at = Point(0, 0), 0
    while at < len(data):
        part = data[at : at + chance.choice([1, 100, 5_000, 2 * BLOCK_BYTES])]
        segments.write(at, part)
        point = checksums.extended(point, part)
        at += len(part)
    assert point == (len(data), zlib.crc32(data))
    blocks = [Point(n * BLOCK_BYTES, zlib.crc32(data[: n * BLOCK_BYTES])) for n in (1, 2, 3)]
    assert list(checksums.points(0, at)) == blocks
    assert list(checksums.points(BLOCK_BYTES, 3 * BLOCK_BYTES - 1)) == blocks[1:2]
    assert checksums.known_before(3 * BLOCK_BYTES - 1) == blocks[1]
    assert checksums.known_before(BLOCK_BYTES - 1) == Point(0, 0)
    assert checksums.chain_at(blocks[1], at) == point.chain
    checksums.begin_at(Point(0, 0), at)
    assert checksums.last == point


def test_without_its_tables_a_store_opens_as_it_was(tmp_path: Path) -> None:
    """They help to find damage; nothing is lost with them."""
    under_test = StoreUnderTest(tmp_path / "store", log_file_bytes=2 * BLOCK_BYTES)
    for number in range(330):
        under_test.send(f"{number}" * 300)
    before = under_test.view()
    under_test.crash()
    assert len(list((under_test.root / "checksums").iterdir())) == 2
    shutil.rmtree(under_test.root / "checksums")
    under_test.open()
    assert under_test.view() == before
    under_test.send("next")
    under_test.restart()
    assert under_test.bodies()[-1] == b"next"


def test_tables_go_with_their_files(tmp_path: Path) -> None:
    """Retention leaves nothing behind."""
    under_test = StoreUnderTest(tmp_path / "store", log_file_bytes=2 * BLOCK_BYTES)
    for number in range(400):
        under_test.send(f"{number}" * 300)
    under_test.persist()
    first = under_test.log_files()[0]
    under_test.store.drop_before(2 * BLOCK_BYTES)
    assert not first.exists()
    names = {path.name for path in (under_test.root / "checksums").iterdir()}
    assert names == {path.name for path in under_test.log_files()}


def test_a_lost_blank_is_a_hole_though_the_mark_behind_it_is_there(tmp_path: Path) -> None:
    """The sector of the blank and the mark: as it was before the file was full."""
    under_test = StoreUnderTest(tmp_path / "store")
    under_test.send("x" * 3_700)
    under_test.sync()
    first = under_test.log_files()[0]
    before = first.read_bytes()
    end = under_test.store.end
    under_test.send("y" * 500)
    under_test.crash()
    # Of the second send the next file reached the disk, the blank before it did not.
    first.write_bytes(before)
    under_test.open()
    assert under_test.store.end == end
    assert under_test.bodies() == [b"x" * 3_700]


def test_a_full_file_that_was_torn_anywhere_ends_the_log(tmp_path: Path, thinned: Thinned) -> None:
    """The next file was synced first; of this one the write got as far as any byte."""
    under_test = StoreUnderTest(tmp_path / "store")
    under_test.send("x" * 3_300)
    under_test.sync()
    first = under_test.log_files()[0]
    before, begin = first.read_bytes(), under_test.store.end
    under_test.send("y" * 200, "z" * 500)
    under_test.crash()
    written = first.read_bytes()
    saved, counts = shutil.copytree(under_test.root, tmp_path / "saved"), list[int]()
    for torn_at in thinned(range(begin, MARK_PLACE), 9):
        shutil.rmtree(under_test.root)
        shutil.copytree(saved, under_test.root)
        overwrite(first, begin, written[begin:torn_at] + before[torn_at:])
        under_test.open()
        bodies = under_test.bodies()
        assert bodies == [b"x" * 3_300, b"y" * 200, b"z" * 500][: len(bodies)]
        counts.append(len(bodies))
        under_test.crash()
    assert counts == sorted(counts)
    assert set(counts) == {1, 2, 3}


def test_checksums_of_bytes_that_a_power_cut_took_are_forgotten(tmp_path: Path) -> None:
    """Its page reached the disk, the bytes did not; then others were written there."""
    under_test = StoreUnderTest(tmp_path / "store", log_file_bytes=8 * BLOCK_BYTES)
    under_test.send("promised")
    under_test.sync()
    path = under_test.log_files()[0]
    before = path.read_bytes()
    for number in range(250):
        under_test.send(f"{number}" * 300)
    under_test.crash()
    table = under_test.root / "checksums" / path.name
    stale = table.read_bytes()
    assert any(stale)
    path.write_bytes(before)
    under_test.open()
    assert not any(table.read_bytes())
    for number in range(250):
        under_test.send(f"{number + 7}" * 300)
    under_test.restart()
    under_test.close()
    assert under_test.findings() == []


def test_checksums_of_another_log_are_forgotten(tmp_path: Path) -> None:
    """RocketMQ began anew in the folder, and knows nothing of ours."""
    under_test = StoreUnderTest(tmp_path / "store", log_file_bytes=8 * BLOCK_BYTES)
    for number in range(250):
        under_test.send(f"{number}" * 300)
    under_test.close()
    for name in ("commitlog", "consumequeue", "index", "config"):
        shutil.rmtree(under_test.root / name, ignore_errors=True)
    under_test.open("1s")
    for number in range(250):
        under_test.send(f"{number + 7}" * 300)
    under_test.restart()
    under_test.close()
    assert under_test.findings() == []
