"""Turns a request's bytes into a value, and an answer into bytes, without delaying other calls.

The limits of a request (bytes/limits.py) are checked before it is decoded.  For a long request
other calls get their turns after the check and after the decoding; a long answer is encoded in
parts.
"""

from __future__ import annotations

from typing import Final

from rmqlite.features.rows import A, Q, Row
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.service.turns import let_others
from rmqlite.protocols.native.bytes.limits import NativeLimits
from rmqlite.protocols.native.bytes.rpcs import rpc_of

SHORT_BYTES_MAX: Final = 16 << 10
"""Up to this length, a request is checked and decoded, or an answer encoded, in 1 ms."""
BODIES_BYTES_MAX: Final = 1 << 20
"""So many bytes of bodies, which are only copied, come on top of that for a tenth more."""


class Conversion:
    """Decodes the requests and encodes the answers of one broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._limits = NativeLimits(config)

    async def read(self, row: Row[Q, A], data: bytes) -> Q:
        """Check and decode a request.  Raises InvalidValue, InvalidName, MessageTooLarge."""
        beside = self._limits.check(row, data)
        if beside <= SHORT_BYTES_MAX and len(data) - beside <= BODIES_BYTES_MAX:
            return rpc_of(row).decode_request(data)
        await let_others()
        request = rpc_of(row).decode_request(data)
        await let_others()
        return request

    @staticmethod
    async def written(row: Row[Q, A], answer: A) -> bytes:
        """Encode an answer; between the parts of a long one other calls get their turns."""
        parts: list[bytes] = []
        size = 0
        for part in rpc_of(row).response_parts(answer):
            parts.append(part)
            size += len(part)
            if size > SHORT_BYTES_MAX:
                await let_others()
                size = 0
        return parts[0] if len(parts) == 1 else b"".join(parts)
