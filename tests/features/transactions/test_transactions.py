"""Transactions: what half messages become, and how the broker finds out (reference §10.1)."""

from __future__ import annotations

import pytest

from rmqlite.features.transactions import transactions as room
from rmqlite.features.transactions.transactions import Transactions
from rmqlite.kernel.records.record import Written, read_head
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.sends.calls import DraftCall
from rmqlite.kernel.words.errors import (
    InvalidValue,
    MessageNotFound,
    MessageTooLarge,
    PermissionMissing,
    RmqliteError,
    StoreUnavailable,
)
from rmqlite.kernel.words.limits import SENT_PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import Message
from rmqlite.kernel.words.names import HALF_ENDS_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC, UNDECIDED_TOPIC
from tests.support.brokers import LONG_BODIES, BrokerUnderTest
from tests.support.files import FaultyFiles
from tests.support.made_brokers import Make
from tests.support.restarts import WAYS, Restart
from tests.support.steps import done
from tests.support.stores import new_record
from tests.support.transactions import (
    GROUP,
    TOPIC,
    bodies,
    checked,
    end,
    half_draft,
    open_halves,
    records,
    send_half,
)

TIMEOUT_MS = 6_000
HOUR_MS = 3_600_000


def ask_later(broker: BrokerUnderTest, producers: tuple[str, ...] = (GROUP,)) -> int:
    """A round when every half message is old enough; how many questions it has."""
    broker.clock.forward(TIMEOUT_MS)
    return len(checked(broker, producers))


def progress(broker: BrokerUnderTest) -> dict[str, int]:
    """The two offsets that RocketMQ keeps of transactions."""
    broker.broker.tables()
    known = broker.broker.offsets.of("CID_RMQ_SYS_TRANS")
    return {queue.topic: offset for queue, offset in known.items()}


def test_a_half_message_is_stored_as_rocketmq_stores_it(under_test: BrokerUnderTest) -> None:
    """Sys flag without the transaction's bits; its properties name where it goes."""
    at = send_half(under_test, "a", queue_id=2, TAGS="paid")
    (half,) = records(under_test, HALF_TOPIC)
    assert (at.queue_offset, at.physical_offset) == (0, half.head.physical_offset)
    assert half.head.sys_flag == 0x300
    assert (half.head.queue_id, half.head.flag, half.head.completes) == (0, 5, 0)
    assert half.properties.encoded == (
        b"TRAN_MSG\x01true\x02PGROUP\x01payers\x02UNIQ_KEY\x01a\x02TAGS\x01paid"
        b"\x02CLUSTER\x01DefaultCluster\x02REAL_TOPIC\x01orders\x02REAL_QID\x012"
    )
    assert under_test.broker.topics.existing(HALF_TOPIC).write_queues == 1
    assert bodies(under_test, TOPIC, 2) == []


def test_a_commit_stores_the_message_and_the_end_of_its_half(under_test: BrokerUnderTest) -> None:
    """As RocketMQ 4.9.8's own store has them, field by field; in one append."""
    at = send_half(under_test, "a", queue_id=2, TAGS="paid")
    assert end(under_test, at)
    (half,) = records(under_test, HALF_TOPIC)
    (message,) = records(under_test, TOPIC, 2)
    (ended,) = records(under_test, HALF_ENDS_TOPIC)
    assert message.head.sys_flag == 0x308
    assert message.head.completes == half.head.physical_offset
    assert message.properties.encoded == half.properties.encoded
    assert message.head.flag == 5
    assert message.head.born_timestamp_ms == 17
    assert message.body == b"a"
    assert ended.body == b"0"
    assert ended.properties.encoded == b"WAIT\x01true\x02TAGS\x01d"
    assert ended.head.sys_flag == 0
    assert ended.head.born_host == ended.head.store_host
    assert message.end == ended.head.physical_offset


def test_a_rollback_stores_only_the_end(under_test: BrokerUnderTest) -> None:
    """Nobody ever gets the message."""
    assert end(under_test, send_half(under_test, "a"), is_commit=False)
    assert bodies(under_test) == []
    assert bodies(under_test, HALF_ENDS_TOPIC) == ["0"]
    assert ask_later(under_test) == 0


