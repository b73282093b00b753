"""A connection: values and our errors in and out, whatever gRPC does below."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import grpc_testing
import pytest

from rmqlite.client.channel import CallAttempts, Connection
from rmqlite.client.endpoint import Endpoint
from rmqlite.kernel.requests.topics import Queue, RouteRequest, TimeQuery
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import (
    BrokerClosing,
    BrokerUnreachable,
    InvalidValue,
    Refused,
    TopicUnknown,
)
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.messages import SendRequest
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.pb import rmqlite_pb2 as pb
from tests.support.fake_broker import WAIT_S, FakeBroker, raises

SERVICE = pb.DESCRIPTOR.services_by_name["Messaging"]


def outcome_of(begin: Callable[[Callable[[Any], None]], object]) -> Any:
    """Start a call and wait for what its on_done gets."""
    future: Future[Any] = Future()
    begin(future.set_result)
    return future.result(WAIT_S)


def test_the_deadline_and_the_bytes_reach_the_channel() -> None:
    """What goes over the wire is the table's encoding, with the timeout asked for."""
    channel = grpc_testing.channel([SERVICE], grpc_testing.strict_fake_time(0))
    connection = Connection("fake", channel)
    with ThreadPoolExecutor(1) as pool:
        query = TimeQuery(Queue("t", 1), 77)
        answer = pool.submit(connection.call, rpcs.SEARCH_OFFSET, query, 1.5)
        method = SERVICE.methods_by_name["SearchOffset"]
        _, data, rpc = channel.take_unary_unary(method)
        assert rpc_of(rpcs.SEARCH_OFFSET).decode_request(data) == query
        rpc.send_initial_metadata(())
        rpc.terminate(rpc_of(rpcs.SEARCH_OFFSET).encode_response(5), (), grpc.StatusCode.OK, "")
        assert answer.result(WAIT_S) == 5


def test_an_error_of_the_broker_is_raised_as_the_same_class(broker: FakeBroker) -> None:
    """Field, value and rule come over too, not only a status."""
    broker.answers["GetRoute"] = raises(TopicUnknown("nowhere"))
    with Connection(broker.endpoint) as connection, pytest.raises(TopicUnknown) as caught:
        connection.call(rpcs.GET_ROUTE, RouteRequest("nowhere"), WAIT_S)
    assert (caught.value.field, caught.value.value) == ("topic", "nowhere")


def test_a_started_call_gives_the_answer_or_the_error(broker: FakeBroker) -> None:
    """No thread waits for it; on_done is called once either way."""
    with Connection(broker.endpoint) as connection:
        request = RouteRequest("t")
        route = outcome_of(lambda d: connection.start(rpcs.GET_ROUTE, request, WAIT_S, d))
        assert route.message_delay_level == broker.levels
        broker.answers["GetRoute"] = raises(TopicUnknown("t"))
        error = outcome_of(lambda d: connection.start(rpcs.GET_ROUTE, request, WAIT_S, d))
        assert isinstance(error, TopicUnknown)


def test_a_started_call_that_is_given_up_ends_as_unavailable(broker: FakeBroker) -> None:
    """Whoever waits for it must hear of its end."""
    asked = threading.Event()
    broker.answers["GetRoute"] = lambda _: asked.wait(WAIT_S)
    with Connection(broker.endpoint) as connection:

        def begin(done: Callable[[Any], None]) -> None:
            connection.start(rpcs.GET_ROUTE, RouteRequest("t"), WAIT_S, done).cancel()

        assert isinstance(outcome_of(begin), BrokerUnreachable)
        asked.set()


def test_a_broker_that_is_down_is_unreachable_at_once(tmp_path: Path) -> None:
    """The error says where nobody answered, so that a wrong address is seen."""
    endpoint = f"unix:{tmp_path / 'nobody.sock'}"
    with (
        Connection(endpoint) as connection,
        pytest.raises(BrokerUnreachable, match=r"nobody\.sock"),
    ):
        connection.call(rpcs.GET_ROUTE, RouteRequest("t"), WAIT_S)


def test_an_unavailable_answer_is_asked_again_up_to_retries_times(broker: FakeBroker) -> None:
    """A restart of the broker need not be seen."""
    broker.answers["GetRoute"] = raises(BrokerClosing())
    with Connection(broker.endpoint) as connection, pytest.raises(BrokerClosing):
        connection.call_repeatedly(rpcs.GET_ROUTE, RouteRequest("t"), WAIT_S, retries=2)
    assert len(broker.asked["GetRoute"]) == 3


def test_a_refusal_is_not_asked_again(broker: FakeBroker) -> None:
    """It can never work."""
    broker.answers["GetRoute"] = raises(TopicUnknown("t"))
    with Connection(broker.endpoint) as connection, pytest.raises(TopicUnknown):
        connection.call_repeatedly(rpcs.GET_ROUTE, RouteRequest("t"), WAIT_S, retries=2)
    assert len(broker.asked["GetRoute"]) == 1


def test_a_value_of_the_wrong_type_is_refused_before_it_travels(broker: FakeBroker) -> None:
    """gRPC alone would log the cause and answer INTERNAL."""
    with Connection(broker.endpoint) as connection, pytest.raises(InvalidValue, match="SearchOff"):
        connection.call(rpcs.SEARCH_OFFSET, TimeQuery(Queue("t", 2**40), 0), WAIT_S)
    assert not broker.asked["SearchOffset"]


def test_a_closed_connection_refuses(broker: FakeBroker) -> None:
    """gRPC raises a bare ValueError there."""
    connection = Connection(broker.endpoint)
    connection.close()
    with pytest.raises(Refused, match="closed"):
        connection.call(rpcs.SEND, SendRequest(), WAIT_S)


def test_only_attempts_that_may_have_run_are_counted() -> None:
    """A restart takes longer than three attempts; the time ends those that reached nobody."""
    away = Endpoint.parse("127.0.0.1:1").error(
        "UNAVAILABLE", "failed to connect to all addresses; Connection refused", has_met=True
    )
    attempts = CallAttempts(2, elapsed_s() + 3_600)
    assert None not in [attempts.pause_s_after(away) for _ in range(50)]
    lost = BrokerUnreachable("Socket closed")
    assert [attempts.pause_s_after(lost) is None for _ in range(3)] == [False, False, True]
    assert CallAttempts(0, elapsed_s() + 3_600).pause_s_after(away) is None
    assert CallAttempts(2, elapsed_s()).pause_s_after(away) is None


def test_a_broker_that_does_not_answer_is_said_to_be_away() -> None:
    """gRPC says "Deadline Exceeded"."""
    error = Endpoint.parse("h:1").error("DEADLINE_EXCEEDED", "Deadline Exceeded", has_met=True)
    assert str(error).endswith("h:1: it did not answer in time: it is away, or too busy")
