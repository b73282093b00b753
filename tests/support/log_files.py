"""Log files that are full, and as old as a test wants; retention goes by the files' own times."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.support.brokers import BrokerUnderTest
from tests.support.messages import plain

HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000
"""The wall clock of these tests; retention goes by the files' own times."""
SEGMENT = 1 << 17
EVERY_HOUR = ";".join([f"{hour:02d}" for hour in range(24)])
RETENTION: dict[str, Any] = {
    "mapped_file_size_commit_log": SEGMENT,
    "max_message_bytes": 40_000,
    "delete_when": EVERY_HOUR,
    # Of a disk that others use too, nothing is to depend here.
    "clean_forcibly": False,
}


def log_files(broker: BrokerUnderTest) -> list[Path]:
    return sorted((broker.config.store_path / "commitlog").iterdir())


def fill(broker: BrokerUnderTest, files: int, body: str = "x") -> None:
    """Four plain messages to a file, until the log has this many more."""
    wanted = len(log_files(broker)) + files
    while len(log_files(broker)) < wanted:
        broker.send(plain(body * 30_000))
    carry_tables(broker)


def carry_tables(broker: BrokerUnderTest) -> None:
    """Rows of tables are at the log's end, too, so that retention need not wait for a round."""
    broker.store.carry_tables(broker.store.end)
    broker.sync()


def age(broker: BrokerUnderTest, hours: float = 73) -> None:
    """Every file of the log was last written this long ago."""
    for path in log_files(broker):
        then_ns = int((NOW_MS - hours * HOUR_MS) * 1_000_000)
        os.utime(path, ns=(then_ns, then_ns))


def starts(broker: BrokerUnderTest) -> list[int]:
    return [int(path.name) // SEGMENT for path in log_files(broker)]
