"""The one module that knows the time.

Its milliseconds never go back.  A broker's clock starts at the wall clock's time, or at the
time of the log's newest record if that is later, and then adds the time that passes since the
machine's boot, suspended or not.  A later step of the wall clock changes nothing.  With the
basis of a clock the next process on the same boot of the machine continues the same clock.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

_LOCAL_FORMATS = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S")
_ZONE: Final = re.compile(r":[0-9]{2}[0-9:.]*(Z|[+-][0-9]{2}:?[0-9]{2})$")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_BOOT_TIME_SHIFTS: Final = Path("/proc/self/timens_offsets")
WAKE_MS_MAX = 1_000
"""The longest sleep between two looks at the clock: a resumed machine is noticed after this."""


@dataclass(frozen=True, slots=True)
class Basis:
    """Where a clock begins; valid until the machine is booted again."""

    boot_id: str
    offset_ns: int
    """The clock's time, nanoseconds since 1970, minus the time since the machine's boot."""


class Clock(Protocol):
    """The clock that all other packages use."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, never less than the previous call returned."""
        ...

    def seconds_until(self, timestamp_ms: int) -> float:
        """Until now_ms() returns this; 0 or less if it does."""
        ...

    def not_before(self, timestamp_ms: int) -> None:
        """From now on, now_ms() returns at least this."""
        ...

    def basis(self) -> Basis | None:
        """The argument for a later process's go_on_from(); None if a boot has no id here."""
        ...

    def go_on_from(self, basis: Basis, reached_ms: int) -> bool:
        """Continue the clock of an earlier process, which had reached reached_ms.

        Returns False and changes nothing if the machine was booted since.  Only for opening a
        store: no other call may turn now_ms() back.
        """
        ...


class Machine(Protocol):
    """The clocks of the machine itself."""

    @property
    def boot_id(self) -> str | None:
        """The id of this boot, a new one after every boot; None if the system has none."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since 1970; it may step."""
        ...

    def boot_ns(self) -> int:
        """Nanoseconds since the machine's boot, suspended or not."""
        ...

    def awake_ns(self) -> int:
        """Nanoseconds since an arbitrary start; stands still while the machine is suspended."""
        ...


class SystemMachine:
    """The real clocks of this machine."""

    def __init__(self) -> None:
        self.boot_id = _boot_id()

    def wall_ns(self) -> int:
        return time.time_ns()

    def boot_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def awake_ns(self) -> int:
        return time.monotonic_ns()


class SystemClock:
    """The clock of the real machine, or of the machine given."""

    def __init__(self, machine: Machine | None = None) -> None:
        self.machine: Machine = machine or SystemMachine()
        self._boot_ns = self.machine.boot_ns
        self._offset_ns = self.machine.wall_ns() - self._boot_ns()
        self.on_jump: Callable[[], None] = lambda: None
        """To be called by whoever lets the machine's clocks jump: it wakes delivery."""

    def now_ms(self) -> int:
        return (self._offset_ns + self._boot_ns()) // 1_000_000

    def seconds_until(self, timestamp_ms: int) -> float:
        return (timestamp_ms * 1_000_000 - self._offset_ns - self._boot_ns()) / 1e9

    def not_before(self, timestamp_ms: int) -> None:
        behind_ms = timestamp_ms - self.now_ms()
        if behind_ms > 0:
            self._offset_ns += behind_ms * 1_000_000

    def basis(self) -> Basis | None:
        boot_id = self.machine.boot_id
        return None if boot_id is None else Basis(boot_id, self._offset_ns)

    def go_on_from(self, basis: Basis, reached_ms: int) -> bool:
        now_ms = (basis.offset_ns + self._boot_ns()) // 1_000_000
        # A boot's time does not go back: an earlier time means another boot, despite its id.
        if basis.boot_id != self.machine.boot_id or now_ms < reached_ms:
            return False
        self._offset_ns = basis.offset_ns
        return True


def wall_ms() -> int:
    """The wall clock, milliseconds since 1970; it may step.  For clients and for display."""
    return time.time_ns() // 1_000_000


def elapsed_s() -> float:
    """Seconds from an arbitrary start, for measuring how long something took."""
    return time.monotonic()


def pause_s(seconds: float) -> None:
    """Sleep.  For the command line, examples and a fork; the broker's loops await instead."""
    time.sleep(seconds)


def utc(timestamp_ms: int) -> datetime:
    """The moment as a datetime in UTC."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def local_text(timestamp_ms: int) -> str:
    """A timestamp as a person reads it: local time to the millisecond."""
    seconds, millis = divmod(timestamp_ms, 1000)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) + f".{millis:03d}"


def zone_text(timestamp_ms: int) -> str:
    """The local time zone at a moment, as its distance from UTC: "UTC+01:00", "UTC"."""
    offset = time.strftime("%z", time.localtime(timestamp_ms // 1000))
    return "UTC" if offset == "+0000" else f"UTC{offset[:3]}:{offset[3:5]}"


def local_ms(text: str) -> int | None:
    """The inverse: a date, with or without a time of day; None if the text is neither.

    "2026-11-20", "2026-11-20 10:00", "2026-11-20T10:00:30", "2026-11-20 10:00:30.250".  A time with
    a zone is not local: "2026-11-20T10:00+01:00", "2026-11-20T09:00Z".
    """
    if _ZONE.search(text.strip()):
        return _zoned_ms(text.strip())
    whole, point, fraction = text.strip().replace("T", " ").partition(".")
    if point and not (whole.count(":") == 2 and len(fraction) in (1, 2, 3) and fraction.isdigit()):
        return None
    for form in _LOCAL_FORMATS:
        try:
            moment = time.strptime(whole, form)
            return int(time.mktime(moment)) * 1000 + int(fraction.ljust(3, "0"))
        except (ValueError, OverflowError):
            continue
    return None


def utc_ms(text: str) -> int | None:
    """As local_ms(), but a time without a zone is in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _zoned_ms(text: str) -> int | None:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def local_hour(timestamp_ms: int) -> int:
    """The local hour, 0 to 23."""
    return time.localtime(timestamp_ms // 1000).tm_hour


def month_start_ms(timestamp_ms: int) -> int:
    """The start of the local month that this moment lies in (for RocketMQ's unique ids)."""
    local = time.localtime(timestamp_ms // 1000)
    return int(time.mktime((local.tm_year, local.tm_mon, 1, 0, 0, 0, 0, 0, -1))) * 1000


def _boot_id() -> str | None:
    try:
        boot_id = _BOOT_ID.read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    # A container may shift the boot time: another shift counts as another boot.
    try:
        shifts = _BOOT_TIME_SHIFTS.read_text("ascii").splitlines()
    except (OSError, ValueError):
        shifts = []
    shift = next((line.split()[1:] for line in shifts if line.startswith("boottime")), [])
    return " ".join([boot_id, *shift] if set(shift) - {"0"} else [boot_id]) or None
