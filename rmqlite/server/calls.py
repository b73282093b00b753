"""Turns methods on plain values into gRPC handlers: bytes in, bytes out, errors as status."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any

import grpc
import grpc.aio

from rmqlite.errors import InvalidValue, RmqliteError
from rmqlite.message import pack_host
from rmqlite.wire.rpcs import Rpc
from rmqlite.wire.status import ERROR_METADATA, STATUS_NAMES, error_to_metadata

Context = grpc.aio.ServicerContext[bytes, bytes]
Method = Callable[[Any, Context], Awaitable[Any]]

log = logging.getLogger(__name__)


def service_handler(methods: Mapping[Rpc[Any, Any], Method]) -> grpc.GenericRpcHandler:
    """The handler of one service; every method takes a request value and gives an answer."""
    (service,) = {rpc.service for rpc in methods}
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        rpc.name: grpc.unary_unary_rpc_method_handler(_unary(rpc, method))
        for rpc, method in methods.items()
    }
    return grpc.method_handlers_generic_handler(service, handlers)


@lru_cache(maxsize=4096)
def peer_host(peer: str) -> bytes:
    """The packed address of gRPC's "ipv4:127.0.0.1:5000"; of another kind of peer 0.0.0.0:0."""
    _, _, address = peer.partition(":")
    try:
        return pack_host(address.replace("%5B", "[").replace("%5D", "]"))
    except InvalidValue:
        return bytes(8)


def _unary(rpc: Rpc[Any, Any], method: Method) -> Any:
    async def call(data: bytes, context: Context) -> bytes:
        try:
            return rpc.encode_response(await method(rpc.decode_request(data), context))
        except RmqliteError as error:
            failed = error
        except Exception:
            log.exception("call failed rpc=%s", rpc.path)
            failed = RmqliteError("the broker failed; its log says why")
        status = getattr(grpc.StatusCode, STATUS_NAMES[failed.code])
        metadata = ((ERROR_METADATA, error_to_metadata(failed)),)
        await context.abort(status, str(failed), trailing_metadata=metadata)

    return call
