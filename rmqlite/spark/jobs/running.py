"""Runs a job: a session, one snapshot for all its tables, and errors of rmqlite.

A wrong place is found before Spark starts, because that takes seconds.  Spark's hundred lines about
a failure become the one line that names the cause: an error of rmqlite on an executor reaches the
driver as text at the end of Python's and Java's traces, and here it becomes that error again.

A job over a small log starts soon, because most of its time would be the start of Spark: its Java
compiles little, collects garbage in one thread and maps its classes from an archive, which the
first job on a machine makes.  Its plans are interpreted, because compiling them costs more than a
few rows.  This process reads the log itself: no Python worker starts.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmqlite import __version__
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import InvalidValue, Refused, RmqliteError, by_code, restore
from rmqlite.spark.archive import Archive, Live, LogWithArchive, check_archive
from rmqlite.spark.hadoop import disk_names, java_error, java_reason
from rmqlite.spark.reading import SourceSnapshot, looked, read_here, read_log, snapshot_of
from rmqlite.spark.session import active, is_on_disk, is_remote, java_home, register, started

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rmqlite.spark.arrow.planning import Look


LOG_BYTES_MAX: Final = 64 << 20
"""The bytes of a small log: some hundred thousand records."""
ARCHIVES_MAX: Final = 3
"""The class archives that are kept; each has about 170 MB."""
ROOM_BYTES_MIN: Final = 1 << 30
"""With less free space, no class archive is made."""
_MAKING_S_MAX: Final = 60
"""A class archive that is older and not complete was left by a killed process."""
_JAVA: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# Otherwise Java says on standard output why it does not take an archive.
_SILENT: Final = "-Xlog:disable"
_SETTINGS: Final = {
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    # Before the first text is made lower case, it would look up every character there is: seconds.
    "spark.sql.icu.caseMappings.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.showConsoleProgress": "false",
}
_OURS: Final = re.compile(r"rmqlite\.kernel\.words\.errors\.(\w+): (.+)")
_RAISED: Final = re.compile(r"^(\w+Error: .+)$", re.MULTILINE)
"""The last line of a Python trace."""
_NOISE: Final = re.compile(r"^[\w.$]+(?:Exception|Error):\s*")


def is_short(found: Look, *, master: str, conf: Mapping[str, str]) -> bool:
    """Is this a job over a small log, in this process?"""
    return found.place.end - found.place.begin <= LOG_BYTES_MAX and is_on_disk(master, conf)


@contextmanager
def short_run(conf: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Spark's settings for such a job while it runs.  Its Java lives until this process ends.

    conf: the user's settings of Spark, who may have chosen Java's options.  Raises ExtraMissing.
    """
    settings, making = dict(_SETTINGS), None
    if not any(key.startswith("spark.driver.") for key in conf):
        options, making = _class_options()
        settings["spark.driver.defaultJavaOptions"] = f"{_JAVA}{options}"
    try:
        yield settings
    except BaseException:
        if making is not None:
            _failed(making).touch()
        raise


def _class_options() -> tuple[str, Path | None]:
    """Java's options to map the class archive, or to make it when it ends: then also its path."""
    try:
        archive = _class_archive(_cache_folder())
        if _failed(archive).exists():
            archive.unlink(missing_ok=True)
            _failed(archive).unlink()
        if is_complete(archive):
            archive.touch()
            return f' "-XX:SharedArchiveFile={archive}" {_SILENT}', None
        if archive.exists() and wall_ms() / 1000 - archive.stat().st_mtime < _MAKING_S_MAX:
            return "", None
        archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if shutil.disk_usage(archive.parent).free < ROOM_BYTES_MIN:
            return "", None
        kept = sorted(archive.parent.glob("*.jsa"), key=lambda each: each.stat().st_mtime)
        for old in kept[: 1 - ARCHIVES_MAX]:
            old.unlink()
    except (OSError, RuntimeError):
        # No home, or a folder that nobody may write: the job runs without an archive.
        return "", None
    return f' "-XX:ArchiveClassesAtExit={archive}" {_SILENT}', archive


def _cache_folder() -> Path:
    """Where files are that only save time."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if home else Path.home() / ".cache") / "rmqlite"


def _failed(archive: Path) -> Path:
    """This file says that the archive lacks the classes of the second half of a job."""
    return archive.with_suffix(".failed")


def _class_archive(folder: Path) -> Path:
    """The archive for this Java and this Spark: Java refuses that of another one."""
    import pyspark

    home = java_home()
    java = Path(f"{home}/bin/java" if home else shutil.which("java") or "").resolve()
    spark = os.environ.get("SPARK_HOME") or pyspark.__path__[0]
    parts = (java, java.stat().st_mtime_ns, spark, pyspark.__version__, __version__)
    name = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    return folder / f"spark-{pyspark.__version__}-{name}.jsa"


def is_complete(archive: Path) -> bool:
    """Java writes the header, which is not zero, when all else is in the file."""
    try:
        with archive.open("rb") as file:
            return file.read(4) not in (b"", bytes(4))
    except FileNotFoundError:
        return False


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
