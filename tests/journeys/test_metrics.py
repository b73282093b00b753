"""Looking at a running broker from outside: Prometheus, probes, and gRPC's own services."""

from __future__ import annotations

import socket
from http.client import HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from rmqlite.client import (
    CONSUME_SUCCESS,
    ConsumeResult,
    Message,
    Producer,
    PushConsumer,
    StoredMessage,
    reconsume_later,
)
from rmqlite.features.native import native_features
from rmqlite.kernel.words.errors import BrokerUnreachable
from rmqlite.protocols.native.bytes.limits import all_rows
from rmqlite.protocols.native.bytes.rpcs import native_services
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import SERVICE as ROCKETMQ_5
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import StartBroker, free_port
from tests.support.eventually import eventually
from tests.support.scrape import Scrape

Status = health_pb2.HealthCheckResponse
LEVELS = "1s 1s 1s 1s 1s"
LEVEL_1 = {"level": "1", "delay": "1s"}


def get(port: int, path: str) -> HTTPResponse:
    answer = urlopen(f"http://127.0.0.1:{port}{path}", timeout=180)
    assert isinstance(answer, HTTPResponse)
    return answer


def scraped(port: int) -> Scrape:
    with get(port, "/metrics") as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return Scrape(answer.read().decode())


TOKEN = "a-token-of-some-length"


def test_metrics_ask_for_their_token(start_broker: StartBroker, tmp_path: Path) -> None:
    """Probes need none; the token is read again when its file changes, and is in no answer."""
    path, port = tmp_path / "token", free_port()
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    start_broker(metricsPort=port, metricsTokenFile=path)
    url = f"http://127.0.0.1:{port}/metrics"

    def asked(authorization: str) -> tuple[int, str | None]:
        request = Request(url, headers={"Authorization": authorization})
        try:
            with urlopen(request, timeout=180) as found:
                return found.status, None
        except HTTPError as error:
            return error.code, error.headers["WWW-Authenticate"]

    refused, allowed = (401, "Bearer"), (200, None)
    for wrong in ("", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}", "Bearer \xe4"):
        assert asked(wrong) == refused
    assert asked(f"Bearer {TOKEN}") == allowed
    assert get(port, "/healthz").status == 200
    path.write_text(f"another-{TOKEN}\n")
    eventually(lambda: asked(f"Bearer another-{TOKEN}") == allowed, "the new one counts")
    assert asked(f"Bearer {TOKEN}") == refused


@pytest.mark.parametrize("text", ["", "short", "words of some length", "lines\nof-some-length"])
def test_a_file_without_a_token_is_refused(
    text: str, start_broker: StartBroker, tmp_path: Path
) -> None:
    """An empty one would let everybody in."""
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(BrokerUnreachable, match="metricsTokenFile"):
        start_broker(metricsPort=free_port(), metricsTokenFile=path)


def test_a_scrape_tells_what_happened(start_broker: StartBroker) -> None:
    """Sent, delivered, pulled, retried and dead, for the group that failed them."""
    port = free_port()
    broker = start_broker(metricsPort=port, messageDelayLevel=LEVELS)
    assert scraped(port).value("rmqlite_messages_sent_total") == 0

    def fail(message: StoredMessage) -> ConsumeResult:
        if message.body == b"good":
            return CONSUME_SUCCESS
        return reconsume_later(reason="no", delay_level=-1 if message.reconsume_times else 1)

    with (
        Producer(broker.endpoint, "senders") as producer,
        PushConsumer(broker.endpoint, "workers", fail) as consumer,
    ):
        consumer.subscribe("orders")
        consumer.start()
        producer.send_batch([Message("orders", b"good", delay_level=1)] * 2)
        producer.send(Message("orders", b"bad"))

        def of_workers(what: str) -> float:
            return scraped(port).value(f"rmqlite_messages_{what}_total", group="workers")

        eventually(lambda: of_workers("dead") == 1, "the bad one is dead")
        eventually(lambda: of_workers("pulled") == 4, "the good ones are pulled")
        eventually(lambda: scraped(port).value("rmqlite_parked_polls") > 0, "a poll is parked")
    found = scraped(port)
    assert found.value("rmqlite_messages_sent_total") == 3
    assert found.value("rmqlite_messages_delivered_total") == 3
    assert found.value("rmqlite_messages_retried_total", group="workers") == 1
    assert found.value("rmqlite_scheduled_messages_pending", **LEVEL_1) == 0
    assert found.value("rmqlite_delivery_lateness_seconds_count", **LEVEL_1) == 3
    assert found.value("rmqlite_append_seconds_count", by="call") == 4
    assert found.value("rmqlite_append_seconds_count", by="delivery") >= 2
    assert found.value("rmqlite_fsync_seconds_count") >= 4
    assert 0 < found.value("rmqlite_fsync_seconds_sum") < 60
    assert 0 < found.value("rmqlite_disk_used_ratio") <= 1
    assert found.value("rmqlite_log_bytes") > 0


def test_a_probe_asks_whether_it_serves(start_broker: StartBroker) -> None:
    """And there is nothing else at that port."""
    port = free_port()
    start_broker(metricsPort=port)
    with get(port, "/healthz") as answer:
        assert (answer.status, answer.read()) == (200, b"serving\n")
    with pytest.raises(HTTPError) as caught:
        get(port, "/")
    with caught.value as error:
        assert error.code == 404


def test_without_a_metrics_port_there_is_no_http(start_broker: StartBroker, tmp_path: Path) -> None:
    """Nobody listens where nobody asked for it."""
    start_broker()
    assert "metrics are served" not in (tmp_path / "broker" / "broker.log").read_text()


def test_a_metrics_port_that_is_taken_stops_the_start(tmp_path: Path) -> None:
    """Before the store is touched, with the key that is wrong."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = BrokerProcess(tmp_path / "broker", {"metricsPort": str(port)})
        with pytest.raises(BrokerUnreachable, match=f"metricsPort must be a port .*'{port}"):
            broker.start()
        broker.stop()
    assert not broker.store.exists()


def test_health_is_told_to_who_asks_and_who_watches(start_broker: StartBroker) -> None:
    """A stop tells who watches, and does not wait for it."""
    broker = start_broker()
    services = sorted(native_services())
    with grpc.insecure_channel(broker.endpoint) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", *services):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=180)
            assert answer.status == Status.SERVING
        with pytest.raises(grpc.RpcError) as caught:
            stub.Check(health_pb2.HealthCheckRequest(service="rmqlite.v9"), timeout=180)
        assert isinstance(caught.value, grpc.Call)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=services[0]))
        assert next(watch).status == Status.SERVING
        broker.stop()
        # Ended by the broker: a watch that the drain had cut off would raise.
        assert [each.status for each in watch] == [Status.NOT_SERVING]


def test_reflection_tells_what_can_be_called(start_broker: StartBroker) -> None:
    """What grpcurl needs to list services, describe them and call them without a proto file."""
    broker = start_broker()
    with grpc.insecure_channel(broker.endpoint) as channel:
        known = ProtoReflectionDescriptorDatabase(channel)
        services = native_services()
        assert set(known.get_services()) == {
            *services,
            ROCKETMQ_5,
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }
        pool = DescriptorPool(known)
        for service in services:
            methods = set(pool.FindServiceByName(service).methods_by_name)
            paths = {f"/{service}/{method}" for method in methods}
            streams = [path for feature in native_features() for path in feature.streams]
            known_paths = [*(row.path for row in all_rows()), *streams]
            assert paths == {path for path in known_paths if f"/{service}/" in path}
