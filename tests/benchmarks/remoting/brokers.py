"""The two brokers that are compared, each a process of its own on ports that were free."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from rmqlite.kernel.words.clock import pause_s
from rmqlite.testing import BrokerProcess
from tests.support import toolchains
from tests.support.broker_processes import cpu_s_of, free_port
from tests.support.java_server import port_with_vip, running, server_command

NAME_SERVER: Final = Path(__file__).parent / "name_server" / "pom.xml"
BROKERS: Final = toolchains.ROOT / "tests" / "journeys" / "rocketmq" / "pom.xml"
VERSION: Final = "4.9.7"
WITH_TIMERS: Final = "5.3.2"


class Target(NamedTuple):
    """A broker that is measured.  pid: of the broker, not of its name server."""

    name: str
    name_server: str
    pid: int

    def cpu_s(self) -> float:
        return cpu_s_of(self.pid)

    def stand_still(self, seconds: float) -> None:
        """Stop the process for a time, so that whatever becomes due meanwhile is due at once."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            pause_s(seconds)
        finally:
            os.kill(self.pid, signal.SIGCONT)


@contextmanager
def rmqlite_broker(folder: Path, flush: str) -> Iterator[Target]:
    settings = {"flushDiskType": flush, "diskSpaceWarningLevelRatio": "100"}
    with BrokerProcess(folder, settings, is_forked=False) as broker:
        yield Target("rmqlite", broker.name_server, broker.pid)


@contextmanager
def rocketmq_broker(folder: Path, flush: str, version: str) -> Iterator[Target]:
    """RocketMQ's name server and broker.  Raises what toolchains.classpath() raises."""
    paths = toolchains.classpath(BROKERS, version)
    store = folder / "store"
    names_port, port = free_port(), port_with_vip()
    settings = {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "namesrvAddr": f"127.0.0.1:{names_port}",
        "listenPort": port,
        "haListenPort": free_port(),
        "storePathRootDir": store,
        "storePathCommitLog": store / "commitlog",
        "flushDiskType": flush,
        # Beside another program on the same cores its default, 200 ms, refuses sends.
        "waitTimeMillsInSendQueue": 20_000,
        "diskMaxUsedSpaceRatio": 99,
        "timerWheelEnable": "true",
    }
    own = {"listenPort": names_port}
    names = server_command(folder, toolchains.classpath(NAME_SERVER), "namesrv", own, "-Xmx256m")
    broker = server_command(folder, paths, "broker", settings, "-Xms1g", "-Xmx1g")
    with (
        running(names, folder, folder / "namesrv.log", names_port),
        running(broker, folder, folder / "broker.log", port) as process,
    ):
        yield Target("RocketMQ", f"127.0.0.1:{names_port}", process.pid)
    shutil.rmtree(store, ignore_errors=True)
