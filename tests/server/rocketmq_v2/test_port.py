"""The real gRPC port: bytes of the largest size, open calls at the end, TLS."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.protocols import grpc_server as server
from rmqlite.protocols.grpc_server import GrpcServer
from rmqlite.protocols.metrics import page_of_health
from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import RocketmqRpc, service
from rmqlite.protocols.rocketmq_v2.calls import CLIENT_ID
from tests.support.broker_processes import free_port
from tests.support.brokers import BrokerUnderTest
from tests.support.certificates import made
from tests.support.grpc_ports import PATIENCE_S, with_port
from tests.support.http2 import Http2
from tests.support.rocketmq_v2_client import (
    CLIENT,
    GROUP,
    TOPIC,
    code_of,
    consumer_settings,
    message,
    named,
    receive,
)
from tests.support.services import Served

METADATA = ((CLIENT_ID, CLIENT),)
LARGEST: Any = (("grpc.max_receive_message_length", -1),)


class Channel:
    """Calls over a channel as clients make them."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def ask(self, rpc: RocketmqRpc[Any, Any], request: Any) -> Any:
        call: Any = self._channel.unary_unary(
            rpc.path,
            request_serializer=rpc.encode,
            response_deserializer=rpc.answer.FromString,
        )
        return await call(request, metadata=METADATA, timeout=PATIENCE_S)

    def many(self, rpc: RocketmqRpc[Any, Any], request: Any, timeout_s: float = PATIENCE_S) -> Any:
        call: Any = self._channel.unary_stream(
            rpc.path,
            request_serializer=rpc.encode,
            response_deserializer=rpc.answer.FromString,
        )
        return call(request, metadata=METADATA, timeout=timeout_s)

    def telemetry(self) -> Any:
        call: Any = self._channel.stream_stream(
            rpcs.TELEMETRY.path,
            request_serializer=rpcs.TELEMETRY.encode,
            response_deserializer=service.TelemetryCommand.FromString,
        )
        return call(metadata=METADATA)


def test_a_message_of_the_largest_size_goes_both_ways(tmp_path: Path) -> None:
    """Its headers and properties come on top of 4 MiB, where gRPC's own limit is."""
    under_test = BrokerUnderTest(
        tmp_path / "store", max_message_bytes=4 << 20, mapped_file_size_commit_log=16 << 20
    )

    async def scenario(port: GrpcServer, _: Served) -> None:
        target = f"127.0.0.1:{port.port}"
        async with grpc.aio.insecure_channel(target, options=LARGEST) as opened:
            channel, large = Channel(opened), message("a", body=bytes(4 << 20))
            large.user_properties["p"] = "x" * 10_000
            sent = await channel.ask(
                rpcs.SEND_MESSAGE, service.SendMessageRequest(messages=[large])
            )
            assert code_of(sent) is Code.OK
            answers = [each async for each in channel.many(rpcs.RECEIVE_MESSAGE, receive())]
            (received,) = [each.message for each in answers if each.HasField("message")]
            assert len(received.body) == 4 << 20

    with_port(under_test, scenario)
    under_test.store.release()


def test_open_calls_end_when_the_broker_closes(under_test: BrokerUnderTest) -> None:
    """A Telemetry call is open for hours: the broker waits for none."""

    async def scenario(port: GrpcServer, server: Served) -> None:
        channel = Channel(opened := grpc.aio.insecure_channel(f"127.0.0.1:{port.port}"))
        await channel.ask(rpcs.SEND_MESSAGE, service.SendMessageRequest(messages=[message()]))
        call = channel.telemetry()
        await call.write(service.TelemetryCommand(settings=consumer_settings(TOPIC)))
        assert code_of(await call.read()) is Code.OK
        polling = channel.many(rpcs.RECEIVE_MESSAGE, receive(poll_s=20, group="idle"))
        first = [await polling.read() for _ in range(3)]
        assert first[0].status.code == Code.OK
        waiting = channel.many(rpcs.RECEIVE_MESSAGE, receive(poll_s=20, group="idle"))
        while server.service.parked < 1:
            await asyncio.sleep(0)
        server.service.close()
        async with asyncio.timeout(under_test.config.drain_ms_max / 1_000 / 2):
            await port.drain()
        assert code_of(await waiting.read()) is Code.MESSAGE_NOT_FOUND
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
        await opened.close()

    with_port(under_test, scenario)


