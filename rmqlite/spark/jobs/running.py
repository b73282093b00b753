"""Runs a job: a session, one snapshot for all its tables, and errors of rmqlite.

A wrong place is found before Spark starts, because that takes seconds.  Spark's hundred lines about
a failure become the one line that names the cause: an error of rmqlite on an executor reaches the
driver as text at the end of Python's and Java's traces, and here it becomes that error again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from rmqlite.kernel.words.errors import InvalidValue, Refused, RmqliteError, by_code, restore
from rmqlite.spark.archive import Archive, Live, LogWithArchive, check_archive
from rmqlite.spark.hadoop import disk_names, java_error, java_reason
from rmqlite.spark.reading import SourceSnapshot, looked, read_here, read_log, snapshot_of
from rmqlite.spark.session import active, is_remote, register, started
from rmqlite.spark.short_runs import is_short, short_run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rmqlite.spark.arrow.planning import Look

_OURS: Final = re.compile(r"rmqlite\.kernel\.words\.errors\.(\w+): (.+)")
_RAISED: Final = re.compile(r"^(\w+Error: .+)$", re.MULTILINE)
"""The last line of a Python trace."""
_NOISE: Final = re.compile(r"^[\w.$]+(?:Exception|Error):\s*")


class Job:
    """A session, and the snapshot of a store or a broker from which it reads all tables."""

    def __init__(
        self,
        spark: SparkSession,
        found: Look,
        *,
        path: str,
        endpoint: str,
        archive: str = "",
        is_short: bool = False,
    ) -> None:
        """archive: the place of archived log files; the store may not have them any more.

        is_short: this process reads the log.
        """
        self.spark = spark
        self._read = read_here if is_short else read_log
        self._with_archive: LogWithArchive | None = None
        self.snapshot: SourceSnapshot = snapshot_of(found)
        if archive:
            live = Live(spark, path=path, endpoint=endpoint, found=found)
            self._with_archive = LogWithArchive(Archive(spark, archive), live)
            self.snapshot = self._with_archive.snapshot
        self._path = path
        self._endpoint = endpoint

    def read(self, columns: Sequence[str], **options: object) -> DataFrame:
        """These columns of the snapshot's records.

        options: those of the format that spare work; a job itself filters again, because an
        archive is read without them.  Bodies are compared with their CRC: a job answers for them.
        """
        if self._with_archive is not None:
            return self._with_archive.read(columns)
        bounds = {
            "startingPhysicalOffset": self.snapshot.begin_offset,
            "endingPhysicalOffset": self.snapshot.end_offset,
            "verifyCrc": True,
        }
        return self._read(
            self.spark,
            path=self._path,
            endpoint=self._endpoint,
            columns=tuple(columns),
            **(bounds | options),
        )


@contextmanager
def running(
    name: str,
    *,
    path: str,
    endpoint: str,
    archive: str = "",
    master: str = "",
    conf: Mapping[str, str] | None = None,
    check: Callable[[Look], None] = lambda _: None,
) -> Iterator[Job]:
    """A job while it runs.  check: raises an error for a log that the job cannot answer for.

    Raises errors of rmqlite, never Spark's.
    """
    found = looked(path=path, endpoint=endpoint)
    if archive:
        # The archive may have what the log lacks, so an empty log or another topic is no error.
        check_archive(archive, disk_names(archive, master=master, conf=conf), found)
    else:
        check_filled(found)
        check(found)
    short = not archive and is_short(found, master=master, conf=conf or {})
    with running_session(name, master=master, conf=conf, is_short=short) as spark:
        yield Job(spark, found, path=path, endpoint=endpoint, archive=archive, is_short=short)


def check_filled(found: Look) -> None:
    """Raises InvalidValue if a store or a broker has no records."""
    if found.is_empty:
        field = "path" if found.place.root else "endpoint"
        raise InvalidValue(field, found.place.where, "a store that has messages")


@contextmanager
def running_session(
    name: str, *, master: str = "", conf: Mapping[str, str] | None = None, is_short: bool = False
) -> Iterator[SparkSession]:
    """The session of a job: the running one, else a new one that ends with the job.

    is_short: it need not have the format, because the job reads a small log by itself.
    """
    with as_ours():
        found = active()
        if found is not None:
            yield found
            return
        none: AbstractContextManager[dict[str, str]] = nullcontext({})
        with short_run(conf or {}) if is_short else none as short:
            own = short | dict(conf or {})
            spark = started(master, app_name=f"rmqlite {name}", conf=own, is_quiet=True)
            if not is_short:
                register(spark)
            if "spark.log.level" not in (conf or {}) and not is_remote(spark):
                # We report a failure once; with --conf spark.log.level=WARN Spark shows all of it.
                spark.sparkContext.setLogLevel("FATAL")
            try:
                yield spark
            finally:
                spark.stop()


@contextmanager
def as_ours() -> Iterator[None]:
    """An exception of Spark inside becomes an error of rmqlite, with Spark's as its cause."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise error_in(str(error)) from error


def error_in(text: str) -> RmqliteError:
    """The error in a text of Spark: rmqlite's, else Python's, else Spark's first line."""
    found = _OURS.findall(text)
    if found:
        name, sentence = found[-1]
        code = {cls.__name__: code for code, cls in by_code().items()}.get(name, "error")
        return restore(code, sentence.strip(), field="", value="", rule="")
    raised = _RAISED.findall(text)
    if raised:
        # Spark's first line only says that Python failed.
        return Refused(f"Spark: {raised[-1]}")
    first = java_reason(text) or "an error without a text"
    return java_error(text) or Refused(f"Spark: {_NOISE.sub('', first)}")
