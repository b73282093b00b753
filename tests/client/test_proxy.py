"""An HTTP proxy: only one that is named for rmqlite is used, and its errors name it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from rmqlite.client import AdminClient
from rmqlite.client.endpoint import Endpoint
from rmqlite.kernel.words.errors import BrokerUnreachable, InvalidValue, RmqliteError

ANYWHERE = ("http_proxy", "https_proxy", "grpc_proxy", "no_proxy", "RMQLITE_PROXY")


@pytest.fixture
def port() -> Iterator[int]:
    """Of a gRPC server without a method: reaching it is an answer, too."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(None).wait()


@pytest.fixture
def refusing() -> Iterator[int]:
    """A proxy that answers 403."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.recv(4096)
                    client.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ANYWHERE:
        monkeypatch.delenv(name, raising=False)


def error_at(port: int) -> RmqliteError:
    with (
        AdminClient(f"127.0.0.1:{port}") as admin,
        pytest.raises(RmqliteError) as raised,
    ):
        admin.levels()
    return raised.value


@pytest.mark.parametrize("name", ["http_proxy", "https_proxy", "grpc_proxy"])
def test_a_proxy_for_everybody_is_not_for_the_broker(
    port: int, refusing: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker sets it in every container; a broker on this machine seemed to be away."""
    monkeypatch.setenv(name, f"http://127.0.0.1:{refusing}")
    assert "Method not found" in str(error_at(port))


def test_the_proxy_that_is_asked_for_is_used_and_named(
    port: int, refusing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the password in its address."""
    monkeypatch.setenv("RMQLITE_PROXY", f"http://me:secret@127.0.0.1:{refusing}")
    error = error_at(port)
    assert isinstance(error, BrokerUnreachable)
    assert str(error) == (
        f"no answer from the broker: 127.0.0.1:{port} through the proxy 127.0.0.1:{refusing}"
        " (RMQLITE_PROXY): the proxy answers with code 403"
    )


@pytest.mark.parametrize(
    ("details", "sentence"),
    [
        ("failed to connect to all addresses; Connection refused", "nothing listens at the proxy"),
        ("errors resolving p:1: hostname lookup error", "there is no such host as the proxy's"),
    ],
)
def test_what_is_wrong_at_the_proxy_is_not_said_of_the_broker(details: str, sentence: str) -> None:
    """It may listen, and its name may be right."""
    endpoint = Endpoint.parse("broker:8081", {"RMQLITE_PROXY": "http://p:1"})
    error = endpoint.error("UNAVAILABLE", details, has_met=False)
    assert str(error).endswith(f"broker:8081 through the proxy p:1 (RMQLITE_PROXY): {sentence}")


@pytest.mark.parametrize("wrong", ["proxy:3128", "https://proxy:3128", "http://a:b@proxy"])
def test_an_address_that_is_no_proxys_is_refused(wrong: str) -> None:
    """gRPC would go without it, silently."""
    with pytest.raises(InvalidValue, match="RMQLITE_PROXY must be http://host:port") as raised:
        Endpoint.parse("127.0.0.1:8081", {"RMQLITE_PROXY": wrong})
    assert "a:b" not in str(raised.value)


def test_a_unix_socket_has_no_proxy() -> None:
    """It is on this machine."""
    assert Endpoint.parse("unix:/a.sock", {"RMQLITE_PROXY": "http://p:1"}).proxy == ""
