"""Letters that come from a file: sent once, back to their group, and redriven from then on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rmqlite.features.dead_letters.listing import DeadLetters
from rmqlite.features.dead_letters.redriven import IMPORTED
from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.redrive.requests import (
    IMPORTED_DEAD_LETTERS_MAX,
    ImportAnswer,
    ImportedDeadLetter,
    ImportRequest,
    ReadersOfTopic,
    RedriveOutcome,
)
from rmqlite.kernel.words.errors import DiskFull, InvalidName, InvalidValue, TopicUnknown
from rmqlite.kernel.words.message import REDRIVEN_BY, Message, StoredMessage, encode_properties
from rmqlite.kernel.words.names import retry_topic
from rmqlite.store_tools.check import check
from tests.support.brokers import BrokerUnderTest
from tests.support.letters import dead_letters, groups, kinds, life
from tests.support.made_brokers import Make
from tests.support.messages import bodies, save_group, send_back
from tests.support.redrives import DLQ, GROUP, bury, bury_many, redrive, redriven_messages
from tests.support.restarts import WAYS, Restart
from tests.support.steps import done

RETRY = retry_topic(GROUP)
SENT, ALREADY, REFUSED = RedriveOutcome.SENT, RedriveOutcome.ALREADY, RedriveOutcome.REFUSED


def exported(
    broker: BrokerUnderTest, *, body: bytes | None = None
) -> tuple[ImportedDeadLetter, ...]:
    """All letters of the group as an export has them; body: the repaired one."""
    return tuple(
        ImportedDeadLetter(
            each.queue_id,
            each.queue_offset,
            each.offset_message_id,
            each.store_timestamp_ms,
            encode_properties(each.properties),
            each.body if body is None else body,
        )
        for each in broker.messages(DLQ)
    )


def imported(
    broker: BrokerUnderTest, letters: tuple[ImportedDeadLetter, ...], **how: Any
) -> ImportAnswer:
    answer = broker.broker[Redrive].imports.run(ImportRequest(GROUP, letters, **how))
    broker.sync()
    return answer


def outcomes(answer: ImportAnswer) -> list[RedriveOutcome]:
    return [each.outcome for each in answer.letters]


def open_count(broker: BrokerUnderTest) -> int:
    """By the list of groups, and by the counts that no letter is read for."""
    count = groups(broker)[GROUP].open
    assert done(broker.broker[DeadLetters].open_counts())[GROUP] == count
    return count


@pytest.mark.parametrize("restart", WAYS)
def test_repaired_letters_go_back_and_count_as_redriven(
    under_test: BrokerUnderTest, restart: Restart
) -> None:
    """Whatever becomes of the broker; the others stay open."""
    bury_many(under_test, 5)
    letters = exported(under_test, body=b"repaired")
    answer = imported(under_test, letters[1:3])
    assert outcomes(answer) == [SENT, SENT]
    assert answer.topics == (ReadersOfTopic(RETRY, 2, (GROUP,)),)
    assert bodies(under_test, RETRY) == ["repaired", "repaired"]
    for _ in range(2):
        assert open_count(under_test) == 3
        redriven = [each.redriven_by for each in dead_letters(under_test, group=GROUP)]
        assert redriven == ["", IMPORTED, IMPORTED, "", ""]
        assert outcomes(imported(under_test, letters[1:3])) == [ALREADY, ALREADY]
        restart(under_test)
    assert (redrive(under_test).sent, open_count(under_test)) == (3, 0)
    assert len(bodies(under_test, RETRY)) == 5
    assert list(check(under_test.config.store_path)) == []


def test_an_import_makes_the_message_that_a_redrive_makes(make: Make) -> None:
    """Same id, properties and origin, and the new body; so its life is one life."""
    by_file: list[StoredMessage] = []
    by_job: list[StoredMessage] = []
    for found in (by_file, by_job):
        broker = make()
        bury(broker, Message("orders", b"a", tags="t", keys=("k",), message_id="m1"))
        if found is by_file:
            imported(broker, exported(broker, body=b"b"))
        else:
            redrive(broker)
        found += redriven_messages(broker)
    (one,), (other,) = by_file, by_job
    assert (one.body, other.body) == (b"b", b"a")
    assert (one.topic, one.origin_topic, one.message_id) == (RETRY, "orders", other.message_id)
    said = {REDRIVEN_BY: IMPORTED}
    assert dict(one.properties) == {**other.properties, **said}


def test_the_life_of_a_repaired_message_goes_on(under_test: BrokerUnderTest) -> None:
    """Its group fails it again, with its origin."""
    save_group(under_test, group=GROUP)
    bury(under_test, Message("orders", b"a", message_id="m1"))
    imported(under_test, exported(under_test, body=b"b"))
    send_back(under_test, under_test.messages(RETRY)[0], group=GROUP, delay_level=-1)
    assert kinds(under_test, "m1") == ["sent", "dead", "redriven", "dead"]
    assert life(under_test, "m1").events[2].job_id == IMPORTED
    first, second = dead_letters(under_test, group=GROUP)
    assert (second.origin_topic, second.origin_message_id) == ("orders", first.origin_message_id)


def test_what_a_crash_left_is_counted_by_the_same_import(under_test: BrokerUnderTest) -> None:
    """It may take the record of the import, but not a message before it."""
    bury_many(under_test, 3)
    letters = exported(under_test)
    imported(under_test, letters)
    under_test.crash()
    log = max((under_test.config.store_path / "commitlog").iterdir())
    data = log.read_bytes()
    end = under_test.store.end
    at = data.rindex(b'{"imported"')
    log.write_bytes(data[:at] + bytes(len(data) - at))
    under_test.open()
    assert under_test.store.end < end
    assert open_count(under_test) == 3
    assert outcomes(imported(under_test, letters)) == [ALREADY] * 3
    assert (open_count(under_test), len(bodies(under_test, RETRY))) == (0, 3)


def test_letters_of_another_broker_are_sent_and_hide_none(make: Make) -> None:
    """Another letter may lie in the same place here."""
    other, here = make(), make(listen_port=10_912)
    bury_many(other, 2)
    bury_many(here, 3, topic="bills")
    redrive(here, to_topic="elsewhere")
    bury_many(here, 1, topic="bills")
    assert open_count(here) == 1
    assert outcomes(imported(here, exported(other))) == [SENT, SENT]
    assert open_count(here) == 1
    assert outcomes(imported(here, exported(other))) == [ALREADY, ALREADY]


def test_an_import_may_publish_to_a_topic(under_test: BrokerUnderTest) -> None:
    """For every group there; without an origin it has to."""
    bury_many(under_test, 2)
    letters = exported(under_test)
    nowhere = replace(letters[1], properties=b"a\x01b")
    assert outcomes(imported(under_test, (letters[0], nowhere), dry_run=True)) == [SENT, REFUSED]
    answer = imported(under_test, (letters[0], nowhere), to_topic="rescued")
    assert outcomes(answer) == [SENT, SENT]
    assert answer.topics == (ReadersOfTopic("rescued", 2),)
    assert open_count(under_test) == 0


def test_a_letter_that_is_twice_in_a_call_is_sent_once(under_test: BrokerUnderTest) -> None:
    """Two exports in one file."""
    bury_many(under_test, 1)
    letters = exported(under_test)
    assert sorted(outcomes(imported(under_test, letters * 2))) == [SENT, ALREADY]
    assert len(bodies(under_test, RETRY)) == 1


def test_a_dry_run_changes_nothing(under_test: BrokerUnderTest) -> None:
    """Not a byte; and says what would be refused, and why."""
    bury_many(under_test, 2)
    letters = exported(under_test)
    empty = replace(letters[1], body=b"")
    end = under_test.store.end
    answer = imported(under_test, (letters[0], empty), dry_run=True)
    assert outcomes(answer) == [SENT, REFUSED]
    assert "body is empty" in answer.letters[1].why
    assert (under_test.store.end, open_count(under_test)) == (end, 2)


def test_what_an_import_must_be(under_test: BrokerUnderTest) -> None:
    """The rules of a redrive, and a limit of letters."""
    bury_many(under_test, 1)
    letters = exported(under_test)
    for wrong, named in (((), "letters"), (letters * (IMPORTED_DEAD_LETTERS_MAX + 1), "letters")):
        with pytest.raises(InvalidValue, match=named):
            imported(under_test, wrong)
    with pytest.raises(InvalidName):
        under_test.broker[Redrive].imports.run(ImportRequest("a b", letters))
    with pytest.raises(InvalidValue, match="to_topic"):
        imported(under_test, letters, to_topic=RETRY)
    under_test.broker.retention.is_disk_full = True
    with pytest.raises(DiskFull):
        imported(under_test, letters)
    under_test.broker.retention.is_disk_full = False
    under_test.restart(auto_create_topic=False)
    with pytest.raises(TopicUnknown):
        imported(under_test, letters, to_topic="unknown")
