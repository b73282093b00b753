"""A clock that stands still until it is moved, on a machine whose clocks can be misused."""

from __future__ import annotations

from rmqlite.kernel.words.clock import SystemClock

START_MS = 1_700_000_000_000


class FakeMachine:
    """Wall clock, boot time and suspension, each moved by hand."""

    def __init__(self, wall_ms: int = START_MS, boot_id: str | None = "the first boot") -> None:
        self.boot_id = boot_id
        self._wall_ns = self._awake_ns = wall_ms * 1_000_000
        self._boot_ns = 3_600_000_000_000

    def wall_ns(self) -> int:
        return self._wall_ns

    def boot_ns(self) -> int:
        return self._boot_ns

    def awake_ns(self) -> int:
        return self._awake_ns

    def forward(self, milliseconds: int) -> None:
        """Time passes."""
        self.suspend(milliseconds)
        self._awake_ns += milliseconds * 1_000_000

    def suspend(self, milliseconds: int) -> None:
        """Time passes, and nobody is awake."""
        assert milliseconds >= 0
        self._wall_ns += milliseconds * 1_000_000
        self._boot_ns += milliseconds * 1_000_000

    def step_wall(self, milliseconds: int) -> None:
        """Somebody sets the wall clock, back if it is negative."""
        self._wall_ns += milliseconds * 1_000_000

    def reboot(self, boot_id: str | None = "another boot") -> None:
        """It comes up again in no time."""
        self.boot_id = boot_id
        self._boot_ns = 0


class FakeClock(SystemClock):
    """The broker's clock on such a machine; by itself on one that is booted for every clock."""

    machine: FakeMachine

    def __init__(self, now_ms: int = START_MS, machine: FakeMachine | None = None) -> None:
        super().__init__(machine or FakeMachine(now_ms, boot_id=None))

    def forward(self, milliseconds: int) -> None:
        self.machine.forward(milliseconds)


class SetTime:
    """What elapsed_s() returns, for what asks for nothing else: it stands still until it is set."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s
