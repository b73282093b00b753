"""A folder on any file system that Hadoop supports: a disk, HDFS, an object store.

Spark reads and writes its files, so a place has the same spelling as for Spark, and needs no
other configuration.  What is not complete has no name that is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F

from rmqlite.kernel.words.errors import (
    ExtraMissing,
    InvalidValue,
    Refused,
    RmqliteError,
    StoreUnavailable,
)
from rmqlite.spark.session import is_on_disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_JAVA_CLASS: Final = re.compile(r"(?:[\w$]+\.)+([\w$]+(?:Exception|Error): )")
_REQUEST: Final = re.compile(r" \(Service: .*")
"""What the client of an object store adds about the request."""
_CODES: Final = re.compile(r"^\[[A-Z0-9_.]+\]\s*|\s*SQLSTATE: \w+$")
_CAUSE: Final = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_NO_JAVA: Final = "Java gateway process exited"
_NO_S3A: Final = "S3AFileSystem not found"
_S3A: Final = "start Spark with --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION"


def disk_names(
    place: str, *, master: str = "", conf: Mapping[str, str] | None = None
) -> list[str] | None:
    """The names in a place on this machine's disk, as HadoopFolder.names(), but without Spark.

    None if the place may be elsewhere.  Raises InvalidValue for a file.
    """
    path = disk_path(place, master=master, conf=conf)
    if path is None:
        return None
    try:
        return sorted([each.name for each in path.iterdir()])
    except FileNotFoundError:
        return []
    except NotADirectoryError as error:
        raise InvalidValue("place", place, "a folder, not a file") from error
    except OSError as error:
        raise StoreUnavailable("list", place, error.strerror or str(error)) from error


def disk_path(
    place: str, *, master: str = "", conf: Mapping[str, str] | None = None
) -> Path | None:
    """The path of a place on this machine's disk; None if the place may be elsewhere.

    master, conf: those of the session that is to come.
    """
    scheme = _SCHEME.match(place)
    if scheme:
        return Path(place.removeprefix("file:")) if scheme[0] == "file:" else None
    return Path(place) if is_on_disk(master, conf or {}) else None


def check_names(names: Sequence[str], place: str, field: str, column: str, what: str) -> None:
    """Raises InvalidValue for names of other folders than those of a column's values."""
    strange = [name for name in names if name[0] not in "._" and not name.startswith(f"{column}=")]
    if strange:
        rule = f"{what}, or an empty folder; this one has {strange[0]} in it"
        raise InvalidValue(field, place, rule)


def java_error(text: str) -> RmqliteError | None:
    """The error for the text of a Java exception if one says more than the text; else None."""
    if _NO_S3A in text:
        remedy = f"{_S3A}; rmqlite/spark/README.md says which, and how to have fewer jars"
        return ExtraMissing("hadoop-aws (for s3a)", "none", remedy)
    if _NO_JAVA in text:
        return Refused("Spark's Java did not start: the lines above say why")
    return None


def java_reason(text: str) -> str:
    """The line of an exception's text that names the cause, without names of classes and codes."""
    lines = [line.removeprefix(": ").strip() for line in text.splitlines()]
    said = [line for line in lines if line and not line.startswith("An error occurred while")]
    causes = _CAUSE.findall(text)
    if causes and said and (said[0].endswith(":") or "Job aborted" in said[0]):
        # The first line only says where it happened.
        said = causes[-1:]
    return _CODES.sub("", _REQUEST.sub("", _JAVA_CLASS.sub(r"\1", said[0] if said else text)))


class HadoopFolder:
    """A folder that may not exist yet.  Every method may raise StoreUnavailable."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        """place: in Spark's spelling, such as hdfs://host/x, s3a://bucket/x or /x."""
        self.place = place
        self._spark = spark

    def files(self, pattern: str) -> list[str]:
        """The URIs of the files that match, or are in a folder that does.

        pattern: of a path in this folder, with Hadoop's wildcards, such as {a,b}/*.
        """
        with self._as_ours("list"):
            found = self._matching("binaryFile", pattern)
            return sorted({unquote(uri) for uri in found.inputFiles()}) if found else []

    def texts(self, pattern: str) -> list[str]:
        """The texts of small files, in UTF-8, in the order of their names."""
        with self._as_ours("read"):
            found = self._matching("text", pattern, wholetext=True)
            rows = found.select("_metadata.file_path", "value").collect() if found else []
        return [text for _, text in sorted({row[0]: row[1] for row in rows}.items())]

    def write_text(self, name: str, text: str) -> None:
        """Write a text as a whole, and replace an older one.  Spark makes a folder with a file."""
        with self._as_ours("write to"):
            row = self._spark.range(1, numPartitions=1).select(F.lit(text).alias("value"))
            row.write.mode("overwrite").text(self.child(name))

    def check_names(self, field: str, column: str, what: str) -> None:
        """As the function, for names that have a file; also raises StoreUnavailable."""
        start = f"{column}="
        shorter = [start[:size] for size in range(1, len(start))]
        others = [f"{each}[^{start[len(each)]}]*" for each in shorter]
        strange = self.files(f"{{[^._{start[0]}]*,{','.join([*shorter, *others])}}}")
        check_names(strange, self.place, field, column, what)

    def child(self, name: str) -> str:
        """The place of a name in it."""
        return f"{self.place.rstrip('/')}/{name}"

    def _matching(self, form: str, pattern: str, **options: bool) -> DataFrame | None:
        # The same place twice: for a single one that does not exist Spark logs a stack.
        places = [self.child(pattern)] * 2
        reader = self._spark.read.format(form).options(recursiveFileLookup=True, **options)
        try:
            found = reader.load(places)
            # Spark Connect looks only now.
            found.schema  # noqa: B018
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return None
        return found

    @contextmanager
    def _as_ours(self, operation: str) -> Iterator[None]:
        """An exception of Spark inside becomes StoreUnavailable, with its first line as reason."""
        try:
            yield
        except (PySparkException, Py4JError) as error:
            text = str(error)
            known = java_error(text)
            raise known or StoreUnavailable(operation, self.place, java_reason(text)) from error
