"""A real broker goes on with its clock, and says when the wall clock is another one."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.request import urlopen

import pytest

from rmqlite.client import Message, Producer
from tests.support.broker_processes import StartBroker, free_port
from tests.support.scrape import Scrape

DAY_S = 86_400


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_restarted_broker_goes_on_with_its_clock(
    start_broker: StartBroker, tmp_path: Path, *, is_killed: bool
) -> None:
    """To the broker a wall clock that was set back a day is a clock that began a day later."""
    port = free_port()
    broker = start_broker(metricsPort=port)
    with Producer(broker.endpoint, "senders") as producer:
        due_ms = producer.send(Message("orders", b"x", delay_level=18)).deliver_at_ms
    if is_killed:
        broker.kill()
    else:
        broker.stop()
    (path,) = tmp_path.rglob("clock.json")
    tree = json.loads(path.read_text())
    tree["offsetNanos"] += DAY_S * 10**9
    tree["uptimeMillis"] -= DAY_S * 1000
    path.write_text(json.dumps(tree))

    broker.start()
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=180) as answer:
        found = Scrape(answer.read().decode())
    assert found.value("rmqlite_clock_ahead_of_wall_seconds") == pytest.approx(DAY_S, abs=60)
    assert found.value("rmqlite_clock_steps_total", direction="back") == 0
    with Producer(broker.endpoint, "senders") as producer:
        later_ms = producer.send(Message("orders", b"y", delay_level=18)).deliver_at_ms
    assert DAY_S * 1000 <= later_ms - due_ms < (DAY_S + 60) * 1000
    log = (tmp_path / "broker" / "broker.log").read_text()
    assert log.count("the broker's clock is not the wall clock") == 1
    assert "the wall clock stepped since its last run" in log
    assert json.loads(path.read_text())["offsetNanos"] == tree["offsetNanos"]
