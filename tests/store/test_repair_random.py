"""Whatever is damaged, anywhere: after a repair the store opens, and nothing else is lost.

Each seed damages some bytes of any file (log, queues, index, checksums, tables): flipped,
wiped, overwritten, cut off, files removed.  Messages whose records were not hit are all
there, with their queue offsets.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqlite.store.log.checksums import BLOCK_BYTES
from tests.support.repairs import Known, filled, known, repaired
from tests.support.stores import LOG_FILE_BYTES, StoreUnderTest

SEEDS = 60
Hit = tuple[int, int]
"""Physical offsets begin <= n < end."""


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


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[Original]:
    """Sound stores, closed and killed, in files of one block or of several."""
    folder = tmp_path_factory.mktemp("originals")
    return [
        Original(folder / f"{size}-{end}", size, end)
        for size in (LOG_FILE_BYTES, 4 * BLOCK_BYTES)
        for end in ("close", "crash")
    ]


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


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_not_hit_is_there(tmp_path: Path, originals: list[Original], seed: int) -> None:
    """One to five damages at once."""
    chance = random.Random(seed)
    original = chance.choice(originals)
    store = original.copy(tmp_path / "store")
    hits: list[Hit] = []
    for _ in range(chance.randint(1, 5)):
        hits += damage(store.root, chance, store.log_file_bytes)
    repaired(store)
    after = known(store)
    for key, (begin, size, body) in original.known.items():
        if not any(first < begin + size and begin < last for first, last in hits):
            assert after[key] == (begin, size, body), key
    store.send("goes on")
    store.crash()
    store.open()
    assert b"goes on" in [body for _, _, body in known(store).values()]
    store.crash()
