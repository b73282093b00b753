"""The CPU that Spark takes to read a store, against Parquet, and which process takes it.

    python -m tests.benchmarks.spark_cpu --records 5000000

CPU counts all processes: this one, Java by the names of its threads, and Python's workers.  The
Parquet files have the same records with nine columns, of which five are read, too.  Each figure
is the best of several rounds in one process.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.spark.arrow.planning import look_at_store
from rmqlite.spark.reading import read_log, read_log_by_topic
from tests.benchmarks.spark_read import FIVE, write_store

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

TICKS: Final = os.sysconf("SC_CLK_TCK")
THREADS: Final = {
    "Compiler": "Java's compilers",
    "Executor task": "Java's tasks",
    "GC": "Java's collector",
    "G1": "Java's collector",
}
TOPIC: Final = "topic-03"
ROWS: Final = 12_000
"""In a batch, as a window of the log with records of 346 bytes gives."""


def fields_of(stat: Path) -> tuple[str, list[str]]:
    """The name and the fields behind it of a process or thread; none if it has ended."""
    try:
        text = stat.read_text()
    except OSError:
        return "", []
    return text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()


Spent = dict[tuple[int, int], tuple[str, int]]
"""(process, thread or 0) -> what it is, and its ticks of CPU so far."""


def spent() -> Spent:
    """Of this process and all that it started; of Java also each thread."""
    names, children = {}, defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        name, fields = fields_of(folder / "stat")
        if fields:
            names[int(folder.name)] = name, sum(map(int, fields[11:13]))
            children[int(fields[1])].append(int(folder.name))
    found: Spent = {}
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        waiting += children[pid]
        name, ticks = names[pid]
        is_java = name.startswith("java")
        is_ours = pid == os.getpid()
        what = "Java" if is_java else "the driver's Python" if is_ours else "Python's workers"
        found[pid, 0] = what, ticks
        for thread in Path(f"/proc/{pid}/task").iterdir() if is_java else ():
            name, fields = fields_of(thread / "stat")
            part = next((THREADS[each] for each in THREADS if each in name), "")
            if part:
                found[pid, int(thread.name)] = part, sum(map(int, fields[11:13]))
    return found


def between(before: Spent, after: Spent) -> dict[str, float]:
    """CPU seconds by part; a process that ended meanwhile was at rest, and counts as nothing."""
    found: dict[str, float] = defaultdict(float)
    for (pid, thread), (what, ticks) in after.items():
        took_s = (ticks - before.get((pid, thread), ("", 0))[1]) / TICKS
        found[what] += took_s
        if thread:
            found["Java"] -= took_s
    return found


def measured(name: str, work: Callable[[], Any], count: int, rounds: int) -> float:
    """Print the round with the least CPU; returns its microseconds for a record."""
    work()
    best: dict[str, float] = {}
    wall_s = 0.0
    for _ in range(rounds):
        before, began_s = spent(), elapsed_s()
        work()
        took_s = elapsed_s() - began_s
        found = between(before, spent())
        if not best or sum(found.values()) < sum(best.values()):
            best, wall_s = found, took_s
    cpu_us = sum(best.values()) / count * 1e6
    parts = ", ".join(f"{part} {s / count * 1e6:.2f}" for part, s in best.items() if s > 0.02)
    print(f"{name:34} {cpu_us:6.2f} us CPU a record, {wall_s:6.2f} s: {parts}", flush=True)
    return cpu_us


def sends_only(count: int, partitions: int) -> type[DataSource]:
    """A source that decodes nothing: one batch again and again, with the five columns.

    What it costs is Spark's own work for any source in Python; no decoder can be below it.
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Sender(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(each) for each in range(partitions)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            import numpy as np
            import pyarrow as pa

            del partition
            numbers = np.arange(ROWS)
            batch = pa.RecordBatch.from_arrays(
                [
                    pa.array([f"topic-{number % 16:02d}" for number in numbers]),
                    pa.array(numbers % 8, pa.int32()),
                    pa.array(numbers, pa.int64()),
                    pa.array(numbers * 1_000, pa.int64()).view(pa.timestamp("us", "UTC")),
                    pa.array(np.full(ROWS, 300), pa.int32()),
                ],
                [*FIVE],
            )
            for _ in range(count // partitions // ROWS):
                yield batch

    class OnlySends(DataSource):
        @classmethod
        def name(cls) -> str:
            return "only_sends"

        def schema(self) -> str:
            return (
                "topic string, queue_id int, queue_offset long, store_timestamp timestamp,"
                " store_size int"
            )

        def reader(self, schema: Any) -> DataSourceReader:
            del schema
            return Sender()

    return OnlySends


def through_spark(root: Path, parquet: str, count: int, rounds: int, master: str) -> None:
    from pyspark.sql import functions as F

    from rmqlite.spark.session import session

    quiet = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
    spark = session(master, conf=quiet)
    path = str(root)
    spark.dataSource.register(sends_only(count, partitions=9))
    more = (*FIVE, "body", "keys", "tags", "unique_key")
    read_log(spark, path=path, columns=more).write.mode("overwrite").parquet(parquet)
    tables: dict[str, Callable[[], Any]] = {
        "a store": lambda: read_log(spark, path=path, columns=FIVE),
        "Parquet": lambda: spark.read.parquet(parquet).select(*FIVE),
        "no decoding, only sending": lambda: spark.read.format("only_sends").load(),
        f"where topic = '{TOPIC}'": lambda: read_log(spark, path=path, columns=FIVE).where(
            F.col("topic") == TOPIC
        ),
        "the same, read by topic": lambda: read_log_by_topic(
            spark, (TOPIC,), path=path, columns=FIVE
        ).where(F.col("topic") == TOPIC),
        "the option topic": lambda: read_log(spark, path=path, columns=FIVE, topic=TOPIC),
    }
    figures = {}
    for name, table in tables.items():

        def work(table: Callable[[], Any] = table) -> None:
            sums = [F.count("*"), *(F.max(each) for each in FIVE[2:4]), F.sum("store_size")]
            table().groupBy("topic", "queue_id").agg(*sums).collect()

        figures[name] = measured(name, work, count, rounds)
    for name in ("a store", "no decoding, only sending"):
        print(f"{name} to Parquet: {figures[name] / figures['Parquet']:.2f} times")
    spark.stop()


def plans(root: Path) -> None:
    """A look at a store whose tables do not say where its log ends; every plan walks the log."""
    for table in (root / "config").glob("storeProgress.json*"):
        table.unlink()
    began_s = time.process_time()
    look_at_store(str(root))
    took_s = time.process_time() - began_s
    print(f"a look at a store without its table: {took_s:.3f} s CPU")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--store", type=Path, help="a store with so many records, of write_store()")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = told.store or Path(folder) / "store"
        if told.store is None:
            write_store(root, told.records)
        through_spark(root, f"{folder}/parquet", told.records, told.rounds, told.master)
        shutil.copytree(root, copied := Path(folder) / "copy")
        plans(copied)


if __name__ == "__main__":
    main()
