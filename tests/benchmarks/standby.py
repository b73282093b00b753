"""What a standby costs.

    python -m tests.benchmarks.standby enter send idle catch-up echo

enter: in one process, MB of a log a second that a standby enters, for bodies of 1,000 and of 100
bytes, and how long one piece takes.  send: a producer's single sends at a pair and at a broker
alone, in turns.  idle: CPU of both brokers while nothing is sent.  catch-up: an empty standby
beside a master with a long log.  echo: what gRPC alone takes for one frame and its answer, which no
pair can be faster than, and what it takes once a second.

--sync-ms N: each broker has a disk of its own, on which a sync takes N ms.  Two brokers on one real
disk wait for each other's syncs, which those of two machines do not.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from rmqlite.client import AdminClient, Message, Producer
from rmqlite.features.standby.copied_store import CopiedStore
from rmqlite.features.standby.leading import PIECE_BYTES
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.words.clock import SystemClock, pause_s
from rmqlite.testing import OF_ANY_DISK, BrokerProcess, free_port
from tests.support.broker_processes import cpu_s_of

SLOW_SYNC: Final = r"""
#include <time.h>
int fdatasync(int file) {
    struct timespec pause = {0, SYNC_MS * 1000000L};
    (void)file;
    return nanosleep(&pause, 0);
}
int fsync(int file) { return fdatasync(file); }
"""
MEMORY: Final = Path("/dev/shm")
MB: Final = 1_000_000
SIZES: Final = (1_000, 100)
FILE_BYTES: Final = 64 << 20
ALONE: Final = {**OF_ANY_DISK, "mappedFileSizeCommitLog": str(FILE_BYTES)}


@contextmanager
def pair(folder: Path) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """A master, which runs, and a standby, which does not yet."""
    ports = [free_port(), free_port()]
    made = [
        BrokerProcess(
            folder / role,
            ALONE
            | {"inSyncReplicas": "2", "brokerRole": role, "grpcPort": str(own)}
            | {"masterAddress": f"127.0.0.1:{other}"},
            is_forked=False,
        )
        for role, own, other in zip(("SYNC_MASTER", "SLAVE"), ports, ports[::-1], strict=True)
    ]
    try:
        made[0].start()
        yield made[0], made[1]
    finally:
        for each in made[::-1]:
            each.kill()


def wait_for_copy(master: BrokerProcess) -> None:
    with AdminClient(master.endpoint) as admin:
        while True:
            (status,) = admin.broker_status().replication
            if status.is_connected and not status.behind_bytes:
                return
            pause_s(0.02)


def fill(endpoint: str, body: bytes, log_bytes: int) -> None:
    batch, bytes_each = [Message("orders", body) for _ in range(1_000)], len(body) + 150
    with Producer(endpoint, "senders") as producer:
        for _ in range(log_bytes // bytes_each // len(batch)):
            producer.send_batch(batch)


def enter(folder: Path, scale: float) -> None:
    """Without network and sync; seconds of CPU, because the machine does other things."""
    for size in SIZES:
        place = folder / str(size)
        with BrokerProcess(place / "master", ALONE, is_forked=False) as broker:
            fill(broker.endpoint, b"x" * size, int(200 * MB * scale))
            broker.kill()
        config = BrokerConfig(store_path=place / "copy", mapped_file_size_commit_log=FILE_BYTES)
        (place / "copy").mkdir()
        store, took, count = CopiedStore(config, SystemFiles(), SystemClock()), list[float](), 0
        store.agree()
        for path in sorted((broker.store / "commitlog").iterdir()):
            data = path.read_bytes()
            for at in range(0, len(data), PIECE_BYTES):
                began_s = time.thread_time()
                if not any(data[at : at + 100]):
                    break
                store.receive(store.wanted, data[at : at + PIECE_BYTES])
                while store.enter():
                    pass
                took.append(time.thread_time() - began_s)
                count += PIECE_BYTES
        store.release()
        print(
            f"enter, bodies of {size}: {count / MB / sum(took):.0f} MB/s;"
            f" a piece {statistics.median(took) * 1e3:.1f} ms, at most {max(took) * 1e3:.1f}"
        )


def sends(endpoint: str, count: int) -> list[float]:
    found = []
    with Producer(endpoint, "senders") as producer:
        for number in range(count + 20):
            began_s = time.monotonic()
            producer.send(Message("orders", b"x" * 1_000))
            if number >= 20:
                found.append(time.monotonic() - began_s)
    return found


def send(folder: Path, scale: float) -> None:
    """Also CPU of the brokers for one send."""
    with (
        pair(folder / "pair") as (master, standby),
        BrokerProcess(folder / "alone", ALONE, is_forked=False) as alone,
    ):
        standby.start()
        wait_for_copy(master)
        ratios, count = [], int(500 * scale) or 1
        for _ in range(6):
            found = []
            for each in (alone, master):
                before = [cpu_s_of(one.pid) for one in (each, standby)]
                p50_ms = statistics.median(sends(each.endpoint, count)) * 1e3
                cpu = [cpu_s_of(one.pid) for one in (each, standby)]
                found.append(
                    (p50_ms, [(b - a) * 1e6 / count for a, b in zip(before, cpu, strict=True)])
                )
            (own, own_cpu), (both, both_cpu) = found
            ratios.append(both / own)
            print(
                f"send p50 alone {own:.2f} ms, pair {both:.2f} ms; CPU µs alone {own_cpu[0]:.0f},"
                f" master {both_cpu[0]:.0f}, standby {both_cpu[1]:.0f}"
            )
        print(f"send p50, pair to alone: {statistics.median(ratios):.2f}")


def idle(folder: Path, scale: float) -> None:
    with (
        pair(folder / "pair") as (master, standby),
        BrokerProcess(folder / "alone", ALONE, is_forked=False) as alone,
    ):
        standby.start()
        wait_for_copy(master)
        pause_s(3)
        seconds, brokers = 60 * scale, (master, standby, alone)
        before = [cpu_s_of(each.pid) for each in brokers]
        pause_s(seconds)
        shares = [(cpu_s_of(b.pid) - a) / seconds for a, b in zip(before, brokers, strict=True)]
        print("idle CPU, master, standby, alone: " + ", ".join(f"{s:.2%}" for s in shares))


def catch_up(folder: Path, scale: float) -> None:
    for size in SIZES:
        with pair(folder / str(size)) as (master, standby):
            master.kill()
            own = ALONE | {"storePathRootDir": str(master.store)}
            with BrokerProcess(folder / f"{size}-alone", own, is_forked=False) as one:
                fill(one.endpoint, b"x" * size, int(400 * MB * scale))
            master.start()
            with AdminClient(master.endpoint) as admin:
                end = admin.broker_status().log_max_offset
            seconds = standby.start()
            began_s, cpu_s = time.monotonic(), [cpu_s_of(e.pid) for e in (master, standby)]
            wait_for_copy(master)
            took_s = time.monotonic() - began_s
            cpu = [cpu_s_of(e.pid) - a for e, a in zip((master, standby), cpu_s, strict=True)]
            print(
                f"catch-up, bodies of {size}: {end / MB:.0f} MB in {took_s:.1f} s (after a start"
                f" of {seconds:.1f}): {end / MB / took_s:.0f} MB/s, CPU {cpu[0]:.1f},"
                f" {cpu[1]:.1f} s"
            )


def echoing(port: Any) -> None:
    """A server of gRPC that says again what it gets."""

    async def answer(_: object, context: Any) -> None:
        while (data := await context.read()) is not grpc.aio.EOF:
            await context.write(data)

    async def main() -> None:
        server = grpc.aio.server()
        handler: Any = grpc.stream_stream_rpc_method_handler(answer)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("bench.Echo", {"Talk": handler}),)
        )
        port.send(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        await server.wait_for_termination()

    asyncio.run(main())


async def echoes(port: int, pids: Sequence[int], count: int, rest_s: float) -> list[float]:
    """Seconds of each of count echoes, then of CPU of each process for all of them."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.stream_stream("/bench.Echo/Talk")()
        found, before = [], list[float]()
        for number in range(-20, count):
            if number == 0:
                before = [cpu_s_of(pid) for pid in pids]
            began_s = time.monotonic()
            await call.write(b"x" * 1_200)
            await call.read()
            if number >= 0:
                found.append(time.monotonic() - began_s)
                await asyncio.sleep(rest_s)
        call.cancel()
    return [*found, *[cpu_s_of(pid) - was for pid, was in zip(pids, before, strict=True)]]


