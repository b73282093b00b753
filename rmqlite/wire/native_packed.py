"""Sends and pulls of rmqlite.v1 by the compiled form, without an object for a message.

It costs a fifth of the plain form.  A request that is out of the ordinary, or too large, is left
to that, and so is its refusal.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from rmqlite import compiled
from rmqlite.config import BrokerConfig
from rmqlite.message import RESERVED_PROPERTIES
from rmqlite.requests.messages import PullResult, SendBatch, SentBatch
from rmqlite.wire import native, rpcs
from rmqlite.wire.pb import rmqlite_pb2 as pb

REQUEST_BYTES_MAX: Final = 1 << 20
"""Up to this length, and 500 messages, a request is read in 2 ms."""
ANSWER_BYTES_MAX: Final = 1 << 20
"""Records of so many bytes are written in 5 ms, even if they consist of tiny properties."""
_MESSAGES: Final = pb.PullResponse.DESCRIPTOR.fields_by_name["messages"].number


class Encoded(NamedTuple):
    """The whole answer of a call."""

    data: bytes


class PackedSends:
    """Reads the ordinary sends of one broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._messages_max = config.send_messages_max
        # A request is longer than its bodies.
        self._bytes_max = min(REQUEST_BYTES_MAX, config.send_bytes_max)

    def read(self, data: bytes) -> SendBatch | None:
        """A SendRequest; None if the plain form has to check and decode it."""
        if not compiled.is_on or len(data) > self._bytes_max:
            return None
        found = compiled.loops.read_sends(data, self._messages_max, RESERVED_PROPERTIES)
        if found is None:
            return None
        return SendBatch(*found, partial(rpcs.SEND.decode_request, data))


def encoded_sent(sent: SentBatch) -> Encoded:
    """The answer to a SendBatch."""
    return Encoded(compiled.loops.write_results(*sent))


def encoded_pull(result: PullResult, count: int, records: bytes) -> Encoded | None:
    """A pull's answer with so many records, as they lie in the log, for its messages.

    records: at most ANSWER_BYTES_MAX bytes.  None if the plain form has to write it, in turns.
    """
    if not compiled.is_on:
        return None
    messages = compiled.loops.write_kept(records, count, _MESSAGES)
    if messages is None:
        return None
    start = native.pull_result.to_pb(replace(result, messages=())).SerializeToString()
    return Encoded(start + messages)
