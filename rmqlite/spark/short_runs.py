"""How a job over a small log starts soon: most of its time would be the start of Spark.

Such a job's Java compiles little, collects garbage in one thread and maps its classes from an
archive, which the first job on a machine makes.  Its plans are interpreted, because compiling
them costs more than a few rows.  This process reads the log itself: no Python worker starts.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmqlite import __version__
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.spark.session import is_on_disk, java_home

if TYPE_CHECKING:
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
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.showConsoleProgress": "false",
}


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
