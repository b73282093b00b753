"""Why dead letters failed, counted: the open ones, and of very many the newest."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.broker.finding import letter_reading
from rmqlite.broker.letters import dead_letters, failure_reasons
from rmqlite.broker.letters.failure_reasons import (
    ALIKE_MAX,
    REASON_CHARS_MAX,
    kind_of,
    short_reason,
)
from rmqlite.names import dlq_topic
from rmqlite.store.log.property_strings import property_strings
from tests.support.brokers import BrokerUnderTest
from tests.support.letters import dead, dead_ids, groups, purge, reasons
from tests.support.messages import GROUP
from tests.support.steps import done
from tests.support.stores import new_record

DLQ = dlq_topic(GROUP)


def die(broker: BrokerUnderTest, *texts: str) -> None:
    """A letter for each reason, put there by hand."""
    records = []
    for text in texts:
        properties = {"UNIQ_KEY": text, **({"FAILURE_REASON": text} if text else {})}
        records.append(new_record("letter", DLQ, properties=properties))
    broker.store.append(records)
    broker.sync()


def redriven(broker: BrokerUnderTest, start: int, end: int, job_id: str = "job-1") -> None:
    broker.broker.redriven.add(job_id, DLQ, 0, start, end)


@pytest.mark.parametrize(
    ("reason", "short"),
    [
        ("", ""),
        ("no stock", "no stock"),
        ("\n  no stock\r\nTraceback", "no stock"),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 199 + "…"),
    ],
)
def test_a_reason_is_its_first_line_cut(reason: str, short: str) -> None:
    """What follows is a trace, which is different each time."""
    assert short_reason(reason) == short
    assert len(short) <= REASON_CHARS_MAX


def test_the_most_frequent_ones_come_first(under_test: BrokerUnderTest) -> None:
    """Five of them; of as frequent ones in the order of the alphabet."""
    die(under_test, "f", "c", "a", "b", "c", "d\nx", "d\ny", "d", "e", "")
    assert list(reasons(under_test).items()) == [("d", 3), ("c", 2), ("", 1), ("a", 1), ("b", 1)]
    assert groups(under_test)[GROUP].reasons_of == 10


def test_a_reason_that_is_no_text_is_told_as_one(under_test: BrokerUnderTest) -> None:
    """The wire takes no other."""
    broken = new_record("letter", DLQ, properties=b"FAILURE_REASON\x01\xff\xed")
    under_test.store.append([broken])
    under_test.sync()
    (reason,) = reasons(under_test)
    assert reason.encode() == "\ufffd\ufffd".encode()


def test_letters_that_were_redriven_count_no_more(under_test: BrokerUnderTest) -> None:
    """Nor are they open; told twice it is the same."""
    die(under_test, *"aabbbc")
    assert reasons(under_test) == {"a": 2, "b": 3, "c": 1}
    redriven(under_test, 0, 1)
    redriven(under_test, 2, 4)
    redriven(under_test, 2, 4, "job-2")
    for _ in range(2):
        assert reasons(under_test) == {"a": 1, "b": 1, "c": 1}
        mine = groups(under_test)[GROUP]
        assert (mine.letters, mine.open, mine.redriven, mine.reasons_of) == (6, 3, 3, 6)
    assert done(under_test.broker.letters.dead.open_counts()) == {GROUP: 3}
    assert dead_ids(under_test, is_open=True) == ["a", "b", "c"]
    assert dead_ids(under_test, is_open=True, newest_first=True, max_letters=1) == ["c", "b", "a"]
    die(under_test, "d")
    redriven(under_test, 0, 7)
    assert reasons(under_test) == {}
    purged = purge(under_test)
    assert (purged.letters, purged.open) == (7, 0)


def test_reasons_are_those_of_the_newest_letters(
    under_test: BrokerUnderTest, monkeypatch: Any
) -> None:
    """So many are looked at, and remembered; of all of them the count is told."""
    monkeypatch.setattr(dead_letters, "REASONS_OF_MAX", 4)
    die(under_test, *"aaabbc")
    assert reasons(under_test) == {"a": 1, "b": 2, "c": 1}
    die(under_test, *"dd")
    assert reasons(under_test) == {"b": 1, "c": 1, "d": 2}
    mine = groups(under_test)[GROUP]
    assert (mine.letters, mine.reasons_of) == (8, 4)
    purge(under_test)
    die(under_test, "e")
    assert reasons(under_test) == {"e": 1}
    purge(under_test, restore=True)
    assert reasons(under_test) == {"c": 1, "d": 2, "e": 1}


class Reads:
    """Counts how many letters' properties are read."""

    def __init__(self, monkeypatch: Any) -> None:
        self.count = 0

        def counted(entries: Any, *rest: Any) -> Any:
            self.count += len(entries)
            return property_strings(entries, *rest)

        monkeypatch.setattr(letter_reading, "property_strings", counted)


