"""The clock never goes back, and starts no earlier than the log it serves."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from rmqlite.kernel.words import clock
from rmqlite.kernel.words.clock import Basis, SystemClock, SystemMachine
from tests.support.clock import START_MS, FakeMachine

YEAR_MS = 365 * 86_400_000
STEPS_MS = [sign * size for size in (1_000, 3_600_000, YEAR_MS) for sign in (1, -1)]


def test_the_clock_begins_at_the_wall_clocks_time() -> None:
    """Records carry times that other machines compare with theirs."""
    before_ms = clock.wall_ms()
    now_ms = clock.SystemClock().now_ms()
    after_ms = clock.wall_ms()
    assert before_ms - 50 <= now_ms <= after_ms + 50


def test_the_time_until_a_moment_ends_when_the_clock_shows_it() -> None:
    """Not up to a millisecond later: a message is due then."""
    machine = FakeMachine(START_MS)
    system = clock.SystemClock(machine)
    assert system.seconds_until(START_MS + 5) == pytest.approx(0.005)
    machine._boot_ns += 4_999_999
    assert system.now_ms() == START_MS + 4
    assert system.seconds_until(START_MS + 5) == pytest.approx(1e-9)
    machine._boot_ns += 1
    assert system.now_ms() == START_MS + 5
    assert system.seconds_until(START_MS + 5) == 0


def test_the_clock_never_goes_back() -> None:
    """A queue of one level is in due order because store timestamps are."""
    system = clock.SystemClock()
    seen = [system.now_ms() for _ in range(10_000)]
    assert seen == sorted(seen)


def test_the_clock_is_never_before_the_newest_record() -> None:
    """After the wall clock stepped back, a restart goes on where the log ended."""
    system = clock.SystemClock()
    future_ms = system.now_ms() + 3_600_000
    system.not_before(future_ms)
    assert future_ms <= system.now_ms() < future_ms + 60_000


def test_an_older_record_does_not_turn_the_clock_back() -> None:
    """not_before is a lower bound, not a setting."""
    system = clock.SystemClock()
    before_ms = system.now_ms()
    system.not_before(before_ms - 3_600_000)
    system.not_before(0)
    assert system.now_ms() >= before_ms


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_step_of_the_wall_clock_is_not_followed(step_ms: int) -> None:
    """Whoever sets it, and however far."""
    machine = FakeMachine()
    system = SystemClock(machine)
    machine.step_wall(step_ms)
    assert system.now_ms() == START_MS
    machine.forward(7)
    assert system.now_ms() == START_MS + 7


def test_a_suspended_machines_sleep_counts() -> None:
    """A message that came due meanwhile is due, not as far away as before."""
    machine = FakeMachine()
    system = SystemClock(machine)
    machine.suspend(3_600_000)
    assert system.now_ms() == START_MS + 3_600_000


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_the_next_process_on_the_same_boot_goes_on_with_the_clock(step_ms: int) -> None:
    """What happened to the wall clock in between is nothing to it."""
    machine = FakeMachine()
    before = SystemClock(machine)
    basis = before.basis()
    assert basis is not None
    machine.step_wall(step_ms)
    machine.forward(60_000)
    after = SystemClock(machine)
    assert after.now_ms() == START_MS + 60_000 + step_ms
    assert after.go_on_from(basis, before.now_ms())
    assert after.now_ms() == before.now_ms() == START_MS + 60_000
    assert after.basis() == basis


def test_a_basis_tells_of_a_clock_that_was_moved() -> None:
    """Else the next process would be earlier than its log once more."""
    machine = FakeMachine()
    before = SystemClock(machine)
    before.not_before(START_MS + YEAR_MS)
    basis = before.basis()
    assert basis is not None
    after = SystemClock(machine)
    assert after.go_on_from(basis, 0)
    assert after.now_ms() == START_MS + YEAR_MS


@pytest.mark.parametrize("boot_id", ["another boot", None])
def test_after_a_boot_a_basis_means_nothing(boot_id: str | None) -> None:
    """Nobody knows how long the machine was off."""
    machine = FakeMachine()
    basis = SystemClock(machine).basis()
    assert basis is not None
    machine.reboot(boot_id)
    machine.step_wall(5_000)
    after = SystemClock(machine)
    assert not after.go_on_from(basis, 0)
    assert after.now_ms() == START_MS + 5_000


def test_a_boot_whose_time_went_back_is_another_boot() -> None:
    """A snapshot of a virtual machine may come back with its old boot id."""
    machine = FakeMachine()
    before = SystemClock(machine)
    basis = before.basis()
    assert basis is not None
    machine.reboot(machine.boot_id)
    after = SystemClock(machine)
    assert not after.go_on_from(basis, START_MS)
    assert after.now_ms() == START_MS


def test_a_machine_without_a_boot_id_has_no_basis() -> None:
    """It works as if booted each time."""
    assert SystemClock(FakeMachine(boot_id=None)).basis() is None


def test_two_processes_of_a_machine_see_the_same_boot() -> None:
    """And the same time since it."""
    first, second = SystemMachine(), SystemMachine()
    assert first.boot_id == second.boot_id
    earlier_ns = first.boot_ns()
    assert 0 < earlier_ns <= second.boot_ns()
    assert SystemClock(first).go_on_from(Basis(first.boot_id or "", 0), 0) == bool(first.boot_id)


@pytest.mark.parametrize(
    ("boot_id", "shifts", "seen"),
    [
        ("d0f5-6c\n", None, "d0f5-6c"),
        ("d0f5-6c\n", "monotonic 0 0\nboottime 0 0\n", "d0f5-6c"),
        ("d0f5-6c\n", "monotonic  5 0\nboottime  86400  0\n", "d0f5-6c 86400 0"),
        ("\n", "monotonic 0 0\nboottime 0 0\n", None),
        ("\xff", None, None),
        (None, None, None),
    ],
)
def test_a_boot_is_known_by_its_id_and_by_its_time(
    boot_id: str | None,
    shifts: str | None,
    seen: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A container with a boot time of its own is not taken for its host; nothing is no boot."""
    for name, text in (("_BOOT_ID", boot_id), ("_BOOT_TIME_SHIFTS", shifts)):
        path = tmp_path / name
        monkeypatch.setattr(clock, name, path)
        if text is not None:
            path.write_text(text, "latin-1")
    assert SystemMachine().boot_id == seen


