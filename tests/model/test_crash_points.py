"""Thousands of crashes, each at another point of a broker's work.

--long=POINTS tries as many as wanted, --seed=N begins with another run than the first; a
run that fails prints its seed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqlite.kernel import compiled
from rmqlite.kernel.words.clock import elapsed_s
from tests.model.conftest import CrashOptions
from tests.model.crash_run import CrashRun, Tally

PROGRESS_S = 10.0
PARTS = 3
"""As many processes that test can share them."""
SEEDS_APART = 1_000_001
"""Odd: the runs of the second part begin with the plain form."""


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_acknowledged_is_lost_wherever_it_crashes(
    part: int,
    crash_options: CrashOptions,
    crash_tally: Tally,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A crash between any two system calls, or within a write, breaks no promise.

    Each other run is one of the plain form.
    """
    is_on = compiled.is_on
    seed = crash_options.seed + part * SEEDS_APART
    said_s = elapsed_s()
    enough = crash_tally.points + crash_options.points / PARTS
    while crash_tally.points < enough:
        monkeypatch.setattr(compiled, "is_on", is_on and seed % 2 == 0)
        CrashRun(seed, crash_tally, tmp_path).run(crash_options.steps)
        seed += 1
        if crash_options.is_long and elapsed_s() - said_s >= PROGRESS_S:
            said_s = elapsed_s()
            crash_options.say(f"{crash_tally}; the next seed is {seed}")
    assert crash_tally.checked
