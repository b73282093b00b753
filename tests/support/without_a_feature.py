"""Brokers without features, a fork each: python -m tests.support.without_a_feature FOLDER NAMES...

NAMES are one feature, or several with commas.  In the first broker without them messages are
stored, delayed, delivered, pulled and given up; then it kills itself.  In the second, on the same
store, they are counted.  Prints what went wrong.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from rmqlite.features.every import NEEDS, features
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.process.protocol_server import Running
from rmqlite.kernel.process.serve import Assembly, serve
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.requests.groups import GroupChange, HeartbeatRequest, Subscription
from rmqlite.kernel.requests.messages import PullRequest, SendBackRequest
from rmqlite.kernel.sends.calls import DraftCall
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.names import dlq_topic, retry_topic
from tests.support.eventually import WAIT_S

GROUP, TOPIC = "readers", "orders"
Scenario = Callable[[Service], Awaitable[None]]


class Asking:
    """A protocol whose only caller is a scenario."""

    is_listening = True
    ports: Mapping[str, int] = {}

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    async def bind(self) -> None: ...

    async def open(self, running: Running) -> None:
        async def asking() -> None:
            async with asyncio.timeout(WAIT_S):
                await self._scenario(running.service)
                # A task that ends would end the broker.
                await asyncio.sleep(WAIT_S)

        self._asking = running.tasks.create_task(asking(), name="asking")

    async def drain(self) -> None:
        self._asking.cancel()

    async def close(self) -> None: ...


async def moved(service: Service) -> None:
    """Send, delay, deliver, pull, fail twice; end without a word."""
    await service.groups.change(GroupChange(GROUP, max_reconsume_times=1))
    await service.groups.heartbeat(HeartbeatRequest(GROUP, "me", (Subscription(TOPIC),)))
    for waits in (b"", b"DELAY\x011\x02", f"TIMER_DELIVER_MS\x01{wall_ms() + 500}\x02".encode()):
        draft = Draft(TOPIC, 0, waits, b"body", wall_ms(), bytes(8))
        await service.messages.send(DraftCall((draft,)))
    await pulled(service, TOPIC, 3)
    for topic in (TOPIC, retry_topic(GROUP)):
        failed = (await pulled(service, topic, 1))[0]
        await service.messages.send_back(SendBackRequest(GROUP, failed, delay_level=1))
    await pulled(service, dlq_topic(GROUP), 1)
    os.kill(os.getpid(), signal.SIGKILL)


async def counted(service: Service) -> None:
    """Each message is there once, and rmqlite.v1 has the calls of all features that are there."""
    topics = (TOPIC, retry_topic(GROUP), dlq_topic(GROUP))
    counts = [len(await pulled(service, topic, 1)) for topic in topics]
    assert counts == [3, 1, 1], counts
    table = import_module("rmqlite.protocols.native.table")
    limits = import_module("rmqlite.protocols.native.bytes.limits")
    assert set(table.methods_of(service)) == set(limits.all_rows())
    limits.native_limits(BrokerConfig())
    os.kill(os.getpid(), signal.SIGTERM)


async def pulled(service: Service, topic: str, wanted: int) -> list[int]:
    """The physical offsets of a topic's messages, when there are so many."""
    while True:
        found: list[int] = []
        for each in await service.topics.queue_ranges(topic):
            request = PullRequest(GROUP, topic, each.queue.queue_id, 0)
            pulled = await service.messages.pull(request)
            found += [record.head.physical_offset for record in pulled.records]
        if len(found) >= wanted:
            return found
        await asyncio.sleep(0.05)


def begun(folder: Path, names: str, scenario: Scenario) -> int:
    """The process id of a broker without these features; what it logs is in FOLDER/NAMES.log."""
    if pid := os.fork():
        return pid
    log = os.open(folder / f"{names}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 2)
    # Python then finds neither the folder nor what is in it, and the line is gone from the list.
    modules: dict[str, Any] = sys.modules
    lines: Any = NEEDS
    for name in names.split(","):
        modules[f"rmqlite.features.{name}"] = None
        lines.pop(name, None)
    sizes: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20, "max_message_bytes": 1 << 19}
    config = BrokerConfig(store_path=folder / names, **sizes)
    made = Assembly(config=config, ports=[Asking(scenario)], features=features())
    os._exit(serve(made))


def main(folder: Path, names: list[str]) -> None:
    for scenario, wanted in ((moved, -signal.SIGKILL), (counted, 0)):
        pids = {name: begun(folder, name, scenario) for name in names}
        for name, pid in pids.items():
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if code != wanted:
                print(f"{scenario.__name__} without {name}: {code}")
                print((folder / f"{name}.log").read_text()[-800:])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
