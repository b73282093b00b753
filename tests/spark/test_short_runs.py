"""A job over a small log: a Java for short runs, its class archive, one line and the answer."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqlite.spark.jobs import running
from rmqlite.spark.jobs.running import ARCHIVES_MAX, is_short, short_run
from rmqlite.spark.reading import looked, read_here
from rmqlite.spark.session import java_home
from tests.support.eventually import eventually
from tests.support.stores import StoreUnderTest, new_record, scheduled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
COMPLETE = b"\xa8\xab\x0b\xf0 and the classes"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the class archives."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rmqlite"


def options() -> str:
    with short_run({}) as settings:
        return settings[JAVA_OPTIONS]


def archive_in(text: str) -> Path:
    return Path(text.split("ArchiveClassesAtExit=")[1].split('"')[0])


def test_the_first_job_makes_an_archive_and_later_ones_map_it(cache: Path) -> None:
    """Java writes it when it ends; until its header is there, nobody uses it."""
    archive = archive_in(options())
    assert archive.parent == cache
    archive.write_bytes(bytes(4) + b"the classes")
    assert "Archive" not in options()
    archive.write_bytes(COMPLETE)
    assert f"-XX:SharedArchiveFile={archive}" in options()
    assert "-Xlog:disable" in options()


@pytest.mark.usefixtures("cache")
def test_an_archive_that_was_never_completed_is_made_again() -> None:
    """Java was killed while it wrote."""
    archive = archive_in(options())
    archive.write_bytes(bytes(4))
    long_ago = time.time() - 3_600
    os.utime(archive, (long_ago, long_ago))
    assert archive_in(options()) == archive


def test_archives_of_older_versions_are_removed(cache: Path) -> None:
    """Each has the size of a film; the newest of them stay, for other environments."""
    archive = archive_in(options())
    for number in range(5):
        old = cache / f"spark-4.{number}.jsa"
        old.write_bytes(COMPLETE)
        os.utime(old, (number, number))
    assert archive_in(options()) == archive
    assert len([*cache.iterdir()]) == ARCHIVES_MAX - 1
    assert (cache / "spark-4.4.jsa").exists()


def test_without_a_cache_folder_a_job_runs_all_the_same(cache: Path) -> None:
    """A service's user may have no home to write to."""
    cache.parent.write_text("a file")
    assert "TieredStopAtLevel" in options()
    assert "Archive" not in options()


def test_who_chooses_the_drivers_java_gets_it(cache: Path) -> None:
    """Two garbage collectors, for one, are a Java that does not start."""
    with short_run({"spark.driver.memory": "4g"}) as settings:
        assert JAVA_OPTIONS not in settings
    assert settings["spark.sql.codegen.wholeStage"] == "false"
    assert not cache.exists()


def test_the_archive_of_a_job_that_failed_is_made_again(cache: Path) -> None:
    """It lacks the classes that the job did not come to; Java writes it after the job."""
    with pytest.raises(ValueError, match="damaged"), short_run({}) as settings:
        raise ValueError("the log is damaged")
    archive = archive_in(settings[JAVA_OPTIONS])
    archive.write_bytes(COMPLETE)
    assert archive_in(options()) == archive
    assert not [*cache.iterdir()]


def test_only_a_small_log_in_this_process_is_a_short_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one is worth the compiler, and a cluster has its own Java."""
    store = StoreUnderTest(tmp_path / "store")
    store.append(new_record("x"))
    store.sync()
    store.close()
    found = looked(path=str(store.root))
    assert is_short(found, master="local[2]", conf={})
    assert not is_short(found, master="spark://host:7077", conf={})
    monkeypatch.setattr(running, "LOG_BYTES_MAX", found.place.end - found.place.begin - 1)
    assert not is_short(found, master="local[2]", conf={})


def test_a_log_without_the_wanted_records_is_an_empty_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Most stores have no dead letters."""
    store = StoreUnderTest(tmp_path / "store")
    store.append(new_record("x"))
    store.sync()
    store.close()
    names = ("topic", "properties", "store_timestamp")
    table = read_here(spark, path=str(store.root), columns=names, topicPattern="%DLQ%*")
    assert (table.columns, table.count()) == ([*names], 0)


def test_java_completes_an_archive_and_the_next_java_maps_it(cache: Path) -> None:
    """Its header is what is_complete() looks for.  These have only the classes of every Java."""
    java = str(Path(home, "bin", "java")) if (home := java_home()) else "java"
    for _ in range(2):
        made = options()
        # With -Xshare:on it fails if it cannot map its classes.
        command = [java, *shlex.split(made), "-Xshare:on", "-version"]
        subprocess.run(command, capture_output=True, check=True)
    assert "SharedArchiveFile" in made
    assert len([*cache.glob("*.jsa")]) == 1


def test_a_short_run_starts_without_a_word(spark: SparkSession, said_at_the_start: Path) -> None:
    """The session of all tests begins as that of a command does."""
    assert spark.range(3).count() == 3
    assert said_at_the_start.read_text() == ""


@pytest.mark.long
def test_a_command_says_one_line_before_its_answer(tmp_path: Path) -> None:
    """Nothing of Spark's; it makes an archive, and a second run maps that."""
    store = StoreUnderTest(tmp_path / "store")
    store.append(scheduled("later", 3))
    store.sync()
    store.close()
    environment = {
        name: text
        for name, text in os.environ.items()
        if name not in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")
    }
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    command = [sys.executable, "-m", "rmqlite", "pipeline", "reconcile", "--path", str(store.root)]

    def archives() -> list[Path]:
        return [each for each in tmp_path.glob("rmqlite/*.jsa") if running.is_complete(each)]

    made = []
    for _ in range(2):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith(f"reading {store.root}: physical offsets 0 to ")
        assert "The promises held" in done.stdout
        eventually(lambda: bool(archives()), "Java has written the archive")
        made.append([each.stat().st_ino for each in archives()])
    assert made[0] == made[-1]
    assert len(made[0]) == 1
