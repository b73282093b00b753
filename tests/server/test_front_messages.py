"""Messages at the front: when an answer may leave."""

from __future__ import annotations

from pathlib import Path

from tests.support.brokers import BORN_HOST, BrokerUnderTest
from tests.support.bulk import outcomes, request
from tests.support.fronts import Served, served
from tests.support.steps import done


def test_a_duplicate_is_answered_when_what_it_repeats_is_on_disk(tmp_path: Path) -> None:
    """Otherwise a power cut could remove a message after its sender got the answer."""
    under_test = BrokerUnderTest(tmp_path)
    done(under_test.broker.schedule_bulk(request(["a"], job_id=""), BORN_HOST))
    store = under_test.store
    assert store.durable_end < store.end

    async def scenario(server: Served, _: object) -> None:
        messages = server.front.messages
        answer = await messages.schedule_bulk(request(["a"], job_id=""), BORN_HOST)
        assert outcomes(answer, 1) == "d"
        assert store.durable_end == store.end

    served(under_test, scenario)
    store.release()
