"""A plugin of pytest that measures every test: wall-clock and CPU seconds (-p tests.times).

Writes them to .cache/test-times.tsv, the slowest first, and prints the slowest tests and the sum
of each folder.  CPU seconds are those of the process that tests, of the children that it has
waited for and of brokers that have ended: the first test after a Spark session has ended is charged
for the whole JVM.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

FILE: Final = Path(__file__).resolve().parent.parent / ".cache" / "test-times.tsv"
SLOWEST: Final = 20


def _cpu_s() -> float:
    return sum(os.times()[:4])


class Times:
    """The measuring half works where the tests run, the summing half where reports arrive."""

    def __init__(self) -> None:
        self._before_s = _cpu_s()
        self._sums: dict[str, tuple[float, float]] = {}
        """Of each test: wall-clock and CPU seconds."""

    def pytest_runtest_logstart(self) -> None:
        self._before_s = _cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        report = yield
        before_s, self._before_s = self._before_s, _cpu_s()
        report.cpu_s = self._before_s - before_s
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        wall_s, cpu_s = self._sums.get(report.nodeid, (0.0, 0.0))
        # The report on a process that crashed has no figure.
        cpu_s += getattr(report, "cpu_s", 0.0)
        self._sums[report.nodeid] = wall_s + report.duration, cpu_s

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        rows = sorted(((*each, test) for test, each in self._sums.items()), reverse=True)
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(
            "".join(f"{wall_s:.3f}\t{cpu_s:.3f}\t{test}\n" for wall_s, cpu_s, test in rows)
        )
        folders: dict[str, tuple[float, float]] = {}
        for wall_s, cpu_s, test in rows:
            folder = "/".join(test.split("/")[:2])
            sums = folders.get(folder, (0.0, 0.0))
            folders[folder] = sums[0] + wall_s, sums[1] + cpu_s
        terminalreporter.write_line(f"\nseconds: wall, CPU (all tests: {FILE})")
        of_folders = sorted(((*each, folder) for folder, each in folders.items()), reverse=True)
        for wall_s, cpu_s, name in rows[:SLOWEST] + of_folders:
            terminalreporter.write_line(f"{wall_s:8.1f} {cpu_s:8.1f} {name[:200]}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Times(), "times of tests")
