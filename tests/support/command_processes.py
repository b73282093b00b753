"""The command line in a process of its own, forked from one that has its modules.

Nine tenths of a short command are the imports.  What is about a start itself (its streams, its
environment, what it imports) runs `python -m rmqlite`.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import IO, Any, Final

WAIT_S: Final = 600.0
REQUEST_BYTES_MAX: Final = 1 << 18
STATUS_BYTES: Final = 32
MODULES: Final = (
    "rmqlite.cli.main",
    "rmqlite.client.admin_client",
    "rmqlite.client.producer",
    "typer.rich_utils",
    "rich.progress",
)


class Command:
    """Like subprocess.Popen."""

    def __init__(self, channel: socket.socket, out: IO[bytes], err: IO[bytes]) -> None:
        self._channel = channel
        self._streams = out, err
        # Not select(): a test may have thousands of files open.
        self._ended = select.poll()
        self._ended.register(channel, select.POLLIN)
        self._written: list[str] = []
        self.pid = int(self._line())
        self.returncode: int | None = None

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def poll(self) -> int | None:
        """None while it runs."""
        if self.returncode is None and self._ended.poll(0):
            self.wait()
        return self.returncode

    def wait(self) -> int:
        """Its exit code."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(int(self._line()))
            self._channel.close()
            for each in self._streams:
                with each:
                    each.seek(0)
                    self._written.append(each.read().decode())
        return self.returncode

    def communicate(self) -> tuple[str, str]:
        """What it has written to standard output and error, once it has ended."""
        self.wait()
        out, err = self._written
        return out, err

    def _line(self) -> bytes:
        self._channel.settimeout(WAIT_S)
        line = self._channel.recv(STATUS_BYTES)
        assert line, "the template of the commands has ended"
        return line


def run_command(*words: str, **about: Any) -> subprocess.CompletedProcess[str]:
    """`rmqlite WORDS`, to its end; about is for started_command."""
    command = started_command(*words, **about)
    out, err = command.communicate()
    return subprocess.CompletedProcess(words, command.wait(), out, err)


def started_command(
    *words: str,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    env: Mapping[str, str] | None = None,
) -> Command:
    """`rmqlite WORDS`; a stream that is not given is empty, or is read by communicate()."""
    out, err = [os.fdopen(os.memfd_create(each), "rb") for each in ("out", "err")]
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with open(os.devnull, "rb") as nothing, theirs:
        files = [
            nothing.fileno() if stdin is None else stdin,
            out.fileno() if stdout is None else stdout,
            err.fileno() if stderr is None else stderr,
            theirs.fileno(),
        ]
        request = json.dumps([words, os.getcwd(), {**os.environ, **(env or {})}]).encode()
        socket.send_fds(_template(os.getpid()), [request], files)
    return Command(ours, out, err)


@cache
def _template(_: int) -> socket.socket:
    """It ends when this process does."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    code = f"from {__name__} import main; main()"
    with theirs:
        process = subprocess.Popen([sys.executable, "-c", code], stdin=theirs.fileno())

    def close() -> None:
        ours.close()
        process.wait()

    atexit.register(close)
    return ours


# ---- in the template


def main() -> None:
    for each in MODULES:
        import_module(each)
    gc.collect()
    gc.freeze()
    requests = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    # Nobody waits for those that wait for a command.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, files, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 4)
        if not request:
            return
        if not os.fork():
            requests.close()
            _waited_for(request, files)
            return
        for file in files:
            os.close(file)


def _waited_for(request: bytes, files: list[int]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    channel = socket.socket(fileno=files.pop())
    pid = os.fork()
    if not pid:
        channel.close()
        _ran(request, files)
        return
    channel.send(b"%d" % pid)
    channel.send(b"%d" % os.waitpid(pid, 0)[1])
    os._exit(0)


def _ran(request: bytes, files: list[int]) -> None:
    """Run the command, and exit with its code."""
    words, folder, environment = json.loads(request)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    # As Python makes them of the first three files.
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    sys.argv = ["rmqlite", *words]
    sys.modules["rmqlite.cli.main"].main()
