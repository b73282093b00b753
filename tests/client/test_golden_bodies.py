"""What RocketMQ's own clients compressed, pulled from a store that RocketMQ wrote."""

from __future__ import annotations

from pathlib import Path

from rmqlite.kernel.words.compression import COMPRESSED, inflated
from tests.support.brokers import LONG_BODIES, BrokerUnderTest
from tests.support.files import QuickFiles
from tests.support.golden import unpack_golden

COMPRESSED_FROM_BYTES = 4_096
"""RocketMQ's producers leave shorter bodies alone."""


def test_every_body_that_rocketmqs_client_compressed_is_inflated(tmp_path: Path) -> None:
    """The golden producer's are one letter many times over; a retry has its origin's."""
    broker = BrokerUnderTest(unpack_golden(tmp_path) / "clean", files=QuickFiles(), **LONG_BODIES)
    queues = [("orders", queue_id) for queue_id in range(4)]
    queues += [("%RETRY%order-closer", 0), ("%DLQ%order-closer", 0)]
    bodies: dict[str, set[bytes]] = {}
    count = 0
    for queue in queues:
        for message in broker.messages(*queue):
            real = inflated(message)
            if message.sys_flag & COMPRESSED:
                count += 1
                bodies.setdefault(real.message_id, set()).add(real.body)
                assert len(real.body) > COMPRESSED_FROM_BYTES > len(message.body)
                assert real.body == real.body[:1] * len(real.body)
            else:
                assert real is message
    broker.store.release()
    assert (count, len(bodies)) == (109, 107)
    assert {len(each) for each in bodies.values()} == {1}
