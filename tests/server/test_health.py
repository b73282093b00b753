"""Health: SERVING until the broker drains, which ends each watch.  And reflection."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqlite.kernel.words.errors import InvalidValue, Overloaded
from rmqlite.protocols.grpc.calls import Handlers, everybody
from rmqlite.protocols.grpc.in_flight import InFlight
from rmqlite.protocols.grpc_server import REFLECTIONS_MAX, REQUEST_BYTES_MAX, WATCHES_MAX, Health
from tests.support.calls import FakeContext, ask, turns_until
from tests.support.thinned import part_of

SERVICES = ("rmqlite.v1.Admin", "rmqlite.v1.Messaging")
Status = health_pb2.HealthCheckResponse
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
Question = reflection_pb2.ServerReflectionRequest


def request(service: str) -> bytes:
    data: bytes = health_pb2.HealthCheckRequest(service=service).SerializeToString()
    return data


def handlers(health: Health) -> Handlers:
    return health.handlers(InFlight(1 << 30, 1 << 20), everybody)


def told(context: FakeContext) -> list[Any]:
    assert context.code is grpc.StatusCode.OK
    return [Status.FromString(each).status for each in context.answers]


@pytest.mark.parametrize("service", ["", *SERVICES])
def test_each_service_and_the_whole_serve_until_they_drain(service: str) -> None:
    """A load balancer asks for one of them, a probe for the whole."""

    async def main() -> None:
        health = Health(SERVICES)
        assert told(await ask(handlers(health), CHECK, request(service))) == [Status.SERVING]
        assert health.is_serving
        health.drain()
        assert told(await ask(handlers(health), CHECK, request(service))) == [Status.NOT_SERVING]
        assert not health.is_serving

    asyncio.run(main())


def test_an_unknown_service_is_not_found() -> None:
    """As the protocol wants it: a typing mistake must not look healthy."""
    context = asyncio.run(ask(handlers(Health(SERVICES)), CHECK, request("rmqlite.v2")))
    assert context.code is grpc.StatusCode.NOT_FOUND
    assert context.details == "no service 'rmqlite.v2'"


def test_an_unknown_service_is_named_in_short() -> None:
    """Status details of 4,000 letters would not fit into gRPC's headers three times as long."""
    context = asyncio.run(ask(handlers(Health(SERVICES)), CHECK, request("x" * 4_000)))
    assert context.code is grpc.StatusCode.NOT_FOUND
    assert len(context.details) < 300


@pytest.mark.parametrize(
    ("service", "answers"),
    [
        ("", [Status.SERVING, Status.NOT_SERVING]),
        (SERVICES[0], [Status.SERVING, Status.NOT_SERVING]),
        ("rmqlite.v2", [Status.SERVICE_UNKNOWN]),
    ],
)
def test_a_watch_ends_with_the_drain(service: str, answers: list[Any]) -> None:
    """A client watches for as long as it lives: waiting for it would hold up the stop."""

    async def main() -> list[Any]:
        health = Health(SERVICES)
        watch = asyncio.create_task(ask(handlers(health), WATCH, request(service)))
        await turns_until(lambda: health.running("watches") == 1)
        health.drain()
        return told(await watch)

    assert asyncio.run(main()) == answers


def test_who_watches_a_broker_that_drains_is_told_once() -> None:
    """The health does not change any more."""

    async def main() -> list[Any]:
        health = Health(SERVICES)
        health.drain()
        return told(await ask(handlers(health), WATCH, request("")))

    assert asyncio.run(main()) == [Status.NOT_SERVING]


def test_what_changes_while_a_watcher_is_told_is_told_next() -> None:
    """Else it would believe for ever that a broker with all its workers does not serve."""
    health = Health(SERVICES)
    changes = [lambda: health.set_away(True), lambda: health.set_away(False), health.drain]
    written: list[int] = []

    class Slow(FakeContext):
        async def write(self, answer: bytes) -> None:
            written.append(Status.FromString(answer).status)
            if changes:
                changes.pop(0)()
            await asyncio.sleep(0)

    context: Any = Slow()

    async def read() -> bytes:
        return request("")

    async def main() -> None:
        async with asyncio.timeout(30):
            await health.watch(read, context)

    asyncio.run(main())
    assert written == [Status.SERVING, Status.NOT_SERVING] * 2


