"""Bodies that RocketMQ's clients compressed: consumers hand out what was sent."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rmqlite.client import CONSUME_SUCCESS, ConsumeResult, Message, PullConsumer, PushConsumer
from rmqlite.client.body import COMPRESSED, INFLATED_BYTES_MAX, inflated
from rmqlite.errors import MessageTooLarge, NotSupported, Refused, RmqliteError
from rmqlite.message import StoredMessage
from rmqlite.requests.topics import Queue
from tests.client.conftest import stored
from tests.support.fake_broker import FakeBroker

BODY = b"order " * 1_000
ZLIB = zlib.compress(BODY, 5)
COMMITTED = 0x8
BORN_HOST_V6 = 0x10
QUEUE = Queue("orders", 0)


def kept(body: bytes = ZLIB, sys_flag: int = COMPRESSED) -> StoredMessage:
    return replace(stored(7), body=body, sys_flag=sys_flag, properties={"UNIQ_KEY": "AC11"})


@pytest.mark.parametrize("codec", [0x000, 0x300])
def test_a_compressed_body_is_inflated(codec: int) -> None:
    """Clients before 4.9.4 name no codec; all else of the message is as it was."""
    message = kept(sys_flag=COMPRESSED | codec | COMMITTED | BORN_HOST_V6)
    plain_flag = COMMITTED | BORN_HOST_V6
    assert inflated(message) == replace(message, body=BODY, sys_flag=plain_flag)


def test_nobody_inflates_twice() -> None:
    """The sys flag says what the body is now, also when it looks like a zlib stream."""
    once = inflated(kept(zlib.compress(ZLIB)))
    assert once.body == ZLIB
    assert inflated(once) is once


def test_a_body_that_is_not_marked_is_left_alone() -> None:
    """Whatever it looks like, and whatever codec the bits would name."""
    message = kept(sys_flag=0x200)
    assert inflated(message) is message


def test_an_empty_body_stays_empty() -> None:
    """RocketMQ's clients do not look into one, however it is marked."""
    assert inflated(kept(b"", COMPRESSED | 0x100)) == kept(b"", 0)


@pytest.mark.parametrize(("codec", "name"), [(0x100, "LZ4"), (0x200, "ZSTD"), (0x700, "0x700")])
def test_another_codec_is_named(codec: int, name: str) -> None:
    """So that a person knows which client to change."""
    with pytest.raises(NotSupported, match=f"message AC11 .*{name}") as error:
        inflated(kept(sys_flag=COMPRESSED | codec))
    assert "zlib" in error.value.rule


@pytest.mark.parametrize(
    "body", [BODY, ZLIB[:-1], ZLIB[:2], ZLIB[:20] + b"~~~~" + ZLIB[24:], ZLIB[:-4] + b"sum?"]
)
def test_a_damaged_body_is_refused_by_name(body: bytes) -> None:
    """No zlib at all, cut short, changed inside, or with another checksum."""
    with pytest.raises(Refused, match=r"message AC11 \(t queue 0 offset 7\) cannot be inflated"):
        inflated(kept(body))


def test_a_body_may_inflate_to_the_limit_and_not_beyond() -> None:
    """Sixty-four kilobytes must not take a consumer's memory."""
    zeros = bytes(INFLATED_BYTES_MAX)
    assert len(inflated(kept(zlib.compress(zeros, 1))).body) == INFLATED_BYTES_MAX
    with pytest.raises(MessageTooLarge, match=f"AC11 .*{INFLATED_BYTES_MAX}"):
        inflated(kept(zlib.compress(zeros + b"0", 1)))


# ---- through the consumers


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
    add(broker, ZLIB, sys_flag=COMPRESSED)
    pulled = puller.pull("orders", 0).messages
    assert [(m.body, m.sys_flag) for m in pulled] == [(b"plain", 0), (BODY, 0)]


def test_a_pull_stops_at_what_cannot_be_inflated(broker: FakeBroker, puller: PullConsumer) -> None:
    """What lies before it is handed out, and what lies behind it can be reached."""
    add(broker, b"a", b"b")
    add(broker, ZLIB, sys_flag=COMPRESSED | 0x100)
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
    add(broker, ZLIB, sys_flag=COMPRESSED | 0x100, properties={"TAGS": "A"})
    add(broker, b"b", properties={"TAGS": "B"})
    assert [m.body for m in puller.pull("orders", 0, expression="B").messages] == [b"b"]


@pytest.mark.parametrize(
    ("body", "sys_flag", "error"),
    [(ZLIB, COMPRESSED | 0x200, NotSupported), (ZLIB[:9], COMPRESSED, Refused)],
)
def test_a_listener_gets_real_bodies_and_the_rest_is_sent_back_with_the_reason(
    broker: FakeBroker, body: bytes, sys_flag: int, error: type[RmqliteError]
) -> None:
    """It becomes a dead letter in the end, and blocks nobody meanwhile."""
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
    assert asked.reason.startswith(f"{error.__name__}: the body of message")