def echo(folder: Path, scale: float) -> None:  # noqa: ARG001
    """CPU of the server, and of this process, which is the client."""
    own, other = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=echoing, args=(other,))
    server.start()
    try:
        pids, port, count = (server.pid or 0, os.getpid()), own.recv(), int(3_000 * scale) or 1
        *found, one, two = asyncio.run(echoes(port, pids, count, 0))
        print(
            f"echo p50 {statistics.median(found) * 1e3:.2f} ms;"
            f" CPU µs {one * 1e6 / count:.0f}, {two * 1e6 / count:.0f}"
        )
        seconds = int(30 * scale) or 1
        *_, one, two = asyncio.run(echoes(port, pids, seconds, 1))
        print(f"an echo a second, CPU: {one / seconds:.2%}, {two / seconds:.2%}")
    finally:
        server.kill()


@contextmanager
def disks(sync_ms: int) -> Iterator[Path]:
    """A folder for the brokers that are started meanwhile; sync_ms 0: on the disk that there is."""
    with tempfile.TemporaryDirectory(
        prefix="rmqlite-standby-", dir=MEMORY if sync_ms else None
    ) as name:
        folder = Path(name)
        if sync_ms:
            source, library = folder / "sync.c", folder / "sync.so"
            source.write_text(SLOW_SYNC)
            build = ["cc", "-shared", "-fPIC", f"-DSYNC_MS={sync_ms}"]
            subprocess.run([*build, "-o", str(library), str(source)], check=True)
            os.environ["LD_PRELOAD"] = str(library)
        try:
            yield folder
        finally:
            os.environ.pop("LD_PRELOAD", None)


SCENARIOS: Final[dict[str, Callable[[Path, float], None]]] = {
    "enter": enter,
    "send": send,
    "idle": idle,
    "catch-up": catch_up,
    "echo": echo,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", nargs="*", choices=[*SCENARIOS], default=[*SCENARIOS])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--sync-ms", type=int, default=0)
    options = parser.parse_args()
    for name in options.scenario:
        with disks(options.sync_ms) as folder:
            SCENARIOS[name](folder, options.scale)


if __name__ == "__main__":
    main()
