"""What the broker accepts: every way in, and both forms, refuse the same messages alike."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Final

import pytest

from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.sends.calls import DraftCall, Outcome, Stored
from rmqlite.kernel.words import compression
from rmqlite.kernel.words.errors import InvalidValue, MessageTooLarge, PermissionMissing
from rmqlite.kernel.words.limits import PROPERTIES_BYTES_MAX, SENT_PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import (
    DELAY,
    DLQ_ORIGIN_TOPIC,
    REAL_QID,
    REAL_TOPIC,
    RETRY_TOPIC,
    TIMER_ASKED,
    TIMER_BROKERS,
    TIMER_PROPERTIES,
    UNIQ_KEY,
    Message,
    encode_properties,
)
from rmqlite.kernel.words.names import SCHEDULE_TOPIC, TIMER_TOPIC, dlq_topic, retry_topic
from rmqlite.protocols.remoting.bytes.batch import BatchItem, read_batch, write_batch
from tests.support.brokers import BrokerUnderTest
from tests.support.compressed import COMPRESS, LZ4, ZSTD, without_the_extra
from tests.support.forms import same_in_both
from tests.support.messages import (
    GROUP,
    TOPIC,
    bodies,
    create_topic,
    level_status,
    send_back,
)
from tests.support.redrives import redrive, redriven_messages
from tests.support.sends import BORN_HOST
from tests.support.steps import done
from tests.support.stores import new_record
from tests.support.transactions import end, half_draft, send_half

WayIn = Callable[[bytes], DraftCall]
INT_MAX: Final = 2**31 - 1
BODY: Final = b"order " * 100


def draft(properties: bytes = b"", body: bytes = b"x", sys_flag: int = 0) -> Draft:
    return Draft(TOPIC, 0, properties, body, 17, BORN_HOST, sys_flag=sys_flag)


def batch(items: Sequence[BatchItem], sys_flag: int = 0) -> DraftCall:
    body = write_batch(list(items))
    shared = draft(body=body, sys_flag=sys_flag)
    return DraftCall((shared._replace(spans=read_batch(body)),))


def one(properties: bytes) -> DraftCall:
    return DraftCall((draft(properties),))


def of_batch(properties: bytes) -> DraftCall:
    return batch([BatchItem(0, b"w", b""), BatchItem(0, b"x", properties)])


def half(properties: bytes) -> DraftCall:
    own = half_draft("x")
    return DraftCall((own._replace(properties=own.properties + b"\x02" + properties),))


def to_retry(properties: bytes) -> DraftCall:
    """As a producer sends it; a consumer counts its failures."""
    return DraftCall((draft(properties)._replace(topic=retry_topic(GROUP)),))


WAYS_IN: Final = pytest.mark.parametrize("way_in", [one, of_batch, half, to_retry])
ORDINARY_WAYS_IN: Final = pytest.mark.parametrize("way_in", [one, of_batch, half])
"""What is sent to a retry topic is fitted like every failed message."""


def outcomes(broker: BrokerUnderTest, *calls: DraftCall) -> list[Outcome]:
    """One at a time, and then all at once."""
    single = [done(broker.broker.drafts.send([call]))[0] for call in calls]
    return single + done(broker.broker.drafts.send(calls))


def refusals(*calls: DraftCall) -> list[tuple[type, str, str]]:
    """Error, field and value; nothing may be stored.  Both forms answer the same."""

    def scenario(broker: BrokerUnderTest) -> list[tuple[type, str, str]]:
        good = [one(b""), one(b"DELAY\x011\x02WAIT\x01true")]
        assert all(isinstance(each, Stored) for each in outcomes(broker, *good))
        end = broker.store.end
        found = [
            (type(each), getattr(each, "field", ""), getattr(each, "value", ""))
            for each in outcomes(broker, *calls)
        ]
        assert broker.store.end == end
        return found

    return same_in_both(scenario)


# ---- delays


NO_NUMBERS: Final = (
    *("4Agent-Flags", "3.0", "ten", "0x3", "3 ", " 3", "+", "-", "1_0", "2147483648"),
    "9" * 5_000,
)


@WAYS_IN
def test_a_delay_that_is_no_number_is_refused(way_in: WayIn) -> None:
    """RocketMQ refuses it, too; otherwise the message would be delivered at once."""
    shown = [(InvalidValue, DELAY, InvalidValue(DELAY, each, "").value) for each in NO_NUMBERS]
    assert refusals(*[way_in(f"DELAY\x01{each}".encode()) for each in NO_NUMBERS]) == shown * 2


LEVELS_READ: Final = {
    "3": 3,
    "+3": 3,
    "003": 3,
    "0" * 5_000 + "3": 3,
    "99": 18,
    str(INT_MAX): 18,
    "0": 0,
    "-1": 0,
    "-2147483648": 0,
    "": 0,
}


def test_a_delay_is_read_as_java_reads_it() -> None:
    """A level above the last one means the last one; one below 1 is no delay."""

    def level(broker: BrokerUnderTest, value: str) -> int:
        (stored,) = done(broker.broker.drafts.send([one(f"DELAY\x01{value}".encode())]))
        assert isinstance(stored, Stored)
        (at,) = stored.physical_offsets
        head = broker.store.read_record(at).head
        return head.queue_id + 1 if head.topic == SCHEDULE_TOPIC else 0

    def scenario(broker: BrokerUnderTest) -> dict[str, int]:
        return {value: level(broker, value) for value in LEVELS_READ}

    assert same_in_both(scenario) == LEVELS_READ


@pytest.mark.parametrize(("value", "level"), [("+3", 3), ("3", 3), ("-3", 0)])
def test_a_committed_message_waits_as_its_half_asks(
    under_test: BrokerUnderTest, value: str, level: int
) -> None:
    """The delay begins with the commit, and is read there by the same rule."""
    create_topic(under_test, TOPIC)
    at = send_half(under_test, "x", DELAY=value)
    assert end(under_test, at, group="payers")
    under_test.sync()
    waiting = [each for each in range(1, 19) if level_status(under_test, each).pending]
    assert waiting == ([level] if level else [])
    assert bodies(under_test) == ([] if level else ["x"])


@WAYS_IN
def test_what_only_a_broker_says_of_a_timer_is_refused_by_name(way_in: WayIn) -> None:
    """Whoever sends a received message on has it, and would get it delivered at once."""
    calls = [way_in(f"a\x01b\x02{name}\x01500".encode()) for name in TIMER_BROKERS]
    assert refusals(*calls) == [(InvalidValue, name, "500") for name in TIMER_BROKERS] * 2


@WAYS_IN
def test_an_instant_that_nobody_understands_is_refused_by_name(way_in: WayIn) -> None:
    """If it were ignored, the sender would be answered SEND_OK, and the message would be early."""
    calls = [way_in(f"a\x01b\x02{name}\x01soon".encode()) for name in TIMER_ASKED]
    assert refusals(*calls) == [(InvalidValue, name, "soon") for name in TIMER_ASKED] * 2


@pytest.mark.parametrize("name", sorted(TIMER_PROPERTIES))
def test_our_own_message_has_no_such_property(name: str) -> None:
    """The client says so before it asks the broker."""
    with pytest.raises(InvalidValue, match=name):
        Message(TOPIC, b"x", properties={name: "1"})


def test_the_topic_of_timers_is_the_brokers_own(under_test: BrokerUnderTest) -> None:
    """Whoever could send to it could forge a timer once there are some."""
    with pytest.raises(PermissionMissing):
        under_test.send(Message(TIMER_TOPIC, b"x"))
    with pytest.raises(PermissionMissing):
        create_topic(under_test, TIMER_TOPIC)


def test_a_delivered_timer_of_rocketmq_is_retried_and_redriven(
    under_test: BrokerUnderTest,
) -> None:
    """RocketMQ 5 leaves the properties in the record; its promise was kept there."""
    create_topic(under_test, TOPIC)
    own = {UNIQ_KEY: "t", "TIMER_DELAY_MS": "9", "TIMER_OUT_MS": "9", REAL_TOPIC: TOPIC}
    under_test.store.append([new_record(b"t", TOPIC, 0, properties={**own, REAL_QID: "0"})])
    under_test.sync()
    (message,) = under_test.messages(TOPIC)
    assert not send_back(under_test, message).is_dead
    under_test.clock.forward(10_000)
    under_test.deliver()
    (retried,) = under_test.messages(retry_topic(GROUP))
    again = Draft(
        retry_topic(GROUP),
        0,
        encode_properties({**retried.properties, DELAY: "3"}),
        b"t",
        17,
        BORN_HOST,
        reconsume_times=2,
    )
    (outcome,) = done(under_test.broker.drafts.send([DraftCall((again,))]))
    assert isinstance(outcome, Stored)
    send_back(under_test, retried, delay_level=-1)
    assert redrive(under_test).sent == 1
    (redriven,) = redriven_messages(under_test)
    assert not set(TIMER_PROPERTIES) & redriven.properties.keys()


# ---- room for what the broker adds


@ORDINARY_WAYS_IN
def test_long_properties_are_refused_with_the_number(way_in: WayIn) -> None:
    """Accepted, the first failure of the message would find no room for its origin."""
    filler = b"a\x01" + b"x" * SENT_PROPERTIES_BYTES_MAX
    for error, field, _ in refusals(way_in(filler)):
        assert (error, field) == (MessageTooLarge, "properties")


def test_properties_of_the_limit_are_taken() -> None:
    """By both forms, with a delay, too."""
    delayed = b"DELAY\x012\x02WAIT\x01true\x02"
    rest = SENT_PROPERTIES_BYTES_MAX - 2

    def scenario(broker: BrokerUnderTest) -> list[object]:
        fits = [one(b"a\x01" + b"x" * rest), one(delayed + b"a\x01" + b"x" * (rest - len(delayed)))]
        found = done(broker.broker.drafts.send(fits))
        assert all(isinstance(each, Stored) for each in found)
        over = done(broker.broker.drafts.send([one(b"a\x01" + b"x" * (rest + 1))]))
        return [str(each) for each in over]

    (sentence,) = same_in_both(scenario)
    assert f"at most {SENT_PROPERTIES_BYTES_MAX} bytes" in str(sentence)


@pytest.mark.parametrize("parts", [1, 2, 8_000])
def test_a_full_message_of_rocketmq_becomes_a_letter_with_its_origin(
    under_test: BrokerUnderTest, parts: int
) -> None:
    """Also if its string holds no pair that could be named: then that goes."""
    create_topic(under_test, TOPIC)
    size = (PROPERTIES_BYTES_MAX - parts + 1) // parts
    string = b"\x02".join([b"\xff" * size] * parts).ljust(PROPERTIES_BYTES_MAX, b"\xff")
    under_test.store.append([new_record(b"x", TOPIC, 0, properties=string)])
    under_test.sync()
    (message,) = under_test.messages(TOPIC)
    assert send_back(under_test, message, reason="away").is_dead
    (letter,) = under_test.messages(dlq_topic(GROUP))
    assert letter.properties[DLQ_ORIGIN_TOPIC] == TOPIC
    assert RETRY_TOPIC not in letter.properties
    assert redrive(under_test).sent == 1


# ---- bodies


NOT_DESCRIBED: Final = (
    (b"order 1", 0x1),
    (b"order 1", 0x201),
    (b"order 1", 0x101),
    (zlib.compress(BODY), 0x101),
    (zlib.compress(BODY), 0x701),
    (zlib.compress(BODY), 0x401),
    (zlib.compress(BODY)[:-1], 0x1),
    (zlib.compress(bytes(range(256)) * 400)[:40], 0x301),
    (b"order 1", 0x40),
    (b"order 1", 0xC0),
)


def test_a_body_that_its_sys_flag_does_not_describe_is_refused() -> None:
    """RocketMQ's Java consumer loses all messages that it pulls with such a one."""
    calls = [DraftCall((draft(body=body, sys_flag=flag),)) for body, flag in NOT_DESCRIBED]
    found = refusals(*calls)
    assert [error for error, _, _ in found] == [InvalidValue] * len(NOT_DESCRIBED) * 2
    assert {field for _, field, _ in found} <= {"body", "sysFlag"}


