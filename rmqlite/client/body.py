"""The body as its producer sent it: RocketMQ's clients compress long bodies.

The broker stores and forwards a body unchanged; this module inflates it before a client hands out
the message.  Send-back names a record by its physical offset, so a retry or a dead letter keeps
the bytes that were sent.  The bits of the sys flag are RocketMQ's (reference §1.2).
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Final

from rmqlite.errors import MessageTooLarge, NotSupported, Refused
from rmqlite.message import StoredMessage

INFLATED_BYTES_MAX: Final = 64 * 1024 * 1024
"""One kilobyte can inflate to a megabyte, and a consumer has many threads."""
COMPRESSED: Final = 0x1
CODEC: Final = 0x700
_ZLIB: Final = (0x000, 0x300)
"""Clients before 4.9.4 have no other codec and set no codec bits."""
_FOREIGN: Final = {0x100: "LZ4", 0x200: "ZSTD"}


def inflated(message: StoredMessage) -> StoredMessage:
    """The message with its real body, and a sys flag that no longer says "compressed".

    Raises NotSupported for a codec other than zlib, MessageTooLarge over INFLATED_BYTES_MAX,
    Refused for a body that is no whole zlib stream; each names the message.
    """
    if not message.sys_flag & COMPRESSED:
        return message
    plain_flag = message.sys_flag & ~(COMPRESSED | CODEC)
    # An empty body that is marked as compressed stays empty, as in RocketMQ's clients.
    body = _inflated(message) if message.body else b""
    return replace(message, body=body, sys_flag=plain_flag)


def _inflated(message: StoredMessage) -> bytes:
    codec = message.sys_flag & CODEC
    if codec not in _ZLIB:
        name = _FOREIGN.get(codec, f"codec {codec:#x}")
        rule = "send it with zlib (compressType=ZLIB) or uncompressed"
        sentence = f"the body of {_named(message)} is compressed with {name}: {rule}"
        raise NotSupported(sentence, field="body", value=name, rule=rule)
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(message.body, INFLATED_BYTES_MAX + 1)
    except zlib.error as error:
        raise _damaged(message, str(error)) from error
    if len(body) > INFLATED_BYTES_MAX:
        rule = f"{_named(message)} may inflate to {INFLATED_BYTES_MAX} bytes"
        raise MessageTooLarge("body", f"more than {INFLATED_BYTES_MAX}", rule)
    if not stream.eof:
        raise _damaged(message, "the stream ends too early")
    return body


def _damaged(message: StoredMessage, what: str) -> Refused:
    sentence = f"the body of {_named(message)} cannot be inflated: {what}"
    return Refused(sentence, field="body", value=message.message_id, rule="a whole zlib stream")


def _named(message: StoredMessage) -> str:
    where = f"{message.topic} queue {message.queue_id} offset {message.queue_offset}"
    return f"message {message.message_id} ({where})"
