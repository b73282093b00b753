"""Figures: ranks, units and rows; what is measured is a journey's matter."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from rmqlite.cli.bench.figures import Figure, percentile, spread, table_rows
from rmqlite.cli.bench.scenarios import NAMES, most_in
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


def test_a_case_is_one_row_with_all_its_figures() -> None:
    """A rate without its latencies says half."""
    figures = [Figure("send", "8 threads", "rate", 24013.2, "msg/s")]
    figures += spread("send", "8 threads", [0.5, 1.25])
    figures += spread("lateness", "stored", [2.0])
    assert table_rows(figures) == [
        ("send", "8 threads", "24,013 msg/s", 0.5, 1.25, 1.25),
        ("lateness", "stored", "-", 2.0, 2.0, 2.0),
    ]
    assert str(Figure("", "", "", 12.34, "ms")) == "12.3 ms"


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(1, 20))
def test_the_fullest_span_is_the_fullest_wherever_one_begins(at_ms: list[int], span: int) -> None:
    """A limit that only holds from one full second to the next is none."""
    ordered = sorted(at_ms)
    counts = [sum(first <= each < first + span for each in ordered) for first in ordered]
    assert most_in(span, ordered) == max(counts)


def test_the_help_names_every_scenario() -> None:
    """It is written down apart from them, so that help does not load a broker's client."""
    page = CliRunner().invoke(app, ["bench", "--help"], env={"COLUMNS": "200"}).stdout
    assert [name for name in NAMES if name not in page] == []


def test_a_tiny_bench_measures_every_scenario(tmp_path: Path) -> None:
    """A real broker, real processes, every figure; at this scale the numbers mean nothing."""
    file = tmp_path / "figures.json"
    args = ["bench", "--scale", "0.001", "--dir", str(tmp_path), "--json", str(file)]
    result = CliRunner().invoke(app, args, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    assert max(len(line.rstrip()) for line in result.stdout.splitlines()) <= 80
    tree = json.loads(file.read_text())
    assert {each["scenario"] for each in tree["figures"]} == set(NAMES)
    assert all(each["value"] > 0 for each in tree["figures"] if each["figure"] in ("rate", "RSS"))
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]
