"""A process that has imported the broker's modules, and forks: all but 0.05 s of a start is that.

fork() keeps one such template for this process and its environment.  A template ends when the
process that made it does; so do its brokers, each by its own socket.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from typing import IO, Final

from rmqlite.kernel.words.errors import BrokerUnreachable

ANSWER_BYTES_MAX: Final = 32
CHANGES_ITSELF: Final = "PYTEST_CURRENT_TEST"
_LOCK: Final = threading.Lock()


class ForkedProcess:
    """A broker that a template has forked, like subprocess.Popen; nobody learns its exit code."""

    def __init__(self, pid: int, pid_fd: int) -> None:
        self.pid = pid
        self._pid_fd = pid_fd
        # Not select(): a test may have thousands of files open.
        self._ended = select.poll()
        self._ended.register(pid_fd, select.POLLIN)

    def __del__(self) -> None:
        os.close(self._pid_fd)

    def poll(self) -> int | None:
        """None while it runs."""
        return 0 if self._ended.poll(0) else None

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        if not self._ended.poll(None if timeout is None else timeout * 1000):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return 0

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._pid_fd, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Template:
    def __init__(self) -> None:
        self._made_for = _here()
        self._requests, theirs = socket.socketpair()
        command = [sys.executable, "-m", "rmqlite.testing.movable_broker"]
        with theirs:
            self._process = subprocess.Popen(command, stdin=theirs.fileno())
        atexit.register(self.close)

    def fits(self) -> bool:
        return self._made_for == _here() and self._process.poll() is None

    def fork(self, arguments: list[str], channel: socket.socket, log: IO[bytes]) -> ForkedProcess:
        files = [channel.fileno(), log.fileno()]
        pid, pid_fds = b"", list[int]()
        with suppress(OSError):
            socket.send_fds(self._requests, ["\0".join(arguments).encode()], files)
            pid, pid_fds, _, _ = socket.recv_fds(self._requests, ANSWER_BYTES_MAX, 1)
        if not pid_fds:
            raise BrokerUnreachable("the template of the brokers has ended")
        return ForkedProcess(int(pid), pid_fds[0])

    def close(self) -> None:
        atexit.unregister(self.close)
        self._requests.close()
        if self._made_for[0] == os.getpid():
            self._process.wait()


def fork(arguments: list[str], channel: socket.socket, log: IO[bytes]) -> ForkedProcess:
    """A process of movable_broker with these arguments; channel is its standard input."""
    with _LOCK:
        kept = _kept()
        if not kept or not kept[0].fits():
            while kept:
                kept.pop().close()
            kept.append(_Template())
        return kept[0].fork(arguments, channel, log)


@cache
def _kept() -> list[_Template]:
    return []


def _here() -> tuple[int, str, dict[str, str]]:
    """What a process has from its parent, and the parent itself."""
    environ = {key: value for key, value in os.environ.items() if key != CHANGES_ITSELF}
    return os.getpid(), os.getcwd(), environ
