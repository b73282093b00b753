"""Which timers of RocketMQ 5 are pending here: those that it still would deliver, each once.

Whoever opens the store finds them, and whoever only looks at it finds the same ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqlite.kernel.records.record import NewRecord
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.store.opening import recovery
from rmqlite.kernel.words.names import HALF_TOPIC
from rmqlite.store_tools.reader import MessageFilter, StoreReader
from rmqlite.store_tools.reading import snapshot
from rmqlite.store_tools.reading.snapshot import complete_timers
from tests.support.foreign_timers import OUT_MS, Foreign, due_times, opened, seen
from tests.support.golden import pending_timers, unpack_timers
from tests.support.stores import StoreUnderTest

BOTH = pytest.mark.parametrize("which", ["clean", "killed"])


@BOTH
def test_what_rocketmq_has_not_delivered_is_pending(tmp_path: Path, which: str) -> None:
    """Every line of the golden files; a half message is no timer of anybody."""
    root, rows = unpack_timers(tmp_path, which)
    expected = {row["queueOffset"]: due_ms for row, due_ms in pending_timers(rows)}
    assert len(expected) == {"clean": 9, "killed": 26}[which]
    assert seen(root) == expected
    store = opened(root)
    assert due_times(store) == expected
    assert sum(store.progress.pending[TIMERS].values()) == len(expected)
    store.close({})


@BOTH
def test_what_has_been_found_is_kept(tmp_path: Path, which: str) -> None:
    """Also if the first opening was killed, and if our progress is lost later."""
    root, _ = unpack_timers(tmp_path, which)
    store = opened(root)
    first = due_times(store)
    store.release()
    (root / "lock").write_bytes(b"lock")
    for is_lost in (False, True):
        if is_lost:
            for path in (root / "config").glob("storeProgress.json*"):
                path.unlink()
        assert seen(root) == first
        store = opened(root)
        assert due_times(store) == first
        store.close({})


@BOTH
def test_the_adoption_is_told(tmp_path: Path, which: str, caplog: pytest.LogCaptureFixture) -> None:
    """In one line, with the numbers."""
    root, _ = unpack_timers(tmp_path, which)
    with caplog.at_level("INFO"):
        opened(root).close({})
    said = [each.getMessage() for each in caplog.records if "timers of RocketMQ" in each.message]
    pending, cancelled = (9, 6) if which == "clean" else (26, 9)
    assert len(said) == 1
    assert f"pending={pending} " in said[0]
    assert f"cancelled={cancelled} " in said[0]


def test_a_long_opening_says_how_far_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of 100 GB takes minutes, and nobody knows whether the broker still works."""
    monkeypatch.setattr(recovery, "TOLD_BYTES", 60_000)
    root, _ = unpack_timers(tmp_path, "clean")
    with caplog.at_level("INFO"):
        opened(root).close({})
    told = [each.getMessage() for each in caplog.records if "the log is read" in each.message]
    assert len(told) == 1
    assert told[0].endswith("of=1048576")


