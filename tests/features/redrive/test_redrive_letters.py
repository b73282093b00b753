"""What a redriven letter looks like, and which letters cannot be redriven."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.redrive.requests import (
    SAMPLES_MAX,
    DeadLetterOutcome,
    RedriveJob,
    RedriveOutcome,
    RedriveRequest,
    RedriveSpec,
)
from rmqlite.kernel.records.completion import UNREADABLE
from rmqlite.kernel.records.queue_entry import Entry
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.words import message as names
from rmqlite.kernel.words.limits import PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import (
    FAILURE_REASON,
    KEYS,
    MAX_RECONSUME_TIMES,
    RECONSUME_TIME,
    REDRIVEN_BY,
    REDRIVEN_FROM,
    REDRIVEN_MESSAGE_ID,
    REDRIVEN_TIMES,
    RESERVED_PROPERTIES,
    TAGS,
    UNIQ_KEY,
    Message,
    StoredMessage,
    decode_properties,
    encode_properties,
)
from rmqlite.kernel.words.names import SCHEDULE_GROUP, SCHEDULE_TOPIC, dlq_topic, retry_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.made_brokers import Make
from tests.support.redrives import (
    DLQ,
    GROUP,
    bury,
    bury_many,
    outcomes,
    redrive,
    redriven_messages,
    run,
)
from tests.support.repairs import overwrite
from tests.support.stores import new_record

RETRY = retry_topic(GROUP)
OF_A_REDRIVE = {REDRIVEN_FROM, REDRIVEN_MESSAGE_ID, REDRIVEN_TIMES, REDRIVEN_BY}


def written(broker: BrokerUnderTest, body: bytes = b"x", **changes: Any) -> None:
    """A letter as somebody else may have written it."""
    broker.broker.topics.ensure(DLQ, 1)
    broker.store.append([new_record(body, DLQ, **changes)])
    broker.sync()


def the_message(broker: BrokerUnderTest) -> StoredMessage:
    """The only one that was redriven."""
    (message,) = redriven_messages(broker)
    return message


def refused(broker: BrokerUnderTest, **spec: Any) -> list[str]:
    """Why each refused letter was, of a redrive of all of them."""
    job = redrive(broker, **spec)
    told = outcomes(broker, job.job_id, outcomes=(RedriveOutcome.REFUSED,))
    assert len(told) == job.refused
    assert all(not each.topic and not each.message_id for each in told)
    return [each.why for each in told]


def test_a_redriven_letter_is_what_its_producer_sent(under_test: BrokerUnderTest) -> None:
    """Body, flag, tags, keys and properties; attempts start anew, and it names its origin."""
    sent = Message(
        *("orders", b"\x00\xffbody"),
        tags="new",
        keys=("k1", "k2"),
        properties={"color": "blau", "empty room": "ja"},
        flag=7,
        message_id="mine",
    )
    bury(under_test, sent)
    (origin,) = under_test.messages("orders")
    under_test.clock.forward(5_000)
    job = redrive(under_test)
    message = the_message(under_test)
    assert (message.topic, message.body, message.flag) == (RETRY, sent.body, 7)
    assert message.origin_topic == "orders"
    assert (message.tags, message.keys) == ("new", ("k1", "k2"))
    assert (message.reconsume_times, message.prepared_transaction_offset) == (0, 0)
    assert message.born_timestamp_ms == message.store_timestamp_ms == under_test.clock.now_ms()
    assert message.message_id == f"redrive:{DLQ}:0:0"
    assert dict(message.properties) == {
        "color": "blau",
        "empty room": "ja",
        KEYS: "k1 k2",
        TAGS: "new",
        UNIQ_KEY: f"redrive:{DLQ}:0:0",
        names.CLUSTER: "DefaultCluster",
        REDRIVEN_FROM: f"{DLQ}:0:0",
        REDRIVEN_MESSAGE_ID: "mine",
        REDRIVEN_TIMES: "1",
        REDRIVEN_BY: job.job_id,
        names.RETRY_TOPIC: "orders",
        names.ORIGIN_MESSAGE_ID: origin.offset_message_id,
        names.ORIGIN_QUEUE_ID: str(origin.queue_id),
        names.ORIGIN_QUEUE_OFFSET: str(origin.queue_offset),
    }


def test_nothing_that_a_retry_wrote_goes_along(under_test: BrokerUnderTest) -> None:
    """Else its next failure would be its seventeenth, of a topic where it never was."""
    stale = {name: "1" for name in RESERVED_PROPERTIES - {KEYS, TAGS, UNIQ_KEY}}
    written(under_test, properties={**stale, names.DLQ_ORIGIN_TOPIC: "orders", "own": "yes"})
    redrive(under_test, to_group=False)
    message = the_message(under_test)
    assert message.topic == "orders"
    assert set(message.properties) == {"own", UNIQ_KEY, names.CLUSTER} | OF_A_REDRIVE


def test_a_letter_that_waits_has_the_properties_of_one_that_waits(
    under_test: BrokerUnderTest,
) -> None:
    """As if it had been sent with that level."""
    bury(under_test, Message("orders", b"x"))
    redrive(under_test, delay_level=4)
    message = the_message(under_test)
    assert (message.topic, message.queue_id) == (SCHEDULE_TOPIC, 3)
    properties = message.properties
    assert (properties[names.DELAY], properties[names.REAL_TOPIC]) == ("4", RETRY)


@pytest.mark.parametrize(("by_consumer", "wanted"), [(False, "5"), (True, None)])
def test_the_senders_own_limit_of_retries_stays(
    under_test: BrokerUnderTest, by_consumer: bool, wanted: str | None
) -> None:
    """A consumer's, which RocketMQ writes under the same name, does not."""
    properties = {names.RETRY_TOPIC: "orders", MAX_RECONSUME_TIMES: "5"}
    if by_consumer:
        properties[RECONSUME_TIME] = "3"
    written(under_test, properties=properties)
    redrive(under_test)
    assert the_message(under_test).properties.get(MAX_RECONSUME_TIMES) == wanted


