"""A batch: several messages in the body of one send.

    i32 length of all of the item · i32 magic · i32 CRC · i32 flag · i32 length · body
    i16 length · property string

Magic and CRC are 0 from all clients; the broker computes the CRC itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from rmqlite import compiled
from rmqlite.compiled import SPAN
from rmqlite.limits import PROPERTIES_BYTES_MAX
from rmqlite.wire.remoting.limits import BATCH_MESSAGES_MAX
from rmqlite.wire.remoting.names import FieldError

_START: Final = Struct(">iiiii")
"""Length of the item, magic, CRC, flag, length of the body."""
_PROPERTIES: Final = Struct(">h")
_RULE: Final = "an item that ends where its length says"


class BatchItem(NamedTuple):
    """A message to write.  properties: a property string; Go sends none at all."""

    flag: int
    body: bytes
    properties: bytes


def read_batch(body: bytes, *, messages_max: int = BATCH_MESSAGES_MAX) -> bytes:
    """A SPAN of each item, of which there is at least one; see rmqlite.compiled.

    Raises FieldError with the place of an item that is cut or longer.
    """
    spans = compiled.loops.batch_spans(body, messages_max) if compiled.is_on else None
    return _spans(body, messages_max) if spans is None else spans


def _spans(body: bytes, messages_max: int) -> bytes:
    spans: list[bytes] = []
    at, size = 0, len(body)
    while at < size or not spans:
        place = f"body.{len(spans)}"
        if len(spans) >= messages_max:
            raise FieldError("body", "a batch", f"at most {messages_max} messages")
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
