"""How fast the jobs are, over a store of messages that were scheduled, delivered, retried.

    python -m tests.benchmarks.spark_jobs --records 1000000
    python -m tests.benchmarks.spark_jobs --records 1000000 --growth

Of ten records four are plain, three are scheduled and three are their deliveries; every tenth
scheduled one is a retry.  The last second of schedules is pending.  Each figure is the best of
several runs in one session, the work itself checked; --growth adds ten times the records.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records.drafts import Draft, fresh
from rmqlite.kernel.records.record import NewRecord, destination
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.message import (
    DELAY,
    FAILURE_REASON,
    ORIGIN_MESSAGE_ID,
    REAL_QID,
    REAL_TOPIC,
    RETRY_TOPIC,
    encode_properties,
)
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from tests.benchmarks.spark_read import HOSTS, STORE_HOST, best_s, run
from tests.support.clock import FakeClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LEVELS: Final = 3
STEP_RECORDS: Final = 1_000
STEP_MS: Final = 10
WAITS: Final = 300
"""Scheduled in a step, and delivered in a later one."""


def message(number: int, *, is_scheduled: bool) -> NewRecord:
    """About 330 bytes with its header."""
    topic, queue_id = f"topic-{number % 10:02d}", number // 10 % 4
    level = 1 + number % LEVELS
    times = number // 10 % 3 + 1 if is_scheduled and number % 10 == 7 else 0
    pairs = {
        "colour": "green",
        "KEYS": f"order-{number}",
        "UNIQ_KEY": f"7F0000010D5C18B4AAC2{number:012X}",
        "TAGS": f"tag-{number % 5}",
    }
    if times:
        pairs |= {RETRY_TOPIC: topic, ORIGIN_MESSAGE_ID: f"{number:032X}"}
        pairs |= {FAILURE_REASON: f"reason {number % 7}"}
        topic, queue_id = "%RETRY%workers", 0
    if is_scheduled:
        pairs |= {DELAY: str(level), REAL_TOPIC: topic, REAL_QID: str(queue_id)}
        topic, queue_id = SCHEDULE_TOPIC, level - 1
    body = b'{"order": "%020d", "lines": [{"article": "chair", "amount": 4}]}' % number
    host = HOSTS[number % len(HOSTS)]
    draft = Draft(
        topic,
        queue_id,
        encode_properties(pairs),
        body,
        born_timestamp_ms=1_700_000_000_000,
        born_host=host,
        reconsume_times=times,
    )
    return fresh(draft, STORE_HOST)


def delivery(scheduled: NewRecord, completes: int) -> NewRecord:
    target = destination(scheduled.properties)
    assert target is not None
    return scheduled._replace(topic=target[0], queue_id=target[1], completes=completes)


def write_store(root: Path, count: int) -> None:
    """Steps of a thousand records, ten milliseconds apart; each delivers what is due."""
    clock = FakeClock()
    levels = " ".join(f"{1 + n}s" for n in range(LEVELS))
    config = BrokerConfig(store_path=root, message_delay_level=levels)
    store = MessageStore(config, SystemFiles(), clock)
    waiting: list[deque[tuple[int, NewRecord]]] = [deque() for _ in range(LEVELS)]
    number = 0
    while number < count:
        now_ms = clock.now_ms()
        due = []
        for level, mine in enumerate(waiting, 1):
            while mine and mine[0][0] <= now_ms - 1_000 * level:
                due.append(mine.popleft()[1])
        scheduled = [message(number + n, is_scheduled=True) for n in range(WAITS)]
        plain = STEP_RECORDS - WAITS - len(due)
        others = [message(number + WAITS + n, is_scheduled=False) for n in range(plain)]
        written = store.append(scheduled + due + others)
        for record, at in zip(scheduled, written[:WAITS], strict=True):
            end = at.physical_offset + at.size
            waiting[record.queue_id].append((at.store_timestamp_ms, delivery(record, end)))
        number += STEP_RECORDS
        clock.forward(STEP_MS)
    job = store.begin_sync()
    job.run()
    store.synced(job)
    store.close({})


def jobs(spark: SparkSession, root: Path) -> dict[str, Callable[[], Any]]:
    from rmqlite.spark.jobs import forecast, lateness, reconcile, retries
    from rmqlite.spark.reading import read_log, snapshot

    seen = snapshot(path=str(root))

    def read(columns: Sequence[str]) -> DataFrame:
        return read_log(spark, path=str(root), columns=columns)

    def audited() -> None:
        found = reconcile.audit(read, now_ms=seen.newest_timestamp_ms)
        assert found.held, found.rows
        assert found.total("delivered")

    def late() -> None:
        counts = lateness.log_counts(read, now_ms=seen.newest_timestamp_ms)
        assert lateness.lateness(counts).collect()
        counts.unpersist()

    def retried() -> None:
        messages = retries.messages(retries.failures(read(retries.COLUMNS)))
        assert retries.funnel(messages).collect()

    def ahead() -> None:
        table = forecast.log_forecast(read, now_ms=seen.newest_timestamp_ms)
        assert table.collect()
        table.unpersist()

    return {"reconcile": audited, "lateness": late, "retries": retried, "forecast": ahead}


def measured(count: int, master: str, runs: int) -> dict[str, float]:
    from rmqlite.spark.session import session

    quiet = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
    spark = session(master, conf=quiet)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        write_store(root, count)
        for name, work in jobs(spark, root).items():
            work()
            found[name] = best_s(work, runs)
    return found


if __name__ == "__main__":
    run(measured, __doc__)
