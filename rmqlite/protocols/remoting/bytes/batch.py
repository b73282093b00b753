"""A batch: several messages in the body of one send.

    i32 length of all of the item · i32 magic · i32 CRC · i32 flag · i32 length · body
    i16 length · property string

Magic and CRC are 0 from all clients; the broker computes the CRC itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from rmqlite.kernel.compiled import SPAN, in_c, only_in_c
from rmqlite.kernel.words.errors import MessageTooLarge
from rmqlite.kernel.words.limits import PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import (
    DELAY,
    KEYS,
    MAX_RECONSUME_TIMES,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    Message,
    encode_properties,
)
from rmqlite.protocols.remoting.bytes.fields import BATCH_MESSAGES_MAX, FieldError

_START: Final = Struct(">iiiii")
"""Length of the item, magic, CRC, flag, length of the body."""
_PROPERTIES: Final = Struct(">h")
batch_spans: Final = only_in_c("batch_spans")
"""(body, most messages) -> the spans; or the number of an item that breaks a rule, and where it
begins."""
_RULE: Final = "an item that ends where its length says"


class BatchItem(NamedTuple):
    """A message to write.  properties: a property string; Go sends none at all."""

    flag: int
    body: bytes
    properties: bytes


def read_batch(body: bytes, *, messages_max: int = BATCH_MESSAGES_MAX) -> bytes:
    """A SPAN of each item, of which there is at least one; see rmqlite.kernel.compiled.

    Raises FieldError with the place of an item that is cut or longer, and MessageTooLarge.
    """
    found = batch_spans(body, messages_max)
    if isinstance(found, bytes):
        return found
    # It raises the error of the item at which the compiled form has stopped.
    return _spans(body, messages_max, *(found or ()))


def _spans(body: bytes, messages_max: int, number: int = 0, at: int = 0) -> bytes:
    """The spans from an item on."""
    spans: list[bytes] = []
    size = len(body)
    while at < size or not spans:
        place = f"body.{number + len(spans)}"
        if number + len(spans) >= messages_max:
            rule = f"at most {messages_max} messages in one batch"
            raise MessageTooLarge("messages", f"more than {messages_max}", rule)
        if size - at < _START.size:
            raise FieldError(place, f"{size - at} bytes", _RULE)
        length, _, _, flag, body_bytes = _START.unpack_from(body, at)
        body_at = at + _START.size
        properties_at = body_at + body_bytes + _PROPERTIES.size
        end = at + length
        if body_bytes < 0 or not properties_at <= end <= size:
            raise FieldError(place, f"{length} bytes", _RULE)
        (properties_bytes,) = _PROPERTIES.unpack_from(body, properties_at - _PROPERTIES.size)
        if properties_bytes < 0 or properties_at + properties_bytes != end:
            raise FieldError(place, f"{properties_bytes} bytes of properties", _RULE)
        spans.append(SPAN.pack(flag, body_at, body_at + body_bytes, properties_at, end))
        at = end
    return b"".join(spans)


@in_c
def write_messages(messages: tuple[Message, ...]) -> bytes:
    """A client's messages as a batch; each has its id, and its level unless it has a delay.

    Raises MessageTooLarge.
    """
    return write_batch(BatchItem(each.flag, each.body, _properties_of(each)) for each in messages)


def _properties_of(message: Message) -> bytes:
    pairs = message_properties(message)
    if message.delay_level > 0 and message.delay is None:
        pairs[DELAY] = str(message.delay_level)
    encoded = encode_properties(pairs)
    if len(encoded) > PROPERTIES_BYTES_MAX:
        rule = f"at most {PROPERTIES_BYTES_MAX} bytes as a property string"
        raise MessageTooLarge("properties", len(encoded), rule)
    return encoded


def write_batch(items: Iterable[BatchItem]) -> bytes:
    """Raises FieldError for a property string that is too long for its length's field."""
    parts: list[bytes] = []
    for item in items:
        properties_bytes = len(item.properties)
        if properties_bytes > PROPERTIES_BYTES_MAX:
            rule = f"at most {PROPERTIES_BYTES_MAX} bytes"
            raise FieldError("properties", f"{properties_bytes} bytes", rule)
        length = _START.size + len(item.body) + _PROPERTIES.size + properties_bytes
        parts += (
            _START.pack(length, 0, 0, item.flag, len(item.body)),
            item.body,
            _PROPERTIES.pack(properties_bytes),
            item.properties,
        )
    return b"".join(parts)


def message_properties(message: Message, message_id: str = "") -> dict[str, str]:
    """The properties that a message is sent with; where it waits is for the broker to write."""
    pairs = dict(message.properties)
    if message.keys:
        pairs[KEYS] = " ".join(message.keys)
    if message_id or message.message_id:
        pairs[UNIQ_KEY] = message_id or message.message_id
    if message.delay_level < 0:
        # It delays nothing, so routing writes no level; RocketMQ stores it as it was sent.
        pairs[DELAY] = str(message.delay_level)
    if message.deliver_at is not None:
        pairs[TIMER_DELIVER_MS] = str(message.deliver_at_ms)
    if message.deliver_after is not None:
        pairs[TIMER_DELAY_MS] = str(message.deliver_after_ms)
    if message.max_reconsume_times is not None:
        pairs[MAX_RECONSUME_TIMES] = str(message.max_reconsume_times)
    if message.tags:
        pairs[TAGS] = message.tags
    return pairs
