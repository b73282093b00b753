"""Tasks that write down when they ran; a worker is started with -A tests.support.celery_tasks.

The file that RAN names gets a line for each run: the task, its argument, how often it was retried,
milliseconds after it was due, and the process.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from celery import Celery, Task

import rmqlite.celery as rmqlite_celery

assert rmqlite_celery.REQUEST

app = Celery("shop", broker=os.environ.get("BROKER_URL", "rmqlite://127.0.0.1:8081"))
app.conf.update(
    task_ignore_result=True,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    task_routes={f"{__name__}.urgent": {"queue": "urgent.mail"}},
    broker_transport_options={"visibility_timeout": 10},
)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _note(task: Task, number: int, due_ms: int = 0) -> None:
    late_ms = now_ms() - due_ms if due_ms else 0
    line = f"{task.name.rpartition('.')[2]} {number} {task.request.retries} {late_ms} {os.getpid()}"
    with Path(os.environ["RAN"]).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


@app.task(bind=True)
def plain(self: Any, number: int, due_ms: int = 0) -> None:
    _note(self, number, due_ms)


@app.task(bind=True)
def urgent(self: Any, number: int) -> None:
    _note(self, number)


@app.task(bind=True)
def nested(self: Any, number: int) -> None:
    _note(self, number)
    plain.delay(number)


@app.task(bind=True, max_retries=2)
def repeated(self: Any, number: int) -> None:
    _note(self, number, getattr(self.request, "due_ms", 0))
    raise self.retry(countdown=1)


@app.task(bind=True, acks_late=True, acks_on_failure_or_timeout=False)
def broken(self: Any, number: int) -> None:
    _note(self, number)
    raise ValueError(f"no stock for order {number}")


@app.task(bind=True, acks_late=True, reject_on_worker_lost=True)
def late(self: Any, number: int, due_ms: int = 0) -> None:
    _note(self, number, due_ms)
    threading.Event().wait(0.02)


@app.task(bind=True, acks_late=True, reject_on_worker_lost=True)
def deadly(self: Any, number: int) -> None:
    _note(self, number)
    if not self.request.delivery_info["redelivered"]:
        os.kill(os.getpid(), signal.SIGKILL)