@BOTH
def test_who_does_not_ask_for_timers_does_not_wait_for_them(
    tmp_path: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of a store may be long; it is read once, when the first one asks."""
    root, _ = unpack_timers(tmp_path, which)
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(snapshot, "complete_timers", pytest.fail)
    with StoreReader(root) as reader:
        assert list(reader.messages(MessageFilter()))
        reader.layout()
        overview = reader.overview()
        assert overview.queues()
        monkeypatch.setattr(snapshot, "complete_timers", complete_timers)
        reader.settle_timers(lambda *told: calls.append(told))
        monkeypatch.setattr(snapshot, "complete_timers", pytest.fail)
        reader.settle_timers()
        assert overview.levels()[-1].pending == {"clean": 9, "killed": 26}[which]
    assert calls == sorted(calls)
    assert calls[-1][0] == calls[-1][1] > 0


def test_our_own_store_is_not_read_for_its_timers(
    under_test: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our progress says which are pending."""
    under_test.fill()
    under_test.close()
    monkeypatch.setattr(snapshot, "complete_timers", pytest.fail)
    assert seen(under_test.root)


# ---- what the golden stores have not


@pytest.fixture
def foreign(under_test: StoreUnderTest) -> Foreign:
    under_test.crash()
    shutil.rmtree(under_test.root)
    under_test.open()
    return Foreign(under_test)


CASES: dict[str, tuple[Callable[[Foreign], list[NewRecord]], list[int]]] = {
    "accepted": (lambda it: [it.timer()], [0]),
    "delivered": (lambda it: [it.timer(), it.delivered()], []),
    "delivered-twice": (lambda it: [it.timer(), it.delivered(), it.delivered()], []),
    "delivered-to-another-topic": (
        lambda it: [it.timer(), it.delivered()._replace(topic="%RETRY%g")],
        [0],
    ),
    "another-slot": (lambda it: [it.timer(), it.delivered(TIMER_OUT_MS=OUT_MS + 1_000)], [0]),
    "rolled": (lambda it: [it.timer(), it.copy(), it.copy(times=2)], [2]),
    "rolled-and-delivered": (
        lambda it: [it.timer(), it.copy(), it.delivered(TIMER_ROLL_TIMES=1)],
        [],
    ),
    "doubled-by-a-kill": (lambda it: [it.timer(), it.copy(), it.copy()], [2]),
    "doubled-and-rolled-late": (
        lambda it: [it.timer(), it.copy(), it.delivered(TIMER_ROLL_TIMES=1), it.copy()],
        [],
    ),
    "only-a-copy-is-left": (lambda it: [it.copy(times=3)], [0]),
    "sent-twice": (lambda it: [it.timer(), it.timer(), it.delivered()], [1]),
    "sent-twice-and-rolled": (lambda it: [it.timer(), it.timer(), it.copy(), it.copy()], [2, 3]),
    "cancelled": (lambda it: [it.timer(), it.tombstone("k")], []),
    "cancelled-with-topic": (lambda it: [it.timer(), it.tombstone("orders+k")], []),
    "cancelled-with-another-topic": (lambda it: [it.timer(), it.tombstone("other+k")], [0]),
    "cancelled-in-another-topic": (
        lambda it: [it.timer(), it.tombstone("k", topic="other")],
        [0],
    ),
    "cancelled-in-another-slot": (
        lambda it: [it.timer(), it.tombstone("k", TIMER_OUT_MS=OUT_MS + 1_000)],
        [0],
    ),
    "cancelled-before-a-roll": (
        lambda it: [it.timer(), it.tombstone("k"), it.copy(), it.tombstone("k")],
        [],
    ),
    "cancelled-too-late": (lambda it: [it.timer(), it.delivered(), it.tombstone("k")], []),
    "another-is-cancelled": (lambda it: [it.timer(), it.tombstone("x")], [0]),
    "check-points-and-halves": (
        lambda it: [
            it.timer(topic="rmq_sys_REVIVE_LOG_DefaultCluster"),
            it.timer(topic=HALF_TOPIC),
            it.timer(),
        ],
        [2],
    ),
    "sent-twice-and-one-is-delivered-by-us": (
        lambda it: [it.timer(), it.timer(), it.delivered()._replace(completes=it.first_end())],
        [1],
    ),
    "committed-behind-a-timer": (
        lambda it: [it.timer(), it.delivered("t")._replace(**it.commit())],
        [0],
    ),
    "without-a-key": (lambda it: [it.timer(""), it.timer(""), it.delivered("")], [1]),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_log_tells_what_is_pending(foreign: Foreign, case: str) -> None:
    """By all that RocketMQ does with a timer, also after a kill."""
    make, expected = CASES[case]
    assert foreign.pending(*make(foreign)) == expected


@pytest.mark.parametrize("case", sorted(CASES))
def test_it_does_not_matter_when_we_looked_in_between(foreign: Foreign, case: str) -> None:
    """The store came to us and went back to RocketMQ after each of its records."""
    make, expected = CASES[case]
    found: list[int] = []
    for record in make(foreign):
        found = foreign.pending(record)
    if case == "doubled-and-rolled-late":
        # RocketMQ went on with a timer of which we knew that it was delivered.
        expected = [2]
    assert found == expected


@pytest.mark.parametrize("case", ["rolled", "sent-twice-and-rolled", "cancelled"])
def test_it_does_not_matter_how_long_rocketmq_ran(
    foreign: Foreign, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look then believes its queues, and not ours; but what was pending is what we know."""
    monkeypatch.setattr(snapshot, "FOREIGN_BYTES", -(1 << 40))
    test_it_does_not_matter_when_we_looked_in_between(foreign, case)
