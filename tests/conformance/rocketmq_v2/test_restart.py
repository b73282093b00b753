"""A broker that is killed while the official gRPC clients send, consume and hold messages."""

from __future__ import annotations

from pathlib import Path

from rmqlite.client import AdminClient
from tests.conformance.conftest import live_broker
from tests.conformance.rocketmq_v2.conftest import QUICK
from tests.support.grpc_clients import GrpcClient, on_each, running

STREAMED = 200
INVISIBLE_S = 10
"""The shortest that a consumer may ask for."""
SETTINGS_AGAIN = ("java", "node")
"""The client for Python sends its settings again only after minutes: nobody can ask it."""


def test_a_killed_broker_loses_nothing_and_repeats_only_what_was_not_acknowledged(
    tmp_path: Path,
) -> None:
    """Sends and both kinds of consumers go on; receipts, holds and half messages are kept."""
    with (
        live_broker(tmp_path, **QUICK) as broker,
        running(broker.endpoint, tmp_path) as clients,
    ):
        with AdminClient(broker.endpoint, timeout_ms=60_000) as admin:
            for client in clients:
                for name in ("stream", "held", "half"):
                    admin.create_topic(f"{client.name}-{name}", 4)
        on_each(clients, before)
        broker.kill()
        broker.start()
        on_each(clients, after)


def before(client: GrpcClient) -> None:
    """Four are held, two of them done; a stream runs; a transaction is undecided."""
    stream, held, half = [f"{client.name}-{name}" for name in ("stream", "held", "half")]
    client.send(held, "done1", "done2", "open1", "open2")
    client.simple("holders", held, await_s=2)
    client.receive_all("holders", "done1", "done2", "open1", "open2", invisible_s=INVISIBLE_S)
    client.ack("holders", "done1", "done2")
    client.push("streamers", stream)
    client.do("stream", topic=stream, prefix="s", count=STREAMED, pause=2)
    client.do("transact", topic=half, decides={"half": "unknown"}, checks={"half": "commit"})
    client.until(lambda: len(client.keys("streamers")) > STREAMED // 8, "some arrive")


def after(client: GrpcClient) -> None:
    client.until(lambda: bool(client.said("streamed")), "the stream ends")
    acknowledged = {key for key in client.said("sent") if key.startswith("s")}
    assert len(acknowledged) == STREAMED
    client.until(lambda: acknowledged <= set(client.keys("streamers")), "all of it is consumed")
    if client.name in SETTINGS_AGAIN:
        client.simple("half-readers", f"{client.name}-half")
        client.receive_all("half-readers", "half")
        assert "half" in client.said("checked")
    again = client.receive_all("holders", "open1", "open2")
    assert {event["attempt"] for event in again} == {2}
    client.ack("holders", "open1", "open2")
    assert client.receive("holders") == []
