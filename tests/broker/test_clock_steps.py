"""Whatever is done to the wall clock: never early, never stuck, and late only by what was off.

A test counts the time that really passes; the broker is told nothing of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rmqlite.kernel.process.upkeep import ClockWatch
from rmqlite.kernel.store.tables.clock_table import Origin
from rmqlite.kernel.words.errors import StoreUnavailable
from rmqlite.kernel.words.message import Message
from tests.support.brokers import BrokerUnderTest
from tests.support.clock import START_MS, FakeClock, FakeMachine
from tests.support.files import FOR_GOOD, ForgetfulFiles
from tests.support.made_brokers import Make
from tests.support.messages import bodies, delayed, plain
from tests.support.thinned import by_turns

SECOND_MS = 1_000
HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
STEPS_MS = [sign * size for size in (SECOND_MS, HOUR_MS, YEAR_MS) for sign in (1, -1)]
TEN_SECONDS, TWO_HOURS = 3, 18
"""Delay levels."""
CLOCK = "clock.json"
FUTURE = "the newest time in its store is later than the wall clock"
STEPPED = "the wall clock stepped since its last run"


@pytest.fixture
def machine() -> FakeMachine:
    return FakeMachine()


@pytest.fixture
def broker(make: Make, machine: FakeMachine) -> BrokerUnderTest:
    return make(clock=FakeClock(machine=machine))


def stop(broker: BrokerUnderTest) -> None:
    broker.close()


def kill(broker: BrokerUnderTest) -> None:
    broker.crash()


def kill_after_persist(broker: BrokerUnderTest) -> None:
    broker.persist()
    broker.crash()


ENDS = pytest.mark.parametrize("end", [stop, kill, kill_after_persist])
End = Callable[[BrokerUnderTest], None]


def start(broker: BrokerUnderTest) -> None:
    """A new process on the same machine."""
    broker.clock = FakeClock(machine=broker.clock.machine)
    broker.open()


def assert_delivers_after(broker: BrokerUnderTest, milliseconds: int, count: int = 1) -> None:
    """Not a millisecond early, and not one late."""
    broker.clock.forward(milliseconds - 1)
    assert broker.deliver() == 0
    broker.clock.forward(1)
    assert broker.deliver() == count


def said_at_start(broker: BrokerUnderTest, caplog: pytest.LogCaptureFixture) -> str:
    """What the log says of the clock when a server starts."""
    caplog.clear()
    ClockWatch(broker.clock, broker.clock.machine, broker.store.clock_origin)
    return "".join(caplog.messages)


def clock_table(broker: BrokerUnderTest) -> Any:
    return json.loads((broker.config.store_path / "config" / CLOCK).read_text())


# ---- while it runs


@pytest.mark.one_of(3)
@pytest.mark.parametrize(("step_ms", "level"), by_turns(STEPS_MS, [1, TEN_SECONDS, TWO_HOURS]))
def test_a_step_while_the_broker_runs_changes_no_delay(
    broker: BrokerUnderTest, level: int, step_ms: int
) -> None:
    """Those that wait and those that are sent afterwards: the promise is a duration."""
    delay_ms = broker.config.levels.delay_ms(level)
    broker.send(delayed("before", level))
    broker.clock.forward(delay_ms // 2)
    broker.clock.machine.step_wall(step_ms)
    broker.send(delayed("after", level))
    assert_delivers_after(broker, delay_ms - delay_ms // 2)
    assert_delivers_after(broker, delay_ms // 2)
    assert bodies(broker) == ["before", "after"]


def test_steps_in_a_row_do_not_add_up(broker: BrokerUnderTest) -> None:
    """A time service that goes back and forth."""
    broker.send(delayed("x", TWO_HOURS))
    for minute, step_ms in enumerate([-YEAR_MS, HOUR_MS, -HOUR_MS, YEAR_MS, SECOND_MS] * 20):
        broker.clock.machine.step_wall(step_ms)
        broker.clock.forward(60_000)
        assert broker.deliver() == 0, minute
    assert_delivers_after(broker, 2 * HOUR_MS - 100 * 60_000)


# ---- across a restart of the broker


@pytest.mark.one_of(2)
@ENDS
@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_step_across_a_restart_changes_no_delay(
    broker: BrokerUnderTest, end: End, step_ms: int
) -> None:
    """The machine knows how long the broker was away; the wall clock need not be asked."""
    broker.send(delayed("x", TWO_HOURS))
    broker.clock.forward(HOUR_MS)
    end(broker)
    broker.clock.machine.step_wall(step_ms)
    broker.clock.forward(60_000)
    start(broker)
    assert broker.clock.now_ms() == START_MS + HOUR_MS + 60_000
    assert broker.deliver() == 0
    assert_delivers_after(broker, HOUR_MS - 60_000)
    broker.send(delayed("y", TEN_SECONDS))
    assert_delivers_after(broker, 10_000)


@ENDS
def test_a_step_while_it_runs_is_not_made_good_by_a_restart(
    broker: BrokerUnderTest, end: End
) -> None:
    """The order of step and restart is nothing that a message could know."""
    broker.send(delayed("x", TWO_HOURS))
    for step_ms in (YEAR_MS, -2 * YEAR_MS, HOUR_MS):
        broker.clock.machine.step_wall(step_ms)
        broker.clock.forward(60_000)
        end(broker)
        start(broker)
    assert_delivers_after(broker, 2 * HOUR_MS - 3 * 60_000)


@pytest.mark.parametrize(("step_ms", "ahead"), [(-HOUR_MS, 3600), (YEAR_MS, -31536000)])
def test_a_step_across_a_restart_is_told(
    broker: BrokerUnderTest, step_ms: int, ahead: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Once per start, with the difference; without one there is nothing to tell."""
    broker.send(delayed("x", TWO_HOURS))
    stop(broker)
    broker.clock.forward(60_000)
    start(broker)
    assert said_at_start(broker, caplog) == ""
    stop(broker)
    broker.clock.machine.step_wall(step_ms)
    for _ in range(2):
        broker.clock.forward(60_000)
        start(broker)
        said = said_at_start(broker, caplog)
        assert STEPPED in said
        assert said.endswith(f"clock_ahead_of_wall_seconds={ahead}.000")
        stop(broker)
    start(broker)


