"""The calls of etcd that decide who is the master: one key's value, and a lease beside it.

Every call is bounded: one of the endpoints has its time, then the next one is asked, and the one
that has answered is asked first the next time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio

from rmqlite.kernel.words.errors import Unavailable
from rmqlite.protocols.pb import etcd_pb2 as pb
from rmqlite.protocols.shared.codec import parsed

RANGE: Final = "/etcdserverpb.KV/Range"
TXN: Final = "/etcdserverpb.KV/Txn"
LEASE_GRANT: Final = "/etcdserverpb.Lease/LeaseGrant"
LEASE_KEEP_ALIVE: Final = "/etcdserverpb.Lease/LeaseKeepAlive"
ANSWER_BYTES_MAX: Final = 64 << 10
"""Both keys have less than a kilobyte."""
REASON_CHARS_MAX: Final = 200
_STATE: Final = b"state"
_LEASE: Final = b"lease"


class EtcdKeys(NamedTuple):
    """value: of the state, None if there is none; revision: of its last change.  lease: by which
    the other key is there; 0: it is not."""

    value: bytes | None
    revision: int
    lease: int


class Etcd:
    """The two keys rmqlite/NAME/state and rmqlite/NAME/lease; used in one event loop."""

    def __init__(
        self,
        endpoints: Sequence[str],
        name: str,
        timeout_s: float,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        """timeout_s: of one call to one endpoint."""
        self._endpoints = endpoints
        self._prefix = f"rmqlite/{name}/".encode()
        self._timeout_s = timeout_s
        self._credentials = credentials
        self._channels: dict[int, grpc.aio.Channel] = {}
        self._at = 0

    async def close_channels(self) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def read_keys(self) -> EtcdKeys:
        """Raises Unavailable."""
        end = self._prefix[:-1] + b"0"
        asked = pb.RangeRequest(key=self._prefix, range_end=end, limit=2)
        answer = parsed(pb.RangeResponse, await self._ask(RANGE, asked))
        found = {each.key[len(self._prefix) :]: each for each in answer.kvs}
        state, lease = found.get(_STATE), found.get(_LEASE)
        value, revision = (state.value, state.mod_revision) if state else (None, 0)
        return EtcdKeys(value, revision, lease.lease if lease else 0)

    async def replace(self, value: bytes, revision: int, lease: int = 0) -> int:
        """Write the state if its last change was of that revision, 0: if there is none.

        lease: with which the other key is written, too.  Returns the new revision, 0 if the state
        has another one.  Raises Unavailable.
        """
        key = self._prefix + _STATE
        target = pb.Compare.MOD
        asked = pb.TxnRequest(compare=[pb.Compare(target=target, key=key, mod_revision=revision)])
        asked.success.add().request_put.MergeFrom(pb.PutRequest(key=key, value=value))
        if lease:
            key = self._prefix + _LEASE
            asked.success.add().request_put.MergeFrom(pb.PutRequest(key=key, lease=lease))
        answer = parsed(pb.TxnResponse, await self._ask(TXN, asked))
        return int(answer.header.revision) if answer.succeeded else 0

    async def grant(self, ttl_s: int) -> int:
        """A new lease.  Raises Unavailable."""
        asked = pb.LeaseGrantRequest(TTL=ttl_s)
        return int(parsed(pb.LeaseGrantResponse, await self._ask(LEASE_GRANT, asked)).ID)

    async def keep_alive(self, lease: int) -> bool:
        """Let a lease begin anew; False: there is no such lease.  Raises Unavailable."""
        asked = pb.LeaseKeepAliveRequest(ID=lease)
        answer = parsed(pb.LeaseKeepAliveResponse, await self._ask(LEASE_KEEP_ALIVE, asked))
        return bool(answer.TTL > 0)

    async def _ask(self, path: str, request: Any) -> bytes:
        reason = ""
        for _ in self._endpoints:
            try:
                return await self._asked(path, request.SerializeToString())
            except grpc.aio.AioRpcError as error:
                text = f"{error.code().name}: {error.details()}"[:REASON_CHARS_MAX]
                reason = reason or f"{self._endpoints[self._at]} {text}"
            except (grpc.aio.UsageError, asyncio.InvalidStateError):
                # The call had ended before the request was written.
                reason = reason or f"{self._endpoints[self._at]} has ended the call"
            self._at = (self._at + 1) % len(self._endpoints)
        raise Unavailable(f"etcd does not answer: {reason}")

    async def _asked(self, path: str, data: bytes) -> bytes:
        """One call; of a stream, the first answer."""
        if self._at not in self._channels:
            self._channels[self._at] = self._channel_to(self._endpoints[self._at])
        channel = self._channels[self._at]
        if path != LEASE_KEEP_ALIVE:
            call: Any = channel.unary_unary(path)
            answer: bytes = await call(data, timeout=self._timeout_s)
            return answer
        stream: Any = channel.stream_stream(path)(timeout=self._timeout_s)
        try:
            await stream.write(data)
            first = await stream.read()
        finally:
            stream.cancel()
        # An empty answer is one without a lease.
        return b"" if first is grpc.aio.EOF else bytes(first)

    def _channel_to(self, endpoint: str) -> grpc.aio.Channel:
        options = (
            ("grpc.enable_http_proxy", 0),
            ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
            ("grpc.use_local_subchannel_pool", 1),
            # When it is back it must be asked within a second.
            *(("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 400)),
            ("grpc.min_reconnect_backoff_ms", 1_000),
        )
        if self._credentials is None:
            return grpc.aio.insecure_channel(endpoint, options=options)
        return grpc.aio.secure_channel(endpoint, self._credentials, options=options)
