"""What a message tells of failures counts only where its group's own retry chain has written it.

A producer can send any property; who forwards a message sends all of them.  Each way in is tried
with the claim that the message comes from another topic: a redrive must never write there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rmqlite.features.dead_letters.listing import DeadLetters
from rmqlite.features.dead_letters.requests import DeadLetter, DeadLetterFilter, DeadLettersQuery
from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.redrive.requests import RedriveOutcome, RedriveRequest, RedriveSpec
from rmqlite.features.transactions.requests import TransactionEnd
from rmqlite.features.transactions.transactions import Transactions
from rmqlite.kernel.records.completion import UNDELIVERABLE_TOPIC
from rmqlite.kernel.records.drafts import Draft, derived
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.retry import FAILURE_PROPERTIES
from rmqlite.kernel.sends.calls import DraftCall
from rmqlite.kernel.words.errors import InvalidValue, MessageNotFound
from rmqlite.kernel.words.message import (
    CLAIMED_ORIGIN_MESSAGE_ID,
    CLAIMED_ORIGIN_TOPIC,
    DELIVERY_ATTEMPTS,
    DLQ_ORIGIN_TOPIC,
    FAILURE_REASON,
    FIRST_FAILURE_TIMESTAMP,
    ORIGIN_MESSAGE_ID,
    ORIGIN_QUEUE_OFFSET,
    RETRY_TOPIC,
    UNIQ_KEY,
    Message,
    StoredMessage,
    encode_properties,
)
from rmqlite.kernel.words.names import dlq_topic, retry_topic
from rmqlite.protocols.remoting.bytes.batch import BatchItem, read_batch, write_batch
from tests.support.brokers import BrokerUnderTest
from tests.support.letters import dead_letters, purge
from tests.support.look_alikes import send_look_alike
from tests.support.messages import GROUP, TOPIC, bodies, create_topic, received, send_back
from tests.support.pending import forget_topic
from tests.support.redrives import outcomes, run
from tests.support.sends import BORN_HOST
from tests.support.steps import done

pytestmark = pytest.mark.usefixtures("each_form")

SECRET = "payroll"
SECOND = "auditors"
RETRY, DLQ = retry_topic(GROUP), dlq_topic(GROUP)
CLAIMS = {
    CLAIMED_ORIGIN_TOPIC: SECRET,
    CLAIMED_ORIGIN_MESSAGE_ID: "0A00000100002A9F0000000000000000",
    RETRY_TOPIC: SECRET,
    DLQ_ORIGIN_TOPIC: SECRET,
    ORIGIN_MESSAGE_ID: "0A00000100002A9F0000000000000000",
    "DLQ_ORIGIN_MESSAGE_ID": "0A00000100002A9F0000000000000000",
    "ORIGIN_QUEUE_ID": "7",
    ORIGIN_QUEUE_OFFSET: "77",
    FIRST_FAILURE_TIMESTAMP: "1",
    "LAST_FAILURE_TIMESTAMP": "1",
    FAILURE_REASON: "another group's",
    "FAILURE_REASON_ATTEMPT": "9",
    DELIVERY_ATTEMPTS: "9",
}
Send = Callable[[BrokerUnderTest, str, dict[str, str]], None]


def draft_of(
    topic: str, properties: dict[str, str], body: bytes = b"order", **fields: Any
) -> Draft:
    return Draft(topic, 0, encode_properties(properties), body, 17, BORN_HOST, **fields)


def store(broker: BrokerUnderTest, call: DraftCall) -> int:
    """Where the first message of a call is stored."""
    (outcome,) = done(broker.broker.drafts.send([call]))
    assert not isinstance(outcome, Exception)
    broker.sync()
    return outcome.physical_offsets[0]


def single(broker: BrokerUnderTest, topic: str, properties: dict[str, str]) -> None:
    store(broker, DraftCall((draft_of(topic, properties),)))


def delayed(broker: BrokerUnderTest, topic: str, properties: dict[str, str]) -> None:
    single(broker, topic, {**properties, "DELAY": "1"})
    broker.clock.forward(1_000)
    assert broker.deliver() == 1


def batch(broker: BrokerUnderTest, topic: str, properties: dict[str, str], count: int = 1) -> None:
    body = write_batch([BatchItem(0, b"order", encode_properties(properties))] * count)
    shared = Draft(topic, 0, b"", body, 17, BORN_HOST)
    store(broker, DraftCall((shared._replace(spans=read_batch(body)),)))


def transaction(broker: BrokerUnderTest, topic: str, properties: dict[str, str]) -> None:
    about = {**properties, "TRAN_MSG": "true", "PGROUP": "payers"}
    at = store(broker, DraftCall((draft_of(topic, about, sys_flag=4),)))
    # A consumer's own send is no transaction, whatever its properties say.
    if topic != RETRY:
        broker.broker[Transactions].end(TransactionEnd("payers", 0, at, is_commit=True))
        broker.sync()


WAYS: list[Send] = [single, delayed, batch, transaction]
way_in = pytest.mark.parametrize("send", WAYS, ids=lambda send: send.__name__)


def letter_of(broker: BrokerUnderTest, group: str = GROUP) -> DeadLetter:
    (letter,) = dead_letters(broker, group=group)
    return letter


def redriven_to(
    broker: BrokerUnderTest, group: str = GROUP, *, to_group: bool = False
) -> list[str]:
    """The topics of a redrive of all letters; "" for one that is refused."""
    spec = RedriveSpec(group, to_group=to_group)
    job = broker.broker[Redrive].start(RedriveRequest(spec, "job"))
    broker.sync()
    run(broker, job.job_id)
    found = outcomes(broker, job.job_id)
    return [each.topic if each.outcome is RedriveOutcome.SENT else "" for each in found]


def fail_until_dead(broker: BrokerUnderTest, message: StoredMessage, group: str = GROUP) -> None:
    """Once as a retry, and then for ever."""
    send_back(broker, message, group=group, delay_level=1)
    broker.clock.forward(1_000)
    broker.deliver()
    send_back(broker, broker.messages(retry_topic(group))[-1], group=group, delay_level=-1)


@pytest.fixture(autouse=True)
def topics(under_test: BrokerUnderTest) -> None:
    for topic in (TOPIC, SECRET, RETRY, DLQ):
        create_topic(under_test, topic, 1)


# ---- a producer


@way_in
def test_a_message_of_a_topic_comes_from_that_topic(
    under_test: BrokerUnderTest, send: Send
) -> None:
    """Whoever forwards a message sends all that its first chain has written."""
    send(under_test, TOPIC, CLAIMS)
    (message,) = under_test.messages(TOPIC)
    assert message.origin_topic == TOPIC
    first_ms = under_test.clock.now_ms()
    fail_until_dead(under_test, message)
    letter = letter_of(under_test)
    assert (letter.origin_topic, letter.origin_queue_id, letter.origin_queue_offset) == (
        TOPIC,
        0,
        0,
    )
    assert letter.origin_message_id == message.offset_message_id
    assert (letter.delivery_attempts, letter.reason) == (2, "")
    assert (letter.first_failure_ms, letter.last_failure_ms) == (first_ms, first_ms + 1_000)
    assert redriven_to(under_test) == [TOPIC]
    assert bodies(under_test, SECRET) == []


@way_in
def test_a_message_that_dies_at_once_comes_from_its_topic(
    under_test: BrokerUnderTest, send: Send
) -> None:
    """The dead letter is its first record in the chain."""
    send(under_test, TOPIC, CLAIMS)
    send_back(under_test, under_test.messages(TOPIC)[0], delay_level=-1)
    (dead,) = under_test.messages(DLQ)
    told = {name: dead.properties.get(name) for name in FAILURE_PROPERTIES}
    assert SECRET not in told.values()
    assert (told[FAILURE_REASON], told["FAILURE_REASON_ATTEMPT"]) == (None, None)
    assert (told[RETRY_TOPIC], told[DLQ_ORIGIN_TOPIC]) == (TOPIC, TOPIC)
    assert redriven_to(under_test) == [TOPIC]


@way_in
def test_a_message_that_is_sent_to_a_dead_letter_topic_comes_from_there(
    under_test: BrokerUnderTest, send: Send
) -> None:
    """A redrive refuses it until somebody names a topic."""
    send(under_test, DLQ, CLAIMS)
    letter = letter_of(under_test)
    assert (letter.origin_topic, letter.origin_message_id, letter.reason) == (DLQ, "", "")
    assert redriven_to(under_test) == [""]
    assert bodies(under_test, SECRET) == []


@way_in
def test_a_message_that_is_sent_to_a_retry_topic_comes_from_there(
    under_test: BrokerUnderTest, send: Send
) -> None:
    """Also when it dies later; what the consumer shows to its listener stays."""
    send(under_test, RETRY, CLAIMS)
    (message,) = under_test.messages(RETRY)
    assert message.origin_topic == SECRET
    fail_until_dead(under_test, message)
    letter = letter_of(under_test)
    assert (letter.origin_topic, letter.reason) == (RETRY, "")
    assert letter.origin_message_id == message.offset_message_id
    told = under_test.messages(DLQ)[0].properties
    assert {name for name, value in told.items() if value == SECRET} == {CLAIMED_ORIGIN_TOPIC}
    assert redriven_to(under_test) == [""]
    assert bodies(under_test, SECRET) == []


def test_a_batch_to_a_retry_topic_is_not_looked_for(under_test: BrokerUnderTest) -> None:
    """No consumer sends one, and each look-up takes as long as 16 messages."""
    message = received(under_test, message_id="m")
    claims = {UNIQ_KEY: message.message_id, RETRY_TOPIC: message.topic}
    batch(under_test, RETRY, claims, count=2)
    fail_until_dead(under_test, under_test.messages(RETRY)[0])
    assert letter_of(under_test).origin_topic == RETRY


def test_the_native_protocol_takes_none_of_these_properties() -> None:
    """Its clients have no way to forward them."""
    for name in FAILURE_PROPERTIES:
        with pytest.raises(InvalidValue, match=name):
            Message(TOPIC, b"x", properties={name: SECRET})


# ---- a consumer that sends a failed message itself


def again(
    broker: BrokerUnderTest, message: StoredMessage, times: int, level: int, **changes: Any
) -> None:
    """As Java's consumer does: with every property, its own too, and a new birth."""
    told = {
        **message.properties,
        "MIN_OFFSET": "0",
        "MAX_OFFSET": "9",
        RETRY_TOPIC: message.origin_topic,
        "RECONSUME_TIME": str(times),
        "MAX_RECONSUME_TIMES": "2",
        "DELAY": str(level),
    }
    body = changes.pop("body", message.body)
    draft = draft_of(RETRY, told | changes, body, reconsume_times=times)
    store(broker, DraftCall((draft,), max_reconsume_times=2))


