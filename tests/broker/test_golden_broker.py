"""A whole broker on stores that RocketMQ 4.9.8 wrote, and RocketMQ's demands on what it leaves."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqlite.kernel.requests.groups import OffsetsQuery
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.message import Message
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from rmqlite.store_tools.check import check
from tests.support.brokers import BrokerUnderTest
from tests.support.clock import FakeClock
from tests.support.golden import GROUP, INDEX, Row, rows
from tests.support.rocketmq_rules import violations

SIZES: dict[str, Any] = {
    "log_file_bytes": 1 << 20,
    "queue_file_bytes": 4_000,
    "index_slots": 1_000,
    "index_entries": 8_000,
}
DELIVERED = {1: 6, 2: 6, 3: 12, 4: 10, 5: 8}
"""What RocketMQ had delivered of each level: delayOffset.json."""


def pending(golden: Path) -> list[Row]:
    return [
        row
        for row in rows(golden)
        if row["topic"] == SCHEDULE_TOPIC
        and row["queueOffset"] >= DELIVERED.get(row["queueId"] + 1, 0)
    ]


def hashed(row: Row) -> tuple[str, int, str, str]:
    real = row["properties"]
    return real["REAL_TOPIC"], int(real["REAL_QID"]), real["UNIQ_KEY"], row["storedBodyMd5"]


@pytest.mark.parametrize("which", ["clean", "killed"])
def test_rocketmqs_own_stores_keep_its_rules(golden: Path, which: str) -> None:
    """The rules are read right: RocketMQ does as they say."""
    assert violations(golden / which, **SIZES, is_closed=which == "clean") == []


def test_broken_rules_are_seen(golden: Path) -> None:
    """One fault of each kind."""
    root = golden / "clean"
    (root / "commitlog" / f"{2 << 20:020d}").write_bytes(bytes(100))
    (root / "config" / "delayOffset.json").write_text('{"offsetTable": {"1": 6}}')
    (root / "consumequeue" / "orders" / "x").mkdir()
    queue = root / "consumequeue" / "orders" / "0" / f"{0:020d}"
    queue.write_bytes(bytes(20) + queue.read_bytes()[20:])
    (root / "abort").touch()
    found = "\n".join(violations(root, **SIZES))
    for said in ("100 bytes, not", "as fastjson", "not a queue id", "behind the", "clean stop"):
        assert said in found


def test_pending_messages_go_where_they_were_sent(golden: Path) -> None:
    """Each of levels 5 to 18 once, in its topic and queue, with its bytes, when it is due."""
    expected = pending(golden)
    assert len(expected) > 80
    due_ms = [row["tagsCode"] for row in expected]
    clock = FakeClock(min(due_ms) - 1)
    broker = BrokerUnderTest(golden / "clean", clock=clock, **INDEX)
    # What was due while nobody ran is delivered now; the store's newest record is later.
    now_ms = clock.now_ms()
    delivered = broker.deliver()
    assert delivered == sum(1 for each in due_ms if each <= now_ms)
    clock.forward(max(due_ms) - 1 - clock.now_ms())
    delivered += broker.deliver()
    last = [row for row in expected if row["tagsCode"] == max(due_ms)]
    assert delivered == len(expected) - len(last)
    clock.forward(1)
    assert broker.deliver() == len(last)
    known = Counter(
        (row["topic"], row["queueId"], row["properties"].get("UNIQ_KEY"), row["storedBodyMd5"])
        for row in rows(golden)
    )
    found = Counter(
        (topic, queue_id, message.properties.get("UNIQ_KEY"), hashlib.md5(message.body).hexdigest())
        for topic, queue_id in broker.store.queue_keys()
        if topic != SCHEDULE_TOPIC and broker.broker.topics.get(topic)
        for message in broker.messages(topic, queue_id)
    )
    assert found - known == Counter(hashed(row) for row in expected)
    broker.close()
    assert list(check(golden / "clean")) == []
    assert violations(golden / "clean", **SIZES) == []


def test_consumers_go_on_where_they_were(broker: BrokerUnderTest) -> None:
    """consumerOffset.json: 604 in each queue of orders, 10 of 10 retries."""
    queues = [Queue("orders", n) for n in range(4)]
    asked = OffsetsQuery(GROUP, (*queues, Queue(f"%RETRY%{GROUP}", 0)))
    offsets = broker.broker.query_offsets(asked)
    retried = offsets.pop(Queue(f"%RETRY%{GROUP}", 0))
    for queue, offset in offsets.items():
        held = broker.store.queue(queue.topic, queue.queue_id)
        assert held is not None
        assert 0 < offset <= held.max_offset
    assert set(offsets) == set(queues)
    assert retried > 0


def test_what_is_left_keeps_rocketmqs_rules(broker: BrokerUnderTest) -> None:
    """After sends at every kind of level, failures, deliveries, edits, a crash and a stop."""
    root = broker.config.store_path
    for number in range(30):
        broker.send(Message("orders", b"x" * 60_000, keys=f"new-{number}", delay_level=number % 4))
    broker.clock.forward(20_000)
    broker.deliver()
    newest = broker.messages("orders")[-1]
    for delay_level in (0, -1):
        broker.broker.send_back(SendBackRequest(GROUP, newest.physical_offset, delay_level, "why"))
    broker.sync()
    broker.persist()
    broker.crash()
    broker.open()
    broker.clock.forward(60_000)
    broker.deliver()
    broker.close()
    assert violations(root, **SIZES) == []
    assert list(check(root)) == []
    broker.open()
