"""What is wrong about a job's places is told before Spark starts: that takes seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqlite
from tests.support.stores import StoreUnderTest, new_record

pytestmark = pytest.mark.xdist_group("before spark")

TABLES = ("reconcile", "lateness", "slo", "retries", "redrives", "forecast")
MORE = {"archive": ("--archive", "kept"), "dlq-export": ("--output", "dlq")}
COMMANDS = """
import json, os, sys
from functools import cache
from typer import testing
from typer.main import get_command
from typer.testing import CliRunner
from rmqlite.cli.main import app

# As in tests/conftest.py.
testing._get_command = cache(get_command)
for line in sys.stdin:
    folder, commands = json.loads(line)
    os.chdir(folder)
    runs = [CliRunner().invoke(app, ["pipeline", *words]) for words in commands]
    print(json.dumps([(run.exit_code, run.stdout, run.stderr) for run in runs]), flush=True)
"""
Told = Callable[..., list[str]]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a message and with a dead letter."""
    store = StoreUnderTest(tmp_path / "store")
    store.append(new_record("x"), new_record("dead", "%DLQ%billing"))
    store.sync()
    store.close()
    return store.root


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """The store of a broker that was started and never used."""
    store = StoreUnderTest(tmp_path / "empty")
    store.close()
    return store.root


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """What each command says before it ends, in this folder, one after the other in one process.

    There is no Java for these commands: one that starts Spark says so instead.
    """
    other = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT")
    kept = {name: text for name, text in os.environ.items() if name not in other}
    no_java = tmp_path_factory.mktemp("java") / "no java"
    environment = kept | {"JAVA_HOME": str(no_java), "COLUMNS": "200"}
    environment |= {"PYTHONPATH": str(Path(rmqlite.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", COMMANDS],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        asked, answered = running.stdin, running.stdout
        assert asked is not None
        assert answered is not None

        def lines(folder: Path, *commands: tuple[str, ...]) -> list[str]:
            asked.write(json.dumps([str(folder), commands]) + "\n")
            asked.flush()
            found = []
            for code, output, error in json.loads(answered.readline()):
                assert (code, output) == (1, ""), error
                assert error.startswith("error: "), error
                assert error.count("\n") == 1, error
                found.append(error.strip())
            return found

        yield lines


def every_command(*words: str) -> list[tuple[str, ...]]:
    return [*((name, *words) for name in TABLES), *((n, *w, *words) for n, w in MORE.items())]


def test_a_sound_job_would_start_spark(told: Told, tmp_path: Path, store: Path) -> None:
    """The other tests of this file mean something only if this one holds."""
    for line in told(tmp_path, *every_command("--path", str(store))):
        assert "Java 17 or newer" in line


def test_a_wrong_path_is_told(told: Told, tmp_path: Path, store: Path) -> None:
    """By every command; a folder that is there but no store, too."""
    for line in told(tmp_path, *every_command("--path", "nowhere")):
        assert f"must be a folder that exists, not '{tmp_path / 'nowhere'}'" in line
    for line in told(tmp_path, *every_command("--path", str(store / "config"))):
        assert "a store's folder" in line


def test_a_store_without_messages_is_told(told: Told, tmp_path: Path, empty: Path) -> None:
    """An empty answer would look like one about messages."""
    for line in told(tmp_path, *every_command("--path", str(empty))):
        assert "path must be a store that has messages" in line


def test_an_unknown_topic_or_group_is_told(told: Told, tmp_path: Path, store: Path) -> None:
    """With the name that was meant; a group whose letters are none yet is known."""
    export = ("dlq-export", "--path", str(store), "--output", "dlq")
    topic, group = told(
        tmp_path, (*export, "--topic", "ordrs"), (*export, "-g", "billing", "-g", "biling")
    )
    assert "topic must be a topic of " in topic
    assert "did you mean orders?" in topic
    assert "group must be a consumer group of " in group
    assert "did you mean billing?" in group


def test_a_place_for_the_answer_is_told(told: Told, tmp_path: Path, store: Path) -> None:
    """Minutes of work must not end with a place that never could have taken it."""
    (tmp_path / "there.csv").write_text("kept")
    (tmp_path / "there").mkdir()
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "commitlog").mkdir()
    path = ("--path", str(store))
    lines = told(
        tmp_path,
        ("reconcile", *path, "--output", "there.csv"),
        ("lateness", *path, "--output", "there"),
        ("forecast", *path, "--output", "away/x.csv"),
        ("dlq-export", *path, "--output", "strange"),
        ("dlq-export", *path, "--output", "there.csv"),
        ("archive", *path, "--archive", "strange"),
        ("retries", *path, "--archive", "strange"),
    )
    rules = (
        "a file that does not exist yet",
        "a folder that does not exist yet",
        "a file in a folder that exists",
        "this one has commitlog in it",
        "a folder, not a file",
        "this one has commitlog in it",
        "this one has commitlog in it",
    )
    for line, rule in zip(lines, rules, strict=True):
        assert rule in line
    assert (tmp_path / "there.csv").read_text() == "kept"


def test_an_archive_that_the_log_needs_must_be_there(told: Told, tmp_path: Path) -> None:
    """Retention has deleted the log's first file: without the archive its records are missing."""
    made = StoreUnderTest(tmp_path / "long")
    made.send(*["x" * 500] * 20)
    made.sync()
    made.close()
    made.log_files()[0].unlink()
    (line,) = told(tmp_path, ("reconcile", "--path", str(made.root), "--archive", "mistyped"))
    assert "archive must be a folder that rmqlite pipeline archive has" in line
