"""A sink of the tests that takes a stream's batches into memory, and a run of a stream into it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rmqlite.spark.data_source_api import HAS_READ_LIMITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Rows = list[tuple[str, int, int]]


class Sink:
    """Takes batches; of the one that is to fail it takes the rows and raises."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, Rows]] = []
        self.fails = False

    def __call__(self, batch: DataFrame, number: int) -> None:
        self.batches.append((number, sorted(tuple(row) for row in batch.collect())))
        if self.fails:
            raise RuntimeError("the sink is full")

    def rows(self) -> Rows:
        return sorted(row for _, rows in self.batches for row in rows)


def run(stream: DataFrame, checkpoint: Path, sink: Sink) -> Exception | None:
    """All there is now; the error that ended it."""
    writer = stream.writeStream.foreachBatch(sink).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(checkpoint))
    # Before 4.2 a run that repeats a batch ends with it.
    for _ in range(1 if HAS_READ_LIMITS else 2):
        try:
            assert writer.start().awaitTermination(600)
        except Exception as error:
            return error
    return None
