"""An object store: exports, archives and tables on s3a, with a server of S3's protocol.

The jars are those that README.md of rmqlite/spark names; they come into the session of all tests,
which is cheaper than another one.  Maven brings them, and without Maven this is skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from typer.testing import CliRunner

from rmqlite.cli.main import app
from rmqlite.spark.data_source_api import HAS_READ_LIMITS
from rmqlite.spark.jobs.dead_letters import read_export
from tests.support import toolchains
from tests.support.s3 import s3_server
from tests.support.stores import StoreUnderTest, new_record, scheduled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

README: Final = toolchains.ROOT / "rmqlite" / "spark" / "README.md"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a server of S3 with an empty bucket."""
    with s3_server(tmp_path / "server.log") as address:
        yield address


@pytest.fixture
def with_s3a(spark: SparkSession, server: str) -> SparkSession:
    """The session, with the jars on its class path and the server as its object store."""
    java: Any = spark._jvm
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    for jar in toolchains.s3a_jars():
        loader.addURL(java.java.io.File(str(jar)).toURI().toURL())
    s3a = {
        "endpoint": server,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "access.key": "any",
        "secret.key": "any",
    }
    settings: Any = vars(spark.sparkContext)["_jsc"].hadoopConfiguration()
    for name, value in s3a.items():
        settings.set(f"fs.s3a.{name}", value)
    return spark


def store(folder: Path) -> str:
    """A store of a few log files: dead letters, a delivered message, one that waits."""
    made = StoreUnderTest(folder, log_file_bytes=1 << 14)
    waiting = made.append(scheduled("later", 1), scheduled("much later", 3))
    origin = {"RETRY_TOPIC": "orders", "UNIQ_KEY": "ID"}
    made.append(*[new_record(f"{n}", "%DLQ%billing", properties=origin) for n in range(200)])
    made.clock.forward(1_003)
    made.deliver(1, waiting[0])
    made.sync()
    made.close()
    return str(made.root)


def run(*words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command of the pipeline."""
    done = CliRunner().invoke(app, ["pipeline", *words])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.long
def test_exports_archives_and_tables_lie_in_an_object_store(
    tmp_path: Path, with_s3a: SparkSession
) -> None:
    """Added, nothing twice, verified, and read again; a bucket that is missing is one line."""
    path = store(tmp_path / "store")
    source = ["--path", path]
    export = ["dlq-export", *source, "--output", "s3a://bucket/dlq"]
    commands = [
        export,
        ["slo", *source, "--output", "s3a://bucket/slo", "--format", "csv"],
        ["slo", *source, "--output", "s3a://nowhere/slo"],
        export,
        ["archive", *source, "--archive", "s3a://bucket/archive"],
        ["reconcile", *source, "--archive", "s3a://bucket/archive", "--json"],
    ]
    found = [run(*words) for words in commands]
    letters = read_export(with_s3a, "s3a://bucket/dlq").count()
    levels = with_s3a.read.option("header", "true").csv("s3a://bucket/slo").collect()
    added, written, missing, again, archived, reconciled = found
    assert [code for code, *_ in found] == [0, 0, 3, 0, 0, 0], found
    assert "200 added to s3a://bucket/dlq, 0 were there already" in added[2]
    assert letters == 200
    assert "wrote s3a://bucket/slo, a folder of csv" in written[2]
    assert [(row["real_topic"], row["in_time"]) for row in levels] == [("orders", "1")]
    (error,) = [line for line in missing[2].splitlines() if line.startswith("error: ")]
    assert "cannot list s3a://nowhere/slo: UnknownStoreException" in error
    assert "Request ID" not in error
    assert "0 added to s3a://bucket/dlq, 200 were there already" in again[2]
    assert "retention may delete the log before physical offset" in archived[2]
    totals = json.loads(reconciled[1])["totals"]
    assert (totals["delivered"], totals["pending"]) == (1, 1)


def test_without_the_jars_the_error_says_what_is_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Before the job reads anything.  Another scheme, whose class is missing whatever was tried."""
    settings: Any = vars(spark.sparkContext)["_jsc"].hadoopConfiguration()
    settings.set("fs.gone.impl", "gone.S3AFileSystem")
    source = ("--path", store(tmp_path / "store"))
    code, output, error = run("slo", *source, "--output", "gone://bucket/slo")
    assert (code, output) == (1, "")
    assert "error: hadoop-aws (for s3a) is needed, found none" in error


def test_the_page_names_the_jars_that_are_tried() -> None:
    """With the same versions; Hadoop's is that of Spark from 4.2 on."""
    pom = (toolchains.S3A / "pom.xml").read_text()
    versions = dict(re.findall(r"<(hadoop|aws)\.version>([^<]+)<", pom))
    named = re.findall(r"<artifactId>([^<]+)</artifactId>\s*<version>\$\{(\w+)\.version", pom)
    page = README.read_text()
    assert len(named) == 4
    assert versions["hadoop"] == toolchains.hadoop_version() or not HAS_READ_LIMITS
    for artifact, kind in named:
        assert f":{artifact}:{versions[kind]}" in page
