"""A Spark driver that streams into Parquet until it is killed: python -m tests.spark.stream_driver.

Arguments: path or endpoint, its value, the checkpoint's folder, the sink's folder.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rmqlite.spark.data_source_api import HAS_READ_LIMITS
from rmqlite.spark.jobs.running import short_run
from rmqlite.spark.session import session
from rmqlite.spark.streaming import INITIAL_OFFSETS, read_stream
from tests.spark.conftest import driver_settings

COLUMNS = ("topic", "queue_id", "queue_offset", "keys")


def limit(rows: int) -> dict[str, Any]:
    """The option for the rows of a batch, if this Spark has it."""
    return {"maxOffsetsPerTrigger": rows} if HAS_READ_LIMITS else {}


def beginning(checkpoint: Path) -> Any:
    """Where a stream of read_stream() began."""
    (file,) = (checkpoint / INITIAL_OFFSETS).glob("part-*")
    return json.loads(file.read_text())


def main(kind: str, where: str, checkpoint: str, sink: str) -> None:
    with short_run({}) as settings:
        spark = session("local[2]", conf=driver_settings(settings))
    stream = read_stream(
        spark,
        checkpoint=checkpoint,
        columns=COLUMNS,
        topicPattern="orders*",
        startingOffsets="latest",
        **{kind: where},
        **limit(1_000),
    )
    writer = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    writer.option("path", sink).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
