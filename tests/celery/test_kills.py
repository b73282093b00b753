"""Workers and the broker are killed while tasks wait for their time: none is lost, none is early.

--long does it with 10,000 tasks, two workers and six kills; the gate with 120, one worker and
two kills: of the worker, and of the broker.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from rmqlite.testing import broker
from tests.support.celery_tasks import late, now_ms, plain
from tests.support.celery_worker import Worker, sending_to, url_of
from tests.support.eventually import eventually

RESERVED = 4
"""Celery's own number of tasks that a worker takes at once for each of its processes."""


@pytest.mark.parametrize("pool", ["prefork", pytest.param("threads", marks=pytest.mark.long)])
def test_tasks_with_a_time_survive_kills(
    tmp_path: Path, pool: str, pytestconfig: pytest.Config
) -> None:
    """What is acknowledged late runs, perhaps twice.  What is acknowledged early may be lost, or
    run twice, if its worker was killed around its beginning, as with any broker: a worker hears of
    a beginning from its pool, and a busy one may hear late of all that it has reserved.
    """
    is_long = pytestconfig.getoption("--long")
    tasks, kills = (10_000, 6) if is_long else (120, 2)
    at_work = 2
    drawn = random.Random(47)
    with broker(tmp_path / "broker") as running, sending_to(url_of(running.endpoint)):
        options = (f"--concurrency={at_work}", f"--pool={pool}", "--hostname")
        workers = [
            Worker(url_of(running.endpoint), tmp_path, *options, f"{name}@here")
            for name in ("ab" if is_long else "a")
        ]
        for each in workers:
            each.start()
        try:
            for number in range(tasks):
                wait_ms = drawn.randrange(1_000, 6_000)
                task = late if number % 2 else plain
                task.apply_async((number, now_ms() + wait_ms), countdown=wait_ms / 1_000)
            pause = threading.Event()
            for kill in range(kills):
                pause.wait(1)
                if kill % 3 == 1:
                    running.kill()
                    running.restart()
                else:
                    killed = workers[kill % len(workers)]
                    killed.kill()
                    killed.start()
            ran = workers[0].ran

            def missing() -> set[int]:
                return set(range(tasks)) - {each.number for each in ran()}

            def is_done() -> bool:
                left = missing()
                return len(left) <= at_work * kills and not any(each % 2 for each in left)

            eventually(is_done, "all have run")
        finally:
            for each in workers:
                each.kill()
    early = [each for each in ran() if each.late_ms < 0]
    assert not early, early[:5]
    runs = Counter(each.number for each in ran() if each.task == "plain")
    twice = [number for number, count in runs.items() if count > 1]
    assert len(twice) <= len(workers) * RESERVED * at_work * kills, twice[:10]