@pytest.mark.parametrize("restart", [None, *WAYS])
def test_a_transaction_ends_once(under_test: BrokerUnderTest, restart: Restart | None) -> None:
    """A client that missed the answer commits again; RocketMQ stores the message twice then."""
    first, second = send_half(under_test, "a"), send_half(under_test, "b")
    assert end(under_test, first)
    assert end(under_test, second, is_commit=False)
    if restart:
        restart(under_test)
    assert not end(under_test, first)
    assert not end(under_test, first, is_commit=False)
    assert not end(under_test, second)
    assert bodies(under_test) == ["a"]
    assert bodies(under_test, HALF_ENDS_TOPIC) == ["0", "1"]


@pytest.mark.parametrize("restart", WAYS)
def test_an_open_transaction_survives_a_restart(
    under_test: BrokerUnderTest, restart: Restart
) -> None:
    """The producer, or its answer to a question, still ends it, once."""
    ends = [send_half(under_test, f"{number}") for number in range(5)]
    end(under_test, ends[1])
    end(under_test, ends[3], is_commit=False)
    restart(under_test)
    assert open_halves(under_test) == 3
    under_test.clock.forward(TIMEOUT_MS)
    questions = checked(under_test)
    assert [each.message_id for each in questions] == ["0", "2", "4"]
    assert checked(under_test, ()) == []
    end(under_test, questions[0])
    end(under_test, ends[4])
    restart(under_test)
    assert open_halves(under_test) == 1
    assert bodies(under_test) == ["1", "0", "4"]


def test_a_commit_names_its_half_message_rightly(under_test: BrokerUnderTest) -> None:
    """Else it would end somebody else's transaction; the right one stays open."""
    at = send_half(under_test, "a")
    (other,) = under_test.send(Message(TOPIC, b"other"))
    wrong: list[tuple[type[RmqliteError], Written, str]] = [
        (InvalidValue, at, "others"),
        (InvalidValue, at._replace(queue_offset=1), GROUP),
        (MessageNotFound, at._replace(physical_offset=at.physical_offset + 1), GROUP),
        (MessageNotFound, at._replace(physical_offset=other.physical_offset), GROUP),
    ]
    for error, named, group in wrong:
        with pytest.raises(error):
            end(under_test, named, group=group)
    assert open_halves(under_test) == 1
    assert bodies(under_test) == ["other"]


def test_a_message_that_goes_nowhere_is_not_committed(under_test: BrokerUnderTest) -> None:
    """A foreign half message may name a folder outside of the store, or no place at all."""
    for place in (
        {"REAL_TOPIC": "../../etc", "REAL_QID": "0"},
        {"REAL_TOPIC": SCHEDULE_TOPIC, "REAL_QID": "0"},
        {"REAL_TOPIC": "nobody-has-made-it", "REAL_QID": "0"},
        {"REAL_TOPIC": "TBW102", "REAL_QID": "99999999999"},
        {},
    ):
        new = new_record("a", HALF_TOPIC, properties={"PGROUP": GROUP, "UNIQ_KEY": "a", **place})
        (at,) = under_test.store.append([new])
        with pytest.raises(RmqliteError):
            end(under_test, at)
        assert end(under_test, at, is_commit=False)


def test_a_half_message_needs_a_producer_group(under_test: BrokerUnderTest) -> None:
    """Without one nobody could ever be asked for the outcome."""
    with pytest.raises(InvalidValue, match="PGROUP"):
        send_half(under_test, "a", PGROUP="")


def test_a_half_message_without_an_id_gets_one(under_test: BrokerUnderTest) -> None:
    """The producer tells by it which transaction the broker asks about."""
    send_half(under_test, "a", UNIQ_KEY="")
    under_test.clock.forward(TIMEOUT_MS)
    (asked,) = checked(under_test)
    assert len(asked.message_id) == 32


def test_a_half_message_has_room_for_what_checks_add(under_test: BrokerUnderTest) -> None:
    """RocketMQ's records have room for 32,767 bytes of properties."""
    send_half(under_test, "a", filler="x" * (SENT_PROPERTIES_BYTES_MAX - 200))
    under_test.clock.forward(TIMEOUT_MS)
    assert len(checked(under_test)) == 1
    with pytest.raises(MessageTooLarge, match=f"at most {SENT_PROPERTIES_BYTES_MAX} bytes"):
        send_half(under_test, "b", filler="x" * SENT_PROPERTIES_BYTES_MAX)


def test_transactions_can_be_refused(make: Make) -> None:
    """With rejectTransactionMessage=true; other messages are taken."""
    broker = make(rejects_transactions=True)
    with pytest.raises(PermissionMissing, match="rejectTransactionMessage=true"):
        send_half(broker, "a")
    broker.send(Message(TOPIC, b"b"))


