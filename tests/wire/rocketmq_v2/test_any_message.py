"""Whatever a client sends is stored or refused in words; whatever is stored can be received."""

from __future__ import annotations

import contextlib
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import event, given, settings
from hypothesis import strategies as st

from rmqlite.kernel.admission import check_draft
from rmqlite.kernel.records.drafts import fresh
from rmqlite.kernel.records.encoding import encode
from rmqlite.kernel.records.record import read_head
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.protocols.rocketmq_v2.bytes.codes import RocketmqRefusal
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import definition
from tests.support.rocketmq_v2 import HOST, NOW_MS, TOPIC, drafted, message_of
from tests.support.stores import new_record
from tests.support.thinned import part_of

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
PLAIN = st.text("ab é-", min_size=1, max_size=8).filter(str.strip)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TEXT = st.one_of(PLAIN, PLAIN, PLAIN, ANY_TEXT)
"""Mostly what is accepted."""
NANOS = st.one_of(st.integers(-5, 5), INT32)
TIMES = st.builds(Timestamp, seconds=st.one_of(st.integers(0, 1 << 33), INT64), nanos=NANOS)
DURATIONS = st.builds(Duration, seconds=st.one_of(st.integers(0, 4_000), INT64), nanos=NANOS)
SYSTEM: dict[str, st.SearchStrategy[Any]] = {
    "tag": TEXT,
    "keys": st.lists(TEXT, max_size=2),
    "body_encoding": st.one_of(st.just(1), st.integers(0, 2), INT32),
    "message_type": st.one_of(st.just(0), st.integers(0, 4), st.integers(0, 6), INT32),
    "born_timestamp": TIMES,
    "born_host": TEXT,
    "delivery_timestamp": TIMES,
    "message_group": TEXT,
    "trace_context": TEXT,
    "orphaned_transaction_recovery_duration": DURATIONS,
    "lite_topic": TEXT,
    "priority": INT32,
}
NAMES = st.integers(2, 12).flatmap(
    lambda most: st.sets(st.sampled_from(sorted(SYSTEM)), max_size=most)
)
SYSTEMS = NAMES.flatmap(
    lambda names: st.fixed_dictionaries({"message_id": TEXT} | {n: SYSTEM[n] for n in names})
)
GZIPS = st.binary(max_size=30).map(b"\x1f\x8b\x08".__add__)
BODIES = st.one_of(st.binary(min_size=1), st.binary(max_size=30), GZIPS)
PAIRS = st.tuples(
    st.one_of(
        st.sampled_from(
            b"KEYS TAGS UNIQ_KEY DELAY TIMER_OUT_MS TIMER_DELIVER_MS TRAN_MSG __SHARDINGKEY"
            b" __BORNHOST TRACE_CONTEXT ORIGIN_QUEUE_ID ORIGIN_QUEUE_OFFSET DLQ_ORIGIN_TOPIC"
            b" DLQ_ORIGIN_MESSAGE_ID".split()
        ),
        st.binary(max_size=6),
    ),
    st.one_of(st.binary(max_size=8), st.sampled_from([b"9" * 18, b"true", b"-1", b"17"])),
)
PROPERTIES = st.lists(PAIRS, max_size=6).map(
    lambda pairs: b"\x02".join(name + b"\x01" + value for name, value in pairs)
)


@settings(deadline=None, max_examples=part_of(400))
@given(SYSTEMS, st.dictionaries(TEXT, TEXT, max_size=2), BODIES)
def test_any_message_is_stored_or_refused(
    system: dict[str, Any], user: dict[str, str], body: bytes
) -> None:
    """And a stored one comes out as it went in."""
    sent = definition.Message(
        topic=definition.Resource(name=TOPIC),
        user_properties=user,
        system_properties=definition.SystemProperties(**system),
        body=body,
    )
    try:
        draft = drafted(sent)
        check_draft(draft)
    except (RocketmqRefusal, InvalidValue):
        event("refused")
        return
    event("stored")
    new = fresh(draft, HOST, queue_id=max(0, draft.queue_id))
    data = encode(new, queue_offset=0, physical_offset=0, store_timestamp_ms=NOW_MS)
    head = read_head(data)
    assert head is not None
    got = message_of(Record(head, data), TOPIC)
    assert got.user_properties == sent.user_properties
    for name in ("tag", "message_id", "message_group", "trace_context"):
        assert getattr(got.system_properties, name) == getattr(sent.system_properties, name)
    joined = " ".join(sent.system_properties.keys)
    assert " ".join(got.system_properties.keys).split() == joined.split()


@settings(deadline=None, max_examples=part_of(400))
@given(
    properties=PROPERTIES,
    sys_flag=st.integers(0, 0xFFF),
    times=st.tuples(INT64, INT64, INT64, INT32),
    topic=st.sampled_from([TOPIC, "%RETRY%payers", "%DLQ%payers"]),
    body=st.binary(max_size=20),
)
def test_any_record_is_a_message(
    properties: bytes, sys_flag: int, times: tuple[int, int, int, int], topic: str, body: bytes
) -> None:
    """Also one that RocketMQ or a client in error has written: it must not stop a consumer."""
    born_ms, stored_ms, queue_offset, attempt = times
    data = encode(
        new_record(body, topic, properties=properties),
        queue_offset=0,
        physical_offset=0,
        store_timestamp_ms=0,
    )
    head = read_head(data)
    assert head is not None
    head = head._replace(
        sys_flag=sys_flag,
        born_timestamp_ms=born_ms,
        store_timestamp_ms=stored_ms,
        queue_offset=queue_offset,
    )
    message = message_of(Record(head, data), TOPIC, receipt_handle="h", attempt=attempt)
    with contextlib.suppress(RocketmqRefusal):
        drafted(message)
    assert definition.Message.FromString(message.SerializeToString()) == message
