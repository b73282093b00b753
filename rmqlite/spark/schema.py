"""The columns of records as a schema of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rmqlite.arrow.columns import BYTES, INT, LONG, PROPERTIES, TEXT, TIME, Column

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def spark_schema(columns: Sequence[Column]) -> StructType:
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