@pytest.mark.one_of(2)
@ENDS
@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_with_nothing_pending_a_start_takes_the_wall_clock(
    broker: BrokerUnderTest, end: End, step_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can be early then, and a wall clock that was corrected is right again."""
    broker.send(delayed("x", TEN_SECONDS))
    assert_delivers_after(broker, 10_000)
    newest_ms = broker.store.newest_timestamp_ms
    end(broker)
    broker.clock.machine.step_wall(step_ms)
    broker.clock.forward(60_000)
    start(broker)
    wall_ms = START_MS + 10_000 + 60_000 + step_ms
    assert broker.clock.now_ms() == max(wall_ms, newest_ms + 1)
    is_behind = wall_ms < newest_ms
    assert (FUTURE in said_at_start(broker, caplog)) == is_behind
    assert broker.store.clock_origin is (Origin.STORE if is_behind else Origin.WALL_CLOCK)
    broker.send(delayed("y", TEN_SECONDS))
    assert_delivers_after(broker, 10_000)


def test_a_clock_that_was_adopted_is_kept_by_the_next_restart(broker: BrokerUnderTest) -> None:
    """What is stored by it must not be timed by the one before."""
    broker.send(plain("x"))
    stop(broker)
    broker.clock.machine.step_wall(-YEAR_MS)
    broker.clock.machine.step_wall(2 * YEAR_MS)
    start(broker)
    broker.send(delayed("y", TWO_HOURS))
    broker.clock.forward(1)
    # Nothing was persisted since it was opened.
    kill(broker)
    broker.clock.machine.step_wall(-YEAR_MS)
    start(broker)
    assert_delivers_after(broker, 2 * HOUR_MS - 1)


# ---- across a boot of the machine


@pytest.mark.one_of(4)
@ENDS
@pytest.mark.parametrize("back_ms", [SECOND_MS, HOUR_MS, YEAR_MS])
def test_a_wall_clock_that_is_behind_after_a_boot_adds_only_the_time_that_was_off(
    broker: BrokerUnderTest, end: End, back_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    """What was left of the delay is still to be waited for, not more."""
    broker.send(delayed("x", TWO_HOURS))
    broker.clock.forward(HOUR_MS)
    # What the persist loop does every five seconds.
    broker.persist()
    end(broker)
    broker.clock.forward(500)
    broker.clock.machine.reboot()
    broker.clock.machine.step_wall(-back_ms)
    start(broker)
    assert broker.clock.now_ms() == START_MS + HOUR_MS
    assert (FUTURE in said_at_start(broker, caplog)) == (back_ms > SECOND_MS)
    assert_delivers_after(broker, HOUR_MS)


def test_without_a_persist_the_newest_record_bounds_the_clock(broker: BrokerUnderTest) -> None:
    """A power cut in the first seconds: late by those, and never stuck."""
    broker.send(delayed("x", TEN_SECONDS))
    broker.clock.forward(4_000)
    kill(broker)
    broker.clock.machine.reboot()
    broker.clock.machine.step_wall(-YEAR_MS)
    start(broker)
    assert broker.clock.now_ms() == broker.store.newest_timestamp_ms + 1
    assert_delivers_after(broker, 10_000 - 1)


@ENDS
def test_a_boot_takes_the_wall_clock(broker: BrokerUnderTest, end: End) -> None:
    """Nothing else knows how long the machine was off."""
    broker.send(delayed("x", TWO_HOURS), delayed("y", TWO_HOURS - 1))
    broker.clock.forward(60_000)
    end(broker)
    broker.clock.machine.forward(HOUR_MS)
    broker.clock.machine.reboot()
    start(broker)
    assert broker.clock.now_ms() == START_MS + HOUR_MS + 60_000
    assert broker.deliver() == 1
    assert_delivers_after(broker, HOUR_MS - 60_000)


@pytest.mark.parametrize("boot_id", ["another boot", None])
def test_a_wall_clock_that_is_ahead_after_a_boot_is_trusted(
    broker: BrokerUnderTest, boot_id: str | None
) -> None:
    """It cannot be told from a machine that was off for a year."""
    broker.send(delayed("x", TWO_HOURS))
    stop(broker)
    broker.clock.machine.reboot(boot_id)
    broker.clock.machine.step_wall(YEAR_MS)
    start(broker)
    assert broker.clock.now_ms() == START_MS + YEAR_MS
    assert broker.deliver() == 1


# ---- suspend and resume


@pytest.mark.parametrize("is_wall_late", [False, True])
def test_what_comes_due_while_the_machine_sleeps_is_due_at_its_resume(
    broker: BrokerUnderTest, *, is_wall_late: bool
) -> None:
    """Not after what was left when it fell asleep; whether the wall clock went on or not."""
    broker.send(delayed("x", TEN_SECONDS), delayed("y", TWO_HOURS))
    broker.clock.forward(1_000)
    assert broker.deliver() == 0
    broker.clock.machine.suspend(HOUR_MS)
    if is_wall_late:
        broker.clock.machine.step_wall(-HOUR_MS)
    assert broker.deliver() == 1
    assert_delivers_after(broker, HOUR_MS - 1_000)


def test_a_sleep_between_two_runs_counts(broker: BrokerUnderTest) -> None:
    """The machine's time since its boot goes on."""
    broker.send(delayed("x", TWO_HOURS))
    kill(broker)
    broker.clock.machine.suspend(HOUR_MS)
    broker.clock.machine.step_wall(-YEAR_MS)
    start(broker)
    assert_delivers_after(broker, HOUR_MS)


# ---- a log from the future


def from_the_future(broker: BrokerUnderTest, *messages: Message) -> None:
    """Stored while the wall clock was a year ahead; it is right again, after a boot."""
    stop(broker)
    broker.clock.machine.step_wall(YEAR_MS)
    broker.clock.machine.reboot()
    start(broker)
    broker.send(*messages)
    broker.clock.forward(1_000)
    stop(broker)
    broker.clock.machine.step_wall(-YEAR_MS)
    broker.clock.machine.reboot("a third boot")


def test_a_log_from_the_future_delays_new_messages_as_long_as_ever(
    broker: BrokerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing waits for the wall clock to get there; a restart changes nothing."""
    from_the_future(broker, plain("old"))
    for number in range(3):
        start(broker)
        assert FUTURE in said_at_start(broker, caplog)
        assert broker.store.clock_origin is Origin.STORE
        broker.send(plain("now"), delayed("10s", TEN_SECONDS), delayed("2h", TWO_HOURS))
        assert_delivers_after(broker, 10_000)
        broker.clock.forward(HOUR_MS)
        (kill if number else stop)(broker)
        start(broker)
        assert FUTURE in said_at_start(broker, caplog)
        assert_delivers_after(broker, HOUR_MS - 10_000)
        stop(broker)
    start(broker)
    assert bodies(broker) == ["old", *["now", "10s", "2h"] * 3]


def test_what_is_pending_in_a_log_from_the_future_is_not_stuck(broker: BrokerUnderTest) -> None:
    """It waits for what was left of its delay, not for a year."""
    from_the_future(broker, delayed("old", TWO_HOURS))
    start(broker)
    broker.send(delayed("new", TEN_SECONDS))
    assert_delivers_after(broker, 10_000)
    assert_delivers_after(broker, 2 * HOUR_MS - 1_000 - 10_000)


def test_a_clock_from_the_future_is_given_up_when_nothing_is_pending_and_the_log_allows(
    broker: BrokerUnderTest,
) -> None:
    """The wall clock has caught up with the newest record."""
    from_the_future(broker, plain("old"))
    start(broker)
    stop(broker)
    broker.clock.machine.forward(YEAR_MS + HOUR_MS)
    start(broker)
    assert broker.store.clock_origin is Origin.WALL_CLOCK
    assert broker.clock.now_ms() == broker.clock.machine.wall_ns() // 1_000_000


# ---- the table


def changed(field: str, value: object) -> bytes:
    """A table that would be taken but for this."""
    sound = {
        "bootId": "the first boot",
        "offsetNanos": 1,
        "origin": "store",
        "reachedTimestamp": 1,
        "uptimeMillis": 1,
    }
    return json.dumps(sound | {field: value}).encode()


def test_without_a_boot_id_nothing_is_kept(make: Make) -> None:
    """It works as if the machine were booted each time."""
    broker = make(clock=FakeClock(machine=FakeMachine(boot_id=None)))
    broker.send(delayed("x", TWO_HOURS))
    stop(broker)
    assert not list((broker.config.store_path / "config").glob("clock*"))
    broker.clock.machine.step_wall(HOUR_MS)
    start(broker)
    assert broker.clock.now_ms() == START_MS + HOUR_MS


def test_a_store_without_the_table_takes_the_wall_clock(broker: BrokerUnderTest) -> None:
    """One of an older rmqlite, one of RocketMQ, or one whose operator has removed it."""
    broker.send(delayed("x", TWO_HOURS))
    stop(broker)
    config = broker.config.store_path / "config"
    assert [path.name for path in config.glob("clock*")] == [CLOCK]
    (config / CLOCK).unlink()
    broker.clock.machine.step_wall(HOUR_MS)
    start(broker)
    assert broker.clock.now_ms() == START_MS + HOUR_MS
    stop(broker)
    (config / CLOCK).unlink()
    broker.clock.machine.step_wall(-YEAR_MS)
    start(broker)
    assert broker.clock.now_ms() == broker.store.newest_timestamp_ms + 1


@pytest.mark.parametrize(
    "content",
    [
        *(b"{", b"[]", b"\xff\x00", b"{}", b'{"bootId":"the first boot"}'),
        *(changed("offsetNanos", wrong) for wrong in ("soon", None, 1_000_000)),
        *(changed("origin", wrong) for wrong in ("moon", 1)),
        *(changed("reachedTimestamp", wrong) for wrong in (None, 2)),
        *(changed("uptimeMillis", wrong) for wrong in ("", 0)),
    ],
)
def test_a_damaged_table_is_told_and_the_wall_clock_taken(
    broker: BrokerUnderTest, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It keeps no store closed; the next run has a sound one."""
    broker.send(delayed("x", TWO_HOURS))
    stop(broker)
    path = broker.config.store_path / "config" / CLOCK
    path.write_bytes(content)
    broker.clock.machine.step_wall(HOUR_MS)
    start(broker)
    told = [each for each in caplog.messages if "the wall clock is used" in each]
    assert len(told) == 1
    assert f"file={path}" in told[0]
    assert broker.clock.now_ms() == START_MS + HOUR_MS
    kill(broker)
    broker.clock.machine.step_wall(HOUR_MS)
    start(broker)
    assert broker.clock.now_ms() == START_MS + HOUR_MS


def test_the_table_tells_boot_and_basis(broker: BrokerUnderTest, machine: FakeMachine) -> None:
    """Written when a store is opened, and with all other tables."""
    assert clock_table(broker) == {
        "bootId": "the first boot",
        "offsetNanos": START_MS * 1_000_000 - machine.boot_ns(),
        "origin": "wall-clock",
        "reachedTimestamp": START_MS,
        "uptimeMillis": machine.boot_ns() // 1_000_000,
    }
    broker.clock.forward(5_000)
    broker.persist()
    assert clock_table(broker)["reachedTimestamp"] == START_MS + 5_000


def test_a_changed_digit_makes_nothing_early(
    broker: BrokerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever of its numbers it is in: below a millisecond it may pass, nobody would see it."""
    broker.send(delayed("x", TWO_HOURS))
    stop(broker)
    path = broker.config.store_path / "config" / CLOCK
    sound = path.read_bytes()
    refused = 0
    for at, byte in enumerate(sound):
        if chr(byte).isdigit():
            path.write_bytes(sound[:at] + b"%d" % ((byte - ord("0") + 1) % 10) + sound[at + 1 :])
            caplog.clear()
            start(broker)
            assert broker.clock.now_ms() - START_MS in (0, 1)
            refused += "the wall clock is used" in caplog.text
            kill(broker)
    assert refused == 13 + 13 + 7
    start(broker)


def test_a_full_disk_keeps_no_store_closed_and_no_clock_that_is_not_used(
    make: Make, machine: FakeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    """The clock of before would time what this one has stored."""
    disk = ForgetfulFiles()
    broker = make(clock=FakeClock(machine=machine), files=disk)
    broker.send(plain("x"))
    kill(broker)
    machine.step_wall(-HOUR_MS)
    machine.forward(60_000)
    disk.fail("replace", times=FOR_GOOD, is_full=True)
    start(broker)
    assert "the clock in use cannot be saved" in caplog.text
    assert not (broker.config.store_path / "config" / CLOCK).exists()
    disk.heal()
    broker.send(delayed("y", TEN_SECONDS))
    kill(broker)
    start(broker)
    assert_delivers_after(broker, 10_000 - 1)


def test_a_full_disk_keeps_a_clock_that_goes_on(make: Make, machine: FakeMachine) -> None:
    """What is written down is still true."""
    disk = ForgetfulFiles()
    broker = make(clock=FakeClock(machine=machine), files=disk)
    broker.send(delayed("x", TWO_HOURS))
    kill(broker)
    disk.fail("replace", times=FOR_GOOD, is_full=True)
    for _ in range(2):
        machine.step_wall(YEAR_MS)
        machine.forward(60_000)
        start(broker)
        kill(broker)
    start(broker)
    assert_delivers_after(broker, 2 * HOUR_MS - 2 * 60_000)


def test_a_disk_that_fails_keeps_the_store_closed(make: Make, machine: FakeMachine) -> None:
    """As with every other table that opening writes."""
    disk = ForgetfulFiles()
    broker = make(clock=FakeClock(machine=machine), files=disk)
    stop(broker)
    disk.fail("replace", times=FOR_GOOD)
    machine.step_wall(HOUR_MS)
    with pytest.raises(StoreUnavailable, match="told to fail"):
        start(broker)


def test_an_opening_that_fails_halfway_keeps_the_clock(make: Make, machine: FakeMachine) -> None:
    """At whatever table: what waits is delivered when it was promised."""
    disk = ForgetfulFiles()
    broker = make(clock=FakeClock(machine=machine), files=disk)
    broker.send(delayed("x", TWO_HOURS))
    kill(broker)
    failures = 0
    while True:
        machine.step_wall(HOUR_MS)
        machine.forward(1_000)
        disk.fail("replace", after=failures)
        try:
            start(broker)
        except StoreUnavailable:
            failures += 1
        else:
            break
    assert failures > 3
    assert_delivers_after(broker, 2 * HOUR_MS - (failures + 1) * 1_000)
