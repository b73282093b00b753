"""Brings a job's table to the driver as plain values, to a file, or to a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from rmqlite.kernel.words.errors import InvalidValue, StoreUnavailable
from rmqlite.spark.hadoop import disk_path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FILE_FORMATS: Final = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json"}
"""A place with such an ending is one file on this machine; any other place is a folder."""


def collected(table: DataFrame) -> list[dict[str, Any]]:
    """All rows; a timestamp becomes milliseconds since 1970, with a name that ends in _ms."""
    return [row.asDict() for row in _in_ms(table).collect()]


def utc_day(name: str) -> Column:
    """The day of a timestamp in UTC, in every time zone of the session."""
    return F.date_from_unix_date((F.floor(F.unix_millis(name) / 86_400_000)).cast("int"))


def check_place(place: str, *, master: str = "", conf: Mapping[str, str] | None = None) -> None:
    """Raises InvalidValue for a place at which write() would fail, as far as the disk shows it."""
    is_file = Path(place).suffix.lower() in FILE_FORMATS
    path = Path(place) if is_file else disk_path(place, master=master, conf=conf)
    if path is None:
        return
    if path.exists():
        rule = f"a {'file' if is_file else 'folder'} that does not exist yet"
        raise InvalidValue("output", place, rule)
    if is_file and not path.parent.is_dir():
        raise InvalidValue("output", place, "a file in a folder that exists")


def write(table: DataFrame, place: str, form: str = "") -> str:
    """Write a table, and return the place in words.  Raises InvalidValue if the file exists.

    A folder may be on any file system that Hadoop supports; the executors write it.
    """
    form_of_file = FILE_FORMATS.get(Path(place).suffix.lower())
    if form_of_file is None:
        table.write.format(form or "parquet").option("header", "true").save(place)
        return f"{place}, a folder of {form or 'parquet'}"
    check_place(place)
    path = Path(place)
    try:
        _write_file(table, path, form_of_file)
    except OSError as error:
        raise StoreUnavailable("write to", place, error.strerror or str(error)) from error
    return place


def _write_file(table: DataFrame, path: Path, form: str) -> None:
    """Write a file; it gets its name only when it is complete."""
    beside = path.with_name(path.name + ".tmp")
    try:
        if form == "json":
            lines = [json.dumps(row) + "\n" for row in collected(table)]
            beside.write_text("".join(lines), encoding="ascii")
        elif form == "csv":
            from pyarrow import csv

            csv.write_csv(table.toArrow(), beside)
        else:
            from pyarrow import parquet

            parquet.write_table(table.toArrow(), beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _in_ms(table: DataFrame) -> DataFrame:
    return table.select(
        [
            F.unix_millis(field.name).alias(f"{field.name}_ms")
            if isinstance(field.dataType, TimestampType)
            else F.col(field.name)
            for field in table.schema.fields
        ]
    )
