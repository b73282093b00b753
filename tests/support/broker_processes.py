"""Real broker processes: their ports, memory and CPU time, and settings for any machine."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import SystemRandom

from rmqlite.cli.bench.broker_process import BrokerProcess

StartBroker = Callable[..., BrokerProcess]
OF_ANY_DISK = {
    "diskSpaceWarningLevelRatio": "100",
    "cleanFileForciblyEnable": "false",
    "syncFlushTimeout": "120000",
}
"""However full and slow the disk of whoever runs the tests."""
_PORTS = iter(SystemRandom().sample(range(20_000, 32_000), 12_000))
"""Begun anywhere: other runs of the tests look for ports at the same time."""

_TICKS_PER_S = 100
"""The unit of CPU times in /proc, the same on every Linux."""


def resident_mib(broker: BrokerProcess) -> float:
    """The memory of the process in RAM (VmRSS)."""
    return _status_mib(broker, "VmRSS:")


def peak_mib(broker: BrokerProcess) -> float:
    """The largest memory in RAM so far (VmHWM)."""
    return _status_mib(broker, "VmHWM:")


def _status_mib(broker: BrokerProcess, name: str) -> float:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    kib = next(line.split()[1] for line in status.splitlines() if line.startswith(name))
    return int(kib) / 1024


def cpu_s_of(pid: int) -> float:
    """The CPU time of a process so far, in user and in kernel mode, in steps of 0.01 s."""
    # The name of the program, in brackets, may have blanks.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def free_port() -> int:
    """A port that a broker can have again after a restart, another one each time.

    Not of those that the system gives to outgoing connections: it would give it away.
    """
    for port in _PORTS:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("every port was given once")
