"""Messages whose bodies look like records: whoever sends one has chosen all that is in it."""

from __future__ import annotations

from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.encoding import encode
from rmqlite.kernel.records.record import NewRecord, layout_of
from rmqlite.kernel.sends.calls import DraftCall
from tests.support.brokers import BrokerUnderTest
from tests.support.sends import BORN_HOST
from tests.support.steps import done


def send_look_alike(
    broker: BrokerUnderTest, topic: str, look: NewRecord, queue_offset: int = 0
) -> int:
    """Send a message whose body is this record; the physical offset at which it begins."""
    at = broker.store.end + layout_of(BORN_HOST, look.store_host).size
    body = encode(
        look,
        queue_offset=queue_offset,
        physical_offset=at,
        store_timestamp_ms=broker.clock.now_ms(),
    )
    (outcome,) = done(
        broker.broker.drafts.send([DraftCall((Draft(topic, 0, b"", body, 17, BORN_HOST),))])
    )
    assert not isinstance(outcome, Exception)
    broker.sync()
    assert broker.store.read_record(at).head.topic == look.topic
    return at
