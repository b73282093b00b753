"""How fast topics are created, and how fast a broker with very many of them starts.

    python -m tests.benchmarks.tables --topics 1000 --many 10000

A broker process of its own, SYNC_FLUSH, and 32 threads of one client: on a machine of two cores
both share these.  Every figure is one run.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rmqlite.client import AdminClient
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.testing import BrokerProcess

SETTINGS = {
    "diskSpaceWarningLevelRatio": "100",
    "cleanFileForciblyEnable": "false",
    "maxTopics": "100000",
}
THREADS = 32
MIB = 1 << 20


def measured(name: str, do: Callable[[], object]) -> None:
    began_s = elapsed_s()
    do()
    print(f"{name:44} {elapsed_s() - began_s:9.2f} s", flush=True)


def create(admin: AdminClient, begin: int, end: int) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(admin.create_topic, [f"topic-{number}" for number in range(begin, end)]):
            pass


def written_mib(broker: BrokerProcess) -> float:
    """What the process has asked its disk to write so far."""
    text = Path(f"/proc/{broker.pid}/io").read_text()
    return int(text.partition("write_bytes: ")[2].split("\n")[0]) / MIB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--many", type=int, default=10_000)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerProcess(Path(folder), SETTINGS, is_forked=False) as broker,
    ):
        with AdminClient(broker.endpoint) as admin:
            before_mib = written_mib(broker)
            create_some = f"{given.topics:,} topics created in parallel"
            measured(create_some, lambda: create(admin, 0, given.topics))
            print(f"{'(written to disk for them)':44} {written_mib(broker) - before_mib:9.1f} MiB")
            measured(
                "one after the other, 100",
                lambda: [admin.create_topic(f"single-{number}") for number in range(100)],
            )
            measured(f"up to {given.many:,}", lambda: create(admin, given.topics, given.many))
        broker.stop()
        measured(f"start with {given.many:,} topics", broker.start)
        broker.kill()
        measured("the same after SIGKILL", broker.start)


if __name__ == "__main__":
    main()
