"""A broker in this process, one of whose parts ends without an error.

    python -m tests.support.ending_parts FOLDER [KIND NAME]...

Prints, as JSON, what each broker's parts were, its exit code and its log.  KIND: task, thread or
port; first comes a broker to which nothing happens.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rmqlite import serving
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.process import serve
from rmqlite.kernel.process.protocol_server import Endpoints
from rmqlite.kernel.process.upkeep import Watch
from tests.support.broker_processes import free_port
from tests.support.files import QuickFiles

BEGUN_S: Final = 0.3
"""After so long every loop has had its first turn."""
LOOKS: Final = 2
"""After so many the watch has seen the threads that began before."""


@dataclass
class Ended:
    """kind: "task", "thread" or "port"; "" for a broker that nothing happens to."""

    kind: str = ""
    name: str = ""
    tasks: list[str] = field(default_factory=list)
    watched: list[str] = field(default_factory=list)
    """Tasks whose end ends the broker."""
    threads: list[str] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)
    code: int = -1
    log: list[str] = field(default_factory=list)


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error: Any = record.exc_info[1] if record.exc_info else ""
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions
        self.lines.append(f"{record.getMessage()} {error}")


def run(folder: Path, kind: str = "", name: str = "") -> Ended:
    """Run a broker, let a part of it end, and return when the broker has ended."""
    ended = Ended(kind, name)
    made: list[Any] = []

    class Server(serve._Server):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    class Watching(Watch):
        looks = 0

        def look(self, running: Iterable[threading.Thread]) -> None:
            super().look(running)
            Watching.looks += 1

    def ready(_: Endpoints) -> None:
        server, loop = made[0], asyncio.get_running_loop()
        own = asyncio.current_task()
        # Else a thread begins with its first work.
        server._syncer.begin(server._announced.commit._store.begin_sync(), lambda _: None)
        for pool in (server._persister, server._indexer):
            pool.submit(int)
        loop.run_in_executor(None, int)

        def go() -> None:
            if Watching.looks < LOOKS:
                loop.call_later(BEGUN_S, go)
                return
            ended.tasks = sorted(
                [each.get_name() for each in asyncio.all_tasks() if each is not own]
            )
            ended.watched = sorted(
                [each.get_name() for each in server._announced.delivery._tasks._tasks]
            )
            ended.threads = sorted([each.name for each in threading.enumerate()])
            ended.ports = [each for each, _ in _ports(server)]
            if kind:
                _end(server, kind, name)
            else:
                signal.raise_signal(signal.SIGTERM)

        loop.call_later(BEGUN_S, go)

    ports: dict[str, Any] = {"listen_port": free_port(), "grpc_port": 0, "name_server_port": 0}
    ports |= {"metrics_port": free_port(), "web_port": free_port()}
    sizes: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20, "max_message_bytes": 1 << 19}
    sizes |= {"mapped_file_size_consume_queue": 4_000, "max_hash_slots": 100}
    config = BrokerConfig(store_path=folder, max_index_entries=500, **ports, **sizes)
    lines = _Lines()
    module: Any = serve
    before = module._Server, module.Watch
    logging.getLogger().addHandler(lines)
    module._Server, module.Watch = Server, Watching
    try:
        ended.code = serving.serve(config, ready)
    finally:
        module._Server, module.Watch = before
        logging.getLogger().removeHandler(lines)
    ended.log = lines.lines
    return ended


def _ports(server: Any) -> Iterator[tuple[str, Any]]:
    """Each listener of asyncio by its name."""
    for protocol in server._assembly.ports:
        if type(protocol).__name__ == "RemotingServer":
            yield from [(f"remoting {at}", each) for at, each in enumerate(protocol._servers)]
        elif type(protocol).__name__ == "MetricsServer":
            yield "metrics", protocol._http._server
        elif type(protocol).__name__ == "WebServer":
            yield from [("web", each) for each in protocol._server._listening]


def _end(server: Any, kind: str, name: str) -> None:
    if kind == "task":
        (task,) = [each for each in asyncio.all_tasks() if each.get_name() == name]
        task.cancel()
    elif kind == "port":
        dict(_ports(server))[name].close()
    elif name == "sync":
        server._syncer._give(None)
    else:
        (thread,) = [each for each in threading.enumerate() if each.name == name]
        pools = server._persister, server._indexer, asyncio.get_running_loop()._default_executor  # type: ignore[attr-defined]
        (pool,) = [each for each in pools if thread in each._threads]
        assert thread.ident is not None
        wish = ctypes.py_object(SystemExit)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), wish)
        pool._work_queue.put(None)


def main() -> None:
    folder = Path(sys.argv[1])
    serve.SystemFiles = QuickFiles  # type: ignore[attr-defined]
    logging.getLogger("concurrent.futures").disabled = True
    asked = zip(sys.argv[2::2], sys.argv[3::2], strict=True)
    found = [run(folder / "whole")]
    found += [run(folder / str(number), *each) for number, each in enumerate(asked)]
    print(json.dumps([asdict(each) for each in found]))


if __name__ == "__main__":
    main()
