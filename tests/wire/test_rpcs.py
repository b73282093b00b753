"""Every call of rmqlite.v1: what is asked and answered arrives as it was."""

from __future__ import annotations

import contextlib
from dataclasses import astuple, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqlite.features.dead_letters.requests import GET_HISTORY
from rmqlite.features.native import native_features
from rmqlite.features.redrive.requests import IMPORT_DEAD_LETTERS
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.requests.topics import RouteRequest
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.limits import all_rows
from rmqlite.protocols.native.bytes.messages import PulledRecords, PullResult
from rmqlite.protocols.native.bytes.rpcs import Rpc, rpc_of
from rmqlite.protocols.pb import rmqlite_pb2 as pb
from tests.support.thinned import few
from tests.wire.values import any_value

CALLS = {row.name: row for row in all_rows()}
EXAMPLES = 4
"""Of each call."""


def call(name: str) -> Rpc[Any, Any]:
    return rpc_of(CALLS[name])


def test_the_table_lists_every_call_of_the_proto() -> None:
    """A call that is only in the proto would be answered by nobody."""
    proto = {
        f"/{service.full_name}/{method.name}": (method.input_type.name, method.output_type.name)
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    streams = {path for feature in native_features() for path in feature.streams}
    assert sorted({*streams, *[row.path for row in all_rows()]}) == sorted(proto)


def test_calls_keep_the_names_of_older_clients() -> None:
    """Code and proto have better words now; 0.13 asks by these."""
    assert GET_HISTORY.path == "/rmqlite.v1.Admin/GetLife"
    assert IMPORT_DEAD_LETTERS.path == "/rmqlite.v1.Admin/ImportLetters"


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=few(EXAMPLES))
@given(data=st.data())
def test_a_request_arrives_as_it_was_sent(name: str, data: st.DataObject) -> None:
    """Every field, at any value that its type and the proto's width allow."""
    rpc, kind = call(name), CALLS[name].request
    value = data.draw(any_value(kind))
    assert rpc.decode_request(rpc.encode_request(value)) == value


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=few(EXAMPLES))
@given(data=st.data())
def test_an_answer_arrives_as_it_was_given(name: str, data: st.DataObject) -> None:
    """The same the other way."""
    rpc, kind = call(name), CALLS[name].answer
    value = data.draw(any_value(kind))
    arrived = value
    if isinstance(value, PulledRecords):
        # Only whole records are read: tests/wire/test_messages.py has them.
        value = replace(value, records=b"")
        arrived = PullResult(*astuple(value)[:4])
    assert rpc.decode_response(rpc.encode_response(value)) == arrived
    assert rpc.decode_response(b"".join(rpc.response_parts(value))) == arrived


@pytest.mark.one_of(5)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("data", [b"\xff", b"\x0a", b"\x0a\x05ab", b"\x07", b"\x00"])
def test_bytes_that_are_no_message_are_refused(name: str, data: bytes) -> None:
    """A foreign client's mistake is its own, said with the message's name; never a stack."""
    rpc = call(name)
    for decode in (rpc.decode_request, rpc.decode_response):
        with pytest.raises(InvalidValue) as raised:
            decode(data)
        assert "rmqlite.v1." in raised.value.rule


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_request_or_are_refused(data: bytes) -> None:
    """No other exception leaves the wire."""
    for name in CALLS:
        with contextlib.suppress(InvalidValue):
            call(name).decode_request(data)


def test_text_that_is_not_utf8_is_refused() -> None:
    """protobuf's strings are UTF-8; RocketMQ's properties too."""
    with pytest.raises(InvalidValue):
        rpc_of(rpcs.GET_ROUTE).decode_request(b"\x0a\x02\xff\xfe")


def test_absent_is_not_zero() -> None:
    """A group's limit of 0 attempts, or offset 0, is something else than none given."""
    for limit in (None, 0, 16):
        request = SendBackRequest("g", 1, max_reconsume_times=limit)
        rpc = rpc_of(rpcs.SEND_BACK)
        assert rpc.decode_request(rpc.encode_request(request)) == request


def test_a_field_from_the_future_is_skipped() -> None:
    """An older broker understands a newer client's request."""
    data = rpc_of(rpcs.GET_ROUTE).encode_request(RouteRequest("orders")) + b"\xfa\x3e\x03new"
    assert rpc_of(rpcs.GET_ROUTE).decode_request(data) == RouteRequest("orders")
