"""The format "rmqlite" as Spark calls it; every method only forwards to plain functions.

The driver plans a load once, and any executor reads a partition of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rmqlite.extras import check_extra
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.spark.arrow.columns import (
    BYTES,
    INT,
    LONG,
    PROPERTIES,
    TEXT,
    TIME,
    ArrowColumn,
    columns_named,
    columns_of,
)
from rmqlite.spark.arrow.partitions import ReadOptions
from rmqlite.spark.options import parse_options, with_credentials
from rmqlite.spark.partitions import plan, read_partition
from rmqlite.spark.sink.rows import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqlite.spark.sink.sink import BulkStreamWriter, BulkWriter
    from rmqlite.spark.stream.stream import RmqliteStreamReader


class RmqliteDataSource(DataSource):
    """A store directory (path) or a broker (endpoint)."""

    def __init__(self, options: dict[str, str]) -> None:
        """Raises ExtraMissing."""
        super().__init__(options)
        check_extra("arrow")

    @classmethod
    def name(cls) -> str:
        return "rmqlite"

    def schema(self) -> StructType:
        return spark_schema(columns_named(self.options.get("columns", "")))

    def reader(self, schema: StructType) -> LogReader:
        return LogReader(with_credentials(parse_options(self.options)), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BulkWriter:
        from rmqlite.spark.sink.sink import BulkWriter

        options = with_credentials(SinkOptions.parse(self.options))
        return BulkWriter(options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> BulkStreamWriter:
        from rmqlite.spark.sink.sink import BulkStreamWriter

        options = with_credentials(SinkOptions.parse(self.options))
        return BulkStreamWriter(options, schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> RmqliteStreamReader:
        from rmqlite.spark.stream.stream import RmqliteStreamReader

        options = with_credentials(parse_options(self.options))
        return RmqliteStreamReader(options, checked_columns(schema))


def spark_schema(columns: Sequence[ArrowColumn]) -> StructType:
    """The columns as a schema of Spark, all nullable.  It needs no session."""
    from pyspark.sql import types

    kinds: dict[str, Any] = {
        TEXT: types.StringType(),
        INT: types.IntegerType(),
        LONG: types.LongType(),
        TIME: types.TimestampType(),
        BYTES: types.BinaryType(),
        PROPERTIES: types.MapType(types.StringType(), types.StringType()),
    }
    return types.StructType([types.StructField(c.name, kinds[c.type]) for c in columns])


class LogReader(DataSourceReader):
    """Reads a snapshot of a store or a broker."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises InvalidValue if the schema has a column that this format does not have."""
        self._options = options
        self._columns = checked_columns(schema)

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(each) for each in plan(self._options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; for a load without partitions Spark passes None."""
        wanted = None if partition is None else partition.value
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
