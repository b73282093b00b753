"""A broker process with its own store: start, stop, kill, and a clock that moves when asked.

The process holds one end of a socket, over which it names its endpoints and is told how far to
move its clock.  It ends when the other end is closed: also after a SIGKILL of this process.

It is a fork of a process that has imported the broker's modules: nine tenths of a start are that.
There is one such template for this process and its environment.  A template ends when the process
that made it does; so do its brokers, each by its own socket.
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
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from random import SystemRandom
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Final

from rmqlite.kernel.words.clock import elapsed_s, utc
from rmqlite.kernel.words.errors import BrokerUnreachable, InvalidValue

if TYPE_CHECKING:
    from datetime import datetime


ANSWER_BYTES_MAX: Final = 32
CHANGES_ITSELF: Final = "PYTEST_CURRENT_TEST"
_LOCK: Final = threading.Lock()
READY_SECONDS_MAX: Final = 600.0
STOP_SECONDS_MAX: Final = 120.0
LOG_LINES_MAX: Final = 30
PORTS: Final = ("listenPort", "grpcPort", "nameServerPort")
OF_ANY_DISK: Final = {
    "diskSpaceWarningLevelRatio": "100",
    "cleanFileForciblyEnable": "false",
    "syncFlushTimeout": "120000",
}
"""However full and slow the disk of whoever runs the tests."""


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


class BrokerProcess:
    """A broker in a process of its own; endpoints and pid are valid while it runs.

    endpoint: for the clients of rmqlite and RocketMQ 5; name_server and remoting: for those of
    RocketMQ 4.x.  settings are keys of broker.conf; a port that is not among them is chosen once
    and kept.  is_forked: it starts in a twentieth of the time, of a process that has the modules;
    its exit code is not known.  Leaving the context stops the process; the folder, with store
    and log, stays.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, str], *, is_forked: bool = True
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.endpoint = self.remoting = self.name_server = ""
        self.store = folder / "store"
        self._conf = folder / "broker.conf"
        self._log = folder / "broker.log"
        self._settings = settings
        self._is_forked = is_forked
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._channel: socket.SocketIO | None = None
        self._ahead_ms = 0
        self._chosen: list[str] = []
        self._choose_ports()

    def __enter__(self) -> BrokerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        """Start it; returns the seconds until it accepts calls.

        Raises BrokerUnreachable, with the end of its log.
        """
        began_s = elapsed_s()
        while True:
            try:
                self._start()
            except BrokerUnreachable as error:
                # Somebody took a port between the look at it and the broker's start.
                if self.endpoint or not any(f"'{port}'" in str(error) for port in self._chosen):
                    raise
                self._choose_ports()
            else:
                return elapsed_s() - began_s

    def stop(self) -> None:
        """SIGTERM, then wait until it has closed its store.  Raises BrokerUnreachable."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise self._failed(f"the broker did not end in {STOP_SECONDS_MAX:.0f} s") from error
        self._forget()

    def kill(self) -> None:
        """SIGKILL: nothing is flushed and nothing is closed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def restart(self) -> None:
        """Stop it if it runs, and start it on the same store, with the same ports and clock."""
        self.stop()
        self.start()

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> datetime:
        """Move its clock forward, and deliver what is due then; returns now().

        Raises BrokerUnreachable if it does not run.
        """
        ms = round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
        if ms < 0:
            raise InvalidValue("time", ms, "0 or more milliseconds: no clock goes back")
        return self._moved(ms)

    def deliver_now(self) -> int:
        """Deliver all that waits, without a move of the clock; returns how many messages.

        Raises RmqliteError.
        """
        # Not before it is asked for: whoever runs pytest imports this module.
        from rmqlite.client import AdminClient, PendingFilter, ScheduleAction

        with AdminClient(self.endpoint) as admin:
            return admin.schedule.change_pending(ScheduleAction.FIRE, PendingFilter())

    def now(self) -> datetime:
        """The time of its clock, in UTC.  Raises BrokerUnreachable if it does not run."""
        return self._moved(0)

    def log_end(self) -> str:
        """The last lines of its log."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return "\n".join(lines[-LOG_LINES_MAX:]) or "it said nothing"

    def _choose_ports(self) -> None:
        lines = {key: str(free_port()) for key in PORTS if key not in self._settings}
        self._chosen = [*lines.values()]
        lines |= {"storePathRootDir": str(self.store), **self._settings}
        self._conf.write_text("".join([f"{key}={value}\n" for key, value in lines.items()]))

    def _start(self) -> None:
        self._forget()
        arguments = [str(self._conf), str(self._ahead_ms)]
        command = [sys.executable, "-m", "rmqlite.testing.movable_broker", *arguments]
        ours, theirs = socket.socketpair()
        with ours, theirs, self._log.open("ab") as log:
            self._process = (
                fork(arguments, theirs, log)
                if self._is_forked
                else subprocess.Popen(command, stdin=theirs.fileno(), stdout=log, stderr=log)
            )
            ours.settimeout(READY_SECONDS_MAX)
            self._channel = ours.makefile("rwb", buffering=0)
        try:
            endpoints = self._answer().split()
        except BrokerUnreachable:
            self.kill()
            raise self._failed("the broker ended before it was ready") from None
        self.endpoint, self.remoting, self.name_server = map(bytes.decode, endpoints)

    def _moved(self, ms: int) -> datetime:
        if self._channel is None:
            raise BrokerUnreachable("the broker does not run")
        with suppress(OSError):
            self._channel.write(b"%d\n" % ms)
        now_ms = int(self._answer())
        self._ahead_ms += ms
        return utc(now_ms)

    def _answer(self) -> bytes:
        assert self._channel is not None
        line = b""
        with suppress(OSError):
            line = self._channel.readline()
        if not line.endswith(b"\n"):
            raise self._failed("the broker does not answer")
        return line

    def _forget(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._process = self._channel = None

    def _failed(self, sentence: str) -> BrokerUnreachable:
        return BrokerUnreachable(f"{sentence}: {self.log_end()}")


@contextmanager
def broker(folder: Path | None = None, **settings: object) -> Iterator[BrokerProcess]:
    """A running broker; settings are keys of broker.conf, such as messageDelayLevel="1s 2s".

    Its store and its log lie in the folder, which stays, or in a temporary one, which does not.
    An error that leaves the context has the end of the broker's log as a note.
    """
    texts = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in settings.items()
    }
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="rmqlite-")))
        process = BrokerProcess(folder, OF_ANY_DISK | texts)
        running = stack.enter_context(process)
        try:
            yield running
        except Exception as error:
            error.add_note(f"The broker's log:\n{running.log_end()}")
            raise


@cache
def _ports() -> Iterator[int]:
    """Begun anywhere: other runs of the tests look for ports at the same time.

    The processes of one run, as pytest-xdist names and counts them, have ports of their own.
    """
    number, first, step = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw"), 0, 1
    if number.isdecimal():
        step = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        first = int(number) % step
    ports = range(20_000 + first, 32_000, step)
    return iter(SystemRandom().sample(ports, len(ports)))


def free_port() -> int:
    """A port that a broker can have again after a restart, another one each time.

    Not of those that the system gives to outgoing connections: it would give it away.
    """
    for port in _ports():
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("every port was given once")
