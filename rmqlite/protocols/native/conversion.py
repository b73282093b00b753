"""Turns a request's bytes into a value, and an answer into bytes, without delaying other calls.

The limits of a request (bytes/limits.py) are checked before it is decoded.  For a long request
other calls get their turns after the check and after the decoding; a long answer is encoded in
parts.
"""

from __future__ import annotations

from rmqlite.features.rows import A, Q, Row
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.service.turns import let_others
from rmqlite.protocols.grpc.calls import READ_BYTES_MAX, decoded
from rmqlite.protocols.native.bytes.limits import NativeLimits
from rmqlite.protocols.native.bytes.rpcs import rpc_of


class Conversion:
    """Decodes the requests and encodes the answers of one broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._limits = NativeLimits(config)

    async def read(self, row: Row[Q, A], data: bytes) -> Q:
        """Check and decode a request.  Raises InvalidValue, InvalidName, MessageTooLarge."""
        beside = self._limits.check(row, data)
        return await decoded(rpc_of(row).decode_request, data, beside)

    @staticmethod
    async def written(row: Row[Q, A], answer: A) -> bytes:
        """Encode an answer; between the parts of a long one other calls get their turns."""
        parts: list[bytes] = []
        size = 0
        for part in rpc_of(row).response_parts(answer):
            parts.append(part)
            size += len(part)
            if size > READ_BYTES_MAX:
                await let_others()
                size = 0
        return parts[0] if len(parts) == 1 else b"".join(parts)