def test_a_retry_and_an_item_of_a_batch_are_no_half_messages(under_test: BrokerUnderTest) -> None:
    """A consumer that sends a committed message to its retry topic may leave the property in it."""
    retry = half_draft("a")._replace(topic="%RETRY%shop")
    batch = [half_draft("b"), half_draft("c")]
    calls = [DraftCall((retry,)), DraftCall(batch)]
    outcomes = done(under_test.broker.drafts.send(calls))
    assert not any(isinstance(outcome, Exception) for outcome in outcomes)
    assert bodies(under_test, "%RETRY%shop") == ["a"]
    assert bodies(under_test) == ["b", "c"]


# ---- delays


@pytest.mark.parametrize("restart", [None, *WAYS])
def test_a_delay_begins_when_the_message_is_committed(
    under_test: BrokerUnderTest, restart: Restart | None
) -> None:
    """RocketMQ loses such a message: it delays the half message, and finds no way for it."""
    at = send_half(under_test, "a", DELAY="2")
    assert records(under_test, HALF_TOPIC)[0].head.queue_offset == 0
    under_test.clock.forward(60_000)
    assert under_test.deliver() == 0
    end(under_test, at)
    (waiting,) = records(under_test, SCHEDULE_TOPIC, 1)
    assert waiting.head.sys_flag == 0x308
    assert waiting.head.completes == at.physical_offset
    assert waiting.properties.text("REAL_TOPIC") == TOPIC
    if restart:
        restart(under_test)
    due_ms = waiting.head.store_timestamp_ms + 5_000
    under_test.clock.forward(due_ms - under_test.clock.now_ms() - 1)
    assert under_test.deliver() == 0
    under_test.clock.forward(1)
    assert under_test.deliver() == 1
    (message,) = records(under_test, TOPIC)
    assert message.head.completes == waiting.end
    if restart:
        restart(under_test)
    assert under_test.deliver() == 0
    assert bodies(under_test) == ["a"]


@pytest.mark.parametrize("restart", WAYS)
def test_a_committed_message_never_completes_a_scheduled_one(
    under_test: BrokerUnderTest, restart: Restart
) -> None:
    """The field has two meanings: where a half message begins, and where a scheduled one ends.

    A scheduled record that ends where the half message begins must still be delivered.
    """
    end(under_test, send_half(under_test, "topics are made"), is_commit=False)
    under_test.send(Message(TOPIC, b"scheduled", delay_level=3))
    at = send_half(under_test, "a", DELAY="3", RESCHEDULED_FROM="3", FIRED="1")
    (scheduled,) = records(under_test, SCHEDULE_TOPIC, 2)
    assert scheduled.end == at.physical_offset
    end(under_test, at)
    restart(under_test)
    under_test.clock.forward(10_000)
    under_test.deliver()
    assert sorted(bodies(under_test)) == ["a", "scheduled"]


# ---- checks


def test_a_producer_is_asked_of_a_copy(under_test: BrokerUnderTest) -> None:
    """The record that it gets is the message as it will be, at the copy's offsets."""
    at = send_half(under_test, "a", queue_id=1)
    under_test.clock.forward(TIMEOUT_MS)
    (asked,) = checked(under_test)
    _, copy = records(under_test, HALF_TOPIC)
    assert (asked.group, asked.message_id) == (GROUP, "a")
    assert (asked.queue_offset, asked.physical_offset) == (1, copy.head.physical_offset)
    assert asked.offset_message_id.endswith(f"{asked.physical_offset:016X}")
    shown = read_head(asked.record)
    assert shown is not None
    assert (shown.topic, shown.queue_id, shown.size) == (TOPIC, 1, len(asked.record))
    assert (shown.queue_offset, shown.physical_offset) == (1, asked.physical_offset)
    assert shown.store_timestamp_ms == at.store_timestamp_ms
    assert b"TRANSACTION_CHECK_TIMES\x011" in shown.properties
    assert b"PGROUP\x01payers" in shown.properties
    assert bodies(under_test, HALF_ENDS_TOPIC) == ["0"]
    assert end(under_test, asked)
    (message,) = records(under_test, TOPIC, 1)
    assert (message.head.flag, message.head.completes) == (5, asked.physical_offset)


