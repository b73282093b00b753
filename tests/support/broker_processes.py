"""Real broker processes: their ports, memory and CPU time, and settings for any machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rmqlite.testing import OF_ANY_DISK as OF_ANY_DISK
from rmqlite.testing import BrokerProcess
from rmqlite.testing import free_port as free_port

StartBroker = Callable[..., BrokerProcess]
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
