"""A real etcd, on a port that it keeps."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support import toolchains
from tests.support.broker_processes import free_port


class EtcdServer:
    """Runs inside the context; it may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._program = toolchains.etcd()
        self._folder = folder
        self._ports = (free_port(), free_port())
        self._process: subprocess.Popen[bytes] | None = None

    def endpoint(self, _number: int = 0) -> str:
        return f"127.0.0.1:{self._ports[0]}"

    def start(self) -> None:
        client, peer = [f"http://127.0.0.1:{port}" for port in self._ports]
        command = [str(self._program), "--data-dir", str(self._folder / "data")]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"default={peer}"]
        with (self._folder / "etcd.log").open("ab") as lines:
            self._process = subprocess.Popen(command, stdout=lines, stderr=lines)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> EtcdServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
