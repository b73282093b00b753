"""Every call of rmqlite.v1: what is asked and answered arrives as it was."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.errors import InvalidValue
from rmqlite.message import Message
from rmqlite.requests.messages import PullResult, SendBackRequest, SendRequest
from rmqlite.requests.topics import RouteRequest
from rmqlite.wire import rpcs
from rmqlite.wire.pb import rmqlite_pb2 as pb
from rmqlite.wire.rpcs import Rpc
from tests.wire.values import any_value

KINDS = {name: value.kinds for name, value in vars(rpcs).items() if isinstance(value, Rpc)}
CALLS = sorted(KINDS)


def call(name: str) -> Rpc[Any, Any]:
    found: Rpc[Any, Any] = getattr(rpcs, name)
    return found


def test_the_table_lists_every_call_of_the_proto() -> None:
    """A call that is only in the proto would be answered by nobody."""
    proto = {
        f"/{service.full_name}/{method.name}": (method.input_type.name, method.output_type.name)
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert {rpc.path for rpc in rpcs.ALL} == set(proto)
    assert len(rpcs.ALL) == len(proto) == len(CALLS)


@pytest.mark.parametrize("name", CALLS)
@given(data=st.data())
def test_a_request_arrives_as_it_was_sent(name: str, data: st.DataObject) -> None:
    """Every field, at any value that its type and the proto's width allow."""
    rpc, kind = call(name), KINDS[name][0]
    value = data.draw(any_value(kind))
    assert rpc.decode_request(rpc.encode_request(value)) == value


@pytest.mark.parametrize("name", CALLS)
@given(data=st.data())
def test_an_answer_arrives_as_it_was_given(name: str, data: st.DataObject) -> None:
    """The same the other way."""
    rpc, kind = call(name), KINDS[name][1]
    value = data.draw(any_value(kind))
    if isinstance(value, PullResult):
        # Only whole records are read: tests/wire/test_messages.py has them.
        value = replace(value, records=b"")
    assert rpc.decode_response(rpc.encode_response(value)) == value
    assert rpc.decode_response(b"".join(rpc.response_parts(value))) == value


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("data", [b"\xff", b"\x0a", b"\x0a\x05ab", b"\x07", b"\x00"])
def test_bytes_that_are_no_message_are_refused(name: str, data: bytes) -> None:
    """A foreign client's mistake is its own, said with the message's name; never a stack."""
    rpc = call(name)
    for decode in (rpc.decode_request, rpc.decode_response):
        with pytest.raises(InvalidValue) as raised:
            decode(data)
        assert "rmqlite.v1." in raised.value.rule


@pytest.mark.parametrize("name", CALLS)
@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_request_or_are_refused(name: str, data: bytes) -> None:
    """No other exception leaves the wire."""
    with contextlib.suppress(InvalidValue):
        call(name).decode_request(data)


def test_text_that_is_not_utf8_is_refused() -> None:
    """protobuf's strings are UTF-8; RocketMQ's properties too."""
    with pytest.raises(InvalidValue):
        rpcs.GET_ROUTE.decode_request(b"\x0a\x02\xff\xfe")


@pytest.mark.parametrize(
    "message",
    [
        pb.OutgoingMessage(topic="t", body=b"x", properties={"REAL_TOPIC": "x"}),
        pb.OutgoingMessage(topic="t", body=b"x", properties={"": "x"}),
        pb.OutgoingMessage(topic="t", body=b"x", properties={"a": "b\x02TAGS\x01x"}),
        pb.OutgoingMessage(topic="t", body=b"x", keys=["a b"]),
        pb.OutgoingMessage(topic="t", body=b"x", tags="\x01"),
        pb.OutgoingMessage(topic="t", body=b"x", message_id="\x02"),
        pb.OutgoingMessage(topic="t", body=b"x", max_reconsume_times=-1),
        pb.OutgoingMessage(topic="t"),
    ],
)
def test_a_foreign_clients_message_keeps_the_rules_of_ours(message: pb.OutgoingMessage) -> None:
    """Else a client without our checks could write the broker's own properties."""
    with pytest.raises(InvalidValue):
        rpcs.SEND.decode_request(pb.SendRequest(messages=[message]).SerializeToString())


def test_absent_is_not_zero() -> None:
    """A group's limit of 0 attempts, or offset 0, is something else than none given."""
    for limit in (None, 0, 16):
        request = SendBackRequest("g", 1, max_reconsume_times=limit)
        assert rpcs.SEND_BACK.decode_request(rpcs.SEND_BACK.encode_request(request)) == request
        sent = SendRequest((Message("orders", b"x", max_reconsume_times=limit),))
        assert rpcs.SEND.decode_request(rpcs.SEND.encode_request(sent)) == sent


def test_a_field_from_the_future_is_skipped() -> None:
    """An older broker understands a newer client's request."""
    data = rpcs.GET_ROUTE.encode_request(RouteRequest("orders")) + b"\xfa\x3e\x03new"
    assert rpcs.GET_ROUTE.decode_request(data) == RouteRequest("orders")


def test_a_delay_goes_with_its_level_for_an_older_broker() -> None:
    """That one does not know the field of the delay; one that does goes by the delay alone."""
    message = Message("orders", b"x", delay="10m").at_level(14)
    data = rpcs.SEND.encode_request(SendRequest((message,)))
    (sent,) = pb.SendRequest.FromString(data).messages
    assert (sent.delay_level, sent.delay) == (14, "10m")
    (arrived,) = rpcs.SEND.decode_request(data).messages
    assert (arrived.delay_level, arrived.delay) == (0, "10m")
