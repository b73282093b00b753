"""A request's bytes become a value, and an answer its bytes, without holding up others for long.

What a request may hold is looked at before it is read, see wire/limits.py.  Looking, reading, the
work of the method, and writing are turns of their own where they are not short.
"""

from __future__ import annotations

from typing import Final, TypeVar

from rmqlite.config import BrokerConfig
from rmqlite.server.turns import let_others
from rmqlite.wire.limits import RequestLimits
from rmqlite.wire.rpcs import Rpc

Q = TypeVar("Q")
A = TypeVar("A")

SHORT_BYTES_MAX: Final = 16 << 10
"""What is no longer is looked at and read, or written, in a millisecond."""


class Conversion:
    """Of the calls of one broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._limits = RequestLimits(config)

    async def read(self, rpc: Rpc[Q, A], data: bytes) -> Q:
        """A request.  Raises InvalidValue, InvalidName, MessageTooLarge."""
        self._limits.check(rpc, data)
        if len(data) <= SHORT_BYTES_MAX:
            return rpc.decode_request(data)
        await let_others()
        request = rpc.decode_request(data)
        await let_others()
        return request

    @staticmethod
    async def written(rpc: Rpc[Q, A], answer: A) -> bytes:
        """An answer; a long one is written in parts, between which others get their turn."""
        parts: list[bytes] = []
        size = 0
        for part in rpc.response_parts(answer):
            parts.append(part)
            size += len(part)
            if size > SHORT_BYTES_MAX:
                await let_others()
                size = 0
        return parts[0] if len(parts) == 1 else b"".join(parts)
