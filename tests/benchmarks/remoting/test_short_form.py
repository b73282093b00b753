"""The short form of the benchmark of RocketMQ's Java client: correct, however slow the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.remoting.run import compare, table
from tests.benchmarks.remoting.scenarios import Figure, Sizes

SHORT = Sizes(seconds=0.2, drained=500, parked=200, waited=20, timers=20)


@pytest.mark.long
@pytest.mark.parametrize(("timers", "count"), [(False, 11), (True, 8)])
def test_the_benchmark_runs_and_every_message_is_stored_and_received_once(
    tmp_path: Path, timers: bool, count: int
) -> None:
    """Each scenario fails at a refused send, and if a message is lost, early or comes twice."""
    rows = compare(tmp_path, "SYNC_FLUSH", SHORT, with_rocketmq=False, timers=timers)
    assert len(rows) == count
    for name, figures in rows:
        assert list(figures) == ["rmqlite"], name
        assert figures["rmqlite"][0].value > 0, name
    lines = table(rows).splitlines()
    assert len(lines) == len(rows) + 1
    assert len(set(map(len, lines))) == 1


def test_the_ratio_is_the_median_of_the_turns_ratios() -> None:
    """Not that of the medians: both brokers are slow together when the machine is."""
    rates, times = ((50, 100), (300, 200), (90, 90)), ((2, 1), (1, 2), (4, 2))
    rows = [
        (
            unit,
            {
                "a": [Figure(a, unit, 1) for a, _ in pairs],
                "b": [Figure(b, unit, 1) for _, b in pairs],
            },
        )
        for unit, pairs in (("/s", rates), ("ms", times))
    ]
    assert [line.split()[-3] for line in table(rows).splitlines()[1:]] == ["1.00", "0.50"]
