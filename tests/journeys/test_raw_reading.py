"""Raw reading from a real broker that is killed, restarted and cleaned in the middle."""

from __future__ import annotations

import pytest

from rmqlite.client import Message, Producer
from rmqlite.client.raw import RawReader
from rmqlite.kernel.words.errors import OffsetGone
from tests.support.broker_processes import StartBroker

SEGMENT = 1 << 20


def test_a_killed_broker_is_read_on_from_where_one_was(start_broker: StartBroker) -> None:
    """The same bytes as the files hold, although it was killed and came back in between."""
    broker = start_broker(mappedFileSizeCommitLog=SEGMENT, maxMessageSize=1 << 19)
    with Producer(broker.endpoint, "shop") as producer:
        for number in range(40):
            producer.send(Message("orders", bytes([number]) * 100_000))
    with RawReader(broker.endpoint, patience_ms=60_000, chunk_bytes=1 << 18) as reader:
        found = reader.snapshot()
        assert found.segment_bytes == SEGMENT
        assert found.end_offset > 3 * SEGMENT
        chunks = reader.log(found.begin_offset, found.end_offset)
        parts = [next(chunks)[1]]
        broker.kill()
        broker.start()
        parts += [data for _, data in chunks]
        files = sorted((broker.store / "commitlog").iterdir())
        kept = b"".join([path.read_bytes() for path in files])[: found.end_offset]
        assert b"".join(parts) == kept
        records = 0
        for each in reader.snapshot(["orders"]).queues:
            queue = each.queue
            for chunk in reader.queue(queue.topic, queue.queue_id, 0, each.max_offset):
                assert chunk[:4] in kept
                records += len(chunk)
        assert 40 * 100_000 < records < found.end_offset


def test_what_retention_took_while_one_was_away_is_gone(start_broker: StartBroker) -> None:
    """The files' names say what is kept; the broker says the same."""
    broker = start_broker(mappedFileSizeCommitLog=SEGMENT, maxMessageSize=1 << 19)
    with Producer(broker.endpoint, "shop") as producer:
        for number in range(30):
            producer.send(Message("orders", bytes([number]) * 100_000))
    with RawReader(broker.endpoint, patience_ms=60_000, chunk_bytes=1 << 18) as reader:
        found = reader.snapshot()
        chunks = reader.log(0, found.end_offset)
        next(chunks)
        broker.stop()
        # What retention does, without waiting for its hour.
        first = min((broker.store / "commitlog").iterdir())
        first.unlink()
        broker.start()
        assert reader.snapshot().begin_offset == SEGMENT
        with pytest.raises(OffsetGone, match=f"first one kept is {SEGMENT}"):
            list(reader.log(SEGMENT // 2, found.end_offset))
        at, _ = next(reader.log(SEGMENT, found.end_offset))
        assert at == SEGMENT
