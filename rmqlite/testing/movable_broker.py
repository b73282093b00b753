"""The process of a broker under test: `rmqlite broker` with a clock that its parent moves.

    python -m rmqlite.testing.movable_broker CONF AHEAD_MS

Standard input is a socket of the parent.  This process writes its endpoints there when it accepts
calls.  Then each line that it reads is a number of milliseconds by which to move the clock, and
it answers with the clock's time.  When the parent has ended, this process ends, too.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from pathlib import Path

from rmqlite.cli.broker import run_broker
from rmqlite.cli.output.terminal import error_line
from rmqlite.kernel.config.config import BrokerConfig, load_config
from rmqlite.kernel.process.serve import Endpoints
from rmqlite.kernel.words.clock import SystemClock, SystemMachine
from rmqlite.kernel.words.errors import RmqliteError

MOVE_BYTES_MAX = 64


class MachineAhead(SystemMachine):
    """This machine after some more time; all its clocks agree on that."""

    def __init__(self, ahead_ms: int) -> None:
        super().__init__()
        self.ahead_ns = ahead_ms * 1_000_000

    def wall_ns(self) -> int:
        return super().wall_ns() + self.ahead_ns

    def boot_ns(self) -> int:
        return super().boot_ns() + self.ahead_ns

    def awake_ns(self) -> int:
        return super().awake_ns() + self.ahead_ns


def main() -> int:
    """Run the broker; returns the exit code."""
    conf, ahead_ms = sys.argv[1:]
    machine = MachineAhead(int(ahead_ms))
    clock = SystemClock(machine)
    parent = socket.socket(fileno=sys.stdin.fileno())

    def move() -> None:
        line = parent.recv(MOVE_BYTES_MAX)
        if not line:
            asyncio.get_running_loop().remove_reader(parent)
            signal.raise_signal(signal.SIGTERM)
            return
        machine.ahead_ns += int(line) * 1_000_000
        clock.on_jump()
        parent.sendall(b"%d\n" % clock.now_ms())

    def on_ready(endpoints: Endpoints) -> None:
        parent.sendall(" ".join(endpoints).encode("ascii") + b"\n")
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
