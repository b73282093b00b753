"""Timers on the way between RocketMQ's brokers and us: nothing early, what is pending once.

With --rocketmq; Maven fetches the brokers.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rmqlite.kernel.records.record import Written
from rmqlite.kernel.records.wait_queues import TIMERS, queue_of
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.clock import pause_s, wall_ms
from rmqlite.kernel.words.message import REAL_QID, REAL_TOPIC, RESCHEDULED_FROM, UNIQ_KEY
from rmqlite.kernel.words.names import CANCELLED_TOPIC, TIMER_TOPIC
from rmqlite.store_tools.check import check
from rmqlite.store_tools.moving import handover
from rmqlite.store_tools.moving.handover import hand_over
from tests.support.brokers import LONG_BODIES, small_config
from tests.support.clock import FakeClock
from tests.support.files import QuickFiles
from tests.support.rocketmq import POM, TOPIC, delivered, log_end, rocketmq
from tests.support.stores import new_record
from tests.support.toolchains import classpath

HOUR_MS = 3_600_000
LATE_MS_MAX = 5_000
"""For a machine that has much else to do; a second roll or a second delivery is what counts."""
FIVES = ("5.3.2", "5.4.0", "5.5.0")


@pytest.fixture(autouse=True)
def _wanted(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--rocketmq"):
        pytest.skip("journeys with RocketMQ's brokers run with --rocketmq")
    # Now, and not while timers become due.
    for version in ("4.9.7", *FIVES):
        classpath(POM, version)


def opened(root: Path) -> MessageStore:
    return MessageStore(small_config(root, **LONG_BODIES), QuickFiles(), FakeClock(wall_ms()))


def pending(store: MessageStore, wait_queue: int = TIMERS) -> dict[str, int]:
    """Name and due time of all that waits; each name once."""
    queue = store.queue(*queue_of(wait_queue))
    assert queue is not None
    found = []
    for offset in store.progress.of(wait_queue).open_between(queue.min_offset, queue.max_offset):
        entry = queue.read(offset, 1)[0]
        message = store.read_message(entry.physical_offset)
        found.append((message.properties[UNIQ_KEY], entry.tags_code))
    assert len(found) == len(dict(found)), found
    return dict(found)


# ---- from RocketMQ to us


@pytest.mark.parametrize("version", FIVES)
@pytest.mark.parametrize("kills", [0, 1, 2])
def test_what_rocketmq_left_is_pending_here(tmp_path: Path, version: str, kills: int) -> None:
    """Stopped, killed, and killed twice: then RocketMQ holds its timers doubled."""
    root = tmp_path / "store"
    due = {}
    with rocketmq(tmp_path, root, version) as broker:
        now_ms = wall_ms()
        for name, after_ms in {
            "done": 1_200,
            "edge": 5_300,
            "rolled": 9_700,
            "overdue": 7_000,
            "far": HOUR_MS,
            "cancelled": HOUR_MS,
            "cancelled-soon": 8_000,
        }.items():
            due[name] = now_ms + after_ms
            answer = broker.send(name, TIMER_DELIVER_MS=due[name])
            if name.startswith("cancelled"):
                broker.recall(answer["recallHandle"])
        due["delay"] = wall_ms() + 60_000
        broker.send("delay", TIMER_DELAY_MS=60_000)
        pause_s(5)
        if kills:
            broker.kill()
    if kills == 2:
        with rocketmq(tmp_path, root, version) as broker:
            pause_s(3)
            broker.kill()
    before = {name for name, _ in delivered(root)}
    assert "done" in before
    # A killed RocketMQ may deliver what was recalled, but not before its time.
    assert not before & {"far", "cancelled", "delay"}
    store = opened(root)
    left = pending(store)
    assert left.keys() == due.keys() - before - {"cancelled", "cancelled-soon"}
    late = left.pop("delay") - due["delay"]
    assert 0 <= late <= 2_000
    assert left == {name: due[name] for name in left}
    store.close({})
    assert list(check(root)) == []


# ---- from us to RocketMQ


class Ours:
    """Writes timers as our broker does, at the time of the wall."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = opened(root)
        self.due: dict[str, int] = {}
        """Of all that RocketMQ has to deliver."""

    def timer(self, name: str, after_ms: int, completes: int = 0, **more: str) -> Written:
        self.due[name] = wall_ms() + after_ms
        own = {UNIQ_KEY: name, REAL_TOPIC: TOPIC, REAL_QID: "0", "TIMER_EXACT": "1"}
        own |= {"TIMER_OUT_MS": str(self.due[name]), **more}
        record = new_record(name, TIMER_TOPIC, 0, properties=own, completes=completes)
        return self.store.append([record])[0]

    def end(self, name: str, topic: str, after_ms: int = HOUR_MS) -> None:
        """A timer that is delivered or cancelled, as topic says."""
        timer = self.timer(name, after_ms)
        own = {UNIQ_KEY: name, REAL_TOPIC: TOPIC, REAL_QID: "0"}
        own |= {"TIMER_OUT_MS": str(self.due.pop(name)), "TIMER_EXACT": "1"}
        end = timer.physical_offset + timer.size
        self.store.append([new_record(name, topic, 0, properties=own, completes=end)])
        self._complete(timer)

    def move(self, name: str, before_ms: int, after_ms: int) -> None:
        timer = self.timer(name, before_ms)
        end = timer.physical_offset + timer.size
        self.timer(name, after_ms, end, **{RESCHEDULED_FROM: str(TIMERS)})
        self._complete(timer)

    def _complete(self, timer: Written) -> None:
        offset = timer.queue_offset
        self.store.progress.complete(TIMERS, offset, offset + 1, {TOPIC: 1})

    def fill(self) -> None:
        self.timer("overdue-long", -10 * 24 * HOUR_MS)
        self.timer("overdue", -1)
        self.end("done", TOPIC, -5_000)
        self.end("cancelled", CANCELLED_TOPIC)
        self.end("cancelled-soon", CANCELLED_TOPIC, 24_000)
        for at in range(8):
            self.timer(f"soon-{at}", 20_000 + 777 * at)
        second_ms = 1_000 - wall_ms() % 1_000
        self.timer("whole-second", second_ms + 24_000)
        self.timer("beyond-our-window", 30_000)
        self.move("earlier", HOUR_MS, 23_000)
        self.move("later", 23_000, HOUR_MS)
        self.timer("far", 2 * HOUR_MS)

    def far(self) -> set[str]:
        return {name for name, due_ms in self.due.items() if due_ms > wall_ms() + HOUR_MS // 2}

    def leave(self, *, is_killed: bool) -> None:
        if is_killed:
            job = self.store.begin_sync()
            job.run()
            self.store.synced(job)
            self.store.release()
        else:
            self.store.close({})

    def wait_until_due(self, far: set[str]) -> None:
        """Until all but these have been due for some seconds."""
        last_ms = max(due_ms for name, due_ms in self.due.items() if name not in far)
        pause_s(max(0, last_ms - wall_ms()) / 1_000 + 4)

    def check_delivered(self, begin: int, names: set[str], started_ms: int) -> None:
        """Exactly these since `begin`, each once, and none early or late."""
        found = delivered(self.root, begin)
        assert Counter(name for name, _ in found) == Counter(names)
        for name, at_ms in found:
            late_ms = at_ms - max(self.due[name], started_ms)
            assert at_ms >= self.due[name], f"{name} is early"
            assert late_ms < LATE_MS_MAX, f"{name} is {late_ms} ms late"


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("version", FIVES)
def test_rocketmq_5_delivers_what_is_pending_here(
    tmp_path: Path, version: str, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And when the store is back, the rest is pending here; there and back again, the same."""
    monkeypatch.setattr(handover, "DAY_MS", 12_000)
    monkeypatch.setattr(handover, "_FAR_MS", 24_000)
    ours = Ours(tmp_path / "store")
    ours.fill()
    ours.leave(is_killed=is_killed)
    dry = hand_over(ours.root, version[:3], dry_run=True)
    assert not (ours.root / "timerwheel").exists()
    for _ in range(2):
        assert hand_over(ours.root, version[:3]).pending == dry.pending == len(ours.due)
    store = opened(ours.root)
    assert pending(store) == ours.due
    store.close({})
    begin, far = log_end(ours.root), ours.far()
    with rocketmq(tmp_path, ours.root, version) as broker:
        started_ms = wall_ms()
        ours.wait_until_due(far)
        if is_killed:
            broker.kill()
    ours.check_delivered(begin, ours.due.keys() - far, started_ms)
    back = opened(ours.root)
    assert pending(back) == {name: ours.due[name] for name in far}
    back.close({})
    assert list(check(ours.root)) == []


@pytest.mark.parametrize("is_killed", [False, True])
def test_rocketmq_4_9_delivers_what_is_pending_here(tmp_path: Path, is_killed: bool) -> None:
    """From one level behind all others; what is left of it waits there when the store is back."""
    ours = Ours(tmp_path / "store")
    ours.fill()
    ours.leave(is_killed=is_killed)
    planned = hand_over(ours.root, "4.9", dry_run=True)
    handed = hand_over(ours.root, "4.9")
    assert handed == planned
    assert hand_over(ours.root, "4.9").pending == 0
    level = len(handed.levels.split())
    store = opened(ours.root)
    assert pending(store) == {}
    assert pending(store, level) == ours.due
    store.close({})
    assert list(check(ours.root)) == []
    begin, far = log_end(ours.root), ours.far()
    with rocketmq(tmp_path, ours.root, "4.9.7", messageDelayLevel=handed.levels):
        started_ms = wall_ms()
        ours.wait_until_due(far)
    ours.check_delivered(begin, ours.due.keys() - far, started_ms)
    back = opened(ours.root)
    assert pending(back) == {}
    assert pending(back, level) == {name: ours.due[name] for name in far}
    back.close({})
