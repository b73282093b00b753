"""A broker process with its own store: start, stop, kill."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rmqlite.kernel.words.clock import elapsed_s, pause_s
from rmqlite.kernel.words.errors import BrokerUnreachable

READY_SECONDS_MAX: Final = 600.0
STOP_SECONDS_MAX: Final = 120.0
_LOOK_S: Final = 0.002


class BrokerProcess:
    """`rmqlite broker` in a process of its own; endpoint and pid are valid while it runs.

    settings are keys of broker.conf.  Leaving the context stops it; the folder stays.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.endpoint = self.name_server = ""
        self.store = folder / "store"
        self._conf = folder / "broker.conf"
        self._ready = folder / "ready"
        self._log = folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        lines = {"listenPort": "0", "grpcPort": "0", "nameServerPort": "0"}
        lines |= {"storePathRootDir": str(self.store), **settings}
        self._conf.write_text("".join([f"{key}={value}\n" for key, value in lines.items()]))

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
        """Start it; returns the seconds until it accepts calls.  Raises BrokerUnreachable."""
        self._ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "rmqlite", "broker"]
        command += ["--config", str(self._conf), "--ready-file", str(self._ready)]
        began_s = elapsed_s()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        while not self._ready.exists():
            if self._process.poll() is not None:
                raise BrokerUnreachable(
                    f"the broker ended before it was ready: {self._last_line()}"
                )
            if elapsed_s() - began_s > READY_SECONDS_MAX:
                self.kill()
                raise BrokerUnreachable(f"the broker was not ready in {READY_SECONDS_MAX:.0f} s")
            pause_s(_LOOK_S)
        ready_s = elapsed_s() - began_s
        self.endpoint, self.name_server = self._ready.read_text().split()
        return ready_s

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
            sentence = f"the broker did not end in {STOP_SECONDS_MAX:.0f} s: {self._last_line()}"
            raise BrokerUnreachable(sentence) from error
        self._process = None

    def kill(self) -> None:
        """SIGKILL: nothing is flushed and nothing is closed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