def test_a_call_that_ends_grpcs_loop_closes_the_port_for_a_moment_only(
    under_test: BrokerUnderTest,
) -> None:
    """gRPC decodes a path before it looks for the call, and stops at an error: 100 bytes of anybody
    would put all clients out until a restart."""

    async def scenario(port: GrpcServer, server: Served) -> None:
        number, ports = port.port, server.service.ports
        async with grpc.aio.insecure_channel(f"127.0.0.1:{number}") as opened:
            channel = Channel(opened)
            await channel.ask(rpcs.SEND_MESSAGE, service.SendMessageRequest(messages=[message()]))
            waiting = channel.many(rpcs.RECEIVE_MESSAGE, receive(poll_s=20, group="idle"))
            assert len([each async for each in waiting]) == 3
            waiting = channel.many(rpcs.RECEIVE_MESSAGE, receive(poll_s=20, group="idle"))
            while server.service.parked < 1:
                await asyncio.sleep(0)
            for times in (1, 2):
                with await asyncio.to_thread(Http2, number) as rude:
                    rude.call(b"/a.b/\x81\x82", b"")
                    while not ports.away:
                        await asyncio.sleep(0)
                    assert page_of_health(server.service).status == 503
                    (warning, *_) = (await server.service.status()).warnings
                    assert (
                        warning
                        == f"the gRPC port, {number}, does not answer; it is being opened anew"
                    )
                    while ports.away:
                        await asyncio.sleep(0)
                assert ports.opened_anew == times
            assert page_of_health(server.service).status == 200
            with pytest.raises(grpc.aio.AioRpcError):
                await waiting.read()
            while server.service.parked:
                await asyncio.sleep(0)
            # The same number, and the same channel: it connects again by itself.
            assert port.port == number
            async with asyncio.timeout(PATIENCE_S):
                await opened.channel_ready()
            found = [each async for each in channel.many(rpcs.RECEIVE_MESSAGE, receive())]
            assert [each.message.body for each in found[1:-1]] == [b"a"]

    with_port(under_test, scenario)


def test_a_port_that_cannot_be_opened_anew_ends_the_broker(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After three attempts: whoever supervises it has to see that."""
    attempts: list[int] = []

    def taken(_: GrpcServer, key: str, port: int, **__: Any) -> int:
        attempts.append(port)
        raise InvalidValue(key, port, "a port that is free")

    async def scenario(port: GrpcServer, _: Served) -> None:
        monkeypatch.setattr(server, "PAUSE_S", 0)
        monkeypatch.setattr(GrpcServer, "_bound", taken)
        with await asyncio.to_thread(Http2, port.port) as rude:
            rude.call(b"/a.b/\x81\x82", b"")
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        with_port(under_test, scenario)
    assert [type(each) for each in caught.value.exceptions] == [InvalidValue]
    assert len(attempts) == 3
    assert len(set(attempts)) == 1


def test_a_client_that_leaves_gets_no_lease(under_test: BrokerUnderTest) -> None:
    """What comes afterwards is for others at once."""

    async def scenario(port: GrpcServer, server: Served) -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port.port}") as opened:
            channel = Channel(opened)
            request = service.SendMessageRequest(messages=[message("a")])
            await channel.ask(rpcs.SEND_MESSAGE, request)
            assert len([each async for each in channel.many(rpcs.RECEIVE_MESSAGE, receive())]) == 3
            left = channel.many(rpcs.RECEIVE_MESSAGE, receive(poll_s=20))
            while server.service.parked < 1:
                await asyncio.sleep(0)
            left.cancel()
            while server.service.parked:
                await asyncio.sleep(0)
            request = service.SendMessageRequest(messages=[message("b")])
            await channel.ask(rpcs.SEND_MESSAGE, request)
            answers = [each async for each in channel.many(rpcs.RECEIVE_MESSAGE, receive())]
            assert [each.message.body for each in answers[1:-1]] == [b"b"]

    with_port(under_test, scenario)


def test_tls_comes_with_the_port(under_test: BrokerUnderTest, tmp_path: Path) -> None:
    """The same keys as for rmqlite's own clients."""
    folder = made(tmp_path / "keys")
    keys = {"tls_cert_path": folder / "broker.pem", "tls_key_path": folder / "broker.key"}

    async def scenario(port: GrpcServer, _: Served) -> None:
        credentials = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes())
        async with grpc.aio.secure_channel(f"localhost:{port.port}", credentials) as opened:
            asked = service.HeartbeatRequest(group=named(GROUP), client_type=3)  # type: ignore[arg-type]
            assert code_of(await Channel(opened).ask(rpcs.HEARTBEAT, asked)) is Code.OK

    with_port(under_test, scenario, tls_mode="enforcing", grpc_port=free_port(), **keys)
