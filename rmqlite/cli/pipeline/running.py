"""A job from its command line to its end: the session, the snapshot, the table, the errors.

Whatever Spark says of a failure on a hundred lines is one line here.  Progress and what was
read are told beside the output, so that the output is the result and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmqlite.cli.options import refuse
from rmqlite.cli.pipeline.options import TableFormat
from rmqlite.cli.terminal import note

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rmqlite.spark.reading import SourceSnapshot

PROMISE_BROKEN: Final = 4
"""The exit code when a job found that a promise of the broker's was broken."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a job reads: a store's folder or a broker, never both."""

    path: str
    endpoint: str

    def __post_init__(self) -> None:
        if not self.path and not self.endpoint:
            refuse("--path", "", "a store's folder, or --endpoint HOST:PORT for a broker")
        if self.path and self.endpoint:
            refuse("--endpoint", self.endpoint, "either --path or --endpoint")


class Job:
    """A session, and a snapshot of a source that all its tables are read from."""

    def __init__(self, spark: SparkSession, source: Source) -> None:
        from rmqlite.spark.reading import snapshot

        self.spark = spark
        self.source = source
        self.snapshot: SourceSnapshot = snapshot(path=source.path, endpoint=source.endpoint)

    def read(self, columns: Sequence[str], **options: object) -> DataFrame:
        """These columns of the snapshot's records; options are those of the format."""
        from rmqlite.spark.reading import read_log

        bounds = {
            "startingPhysicalOffset": self.snapshot.begin_offset,
            "endingPhysicalOffset": self.snapshot.end_offset,
        }
        return read_log(
            self.spark,
            path=self.source.path,
            endpoint=self.source.endpoint,
            columns=tuple(columns),
            **(bounds | options),
        )

    def write(self, table: DataFrame, output: str, form: TableFormat | None) -> None:
        """Write a table where --output says; nothing if it says nothing."""
        from rmqlite.spark.tables import write

        if output:
            note(f"wrote {write(table, output, form.value if form else '')}")


@contextmanager
def running(
    name: str, source: Source, *, master: str = "", conf: Sequence[str] | None = None
) -> Iterator[Job]:
    """A job while it runs; says what it reads.  Raises what rmqlite raises, never Spark's."""
    from rmqlite.spark.failure import as_ours

    with as_ours(), _session(name, master, settings(conf or ())) as spark:
        job = Job(spark, source)
        note(f"reads {job.snapshot.text}")
        yield job


@contextmanager
def session_only(
    name: str, *, master: str = "", conf: Sequence[str] | None = None
) -> Iterator[SparkSession]:
    """A session for a job that reads neither a store nor a broker."""
    from rmqlite.spark.failure import as_ours

    with as_ours(), _session(name, master, settings(conf or ())) as spark:
        yield spark


def settings(conf: Sequence[str]) -> dict[str, str]:
    """What --conf says, each KEY=VALUE."""
    found = {}
    for each in conf:
        key, equals, value = each.partition("=")
        if not equals or not key.strip():
            refuse("--conf", each, "KEY=VALUE, such as spark.executor.memory=4g")
        found[key.strip()] = value.strip()
    return found


def check_output(output: str, form: TableFormat | None) -> None:
    """End the command, before Spark starts, if that place cannot be one for a table."""
    from rmqlite.spark.tables import FILE_FORMATS

    named = FILE_FORMATS.get(output[output.rfind(".") :]) if "." in output else None
    if named and form and named != form.value:
        refuse("--format", form.value, f"{named}, as --output {output} says")


@contextmanager
def _session(name: str, master: str, conf: dict[str, str]) -> Iterator[SparkSession]:
    from rmqlite.spark.session import active, session

    running_already = active()
    if running_already is not None:
        yield running_already
        return
    own = {
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        # What fails is told once, by us; --conf spark.log.level=WARN shows all of it.
        "spark.log.level": "FATAL",
    }
    spark = session(master, app_name=f"rmqlite {name}", conf=own | conf)
    try:
        yield spark
    finally:
        spark.stop()
