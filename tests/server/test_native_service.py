"""The servicer's own decision: when an answer may leave."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rmqlite.server.group_commit import GroupCommit
from rmqlite.server.native_service import NativeService
from rmqlite.server.waiting import Waiting
from tests.support.brokers import BORN_HOST, BrokerUnderTest
from tests.support.bulk import outcomes, request
from tests.support.calls import FakeContext
from tests.support.steps import done


@pytest.fixture
def syncer() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def test_a_duplicate_is_answered_when_what_it_repeats_is_on_disk(
    tmp_path: Path, syncer: ThreadPoolExecutor
) -> None:
    """Else a power cut could take back a message whose sender was told that it is there."""
    under_test = BrokerUnderTest(tmp_path)
    done(under_test.broker.schedule_bulk(request(["a"], job_id=""), BORN_HOST))
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
