"""How much CPU time a broker takes for one send of RocketMQ's 4.x clients.

    python -m tests.benchmarks.sends --messages 20000

Frames, as RocketMQ's Java client writes them, go to a connection of the remoting protocol, and the
answers come back: all of the broker's own work, with the real store and the thread that syncs,
but without sockets and on a disk in memory.  So the figures repeat, and two versions can be
compared; the kernel adds its time for each read and write of a socket.  "32 together" means that
32 frames arrive in one read, "batches" that each of them has 32 messages.  Every figure is the
best of some rounds, because other programs on the machine can only make a round slower.  --calls
also counts the function calls of a send.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from rmqlite.features.accounts.accounts import PERMS
from rmqlite.kernel.process.serve import GC_THRESHOLDS
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.protocols.remoting.bytes.batch import BatchItem, write_batch
from rmqlite.protocols.remoting.bytes.command import ACCESS_KEY, SIGNATURE, Command, signature
from rmqlite.protocols.remoting.bytes.frame import encode
from rmqlite.protocols.remoting.bytes.requests.sends import SEND_MESSAGE_V2, SendMessage
from tests.support.accounts import SECRET, account, accounts
from tests.support.brokers import BrokerUnderTest
from tests.support.remoting import ProtocolUnderTest, served_protocol

MEMORY: Final = Path("/dev/shm")
TOPIC: Final = "orders"
QUEUES: Final = 4
BODY: Final = b"x" * 1024
ACCOUNT: Final = account("order-service", topic_perms={TOPIC: PERMS["PUB"]})
FILES: Final[dict[str, Any]] = {
    "mapped_file_size_commit_log": 1 << 30,
    "mapped_file_size_consume_queue": 6_000_000,
    "max_hash_slots": 5_000_000,
    "max_index_entries": 20_000_000,
    "max_message_bytes": 4 << 20,
}


class Case(NamedTuple):
    """together: frames in one read.  batch: messages in a frame.  is_signed: by an account."""

    name: str
    together: int
    level: int = 0
    batch: int = 1
    is_signed: bool = False


CASES: Final = (
    Case("1 at a time", 1),
    Case("8 together", 8),
    Case("32 together", 32),
    Case("32 together, delayed", 32, level=3),
    Case("32 together, signed", 32, is_signed=True),
    Case("8 batches together", 8, batch=32),
)


class Answers(asyncio.Transport):
    """The client's side of a connection: counts the answers, and wakes who waits for them."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 40_000)})
        self.frames = 0
        self.enough = 0
        self.all_there = asyncio.Event()

    def write(self, data: Any) -> None:
        # Each answer says so once; looking at each length would cost more.
        self.frames += data.count(b'"msgId"')
        if self.frames >= self.enough:
            self.all_there.set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass

    close = abort


def frames_of(case: Case, count: int) -> list[bytes]:
    """Sends in turn to the queues of the topic; count: how many frames."""
    delay = f"DELAY\x01{case.level}\x02" if case.level else ""
    frames = []
    for number in range(count):
        own = [
            f"{delay}UNIQ_KEY\x017F0000010001{number * case.batch + at:020X}\x02WAIT\x01true"
            for at in range(case.batch)
        ]
        is_batch = case.batch > 1
        body = BODY
        if is_batch:
            body = write_batch([BatchItem(0, BODY, each.encode()) for each in own])
        send = SendMessage(
            TOPIC,
            "order-service",
            queue_id=number % QUEUES,
            born_timestamp=1_795_317_592_790 + number,
            properties="" if is_batch else own[0],
            is_batch=is_batch,
        )
        ext = {**SEND_MESSAGE_V2.fields.write(send), "n": "broker-a"}
        if case.is_signed:
            ext[ACCESS_KEY] = ACCOUNT.access_key
            ext[SIGNATURE] = signature(ext, body, SECRET)
        frames.append(encode(Command(310, number, ext, body)))
    return frames


async def send_all(protocol: ProtocolUnderTest, reads: list[bytes], together: int) -> None:
    """Give each read to a connection, and wait until it is answered."""
    connection, answers = protocol.connections.made(), Answers()
    connection.connection_made(answers)
    for read in reads:
        answers.enough = answers.frames + together
        answers.all_there.clear()
        connection.data_received(read)
        await answers.all_there.wait()
    connection.connection_lost(None)


def cpu_us(case: Case, count: int, profile: cProfile.Profile | None = None) -> float:
    """CPU microseconds for a message of one round."""
    frames = frames_of(case, count // case.batch)
    together = case.together
    reads = [b"".join(frames[at : at + together]) for at in range(0, len(frames), together)]
    taken: list[float] = []

    async def scenario(protocol: ProtocolUnderTest) -> None:
        if case.is_signed:
            protocol.server.access.accounts = accounts(ACCOUNT)
        # The topic and its queues are made before.
        await send_all(protocol, frames[:QUEUES], 1)
        # As the broker does.
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        if profile is not None:
            profile.enable()
        began_s = time.process_time()
        await send_all(protocol, reads, together)
        taken.append((time.process_time() - began_s) / count * 1e6)
        if profile is not None:
            profile.disable()

    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        under_test = BrokerUnderTest(Path(folder), files=SystemFiles(), **FILES)
        under_test.broker.topics.ensure(TOPIC, QUEUES)
        served_protocol(under_test, scenario)
        under_test.close()
    return taken[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=9_728, help="in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", action="store_true", help="count the function calls, too")
    options = parser.parse_args()
    # Whole reads in each case.
    count = max(1, options.messages // 256) * 256
    for case in CASES:
        best = min(cpu_us(case, count) for _ in range(options.rounds))
        calls = ""
        if options.calls:
            profile = cProfile.Profile()
            cpu_us(case, count, profile)
            total = sum(each.callcount for each in profile.getstats())
            calls = f", {total / count:.0f} calls"
        print(f"{case.name:22} {best:6.1f} us CPU for a message{calls}", flush=True)


if __name__ == "__main__":
    main()
