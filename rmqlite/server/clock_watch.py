"""Notices that the wall clock stepped or the machine slept, logs it and counts it.

The broker's clock follows neither, so no message is early or late because of a step.  But an
operator must know when comparing the broker's times with others, or looking for the cause of a
late message.  Two clocks are compared once a second: if their difference changes, one stepped.
"""

from __future__ import annotations

import logging
from typing import Final

from rmqlite.clock import Clock, Machine
from rmqlite.store.tables.clock_table import AHEAD_MS_MIN, Origin

STEP_MS_MIN: Final = 500
"""Smaller moves of the wall clock against the broker's are not reported; drift adds up to it."""
SUSPEND_MS_MIN: Final = 1_000
READ_MS_MAX: Final = 50
"""If reading the clocks one after the other took longer, they cannot be compared."""
FORWARD: Final = "forward"
BACK: Final = "back"

log = logging.getLogger(__name__)


class ClockWatch:
    """Compares the clocks at each look(); logs and counts what it notices."""

    def __init__(self, clock: Clock, machine: Machine, origin: Origin) -> None:
        """Warn if the broker's clock differs from the wall clock already."""
        self._clock = clock
        self._machine = machine
        self.steps = {FORWARD: 0, BACK: 0}
        """How often the wall clock stepped, by direction."""
        self.suspends = 0
        self.suspended_ms = 0
        """How long the machine was suspended, since the broker started."""
        self._told_ahead_ms = self.ahead_of_wall_ms()
        self._told_asleep_ms = self._asleep_ms()
        self._tell_start(origin)

    def ahead_of_wall_ms(self) -> int:
        """The broker's clock less the wall clock."""
        return self._clock.now_ms() - self._machine.wall_ns() // 1_000_000

    def look(self) -> None:
        """Compare the clocks; to be called about once a second."""
        before_ms = self._clock.now_ms()
        ahead_ms, asleep_ms = self.ahead_of_wall_ms(), self._asleep_ms()
        if self._clock.now_ms() - before_ms > READ_MS_MAX:
            # The process was stopped, or the machine slept, in between: the next look notices it.
            return
        slept_ms = asleep_ms - self._told_asleep_ms
        if slept_ms >= SUSPEND_MS_MIN:
            self._told_asleep_ms = asleep_ms
            self.suspends += 1
            self.suspended_ms += slept_ms
            log.warning(
                "the machine was suspended, messages that fell due are delivered now seconds=%.3f",
                slept_ms / 1000,
            )
        step_ms = self._told_ahead_ms - ahead_ms
        if abs(step_ms) >= STEP_MS_MIN:
            self._told_ahead_ms = ahead_ms
            direction = FORWARD if step_ms > 0 else BACK
            self.steps[direction] += 1
            log.warning(
                "the wall clock stepped, delays are not affected direction=%s seconds=%.3f"
                " clock_ahead_of_wall_seconds=%.3f",
                direction,
                abs(step_ms) / 1000,
                ahead_ms / 1000,
            )

    def _asleep_ms(self) -> int:
        """How long the machine slept; only the difference of two values means something."""
        return (self._machine.boot_ns() - self._machine.awake_ns()) // 1_000_000

    def _tell_start(self, origin: Origin) -> None:
        ahead_ms = self._told_ahead_ms
        if abs(ahead_ms) <= AHEAD_MS_MIN:
            return
        if origin is Origin.STORE and ahead_ms > 0:
            reason = "the newest time in its store is later than the wall clock"
        else:
            reason = "the wall clock stepped since its last run, and messages are pending"
        log.warning(
            "the broker's clock is not the wall clock: %s; delays are not affected"
            " clock_ahead_of_wall_seconds=%.3f",
            reason,
            ahead_ms / 1000,
        )
