"""An archive of a log that a broker is writing, and whose archived files its retention deletes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqlite.kernel.words.clock import wall_ms
from rmqlite.spark.archive import Archive, Live, LogWithArchive
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import OF_ANY_DISK, free_port
from tests.support.eventually import eventually
from tests.support.jobs import pipeline
from tests.support.sending import SEED, Sending

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_BYTES = 1 << 17


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Its retention looks ten times a second for files that were last written an hour ago."""
    keys = OF_ANY_DISK | {"grpcPort": str(free_port()), "messageDelayLevel": "1s 2s"}
    keys |= {"deleteWhen": ";".join(f"{hour:02d}" for hour in range(24))}
    keys |= {"fileReservedTime": "1", "cleanResourceInterval": "100"}
    keys |= {"mappedFileSizeCommitLog": str(FILE_BYTES), "maxMessageSize": str(FILE_BYTES // 4)}
    with BrokerProcess(tmp_path / "broker", keys) as broker:
        yield broker


def log_files(broker: BrokerProcess) -> list[Path]:
    return sorted((broker.store / "commitlog").glob("[0-9]*"))


@pytest.mark.long
def test_archive_and_log_have_every_record_once(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """Each run archives while messages are sent and delivered; then retention takes the files."""
    place = tmp_path / "archive"
    sending = Sending(broker.endpoint, SEED, pause_s=0.02)
    sending.start()
    try:
        for _ in range(2):
            begun = len(log_files(broker))
            eventually(lambda n=begun: len(log_files(broker)) > n + 1, "the log grows")  # type: ignore[misc]
            found = pipeline("archive", "--path", broker.store, "--archive", place)
            hours_ago = wall_ms() / 1000 - 7_200
            for each in log_files(broker):
                if int(each.name) + FILE_BYTES <= found["deletable_before"]:
                    os.utime(each, (hours_ago, hours_ago))
            # Not those with a message that waits: the broker keeps them.
            first = log_files(broker)[0]
            eventually(lambda file=first: not file.exists(), "retention deletes")  # type: ignore[misc]
        audited = pipeline("reconcile", "--path", broker.store, "--archive", place)
        assert audited["held"]
        assert audited["snapshot"]["begin_offset"] == 0
    finally:
        sending.stop()
    log = LogWithArchive(Archive(spark, str(place)), Live(spark, path=str(broker.store)))
    rows = log.read(["topic", "keys", "physical_offset", "end_offset"]).collect()
    rows.sort(key=lambda row: row.physical_offset)
    for before, after in pairwise(rows):
        # The rest of a file is filled up.
        is_next_file = after.physical_offset == -(-before.end_offset // FILE_BYTES) * FILE_BYTES
        assert after.physical_offset == before.end_offset or is_next_file
    keys = [row["keys"] for row in rows if row.topic == "orders"]
    assert len(keys) == len(set(keys))
    delayed = {row["keys"] for row in rows if row.topic != "orders"}
    assert {*keys, *delayed} >= {*sending.acknowledged}
