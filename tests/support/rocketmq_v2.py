"""Messages of RocketMQ 5's gRPC protocol, as its clients send them, and as drafts of ours."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.words.message import pack_host
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code, RocketmqRefusal
from rmqlite.protocols.rocketmq_v2.bytes.messages import SendRules, draft_of, write_message
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import definition

TOPIC: Final = "orders"
ID: Final = "01A2B3C4D5E6F71234056789AB0000002A"
NOW_MS: Final = 1_700_000_000_000
HOST: Final = pack_host("10.0.0.9:40000")
DAY_MS: Final = 86_400_000
ALLOWED: Final = SendRules(body_bytes_max=4096, delay_ms_max=DAY_MS)


def outgoing(
    body: bytes = b"paid",
    user: dict[str, str] | None = None,
    topic: str = TOPIC,
    **system: Any,
) -> definition.Message:
    """A message; system: fields of its system properties."""
    fields = {"message_id": ID, "body_encoding": definition.IDENTITY, **system}
    return definition.Message(
        topic=definition.Resource(name=topic),
        user_properties=user or {},
        system_properties=definition.SystemProperties(**fields),
        body=body,
    )


def drafted(
    message: definition.Message, allowed: SendRules = ALLOWED, *, now_ms: int = NOW_MS
) -> Draft:
    """The draft of a message to a topic of four queues."""
    topic = message.topic.name
    return draft_of(message, topic, allowed, write_queues=4, born_host=HOST, now_ms=now_ms)


@contextmanager
def refused(code: Code, part: str) -> Iterator[None]:
    """The call is refused with this code, and a sentence "NAME must be RULE, not VALUE"."""
    with pytest.raises(RocketmqRefusal, match=re.escape(part)) as raised:
        yield
    assert raised.value.code is code
    assert " must be " in str(raised.value)
    assert len(str(raised.value)) < 400


def refusal(call: Callable[[], object]) -> tuple[Code, str]:
    """How a call is refused."""
    with pytest.raises(RocketmqRefusal) as raised:
        call()
    return raised.value.code, str(raised.value)


def header_of(access_key: str, secret: str, date_time: str) -> str:
    """The value of the entry authorization, as a client writes it."""
    signature = hmac.new(secret.encode(), date_time.encode(), "sha1").hexdigest()
    signed = f"SignedHeaders=x-mq-date-time, Signature={signature}"
    return f"MQv2-HMAC-SHA1 Credential={access_key}, {signed}"


def message_of(
    record: Record, topic: str, *, receipt_handle: str = "", attempt: int = 1
) -> definition.Message:
    """A record as a consumer gets it."""
    message = definition.Message()
    write_message(message, record, topic, receipt_handle=receipt_handle, attempt=attempt)
    return message
