"""Receive, acknowledge, hold, give up: consumers that ask the broker for messages one by one.

A receive leases messages to a client: for a while no other client of its group gets them.  The
client acknowledges each, or its lease ends and the message is visible again.  A receipt handle
names one delivery of one message.  Times are milliseconds.
"""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from rmqlite.kernel.words.errors import HandleInvalid
from rmqlite.kernel.words.limits import RECEIVE_MESSAGES_MAX

NONCE_BITS: Final = 22
PROOF_BYTES: Final = 12
_PLACE: Final = struct.Struct(">Q?iq")


class Handle(NamedTuple):
    """The receipt handle of one delivery of one message to a group.

    lease: the id of the receive that delivered it: received_at_ms, and NONCE_BITS random bits.
    is_retry: the record lies in the group's retry topic, not in the topic itself.  proof: None from
    a protocol whose handles have no room for one.
    """

    lease: int
    is_retry: bool
    queue_id: int
    queue_offset: int
    proof: bytes | None = None

    @property
    def place(self) -> bytes:
        """All but the proof, as bytes."""
        return _PLACE.pack(self.lease, self.is_retry, self.queue_id, self.queue_offset)

    @property
    def text(self) -> str:
        """The handle as clients get it; it says nothing to them."""
        assert self.proof is not None
        return base64.urlsafe_b64encode(self.place + self.proof).decode()

    @classmethod
    def parse(cls, text: str) -> Handle:
        """The inverse of text.  Raises HandleInvalid."""
        try:
            data = base64.b64decode(text.encode("ascii"), b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error):
            raise HandleInvalid(text) from None
        if len(data) != _PLACE.size + PROOF_BYTES:
            raise HandleInvalid(text)
        lease, is_retry, queue_id, queue_offset = _PLACE.unpack_from(data)
        handle = cls(lease, is_retry, queue_id, queue_offset, data[_PLACE.size :])
        # Other texts stand for the same bytes; one handle has one text.
        if handle.text != text:
            raise HandleInvalid(text)
        return handle

    @property
    def received_at_ms(self) -> int:
        return self.lease >> NONCE_BITS

    @property
    def nonce(self) -> int:
        return self.lease & (1 << NONCE_BITS) - 1

    @staticmethod
    def lease_of(received_at_ms: int, nonce: int) -> int:
        """The id of a lease.  Raises HandleInvalid for numbers that no lease has."""
        if not (0 <= received_at_ms < 1 << 41 and 0 <= nonce < 1 << NONCE_BITS):
            raise HandleInvalid(f"{received_at_ms} {nonce}")
        return received_at_ms << NONCE_BITS | nonce


@dataclass(frozen=True, slots=True)
class ReceiveRequest:
    """Lease up to max_messages of a topic to a client of a group.

    expression, sql: see PullRequest.  auto_renew: the lease is renewed while the client is a
    member of its group; invisible_ms is left out then.  wait_ms: how long to wait for a first
    message.  attempt_id: who asks again with the same one gets the same messages again; "" for
    none.  queue_id: -1 means all queues of the topic.
    """

    group: str
    topic: str
    client_id: str
    expression: str = "*"
    sql: str = ""
    max_messages: int = RECEIVE_MESSAGES_MAX
    invisible_ms: int = 0
    auto_renew: bool = False
    wait_ms: int = 0
    attempt_id: str = ""
    queue_id: int = -1


@dataclass(frozen=True, slots=True)
class AckRequest:
    """These messages are done; nobody in the group gets them again."""

    group: str
    topic: str
    handles: tuple[Handle, ...]


@dataclass(frozen=True, slots=True)
class InvisibleChange:
    """The message is visible again in invisible_ms, not when its lease would end.

    counts: False: the client gives it back unseen, which is no failed attempt.
    """

    group: str
    topic: str
    handle: Handle
    invisible_ms: int
    counts: bool = True


@dataclass(frozen=True, slots=True)
class FailRequest:
    """A consumer has failed a message.

    delay_ms: when it comes again; None: as its group's retry policy says.  is_dead: it can never be
    consumed, and is a dead letter of the group now.
    """

    group: str
    topic: str
    handle: Handle
    reason: str = ""
    delay_ms: int | None = None
    is_dead: bool = False