def test_an_orderly_dead_letter_comes_from_the_record_of_its_topic(
    under_test: BrokerUnderTest,
) -> None:
    """Java counts the failures before the last one, and names the topic only."""
    message = received(under_test, message_id="m", tags="T", properties={"colour": "red"})
    again(under_test, message, 2, 5)
    letter = letter_of(under_test)
    assert (letter.origin_topic, letter.origin_message_id) == (TOPIC, message.offset_message_id)
    assert (letter.origin_queue_id, letter.origin_queue_offset) == (0, 0)
    assert letter.delivery_attempts == 3
    assert redriven_to(under_test) == [TOPIC]


def test_a_concurrent_dead_letter_has_counted_its_last_failure(under_test: BrokerUnderTest) -> None:
    """Java does so when it cannot send a message back: level 3 and the failures before."""
    again(under_test, received(under_test, message_id="m"), 2, 4)
    assert letter_of(under_test).delivery_attempts == 2


def test_a_retry_that_a_consumer_sends_goes_on_with_its_chain(under_test: BrokerUnderTest) -> None:
    """What the group has noted before is read from the log."""
    message = received(under_test, message_id="m")
    first_ms = under_test.clock.now_ms()
    send_back(under_test, message, delay_level=1, reason="first")
    under_test.clock.forward(1_000)
    under_test.deliver()
    again(under_test, under_test.messages(RETRY)[0], 2, 4, FAILURE_REASON="forged")
    letter = letter_of(under_test)
    assert (letter.origin_topic, letter.origin_message_id) == (TOPIC, message.offset_message_id)
    assert (letter.first_failure_ms, letter.reason) == (first_ms, "first")
    assert letter.delivery_attempts == 2
    assert redriven_to(under_test) == [TOPIC]


