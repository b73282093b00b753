"""The whole test suite with one command: python3 tests/run.py [pytest's arguments]

Needs nothing but Python: makes .venv if there is none, sets up Java for the Spark tests and
Chromium for those of the web page where it can, then lints, checks types and tests, and stops
at the first of these that fails.  Every test's time is in .cache/test-times.tsv afterwards.

--long does more, in hours instead of minutes; tests/conftest.py says what.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

import environment  # noqa: E402 - found only after the line above

from tests import chromium, java  # noqa: E402 - the same

WORKERS = 3
"""Processes that test: tests wait for brokers and clients a quarter of the time, so three keep
two cores busy.  With many more, brokers and clients would time each other out."""
SPREAD = (f"--numprocesses={WORKERS}", "--dist=loadgroup")
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 6 << 30
"""With so much room there, the tests' folders lie in memory: some tests make and remove thousands
of small stores, and on a slow disk wait for it most of the time."""


def environment_of_tests() -> dict[str, str]:
    has_room = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN
    # Without its byte code, each start of a broker or a command would compile all modules again.
    shell = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return shell | ({"PYTEST_DEBUG_TEMPROOT": str(MEMORY)} if has_room else {})


def main() -> int:
    started = time.monotonic()
    python = environment.ensure("dev")
    java.ensure(python)
    chromium.ensure()
    print(f"environment ready after {time.monotonic() - started:.1f} s", flush=True)
    steps = {
        "ruff check": ["ruff", "check", "."],
        "ruff format": ["ruff", "format", "--check", "."],
        "mypy": ["mypy"],
        "pytest": ["pytest", *SPREAD, "-p", "tests.times", *sys.argv[1:]],
    }
    for name, arguments in steps.items():
        print(f"\n{name}", flush=True)
        step_started = time.monotonic()
        code = subprocess.run(
            [python, "-m", *arguments], cwd=ROOT, env=environment_of_tests()
        ).returncode
        took = f"{time.monotonic() - step_started:.1f} s"
        print(f"{name}: {'passed' if code == 0 else f'FAILED with exit code {code}'}, {took}")
        if code != 0:
            return code
    print(f"\nall passed, {time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
