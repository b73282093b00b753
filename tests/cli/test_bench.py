"""rmqlite bench: ranks of durations, and one tiny run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from rmqlite.cli.bench import scenarios
from rmqlite.cli.bench.scenarios import NAMES, percentile
from rmqlite.cli.main import app


def test_percentiles_are_values_that_were_measured() -> None:
    """The nearest rank: no figure between two measurements is made up."""
    ordered = [float(n) for n in range(1, 101)]
    assert (percentile(ordered, 50), percentile(ordered, 99), percentile([7.0], 99)) == (50, 99, 7)
    assert percentile([], 50) == 0


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(1, 100))
def test_a_percentile_lies_within_the_values(values: list[float], percent: float) -> None:
    """Whatever is asked for."""
    assert percentile(sorted(values), percent) in values


def test_the_help_names_every_scenario() -> None:
    """It is written down apart from them, so that help does not load a broker's client."""
    page = CliRunner().invoke(app, ["bench", "--help"], env={"COLUMNS": "200"}).stdout
    assert [name for name in NAMES if name not in page] == []


def test_a_tiny_bench_measures_every_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real brokers, and one table of 80 columns; the numbers mean nothing."""
    one_each = {name: cases[-1:] for name, cases in scenarios.SENDS.items()}
    monkeypatch.setattr(scenarios, "SENDS", one_each)
    args = ["bench", "--seconds", "0.02", "--flush", "ASYNC_FLUSH", "--dir", str(tmp_path)]
    result = CliRunner().invoke(app, args, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert {line.split()[0] for line in lines[3:] if line} == set(NAMES)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_scenario_is_refused() -> None:
    """Before a broker is started; the sentence names those that there are."""
    result = CliRunner().invoke(app, ["bench", "sendd"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "lateness" in result.stderr
