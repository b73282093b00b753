"""The calls of rmqlite.v1: a request as a value to a method, its answer as bytes."""

from __future__ import annotations

from typing import Any

from rmqlite.server.protocols.grpc.calls import Answer, Context, Enter, Handlers, one_answer
from rmqlite.server.protocols.grpc.in_flight import InFlight
from rmqlite.server.protocols.native.conversion import Conversion
from rmqlite.server.protocols.native.table import Method, Methods
from rmqlite.wire.rpcs import Rpc


def handlers_of(
    methods: Methods, in_flight: InFlight, conversion: Conversion, enter: Enter
) -> Handlers:
    """gRPC handlers that call these methods."""
    return Handlers(
        {
            rpc.path: one_answer(rpc.path, _asked(rpc, method, conversion), in_flight, enter)
            for rpc, method in methods.items()
        }
    )


def _asked(rpc: Rpc[Any, Any], method: Method, conversion: Conversion) -> Answer:
    async def answer(data: bytes, context: Context) -> bytes:
        reading = conversion.read(rpc, data)
        del data
        return await conversion.written(rpc, await method(await reading, context))

    return answer
