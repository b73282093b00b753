"""Figures: ranks, units and rows; what is measured is a journey's matter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmqlite.cli.bench.figures import Figure, percentile, spread, table_rows, value_text


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
    row = "rate 24,013 msg/s, p50 0.50 ms, p99 1.25 ms, max 1.25 ms"
    assert table_rows(figures) == [("send", "8 threads", row)]
    assert value_text(Figure("", "", "", 12.34, "ms")) == "12.3 ms"
