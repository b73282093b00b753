"""A message that comes in with a raw property string, as a wire protocol hands it over."""

from __future__ import annotations

import pytest

from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.record import BORN_HOST_V6
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.routing import record_of, route, routed
from rmqlite.kernel.sends.calls import STEP_MESSAGES, DraftCall
from rmqlite.kernel.words.errors import MessageTooLarge, Refused
from rmqlite.kernel.words.limits import PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import pack_host
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from rmqlite.protocols.remoting.bytes.batch import BatchItem, read_batch, write_batch
from tests.support.brokers import BrokerUnderTest
from tests.support.forms import needs_compiled, same_in_both
from tests.support.messages import TOPIC, create_topic
from tests.support.restarts import WAYS, Restart
from tests.support.sends import BORN_HOST
from tests.support.steps import done

STORE_HOST = pack_host("10.0.0.2:10911")
CLUSTER = "main"


def draft(properties: bytes) -> Draft:
    """As a RocketMQ client sends one: with a compressed body, a flag and two failures."""
    return Draft(
        TOPIC,
        1,
        properties,
        b"zipped",
        born_timestamp_ms=17,
        born_host=BORN_HOST,
        flag=7,
        sys_flag=0x301,
        reconsume_times=2,
    )


def only_record(broker: BrokerUnderTest, topic: str, queue_id: int) -> Record:
    queue = broker.store.queue(topic, queue_id)
    assert queue is not None
    (found,) = broker.store.read_records(queue.read(queue.min_offset, 9))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("own", "level", "stored"),
    [
        (b"", 0, b"CLUSTER\x01main"),
        (b"a\x011", 0, b"a\x011\x02CLUSTER\x01main"),
        (b"a\x01\xff\xfe\x02", 0, b"a\x01\xff\xfe\x02CLUSTER\x01main"),
        (b"CLUSTER\x01other\x02a\x011", 0, b"a\x011\x02CLUSTER\x01main"),
        (b"CLUSTER\x01main\x02a\x011\x02", 0, b"CLUSTER\x01main\x02a\x011\x02"),
        (
            b"a\x01\xff\x02nothing",
            2,
            b"a\x01\xff\x02nothing\x02DELAY\x012\x02CLUSTER\x01main"
            b"\x02REAL_TOPIC\x01orders\x02REAL_QID\x011\x02WAIT\x01true",
        ),
        (
            b"DELAY\x012\x02WAIT\x01false\x02a\x011",
            2,
            b"DELAY\x012\x02WAIT\x01false\x02a\x011"
            b"\x02CLUSTER\x01main\x02REAL_TOPIC\x01orders\x02REAL_QID\x011",
        ),
        (
            b"DELAY\x0199\x02REAL_TOPIC\x01else\x02a\x011\x02REAL_QID\x017",
            2,
            b"a\x011\x02DELAY\x012\x02CLUSTER\x01main"
            b"\x02REAL_TOPIC\x01orders\x02REAL_QID\x011\x02WAIT\x01true",
        ),
    ],
)
def test_a_property_string_gets_what_its_place_needs_and_keeps_the_rest(
    own: bytes, level: int, stored: bytes
) -> None:
    """A sender cannot direct a message elsewhere; what it may say stays where it said it."""
    place = route("orders", 1, level, CLUSTER)
    assert routed(own, place).encoded == stored


