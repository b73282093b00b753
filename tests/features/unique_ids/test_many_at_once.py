"""Sends with unique ids that arrive together give other calls their turns, and see each other."""

from __future__ import annotations

from rmqlite.kernel.sends.calls import Stored
from rmqlite.kernel.words.message import Message
from tests.support.brokers import BrokerUnderTest
from tests.support.sends import call_of

CALLS = 300


def test_calls_that_arrive_together_are_stored_in_several_steps(
    under_test: BrokerUnderTest,
) -> None:
    """Else three hundred of them would hold up the loop; of one id the first call counts."""
    messages = [
        Message("orders", b"x", unique_id=f"id-{number // 2}", message_id=f"m-{number}")
        for number in range(CALLS)
    ]
    plain = Message("orders", b"x", message_id="plain")
    calls = [call_of([each], 0) for each in (*messages, plain)]
    steps, count = under_test.broker.drafts.send(calls), 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcomes = end.value
            break
        count += 1
    assert count >= CALLS * 8 // 512
    under_test.sync()
    assert all(isinstance(each, Stored) for each in outcomes)
    found = [each.duplicates for each in outcomes]
    assert found == [{0: (0, f"m-{n - 1}")} if n % 2 else {} for n in range(CALLS)] + [{}]
