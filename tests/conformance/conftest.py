"""A real broker, and a running program of each official client, for the live tests.

They end with the last test of the folder: until the end of a run they would ask for messages, which
costs more CPU time than all tests here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from rmqlite.client import PullConsumer
from rmqlite.kernel.words.errors import TopicUnknown
from rmqlite.testing import BrokerProcess
from tests.support import toolchains
from tests.support.broker_processes import OF_ANY_DISK, free_port
from tests.support.programs import Program

LEVELS: Final = "1s 1s 1s 1s 1s 2h"
CLIENTS: Final = {"java": toolchains.java, "go": toolchains.go, "cpp": toolchains.cpp}
PROGRAMS: Final = CLIENTS | {
    "java-5": partial(toolchains.java, toolchains.JAVA_5),
    "java-pop": partial(toolchains.java, toolchains.POP_TOOLS, toolchains.POP_CLIENT),
}
EACH_CLIENT: Final = [
    pytest.param(name, marks=[pytest.mark.long] if name == "go" else []) for name in sorted(CLIENTS)
]
"""As parameters: to compile Go's takes longer than all that the other ones do."""
StartProgram = Callable[[str, str], Program]


def live_broker(folder: Path, **changes: Any) -> BrokerProcess:
    """A broker on ports that stay, with short delays between retries."""
    keys = OF_ANY_DISK | {"messageDelayLevel": LEVELS, "grpcPort": str(free_port())}
    keys |= {"listenPort": str(free_port()), "nameServerPort": str(free_port())}
    return BrokerProcess(folder, keys | {key: str(value) for key, value in changes.items()})


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with live_broker(tmp_path_factory.mktemp("live")) as started:
        yield started


@pytest.fixture(scope="package")
def programs(
    broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Program]]:
    """Gives the program of a client, which is started once."""
    folder = tmp_path_factory.mktemp("programs")
    running: dict[str, Program] = {}
    with ExitStack() as stack:

        def program(name: str) -> Program:
            if name not in running:
                command = PROGRAMS[name]()
                started = Program(command, broker.name_server, folder / f"{name}.log")
                running[name] = stack.enter_context(started)
            return running[name]

        yield program


@pytest.fixture(params=EACH_CLIENT)
def client(request: pytest.FixtureRequest, programs: Callable[[str], Program]) -> Program:
    """Each of the clients in turn."""
    return programs(request.param)


@pytest.fixture
def client_name(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["client"])


@pytest.fixture
def java(programs: Callable[[str], Program]) -> Program:
    return programs("java")


@pytest.fixture(params=["java", pytest.param("java-5", marks=pytest.mark.long)])
def any_java(request: pytest.FixtureRequest, programs: Callable[[str], Program]) -> Program:
    """The Java client of RocketMQ 4.9, and that of RocketMQ 5."""
    return programs(request.param)


@pytest.fixture
def java_name(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["any_java"])


@pytest.fixture
def keys_in(broker: BrokerProcess) -> Callable[[str], Counter[str]]:
    """How often each message, by its keys, is in a topic."""

    def counted(topic: str) -> Counter[str]:
        found: Counter[str] = Counter()
        with (
            PullConsumer(broker.endpoint, "auditors", timeout_ms=60_000) as consumer,
            # It may not be there yet.
            suppress(TopicUnknown),
        ):
            for queue in consumer.queues(topic):
                offset = 0
                while True:
                    result = consumer.pull(topic, queue.queue_id, offset, max_messages=500)
                    found.update([" ".join(message.keys) for message in result.messages])
                    if result.next_offset == offset:
                        break
                    offset = result.next_offset
        return found

    return counted
