"""The compiled form of the decoder beside the plain one."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.kernel import compiled
from rmqlite.kernel.records.record import NewRecord
from rmqlite.kernel.words.levels import DEFAULT_LEVELS, LevelHistory, parse_levels
from rmqlite.spark.arrow.decode import topics_of
from rmqlite.spark.arrow.planning import look_at_store
from rmqlite.spark.arrow.records import RecordArray, UnsoundRecord, candidates, record_starts
from rmqlite.store_tools.reader import StoreReader
from rmqlite.store_tools.reading.snapshot import Snapshot
from tests.support.drawn_records import encoded, new_records
from tests.support.forms import damaged, needs_compiled
from tests.support.golden import unpack_golden
from tests.support.stores import StoreUnderTest

pytestmark = needs_compiled


def in_form(data: bytes, begin: int | None, starts: Any) -> Any:
    """What is found in a record's bytes, or the place that is told as damaged."""
    array = np.frombuffer(data, np.uint8)
    try:
        found = RecordArray(array, begin, starts)
        texts = topics_of(found).to_pylist()
    except UnsoundRecord as unsound:
        return unsound.physical_offset
    names = ("body_begin", "body_end", "topic_begin", "topic_end", "pairs_begin", "end")
    parts = [getattr(found, name).tolist() for name in names]
    return found.head.tobytes(), parts, texts, found.is_v6


@given(news=st.lists(new_records, min_size=1, max_size=8), seed=st.integers(0, 1 << 32))
def test_both_forms_find_the_same_records_in_any_bytes(news: list[NewRecord], seed: int) -> None:
    """C trusts no length: what it cannot take is judged, and told, by the plain form."""
    whole = encoded(news)
    broken = damaged(whole, Random(seed))
    for data in (whole, broken, whole[: len(broken) // 2]):
        array = np.frombuffer(data, np.uint8)
        for base, upto in ((0, len(data)), (0, len(data) // 2), (7, len(data))):
            quick = record_starts(array, base, 0, upto)
            assert quick == record_starts.__wrapped__(array, base, 0, upto)  # type: ignore[attr-defined]
        starts = candidates(array, 0, 0, len(data))
        for begin in (0, None):
            answers = []
            for is_on in (True, False):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(compiled, "is_on", is_on)
                    answers.append(in_form(data, begin, starts))
            assert answers[0] == answers[1]


def walked(root: Path) -> tuple[Any, ...]:
    """All that a walk over a store without tables has found."""
    with StoreReader(root) as reader:
        snapshot: Snapshot = reader._snapshot
        queues = {
            key: (queue.low, queue.filed, queue.max_offset, queue.tail_bytes, queue.last())
            for key, queue in snapshot.queues.items()
        }
        layout = reader.layout()
    with StoreReader(root, only_layout=True) as reader:
        assert reader.layout() == layout
    assert look_at_store(str(root)).place.end == layout.end
    return layout, queues, snapshot.progress.ranges(), snapshot.progress.pending_now()


@pytest.mark.parametrize("which", ["ours", "rocketmq"])
def test_both_forms_walk_a_store_without_its_table(tmp_path: Path, which: str) -> None:
    """A look for a plan skips what only readers of waits need, and finds the same ends."""
    if which == "rocketmq":
        root = unpack_golden(tmp_path) / "killed"
        levels = LevelHistory.starting_with(parse_levels(DEFAULT_LEVELS))
        (root / "config" / "delayLevels.json").write_text(json.dumps(levels.to_json()))
    else:
        store = StoreUnderTest(tmp_path / "store")
        store.fill()
        store.restart("2s 7s 20s")
        store.fill()
        store.close()
        root = store.root
        for table in (root / "config").glob("storeProgress.json*"):
            table.unlink()
    found = []
    for is_on in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiled, "is_on", is_on)
            found.append(walked(root))
    assert found[0] == found[1]
    layout = found[0][0]
    assert layout.known_end == layout.begin < layout.end
    assert sum(high for _, _, high, *_ in found[0][1].values()) > 50