def test_a_compressed_body_stays_compressed_and_is_marked_so(under_test: BrokerUnderTest) -> None:
    """The reader inflates it; of the other bits none is the message's."""
    properties = {names.RETRY_TOPIC: "orders"}
    written(under_test, b"zipped", properties=properties, sys_flag=0x1 | 0x300 | 0x08 | 0x2)
    redrive(under_test)
    assert (the_message(under_test).body, the_message(under_test).sys_flag) == (b"zipped", 0x301)


def test_what_is_no_utf8_stays_as_it_is(under_test: BrokerUnderTest) -> None:
    """RocketMQ lets such properties in, and somebody reads them."""
    own = b"name\x01caf\xe9\x02" + encode_properties({names.RETRY_TOPIC: "orders"})
    under_test.broker.topics.ensure(DLQ, 1)
    under_test.store.append([new_record(b"x", DLQ, properties=own)])
    redrive(under_test)
    message = the_message(under_test)
    raw = under_test.store.read(message.physical_offset, message.store_size)
    assert b"name\x01caf\xe9\x02" in raw


def test_a_letter_that_dies_again_is_another_letter(under_test: BrokerUnderTest) -> None:
    """It is redriven once more, counts up, and still names the first message id."""
    bury(under_test, Message("orders", b"x", message_id="first"))
    for times in (1, 2, 3):
        redrive(under_test)
        message = list(redriven_messages(under_test))[-1]
        assert message.properties[REDRIVEN_TIMES] == str(times)
        assert message.properties[REDRIVEN_MESSAGE_ID] == "first"
        assert message.properties[REDRIVEN_FROM] == f"{DLQ}:0:{times - 1}"
        under_test.broker.send_back(SendBackRequest(GROUP, message.physical_offset, delay_level=-1))
    assert len(list(redriven_messages(under_test))) == 3


@pytest.mark.parametrize("times", ["x", "-1", "", "99999999999999999999"])
def test_a_count_that_is_none_starts_anew(under_test: BrokerUnderTest, times: str) -> None:
    """Anybody may write that property."""
    properties = {names.RETRY_TOPIC: "orders", REDRIVEN_TIMES: times}
    written(under_test, properties=properties)
    redrive(under_test)
    assert the_message(under_test).properties[REDRIVEN_TIMES] == "1"


@pytest.mark.parametrize(
    ("origin", "why"),
    [
        ("", "does not name its original topic"),
        ("%RETRY%shop", "retry or dead-letter topic"),
        ("%DLQ%other", "retry or dead-letter topic"),
        (SCHEDULE_TOPIC, "the broker's own"),
        ("a b\x1b[2J", "only letters"),
        ("x" * 300, "at most 127 bytes"),
    ],
)
def test_a_letter_without_a_topic_to_go_to_is_refused(
    under_test: BrokerUnderTest, origin: str, why: str
) -> None:
    """The others are sent, and it is when another topic is named."""
    written(under_test, properties={names.RETRY_TOPIC: origin} if origin else {})
    bury_many(under_test, 1)
    (told,) = refused(under_test)
    assert why in told
    assert "\x1b" not in told
    assert len(list(redriven_messages(under_test))) == 1
    assert redrive(under_test, to_topic="rescued").sent == 1


def test_a_letter_of_a_topic_that_is_gone_is_refused(make: Make) -> None:
    """Where none is made on demand; the group itself needs only its retry topic."""
    under_test = make()
    written(under_test, properties={names.RETRY_TOPIC: "gone"})
    under_test.restart(auto_create_topic=False)
    assert refused(under_test, to_group=False) == ["no topic named 'gone'"]
    assert redrive(under_test).sent == 1


