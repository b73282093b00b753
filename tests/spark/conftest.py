"""One Spark session for all tests that need one; most need none."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.java_gateway import JavaPackage, JVMView

from rmqlite.spark.jobs.running import short_run
from rmqlite.spark.session import register, started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Compiling plans costs more than a few rows; so does asking each time which line of Python made a
# column.  In the small code cache of a virtual machine that compiles little, it would look for what
# may go.  With --long, tests on a cluster have plans compiled, as jobs over a large log.
QUICK = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.broadcast.compress": "false",
    "spark.broadcast.checksum": "false",
    "spark.shuffle.compress": "false",
}

# Before all else on its path, a Python of Spark finds Spark in a zip, and compiles all of it: a
# second, some hundred times.  Without those entries it imports the installed one, the same.  Each
# of its workers is a fork; what all of them import, the process that is forked has imported.
PYTHON = f"""#!/bin/sh
path=$PYTHONPATH:
path=${{path#*/pyspark.zip:*/spark-core_*.jar:}}
export PYTHONPATH=${{path%:}}
[ "$1 $2" = "-m pyspark.daemon" ] || exec {sys.executable} "$@"
shift 2
exec {sys.executable} -c '
import runpy, sys
from importlib import import_module
import pyarrow
import rmqlite.spark.source
if sys.argv[1:]:
    import_module(sys.argv[1])
runpy.run_module("pyspark.daemon", run_name="__main__")
' "$@"
"""


JAVA = "spark.driver.defaultJavaOptions"
# In a fresh clone no Java has made a class archive yet.  To make one takes longer than a driver of
# the tests gets back from it, and only a Java that makes one must check all byte code.
UNCHECKED = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
ROOM = "-XX:ReservedCodeCacheSize=200m -Xmn512m"


def driver_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Those of a short run, for a driver of the tests."""
    makes_archive = "ArchiveClassesAtExit" in settings[JAVA]
    java = UNCHECKED if makes_archive else settings[JAVA]
    return {**settings, **QUICK, JAVA: f"{java} {ROOM}"}


def remember_found(names: type[Any]) -> None:
    """Of classes and packages of Java, ask Java once.

    Each use of a function of Spark's asks for some, and Java looks for each of them in ten packages
    of three hundred jars.
    """
    look_up = names.__getattr__

    def found(self: Any, name: str) -> Any:
        self.__dict__[name] = there = look_up(self, name)
        return there

    names.__getattr__ = found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Function) -> Iterator[None]:
    """A test that is ended in a call to Java does not read the answer: the connection is closed.

    Else the next test would take it for the answer to its own first call, and so would all others.
    """
    try:
        return (yield)
    except pytest.fail.Exception:
        made: Any = item.funcargs.get("spark")
        if made is not None:
            connection = made.sparkContext._gateway._gateway_client.get_thread_connection()
            if connection is not None:
                connection.close()
        raise


@pytest.fixture(scope="session", autouse=True)
def python_of_spark(tmp_path_factory: pytest.TempPathFactory) -> None:
    """For all sessions of this process, and those of its drivers."""
    script = tmp_path_factory.mktemp("python") / "python"
    script.write_text(PYTHON)
    script.chmod(0o755)
    os.environ["PYSPARK_PYTHON"] = str(script)


@pytest.fixture(scope="session")
def said_at_the_start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the start of the session below wrote to standard error."""
    return tmp_path_factory.mktemp("start") / "said"


@contextmanager
def error_in(path: Path) -> Iterator[None]:
    """Standard error, also of processes that start inside, goes into this file."""
    before = os.dup(2)
    with path.open("wb") as said:
        os.dup2(said.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, said_at_the_start: Path
) -> Iterator[SparkSession]:
    """Two slots, each task tried up to three times; ends with the last test that uses it."""
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    for names in (JVMView, JavaPackage):
        remember_found(names)
    with short_run({}) as settings:
        conf = driver_settings(settings) | warehouse
        with error_in(said_at_the_start):
            made = started("local[2,3]", app_name="rmqlite tests", conf=conf, is_quiet=True)
        register(made)
        made.sparkContext.setLogLevel("ERROR")
        yield made
        made.stop()