@pytest.mark.parametrize(
    "changes",
    [{"body": b"another"}, {"colour": "blue"}, {UNIQ_KEY: "other"}, {RETRY_TOPIC: SECRET}],
    ids=["body", "property", "id", "topic"],
)
def test_a_retry_that_is_no_copy_of_a_message_comes_from_nowhere(
    under_test: BrokerUnderTest, changes: dict[str, Any]
) -> None:
    """Otherwise a redrive would write what its sender has made up, into whatever topic it names."""
    message = received(under_test, message_id="m", properties={"colour": "red"})
    again(under_test, message, 2, 5, **changes)
    assert letter_of(under_test).origin_topic == RETRY
    assert redriven_to(under_test) == [""]
    assert bodies(under_test, SECRET) == []


# ---- a message of another broker of the cluster


def of_another_broker(broker: BrokerUnderTest, times: int, level: int, **changes: Any) -> None:
    """As Java's consumer sends it here if it cannot reach the broker that has the message."""
    told = {UNIQ_KEY: "m", RETRY_TOPIC: SECRET, ORIGIN_MESSAGE_ID: "F" * 32, "DELAY": str(level)}
    told |= {"RECONSUME_TIME": str(times), "MAX_RECONSUME_TIMES": "2"}
    draft = draft_of(RETRY, told | changes, reconsume_times=times)
    store(broker, DraftCall((draft,), max_reconsume_times=2))


