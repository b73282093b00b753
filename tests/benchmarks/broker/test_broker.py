"""The large benchmarks: figures, documents and plots; scenarios run once, tiny, with --long.

Without --long, one scenario runs, by the command.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.progress import Progress
from typer.testing import CliRunner, Result

from rmqlite.client import Producer
from rmqlite.extras import EXTRAS
from rmqlite.kernel.words.message import Message
from rmqlite.store_tools.check import check
from rmqlite.testing import BrokerProcess
from tests.benchmarks.broker import growth, loads, plot, timers
from tests.benchmarks.broker.bench import Bench
from tests.benchmarks.broker.document import differences, document, document_of
from tests.benchmarks.broker.figures import (
    Figure,
    case_at,
    compared_rows,
    medians,
    percentile,
    spread,
    table_rows,
)
from tests.benchmarks.broker.run import app
from tests.benchmarks.broker.scenarios import SCENARIOS, measure, most_in


def run(*words: str | Path) -> Result:
    """The command."""
    return CliRunner().invoke(app(), [str(each) for each in words], env={"COLUMNS": "80"})


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


def test_a_median_is_the_middle_run_and_keeps_all_runs() -> None:
    """One run that another program slowed down does not move the figure."""
    values = (300.0, 100.0, 290.0)
    runs = [[Figure("send", "1", "rate", each, "msg/s")] for each in values]
    (figure,) = medians(runs)
    assert (figure.value, figure.runs) == (290, values)
    assert (figure.lowest, figure.highest) == (100, 300)
    assert medians(runs[:1]) == runs[0]


def test_a_ratio_above_1_is_better_whatever_the_unit() -> None:
    """More messages per second are better; more milliseconds, bytes or CPU are worse."""

    def of(value: float, unit: str) -> Figure:
        return Figure("s", "c", "f", value, unit)

    assert of(200, "msg/s").ratio(of(100, "msg/s")) == 2
    assert of(200, "MB/s").ratio(of(100, "MB/s")) == 2
    for unit in ("ms", "s", "MiB", "% of a core", "msg"):
        assert of(200, unit).ratio(of(100, unit)) == 0.5
    assert of(0, "ms").ratio(of(0, "ms")) == 1
    assert of(0, "ms").ratio(of(1, "ms")) is None
    assert of(1, "msg/s").ratio(of(0, "msg/s")) is None


def test_a_case_that_one_side_lacks_has_a_dash() -> None:
    """Scenarios that did not run now are left out: they say nothing about this run."""
    now = [Figure("send", "1", "rate", 300, "msg/s"), Figure("send", "2", "rate", 5, "msg/s")]
    old = [Figure("send", "1", "rate", 200, "msg/s"), Figure("send", "3", "rate", 7, "msg/s")]
    assert compared_rows(now, [*old, Figure("drain", "1", "rate", 1, "msg/s")]) == [
        ("send", "1", "rate", "300 msg/s", "200 msg/s", "1.50"),
        ("send", "2", "rate", "5.00 msg/s", "-", "-"),
        ("send", "3", "rate", "-", "7.00 msg/s", "-"),
    ]


def test_a_document_is_read_as_it_was_written() -> None:
    """With the machine and every run, and it says what makes two documents hard to compare."""
    figures = [Figure("send", "1", "rate", 2.0, "msg/s", (1.0, 2.0, 3.0))]
    made = document(figures, flush="SYNC_FLUSH", scale=0.5, repeat=3)
    again = document_of(made.to_json())
    assert again == made
    assert (made.cpus > 0, made.cpu_model != "", made.grpcio != "") == (True, True, True)
    other = dataclasses.replace(made, flush_disk_type="ASYNC_FLUSH", scale=1.0, version="9")
    assert differences(made, again) == []
    assert differences(made, other) == [
        "flush_disk_type was ASYNC_FLUSH, now it is SYNC_FLUSH",
        "scale was 1.0, now it is 0.5",
    ]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"format": None}, "expected format: 2, found none"),
        ({"format": 3}, "expected format: 2, found 3"),
        ({"cpus": "two"}, "expected cpus: a whole number, found 'two'"),
        ({"figures": {}}, "expected figures: a list, found an object"),
        ({"figures": [7]}, "expected figures.0: an object, found 7"),
        (
            {"figures": [{"scenario": "s", "case": "c", "figure": "f", "unit": "s", "runs": []}]},
            "expected figures.0.value: a value, found nothing",
        ),
    ],
)
def test_another_document_is_refused_before_the_measurement(
    tmp_path: Path, change: dict[str, object], rule: str
) -> None:
    """It takes minutes; the error names the file, the place in it and the rule."""
    tree = json.loads(document([], flush="SYNC_FLUSH", scale=1, repeat=1).to_json())
    file = tmp_path / "earlier.json"
    file.write_text(json.dumps(tree | change))
    result = run("send", "--compare", file)
    assert result.exit_code == 2
    assert str(file) in result.stderr
    assert rule in result.stderr


@pytest.mark.parametrize("content", [b"[]", b"no json", b"\xff", None])
def test_a_file_that_is_no_document_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """Also one that is not there."""
    file = tmp_path / "earlier.json"
    if content is not None:
        file.write_bytes(content)
    result = run("send", "--compare", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: --compare must be a file that")


def test_an_output_that_cannot_be_written_is_refused_before_the_measurement(
    tmp_path: Path,
) -> None:
    """A folder that is missing, or a plot that is no PNG."""
    for option, file in (("--plot", "a.svg"), ("--plot", "no/a.png"), ("--json", "no/a.json")):
        result = run("send", option, tmp_path / file)
        assert (result.exit_code, option in result.stderr) == (2, True), result.output


def test_without_matplotlib_a_plot_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the measurement, too."""

    monkeypatch.setitem(EXTRAS, "plot", {"no-such-package": ((1,), (2,))})
    result = run("send", "--plot", tmp_path / "a.png")
    assert 'pip install "rmqlite[plot]"' in str(result.exception)


