"""Opening, reader and check walk a log by one walk: of a damaged store they say the same.

The stores are hostile in the ways of a disk: bytes flipped, wiped, overwritten, moved and cut
off, files gone, and a folder or a table gone at all.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from rmqlite.kernel.words.errors import StoreDamaged
from rmqlite.store_tools.check import StoreCheck, Verdict
from rmqlite.store_tools.reader import MessageFilter, StoreReader
from tests.support.repairs import Original, damage, known
from tests.support.stores import StoreUnderTest
from tests.support.thinned import Thinned

SEEDS: Final = 80
TOPIC: Final = "orders"
Places = dict[tuple[str, int, int], int]
"""The physical offset of each message, by topic, queue id and queue offset."""


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[Original]:
    """One that was closed, and one whose process was killed."""
    folder = tmp_path_factory.mktemp("originals")
    return [Original(folder / end, 4096, end) for end in ("close", "crash")]


def hostile(original: Original, folder: Path, chance: random.Random) -> StoreUnderTest:
    store = original.copy(folder)
    for _ in range(chance.randint(0, 3)):
        list(damage(store.root, chance, store.log_file_bytes))
    match chance.randrange(8):
        case 0:
            shutil.rmtree(store.root / "consumequeue", ignore_errors=True)
        case 1:
            for path in (store.root / "config").glob("storeProgress.json*"):
                path.unlink()
    return store


def read(store: StoreUnderTest) -> Places | None:
    """What a reader finds; None if it says that the store is damaged."""
    try:
        with StoreReader(store.root, store.config) as reader:
            reader.layout(allow_loss=True)
            return {
                (each.topic, each.queue_id, each.queue_offset): each.physical_offset
                for each in reader.messages(MessageFilter(topic=TOPIC))
            }
    except StoreDamaged:
        return None


def opened(store: StoreUnderTest) -> Places | None:
    """What an opening finds; None if it refuses the store."""
    try:
        store.open()
    except StoreDamaged:
        return None
    found = known(store)
    store.crash()
    return {key: place for key, (place, _, _) in found.items() if key[0] == TOPIC}


def checked(store: StoreUnderTest) -> tuple[Verdict, bool]:
    """The verdict, and whether an opening mends all that is wrong."""
    checking = StoreCheck(store.root, config=store.config)
    with closing(checking):
        found = [*checking.run()]
    return checking.verdict(found), all(each.opening_mends for each in found)


def test_opening_reader_and_check_agree_on_damaged_stores(
    tmp_path: Path, originals: list[Original], thinned: Thinned
) -> None:
    """A record that one of them sees and another does not would be lost, or come from nowhere."""
    seen = Counter[tuple[Verdict, bool]]()
    for seed in thinned(range(SEEDS), 4):
        chance = random.Random(f"seed {seed}")
        original = chance.choice(originals)
        store = hostile(original, tmp_path / f"{seed}", chance)
        verdict, is_mended = checked(store)
        by_reader, by_opening = read(store), opened(store)
        seen[verdict, by_opening is not None] += 1
        if by_opening is None:
            assert verdict is Verdict.INCONSISTENT, seed
            assert not is_mended, seed
        elif is_mended or by_reader is not None:
            # Else an entry is wrong that an opening trusts, and a reader stumbles over it.
            assert by_reader == by_opening, seed
        if verdict is not Verdict.INCONSISTENT:
            whole = {key: at for key, (at, _, _) in original.known.items() if key[0] == TOPIC}
            assert by_opening == whole, seed
    # Each kind is there, or else this would test nothing.
    assert {(Verdict.SOUND, True), (Verdict.NOT_CLOSED, True)} < seen.keys()
    assert {(Verdict.INCONSISTENT, True), (Verdict.INCONSISTENT, False)} < seen.keys()