def test_a_letter_whose_topic_takes_nothing_is_refused(under_test: BrokerUnderTest) -> None:
    """Its perm says so; the group does not ask it."""
    bury_many(under_test, 1)
    topics = under_test.broker.topics
    topics._save([replace(topics.existing("orders"), perm=4)])
    (told,) = refused(under_test, to_group=False)
    assert "perm is 4" in told
    assert redrive(under_test).sent == 1


def test_properties_that_grow_too_long_are_refused(under_test: BrokerUnderTest) -> None:
    """A redrive adds to them; nothing is cut off to make room."""
    properties = {names.RETRY_TOPIC: "orders"}
    properties["own"] = "x" * (PROPERTIES_BYTES_MAX - len(encode_properties(properties)) - 5)
    written(under_test, properties=properties)
    (told,) = refused(under_test)
    assert "properties would be" in told


@pytest.mark.parametrize("body", [b"", UNREADABLE.encode()])
def test_a_letter_whose_content_is_lost_is_refused(make: Make, body: bytes) -> None:
    """The schedule could not read the record; brokers before 0.6 left the body empty."""
    under_test = make()
    topic = dlq_topic(SCHEDULE_GROUP)
    under_test.broker.topics.ensure(topic, 1)
    under_test.store.append([new_record(body, topic, properties={FAILURE_REASON: UNREADABLE})])
    spec = RedriveSpec(SCHEDULE_GROUP, to_topic="rescued")
    job = under_test.broker[Redrive].start(RedriveRequest(spec))
    assert run(under_test, job.job_id).refused == 1
    assert "content is lost" in outcomes(under_test, job.job_id)[0].why


def test_a_letter_with_an_empty_body_is_refused_and_stays(under_test: BrokerUnderTest) -> None:
    """It would be a new message, at which a Java consumer of its topic fails."""
    written(under_test, b"", properties={names.RETRY_TOPIC: "orders"})
    bury_many(under_test, 1)
    (told,) = refused(under_test)
    assert "its body is empty" in told
    assert "at least 1 byte" in told
    assert len(list(redriven_messages(under_test))) == 1
    assert [each.body for each in under_test.messages(DLQ)] == [b"", b"0"]


def test_a_damaged_body_is_refused_and_holds_up_no_other(under_test: BrokerUnderTest) -> None:
    """Its CRC tells; nobody is given half a message."""
    bury_many(under_test, 2)
    queue = under_test.store.queue(DLQ, 0)
    assert queue
    first: Entry = queue.read(0, 1)[0]
    log = next((under_test.config.store_path / "commitlog").iterdir())
    position = first.physical_offset + 88
    whole = log.read_bytes()[position : position + 1]
    overwrite(log, position, b"!")
    job = redrive(under_test)
    assert (job.sent, job.refused) == (1, 1)
    assert "body is damaged" in job.samples[0].why
    overwrite(log, position, whole)


def test_a_body_that_is_too_large_now_is_refused(make: Make) -> None:
    """maxMessageSize was larger when it was sent."""
    under_test = make()
    bury(under_test, Message("orders", bytes(2_000)))
    under_test.restart(max_message_bytes=1_000)
    (told,) = refused(under_test)
    assert "maxMessageSize=1000" in told


def test_the_first_refused_letters_are_samples_of_the_job(under_test: BrokerUnderTest) -> None:
    """So that one sees at once what is wrong."""
    for _ in range(SAMPLES_MAX + 5):
        written(under_test)
    job: RedriveJob = redrive(under_test)
    assert job.refused == SAMPLES_MAX + 5
    assert [each.queue_offset for each in job.samples] == list(range(SAMPLES_MAX))
    assert all(each.outcome is RedriveOutcome.REFUSED and each.why for each in job.samples)
    assert isinstance(job.samples[0], DeadLetterOutcome)


def test_a_hostile_letter_changes_nothing_but_itself(under_test: BrokerUnderTest) -> None:
    """Separators and escapes in values are bytes like others."""
    note = "\x1b[2J<script>alert(1)</script>"
    own = encode_properties({"note": note, names.RETRY_TOPIC: "orders"})
    under_test.broker.topics.ensure(DLQ, 1)
    own = b"\x02\x02=\x01\x02" + own
    record = new_record(b"\x1b]0;x\x07<b>", DLQ, properties=own)
    under_test.store.append([record])
    redrive(under_test)
    message = the_message(under_test)
    assert message.body == b"\x1b]0;x\x07<b>"
    assert message.properties["note"] == note
    assert decode_properties(encode_properties(message.properties)) == dict(message.properties)
