"""A message with the longest properties goes every way that a short one goes.

RocketMQ's own tests send properties of 30,720 bytes.  Each way adds something to them: what must be
there is there, what may be left out is, and of the message itself nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rmqlite.features.changes.requests import ChangeOutcome
from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.redrive.requests import RedriveRequest, RedriveSpec
from rmqlite.features.transactions.requests import TransactionEnd
from rmqlite.features.transactions.transactions import Transactions
from rmqlite.kernel.records.completion import UNDELIVERABLE_TOPIC
from rmqlite.kernel.records.drafts import Draft, left_after_sparing
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.sends.calls import DraftCall
from rmqlite.kernel.words.limits import PROPERTIES_BYTES_MAX, SENT_PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import (
    DLQ_ORIGIN_TOPIC,
    FAILURE_REASON,
    FAILURE_REASON_ATTEMPT,
    ORIGIN_MESSAGE_ID,
    REDRIVEN_FROM,
    RETRY_TOPIC,
    StoredMessage,
    encode_properties,
)
from rmqlite.kernel.words.names import dlq_topic, retry_topic
from rmqlite.kernel.words.property_string import PropertyString
from rmqlite.protocols.remoting.bytes.batch import BatchItem, read_batch, write_batch
from tests.support.brokers import BrokerUnderTest
from tests.support.made_brokers import Make
from tests.support.messages import create_topic, send_back
from tests.support.pending import forget_topic, outcome
from tests.support.redrives import run
from tests.support.sends import BORN_HOST
from tests.support.steps import done

pytestmark = pytest.mark.usefixtures("each_form")

LEVEL_MS = 1_000
Send = Callable[[BrokerUnderTest, str], None]


def longest(bytes_max: int = SENT_PROPERTIES_BYTES_MAX, **more: str) -> dict[str, str]:
    """Properties of exactly so many bytes, of Chinese characters."""
    own = {"UNIQ_KEY": "A" * 32, "WAIT": "true", **more, "user": ""}
    free = bytes_max - len(encode_properties(own))
    return own | {"user": "中" * (free // 3) + "x" * (free % 3)}


USER = longest()["user"]


def sent(broker: BrokerUnderTest, draft: Draft, limit: int | None = None) -> int:
    (found,) = done(broker.broker.drafts.send([DraftCall((draft,), limit)]))
    assert not isinstance(found, Exception), found
    broker.sync()
    return found.physical_offsets[0]


def draft(topic: str, properties: dict[str, str], **fields: Any) -> Draft:
    return Draft(topic, 0, encode_properties(properties), b"order", 17, BORN_HOST, **fields)


def plainly(broker: BrokerUnderTest, topic: str) -> None:
    sent(broker, draft(topic, longest()))


def in_a_batch(broker: BrokerUnderTest, topic: str) -> None:
    body = write_batch([BatchItem(0, b"order", encode_properties(longest()))])
    sent(broker, Draft(topic, 0, b"", body, 17, BORN_HOST, spans=read_batch(body)))


def at_a_level(broker: BrokerUnderTest, topic: str) -> None:
    sent(broker, draft(topic, longest(DELAY="18")))
    broker.clock.forward(7_200_000)
    assert broker.deliver() == 1


def as_a_timer(broker: BrokerUnderTest, topic: str) -> None:
    sent(broker, draft(topic, longest(TIMER_DELAY_MS="5000")))
    broker.clock.forward(5_000)
    assert broker.deliver() == 1


def rescheduled(broker: BrokerUnderTest, topic: str) -> None:
    """From a level to an instant, to a level, and then at once."""
    sent(broker, draft(topic, longest(DELAY="18")))
    for new in ({"deliver_after_ms": 60_000}, {"delay_level": 18}):
        found = outcome(broker, ScheduleAction.RESCHEDULE, "A" * 32, topic=topic, **new)
        assert found is ChangeOutcome.DONE
    assert outcome(broker, ScheduleAction.FIRE, "A" * 32, topic=topic) is ChangeOutcome.DONE


def in_a_transaction(broker: BrokerUnderTest, topic: str) -> None:
    own = longest(TRAN_MSG="true", PGROUP="p" * 120, DELAY="18")
    at = sent(broker, draft(topic, own, sys_flag=4))
    broker.broker[Transactions].end(TransactionEnd("p" * 120, 0, at, is_commit=True))
    broker.sync()
    broker.clock.forward(7_200_000)
    assert broker.deliver() == 1


WAYS: list[Send] = [plainly, in_a_batch, at_a_level, as_a_timer, rescheduled, in_a_transaction]
ways = pytest.mark.parametrize("send", WAYS, ids=lambda send: send.__name__)
names = pytest.mark.parametrize(
    ("topic", "group"), [("orders", "shop"), ("t" * 127, "g" * 120)], ids=["short", "long"]
)


@pytest.fixture
def broker(make: Make) -> BrokerUnderTest:
    return make()


def redriven(broker: BrokerUnderTest, group: str, job_id: str, *, to_group: bool = True) -> None:
    spec = RedriveSpec(group, to_group=to_group)
    job = broker.broker[Redrive].start(RedriveRequest(spec, job_id))
    broker.sync()
    assert run(broker, job.job_id).sent == 1


def has_its_own(message: StoredMessage) -> bool:
    """Nothing of the message itself is lost, though some ways send fewer characters."""
    own = message.properties["user"]
    return USER.startswith(own.rstrip("x")) and len(own) > 10_240 and message.body == b"order"


def give_up(broker: BrokerUnderTest, topic: str, group: str, failures: int) -> StoredMessage:
    """Fail a message so often; its dead letter."""
    for number in range(failures):
        message = broker.messages(topic)[-1]
        assert has_its_own(message)
        is_last = number + 1 == failures
        back = SendBackRequest(
            group,
            message.physical_offset,
            delay_level=-1 if is_last else 3,
            reason=f"failure {number}: " + "因" * 300,
        )
        assert broker.broker.send_back(back).is_dead == is_last
        broker.sync()
        broker.clock.forward(10_000)
        broker.deliver()
        topic = retry_topic(group)
    return broker.messages(dlq_topic(group))[-1]


@ways
@names
def test_a_message_keeps_its_properties_until_it_dies_and_comes_back(
    broker: BrokerUnderTest, send: Send, topic: str, group: str
) -> None:
    """Each of its records names the origin, and each redrive succeeds."""
    create_topic(broker, topic, 1)
    send(broker, topic)
    place = topic
    for number in range(2):
        letter = give_up(broker, place, group, 3)
        assert has_its_own(letter)
        assert letter.properties[DLQ_ORIGIN_TOPIC] == topic
        assert letter.origin_topic == topic
        redriven(broker, group, f"job-{number}")
        place = retry_topic(group)
        again = broker.messages(place)[-1]
        assert has_its_own(again)
        assert again.properties[RETRY_TOPIC] == topic
        assert again.properties[REDRIVEN_FROM].startswith(dlq_topic(group))


@names
def test_a_dead_letter_goes_back_to_its_topic(
    broker: BrokerUnderTest, topic: str, group: str
) -> None:
    """As a job of an older version sends it."""
    create_topic(broker, topic, 1)
    plainly(broker, topic)
    give_up(broker, topic, group, 2)
    redriven(broker, group, "j" * 127, to_group=False)
    assert has_its_own(broker.messages(topic)[-1])


def test_a_long_name_of_the_cluster_has_room_in_every_retry(make: Make) -> None:
    """It is in each message of a cluster."""
    broker = make(cluster_name="c" * 80)
    create_topic(broker, "orders", 1)
    plainly(broker, "orders")
    assert give_up(broker, "orders", "g" * 120, 3).origin_topic == "orders"


@names
def test_a_retry_names_its_origin_and_the_beginning_of_the_reason(
    broker: BrokerUnderTest, topic: str, group: str
) -> None:
    """The reason is cut first, whole characters of it."""
    create_topic(broker, topic, 1)
    plainly(broker, topic)
    (message,) = broker.messages(topic)
    send_back(broker, message, group=group, delay_level=1, reason="因" * 300)
    broker.clock.forward(LEVEL_MS)
    broker.deliver()
    (retry,) = broker.messages(retry_topic(group))
    assert retry.properties[RETRY_TOPIC] == topic
    assert retry.properties[ORIGIN_MESSAGE_ID] == message.offset_message_id
    if topic == "orders":
        assert set(retry.properties[FAILURE_REASON]) == {"因"}


@names
def test_an_orderly_consumer_can_send_what_it_gives_up(
    broker: BrokerUnderTest, topic: str, group: str
) -> None:
    """Java's adds properties of its own; a refusal would stop its queue for ever."""
    create_topic(broker, topic, 1)
    create_topic(broker, retry_topic(group), 1)
    plainly(broker, topic)
    (message,) = broker.messages(topic)
    told = {"MIN_OFFSET": "0", "MAX_OFFSET": "9" * 19, "CONSUME_START_TIME": "1" * 13}
    told |= {RETRY_TOPIC: topic, "RECONSUME_TIME": "2", "MAX_RECONSUME_TIMES": "2", "DELAY": "5"}
    own = {**message.properties, **told}
    assert len(encode_properties(own)) <= PROPERTIES_BYTES_MAX
    sent(broker, draft(retry_topic(group), own, reconsume_times=2), limit=2)
    (letter,) = broker.messages(dlq_topic(group))
    assert has_its_own(letter)
    assert letter.properties[DLQ_ORIGIN_TOPIC] == topic


