"""Real broker processes: their ports, and settings for any machine."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
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


def free_port() -> int:
    """A port that a broker can have again after a restart, another one each time.

    Not of those that the system gives to outgoing connections: it would give it away.
    """
    for port in _PORTS:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("every port was given once")