def test_there_is_a_limit_to_watching() -> None:
    """Each is a long call; one that has ended makes room."""

    async def main() -> None:
        health = Health(SERVICES)
        watches = [
            asyncio.create_task(ask(handlers(health), WATCH, request("")))
            for _ in range(WATCHES_MAX)
        ]
        await turns_until(lambda: health.running("watches") == WATCHES_MAX)
        refused = await ask(handlers(health), WATCH, request(""))
        assert isinstance(refused.error, Overloaded)
        watches.pop().cancel()
        await turns_until(lambda: health.running("watches") == WATCHES_MAX - 1)
        health.drain()
        assert told(await ask(handlers(health), WATCH, request(""))) == [Status.NOT_SERVING]
        await asyncio.gather(*watches)

    asyncio.run(main())


def test_reflection_answers_each_question() -> None:
    """A tool asks what there is, and then for the files that describe it, in one call."""
    questions = [
        Question(list_services=""),
        Question(file_containing_symbol="grpc.health.v1.Health"),
        Question(file_by_filename="no such file"),
    ]
    data = [each.SerializeToString() for each in questions]
    context = asyncio.run(ask(handlers(Health(SERVICES)), REFLECT, *data))
    assert context.code is grpc.StatusCode.OK
    Response = reflection_pb2.ServerReflectionResponse
    services, described, missing = [Response.FromString(each) for each in context.answers]
    names = {each.name for each in services.list_services_response.service}
    assert names == {*SERVICES, "grpc.health.v1.Health", REFLECT.split("/")[1]}
    assert described.file_descriptor_response.file_descriptor_proto
    assert missing.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


def test_there_is_a_limit_to_reflection() -> None:
    """A silent stream keeps room for a whole request."""

    async def main() -> None:
        health = Health(SERVICES)
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def read() -> Any:
            return await waiting

        contexts: list[Any] = [FakeContext() for _ in range(REFLECTIONS_MAX)]
        streams = [asyncio.create_task(health.reflect(read, each)) for each in contexts]
        await turns_until(lambda: health.running("reflections") == REFLECTIONS_MAX)
        refused = await ask(handlers(health), REFLECT)
        assert isinstance(refused.error, Overloaded)
        waiting.set_result(None)
        await asyncio.gather(*streams)
        assert (await ask(handlers(health), REFLECT)).code is grpc.StatusCode.OK

    asyncio.run(main())


@pytest.mark.parametrize("path", [CHECK, WATCH, REFLECT])
@pytest.mark.parametrize("data", [b"\xff\xff", b"\x0a\x02\xff\xfe", bytes(REQUEST_BYTES_MAX + 1)])
def test_what_is_no_request_is_refused_and_nothing_is_logged(
    path: str, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the caller's mistake; a stack for each would fill the disk with log."""
    caplog.set_level(logging.INFO)
    context = asyncio.run(ask(handlers(Health(SERVICES)), path, data))
    assert context.code is grpc.StatusCode.INVALID_ARGUMENT
    assert isinstance(context.error, InvalidValue)
    assert context.error.field == "request"
    assert not caplog.records


@settings(deadline=None, max_examples=part_of(200))
@given(
    data=st.one_of(
        st.binary(max_size=60),
        st.builds(
            Question,
            file_containing_extension=st.builds(
                reflection_pb2.ExtensionRequest,
                containing_type=st.one_of(st.text(), st.just("grpc.health.v1.HealthCheckRequest")),
                extension_number=st.integers(-(2**31), 2**31 - 1),
            ),
        ).map(Question.SerializeToString),
        st.builds(Question, all_extension_numbers_of_type=st.text()).map(
            Question.SerializeToString
        ),
        st.builds(Question, file_by_filename=st.text()).map(Question.SerializeToString),
        st.builds(Question, file_containing_symbol=st.text()).map(Question.SerializeToString),
    )
)
def test_no_question_is_a_bug_of_ours(data: bytes) -> None:
    """A library answers them, and the caller may be anybody."""
    context = asyncio.run(ask(handlers(Health(SERVICES)), REFLECT, data))
    assert context.code in (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT)