def test_a_letter_is_read_once(under_test: BrokerUnderTest, monkeypatch: Any) -> None:
    """A second look costs what is new since; what is purged unseen costs nothing."""
    reads = Reads(monkeypatch)
    die(under_test, *"aabb")
    reasons(under_test)
    assert reads.count == 4
    reasons(under_test)
    assert reads.count == 4
    die(under_test, "c")
    purge(under_test)
    die(under_test, "d")
    assert reasons(under_test) == {"d": 1}
    assert reads.count == 5


def test_two_who_ask_at_once_are_told_the_same(under_test: BrokerUnderTest) -> None:
    """Between any two steps of one, the other may take all of its own."""
    die(under_test, *(each * 40 for each in "abc" * 1_000))
    steps = [under_test.broker.letters.dead.groups() for _ in range(2)]
    answers: list[Any] = []
    while len(answers) < 2:
        for each in list(steps):
            try:
                next(each)
            except StopIteration as end:
                answers.append(end.value)
                steps.remove(each)
    assert answers[0] == answers[1]
    assert [each.count for each in answers[0][0].reasons] == [1_000] * 3


def test_of_very_many_reasons_the_frequent_ones_are_told(
    under_test: BrokerUnderTest, monkeypatch: Any
) -> None:
    """A reason that names its order is another one each time; memory has a bound."""
    monkeypatch.setattr(failure_reasons, "REASONS_KEPT_MAX", 8)
    texts = []
    for number in range(60):
        texts += [f"order {number}", "no stock"]
        texts += ["time-out"] * (number % 2)
    die(under_test, *texts)
    counted = reasons(under_test)
    assert counted["no stock"] == 60
    assert counted["time-out"] == 30
    assert sum(counted.values()) <= len(texts)
    assert groups(under_test)[GROUP].letters == len(texts)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("no stock", "no stock"),
        ("boom order-17 after 3000ms", "boom order-# after #ms"),
        ("user_42 of host10:8443", "user_# of host#:#"),
        ("id 1f2e3d4c-0a1b-2c3d-4e5f-60718293a4b5 gone", "id # gone"),
        ("object at 0x7f3a9c", "object at #"),
        ("no C0000202485737EA2DEB68D4", "no #"),
        ("dead beef cafe", "dead beef cafe"),
        ("-17.50 is below 0", "-#.# is below #"),
    ],
)
def test_a_kind_of_reason_has_a_sign_for_each_number_and_id(reason: str, kind: str) -> None:
    """Words stay as they are, also those that could be hex."""
    assert kind_of(reason) == kind


def test_reasons_that_differ_in_ids_are_one_when_there_are_many(
    under_test: BrokerUnderTest,
) -> None:
    """A summary in which every letter is a line of its own tells nothing."""
    die(under_test, *[f"no stock for order-{n}" for n in range(ALIKE_MAX)])
    assert len(groups(under_test)[GROUP].reasons) == 5
    die(under_test, *[f"no stock for order-{n}" for n in range(50, 100)], "time-out")
    assert reasons(under_test) == {"no stock for order-#": ALIKE_MAX + 50, "time-out": 1}
    redriven(under_test, 0, 5)
    assert reasons(under_test) == {"no stock for order-#": ALIKE_MAX + 45, "time-out": 1}


def test_a_few_that_differ_in_a_number_are_told_apart(under_test: BrokerUnderTest) -> None:
    """A 404 is not a 503."""
    die(under_test, *["HTTP 404", "HTTP 503"] * 40, "HTTP 500")
    assert reasons(under_test) == {"HTTP 404": 40, "HTTP 503": 40, "HTTP 500": 1}


def test_a_kind_stays_one_when_rare_reasons_are_forgotten(
    under_test: BrokerUnderTest, monkeypatch: Any
) -> None:
    """It would fall apart into its letters, and be lost as rare."""
    monkeypatch.setattr(failure_reasons, "REASONS_KEPT_MAX", 30)
    words = [a + b + c for a in "ghij" for b in "ghij" for c in "ghij"]
    texts = [f"order {number}" for number in range(40)] + words
    die(under_test, *texts, *[f"order {number}" for number in range(100, 140)])
    assert reasons(under_test)["order #"] == 80


def test_a_repaired_place_is_a_letter_without_a_reason_to_tell(
    under_test: BrokerUnderTest,
) -> None:
    """It keeps its queue offset, and nobody is shown it."""
    dead(under_test, "m1", reason="a")
    properties = {"REPAIRED": "1", "FAILURE_REASON": "b"}
    place = new_record("x", DLQ, properties=properties, reconsume_times=-1, sys_flag=0x0C)
    under_test.store.append([place])
    dead(under_test, "m2", reason="a")
    assert dead_ids(under_test) == ["m1", "m2"]
    assert reasons(under_test) == {"a": 2}
