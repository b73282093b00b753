"""Brokers of tests are forks of a process that has imported all modules of rmqlite already.

A start of `python -m rmqlite broker` imports for most of a second of processor time, a fork takes
some milliseconds, and the tests start some hundreds.  In all else it is what a shell would start:
an own process with its arguments, environment and folder, which ends through the interpreter.
tests/cli/test_broker.py and others start brokers without this, as users do.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final, Self

ROOT: Final = Path(__file__).resolve().parent.parent.parent
REQUEST_BYTES_MAX: Final = 1 << 20
PID_BYTES: Final = 10
REPORT_BYTES: Final = 100
"""More than an exit code and seconds ever have."""
MODULES: Final = (
    "rmqlite.cli.main",
    "rmqlite.cli.broker",
    "rmqlite.kernel.process.serve",
    "rmqlite.web.server",
)
"""What a broker imports, at once or when it starts."""


def settings_of_python() -> dict[str, str]:
    """What the interpreter itself reads of the environment, when it starts."""
    return {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}


class Fork:
    """As much of subprocess.Popen as BrokerProcess uses."""

    def __init__(self, forks: socket.socket, command: Sequence[str], stdout: int, stderr: int):
        ended, told = os.pipe()
        request = {"argv": command[3:], "folder": os.getcwd(), "environment": dict(os.environ)}
        socket.send_fds(forks, [json.dumps(request).encode()], [stdout, stderr, told])
        os.close(told)
        self._ended = os.fdopen(ended, "rb", buffering=0)
        self.pid = int(self._ended.read(PID_BYTES))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"rmqlite, process {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], timeout)[0]:
            code, used_s = self._ended.read(REPORT_BYTES).split()
            self.returncode = int(code)
            Forks.used_s += float(used_s)
            self._ended.close()
        return self.returncode


class Forks:
    """Takes the place of the module subprocess in broker_process.

    The process that has imported everything begins with the first fork.
    """

    TimeoutExpired = subprocess.TimeoutExpired
    used_s = 0.0
    """Processor time of all forks that have ended: they are no children of this process."""

    def __init__(self) -> None:
        self._socket, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = settings_of_python()
        self._beginning = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._theirs.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def Popen(
        self, command: Sequence[str], *, stdout: IO[bytes], stderr: IO[bytes]
    ) -> Fork | subprocess.Popen[bytes]:
        """A fork, or a process as usual where a test lets Python find or do something else."""
        if settings_of_python() != self._settings:
            return subprocess.Popen(command, stdout=stdout, stderr=stderr)
        assert list(command[:3]) == [sys.executable, "-m", "rmqlite"]
        with self._beginning:
            self._process = self._process or self._begun()
        return Fork(self._socket, command, stdout.fileno(), stderr.fileno())

    def _begun(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", __name__, str(self._theirs.fileno())],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            pass_fds=[self._theirs.fileno()],
        )


def _reported(told: int) -> None:
    """Returns in the process that is to be rmqlite; this one says how that ends, and ends."""
    if pid := os.fork():
        os.write(told, b"%*d" % (PID_BYTES, pid))
        _, status, used = os.wait4(pid, 0)
        report = b"%d %f" % (os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime)
        os.write(told, report)
        os._exit(0)
    os.close(told)


def _become(request: bytes, fds: Sequence[int]) -> None:
    wanted = json.loads(request)
    stdout, stderr, told = fds
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _reported(told)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    sys.argv[1:] = wanted["argv"]
    runpy.run_module("rmqlite", run_name="__main__", alter_sys=True)


def main(fd: int) -> None:
    """Fork once for each request, until nobody is left who could ask."""
    for name in MODULES:
        __import__(name)
    # Those in between have nobody to wait for them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=fd) as asked:
        while True:
            request, fds, *_ = socket.recv_fds(asked, REQUEST_BYTES_MAX, 3)
            if not request:
                return
            if os.fork() == 0:
                asked.close()
                return _become(request, fds)
            for each in fds:
                os.close(each)


if __name__ == "__main__":
    main(int(sys.argv[1]))
