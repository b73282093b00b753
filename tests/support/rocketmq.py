"""A broker of RocketMQ on a store, without a name server: a raw client asks it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rmqlite.kernel.records.record import MAGIC_BYTES, Head, read_head
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.message import UNIQ_KEY, encode_properties
from rmqlite.kernel.words.names import is_system
from rmqlite.kernel.words.property_string import PropertyString
from tests.support import toolchains
from tests.support.broker_processes import free_port
from tests.support.java_server import port_with_vip, running, server_command
from tests.support.remoting import RawClient

POM: Final = toolchains.ROOT / "tests" / "journeys" / "rocketmq" / "pom.xml"
TOPIC: Final = "orders"
ROLL_WINDOW_S: Final = 3
LOG_FILE_BYTES: Final = 1 << 20
QUEUE_FILE_BYTES: Final = 4_000
SEND_V2, RECALL = 310, 370
DONE: Final = 0


class RocketMQ:
    """Its client sends, recalls; kill() is a SIGKILL."""

    def __init__(self, process: subprocess.Popen[bytes], client: RawClient) -> None:
        self._process = process
        self._client = client

    def send(self, name: str, **properties: object) -> dict[str, str]:
        """Send a message with this name as its UNIQ_KEY; the fields of the answer."""
        own = {UNIQ_KEY: name} | {key: str(value) for key, value in properties.items()}
        asked = {"a": "g", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "h": "0"}
        asked |= {"g": str(wall_ms()), "i": encode_properties(own).decode(), "j": "0", "k": "false"}
        answer = self._client.ask(SEND_V2, asked, name.encode())
        assert answer.code == DONE, answer
        return answer.ext

    def recall(self, handle: str) -> None:
        asked = {"producerGroup": "g", "topic": TOPIC, "recallHandle": handle}
        answer = self._client.ask(RECALL, asked)
        assert answer.code == DONE, answer

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def rocketmq(folder: Path, store: Path, version: str, **changes: Any) -> Iterator[RocketMQ]:
    """A broker of this version on a store, until it is killed or the context ends."""
    port = port_with_vip()
    settings = {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "haListenPort": free_port(),
        "storePathRootDir": store,
        "storePathCommitLog": store / "commitlog",
        "mappedFileSizeCommitLog": LOG_FILE_BYTES,
        "mappedFileSizeConsumeQueue": QUEUE_FILE_BYTES,
        "maxHashSlotNum": 100,
        "maxIndexNum": 500,
        "flushDiskType": "SYNC_FLUSH",
        "diskMaxUsedSpaceRatio": 99,
        "timerRollWindowSlot": ROLL_WINDOW_S,
        "timerMaxDelaySec": 315_360_000,
        "recallMessageEnable": "true",
        **changes,
    }
    paths = toolchains.classpath(POM, version)
    command = server_command(folder, paths, "broker", settings, "-Xmx512m")
    with (
        running(command, folder, folder / "broker.log", port) as process,
        RawClient(f"127.0.0.1:{port}") as client,
    ):
        yield RocketMQ(process, client)


def delivered(store: Path, begin: int = 0) -> list[tuple[str, int]]:
    """Name and store time of each message in a topic of a user, in the log from `begin` on."""
    return [
        (properties.text(UNIQ_KEY), head.store_timestamp_ms)
        for head, properties in _records(store)
        if head.physical_offset >= begin and not is_system(head.topic)
    ]


def log_end(store: Path) -> int:
    return max([head.physical_offset + head.size for head, _ in _records(store)], default=0)


def _records(store: Path) -> Iterator[tuple[Head, PropertyString]]:
    for path in sorted((store / "commitlog").iterdir()):
        data, at = path.read_bytes(), 0
        while data[at + 4 : at + 8] == MAGIC_BYTES:
            head = read_head(data, at)
            assert head is not None
            yield head, PropertyString(head.properties)
            at += head.size
