"""The table of calls is the proto's."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import definition, service
from tests.support.rocketmq_v2 import refused

SERVICE = service.DESCRIPTOR.services_by_name["MessagingService"]


def test_the_table_has_every_call() -> None:
    """With the paths that the clients use."""
    assert {rpc.name for rpc in rpcs.ALL} == set(SERVICE.methods_by_name)
    assert rpcs.SEND_MESSAGE.path == "/apache.rocketmq.v2.MessagingService/SendMessage"
    assert {rpc.path.split("/")[1] for rpc in rpcs.ALL} == {SERVICE.full_name}


def test_three_calls_are_streams() -> None:
    """gRPC needs to know it before the first byte."""
    answers = {rpc.name for rpc in rpcs.ALL if rpc.has_many_answers}
    assert answers == {"ReceiveMessage", "PullMessage", "Telemetry"}
    assert {rpc.name for rpc in rpcs.ALL if rpc.has_many_requests} == {"Telemetry"}


def test_bytes_become_a_request_and_an_answer_becomes_bytes() -> None:
    """Without the bytes of the request in the refusal."""
    request = service.QueryRouteRequest(topic=definition.Resource(name="orders"))
    assert rpcs.QUERY_ROUTE.decode(request.SerializeToString()) == request
    answer = service.QueryRouteResponse()
    assert rpcs.QUERY_ROUTE.encode(answer) == b""
    with refused(Code.BAD_REQUEST, "request must be a protobuf message apache.rocketmq.v2.Query"):
        rpcs.QUERY_ROUTE.decode(b"\xff")


@pytest.mark.parametrize("name", ["definition.proto", "service.proto"])
def test_the_files_have_names_of_their_own(name: str) -> None:
    """Another package may register a file by the short name, for a proto of its own."""
    script = (
        "from google.protobuf import descriptor_pb2, descriptor_pool\n"
        "from rmqlite.protocols.rocketmq_v2.bytes import rpcs\n"
        f"file = descriptor_pb2.FileDescriptorProto(name={name!r}, package='other')\n"
        "descriptor_pool.Default().Add(file)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
