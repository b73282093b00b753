"""A broker that prints the modules which a delayed message meets on its way, as JSON.

    python -m tests.support.way_of_a_message FOLDER

The broker serves in the main thread, its client in another one, so one profiler sees both.
Several messages are sent, and only a module that each of them has met counts.  The broker's own
upkeep, which may run at the same moment, does not count.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Final

from rmqlite.client import Message, Producer, PullConsumer, Queue
from rmqlite.kernel.config.config import parse_config
from rmqlite.kernel.process.protocol_server import Endpoints
from rmqlite.serving import serve

MESSAGES: Final = 3
_QUEUE: Final = Queue("orders", 0)
_WAIT_MS: Final = 60_000
_ALONE_MS: Final = 500
"""Half of the delay, in which nothing but the broker's upkeep happens; on a loaded machine a call
that lasts longer would miss the delivery."""


_UPKEEP: Final = frozenset(f"rmqlite.kernel.process.{name}" for name in ("indexing", "upkeep"))


class Met:
    """The modules whose functions were called, while it is recording."""

    def __init__(self) -> None:
        self.is_recording = False
        self.modules: set[str] = set()
        sys.setprofile(self._look)
        threading.setprofile(self._look)

    def _look(self, frame: FrameType, event: str, _argument: Any) -> None:
        if self.is_recording and event == "call":
            name = _module_of(frame)
            if name.startswith("rmqlite.") and not _is_upkeep(frame):
                self.modules.add(name)

    def of_one_message(self, producer: Producer, consumer: PullConsumer) -> set[str]:
        """Send a message with a delay of a second, and receive it."""
        place = _QUEUE.topic, _QUEUE.queue_id
        self.modules = set()
        self.is_recording = True
        producer.send(Message("orders", b"body", delay_level=1), queue_id=0)
        self.is_recording = False
        # At an offset: the position stays, even if the message has come already.
        consumer.pull(*place, consumer.position(_QUEUE), wait_ms=_ALONE_MS)
        self.is_recording = True
        while not consumer.pull(*place, wait_ms=_WAIT_MS).messages:
            pass
        self.is_recording = False
        return self.modules


def _module_of(frame: FrameType) -> str:
    return frame.f_globals.get("__name__") or ""


def _is_upkeep(frame: FrameType | None) -> bool:
    """Does a loop of the broker's upkeep run this, whatever it calls?"""
    while frame is not None:
        if _module_of(frame) in _UPKEEP:
            return True
        frame = frame.f_back
    return False


def _run(met: Met, endpoint: str) -> None:
    try:
        with Producer(endpoint, "shop") as producer, PullConsumer(endpoint, "billing") as consumer:
            met.of_one_message(producer, consumer)
            each = [met.of_one_message(producer, consumer) for _ in range(MESSAGES)]
        print(json.dumps(sorted(set.intersection(*each))), flush=True)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def main(folder: Path) -> int:
    settings = {
        "diskSpaceWarningLevelRatio": 100,
        "storePathRootDir": folder,
        "listenPort": 0,
        "grpcPort": 0,
        "nameServerPort": 0,
    }
    config = parse_config("\n".join(f"{key}={value}" for key, value in settings.items()))
    met = Met()

    def ready(endpoints: Endpoints) -> None:
        threading.Thread(target=_run, args=(met, endpoints.grpc)).start()

    return serve(config, ready)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