def claim_of(broker: BrokerUnderTest) -> tuple[str, str, str]:
    letter = letter_of(broker)
    return letter.origin_topic, letter.claimed_topic, letter.claimed_message_id


def test_what_a_client_claims_stays_with_a_dead_letter(under_test: BrokerUnderTest) -> None:
    """In a cluster an orderly consumer sends what it gives up to any broker."""
    of_another_broker(under_test, 2, 5)
    assert claim_of(under_test) == (RETRY, SECRET, "F" * 32)
    for topic, count in ((SECRET, 1), (TOPIC, 0)):
        query = DeadLettersQuery(GROUP, DeadLetterFilter(topic=topic))
        assert len(done(under_test.broker[DeadLetters].pages(query)).letters) == count


def test_a_claim_goes_on_with_each_failure_and_each_redrive(under_test: BrokerUnderTest) -> None:
    """A listener sees the topic that its client named, and a claim never becomes a proof."""
    of_another_broker(under_test, 1, 4)
    under_test.clock.forward(3_600_000)
    under_test.deliver()
    (retry,) = under_test.messages(RETRY)
    assert retry.origin_topic == SECRET
    send_back(under_test, retry, delay_level=-1)
    for number in range(2):
        assert claim_of(under_test) == (RETRY, SECRET, "F" * 32)
        spec = RedriveSpec(GROUP)
        job = under_test.broker[Redrive].start(RedriveRequest(spec, f"back-{number}"))
        under_test.sync()
        run(under_test, job.job_id)
        again_ = under_test.messages(RETRY)[-1]
        assert again_.origin_topic == SECRET
        assert (again_.properties["REDRIVEN_TIMES"], again_.body) == (str(number + 1), b"order")
        purge(under_test)
        send_back(under_test, again_, delay_level=-1)
    assert bodies(under_test, SECRET) == []


def test_a_consumer_that_sends_a_claimed_retry_again_keeps_its_claim(
    under_test: BrokerUnderTest,
) -> None:
    """The retry is in the log; where it came from is not."""
    of_another_broker(under_test, 1, 4)
    under_test.clock.forward(3_600_000)
    under_test.deliver()
    again(under_test, under_test.messages(RETRY)[0], 2, 5)
    assert claim_of(under_test) == (RETRY, SECRET, "F" * 32)


@pytest.mark.parametrize(
    "topic", ["", "%DLQ%auditors", "%RETRY%auditors", "SCHEDULE_TOPIC_XXXX", "not a name"]
)
def test_no_claim_names_what_nobody_could_send_to(under_test: BrokerUnderTest, topic: str) -> None:
    """Such a dead letter is redriven to a topic that somebody names."""
    of_another_broker(under_test, 2, 5, **{RETRY_TOPIC: topic})
    assert claim_of(under_test) == (RETRY, "", "")
    assert redriven_to(under_test, to_group=True) == [""]


# ---- another group, and records that are none