@pytest.mark.parametrize(
    ("own", "stored"),
    [
        (b"WAIT\x01true", b""),
        (b"WAIT\x01false\x02a\x011", b"a\x011"),
        (b"a\x011\x02WAIT\x01true\x02b\x01\xff\x02", b"a\x011\x02b\x01\xff\x02"),
        (b"WAIT\x01\x02WAIT\x01true\x02WAIT\x02\x02a\x011", b"WAIT\x02\x02a\x011"),
        (b"XWAIT\x01true\x02WAIT\x01", b"XWAIT\x01true\x02WAIT\x01"),
    ],
)
def test_a_plain_send_is_stored_without_wait(own: bytes, stored: bytes) -> None:
    """As in RocketMQ, to save nine bytes a message; a batch and what is delayed keep it."""
    waits = b"DELAY\x011\x02" + own

    def scenario(broker: BrokerUnderTest) -> None:
        for _ in range(2):
            for each in (own, waits):
                (outcome,) = done(
                    broker.broker.drafts.send([DraftCall((draft(each)._replace(sys_flag=0),))])
                )
                assert not isinstance(outcome, Exception)
                found = broker.store.read_record(outcome.physical_offsets[0])
                if each is own:
                    separator = b"\x02" if stored and not stored.endswith(b"\x02") else b""
                    ending = separator + f"CLUSTER\x01{broker.config.cluster_name}".encode()
                    assert found.properties.encoded == stored + ending
                else:
                    assert found.properties.encoded.startswith(waits)
                    assert found.properties.get("WAIT")

    same_in_both(scenario)


