"""How many crash points are tried, from which seed, and how many it were in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.model.crash_run import STEPS, Tally

GATE_POINTS = 600
"""Less than a run has: without --long there is one run in each part, of a fifth of the steps."""
_TALLY = pytest.StashKey[Tally]()


@dataclass(frozen=True)
class CrashOptions:
    """From the command line; say prints a line while the test runs."""

    points: int
    seed: int
    is_long: bool
    say: Callable[[str], None]

    @property
    def steps(self) -> int:
        return STEPS if self.is_long else STEPS // 5


@pytest.fixture
def crash_options(request: pytest.FixtureRequest) -> CrashOptions:
    """What --long and --seed say."""
    config = request.config
    points = config.getoption("--long")
    capture = config.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{line}", end="", flush=True)

    return CrashOptions(points or GATE_POINTS, config.getoption("--seed"), bool(points), say)


@pytest.fixture
def crash_tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """Counted here, it is printed when all tests are over."""
    tally = request.config.stash.setdefault(_TALLY, Tally())
    yield tally
    request.node.add_report_section("call", "crash points", str(tally))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A long run takes as long as it takes."""
    for item in items:
        if config.getoption("--long") and "crash_tally" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The figure that a green dot does not say."""
    tally = terminalreporter.config.stash.get(_TALLY, None)
    if tally is not None:
        terminalreporter.write_line(str(tally))
