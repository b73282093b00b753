"""Records that no client of ours can send: RocketMQ, or an older broker, has written them.

What lies in a store is kept and goes on: from the schedule to its topic, through every retry
to the dead letters.
"""

from __future__ import annotations

from rmqlite.message import DELAY, REAL_QID, REAL_TOPIC
from rmqlite.names import SCHEDULE_TOPIC, dlq_topic, retry_topic
from rmqlite.schedule_requests import ScheduleAction
from tests.broker.waiting import by_filter, deliver_all
from tests.broker.words import GROUP, TOPIC, create_topic, save_group, send_back
from tests.support.brokers import BrokerUnderTest
from tests.support.stores import new_record

RETRY = retry_topic(GROUP)
DLQ = dlq_topic(GROUP)


def test_a_kept_message_without_a_body_goes_through_every_retry_to_the_dead_letters(
    under_test: BrokerUnderTest,
) -> None:
    """Brokers before 0.6 took such messages; what was accepted is never lost."""
    create_topic(under_test, TOPIC)
    save_group(under_test, max_reconsume_times=2)
    properties = {DELAY: "2", REAL_TOPIC: TOPIC, REAL_QID: "0"}
    under_test.store.append([new_record(b"", SCHEDULE_TOPIC, 1, properties=properties)])
    under_test.restart()
    assert by_filter(under_test, ScheduleAction.RESCHEDULE, delay_level=1) == 1
    deliver_all(under_test)
    (message,) = under_test.messages(TOPIC)
    for _ in range(2):
        assert not send_back(under_test, message).is_dead
        deliver_all(under_test)
        message = under_test.messages(RETRY)[-1]
    assert send_back(under_test, message).is_dead
    (letter,) = under_test.messages(DLQ)
    assert (letter.body, letter.reconsume_times) == (b"", 3)
    assert len(under_test.messages(RETRY)) == 2
