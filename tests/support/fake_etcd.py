"""A server that answers the calls of etcd which a broker makes, and has bad days."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import grpc

from rmqlite.kernel.words.clock import elapsed_s, pause_s
from rmqlite.protocols.pb import etcd_pb2 as pb
from tests.support.broker_processes import free_port


class FakeEtcd:
    """Two ports to the same keys, so that a network can be cut in one place.

    cut: the ports behind which there is no answer.  junk: bytes instead of an answer.  loses: the
    answers of writes, which are done, do not arrive.
    """

    def __init__(self) -> None:
        self.cut: set[int] = set()
        self.junk: bytes | None = None
        self.loses = False
        self.slow_s = 0.0
        self.calls = 0
        self.revision = 1
        self.keys: dict[bytes, pb.KeyValue] = {}
        self._ends_s: dict[int, tuple[float, int]] = {}
        self._ids = count(1_000)
        self._lock = threading.Lock()
        self.ports = (free_port(), free_port())
        self._servers = [self._server(port) for port in self.ports]
        self._uncut = threading.Event()

    def endpoint(self, number: int = 0) -> str:
        return f"127.0.0.1:{self.ports[number]}"

    def __enter__(self) -> FakeEtcd:
        for each in self._servers:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._servers:
            each.stop(0).wait()

    def _server(self, port: int) -> grpc.Server:
        def answering(ask: Callable[[bytes], Any], is_write: bool) -> Any:
            def unary(data: bytes, context: grpc.ServicerContext) -> bytes:
                return self._answer(port, ask, data, context, is_write=is_write)

            return grpc.unary_unary_rpc_method_handler(unary)

        def keep_alive(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            for data in requests:
                yield self._answer(port, self._keep_alive, data, context, is_write=False)

        kv = {"Range": answering(self._range, False), "Txn": answering(self._txn, True)}
        lease = {
            "LeaseGrant": answering(self._grant, False),
            "LeaseKeepAlive": grpc.stream_stream_rpc_method_handler(keep_alive),
        }
        server = grpc.server(ThreadPoolExecutor(16))
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler("etcdserverpb.KV", kv),
                grpc.method_handlers_generic_handler("etcdserverpb.Lease", lease),
            )
        )
        server.add_insecure_port(f"127.0.0.1:{port}")
        return server

    def _answer(
        self,
        port: int,
        ask: Callable[[bytes], Any],
        data: bytes,
        context: grpc.ServicerContext,
        *,
        is_write: bool,
    ) -> bytes:
        self.calls += 1
        pause_s(self.slow_s)
        self._check_cut(port, context)
        if self.junk is not None:
            return self.junk
        with self._lock:
            now_s = elapsed_s()
            for lease, (end_s, _) in list(self._ends_s.items()):
                if end_s < now_s:
                    del self._ends_s[lease]
                    gone = [key for key, each in self.keys.items() if each.lease == lease]
                    for key in gone:
                        del self.keys[key]
            answer: bytes = ask(data).SerializeToString()
        if is_write and self.loses:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the answer is lost")
        self._check_cut(port, context)
        return answer

    def _check_cut(self, port: int, context: grpc.ServicerContext) -> None:
        """As a network that drops packets: the caller's patience ends first."""
        while port in self.cut and context.is_active():
            pause_s(0.02)
        if not context.is_active():
            context.abort(grpc.StatusCode.CANCELLED, "nothing has come")

    def _range(self, data: bytes) -> pb.RangeResponse:
        asked = pb.RangeRequest.FromString(data)
        found = [v for k, v in sorted(self.keys.items()) if asked.key <= k < asked.range_end]
        return pb.RangeResponse(kvs=found[: asked.limit])

    def _txn(self, data: bytes) -> pb.TxnResponse:
        asked = pb.TxnRequest.FromString(data)
        for each in asked.compare:
            found = self.keys.get(each.key)
            if (found.mod_revision if found else 0) != each.mod_revision:
                return pb.TxnResponse(succeeded=False)
        self.revision += 1
        for op in asked.success:
            put = op.request_put
            kept = pb.KeyValue(key=put.key, value=put.value, lease=put.lease)
            kept.mod_revision = self.revision
            self.keys[put.key] = kept
        header = pb.ResponseHeader(revision=self.revision)
        return pb.TxnResponse(header=header, succeeded=True)

    def _grant(self, data: bytes) -> pb.LeaseGrantResponse:
        ttl, lease = pb.LeaseGrantRequest.FromString(data).TTL, next(self._ids)
        self._ends_s[lease] = (elapsed_s() + ttl, ttl)
        return pb.LeaseGrantResponse(ID=lease, TTL=ttl)

    def _keep_alive(self, data: bytes) -> pb.LeaseKeepAliveResponse:
        lease = pb.LeaseKeepAliveRequest.FromString(data).ID
        if lease not in self._ends_s:
            return pb.LeaseKeepAliveResponse(ID=lease, TTL=0)
        ttl = self._ends_s[lease][1]
        self._ends_s[lease] = (elapsed_s() + ttl, ttl)
        return pb.LeaseKeepAliveResponse(ID=lease, TTL=ttl)
