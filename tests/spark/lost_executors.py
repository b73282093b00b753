"""A driver whose executors write to a broker and are lost: python -m tests.spark.lost_executors.

Arguments: the broker's endpoint, a folder for marks, a master of two executors.  The task of
partition 0 kills its executor in the middle of the write.  That of the last partition is slow once:
its first attempt goes on when the second one, which speculation starts, has sent all.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import functions as F

from rmqlite.spark.session import session
from tests.spark.conftest import JAVA, QUICK, UNCHECKED

PARTITIONS = 4
ROWS = 1_000
"""Of each partition."""
BODY_BYTES = 48 << 10
"""Half of a partition is 24 MB, more than the buffers between Spark's processes hold."""
SLOW_S_MAX = 60
SETTINGS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": UNCHECKED,
    JAVA: UNCHECKED,
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    # Rows reach the sink in small batches, so that some are sent when a task ends.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
}


def main(endpoint: str, marks: str, master: str) -> None:
    spark = session(master, conf=QUICK | SETTINGS)

    def body(number: int) -> bytes:
        context, row = TaskContext.get(), number % ROWS
        assert context is not None
        part, attempt = context.partitionId(), context.attemptNumber()
        killed, speculated = Path(marks, "killed"), Path(marks, "speculated")
        if part == 0 and row == ROWS // 2 and not killed.exists():
            killed.touch()
            # Spark's Java starts a daemon of Python, which forks this worker.
            status = Path(f"/proc/{os.getppid()}/stat").read_text()
            os.kill(int(status.rpartition(")")[2].split()[1]), signal.SIGKILL)
        if part == PARTITIONS - 1 and attempt == 0 and row == ROWS // 2:
            for _ in range(SLOW_S_MAX * 10):
                if speculated.exists():
                    break
                threading.Event().wait(0.1)
        if part == PARTITIONS - 1 and attempt > 0 and row == ROWS - 1:
            speculated.touch()
        return f"{number} ".ljust(BODY_BYTES).encode()

    numbers = spark.range(0, PARTITIONS * ROWS, 1, PARTITIONS)
    rows = numbers.select(F.udf(body, "binary", useArrow=False)("id").alias("body"))
    writer = rows.write.format("rmqlite").mode("append").option("endpoint", endpoint)
    writer.options(topic="lost", jobId="lost", batchSize="20", inFlight="1").save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
