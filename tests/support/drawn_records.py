"""Random records, of every shape that a log may have, and the bytes of a log that has them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from rmqlite.kernel.records import record
from rmqlite.kernel.records.completion import UNDELIVERABLE_TOPIC
from rmqlite.kernel.records.encoding import encode
from rmqlite.kernel.records.record import NewRecord
from rmqlite.kernel.records.wait_queues import WAIT_TOPICS
from rmqlite.kernel.words.message import pack_host
from rmqlite.kernel.words.names import CANCELLED_TOPIC
from tests.support.stores import new_record

NAMES = (
    *("KEYS", "TAGS", "UNIQ_KEY", "DELAY", "REAL_TOPIC", "REAL_QID", "RETRY_TOPIC", "FIRED"),
    *("ORIGIN_MESSAGE_ID", "ORIGIN_QUEUE_ID", "ORIGIN_QUEUE_OFFSET", "RESCHEDULED_FROM"),
    *("FIRST_FAILURE_TIMESTAMP", "FAILURE_REASON", "DLQ_ORIGIN_TOPIC", "DELIVERY_ATTEMPTS"),
    *("CLAIMED_ORIGIN_TOPIC", "CLAIMED_ORIGIN_MESSAGE_ID"),
    *("TIMER_OUT_MS", "TIMER_EXACT", "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"),
    *("colour", "customer_identifier_1", "customer_identifier_2", "é"),
)
HOSTS = tuple(map(pack_host, ("10.0.0.1:1234", "255.1.2.3:65535", "[2001:db8::1]:80")))
values = st.one_of(
    st.sampled_from(
        [
            "%RETRY%g",
            "%DLQ%g",
            "1",
            "3",
            "18",
            "0",
            "-1",
            "+2",
            "99999999999",
            "1763700000000",
            "1763700000400",
            "999999999999999999",
            "ü",
            "",
        ]
    ),
    st.text("ab 1\x01", max_size=9),
)
pairs = st.tuples(st.sampled_from(NAMES), values).map(lambda pair: "\x01".join(pair).encode())
segments = st.one_of(pairs, st.binary(max_size=6), st.just(b""))
property_strings = st.lists(segments, max_size=7).map(b"\x02".join)
new_records = st.builds(
    lambda topic, queue_id, properties, body, sys_flag, hosts, completes, born_ms: new_record(
        body,
        topic,
        queue_id,
        flag=-7,
        sys_flag=sys_flag,
        born_timestamp_ms=born_ms,
        born_host=hosts[0],
        store_host=hosts[1],
        reconsume_times=3,
        completes=completes,
        properties=properties,
    ),
    st.sampled_from(
        ["orders", "é", *WAIT_TOPICS, CANCELLED_TOPIC, UNDELIVERABLE_TOPIC, "%RETRY%g", "a" * 127]
    ),
    st.integers(0, 3),
    property_strings,
    st.one_of(st.binary(max_size=60), st.just(record.MAGIC_BYTES * 20)),
    st.sampled_from([0, 1, 4, 8, 12]),
    st.tuples(st.sampled_from(HOSTS), st.sampled_from(HOSTS)),
    st.sampled_from([0, 0, 1, 1 << 40]),
    st.sampled_from([0, 1_763_700_000_000, (1 << 62) - 1, -(1 << 63)]),
)


def encoded(news: Sequence[NewRecord]) -> bytes:
    """The records as a log that begins with the first."""
    log = b""
    for number, new in enumerate(news):
        place = {"queue_offset": number, "physical_offset": len(log), "store_timestamp_ms": 5}
        log += encode(new, **place)
    return log
