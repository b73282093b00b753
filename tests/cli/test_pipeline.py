"""rmqlite pipeline without Spark: what its options refuse, before a JVM is started."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner, Result

from rmqlite.cli.main import app

COMMANDS = ("reconcile", "lateness", "slo", "retries", "redrives", "forecast")


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", *words], env={"COLUMNS": "80"})


AT = "1700000000000"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_job_reads_one_source(command: str) -> None:
    """Neither is nothing to read; both would be a question of which."""
    neither = run(command)
    assert (neither.exit_code, neither.stdout) == (2, "")
    assert neither.stderr.startswith("error: give --path, a store's folder, or --endpoint")
    both = run(command, "--path", "store", "--endpoint", "127.0.0.1:1")
    assert (both.exit_code, both.stdout) == (2, "")
    assert both.stderr.startswith("error: give --path or --endpoint, not both")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lateness", "--conf", "fast"], "--conf must be KEY=VALUE"),
        (["lateness", "--since", "soon"], "--since must be a time such as"),
        (["lateness", "--plot", "x.html"], "--plot must be a file's name"),
        (["slo", "--within", "1 second"], "--within must be whole"),
        (["forecast", "--until", AT], "give --from with --until"),
        (
            ["forecast", "--from", "1700000000000", "--until", "1700000000000"],
            "--until must be later than --from",
        ),
        (["forecast", "--bucket", "1 minute"], "--bucket must be a whole"),
        (["forecast", "--hours", "9999", "--bucket", "1s"], "--bucket must be at"),
    ],
)
def test_a_wrong_option_is_one_line(words: list[str], said: str) -> None:
    """Option, value, rule; before anything is started."""
    result = run(*words, "--path", "store")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {said}")
    assert result.stderr.count("\n") == 1


def test_help_loads_nothing_of_spark() -> None:
    """Who asks for help, or sends a message, must not wait for what only jobs need."""
    script = (
        "import sys, rmqlite.cli.main;"
        "print(sorted({'pyspark', 'pyarrow', 'numpy', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n"