def test_a_half_message_is_left_alone_until_it_is_old_enough(under_test: BrokerUnderTest) -> None:
    """Its local transaction may still run; it may also ask for a time of its own."""
    send_half(under_test, "usual")
    send_half(under_test, "longer", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    send_half(under_test, "shorter", CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    under_test.clock.forward(999)
    assert checked(under_test) == []
    under_test.clock.forward(1)
    assert [each.message_id for each in checked(under_test)] == ["shorter"]
    under_test.clock.forward(5_000)
    assert [each.message_id for each in checked(under_test)] == ["usual", "shorter"]
    under_test.clock.forward(54_000)
    assert "longer" in [each.message_id for each in checked(under_test)]


@pytest.mark.parametrize("restart", [None, *WAYS])
def test_a_half_message_is_given_up_when_it_was_asked_of_so_many_times(
    under_test: BrokerUnderTest, restart: Restart | None
) -> None:
    """transactionCheckMax; the count survives a restart, and the message is not lost."""
    send_half(under_test, "a")
    under_test.clock.forward(TIMEOUT_MS)
    for number in range(15):
        (asked,) = checked(under_test)
        assert asked.queue_offset == number + 1
        if restart and number == 7:
            restart(under_test)
    assert checked(under_test) == []
    (given_up,) = records(under_test, UNDECIDED_TOPIC)
    assert given_up.properties.number("TRANSACTION_CHECK_TIMES") == 15
    assert open_halves(under_test) == 0
    assert not end(under_test, asked)
    assert bodies(under_test) == []


def test_only_a_producer_that_is_there_is_asked(under_test: BrokerUnderTest) -> None:
    """A producer that is away for an hour still finds its transactions; RocketMQ counts its rounds
    without a producer, too, and gives up after fifteen."""
    send_half(under_test, "a")
    under_test.clock.forward(TIMEOUT_MS)
    for _ in range(60):
        under_test.clock.forward(60_000)
        assert checked(under_test, ("others",)) == []
    assert bodies(under_test, HALF_TOPIC) == ["a"]
    (asked,) = checked(under_test)
    assert b"TRANSACTION_CHECK_TIMES\x011" in asked.record


def test_a_half_message_is_given_up_when_it_is_too_old(under_test: BrokerUnderTest) -> None:
    """fileReservedTime, as RocketMQ does; so a producer that is gone for good keeps no log file."""
    send_half(under_test, "a")
    under_test.clock.forward(72 * HOUR_MS - 1)
    assert checked(under_test, ()) == []
    assert open_halves(under_test) == 1
    under_test.clock.forward(1)
    assert checked(under_test, ()) == []
    assert bodies(under_test, UNDECIDED_TOPIC) == ["a"]
    assert open_halves(under_test) == 0


def test_the_old_name_of_a_copied_half_message_ends_the_copy(under_test: BrokerUnderTest) -> None:
    """A producer that takes long commits what it has sent, though it was asked meanwhile.

    RocketMQ commits both then, the half message and its copy.
    """
    at = send_half(under_test, "a")
    asked = [ask_later(under_test) for _ in range(3)]
    assert asked == [1, 1, 1]
    under_test.sync()
    assert end(under_test, at)
    assert bodies(under_test) == ["a"]
    assert ask_later(under_test) == 0


def test_a_message_that_was_sent_twice_is_committed_once(under_test: BrokerUnderTest) -> None:
    """A client sends again if it misses the answer, and goes on with the second half message."""
    send_half(under_test, "a")
    second = send_half(under_test, "a", queue_id=1)
    end(under_test, second)
    assert open_halves(under_test) == 1
    assert ask_later(under_test) == 0
    assert open_halves(under_test) == 0
    assert (bodies(under_test), bodies(under_test, TOPIC, 1)) == ([], ["a"])


def test_a_round_goes_on_in_bounded_steps(under_test: BrokerUnderTest) -> None:
    """Other calls run between two steps; each half message is asked of once."""
    halves = [send_half(under_test, f"{number}") for number in range(450)]
    for at in halves[::3]:
        end(under_test, at)
    under_test.clock.forward(TIMEOUT_MS)
    transactions = under_test.broker[Transactions]
    rest = transactions.begin_round()
    steps = []
    while rest is not None:
        step = transactions.check(rest, lambda _: True)
        steps.append([each.message_id for each in step.questions])
        rest = step.rest
    assert max(map(len, steps)) == room.STEP_ENDS
    wanted = [f"{number}" for number in range(450) if number % 3]
    assert [each for step in steps for each in step] == wanted
    under_test.clock.forward(60_000)
    begun = transactions.begin_round()
    assert begun is not None
    assert len(transactions.check(begun, lambda _: False).questions) == 0


def test_a_step_copies_few_bytes(make: Make) -> None:
    """A half message may have megabytes."""
    broker = make(**LONG_BODIES)
    for number in range(6):
        large = half_draft(f"{number}")._replace(body=bytes(400_000))
        done(broker.broker.drafts.send([DraftCall((large,))]))
    broker.clock.forward(TIMEOUT_MS)
    transactions = broker.broker[Transactions]
    rest = transactions.begin_round()
    counts = []
    while rest is not None:
        step = transactions.check(rest, lambda _: True)
        counts.append(len(step.questions))
        rest = step.rest
    assert counts == [2, 2, 2]


def test_a_half_message_far_behind_is_copied_though_nobody_is_asked(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start reads the ends of all younger ones: there must not be too many."""
    monkeypatch.setattr(room, "FAR_HALVES", 20)
    send_half(under_test, "left")
    for number in range(30):
        end(under_test, send_half(under_test, f"{number}"))
    assert ask_later(under_test, ()) == 1
    assert progress(under_test) == {HALF_TOPIC: 31, HALF_ENDS_TOPIC: 30}
    assert ask_later(under_test, ()) == 0


def test_rocketmq_finds_how_far_the_ends_go(under_test: BrokerUnderTest) -> None:
    """The offsets of CID_RMQ_SYS_TRANS: no open half message is before the first, no end of a
    message behind it before the second."""
    halves = [send_half(under_test, f"{number}") for number in range(4)]
    assert progress(under_test) == {HALF_TOPIC: 0}
    end(under_test, halves[0])
    end(under_test, halves[2])
    assert progress(under_test) == {HALF_TOPIC: 1, HALF_ENDS_TOPIC: 0}
    end(under_test, halves[1])
    assert progress(under_test) == {HALF_TOPIC: 3, HALF_ENDS_TOPIC: 0}
    end(under_test, halves[3], is_commit=False)
    assert progress(under_test) == {HALF_TOPIC: 4, HALF_ENDS_TOPIC: 4}


def test_foreign_offsets_of_the_group_change_nothing(under_test: BrokerUnderTest) -> None:
    """Any client can commit offsets for any group; the broker saves its own."""
    send_half(under_test, "a")
    send_half(under_test, "b")
    under_test.broker.offsets.commit("CID_RMQ_SYS_TRANS", {Queue(HALF_TOPIC, 0): 2})
    under_test.restart()
    assert open_halves(under_test) == 2


# ---- the disk


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_commit_that_cannot_be_stored_may_be_made_again(make: Make, after: int) -> None:
    """Neither the message nor the end is there, and the half message stays open."""
    files = FaultyFiles()
    broker = make(files=files)
    end(broker, send_half(broker, "first"))
    at = send_half(broker, "a")
    files.fail("write", after=after)
    with pytest.raises(StoreUnavailable):
        end(broker, at)
    assert (bodies(broker), open_halves(broker)) == (["first"], 1)
    assert end(broker, at)
    broker.restart()
    assert (bodies(broker), open_halves(broker)) == (["first", "a"], 0)


def test_the_file_of_an_open_half_message_stays(make: Make) -> None:
    """However full the disk is; when the transaction has ended it goes."""
    files = FaultyFiles(used_ratio=0.95)
    broker = make(files=files, mapped_file_size_commit_log=100_000, max_message_bytes=10_000)
    at = send_half(broker, "a")
    for number in range(60):
        broker.send(Message(TOPIC, b"%d" % number + bytes(9_000)))
    broker.persist()
    assert broker.broker.retention.clean(broker.clock.now_ms()) == 0
    assert broker.store.min_offset == 0
    end(broker, at)
    broker.sync()
    broker.persist()
    broker.broker.retention.clean(broker.clock.now_ms())
    assert broker.broker.retention.clean(broker.clock.now_ms()) + broker.store.min_offset > 0
    broker.restart()
    assert open_halves(broker) == 0


# ---- stores of RocketMQ


def test_transactions_of_rocketmq_go_on(broker: BrokerUnderTest) -> None:
    """Those that it has ended stay ended; of the others the producer is asked."""
    halves = {found.head.queue_offset: found for found in records(broker, HALF_TOPIC)}
    ended = {int(found.body) for found in records(broker, HALF_ENDS_TOPIC)}
    left = sorted(halves.keys() - ended)
    assert open_halves(broker) == len(left)
    questions = checked(broker, ("tx",))
    assert [each.message_id for each in questions] == [
        halves[offset].properties.text("UNIQ_KEY") for offset in left
    ]
    for asked in questions:
        assert end(broker, asked, group="tx")
    assert open_halves(broker) == 0
