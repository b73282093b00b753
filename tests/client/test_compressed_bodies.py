"""Bodies that RocketMQ's clients compressed: consumers hand out what was sent."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from rmqlite.client import CONSUME_SUCCESS, ConsumeResult, Message, PullConsumer, PushConsumer
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.compression import COMPRESSED
from rmqlite.kernel.words.errors import ExtraMissing, NotSupported, Refused, RmqliteError
from rmqlite.kernel.words.message import StoredMessage
from tests.support.compressed import COMPRESS, LZ4, UNKNOWN, ZSTD, without_the_extra
from tests.support.fake_broker import FakeBroker

BODY = b"order " * 1_000
ZLIB = zlib.compress(BODY, 5)
QUEUE = Queue("orders", 0)


@pytest.fixture
def puller(broker: FakeBroker) -> Iterator[PullConsumer]:
    broker.add_queues("orders")
    with PullConsumer(broker.endpoint, "g") as consumer:
        yield consumer


def add(broker: FakeBroker, *bodies: bytes, **fields: Any) -> None:
    for body in bodies:
        broker.add(Message("orders", body), **fields)


def test_a_pull_gives_real_bodies(broker: FakeBroker, puller: PullConsumer) -> None:
    """Compressed and plain ones side by side."""
    add(broker, b"plain")
    for sys_flag, compress in COMPRESS.items():
        add(broker, compress(BODY), sys_flag=sys_flag)
    pulled = puller.pull("orders", 0).messages
    assert [(m.body, m.sys_flag) for m in pulled] == [(b"plain", 0), *[(BODY, 0)] * len(COMPRESS)]
    stored = puller.pull("orders", 0, 0, inflate=False).messages
    assert [(m.body, m.sys_flag) for m in stored[1:]] == [
        (compress(BODY), sys_flag) for sys_flag, compress in COMPRESS.items()
    ]


def test_a_pull_stops_at_what_cannot_be_inflated(broker: FakeBroker, puller: PullConsumer) -> None:
    """What lies before it is handed out, and what lies behind it can be reached."""
    add(broker, b"a", b"b")
    add(broker, ZLIB, sys_flag=UNKNOWN)
    add(broker, b"c")
    pulled = puller.pull("orders", 0)
    assert ([m.body for m in pulled.messages], pulled.next_offset) == ([b"a", b"b"], 2)
    for _ in range(2):
        with pytest.raises(NotSupported, match="orders queue 0 offset 2"):
            puller.pull("orders", 0)
    assert puller.position(QUEUE) == 2
    with pytest.raises(NotSupported):
        puller.pull("orders", 0, 2)
    puller.seek(QUEUE, 3)
    assert [m.body for m in puller.pull("orders", 0).messages] == [b"c"]


def test_what_a_pull_leaves_out_need_not_be_readable(
    broker: FakeBroker, puller: PullConsumer
) -> None:
    """Tags are properties, and those are never compressed."""
    add(broker, ZLIB, sys_flag=UNKNOWN, properties={"TAGS": "A"})
    add(broker, b"b", properties={"TAGS": "B"})
    assert [m.body for m in puller.pull("orders", 0, expression="B").messages] == [b"b"]


@pytest.mark.parametrize(
    ("body", "sys_flag", "error"),
    [
        (ZLIB, UNKNOWN, NotSupported),
        (ZLIB[:9], COMPRESSED, Refused),
        (ZLIB, LZ4, ExtraMissing),
        (ZLIB, ZSTD, ExtraMissing),
    ],
)
def test_a_listener_gets_real_bodies_and_the_rest_is_sent_back_with_the_reason(
    broker: FakeBroker,
    body: bytes,
    sys_flag: int,
    error: type[RmqliteError],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It becomes a dead letter in the end, and blocks nobody meanwhile; a letter names the extra
    that this consumer needs."""
    without_the_extra(monkeypatch)
    broker.add_queues("orders")
    add(broker, body, sys_flag=sys_flag)
    add(broker, ZLIB, sys_flag=COMPRESSED)
    seen: list[StoredMessage] = []

    def listener(message: StoredMessage) -> ConsumeResult:
        seen.append(message)
        return CONSUME_SUCCESS

    with PushConsumer(broker.endpoint, "g", listener, commit_interval_ms=10) as consumer:
        consumer.subscribe("orders")
        consumer.start()
        broker.until(lambda: broker.committed.get(QUEUE) == 2)
    assert [(message.body, message.sys_flag) for message in seen] == [(BODY, 0)]
    (asked,) = broker.asked["SendBack"]
    assert (asked.physical_offset, asked.delay_level) == (1_000, 0)
    assert asked.reason.startswith(f"{error.__name__}: ")
    assert "the body of message" in asked.reason
    assert (error is ExtraMissing) == ('"rmqlite[compression]"' in asked.reason)
