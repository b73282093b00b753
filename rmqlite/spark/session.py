"""Makes a SparkSession that works at the first try: Java found, workers on this Python, UTC.

Spark's own errors for a missing Java, a wrong Python on the workers or an old Arrow do not name
the cause; this module checks for each before it starts a JVM.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final

from rmqlite.extras import check_extra
from rmqlite.kernel.words.errors import ExtraMissing, InvalidValue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN: Final = 17
_JAVA_REMEDY: Final = (
    "install Java 17 or newer (Debian, Ubuntu: apt install openjdk-17-jre-headless;"
    " Fedora: dnf install java-21-openjdk-headless; macOS: brew install openjdk@17)"
    " or set JAVA_HOME to the one you have"
)
_FILE_SYSTEM: Final = "spark.hadoop.fs.defaultFS"
_REMOTE: Final = "SPARK_REMOTE"
"""The server of Spark Connect, in the environment."""
_OTHER_CONFIGURATION: Final = frozenset(
    {"HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT", _REMOTE}
)
"""With one of these in the environment, a session may have another file system than the disk."""
_EVERY_START: Final = re.compile(
    rb"^WARNING: (?:Using incubator modules:|package \S+ not in) .*\n", re.MULTILINE
)
"""The lines with which Java answers Spark's own options."""
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_PLACES: Final = ("/usr/lib/jvm", "/opt/homebrew/opt/openjdk", "/Library/Java/JavaVirtualMachines")


def session(
    master: str = "", *, app_name: str = "rmqlite", conf: dict[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one; with the format "rmqlite" registered.

    master: such as "local[2]", "spark://host:7077" or, for Spark Connect, "sc://host"; empty means
    SPARK_REMOTE, the one of spark-submit or of Spark's own configuration, else "local[*]".  conf
    overrides every setting of this function.  Raises ExtraMissing, InvalidValue.
    """
    return register(started(master, app_name=app_name, conf=conf))


def started(
    master: str = "",
    *,
    app_name: str = "rmqlite",
    conf: Mapping[str, str] | None = None,
    is_quiet: bool = False,
) -> SparkSession:
    """As session(), but without the format.

    is_quiet: without what every Java of Spark's says, and with its progress only on a terminal.
    """
    check_extra("spark")
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    # Otherwise workers run python3 from PATH, which may lack pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    remote = master if master.startswith("sc://") else os.environ.get(_REMOTE, "")
    if remote:
        if master not in ("", remote):
            raise InvalidValue("master", master, f"left out: {_REMOTE} names a server")
        given = {"spark.sql.session.timeZone": "UTC"} | dict(conf or {})
        return SparkSession.builder.remote(remote).config(map={**given}).getOrCreate()
    wanted = {"spark.app.name": app_name}
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # Only a context shows the arguments of spark-submit; without them the master is local[*].
        given = wanted | ({"spark.master": master} if master else {}) | dict(conf or {})
        SparkContext.getOrCreate(SparkConf().setAll([*given.items()]))
    defaults = SparkConf()
    if SparkSession.getActiveSession() is None:
        java_home()
    if master or not defaults.get("spark.master", ""):
        wanted["spark.master"] = master or "local[*]"
    ours = _local_conf(master or defaults.get("spark.master", "") or "")
    wanted |= {key: value for key, value in ours.items() if defaults.get(key, None) is None}
    if is_quiet:
        wanted["spark.ui.showConsoleProgress"] = str(sys.stderr.isatty()).lower()
    wanted |= conf or {}
    is_own = _OTHER_CONFIGURATION.isdisjoint(os.environ)
    with _without_every_start() if is_quiet and is_own and sys.stderr else nullcontext():
        return SparkSession.builder.config(map={**wanted}).getOrCreate()


@contextmanager
def _without_every_start() -> Iterator[None]:
    """A Java that starts inside writes its standard error, which it inherits, through us."""
    error = os.dup(2)
    reader, writer = os.pipe()
    # It begins to read before Java writes, and goes on as long as Java lives.
    Thread(target=_pass_on, args=(reader, error), daemon=True).start()
    os.dup2(writer, 2)
    os.close(writer)
    try:
        yield
    finally:
        os.dup2(error, 2)


def _pass_on(reader: int, writer: int) -> None:
    """Copy what Java writes, without the lines of every start."""
    with open(reader, "rb") as java, open(writer, "wb", buffering=0) as error:
        # Java writes a line at once.  Not line by line: a progress bar has no ends of lines.
        while part := java.read1():
            error.write(_EVERY_START.sub(b"", part))


def active() -> SparkSession | None:
    """The running session, with the format registered; None if no session runs."""
    check_extra("spark")
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    return None if running is None else register(running)


def register(spark: SparkSession) -> SparkSession:
    """Register the format "rmqlite" in a session.  Raises ExtraMissing."""
    check_extra("spark")
    from rmqlite.spark.source import RmqliteDataSource

    spark.dataSource.register(RmqliteDataSource)
    return spark


def is_remote(spark: SparkSession) -> bool:
    """Is it a session of Spark Connect, whose server has the log and the settings of Java?"""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def is_on_disk(master: str, conf: Mapping[str, str]) -> bool:
    """Would a session take a place without a scheme, such as /x, for one on this machine's disk?"""
    is_local = not master or master.startswith("local")
    is_configured = _FILE_SYSTEM in conf or not _OTHER_CONFIGURATION.isdisjoint(os.environ)
    return is_local and not is_configured


def java_home() -> str:
    """Find a Java that is new enough for Spark, and set JAVA_HOME to it if needed.

    Returns its folder, or "" for the Java on PATH.  Raises ExtraMissing, which names what to
    install and how.
    """
    wanted = f"Java {JAVA_MIN} or newer"
    named = os.environ.get("JAVA_HOME", "")
    if named:
        found = _java_version(Path(named) / "bin" / "java")
        if found >= JAVA_MIN:
            return named
        what = f"Java {found}" if found else "no Java"
        raise ExtraMissing(wanted, f"{what} at JAVA_HOME={named}", _JAVA_REMEDY)
    on_path = shutil.which("java")
    newest = _java_version(Path(on_path)) if on_path else 0
    if newest >= JAVA_MIN:
        return ""
    for home in _homes():
        found = _java_version(home / "bin" / "java")
        if found >= JAVA_MIN:
            os.environ["JAVA_HOME"] = str(home)
            return str(home)
        newest = max(newest, found)
    raise ExtraMissing(wanted, f"Java {newest}" if newest else "none", _JAVA_REMEDY)


def _homes() -> list[Path]:
    """Folders of Java that are not on PATH, the newest name first."""
    found: list[Path] = []
    # The tests install a Java into their virtual environment if the system has none.
    for place in (Path(sys.prefix) / "java", *map(Path, _PLACES)):
        if place.is_dir():
            inside = sorted(place.iterdir(), reverse=True)
            found += [place, *inside, *(each / "Contents" / "Home" for each in inside)]
    return [home for home in found if (home / "bin" / "java").exists()]


def _java_version(java: Path) -> int:
    """Its main version; 0 if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return 0
    named = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(named[1]) if named and done.returncode == 0 else 0


def _local_conf(master: str) -> dict[str, str]:
    """Settings for a session in one process; a cluster has its own administrators."""
    conf = {"spark.sql.session.timeZone": "UTC"}
    if not master or master.startswith("local"):
        # The file is missing if rmqlite is imported from a zip; then Spark logs in its own way.
        if _LOGGING.exists():
            option = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
            conf["spark.driver.extraJavaOptions"] = option
        conf |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "8",
            "spark.ui.enabled": "false",
        }
    return conf
