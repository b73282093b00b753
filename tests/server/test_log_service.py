"""Reading in bulk through the real loop: others get their turn meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from rmqlite.message import Message
from rmqlite.requests.log import LogReadRequest, LogSnapshotRequest, QueueReadRequest
from rmqlite.server.log_service import LogService
from rmqlite.wire import rpcs
from tests.support.brokers import BrokerUnderTest

CONTEXT: Any = None


def test_large_reads_leave_turns_to_others(tmp_path: Path) -> None:
    """A job that reads millions of records must not be heard by those who send and pull."""
    under_test = BrokerUnderTest(tmp_path, mapped_file_size_commit_log=1 << 23)
    for _ in range(8):
        under_test.send(*[Message("orders", b"x" * 900) for _ in range(500)])

    async def main() -> tuple[list[int], Any]:
        service = LogService(under_test.broker)
        turns = 0
        counted = []

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await asyncio.sleep(0)
        answers = []
        for call in (
            service.read_log(LogReadRequest(0, max_bytes=4 << 20), CONTEXT),
            service.read_queue(QueueReadRequest("orders", 0, 0, max_bytes=4 << 20), CONTEXT),
            service.get_log_snapshot(LogSnapshotRequest(), CONTEXT),
        ):
            before = turns
            answers.append(await call)
            counted.append(turns - before)
        counting.cancel()
        return counted, answers

    (log_turns, queue_turns, _), (log, queue, snapshot) = asyncio.run(main())
    assert log_turns > 300
    assert queue_turns > 300
    assert len(log.data) == min(4 << 20, snapshot.end_offset)
    assert log.data.startswith(queue.records[:1_000])
    under_test.store.release()


def test_every_call_of_the_service_is_answered_by_it(tmp_path: Path) -> None:
    """One that is only in the table would be answered as unknown."""
    under_test = BrokerUnderTest(tmp_path)
    answered = set(LogService(under_test.broker).methods())
    assert answered == {rpc for rpc in rpcs.ALL if rpc.service == "rmqlite.v1.Log"}
    under_test.store.release()
