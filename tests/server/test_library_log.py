"""gRPC and asyncio log one line for what clients cause, and not without end."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from rmqlite.kernel.service.audit import KEYS_MAX, LINES_MAX, WINDOW_S, Repeats
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.grpc.library_log import LOGGERS, in_short_lines
from rmqlite.protocols.grpc_server import GrpcServer
from rmqlite.protocols.native.bytes import rpcs
from tests.support.brokers import BrokerUnderTest
from tests.support.clock import SetTime
from tests.support.grpc_ports import with_port
from tests.support.http2 import Http2
from tests.support.long_answers import BODY, LONG
from tests.support.rocketmq_v2_client import TOPIC


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log has got, as a handler writes it."""
    return [logging.Formatter().format(each) for each in caplog.records]


@pytest.mark.parametrize("name", LOGGERS)
def test_an_error_of_a_library_is_one_line(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """It says what and where; the stack, and what comes after the first line, stay out."""
    with in_short_lines():
        try:
            int("x" * 10_000)
        except ValueError:
            logging.getLogger(name).exception("a call\nfuture: <Task>")
    (line,) = told(caplog)
    assert line.startswith("a call error=ValueError(")
    assert "test_library_log.py:" in line
    assert len(line) < 500
    assert "\n" not in line


def test_a_client_that_is_gone_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """gRPC raises an error of this name for whoever still writes to it."""
    error = type("ExecuteBatchError", (Exception,), {})
    with in_short_lines():
        logging.getLogger(LOGGERS[0]).error("raised in core", exc_info=error("x"))
    assert not caplog.records


def test_of_the_same_line_only_the_first_ones_are_logged() -> None:
    """Afterwards it is said how many more there were, and of how many others."""
    now = SetTime()
    repeats = Repeats(now)
    assert sum([repeats.note("a") for _ in range(100)]) == LINES_MAX
    assert sum([repeats.note(number) for number in range(100)]) == KEYS_MAX - 1
    assert repeats.over() == []
    now.s += WINDOW_S
    assert repeats.over() == [("a", 100 - LINES_MAX), (None, 100 - KEYS_MAX + 1)]
    now.s += WINDOW_S
    assert repeats.over() == []
    assert repeats.note("a")


def test_headers_that_are_no_text_fill_no_log(
    under_test: BrokerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """gRPC would write ten times their size, a stack and the value, each time."""

    def rude(port: int) -> None:
        with Http2(port) as client:
            for _ in range(40):
                header = b"x-name", b"\xff" * 4_000
                client.answer(client.call(rpcs.GET_ROUTE.path, b"", header))

    async def scenario(port: GrpcServer, _: Any) -> None:
        with in_short_lines():
            await asyncio.to_thread(rude, port.port)

    with_port(under_test, scenario)
    lines = [each for each in told(caplog) if "UnicodeDecodeError" in each]
    assert len(lines) == LINES_MAX
    assert max(map(len, lines)) < 700


@pytest.mark.parametrize("name", LONG)
@pytest.mark.long_bodies
def test_a_client_that_goes_while_it_is_answered_leaves_no_line(
    under_test: BrokerUnderTest, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be logged as a bug of the broker, with a stack."""
    under_test.send(*[Message(TOPIC, BODY)] * 10)
    rpc, data = LONG[name]

    async def scenario(port: GrpcServer, _: Any) -> None:
        def begun() -> Http2:
            client = Http2(port.port, window=0)
            client.call(rpc.path, data, (b"x-mq-client-id", b"a"))
            return client

        with in_short_lines():
            with await asyncio.to_thread(begun):
                while not port._in_flight.unread.bytes:
                    await asyncio.sleep(0.001)
            while port._in_flight.unread.bytes:
                await asyncio.sleep(0.001)

    caplog.set_level(logging.WARNING)
    with_port(under_test, scenario)
    assert told(caplog) == []
