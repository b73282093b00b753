"""Every call of every client is signed if there are credentials, and none without."""

from __future__ import annotations

import base64
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from rmqlite.client import (
    CONSUME_SUCCESS,
    AdminClient,
    BulkMessage,
    BulkScheduler,
    Credentials,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    RawReader,
)
from rmqlite.client.channel import Connection
from rmqlite.kernel.requests.topics import RouteRequest
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import BrokerClosing, InvalidValue, Refused, RmqliteError
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.replays import Replays
from rmqlite.protocols.shared.signing import is_right, read_signed
from tests.support.fake_broker import WAIT_S, FakeBroker, raises

ACCOUNT = Credentials("operator", "a secret of some length")
ROUTE = RouteRequest("t")


def check_signed(broker: FakeBroker, *, calls_min: int = 1) -> None:
    """What the server will do: each call has a right signature and counts."""
    replays = Replays()
    assert len(broker.metadata) >= calls_min
    for path, metadata in broker.metadata:
        found = read_signed(metadata)
        assert found is not None, path
        assert found.access_key == "operator"
        assert is_right(found, path, ACCOUNT.secret)
        assert replays.check(found, wall_ms()) is None
    secret = ACCOUNT.secret.encode()
    for hidden in (ACCOUNT.secret, base64.b64encode(secret).decode(), secret.hex()):
        assert hidden not in str(broker.metadata)


def test_a_call_and_a_started_call_are_signed(broker: FakeBroker) -> None:
    """The two ways in which a client calls."""
    done: Future[Any] = Future()
    with Connection(broker.endpoint, credentials=ACCOUNT) as connection:
        connection.call(rpcs.GET_ROUTE, ROUTE, WAIT_S)
        connection.start(rpcs.GET_ROUTE, ROUTE, WAIT_S, done.set_result, wait_for_ready=True)
        assert not isinstance(done.result(WAIT_S), RmqliteError)
    check_signed(broker, calls_min=2)


def test_a_repeated_call_is_signed_anew(broker: FakeBroker) -> None:
    """The broker takes the same signature twice for a captured call."""
    broker.answers["GetRoute"] = raises(BrokerClosing())
    with (
        Connection(broker.endpoint, credentials=ACCOUNT) as connection,
        pytest.raises(BrokerClosing),
    ):
        connection.call_repeatedly(rpcs.GET_ROUTE, ROUTE, WAIT_S, retries=2)
    check_signed(broker, calls_min=3)


def test_without_credentials_a_call_has_no_signature(broker: FakeBroker) -> None:
    """A broker without accounts gets no names of accounts."""
    with Connection(broker.endpoint) as connection:
        connection.call(rpcs.GET_ROUTE, ROUTE, WAIT_S)
    ((_, metadata),) = broker.metadata
    assert read_signed(metadata) is None
    assert not [key for key, _ in metadata if key.startswith("rmqlite-")]


def test_credentials_that_cannot_travel_fail_at_the_start() -> None:
    """Not at each call."""
    with pytest.raises(InvalidValue, match="accessKey"):
        AdminClient("127.0.0.1:1", credentials=Credentials("two words", "s"))


def producer(endpoint: str) -> None:
    with Producer(endpoint, "g", credentials=ACCOUNT) as client:
        client.send(Message("t", b"x"))
        client.send_async(Message("t", b"x", delay="10s")).result(WAIT_S)


def push_consumer(endpoint: str) -> None:
    got: Future[None] = Future()

    def consume(_: object) -> Any:
        if not got.done():
            got.set_result(None)
        return CONSUME_SUCCESS

    with PushConsumer(endpoint, "g", consume, consume_threads=1, credentials=ACCOUNT) as client:
        client.subscribe("t")
        client.start()
        got.result(WAIT_S)


def pull_consumer(endpoint: str) -> None:
    with PullConsumer(endpoint, "g", credentials=ACCOUNT) as client:
        client.pull("t", 0, 0)
        client.pull_async("t", 0, 0).result(WAIT_S)


def admin(endpoint: str) -> None:
    with AdminClient(endpoint, credentials=ACCOUNT) as client:
        client.route("t")


def bulk(endpoint: str) -> None:
    with BulkScheduler(endpoint, retry_ms=0, credentials=ACCOUNT) as client:
        client.schedule_all([BulkMessage("t", b"x", "1", delay="10s")])


def raw_reader(endpoint: str) -> None:
    with RawReader(endpoint, credentials=ACCOUNT) as client:
        client.snapshot()


CLIENTS = [producer, push_consumer, pull_consumer, admin, bulk, raw_reader]


@pytest.mark.parametrize("use", CLIENTS)
def test_every_client_signs_every_call(broker: FakeBroker, use: Callable[[str], None]) -> None:
    """One call that is not signed, such as the commit at the end, would be refused."""
    broker.add(Message("t", b"x"))
    for unanswered in ("ScheduleBulk", "GetLogSnapshot"):
        broker.answers[unanswered] = raises(Refused("signed or not"))
    try:
        use(broker.endpoint)
    except Refused:
        assert use in (bulk, raw_reader)
    check_signed(broker)


def test_a_client_takes_them_from_the_environment(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So every command of the command line signs, and ps shows no secret."""
    monkeypatch.setenv("RMQLITE_ACCESS_KEY", ACCOUNT.access_key)
    monkeypatch.setenv("RMQLITE_SECRET_KEY", ACCOUNT.secret)
    with AdminClient(broker.endpoint) as client:
        client.route("t")
    check_signed(broker)


def test_the_callers_own_come_before_the_environment(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process may use several accounts; a broken environment does not hinder it."""
    monkeypatch.setenv("RMQLITE_ACCESS_KEY", "somebody else")
    with AdminClient(broker.endpoint, credentials=ACCOUNT) as client:
        client.route("t")
    check_signed(broker)
