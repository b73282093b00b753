"""Messages at the service: when an answer may leave."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rmqlite.features.bulk.bulk import Bulk
from rmqlite.features.bulk.service import BulkCalls
from rmqlite.kernel import Steps
from rmqlite.kernel.pulling import Pulled
from rmqlite.kernel.requests.messages import PullRequest, PullStatus
from rmqlite.kernel.words.message import Message
from tests.support.brokers import BrokerUnderTest
from tests.support.bulk import outcomes, request
from tests.support.calls import turns_until
from tests.support.messages import TOPIC, plain
from tests.support.sends import BORN_HOST, call_of
from tests.support.services import Served, served
from tests.support.steps import done


def test_a_duplicate_is_answered_when_what_it_repeats_is_on_disk(tmp_path: Path) -> None:
    """Otherwise a power cut could remove a message after its sender got the answer."""
    under_test = BrokerUnderTest(tmp_path)
    done(under_test.broker[Bulk].schedule(request(["a"], job_id=""), BORN_HOST))
    store = under_test.store
    assert store.durable_end < store.end

    async def scenario(server: Served, _: object) -> None:
        answer = await server.service[BulkCalls].schedule(request(["a"], job_id=""), BORN_HOST)
        assert outcomes(answer, 1) == "d"
        assert store.durable_end == store.end

    served(under_test, scenario)
    store.release()


def numbered(value: int) -> Message:
    return plain(str(value), properties={"n": str(value)})


WAITING = PullRequest("readers", TOPIC, 0, 0, wait_ms=30_000)


@pytest.mark.parametrize(
    "waiting", [replace(WAITING, sql="n > 6"), replace(WAITING, expression="T")]
)
def test_a_waiting_pull_sleeps_on_through_messages_that_do_not_match(
    tmp_path: Path, waiting: PullRequest
) -> None:
    """It looks at each of them once, so that a busy topic does not cost its square."""
    under_test = BrokerUnderTest(tmp_path)
    asked: list[int] = []
    pull = under_test.broker.pull

    def counted(request: PullRequest) -> Steps[Pulled]:
        asked.append(request.queue_offset)
        return pull(request)

    def has_asked(queue_offset: int) -> bool:
        return asked[-1] == queue_offset

    under_test.broker.pull = counted  # type: ignore[method-assign]
    under_test.send(numbered(0))
    match = Message(TOPIC, b"7", "T", properties={"n": "7"})

    async def scenario(server: Served, _: object) -> None:
        under_test.heard.appended = server.commit.appended  # type: ignore[method-assign]
        messages = server.service.messages
        parked = asyncio.create_task(messages.pull(waiting))
        for number in range(1, 5):
            await turns_until(lambda: server.service.parked == 1)
            await messages.send(call_of([numbered(number)], 0))
            await turns_until(partial(has_asked, number + 1))
        assert not parked.done()
        await messages.send(call_of((match,), queue_id=0))
        result = await parked
        assert [record.body for record in result.records] == [b"7"]
        assert (result.status, result.next_offset) == (PullStatus.FOUND, 6)
        assert set(Counter(asked).values()) <= {1, 2}

    served(under_test, scenario)
    under_test.store.release()


def test_a_waiting_pull_says_how_far_it_has_looked(tmp_path: Path) -> None:
    """When its time is over, or its filter has compared many: then the offset is committed."""
    under_test = BrokerUnderTest(tmp_path, filter_scan_max=3)
    under_test.send(numbered(0), numbered(1))

    async def scenario(server: Served, _: object) -> None:
        under_test.heard.appended = server.commit.appended  # type: ignore[method-assign]
        messages = server.service.messages
        request = PullRequest("readers", TOPIC, 0, 0, sql="n > 6", wait_ms=1)
        result = await messages.pull(request)
        assert (result.status, result.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 2)
        waiting = replace(request, wait_ms=30_000)
        parked = asyncio.create_task(messages.pull(waiting))
        await turns_until(lambda: server.service.parked == 1)
        await messages.send(call_of([numbered(2)], 0))
        result = await parked
        assert (result.status, result.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 3)

    served(under_test, scenario)
    under_test.store.release()
