"""A part of the Spark tests with older versions of Spark: --every-spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import toolchains

FOLDER = Path(__file__).parent
SHORT = ("test_source", "test_stream", "test_sink_spark", "test_jobs_archive", "test_jobs_commands")


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("version", ["4.0.0", "4.1.4", "4.2.1"])
def test_the_main_ways_work_with_an_older_spark(pytestconfig: pytest.Config, version: str) -> None:
    """Databricks, EMR and Delta have older versions than the newest one, which all tests run with.

    Before 4.2 Spark itself leaves sockets open, which would be an error here.
    """
    if not pytestconfig.getoption("--every-spark"):
        pytest.skip("only with --every-spark")
    environment = os.environ | {"PYTHONPATH": str(toolchains.pyspark(version))}
    environment.pop("SPARK_HOME", None)
    named = "import pyspark; print(pyspark.__version__)"
    command = [sys.executable, "-c", named]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == version
    quiet = ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [f"-Wignore::{each}" for each in quiet]
    command += [str(FOLDER / f"{name}.py") for name in SHORT]
    done = subprocess.run(
        command, cwd=FOLDER.parents[1], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-5_000:]
