"""The command line in a process of its own, whose standard input and error are a terminal."""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.support.command_processes import run_command
from tests.support.fake_broker import FakeBroker


@contextmanager
def on_terminal(
    broker: FakeBroker, answer: bytes, *args: str, noun: str = "schedule"
) -> Iterator[tuple[int, str, str]]:
    """Exit code, output, and what the terminal showed: standard input and error are one."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer)
        env = {"RMQLITE_ENDPOINT": broker.endpoint, "COLUMNS": "80"}
        ran = run_command(noun, *args, stdin=theirs, stderr=theirs, env=env)
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
