"""A session starts at the first try, or says what to install: no JVM is started here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rmqlite.kernel.words.errors import ExtraMissing, InvalidValue
from rmqlite.spark import session
from rmqlite.spark.hadoop import disk_path


def java(home: Path, version: str) -> Path:
    """A program that answers as Java does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java; the folder where programs are looked for."""
    # Set, not removed: what a test finds is then taken back, too.
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr(session, "_PLACES", (str(tmp_path / "jvm"),))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    return tmp_path


@pytest.mark.usefixtures("nowhere")
def test_without_java_the_error_says_what_to_install() -> None:
    """Spark's own says JAVA_GATEWAY_EXITED."""
    with pytest.raises(ExtraMissing, match=r"apt install openjdk-17-jre-headless"):
        session.java_home()


def test_java_on_the_path_needs_no_setting(nowhere: Path) -> None:
    """Spark finds it as we do."""
    java(nowhere / "path", "17.0.15")
    assert session.java_home() == ""


def test_an_old_java_is_named(nowhere: Path) -> None:
    """Java 8 calls itself 1.8."""
    java(nowhere / "path", "1.8.0_402")
    with pytest.raises(ExtraMissing, match="found Java 8"):
        session.java_home()


def test_a_newer_java_beside_an_old_one_is_taken(nowhere: Path) -> None:
    """Many machines have one of each."""
    java(nowhere / "path", "11.0.2")
    home = java(nowhere / "jvm" / "java-21", "21.0.8")
    assert session.java_home() == str(home)


def test_the_java_of_a_virtual_environment_is_found(nowhere: Path) -> None:
    """That is where the test command puts one."""
    home = java(nowhere / "venv" / "java" / "jdk-21-jre", "21.0.8")
    assert session.java_home() == str(home)


def test_a_wrong_java_home_is_told_and_not_passed_over(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would use it, whatever else is there."""
    java(nowhere / "path", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(nowhere / "gone"))
    with pytest.raises(ExtraMissing, match="no Java at JAVA_HOME="):
        session.java_home()


@pytest.mark.parametrize(
    ("master", "conf", "variable", "is_so"),
    [
        ("", {}, "", True),
        ("local[2]", {"spark.executor.memory": "1g"}, "", True),
        ("spark://host:7077", {}, "", False),
        ("", {"spark.hadoop.fs.defaultFS": "hdfs://host"}, "", False),
        ("", {}, "HADOOP_CONF_DIR", False),
        ("", {}, "SPARK_REMOTE", False),
    ],
)
def test_a_place_is_on_this_disk_only_if_no_other_file_system_may_be_meant(
    monkeypatch: pytest.MonkeyPatch,
    master: str,
    conf: dict[str, str],
    variable: str,
    is_so: bool,
) -> None:
    """Otherwise /archive may be a folder of HDFS, and it is Spark that knows."""
    for name in session._OTHER_CONFIGURATION:
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "/etc/hadoop")
    assert session.is_on_disk(master, conf) == is_so
    path = disk_path("/archive", master=master, conf=conf)
    assert path == (Path("/archive") if is_so else None)
    assert disk_path("s3a://bucket/x", master=master, conf=conf) is None
    assert disk_path("file:///x", master=master, conf=conf) == Path("/x")


def test_a_master_beside_a_server_of_spark_connect_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server has one already; Spark would name its classes."""
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:15002")
    with pytest.raises(InvalidValue, match=r"left out, not .*: SPARK_REMOTE names a server"):
        session.started("local[2]")


WITHOUT_SPARK = """
import importlib.metadata, sys
for name in ('pyspark', 'pyarrow', 'numpy'):
    sys.modules[name] = None

def version(name):
    if found == 'none':
        raise importlib.metadata.PackageNotFoundError(name)
    return found

importlib.metadata.version = version
from rmqlite.cli.main import main
for words, found in (
    ('reconcile', 'none'), ('dlq-export --output x', 'none'), ('archive --archive x', '3.5.8')
):
    sys.argv = ['rmqlite', 'pipeline', *words.split(), '--path', sys.argv[-1]]
    try:
        main()
    except SystemExit as ended:
        print(ended.code)
"""


def test_a_job_without_spark_says_what_to_install(tmp_path: Path) -> None:
    """Who has installed the broker alone, or Spark 3.5, sees a command, not a trace."""
    command = [sys.executable, "-c", WITHOUT_SPARK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, ["1", "1", "1"]), done.stderr
    for line, found in zip(done.stderr.splitlines(), ("none", "none", "3.5.8"), strict=True):
        assert line.startswith(f"error: pyspark 4.0 or newer, below 5 is needed, found {found}")
        assert line.endswith('pip install "rmqlite[spark]"')
