"""A task that reads stretches of several queues, which lie in the log between each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqlite.kernel.words.message import Message
from rmqlite.spark.arrow.partitions import QueueSlices, QueueStretch
from rmqlite.spark.options import parse_options
from rmqlite.spark.partitions import read_partition
from tests.support.brokers import BrokerUnderTest


@pytest.fixture
def broker(tmp_path: Path) -> BrokerUnderTest:
    """Sixty messages, in three queues in turn."""
    made = BrokerUnderTest(tmp_path / "store")
    for number in range(60):
        made.send(Message("orders", b"m%d" % number, keys=f"k{number}"), queue_id=number % 3)
    made.close()
    return made


@pytest.mark.parametrize("batch_rows", ["7", "16384"])
@pytest.mark.parametrize("queues", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_several_queues_are_read_in_any_order(
    broker: BrokerUnderTest, queues: tuple[int, ...], batch_rows: str
) -> None:
    """Each record once, with its own fields; those of a queue in their order."""
    options = parse_options({"path": str(broker.config.store_path), "batchRows": batch_rows})
    stretches = tuple(QueueStretch("orders", queue_id, 3, 20) for queue_id in queues)
    columns = ("topic", "queue_id", "queue_offset", "body", "keys")
    rows = [
        tuple(row.values())
        for batch in read_partition(QueueSlices(stretches), options, columns)
        for row in batch.to_pylist()
    ]
    wanted = {
        ("orders", number % 3, number // 3, b"m%d" % number, f"k{number}")
        for number in range(9, 60)
    }
    assert len(rows) == len(wanted)
    assert set(rows) == wanted
    for queue_id in queues:
        offsets = [row[2] for row in rows if row[1] == queue_id]
        assert offsets == sorted(offsets)