def test_a_body_that_its_sys_flag_describes_is_taken() -> None:
    """Codec bits without the mark mean nothing to RocketMQ's clients."""
    flags = [0, *COMPRESS, 0x2, 0x3, 0x100, 0x700]

    def scenario(broker: BrokerUnderTest) -> list[int]:
        taken = []
        for flag in flags:
            body = COMPRESS[flag & 0x701](BODY) if flag & 1 else BODY
            call = DraftCall((draft(body=body, sys_flag=flag),))
            (stored,) = done(broker.broker.drafts.send([call]))
            taken += [flag] * isinstance(stored, Stored)
        return taken

    assert same_in_both(scenario) == flags


def test_a_batch_is_not_compressed() -> None:
    """No client of RocketMQ compresses one, and to look into each message takes too long."""
    items = [BatchItem(0, zlib.compress(BODY), b"")] * 2
    assert set(refusals(batch(items, sys_flag=1))) == {(InvalidValue, "sysFlag", "1")}


def test_only_the_beginning_of_a_long_body_is_inflated() -> None:
    """The rest would cost all other callers their time."""
    long = zlib.compress(bytes(range(256)) * 4_000, 0)
    assert compression.why_unreadable(long, 1) == ""
    assert compression.why_unreadable(long[:-9] + bytes(9), 1) == ""
    assert compression.why_unreadable(b"\x78" + bytes(100_000), 1)


@pytest.mark.parametrize(
    ("sys_flag", "magic"),
    [(LZ4, "04224d18"), (ZSTD, "28b52ffd")],
)
def test_without_a_codecs_package_its_first_bytes_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, sys_flag: int, magic: str
) -> None:
    """A broker need not have the extra that its producers have."""
    without_the_extra(monkeypatch)
    assert compression.why_unreadable(bytes.fromhex(magic) + b"rest", sys_flag) == ""
    assert magic in compression.why_unreadable(b"order 1", sys_flag)


def test_a_level_of_its_own_is_still_the_senders(under_test: BrokerUnderTest) -> None:
    """The check changes nothing of what is accepted."""
    create_topic(under_test, TOPIC)
    done(under_test.broker.drafts.send([one(b"DELAY\x012\x02note\x01TIMER_DELAY_MS")]))
    assert level_status(under_test, 2).pending == 1
    assert bodies(under_test) == []
