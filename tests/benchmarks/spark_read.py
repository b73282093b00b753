"""How fast a store is read: the decoder alone, and through Spark.

    python -m tests.benchmarks.spark_read --records 1000000
    python -m tests.benchmarks.spark_read --records 1000000 --growth

Writes a store through rmqlite's own MessageStore into a temporary folder: ten topics of four
queues; a fifth of the messages was scheduled, so that there are deliveries, too.  Each figure
is the best of several runs in one process; --growth adds ten times the records, and ratios.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records.drafts import Draft, fresh
from rmqlite.kernel.records.record import NewRecord
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.clock import SystemClock, elapsed_s
from rmqlite.kernel.words.message import DELAY, REAL_QID, REAL_TOPIC, encode_properties, pack_host
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from rmqlite.spark.arrow.columns import COLUMNS, DEFAULT_NAMES
from rmqlite.spark.options import parse_options
from rmqlite.spark.partitions import plan, read_partition

FIVE: Final = ("topic", "queue_id", "queue_offset", "store_timestamp", "store_size")
EVERY: Final = tuple(column.name for column in COLUMNS)
BATCH: Final = 1_000
HOSTS: Final = [pack_host(f"10.0.0.{n % 250}:{40_000 + n}") for n in range(50)]
STORE_HOST: Final = pack_host("10.0.1.1:10911")


def records(count: int, scheduled: deque[int]) -> Iterator[NewRecord]:
    """Messages of about 330 bytes; every tenth is scheduled, every tenth is a delivery.

    scheduled: the ends of scheduled records that are not delivered yet, a batch before.
    """
    body = b'{"order": "%020d", "lines": [{"article": "chair", "amount": 4}], "note": "%s"}'
    for number in range(count):
        topic, queue_id = f"topic-{number % 10:02d}", number // 10 % 4
        # A delivery is of the record that was scheduled a batch before.
        delayed = {8: number, 9: number - 1 - BATCH}.get(number % 10)
        level = 0 if delayed is None else 1 + delayed // 10 % 18
        pairs = {
            "colour": "green",
            "KEYS": f"order-{number}",
            "UNIQ_KEY": f"7F0000010D5C18B4AAC2{number:012X}",
            "TAGS": f"tag-{number % 5}",
        }
        if level:
            pairs |= {DELAY: str(level), REAL_TOPIC: topic, REAL_QID: str(queue_id)}
        filled = body % (number, b"x" * 64)
        where = (SCHEDULE_TOPIC, level - 1) if number % 10 == 8 else (topic, queue_id)
        draft = Draft(
            where[0],
            where[1],
            encode_properties(pairs),
            filled,
            born_timestamp_ms=1_763_700_000_000 + number,
            born_host=HOSTS[number % 50],
        )
        is_delivery = number % 10 == 9 and bool(scheduled)
        yield fresh(draft, STORE_HOST, completes=scheduled.popleft() if is_delivery else 0)


def write_store(root: Path, count: int) -> None:
    store = MessageStore(BrokerConfig(store_path=root), SystemFiles(), SystemClock())
    scheduled: deque[int] = deque()
    made = records(count, scheduled)
    while batch := list(islice(made, BATCH)):
        for new, written in zip(batch, store.append(batch), strict=True):
            if new.topic == SCHEDULE_TOPIC:
                scheduled.append(written.physical_offset + written.size)
    job = store.begin_sync()
    job.run()
    store.synced(job)
    store.close({})


def best_s(work: Callable[[], Any], runs: int) -> float:
    took = []
    for _ in range(runs):
        started_s = elapsed_s()
        work()
        took.append(elapsed_s() - started_s)
    return min(took)


def decoded(root: Path, columns: tuple[str, ...]) -> int:
    options = parse_options({"path": str(root)})
    return sum(
        batch.num_rows
        for partition in plan(options)
        for batch in read_partition(partition, options, columns)
    )


def through_spark(root: Path, master: str) -> dict[str, Callable[[], Any]]:
    from pyspark.sql import functions as F

    from rmqlite.spark.reading import read_log
    from rmqlite.spark.session import session

    quiet = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
    spark = session(master, conf=quiet)
    without_map = tuple(name for name in EVERY if name != "properties")

    def read(columns: tuple[str, ...]) -> Any:
        return read_log(spark, path=str(root), columns=columns)

    def aggregated(columns: tuple[str, ...]) -> Callable[[], Any]:
        return lambda: (
            read(columns)
            .groupBy("topic", "queue_id")
            .agg(F.count("*"), F.max("queue_offset"), F.sum("store_size"))
            .collect()
        )

    def kept(columns: tuple[str, ...]) -> Callable[[], Any]:
        return lambda: read(columns).write.format("noop").mode("overwrite").save()

    def parquet(columns: tuple[str, ...]) -> Callable[[], Any]:
        place = str(root.parent / "parquet")
        return lambda: read(columns).write.mode("overwrite").parquet(place)

    return {
        "aggregation over 5 columns": aggregated(FIVE),
        "default columns, kept nowhere": kept(DEFAULT_NAMES),
        "all columns but the map, kept nowhere": kept(without_map),
        "all columns, kept nowhere": kept(EVERY),
        "default columns to Parquet": parquet(DEFAULT_NAMES),
        "all columns but the map to Parquet": parquet(without_map),
    }


def measured(count: int, master: str, runs: int) -> dict[str, float]:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        found["write the store"] = best_s(lambda: write_store(root, count), 1)
        for name, columns in (
            ("decode 5 columns, one process", FIVE),
            ("decode default columns", DEFAULT_NAMES),
            ("decode all columns but the map", EVERY[:-1]),
            ("decode all columns", EVERY),
        ):
            assert decoded(root, columns) == count
            found[name] = best_s(partial(decoded, root, columns), runs)
        for name, work in through_spark(root, master).items() if master else ():
            work()
            found[name] = best_s(work, runs)
    return found


def run(measured: Callable[[int, str, int], dict[str, float]], description: str | None) -> None:
    """Print what measured(records, master, runs) has found, in seconds, as the options say."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument(
        "--master", default="local[2]", help="empty: the decoder alone, where it can be"
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--growth", action="store_true", help="ten times the records, too")
    told = parser.parse_args()
    once = measured(told.records, told.master, told.runs)
    many = measured(told.records * 10, told.master, told.runs) if told.growth else {}
    for name, took_s in once.items():
        more = f"{many[name]:9.2f} s  {many[name] / took_s:5.1f} times" if many else ""
        print(f"{name:40} {took_s:7.2f} s  {told.records / took_s / 1e6:6.2f} M/s  {more}")


if __name__ == "__main__":
    run(measured, __doc__)
