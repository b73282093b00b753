"""The two brokers that are compared, each a process of its own on ports that were free."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from rmqlite.cli.bench.broker_process import BrokerProcess, cpu_s_of
from rmqlite.clock import elapsed_s, pause_s
from tests.support import toolchains
from tests.support.broker_processes import free_port

POM: Final = Path(__file__).parent / "broker" / "pom.xml"
VERSION: Final = "4.9.7"
START_S_MAX: Final = 120.0
# Its mapped files are unmapped through classes that Java 17 does not open by itself.
_OPEN: Final = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)


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
    with BrokerProcess(folder, settings) as broker:
        yield Target("rmqlite", broker.name_server, broker.pid)


@contextmanager
def rocketmq_broker(folder: Path, flush: str) -> Iterator[Target]:
    """RocketMQ's name server and broker.  Raises what toolchains.classpath() raises."""
    paths = toolchains.classpath(POM)
    home, store = folder / "home", folder / "store"
    (home / "conf").mkdir(parents=True)
    for name in ("broker", "namesrv"):
        (home / "conf" / f"logback_{name}.xml").write_text("<configuration/>\n")
    names_port, port = free_port(), _port_with_vip()
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
    }
    lines = "".join([f"{key}={value}\n" for key, value in settings.items()])
    (folder / "broker.conf").write_text(lines)
    (folder / "namesrv.conf").write_text(f"listenPort={names_port}\n")
    java = ["java", *_OPEN, f"-Duser.home={folder}", "-cp", paths]
    package = "org.apache.rocketmq"
    names = [*java, "-Xmx256m", f"{package}.namesrv.NamesrvStartup"]
    names += ["-c", str(folder / "namesrv.conf")]
    broker = [*java, "-Xms1g", "-Xmx1g", f"{package}.broker.BrokerStartup"]
    broker += ["-c", str(folder / "broker.conf")]
    with (
        _running(names, home, folder / "namesrv.log", names_port),
        _running(broker, home, folder / "broker.log", port) as pid,
    ):
        yield Target("RocketMQ", f"127.0.0.1:{names_port}", pid)
    shutil.rmtree(store, ignore_errors=True)


@contextmanager
def _running(command: list[str], home: Path, log: Path, port: int) -> Iterator[int]:
    """A server, once its port is open; its process id."""
    with log.open("wb") as said:
        process = subprocess.Popen(
            command,
            env=os.environ | {"ROCKETMQ_HOME": str(home)},
            cwd=home,
            stdout=said,
            stderr=said,
        )
    try:
        _until(lambda: _is_open(port) or process.poll() is not None)
        if process.poll() is not None:
            raise SystemExit(f"{command[-3]} ended: {log.read_text(errors='replace')[-1_000:]}")
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until(is_so: Callable[[], bool]) -> None:
    until_s = elapsed_s() + START_S_MAX
    while not is_so():
        if elapsed_s() > until_s:
            raise SystemExit(f"RocketMQ has not started in {START_S_MAX:.0f} s")
        pause_s(0.1)


def _is_open(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _port_with_vip() -> int:
    """A free port whose VIP port, two below, is free as well."""
    while True:
        port = free_port()
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port - 2))
            return port