@needs_compiled
def test_a_delayed_send_without_wait_is_made_once(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Go's client sends none: its messages were packed, left to the plain form and made again."""
    create_topic(under_test, TOPIC)
    call = DraftCall((draft(b"DELAY\x011")._replace(sys_flag=0),))
    done(under_test.broker.drafts.send([call]))

    def never(*_: object) -> None:
        raise AssertionError("left to the plain form")

    monkeypatch.setattr(under_test.broker.drafts.plain, "of", never)
    assert not isinstance(done(under_test.broker.drafts.send([call]))[0], Exception)


@pytest.mark.parametrize("restart", WAYS)
def test_a_delayed_draft_arrives_byte_by_byte(
    under_test: BrokerUnderTest, restart: Restart
) -> None:
    """Header and property string are the sender's, also where the string is not UTF-8."""
    create_topic(under_test, TOPIC)
    own = b"KEYS\x01k\x02name\x01caf\xe9\x02DELAY\x012\x02TAGS\x01T"
    new = record_of(draft(own), 2, cluster=CLUSTER, store_host=STORE_HOST)
    assert (new.topic, new.queue_id) == (SCHEDULE_TOPIC, 1)
    under_test.store.append([new])
    under_test.sync()
    restart(under_test)
    under_test.clock.forward(5_000)
    assert under_test.deliver() == 1
    found = only_record(under_test, TOPIC, 1)
    head = found.head
    assert found.properties.encoded.startswith(own)
    assert found.body == b"zipped"
    assert (head.flag, head.sys_flag, head.reconsume_times) == (7, 0x301, 2)
    assert (head.born_timestamp_ms, head.born_host, head.store_host) == (17, BORN_HOST, STORE_HOST)


def test_a_host_is_what_it_is_whatever_the_sys_flag_says(under_test: BrokerUnderTest) -> None:
    """A flag that calls 8 bytes an IPv6 address would make the record unreadable."""
    strange = draft(b"a\x011")._replace(sys_flag=BORN_HOST_V6)
    under_test.store.append([record_of(strange, 0, cluster=CLUSTER, store_host=STORE_HOST)])
    assert only_record(under_test, TOPIC, 1).body == b"zipped"


@pytest.mark.parametrize("level", [0, 1])
def test_a_property_string_that_would_become_too_long_is_refused(level: int) -> None:
    """The length in a record is 16 bits, of which Java takes 15."""
    rest = len(routed(b"a\x011", route(TOPIC, 1, level, CLUSTER)).encoded) - 1
    fits = b"a\x01" + b"x" * (PROPERTIES_BYTES_MAX - rest)
    assert record_of(draft(fits), level, cluster=CLUSTER, store_host=STORE_HOST)
    with pytest.raises(MessageTooLarge, match="properties"):
        record_of(draft(fits + b"x"), level, cluster=CLUSTER, store_host=STORE_HOST)


@pytest.mark.parametrize("topic", ["", "a b", "SCHEDULE_TOPIC_XXXX"])
def test_each_call_is_refused_for_its_own_topic(under_test: BrokerUnderTest, topic: str) -> None:
    """A batch has one topic, which is checked once; an empty one is a topic, too."""
    create_topic(under_test, TOPIC)
    good = Draft(TOPIC, 0, b"", b"x", 1, BORN_HOST)
    bad = good._replace(topic=topic)
    calls = [DraftCall((bad,)), DraftCall((good, good)), DraftCall((good, bad)), DraftCall(())]
    outcomes = done(under_test.broker.drafts.send(calls))
    assert [isinstance(outcome, Refused) for outcome in outcomes] == [True, False, True, True]
    queue = under_test.store.queue(TOPIC, 0)
    assert queue is not None
    assert queue.max_offset == 2


def test_a_delayed_call_counts_the_queue_that_it_is_stored_in(under_test: BrokerUnderTest) -> None:
    """Its topic has no queue on disk yet; calls that wait were split into steps for nothing."""
    create_topic(under_test, TOPIC)
    first = Draft(TOPIC, 0, b"DELAY\x013", b"x", 1, BORN_HOST)
    done(under_test.broker.drafts.send([DraftCall((first,))]))
    assert under_test.store.queue(TOPIC, 0) is None
    steps = under_test.broker.drafts.send([DraftCall((first,))] * 50)
    assert list(steps) == []


def test_sends_are_stored_in_steps(under_test: BrokerUnderTest) -> None:
    """Nobody waits for a step behind the last call, and every call has its own outcome."""
    create_topic(under_test, TOPIC)
    call = DraftCall((Draft(TOPIC, 0, b"", b"x", 1, BORN_HOST),) * (STEP_MESSAGES // 2))
    done(under_test.broker.drafts.send([call]))
    for calls, steps in ((2, 0), (3, 1), (4, 1), (5, 2)):
        assert len(list(under_test.broker.drafts.send([call] * calls))) == steps
    outcomes = done(under_test.broker.drafts.send([call] * 5))
    offsets = []
    for outcome in outcomes:
        assert not isinstance(outcome, Exception)
        assert len(outcome.physical_offsets) == len(call.drafts)
        offsets.append(outcome.queue_offset)
    assert offsets == [offsets[0] + number * len(call.drafts) for number in range(5)]


@pytest.mark.parametrize(
    ("properties", "body_bytes"), [(b"", 128 << 10), (b"KEYS\x01" + b"k " * 400 + b"k", 1)]
)
def test_large_messages_are_fewer_in_a_step(
    under_test: BrokerUnderTest, properties: bytes, body_bytes: int
) -> None:
    """Ten sends of 4 MiB that arrived together held the loop for 140 ms."""
    create_topic(under_test, TOPIC)
    draft = Draft(TOPIC, 0, properties, b"x" * body_bytes, 1, BORN_HOST)
    done(under_test.broker.drafts.send([DraftCall((draft,))]))
    steps = under_test.broker.drafts.send([DraftCall((draft,))] * 60)
    assert 2 <= len(list(steps)) <= 30


@pytest.mark.usefixtures("each_form")
@pytest.mark.parametrize(
    ("properties", "body_bytes"), [(b"", 64 << 10), (b"KEYS\x01" + b"k " * 400 + b"k", 1)]
)
def test_large_batches_are_fewer_in_a_step(
    under_test: BrokerUnderTest, properties: bytes, body_bytes: int
) -> None:
    """What they cost does not depend on how they came: each key is an entry of the index."""
    create_topic(under_test, TOPIC)
    body = write_batch([BatchItem(0, b"x" * body_bytes, properties)] * 2)
    shared = Draft(TOPIC, 0, b"", body, 1, BORN_HOST)
    call = DraftCall((shared._replace(spans=read_batch(body)),))
    done(under_test.broker.drafts.send([call]))
    assert 1 <= len(list(under_test.broker.drafts.send([call] * 32))) <= 30
