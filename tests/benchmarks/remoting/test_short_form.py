"""The short form of the benchmark of RocketMQ's Java client: correct, however slow the machine."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.remoting.run import compare, table
from tests.benchmarks.remoting.scenarios import Sizes

SHORT = Sizes(seconds=0.2, drained=500, parked=200, waited=20)


def test_the_benchmark_runs_and_every_message_is_stored_and_received_once(tmp_path: Path) -> None:
    """Each scenario fails at a refused send, and at a message that is lost or comes twice."""
    rows = compare(tmp_path, "SYNC_FLUSH", SHORT, with_rocketmq=False)
    assert len(rows) == 9
    for name, figures in rows:
        assert list(figures) == ["rmqlite"], name
        assert figures["rmqlite"].value > 0, name
    lines = table(rows).splitlines()
    assert len(lines) == len(rows) + 1
    assert len(set(map(len, lines))) == 1
