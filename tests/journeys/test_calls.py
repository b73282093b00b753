"""What strangers and a broken disk do to a real broker: it stays small, quiet and truthful."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc
import pytest

from rmqlite.client import AdminClient, Message, Producer
from rmqlite.kernel.words.errors import (
    BrokerUnreachable,
    FlushFailed,
    InvalidName,
    Refused,
    RmqliteError,
)
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.pb import rmqlite_pb2 as pb
from rmqlite.protocols.shared.status import ERROR_METADATA, error_from_metadata
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import StartBroker, peak_mib, resident_mib
from tests.support.eventually import eventually
from tests.support.sends import request_of

MIB = 1 << 20
OPTIONS = (("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1))
LONG = "é" * 20_000
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
BROKEN_DISK = """
    import errno, os
    from pathlib import Path

    flag = Path(os.environ["RMQLITE_TEST_BROKEN_DISK"])
    pwrite, fdatasync = os.pwrite, os.fdatasync

    def failing():
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def broken_write(fd, data, offset):
        if flag.exists() and flag.read_text() == "write":
            flag.write_text("sync")
            failing()
        return pwrite(fd, data, offset)

    def broken_sync(fd):
        if flag.exists():
            failing()
        fdatasync(fd)

    os.pwrite, os.fdatasync = broken_write, broken_sync
"""
"""A disk that fails one write, and then every sync, once a file is there."""


OF_FEW_FILES = """
    import resource
    from rmqlite.kernel.config.config import BrokerConfig
    from rmqlite.features.accounts.gate.limits import connections_max

    resource.setrlimit(resource.RLIMIT_NOFILE, (900, 1000))
    found = connections_max(BrokerConfig())
    print(found, *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def ended(channel: grpc.Channel, path: str, request: bytes) -> Any:
    """A call that has ended, one way or the other."""
    method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
    call: Any = method.future(request, timeout=60)
    call.exception()
    return call


def failed(call: Any) -> RmqliteError | grpc.StatusCode:
    """How it ended: as our error if it is one, else gRPC's own status."""
    metadata = dict(call.trailing_metadata() or ())
    if ERROR_METADATA in metadata:
        return error_from_metadata(metadata[ERROR_METADATA])
    code = call.code()
    assert isinstance(code, grpc.StatusCode)
    return code


def outcomes(channel: grpc.Channel, path: str, requests: Iterable[bytes]) -> Counter[str]:
    """How many calls at the same time ended how."""
    method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
    calls: list[Any] = [method.future(each, timeout=120) for each in requests]
    return Counter(call.code().name for call in calls)


def test_refused_requests_leave_the_brokers_memory(start_broker: StartBroker) -> None:
    """A full disk refuses for hours: each megabyte that stayed would end out of memory."""
    broker = start_broker()
    request = rpc_of(rpcs.SEND).encode_request(request_of((Message("a b", bytes(MIB)),)))
    with grpc.insecure_channel(broker.endpoint, OPTIONS) as channel:
        assert outcomes(channel, rpcs.SEND.path, [request] * 8) == {"INVALID_ARGUMENT": 8}
        before_mib = resident_mib(broker)
        for _ in range(40):
            assert outcomes(channel, rpcs.SEND.path, [request] * 8) == {"INVALID_ARGUMENT": 8}
    assert resident_mib(broker) - before_mib < 120


def test_requests_at_the_same_time_cost_no_more_than_their_limit(
    start_broker: StartBroker,
) -> None:
    """Of 64 clients that send all they may, each is answered, some after a wait."""
    broker = start_broker(maxSendBytes=8 * MIB, maxBytesInFlight=24 * MIB)
    before_mib = resident_mib(broker)
    with grpc.insecure_channel(broker.endpoint, OPTIONS) as channel:
        ended = outcomes(channel, rpcs.SEND.path, [b"\xff" * (8 * MIB)] * 64)
    assert ended.total() == 64
    # Overloaded where the machine is too slow.
    assert set(ended) <= {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"}
    assert ended["INVALID_ARGUMENT"]
    assert peak_mib(broker) - before_mib < 240
    with Producer(broker.endpoint, "senders") as producer:
        producer.send(Message("orders", b"x"))


def filled(message: Any) -> Any:
    """A request whose every text is long."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        if field.message_type is not None:
            inner = getattr(message, field.name)
            filled(inner.add() if field.is_repeated else inner)
        elif field.type == field.TYPE_STRING:
            if field.is_repeated:
                getattr(message, field.name).append(LONG)
            else:
                setattr(message, field.name, LONG)
    return message


def test_a_long_name_gets_the_error_that_is_meant(shared_broker: str) -> None:
    """Its echo once made gRPC's headers too long, and the caller was told of another limit."""
    failures: list[RmqliteError] = []
    with grpc.insecure_channel(shared_broker, OPTIONS) as channel:
        for service in pb.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                request = filled(getattr(pb, method.input_type.name)())
                path = f"/{service.full_name}/{method.name}"
                end = failed(ended(channel, path, request.SerializeToString()))
                if end is not grpc.StatusCode.OK:
                    assert isinstance(end, Refused), f"{method.name}: {end!r}"
                    failures.append(end)
    assert len(failures) >= 15
    assert max(len(str(each)) for each in failures) < 1_200


def test_what_is_no_request_is_refused_in_silence(start_broker: StartBroker) -> None:
    """A stack for each filled the disk with log, and told nobody anything."""
    broker = start_broker()
    log = broker.folder / "broker.log"
    before = log.read_text()
    with grpc.insecure_channel(broker.endpoint, OPTIONS) as channel:
        for path in (CHECK, rpcs.SEND.path):
            assert outcomes(channel, path, [b"\xff\xff"] * 20) == {"INVALID_ARGUMENT": 20}
        assert outcomes(channel, CHECK, [b"\x0a\x04nope"]) == {"NOT_FOUND": 1}
        assert outcomes(channel, "/no/method", [b""] * 20) == {"UNIMPLEMENTED": 20}
        assert outcomes(channel, rpcs.SEND.path, [bytes(64 * MIB)]) == {"RESOURCE_EXHAUSTED": 1}
        for path in (WATCH, REFLECT):
            stream: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(path)
            with pytest.raises(grpc.RpcError) as raised:
                list(stream(iter([b"\xff\xff"]), timeout=60))
            assert isinstance(raised.value, grpc.Call)
            assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(InvalidName), Producer(broker.endpoint, "senders") as producer:
            producer.send(Message("a b", b"x"))
    assert log.read_text() == before


@pytest.mark.long
def test_a_sync_that_fails_in_a_cancel_ends_the_broker(
    start_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever call meets it: what is on disk only the next start can tell."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(textwrap.dedent(BROKEN_DISK))
    flag = tmp_path / "broken"
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(hooks), os.environ.get("PYTHONPATH", "")])
    )
    monkeypatch.setenv("RMQLITE_TEST_BROKEN_DISK", str(flag))
    # Nothing else is synced meanwhile, or that would end it.
    never = 2**31 - 1
    broker: BrokerProcess = start_broker(
        flushConsumerOffsetInterval=never, flushDelayOffsetInterval=never
    )
    with Producer(broker.endpoint, "senders") as producer, AdminClient(broker.endpoint) as admin:
        kept, lost = [
            producer.send(Message("orders", b"x", delay_level=18)).message_id for _ in range(2)
        ]
        assert admin.schedule.cancel(lost)
        flag.write_text("write")
        with pytest.raises(FlushFailed, match="cannot sync"):
            admin.schedule.cancel(kept)
        eventually(lambda: "stopped with exit code 1" in broker.log_end(), "the broker stops")
    flag.unlink()
    broker.start()
    with AdminClient(broker.endpoint) as admin:
        eventually(lambda: waiting(admin) == [kept], "the message waits as before")


