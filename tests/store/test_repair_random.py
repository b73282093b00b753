"""Whatever is damaged, anywhere: after a repair the store opens, and nothing else is lost.

Each seed damages some bytes of any file (log, queues, index, checksums, tables): flipped,
wiped, overwritten, cut off, files removed.  Messages whose records were not hit are all
there, with their queue offsets.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqlite.kernel.store.log.checksums import BLOCK_BYTES
from tests.support.repairs import Hit, Original, damage, known, repaired
from tests.support.stores import LOG_FILE_BYTES


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[Original]:
    """Sound stores, closed and killed, in files of one block or of several."""
    folder = tmp_path_factory.mktemp("originals")
    return [
        Original(folder / f"{size}-{end}", size, end)
        for size in (LOG_FILE_BYTES, 4 * BLOCK_BYTES)
        for end in ("close", "crash")
    ]


@pytest.mark.seeds(8, 60)
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
