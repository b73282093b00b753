"""The format "rmqlite" as Spark calls it; every method only forwards to plain functions."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from rmqlite.spark.schema import columns_named, spark_schema


class RmqliteDataSource(DataSource):
    """A store directory (path) or a broker (endpoint)."""

    @classmethod
    def name(cls) -> str:
        return "rmqlite"

    def schema(self) -> StructType:
        return spark_schema(columns_named(self.options.get("columns", "")))