def waiting(admin: AdminClient) -> list[str]:
    return [each.message_id for each in admin.schedule.pending()]


def test_the_number_of_connections_has_a_limit(start_broker: StartBroker) -> None:
    """Each takes memory and a file descriptor; who is connected is served as before."""
    broker = start_broker(maxConnections=5)
    host, _, port = broker.endpoint.rpartition(":")
    with AdminClient(broker.endpoint) as admin:
        admin.create_topic("orders")
        strangers = [socket.create_connection((host, int(port)), timeout=60) for _ in range(20)]
        # A connection that is taken gets HTTP/2 settings, one too many its end.
        answers = [was_answered(stranger) for stranger in strangers]
        assert answers.count(True) == 4
        admin.broker_status()
        for stranger in strangers:
            stranger.close()
    eventually(lambda: is_served(broker.endpoint), "room for others")


def is_served(endpoint: str) -> bool:
    try:
        with AdminClient(endpoint) as admin:
            admin.broker_status()
    except BrokerUnreachable:
        return False
    return True


def was_answered(stranger: socket.socket) -> bool:
    try:
        return bool(stranger.recv(1))
    except ConnectionResetError:
        return False


def test_connections_leave_the_store_its_open_files() -> None:
    """The limit of open files is raised, and then connections are fewer, with a warning."""
    code = textwrap.dedent(OF_FEW_FILES)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "100 1000 1000\n"
    assert "connections=100 open_files=1000 wanted=20800" in done.stderr


def test_a_broker_without_room_for_a_connection_says_how_many_open_files_it_needs(
    tmp_path: Path,
) -> None:
    """Before it makes a store; it would answer one client, or fail at the next file."""
    broker = [sys.executable, "-m", "rmqlite", "broker", "--store", str(tmp_path / "store")]
    # Not by preexec_fn: the child of a process with gRPC may abort before it.
    limited = ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *broker]
    done = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "(ulimit -Hn) must be" in done.stderr
    assert "at least 802, and 20800 for maxConnections=10000" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "store").exists()
