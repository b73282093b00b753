"""A folder on any file system that Hadoop supports: a disk, HDFS, an object store.

Spark's own Java does the work, so a place has the same spelling as for Spark, and needs no
other configuration.  A small file gets its name only when it is complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rmqlite.errors import (
    ExtraMissing,
    InvalidValue,
    NotSupported,
    RmqliteError,
    StoreUnavailable,
)
from rmqlite.spark.session import is_on_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_JAVA_CLASS: Final = re.compile(r"(?:[\w$]+\.)+([\w$]+(?:Exception|Error): )")
_REQUEST: Final = re.compile(r" \(Service: .*")
"""What the client of an object store adds about the request."""
_NO_S3A: Final = "S3AFileSystem not found"
_S3A: Final = "start Spark with --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION"
_CLASSIC: Final = "a classic Spark session: this one is a client of Spark Connect"


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
    return None


def java_reason(text: str) -> str:
    """The line of an exception's text that names the cause, without packages of classes."""
    lines = [line.removeprefix(": ").strip() for line in text.splitlines()]
    said = [line for line in lines if line and not line.startswith("An error occurred while")]
    return _REQUEST.sub("", _JAVA_CLASS.sub(r"\1", said[0] if said else text))


class HadoopFolder:
    """A folder that may not exist yet.  Every method may raise StoreUnavailable."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        """place: in Spark's spelling, such as hdfs://host/x, s3a://bucket/x or /x."""
        jvm = getattr(spark, "_jvm", None)
        if jvm is None:
            raise NotSupported(f"this needs {_CLASSIC}", field="master", value="", rule=_CLASSIC)
        self.place = place
        self._jvm: Any = jvm
        with self._as_ours("open"):
            self._root = jvm.org.apache.hadoop.fs.Path(place)
            self._files = self._root.getFileSystem(spark._jsc.hadoopConfiguration())

    def names(self, inside: str = "") -> list[str]:
        """The names directly in it, sorted; empty if it does not exist."""
        with self._as_ours("list"):
            path = self._path(inside)
            if not self._files.exists(path):
                return []
            return sorted(each.getPath().getName() for each in self._files.listStatus(path))

    def read_text(self, name: str) -> str:
        """The text of a small file in UTF-8."""
        with self._as_ours("read"):
            stream = self._files.open(self._path(name))
            try:
                return bytes(stream.readAllBytes()).decode("utf-8")
            finally:
                stream.close()

    def write_text(self, name: str, text: str) -> None:
        """Write a small file as a whole, and replace an older one."""
        beside, final = self._path(f"{name}.tmp"), self._path(name)
        with self._as_ours("write to"):
            stream = self._files.create(beside, True)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()
            self._files.delete(final, False)
            if not self._files.rename(beside, final):
                raise StoreUnavailable("write to", f"{self.place}/{name}", "it cannot be renamed")

    def child(self, name: str) -> str:
        """The place of a name in it."""
        return f"{self.place.rstrip('/')}/{name}"

    def _path(self, inside: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, inside) if inside else self._root

    @contextmanager
    def _as_ours(self, operation: str) -> Iterator[None]:
        """A Java exception inside becomes StoreUnavailable, with its first line as the reason."""
        from py4j.protocol import Py4JJavaError

        try:
            yield
        except Py4JJavaError as error:
            text = str(error.java_exception.toString())
            known = java_error(text)
            raise known or StoreUnavailable(operation, self.place, java_reason(text)) from error
