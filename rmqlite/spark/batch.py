"""The batch reader as Spark calls it: the driver plans once per load, any executor reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rmqlite.arrow.columns import columns_of
from rmqlite.arrow.options import ReadOptions
from rmqlite.arrow.partitions import Partition
from rmqlite.errors import InvalidValue
from rmqlite.spark.partitions import plan, read_partition
from rmqlite.spark.schema import spark_schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class Task(InputPartition):
    """A partition on its way to an executor."""

    partition: Partition

    def __init__(self, partition: Partition) -> None:
        super().__init__(partition)
        self.partition = partition


class LogReader(DataSourceReader):
    """Reads a snapshot of a store or a broker."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises InvalidValue if the schema has a column that this format does not have."""
        self._options = options
        self._columns = checked_columns(schema)

    def partitions(self) -> Sequence[InputPartition]:
        return [Task(each) for each in plan(self._options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; for a load without partitions Spark passes None."""
        wanted = partition.partition if isinstance(partition, Task) else None
        return read_partition(wanted, self._options, self._columns)


def checked_columns(schema: StructType) -> tuple[str, ...]:
    """The names of a schema's columns.  Raises InvalidValue for a wrong name or type."""
    names = tuple(schema.fieldNames())
    for known, asked in zip(spark_schema(columns_of(names)), schema, strict=True):
        if known.dataType != asked.dataType:
            wanted = known.dataType.simpleString()
            raise InvalidValue(
                "schema", f"{asked.name} {asked.dataType.simpleString()}", f"{known.name} {wanted}"
            )
    return names
