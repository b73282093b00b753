"""Reading the log through the real loop: other calls get their turns meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmqlite.features.raw_log.requests import LogReadRequest, LogSnapshotRequest, QueueReadRequest
from rmqlite.features.raw_log.service import LogCalls
from rmqlite.kernel.words.message import Message
from tests.support.brokers import BrokerUnderTest
from tests.support.loops import turns_beside
from tests.support.services import Served, served


def test_large_reads_leave_turns_to_others(tmp_path: Path) -> None:
    """A job that reads millions of records must not delay sends and pulls."""
    under_test = BrokerUnderTest(tmp_path, mapped_file_size_commit_log=1 << 23)
    for _ in range(8):
        under_test.send(*[Message("orders", b"x" * 900) for _ in range(500)])

    counted: list[int] = []
    answers: list[Any] = []

    async def scenario(server: Served, _: object) -> None:
        log = server.service[LogCalls]
        for call in (
            log.read(LogReadRequest(0, max_bytes=4 << 20)),
            log.read_queue(QueueReadRequest("orders", 0, 0, max_bytes=4 << 20)),
            log.snapshot(LogSnapshotRequest()),
        ):
            answer, turns = await turns_beside(call)
            answers.append(answer)
            counted.append(turns)

    served(under_test, scenario)
    log_turns, queue_turns, _ = counted
    log, queue, snapshot = answers
    assert log_turns > 300
    assert queue_turns > 300
    assert len(log.data) == min(4 << 20, snapshot.end_offset)
    # Behind the record of the topic.
    assert queue.records[:1_000] in log.data
    under_test.store.release()
