"""Bytes in, bytes out, errors as status; a request that failed leaves nothing in memory."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.service.group_commit import GroupCommit, SyncThread
from rmqlite.kernel.words.errors import (
    DiskFull,
    FlushFailed,
    InvalidValue,
    MessageTooLarge,
    RmqliteError,
    TopicUnknown,
)
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.grpc import calls
from rmqlite.protocols.grpc.calls import Context, Handlers, everybody, peer_host
from rmqlite.protocols.grpc.in_flight import InFlight
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.messages import SendRequest
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.native.table import Method, handlers_of
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import FakeContext, ask
from tests.support.sends import request_of

PATH = rpcs.SEND.path
REQUEST = rpc_of(rpcs.SEND).encode_request(request_of((Message("orders", bytes(1 << 16)),)))


@pytest.fixture
def in_flight() -> InFlight:
    return InFlight(10 << 20, 1 << 20)


@pytest.fixture
def commit(tmp_path: Path) -> Iterator[Callable[[], GroupCommit]]:
    """Makes a group commit on the loop that runs."""
    under_test = BrokerUnderTest(tmp_path)
    with closing(SyncThread()) as syncer:
        yield lambda: GroupCommit(under_test.config, under_test.store, syncer, lambda _: None)
    under_test.store.release()


def sending(method: Method, in_flight: InFlight) -> Handlers:
    """A broker that has one method."""
    return handlers_of({rpcs.SEND: method}, in_flight, BrokerConfig(), everybody)


Fail = Callable[[GroupCommit], Awaitable[None]]


async def full(_: GroupCommit) -> None:
    raise DiskFull(0.93, 90, 85)


async def bug(_: GroupCommit) -> None:
    raise KeyError("a bug")


async def slow_disk(commit: GroupCommit) -> None:
    asyncio.get_running_loop().call_soon(commit._too_slow)
    await commit.durable(1 << 60)


async def failed_disk(commit: GroupCommit) -> None:
    asyncio.get_running_loop().call_soon(commit.fail, FlushFailed("cannot sync"))
    await commit.durable(1 << 60)


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize("fail", [full, bug, slow_disk])
@pytest.mark.parametrize("data", [REQUEST, b"\xff" * (1 << 16)], ids=["request", "malformed"])
def test_of_a_request_that_failed_nothing_stays_in_memory(
    fail: Fail,
    data: bytes,
    commit: Callable[[], GroupCommit],
    in_flight: InFlight,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise 600 refused requests of 1 MiB stay until the garbage collector runs."""
    # The test's own log would keep every error.
    monkeypatch.setattr(calls.log, "disabled", True)
    data = bytes(bytearray(data))

    async def method(request: SendRequest, _: Context) -> Any:
        assert request.batches
        await fail(committing)

    committing: Any = None

    async def main() -> None:
        nonlocal committing
        committing = commit()
        handlers = sending(method, in_flight)
        await ask(handlers, PATH, REQUEST)
        gc.collect()
        references = sys.getrefcount(data)
        for _ in range(10):
            context = await ask(handlers, PATH, data)
            assert context.code is not grpc.StatusCode.OK
            del context
        # The turn in which the last one failed is over.
        await asyncio.sleep(0)
        assert sys.getrefcount(data) == references
        assert gc.collect() == 0
        assert in_flight.bytes == 0

    was_enabled = gc.isenabled()
    gc.disable()
    try:
        asyncio.run(main())
    finally:
        if was_enabled:
            gc.enable()


def test_everybody_who_waits_for_a_disk_that_fails_is_refused(
    commit: Callable[[], GroupCommit], in_flight: InFlight
) -> None:
    """They share one error; each caller gets it."""

    async def main() -> None:
        committing = commit()

        async def method(_: SendRequest, __: Context) -> Any:
            await failed_disk(committing)

        handlers = sending(method, in_flight)
        for context in await asyncio.gather(*[ask(handlers, PATH, REQUEST) for _ in range(5)]):
            assert context.code is grpc.StatusCode.UNAVAILABLE
            assert isinstance(context.error, FlushFailed)
        with pytest.raises(FlushFailed):
            await committing.run()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TopicUnknown("orders"), grpc.StatusCode.NOT_FOUND),
        (MessageTooLarge("body", 5, "at most 4"), grpc.StatusCode.INVALID_ARGUMENT),
        (DiskFull(0.93, 90, 85), grpc.StatusCode.UNAVAILABLE),
    ],
)
def test_an_error_is_the_status_of_its_call(
    error: RmqliteError,
    code: grpc.StatusCode,
    in_flight: InFlight,
) -> None:
    """The class and its fields arrive; nothing is logged, because the caller made the mistake."""

    async def method(_: SendRequest, __: Context) -> Any:
        raise error

    async def main() -> FakeContext:
        return await ask(sending(method, in_flight), PATH, REQUEST)

    context = asyncio.run(main())
    assert (context.code, context.details) == (code, str(error))
    assert type(context.error) is type(error)


def test_a_bug_is_logged_and_its_caller_is_not_shown_the_inside(
    commit: Callable[[], GroupCommit], in_flight: InFlight, caplog: pytest.LogCaptureFixture
) -> None:
    """The log needs the stack to mend the bug; the caller cannot use it."""

    async def method(_: SendRequest, __: Context) -> Any:
        await bug(commit())

    async def main() -> FakeContext:
        return await ask(sending(method, in_flight), PATH, REQUEST)

    caplog.set_level(logging.INFO)
    context = asyncio.run(main())
    assert context.code is grpc.StatusCode.INTERNAL
    assert context.details == "the broker failed; its log says why"
    (record,) = caplog.records
    assert record.getMessage() == f"call failed rpc={PATH}"
    assert record.exc_info
    assert record.exc_info[0] is KeyError


def test_a_call_without_a_request_is_refused(
    in_flight: InFlight, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker does not mistake it for an empty request."""
    monkeypatch.setattr(calls, "CANCEL_S_MAX", 0)

    async def method(_: SendRequest, __: Context) -> Any:
        raise AssertionError("there is nothing to do")

    async def main() -> FakeContext:
        return await ask(sending(method, in_flight), PATH)

    context = asyncio.run(main())
    assert isinstance(context.error, InvalidValue)
    assert context.error.value == "nothing"


def test_a_path_that_nobody_answers_has_no_handler() -> None:
    """gRPC itself then answers UNIMPLEMENTED."""
    details: Any = type("Details", (), {"method": "/rmqlite.v1.Messaging/Nothing"})()
    assert Handlers({}).service(details) is None


def test_a_peer_is_told_by_its_address() -> None:
    """The address is stored with a message; 0.0.0.0:0 if the peer has none."""
    assert peer_host("ipv4:127.0.0.1:5000") == b"\x7f\x00\x00\x01\x00\x00\x13\x88"
    assert peer_host("unix:/tmp/socket") == bytes(8)