def test_a_retry_that_a_client_sends_without_any_room_is_a_dead_letter(
    broker: BrokerUnderTest,
) -> None:
    """As one that the broker makes; the client's longest property goes."""
    create_topic(broker, retry_topic("shop"), 1)
    own = longest(PROPERTIES_BYTES_MAX, RETRY_TOPIC="orders", DELAY="4")
    sent(broker, draft(retry_topic("shop"), own, reconsume_times=1), limit=9)
    (letter,) = broker.messages(dlq_topic("shop"))
    assert letter.properties[DLQ_ORIGIN_TOPIC] == retry_topic("shop")
    assert letter.properties["CLAIMED_ORIGIN_TOPIC"] == "orders"
    assert letter.properties["UNIQ_KEY"] == "A" * 32


@pytest.mark.parametrize("topic", ["orders", "t" * 127], ids=["short", "long"])
def test_a_message_that_cannot_be_delivered_keeps_its_properties(
    broker: BrokerUnderTest, topic: str
) -> None:
    """Its dead letter says where it should have gone."""
    create_topic(broker, topic, 1)
    sent(broker, draft(topic, longest(DELAY="1")))
    forget_topic(broker, topic)
    broker.clock.forward(LEVEL_MS)
    broker.deliver()
    (letter,) = broker.messages(UNDELIVERABLE_TOPIC)
    assert has_its_own(letter)
    assert letter.properties["REAL_TOPIC"] == topic


def test_a_reason_is_cut_before_anything_goes() -> None:
    """And if nothing of it is left, the number of its attempt goes with it."""
    own = {FAILURE_REASON: "r" * 200, FAILURE_REASON_ATTEMPT: "3", RETRY_TOPIC: "orders"}
    string = PropertyString(encode_properties(own))
    size = len(string.encoded)
    for bytes_max, expected in (
        (size, own),
        (size - 1, own | {FAILURE_REASON: "r" * 135}),
        (size - 199, {RETRY_TOPIC: "orders"}),
    ):
        left = left_after_sparing(string, bytes_max)
        assert left is not None
        assert left.of(string).encoded == encode_properties(expected) or (
            PropertyString(left.of(string).encoded).pairs
            == PropertyString(encode_properties(expected)).pairs
        )
    assert left_after_sparing(string, 10) is None
