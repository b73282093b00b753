"""The format "rmqlite" as Spark calls it; every method only forwards to plain functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from rmqlite.arrow.columns import columns_named
from rmqlite.extras import check_extra
from rmqlite.spark.schema import spark_schema

if TYPE_CHECKING:
    from rmqlite.spark.batch import LogReader
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
        from rmqlite.spark.batch import LogReader
        from rmqlite.spark.credentials import with_credentials
        from rmqlite.spark.options import parse_options

        return LogReader(with_credentials(parse_options(self.options)), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BulkWriter:
        from rmqlite.spark.credentials import with_credentials
        from rmqlite.spark.sink.options import SinkOptions
        from rmqlite.spark.sink.sink import BulkWriter

        options = with_credentials(SinkOptions.parse(self.options))
        return BulkWriter(options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> BulkStreamWriter:
        from rmqlite.spark.credentials import with_credentials
        from rmqlite.spark.sink.options import SinkOptions
        from rmqlite.spark.sink.sink import BulkStreamWriter

        options = with_credentials(SinkOptions.parse(self.options))
        return BulkStreamWriter(options, schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> RmqliteStreamReader:
        from rmqlite.spark.batch import checked_columns
        from rmqlite.spark.credentials import with_credentials
        from rmqlite.spark.options import parse_options
        from rmqlite.spark.stream.stream import RmqliteStreamReader

        options = with_credentials(parse_options(self.options))
        return RmqliteStreamReader(options, checked_columns(schema))
