"""The command line in a process of its own, whose standard input and error are a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.support.fake_broker import WAIT_S, FakeBroker


@contextmanager
def on_terminal(
    broker: FakeBroker, answer: bytes, *args: str, noun: str = "schedule"
) -> Iterator[tuple[int, str, str]]:
    """Exit code, output, and what the terminal showed: standard input and error are one."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer)
        ran = subprocess.run(
            [sys.executable, "-m", "rmqlite", noun, *args],
            env=os.environ | {"RMQLITE_ENDPOINT": broker.endpoint, "COLUMNS": "80"},
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
            timeout=WAIT_S,
        )
        yield ran.returncode, ran.stdout, all_shown(ours)
    finally:
        os.close(ours)
        os.close(theirs)


def all_shown(terminal: int) -> str:
    """All that a terminal has shown until now; one read may give only a part of it."""
    shown = b""
    os.set_blocking(terminal, False)
    with suppress(BlockingIOError):
        while True:
            shown += os.read(terminal, 65_536)
    return shown.decode()
