"""RocketMQ's servers as processes: how Java starts them, and when they are ready."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from rmqlite.kernel.words.clock import elapsed_s, pause_s
from tests.support import toolchains
from tests.support.broker_processes import free_port

START_S_MAX: Final = 120.0
_STOP_S_MAX: Final = 60.0
# Its mapped files are unmapped through classes that Java 17 does not open by itself.
_OPEN: Final = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)
_LOGS: Final = ("logback_{}.xml", "rmq.{}.logback.xml")
"""The names of the log's settings in 4.9 and in 5."""


def server_command(
    folder: Path, paths: str, name: str, settings: Mapping[str, object], *options: str
) -> list[str]:
    """The command of a server, whose configuration and home are written into a folder.

    name: namesrv or broker.  paths: a class path.  options: Java's.
    """
    conf = folder / "home" / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    for pattern in _LOGS:
        (conf / pattern.format(name)).write_text("<configuration/>\n")
    lines = "".join([f"{key}={value}\n" for key, value in settings.items()])
    (folder / f"{name}.conf").write_text(lines)
    java = ["java", *_OPEN, *options, f"-Duser.home={folder}", "-cp", paths]
    main = f"org.apache.rocketmq.{name}.{name.capitalize()}Startup"
    return [*java, main, "-c", str(folder / f"{name}.conf")]


@contextmanager
def running(
    command: Sequence[str], folder: Path, log: Path, port: int
) -> Iterator[subprocess.Popen[bytes]]:
    """A server, once its port is open; stopped at the end, if it still runs."""
    with log.open("ab") as said:
        process = subprocess.Popen(
            command,
            env=os.environ | {"ROCKETMQ_HOME": str(folder / "home")},
            cwd=folder,
            stdout=said,
            stderr=said,
        )
    try:
        _until(lambda: _is_open(port) or process.poll() is not None)
        if process.poll() is not None:
            raise SystemExit(f"{command[-3]} ended: {log.read_text(errors='replace')[-1_000:]}")
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


NAME_SERVER: Final = (
    toolchains.ROOT / "tests" / "benchmarks" / "remoting" / "name_server" / "pom.xml"
)


@contextmanager
def name_server(folder: Path) -> Iterator[str]:
    """RocketMQ 4.9's own name server; its address."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    paths = toolchains.classpath(NAME_SERVER)
    command = server_command(folder, paths, "namesrv", {"listenPort": port}, "-Xmx128m")
    with running(command, folder, folder / "namesrv.log", port):
        yield f"127.0.0.1:{port}"


def port_with_vip() -> int:
    """A free port whose VIP port, two below, is free as well."""
    while True:
        port = free_port()
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port - 2))
            return port


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
