"""A Celery worker as users start it, and what its tasks have written down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.celery_tasks import app
from tests.support.eventually import eventually

ROOT = Path(__file__).resolve().parent.parent.parent
STOP_S_MAX = 120


class Ran(NamedTuple):
    task: str
    number: int
    retries: int
    late_ms: int
    pid: int


class Worker:
    """process_group: of the worker and its children, which one signal reaches."""

    def __init__(self, url: str, folder: Path, *options: str) -> None:
        self._url, self._folder, self._options = url, folder, options
        self.log = folder / "worker.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "celery", "-A", "tests.support.celery_tasks", "worker"]
        environment = os.environ | {"BROKER_URL": self._url, "RAN": str(self._folder / "ran")}
        before = self.said().count(" ready.")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--loglevel=INFO", "--without-gossip", *self._options],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        eventually(lambda: self.said().count(" ready.") > before or self._has_ended(), "ready")
        assert not self._has_ended(), self.said()[-3_000:]

    def _has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def said(self) -> str:
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def kill(self) -> None:
        """SIGKILL, to its children, too."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """A warm shutdown; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired as error:
            error.add_note(self.said()[-3_000:])
            raise

    def ran(self) -> list[Ran]:
        file = self._folder / "ran"
        if not file.exists():
            return []
        lines = [line.split() for line in file.read_text("utf-8").splitlines()]
        return [Ran(task, *map(int, numbers)) for task, *numbers in lines]

    def of(self, task: str) -> list[Ran]:
        return [each for each in self.ran() if each.task == task]


@contextmanager
def worker(url: str, folder: Path, *options: str) -> Iterator[Worker]:
    running = Worker(url, folder, *options)
    running.start()
    try:
        yield running
    finally:
        if running.process is not None and running.process.poll() is None:
            running.kill()


def url_of(endpoint: str) -> str:
    return f"rmqlite://{endpoint}"


@contextmanager
def sending_to(url: str) -> Iterator[None]:
    """apply_async() and the control commands of this process call this broker."""
    app.conf.broker_url = app.conf.broker_read_url = app.conf.broker_write_url = url
    try:
        yield
    finally:
        app.close()
        app.amqp.__dict__.pop("_producer_pool", None)
