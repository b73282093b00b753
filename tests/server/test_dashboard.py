"""The Grafana dashboard shows every metric, and none that does not exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqlite.kernel.words.message import Message
from tests.support.brokers import BrokerUnderTest
from tests.support.scrape import METRIC, Scrape, scrape

PATH = Path(__file__).resolve().parents[2] / "examples" / "grafana-dashboard.json"
DASHBOARD: dict[str, Any] = json.loads(PATH.read_text("utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
SHOWN = [panel for panel in PANELS if panel["type"] != "row"]
LABELS = re.compile(r"\bby \(([a-z, ]+)\)")


@pytest.fixture
def found(tmp_path: Path) -> Iterator[Scrape]:
    under_test = BrokerUnderTest(tmp_path)
    under_test.send(Message("orders", b"x", delay_level=1))
    under_test.send(*[Message("orders", b"x", deliver_after=each) for each in ("1s", "1h")])
    under_test.clock.forward(1_000)
    under_test.deliver()
    under_test.messages("orders")
    yield scrape(under_test)
    under_test.store.release()


def expressions() -> list[str]:
    return [target["expr"] for panel in SHOWN for target in panel["targets"]]


def test_every_metric_that_is_shown_exists(found: Scrape) -> None:
    """A panel with an old name stays empty, and looks like a broker at rest."""
    used = {name for each in expressions() for name in METRIC.findall(each)}
    variables = [each["definition"] for each in DASHBOARD["templating"]["list"][1:]]
    used |= {name for each in variables for name in METRIC.findall(each)}
    assert used <= found.sample_names()


def test_every_metric_is_shown(found: Scrape) -> None:
    """A new metric needs a place on the dashboard."""
    text = " ".join(expressions())
    assert [name for name in found.families if name not in text] == []


def test_only_labels_that_exist_are_grouped_by(found: Scrape) -> None:
    """Grouping by another gives one nameless line."""
    for expression in expressions():
        (metric, *_) = METRIC.findall(expression)
        there = {name for labels in found.labels(metric) for name, _ in labels} | {"instance"}
        for names in LABELS.findall(expression):
            assert set(names.split(", ")) <= there, expression


def test_a_counter_is_shown_as_a_rate_and_a_histogram_by_its_buckets() -> None:
    """A count since the start means nothing over time, least of all across restarts."""
    for expression in expressions():
        for name in METRIC.findall(expression):
            if name.endswith(("_total", "_bucket", "_count")):
                assert re.search(rf"\b(rate|increase)\({name}\{{", expression), expression
        if "histogram_quantile" in expression:
            assert re.search(r"by \(le\b.*_bucket\{", expression), expression


def test_it_is_a_dashboard_that_grafana_takes_as_it_is() -> None:
    """It needs no plug-in and no special data source, and no edit after the import."""
    assert DASHBOARD["schemaVersion"] >= 39
    assert "id" not in DASHBOARD
    assert "__inputs" not in DASHBOARD
    source, instance = DASHBOARD["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    assert instance["name"] == "instance"
    for panel in SHOWN:
        assert panel["type"] in {"stat", "timeseries", "heatmap"}
        assert panel["title"]
        assert panel["description"].endswith(".")
        for each in (panel, *panel["targets"], instance):
            assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            assert 'instance=~"$instance"' in target["expr"]


def test_panels_have_their_own_place() -> None:
    """Grafana pushes overlapping ones somewhere else."""
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
