"""The process of a broker under test: `rmqlite broker` with a clock that its parent moves.

    python -m rmqlite.testing.movable_broker [CONF AHEAD_MS]

Standard input is a socket of the parent.  This process writes its endpoints there when it accepts
calls.  Then each line that it reads is a number of milliseconds by which to move the clock, and
it answers with the clock's time.  When the parent has ended, this process ends, too.

Without arguments it is the template of such processes: it forks one at each request.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Final

from rmqlite.cli.broker import run_broker
from rmqlite.cli.output.terminal import error_line
from rmqlite.kernel.config.config import BrokerConfig, load_config
from rmqlite.kernel.process.protocol_server import Endpoints
from rmqlite.kernel.words.clock import Basis, SystemClock, SystemMachine
from rmqlite.kernel.words.errors import RmqliteError

MOVE_BYTES_MAX: Final = 64
REQUEST_BYTES_MAX: Final = 16_384
MODULES: Final = (
    "encodings.ascii",
    "encodings.idna",
    "encodings.utf_8_sig",
    "rmqlite.cli.output.audit_lines",
    "rmqlite.serving",
)
"""What a broker imports only when it starts, which takes half a second of CPU time."""


class MovableMachine(SystemMachine):
    """This machine, whose wall clock is moved together with the broker's clock."""

    ahead_ns = 0

    def wall_ns(self) -> int:
        return super().wall_ns() + self.ahead_ns


class MovableClock(SystemClock):
    """It costs no more than the clock of any other broker: a move changes its offset.

    Its basis is without the moves; so the next process, which begins with all of them, continues
    the clock even if it was killed before the last one was on disk.
    """

    def __init__(self, ahead_ms: int) -> None:
        self._movable = MovableMachine()
        super().__init__(self._movable)
        self.move(ahead_ms)

    def move(self, ms: int) -> None:
        self._offset_ns += ms * 1_000_000
        self._movable.ahead_ns += ms * 1_000_000
        self.on_jump()

    def basis(self) -> Basis | None:
        basis = super().basis()
        return basis and replace(basis, offset_ns=basis.offset_ns - self._movable.ahead_ns)

    def go_on_from(self, basis: Basis, reached_ms: int) -> bool:
        moved = replace(basis, offset_ns=basis.offset_ns + self._movable.ahead_ns)
        return super().go_on_from(moved, reached_ms)


def main() -> int:
    """Returns the exit code."""
    return run(*(sys.argv[1:] or forked_arguments()))


def load_modules() -> None:
    """Import all that a broker imports when it starts."""
    for name in MODULES:
        import_module(name)
    import_module("rmqlite.features.every").features()
    # No fork needs to look for garbage there.
    gc.collect()
    gc.freeze()


def forked_arguments() -> list[str]:
    """Fork at each request; returns its arguments in the new process, and here never."""
    load_modules()
    requests = socket.socket(fileno=sys.stdin.fileno())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        request, files, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 2)
        if not request:
            sys.exit()
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            requests.detach()
            for file, number in zip([*files, files[1]], range(3), strict=True):
                os.dup2(file, number)
            for file in files:
                os.close(file)
            return request.decode().split("\0")
        # Before it is looked for: until then a process that has ended keeps its number.
        pid_file = os.pidfd_open(pid)
        socket.send_fds(requests, [b"%d" % pid], [pid_file])
        for file in (*files, pid_file):
            os.close(file)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def run(conf: str, ahead_ms: str) -> int:
    """Run a broker; returns the exit code."""
    clock = MovableClock(int(ahead_ms))
    parent = socket.socket(fileno=sys.stdin.fileno())

    def move() -> None:
        line = parent.recv(MOVE_BYTES_MAX)
        if not line:
            asyncio.get_running_loop().remove_reader(parent)
            signal.raise_signal(signal.SIGTERM)
            return
        clock.move(int(line))
        parent.sendall(b"%d\n" % clock.now_ms())

    is_said = False

    def on_ready(endpoints: Endpoints) -> None:
        nonlocal is_said
        if not is_said:
            parent.sendall(" ".join(endpoints).encode("ascii") + b"\n")
            is_said = True
        asyncio.get_running_loop().add_reader(parent, move)

    def load() -> BrokerConfig:
        return load_config(Path(conf))

    try:
        return run_broker(load(), on_ready, load, clock=clock)
    except RmqliteError as error:
        # Before the socket is closed: then the parent reads the log.
        sys.stderr.write(error_line(error) + "\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
