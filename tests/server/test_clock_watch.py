"""Steps and suspends: each is logged once, with size, direction and consequence, and counted."""

from __future__ import annotations

import logging

import pytest

from rmqlite.kernel.process.upkeep import READ_MS_MAX, STEP_MS_MIN, SUSPEND_MS_MIN, ClockWatch
from rmqlite.kernel.store.tables.clock_table import Origin
from rmqlite.kernel.words.clock import SystemClock
from tests.support.clock import START_MS, FakeMachine

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS


@pytest.fixture
def machine() -> FakeMachine:
    return FakeMachine()


@pytest.fixture
def watch(machine: FakeMachine, caplog: pytest.LogCaptureFixture) -> ClockWatch:
    caplog.set_level(logging.INFO)
    return ClockWatch(SystemClock(machine), machine, Origin.WALL_CLOCK)


def look(watch: ClockWatch, machine: FakeMachine, seconds: int = 1) -> None:
    for _ in range(seconds):
        machine.forward(1_000)
        watch.look()


@pytest.mark.parametrize(
    ("step_ms", "said"),
    [
        (1_000, "direction=forward seconds=1.000 clock_ahead_of_wall_seconds=-1.000"),
        (-1_000, "direction=back seconds=1.000 clock_ahead_of_wall_seconds=1.000"),
        (HOUR_MS, "direction=forward seconds=3600.000 clock_ahead_of_wall_seconds=-3600.000"),
        (-HOUR_MS, "direction=back seconds=3600.000 clock_ahead_of_wall_seconds=3600.000"),
        (
            YEAR_MS,
            "direction=forward seconds=31536000.000 clock_ahead_of_wall_seconds=-31536000.000",
        ),
        (-YEAR_MS, "direction=back seconds=31536000.000 clock_ahead_of_wall_seconds=31536000.000"),
    ],
)
def test_a_step_is_told_once(
    step_ms: int,
    said: str,
    watch: ClockWatch,
    machine: FakeMachine,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The line says how far, in which direction, and that delays are not affected."""
    look(watch, machine, 10)
    assert caplog.messages == []
    machine.step_wall(step_ms)
    look(watch, machine, 10)
    assert caplog.messages == [f"the wall clock stepped, delays are not affected {said}"]
    assert caplog.records[0].levelno == logging.WARNING
    assert watch.steps == {"forward": int(step_ms > 0), "back": int(step_ms < 0)}
    assert watch.ahead_of_wall_ms() == -step_ms
    assert watch.suspends == 0


def test_a_step_back_and_its_correction_are_two(watch: ClockWatch, machine: FakeMachine) -> None:
    """The two steps add up to zero, but both happened."""
    for step_ms in (-HOUR_MS, HOUR_MS):
        machine.step_wall(step_ms)
        look(watch, machine)
    assert watch.steps == {"forward": 1, "back": 1}
    assert watch.ahead_of_wall_ms() == 0


def test_what_is_small_is_told_when_it_adds_up(watch: ClockWatch, machine: FakeMachine) -> None:
    """A host that corrects its guest by a tenth of a second every now and then."""
    for _ in range(10):
        machine.step_wall(STEP_MS_MIN // 5)
        look(watch, machine)
    assert watch.steps == {"forward": 2, "back": 0}


def test_a_suspend_is_no_step(
    watch: ClockWatch, machine: FakeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    """Both clocks count the time of the suspend; messages that fell due in it were late."""
    look(watch, machine)
    for sleep_ms in (HOUR_MS, SUSPEND_MS_MIN):
        machine.suspend(sleep_ms)
        look(watch, machine, 5)
    assert caplog.messages == [
        f"the machine was suspended, messages that fell due are delivered now seconds={seconds}"
        for seconds in ("3600.000", "1.000")
    ]
    assert (watch.suspends, watch.suspended_ms) == (2, HOUR_MS + 1_000)
    assert watch.steps == {"forward": 0, "back": 0}


def test_a_wall_clock_that_missed_the_sleep_is_both(
    watch: ClockWatch, machine: FakeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a battery the wall clock continues where it stopped."""
    machine.suspend(HOUR_MS)
    machine.step_wall(-HOUR_MS)
    look(watch, machine)
    assert [message.split(",")[0] for message in caplog.messages] == [
        "the machine was suspended",
        "the wall clock stepped",
    ]
    assert (watch.suspends, watch.steps["back"]) == (1, 1)


class Halting(FakeMachine):
    """The process is stopped for a while between two readings of its clocks."""

    def __init__(self) -> None:
        super().__init__()
        self.halts_ms: list[int] = []

    def wall_ns(self) -> int:
        seen_ns = super().wall_ns()
        if self.halts_ms:
            self.forward(self.halts_ms.pop())
        return seen_ns


def test_a_process_that_was_stopped_sees_no_step(caplog: pytest.LogCaptureFixture) -> None:
    """Two clocks that are read a second apart differ by that second."""
    machine = Halting()
    watch = ClockWatch(SystemClock(machine), machine, Origin.WALL_CLOCK)
    machine.halts_ms = [READ_MS_MAX + 1, 60_000]
    look(watch, machine, 10)
    assert caplog.messages == []
    assert watch.steps == {"forward": 0, "back": 0}


@pytest.mark.parametrize(
    ("ahead_ms", "origin", "said"),
    [
        (1_000, Origin.STORE, ""),
        (-1_000, Origin.WALL_CLOCK, ""),
        (
            YEAR_MS,
            Origin.STORE,
            "the newest time in its store is later than the wall clock",
        ),
        (1_001, Origin.WALL_CLOCK, "the wall clock stepped since its last run"),
        (-HOUR_MS, Origin.WALL_CLOCK, "the wall clock stepped since its last run"),
        (-HOUR_MS, Origin.STORE, "the wall clock stepped since its last run"),
    ],
)
def test_a_start_on_another_time_is_told_with_its_reason(
    ahead_ms: int,
    origin: Origin,
    said: str,
    machine: FakeMachine,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise the broker's times would surprise their readers."""
    clock = SystemClock(machine)
    machine.step_wall(-ahead_ms)
    watch = ClockWatch(clock, machine, origin)
    look(watch, machine, 3)
    assert watch.steps == {"forward": 0, "back": 0}
    assert clock.now_ms() == START_MS + 3_000
    if not said:
        assert caplog.messages == []
        return
    (message,) = caplog.messages
    assert message.startswith(f"the broker's clock is not the wall clock: {said}")
    assert message.endswith(
        f"delays are not affected clock_ahead_of_wall_seconds={ahead_ms / 1000:.3f}"
    )
