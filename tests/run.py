"""The whole test suite with one command: python3 tests/run.py [pytest's arguments]

Needs nothing but Python: makes .venv if there is none, sets up Java for the Spark tests and
Chromium for those of the web page where it can, then lints, and stops if that fails; then tests,
and checks types meanwhile.  Every test's time is in .cache/test-times.tsv afterwards.

--long does more, in hours instead of minutes; tests/conftest.py says what.

--feature NAME tests less, in minutes: the kernel (KERNEL, below) and tests/features/NAME, the tests
of one folder of rmqlite/features.  What a feature looks like from a client, a command, a page or
another protocol is tested where those are, and only by a whole run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

import environment  # noqa: E402 - found only after the line above

from tests import chromium, java  # noqa: E402 - the same

WORKERS = 4
"""Processes that test: tests wait for brokers, clients and polls half of the time, so four keep
two cores busy.  With many more, brokers and clients would time each other out."""
TESTS = ROOT / "tests"
FEATURES = TESTS / "features"
KERNEL = ("base", "store", "broker", "model", "server/test_*.py")
SPREAD = (f"--numprocesses={WORKERS}", "--dist=loadgroup")
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 6 << 30
"""With so much room there, the tests' folders lie in memory: some tests make and remove thousands
of small stores, and on a slow disk wait for it most of the time."""


def environment_of_tests() -> dict[str, str]:
    has_room = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN
    return {**os.environ} | ({"PYTEST_DEBUG_TEMPROOT": str(MEMORY)} if has_room else {})


def arguments_of_pytest(given: list[str]) -> list[str]:
    """The command line with the folders of --feature NAME in its place."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    names = sorted({path.parent.name for path in FEATURES.glob("*/test_*.py")})
    parser.add_argument("--feature", choices=names, metavar="NAME")
    known, rest = parser.parse_known_args(given)
    if known.feature is None:
        return rest
    paths = [path for each in KERNEL for path in sorted(TESTS.glob(each))]
    return [*map(str, paths), str(FEATURES / known.feature), *rest]


def compile_tests(python: Path) -> None:
    """In a fresh clone, so that not every worker does it for all tests, at the same time."""
    if any(TESTS.rglob("*-pytest-*.pyc")):
        return
    command = [str(python), "-m", "pytest", "--collect-only", "-p", "no:cacheprovider"]
    # To compile them it imports them; it need not find out which tests they have.
    command += ["-o", "python_functions=nothing", "-o", "python_classes=Nothing"]
    modules = sorted(map(str, TESTS.rglob("test_*.py")))
    cores = os.cpu_count() or 1
    running = [
        subprocess.Popen(
            [*command, *part], cwd=ROOT, env=environment_of_tests(), stdout=subprocess.DEVNULL
        )
        for part in (modules[first::cores] for first in range(cores))
    ]
    for each in running:
        # What is wrong with a module, the whole run says.
        each.wait()


class Steps:
    """Runs modules of the environment's Python, and says how each ended."""

    def __init__(self, python: Path) -> None:
        self._python = python

    def begun(self, words: str, *arguments: str, out: int | None = None) -> subprocess.Popen[bytes]:
        """out: where both of its streams go, if not where ours do."""
        command = [str(self._python), "-m", *words.split(), *arguments]
        error = None if out is None else subprocess.STDOUT
        environment = environment_of_tests()
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=error)

    def done(self, words: str, *arguments: str) -> int:
        """The exit code."""
        print(f"\n{words}", flush=True)
        started = time.monotonic()
        code = self.begun(words, *arguments).wait()
        self.say(words, code, f", {time.monotonic() - started:.1f} s")
        return code

    def say(self, words: str, code: int, took: str = "") -> None:
        how = "passed" if code == 0 else f"FAILED with exit code {code}"
        print(f"{words}: {how}{took}", flush=True)


def main() -> int:
    started = time.monotonic()
    # Without its byte code, each start of a broker or a command would compile all modules again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    arguments = arguments_of_pytest(sys.argv[1:])
    is_whole = arguments == sys.argv[1:]
    with ThreadPoolExecutor() as beside:
        browser = beside.submit(chromium.ensure) if is_whole else None
        python = environment.ensure("dev")
    if browser is not None:
        browser.result()
        java.ensure(python)
    compile_tests(python)
    print(f"environment ready after {time.monotonic() - started:.1f} s", flush=True)
    run = Steps(python)
    code = run.done("ruff check", ".") or run.done("ruff format", "--check", ".")
    if code == 0:
        # Tests wait a part of their time: the types are checked in it, and said at the end.
        types = run.begun("mypy", out=subprocess.PIPE)
        tested = run.done("pytest", *SPREAD, "-p", "tests.times", *arguments)
        said, _ = types.communicate()
        print(f"\nmypy\n{said.decode()}", end="")
        run.say("mypy", types.returncode)
        code = tested or types.returncode
    if code == 0:
        print(f"\nall passed, {time.monotonic() - started:.1f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