@pytest.mark.parametrize("place", ["retry", "dead letter"])
def test_a_second_group_has_a_chain_of_its_own(under_test: BrokerUnderTest, place: str) -> None:
    """It read the retries or dead letters of the first one: they are what it has failed."""
    message = received(under_test, message_id="m")
    send_back(under_test, message, delay_level=1, reason="first", max_reconsume_times=9)
    under_test.clock.forward(1_000)
    under_test.deliver()
    (lying,) = under_test.messages(RETRY)
    if place == "dead letter":
        send_back(under_test, lying, delay_level=-1, reason="first")
        (lying,) = under_test.messages(DLQ)
    under_test.clock.forward(5_000)
    failed_ms = under_test.clock.now_ms()
    answer = send_back(under_test, lying, group=SECOND, delay_level=1, max_reconsume_times=1)
    assert answer.reconsume_times == 1
    under_test.clock.forward(1_000)
    under_test.deliver()
    (retry,) = under_test.messages(retry_topic(SECOND))
    send_back(under_test, retry, group=SECOND, max_reconsume_times=1)
    letter = letter_of(under_test, SECOND)
    assert (letter.origin_topic, letter.origin_message_id) == (lying.topic, lying.offset_message_id)
    assert (letter.delivery_attempts, letter.reason) == (2, "")
    assert (letter.first_failure_ms, letter.last_failure_ms) == (failed_ms, failed_ms + 1_000)
    assert redriven_to(under_test, SECOND) == [""]


@pytest.mark.parametrize("group", [GROUP, SECOND])
def test_a_forwarded_message_fails_as_a_new_one(under_test: BrokerUnderTest, group: str) -> None:
    """In the group that has failed the first one, and in another."""
    send_back(under_test, received(under_test, message_id="m"), delay_level=1, reason="first")
    under_test.clock.forward(1_000)
    under_test.deliver()
    (retry,) = under_test.messages(RETRY)
    create_topic(under_test, "archive")
    # Its delay is forwarded, too.
    delayed(under_test, "archive", dict(retry.properties))
    (forwarded,) = under_test.messages("archive")
    fail_until_dead(under_test, forwarded, group)
    letter = letter_of(under_test, group)
    assert (letter.origin_topic, letter.delivery_attempts, letter.reason) == ("archive", 2, "")
    assert redriven_to(under_test, group) == ["archive"]


def test_a_groups_own_dead_letter_that_fails_again_keeps_its_origin(
    under_test: BrokerUnderTest,
) -> None:
    """It is the same chain."""
    send_back(under_test, received(under_test), delay_level=-1, reason="first")
    (dead,) = under_test.messages(DLQ)
    send_back(under_test, dead, delay_level=-1)
    letters = dead_letters(under_test, group=GROUP)
    assert [each.origin_topic for each in letters] == [TOPIC, TOPIC]
    assert [each.delivery_attempts for each in letters] == [1, 2]


def test_bytes_of_a_body_that_look_like_a_retry_are_none(under_test: BrokerUnderTest) -> None:
    """Their sender would have written the group's own chain."""
    send_back(under_test, received(under_test), delay_level=1)
    under_test.clock.forward(1_000)
    under_test.deliver()
    (retry,) = under_test.messages(RETRY)
    record = under_test.store.read_record(retry.physical_offset)
    forged = derived(record, RETRY, 0, properties=record.properties.edited({RETRY_TOPIC: SECRET}))
    at = send_look_alike(under_test, TOPIC, forged)
    with pytest.raises(MessageNotFound):
        under_test.broker.send_back(SendBackRequest(GROUP, at, delay_level=-1))


def test_a_waiting_message_that_cannot_be_delivered_comes_from_its_topic(
    under_test: BrokerUnderTest,
) -> None:
    """It never failed in a consumer, whatever it tells."""
    create_topic(under_test, "gone")
    single(under_test, "gone", {**CLAIMS, "DELAY": "1"})
    forget_topic(under_test, "gone")
    under_test.clock.forward(1_000)
    under_test.deliver()
    (dead,) = under_test.messages(UNDELIVERABLE_TOPIC)
    assert dead.origin_topic == "gone"
    assert SECRET not in dead.properties.values()
    assert dead.properties[DELIVERY_ATTEMPTS] == "0"
