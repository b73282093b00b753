"""Measure rmqlite's own client with gRPC in the broker's process, and in processes of its own.

    python -m tests.benchmarks.grpc_workers --workers 2 --turns 3

Messages of 1 KiB: one after the other in 1, 8 and 32 threads, as futures, in batches of 100, and
pulled 32 at a time.  "broker" and "workers" are microseconds of CPU for a message, of the broker's
process and of its workers together.  "at most" is the rate at which the busiest of these processes
would fill a core, if each had one and clients had enough: on a machine of eight, say.  In turns:
the machine of one moment is faster than that of another, so compare the ratios of one run.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from rmqlite.client import AdminClient, Message, Producer, PullConsumer
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import cpu_s_of

TOPIC: Final = "orders"
BATCH: Final = 100
PULL: Final = 32
MESSAGE: Final = Message(TOPIC, b"x" * 1_024)


class Figures(NamedTuple):
    """rate: messages a second."""

    rate: float
    broker_us: float
    workers_us: float

    def rate_max(self, workers: int) -> float:
        """Of the process that is busy the longest for a message."""
        return 1e6 / max(self.broker_us, self.workers_us / max(1, workers))


def workers_of(pid: int) -> list[int]:
    """The processes that a broker has started."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for thread in threads for child in thread.read_text().split()]


def measured(broker: BrokerProcess, messages: int, run: Callable[[], object]) -> Figures:
    workers = workers_of(broker.pid)
    before = cpu_s_of(broker.pid), sum(map(cpu_s_of, workers))
    began_s = elapsed_s()
    run()
    took_s = elapsed_s() - began_s
    own, theirs = cpu_s_of(broker.pid) - before[0], sum(map(cpu_s_of, workers)) - before[1]
    return Figures(messages / took_s, own * 1e6 / messages, theirs * 1e6 / messages)


def _all(pool: ThreadPoolExecutor, run: Callable[[int], None], counts: list[int]) -> None:
    for _ in pool.map(run, counts):
        pass


def figures_of(broker: BrokerProcess, scale: float) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    with ExitStack() as stack:
        with AdminClient(broker.endpoint) as admin:
            admin.create_topic(TOPIC)
        producer = stack.enter_context(Producer(broker.endpoint, "shop"))

        def one(count: int) -> None:
            for _ in range(count):
                producer.send(MESSAGE)

        one(int(500 * scale) + 1)
        for threads in (1, 8, 32):
            count = int(4_000 * scale) + 1
            with ThreadPoolExecutor(threads) as pool:
                each = [count // threads + 1] * threads
                run = partial(_all, pool, one, each)
                found[f"send, {threads} threads"] = measured(broker, sum(each), run)
        count = int(60_000 * scale) + 1

        def futures() -> None:
            for future in [producer.send_async(MESSAGE) for _ in range(count)]:
                future.result()

        found["futures"] = measured(broker, count, futures)
        calls = int(400 * scale) + 1

        def batches() -> None:
            for _ in range(calls):
                producer.send_batch([MESSAGE] * BATCH)

        found["batches"] = measured(broker, BATCH * calls, batches)
        consumer = stack.enter_context(PullConsumer(broker.endpoint, "readers"))
        queue = consumer.queues(TOPIC)[0]
        pulls = int(1_500 * scale) + 1

        def pull() -> None:
            for _ in range(pulls):
                consumer.pull(queue.topic, queue.queue_id, 0, max_messages=PULL)

        found["pulls of 32"] = measured(broker, PULL * pulls, pull)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    args = parser.parse_args()
    found: dict[tuple[str, int], list[Figures]] = defaultdict(list)
    with ExitStack() as stack:
        brokers = {}
        for workers in (0, args.workers):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            keys = {"grpcWorkers": str(workers)}
            brokers[workers] = stack.enter_context(BrokerProcess(folder / "broker", keys))
        for turn in range(args.turns):
            for workers, broker in brokers.items():
                print(f"turn {turn + 1} of {args.turns}, {workers} workers", flush=True)
                for name, figures in figures_of(broker, args.scale).items():
                    found[name, workers].append(figures)
    columns = ("rate/s", "broker us", "workers us", "at most")
    print(f"\n{'':20} {'workers':>7} {''.join(f'{name:>11}' for name in columns)}")
    for (name, workers), turns in sorted(found.items(), key=lambda each: each[0][0]):
        medians = Figures(*[statistics.median(column) for column in zip(*turns, strict=True)])
        values = (*medians, medians.rate_max(workers))
        print(f"{name:20} {workers:7} {''.join(f'{value:11,.0f}' for value in values)}")


if __name__ == "__main__":
    main()