def test_a_plot_has_bars_of_rates_and_curves_of_growth() -> None:
    """A chosen rate is no result; a case that the earlier run lacks has no second bar."""
    figures = [Figure("send", "1 thread", "rate", 300, "msg/s", (280, 300, 310))]
    figures += [Figure("rates", "1/s stored", "rate", 1, "msg/s")]
    figures += [Figure("check", "all", "rate", 900, "MB/s")]
    figures += spread("send", "1 thread", [1.0])
    for count, rate in ((10_000, 50), (1, 70)):
        figures.append(Figure("growth", case_at("sends, topics", count), "rate", rate, "msg/s"))
    assert plot.bars_of(figures) == figures[:1]
    assert plot.curves_of(figures) == {"sends, topics": [(1, 70), (10_000, 50)]}
    pytest.importorskip("matplotlib")
    now = document(figures, flush="SYNC_FLUSH", scale=1, repeat=3)
    nothing = dataclasses.replace(now, figures=())
    for pair in ((now, None), (now, now), (now, nothing), (nothing, None)):
        assert plot.png(*pair).startswith(b"\x89PNG")


def test_a_long_log_of_holes_is_a_sound_store(tmp_path: Path) -> None:
    """A broker begins behind the holes, and the check walks over them without a complaint."""
    process = BrokerProcess(tmp_path, {})
    growth.lay_log(process.store, 50)
    with process as broker, Producer(broker.endpoint, "group") as producer:
        at = producer.send(Message("topic", b"x")).physical_offset
    # The tables come first: the topic's.
    assert 50 << 30 < at < (50 << 30) + 10_000
    assert list(check(process.store)) == []


@pytest.mark.long
def test_growth_has_a_point_for_each_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few topics, files and consumers are enough to run every line."""
    monkeypatch.setattr(growth, "TOPICS", (3_000,))
    monkeypatch.setattr(growth, "LOG_GB", (2,))
    monkeypatch.setattr(growth, "CONSUMERS", (2_000,))
    with Progress(disable=True) as progress:
        figures = list(
            growth.growth(Bench(tmp_path, "ASYNC_FLUSH", 0.001, progress, in_one_process=True))
        )
    rates = {each.case: each.value for each in figures if each.figure == "rate"}
    nouns = ("waiting consumers: 2", "topics: 3", "GB of log: 2")
    assert list(rates) == [f"{what}, {noun}" for noun in nouns for what in ("sends", "pulls")]
    assert min(rates.values()) > 0


@pytest.mark.long
@pytest.mark.parametrize("names", [each for each in SCENARIOS if each != ("growth",)], ids="-".join)
def test_every_scenario_gives_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    """A real broker and every figure; at this scale the numbers mean nothing."""
    monkeypatch.setattr(timers, "SENDS", ((2, 2),))
    monkeypatch.setattr(timers, "BESIDE_PER_S", 100)
    monkeypatch.setattr(loads, "SPREAD_MESSAGES", 8)
    with Progress(disable=True) as progress:
        bench = Bench(tmp_path, "ASYNC_FLUSH", 0.001, progress, pending=20, in_one_process=True)
        figures = list(measure(bench, frozenset(names)))
    assert {each.scenario for each in figures} == set(names)
    assert all(each.value > 0 for each in figures if each.figure in ("rate", "RSS"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_run_is_compared_with_an_earlier_one(tmp_path: Path) -> None:
    """With processes that make the load, a document, and a table of 80 columns."""
    file = tmp_path / "figures.json"
    args = ("batch", "--repeat", "1", "--scale", "0.001", "--dir", tmp_path, "--json", file)
    first = run(*args)
    assert first.exit_code == 0, first.output
    assert {each["scenario"] for each in json.loads(file.read_text())["figures"]} == {"batch"}
    figures = document_of(file.read_text()).figures
    assert len(compared_rows(figures, figures)) == len(figures)
    assert max(len(line.rstrip()) for line in first.stdout.splitlines()) <= 80
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_percentiles_are_values_that_were_measured() -> None:
    """The nearest rank: no figure between two measurements is made up."""
    ordered = [float(n) for n in range(1, 101)]
    assert (percentile(ordered, 50), percentile(ordered, 99), percentile([7.0], 99)) == (50, 99, 7)
    assert percentile([], 50) == 0


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(1, 100))
def test_a_percentile_lies_within_the_values(values: list[float], percent: float) -> None:
    """Whatever is asked for."""
    assert percentile(sorted(values), percent) in values
