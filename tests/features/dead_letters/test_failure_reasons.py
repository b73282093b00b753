"""Why dead letters failed, counted by kind: the open ones, and of very many the newest."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from rmqlite.features.dead_letters import listing
from rmqlite.features.dead_letters.listing import DeadLetters
from rmqlite.features.dead_letters.redriven import Redriven
from rmqlite.features.dead_letters.requests import DeadLetterFilter
from rmqlite.features.failure_kinds import NO_REASON
from rmqlite.kernel.records.completion import UNDELIVERABLE_TOPIC
from rmqlite.kernel.store.log.raw_records import property_strings
from rmqlite.kernel.words.errors import GroupUnknown
from rmqlite.kernel.words.names import dlq_topic, retry_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.golden import INDEX, unpack_golden
from tests.support.letters import dead, dead_ids, dead_letters, groups, purge, reasons, retries
from tests.support.messages import GROUP, received, save_group, send_back
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
    broker.broker[Redriven].add(job_id, DLQ, 0, start, end)


def test_the_most_frequent_ones_come_first(under_test: BrokerUnderTest) -> None:
    """Five of them; of as frequent ones in the order of the alphabet."""
    die(under_test, "f", "c", "a", "b", "c", "d\nx", "d\ny", "d", "e", "")
    assert list(reasons(under_test).items()) == [
        *(("d", 3), ("c", 2), (NO_REASON, 1), ("a", 1), ("b", 1))
    ]
    mine = groups(under_test)[GROUP]
    assert (mine.reasons_of, mine.rest_letters, mine.rest_kinds) == (10, 2, 2)
    every = done(under_test.broker[DeadLetters].reasons(GROUP))
    assert [each.reason for each in every.reasons] == ["d", "c", NO_REASON, "a", "b", "e", "f"]
    assert (every.rest_letters, every.rest_kinds) == (0, 0)
    with pytest.raises(GroupUnknown):
        done(under_test.broker[DeadLetters].reasons("nobody"))


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
    assert done(under_test.broker[DeadLetters].open_counts()) == {GROUP: 3}
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
    monkeypatch.setattr(listing, "REASONS_OF_MAX", 4)
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

        monkeypatch.setattr("rmqlite.kernel.reading.property_strings", counted)


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
    steps = [under_test.broker[DeadLetters].groups() for _ in range(2)]
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


def test_of_very_many_kinds_the_frequent_ones_are_counted(
    under_test: BrokerUnderTest, monkeypatch: Any
) -> None:
    """Memory has a bound; the letters of kinds that were forgotten are in the rest."""
    monkeypatch.setattr(listing, "REASONS_KEPT_MAX", 8)
    texts = []
    for number, word in enumerate(map("".join, product("ghij", repeat=3))):
        texts += [f"no {word}", "no stock", f"order {number}"]
        texts += ["time-out"] * (number % 2)
    die(under_test, *texts)
    counted = reasons(under_test)
    assert (counted["no stock"], counted["order #"], counted["time-out"]) == (64, 64, 32)
    mine = groups(under_test)[GROUP]
    assert (mine.letters, sum(counted.values()) + mine.rest_letters) == (len(texts), len(texts))
    assert 0 < mine.rest_kinds <= 8 - len(counted)


def test_reasons_that_differ_in_ids_are_one_kind_from_the_first(
    under_test: BrokerUnderTest,
) -> None:
    """A summary in which every letter is a line of its own says nothing."""
    die(under_test, *[f"no stock for order-{n}" for n in range(60)], "time-out")
    assert reasons(under_test) == {"no stock for order-#": 60, "time-out": 1}
    redriven(under_test, 0, 5)
    assert reasons(under_test) == {"no stock for order-#": 55, "time-out": 1}


def test_a_status_is_a_kind(under_test: BrokerUnderTest) -> None:
    """A 404 is not a 503."""
    die(under_test, *["HTTP 404", "HTTP 503"] * 40, "HTTP 500")
    assert reasons(under_test) == {"HTTP 404": 40, "HTTP 503": 40, "HTTP 500": 1}


def test_a_repaired_place_is_a_letter_of_no_kind(under_test: BrokerUnderTest) -> None:
    """It keeps its queue offset, and nobody is shown it."""
    dead(under_test, "m1", reason="a")
    properties = {"REPAIRED": "1", "FAILURE_REASON": "b"}
    place = new_record("x", DLQ, properties=properties, reconsume_times=-1, sys_flag=0x0C)
    under_test.store.append([place])
    dead(under_test, "m2", reason="a")
    assert dead_ids(under_test) == ["m1", "m2"]
    assert reasons(under_test) == {"a": 2}
    mine = groups(under_test)[GROUP]
    assert (mine.rest_letters, mine.rest_kinds) == (1, 0)


OF_EARLIER = {"FAILURE_REASON": "no answer within 5 s", "FAILURE_REASON_ATTEMPT": "2"}
OF_ROCKETMQ = {"FAILURE_REASON": "no answer within 6 s", "DELIVERY_ATTEMPTS": "2"}
MIXED = [
    ({"FAILURE_REASON": "no answer within 3 s"}, 1),
    ({"FAILURE_REASON": "no answer within 14 s\nTraceback"}, 3),
    ({"FAILURE_REASON": "HTTP 404: order 17"}, 1),
    ({"FAILURE_REASON": "HTTP 503: order 18"}, 1),
    ({"FAILURE_REASON": "x" * 300}, 1),
    ({"FAILURE_REASON": "(no reason)"}, 1),
    ({}, 1),
    (OF_EARLIER, 3),
    (OF_ROCKETMQ, 5),
    (OF_ROCKETMQ, 2),
    ({"FAILURE_REASON": "no answer within 6 s", "DELIVERY_ATTEMPTS": "many"}, 5),
]


def counts_by_filter(broker: BrokerUnderTest, group: str, kinds: dict[str, int]) -> dict[str, int]:
    return {
        kind: len(dead_letters(broker, DeadLetterFilter(failure_kind=kind), group, is_open=True))
        for kind in kinds
    }


@pytest.mark.parametrize("topic", [DLQ, UNDELIVERABLE_TOPIC])
def test_a_filter_by_kind_finds_as_many_as_were_counted(
    under_test: BrokerUnderTest, topic: str
) -> None:
    """A group in a list that leads nowhere is worse than none.

    The reason that is shown counts, also if it is of an earlier attempt: no later one gave any.
    """
    records = [
        new_record("letter", topic, properties=properties, reconsume_times=times)
        for properties, times in MIXED * 2
    ]
    under_test.store.append(records)
    under_test.sync()
    under_test.broker[Redriven].add("job-1", topic, 0, 0, 2)
    group = topic.removeprefix("%DLQ%")
    counted = reasons(under_test, group)
    assert len(counted) == 5
    assert counted["no answer within # s"] == 10
    assert counted[NO_REASON] == 4
    assert counts_by_filter(under_test, group, counted) == counted
    mine = groups(under_test)[group]
    assert sum(counted.values()) + mine.rest_letters == mine.open
    for each in dead_letters(under_test, group=group):
        same = dead_letters(under_test, DeadLetterFilter(failure_kind=each.failure_kind), group)
        assert each in same
    for text in (NO_REASON, "ANSWER within # s"):
        by_text = dead_letters(under_test, DeadLetterFilter(reason=text), group, is_open=True)
        kind = next(kind for kind in counted if text.casefold() in kind.casefold())
        assert len(by_text) == counted[kind]


def test_a_filter_by_kind_finds_what_rocketmq_wrote(tmp_path: Path) -> None:
    """RocketMQ gives no reasons."""
    root = unpack_golden(tmp_path)
    broker = BrokerUnderTest(root / "clean", **INDEX)
    for group, mine in groups(broker).items():
        counted = {each.reason: each.count for each in mine.reasons}
        assert counted == {NO_REASON: mine.open}
        assert counts_by_filter(broker, group, counted) == counted
    assert groups(broker)
    broker.store.release()


def test_retries_have_kinds_too(under_test: BrokerUnderTest) -> None:
    """The due ones and those that wait in the schedule."""
    save_group(under_test)
    for number, level in enumerate((1, 1, 5)):
        message = received(under_test, message_id=f"m{number}", body=b"x")
        send_back(under_test, message, delay_level=level, reason=f"code {number} of 9")
    under_test.clock.forward(1_000)
    under_test.deliver()
    _, again = under_test.messages(retry_topic(GROUP))
    send_back(under_test, again, delay_level=5, reason="")
    found = retries(under_test, DeadLetterFilter(failure_kind="code # of #"))
    assert sorted(each.message_id for each in found) == ["m0", "m1", "m1", "m2"]
    assert {each.failure_kind for each in found} == {"code # of #"}
    assert retries(under_test, DeadLetterFilter(failure_kind=NO_REASON)) == []
