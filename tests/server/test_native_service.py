"""The servicer's own decisions: what a failed sync inside a call means for everybody else."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rmqlite.errors import FlushFailed
from rmqlite.message import Message
from rmqlite.requests import SendBackRequest, SendRequest
from rmqlite.server.group_commit import GroupCommit
from rmqlite.server.native_service import NativeService
from rmqlite.server.waiting import Waiting
from rmqlite.store.commit_log import Written
from rmqlite.store.record import NewRecord
from tests.support.brokers import BORN_HOST, BrokerUnderTest
from tests.support.bulk import outcomes, request

FAILED = FlushFailed("cannot cut commitlog: Input/output error")


class FakeContext:
    """What a servicer asks of its caller."""

    def peer(self) -> str:
        return "ipv4:10.0.0.1:1234"


@pytest.fixture
def syncer() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.mark.parametrize("call", ["send", "send_back", "schedule_bulk"])
def test_an_append_whose_sync_failed_ends_the_broker_and_is_not_answered(
    call: str, tmp_path: Path, syncer: ThreadPoolExecutor
) -> None:
    """The log's end may not be what the broker believes: only a recovery can tell."""
    under_test = BrokerUnderTest(tmp_path)
    (sent,) = under_test.send(Message("orders", b"first"))

    def failing(records: Sequence[NewRecord]) -> list[Written]:
        assert records
        raise FAILED

    async def main() -> None:
        waiting = Waiting("maxParkedPolls", 10)
        commit = GroupCommit(under_test.config, under_test.store, syncer, waiting.wake)
        running = asyncio.create_task(commit.run())
        await asyncio.sleep(0)
        service = NativeService(under_test.config, under_test.broker, commit, waiting, waiting)
        context: Any = FakeContext()
        asked: Coroutine[Any, Any, Any]
        if call == "send":
            asked = service.send(SendRequest((Message("orders", b"x"),)), context)
        elif call == "schedule_bulk":
            asked = service.schedule_bulk(request(["a"]), context)
        else:
            asked = service.send_back(SendBackRequest("shop", sent.physical_offset), context)
        under_test.store.append = failing  # type: ignore[method-assign]
        with pytest.raises(FlushFailed, match="cannot cut"):
            await asked
        with pytest.raises(FlushFailed, match="cannot cut"):
            await running

    asyncio.run(main())
    under_test.store.release()


def test_a_duplicate_is_answered_when_what_it_repeats_is_on_disk(
    tmp_path: Path, syncer: ThreadPoolExecutor
) -> None:
    """Else a power cut could take back a message whose sender was told that it is there."""
    under_test = BrokerUnderTest(tmp_path)
    under_test.broker.schedule_bulk(request(["a"], job_id=""), BORN_HOST)
    store = under_test.store
    assert store.durable_end < store.end

    async def main() -> None:
        waiting = Waiting("maxParkedPolls", 10)
        commit = GroupCommit(under_test.config, store, syncer, waiting.wake)
        service = NativeService(under_test.config, under_test.broker, commit, waiting, waiting)
        context: Any = FakeContext()
        answer = await service.schedule_bulk(request(["a"], job_id=""), context)
        assert outcomes(answer, 1) == "d"
        assert store.durable_end == store.end

    asyncio.run(main())
    store.release()