def test_a_duration_is_never_negative() -> None:
    """It is measured by a clock that nobody sets."""
    started_s = clock.elapsed_s()
    assert clock.elapsed_s() >= started_s


def test_a_pause_lasts() -> None:
    """The command line's only way to wait."""
    started_s = clock.elapsed_s()
    clock.pause_s(0.002)
    assert clock.elapsed_s() - started_s >= 0.002


def test_a_time_for_people_has_milliseconds() -> None:
    """Lateness is a matter of milliseconds."""
    text = clock.local_text(1_700_000_000_007)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.007", text)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"])
def test_what_people_read_they_can_write(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the millisecond, in whatever zone they live; and shorter, if they like."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for at_ms in (0, 1_700_000_000_007, 1_793_000_123_250, 1_720_000_000_900):
            text = clock.local_text(at_ms)
            assert clock.local_ms(text) == at_ms
            assert clock.local_ms(text.replace(" ", "T")) == at_ms
            assert clock.local_ms(text[:-4]) == at_ms // 1000 * 1000
            minute_ms = clock.local_ms(text[:16])
            assert minute_ms is not None
            assert clock.local_text(minute_ms) == text[:16] + ":00.000"
            assert clock.local_text(clock.local_ms(text[:10]) or 0).endswith("00:00:00.000")
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "text",
    [
        *("", "soon", "10:00", "2026-13-01", "2026-11-20 25:00", "20.11.2026"),
        *("2026-11-20 10:00.5", "2026-11-20 10:00:00.", "2026-11-20 10:00:00.1234"),
        *("2026-11-20 10:00:00.x", "2026-11-20 10:00:00.²"),
    ],
)
def test_what_is_no_time_is_none(text: str) -> None:
    """Who asked for it says which option it was."""
    assert clock.local_ms(text) is None


def test_a_months_start_is_the_same_for_the_whole_month() -> None:
    """RocketMQ's unique ids count from there (reference §5.1)."""
    middle_ms = 1_700_000_000_000  # 14 November 2023, in every time zone
    start_ms = clock.month_start_ms(middle_ms)
    assert clock.local_text(start_ms).endswith("-01 00:00:00.000")
    assert clock.month_start_ms(start_ms) == start_ms
    assert clock.month_start_ms(middle_ms + 86_400_000) == start_ms
    assert clock.month_start_ms(start_ms - 1) < start_ms
