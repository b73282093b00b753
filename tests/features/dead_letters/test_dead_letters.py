"""Dead letters, listed page by page and counted group by group; looking changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rmqlite.features.dead_letters import listing as module
from rmqlite.features.dead_letters import reading
from rmqlite.features.dead_letters.listing import DeadLetters
from rmqlite.features.dead_letters.requests import (
    DEAD_LETTERS_MAX,
    DeadLetterFilter,
    DeadLettersQuery,
)
from rmqlite.kernel.records.completion import UNDELIVERABLE_TOPIC
from rmqlite.kernel.words.errors import GroupUnknown, InvalidValue
from rmqlite.kernel.words.names import dlq_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.letters import dead, dead_ids, dead_letters, dead_pages, groups, reasons
from tests.support.made_brokers import Make
from tests.support.messages import GROUP, TOPIC, received, save_group, send_back
from tests.support.pending import deliver_all, forget_topic, named
from tests.support.restarts import WAYS, Restart
from tests.support.sends import BORN_HOST
from tests.support.steps import done
from tests.support.stores import contents, new_record

DLQ = dlq_topic(GROUP)


def several(broker: BrokerUnderTest, count: int = 7) -> list[str]:
    """Letters of one group, with another one's between them; their ids."""
    for number in range(count):
        message = dead(
            broker,
            f"m{number}",
            topic=(TOPIC, "bills")[number % 2],
            tags=("Paid", "New", "Old")[number % 3],
            keys=(f"k{number}", "all"),
            reason=("no stock", "time-out\nat x")[number % 2],
        )
        if number % 2:
            send_back(broker, message, group="other", delay_level=-1)
        broker.clock.forward(1_000)
    return [f"m{number}" for number in range(count)]


@pytest.fixture(scope="module")
def seven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerUnderTest]:
    """A broker with seven letters, for tests that only look."""
    broker = BrokerUnderTest(tmp_path_factory.mktemp("seven"))
    several(broker)
    before = contents(broker.config.store_path)
    yield broker
    assert contents(broker.config.store_path) == before
    broker.store.release()


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("page", [1, 2, 3, 7, 1_000, 0])
def test_pages_give_every_letter_once_in_order(
    under_test: BrokerUnderTest, page: int, newest_first: bool
) -> None:
    """The order in which they died, or back."""
    ids = several(under_test)
    end = under_test.store.end
    pages = dead_pages(under_test, newest_first=newest_first, max_letters=page)
    listed = [each.message_id for part in pages for each in part.letters]
    assert listed == (ids[::-1] if newest_first else ids)
    assert all(1 <= len(part.letters) <= (page or 100) for part in pages)
    assert len(pages) == -(-7 // (page or 100))
    assert sum(part.looked_at for part in pages) == 7
    assert under_test.store.end == end


@pytest.mark.parametrize("newest_first", [False, True])
def test_what_dies_between_two_pages_moves_none(
    under_test: BrokerUnderTest, newest_first: bool
) -> None:
    """Upwards the new ones come last, downwards they are before what was asked for."""
    ids = several(under_test, 4)
    query = DeadLettersQuery(GROUP, newest_first=newest_first, max_letters=2)
    first = done(under_test.broker[DeadLetters].pages(query))
    dead(under_test, "later")
    rest = dead_ids(under_test, newest_first=newest_first)
    again = DeadLettersQuery(GROUP, newest_first=newest_first, cursor=first.cursor)
    second = done(under_test.broker[DeadLetters].pages(again))
    assert [each.message_id for each in second.letters] == (
        ids[:2][::-1] if newest_first else [*ids[2:], "later"]
    )
    assert len(rest) == 5


@pytest.mark.one_of(9)
@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        ({"topic": TOPIC}, "m0 m2 m4 m6"),
        ({"tag": "New"}, "m1 m4"),
        ({"key": "k5"}, "m5"),
        ({"key": "all", "tag": "Old"}, "m2 m5"),
        ({"reason": "TIME-OUT"}, "m1 m3 m5"),
        ({"reason": "at x", "topic": "bills", "tag": "Paid"}, "m3"),
        ({"ids": ("m3",)}, "m3"),
        ({"ids": ("m3",), "tag": "New"}, ""),
        ({"ids": ("nobody",)}, ""),
        ({"ids": ("m5", "nobody", "m3")}, "m3 m5"),
        ({"ids": (f"{GROUP}:0:2", "m3", f"%DLQ%{GROUP}:0:6", "other:0:0")}, "m2 m3 m6"),
        ({"failure_kind": "time-out"}, "m1 m3 m5"),
        ({"failure_kind": "time"}, ""),
        ({"since": 2}, "m2 m3 m4 m5 m6"),
        ({"until": 2}, "m0 m1"),
        ({"since": 2, "until": 4, "topic": TOPIC}, "m2"),
        ({"since": 99}, ""),
    ],
)
@pytest.mark.parametrize("page", [1, 100])
@pytest.mark.parametrize("candidates_max", [0, 3, 1_000])
def test_letters_are_found_by_every_field(
    seven: BrokerUnderTest,
    wanted: dict[str, Any],
    ids: str,
    newest_first: bool,
    page: int,
    candidates_max: int,
    monkeypatch: Any,
) -> None:
    """In both directions, and whether the key index has few candidates or too many."""
    monkeypatch.setattr(module, "CANDIDATES_MAX", candidates_max)
    begin_ms = seven.clock.now_ms() - 7_000
    given = dict(wanted)
    if "since" in given:
        given["since_ms"] = begin_ms + 1_000 * given.pop("since")
    if "until" in given:
        given["until_ms"] = begin_ms + 1_000 * given.pop("until")
    found = dead_ids(seven, DeadLetterFilter(**given), newest_first=newest_first, max_letters=page)
    assert found == (ids.split()[::-1] if newest_first else ids.split())


def test_a_message_that_died_in_two_groups_is_found_in_both(under_test: BrokerUnderTest) -> None:
    """Without a group by its id; it is dead once for each."""
    several(under_test)
    found = dead_letters(under_test, DeadLetterFilter(ids=("m3",)), group="")
    assert [each.group for each in found] == [GROUP, "other"]
    again = dead_letters(under_test, DeadLetterFilter(ids=("m3",)), "", max_letters=1)
    assert again == found
    for each in found:
        by_id = DeadLetterFilter(ids=(each.offset_message_id,))
        assert dead_letters(under_test, by_id, group="") == [each]
        assert dead_letters(under_test, by_id, group=each.group) == [each]
        assert dead_letters(under_test, by_id, {GROUP: "other"}.get(each.group, GROUP)) == []


def test_an_id_that_names_no_letter_finds_none(under_test: BrokerUnderTest) -> None:
    """Not the message that it was, nor what a body makes look like a record, nor no place."""
    message = dead(under_test, "m1")
    (letter,) = dead_letters(under_test)
    raw = under_test.store.read(letter.physical_offset, letter.store_size)
    forged = bytearray(raw)
    dead(under_test, "m2", body=bytes(100) + bytes(forged))
    place = under_test.store.end - 1
    for asked in (
        message.offset_message_id,
        letter.offset_message_id[:-16] + f"{place:016X}",
        letter.offset_message_id[:-16] + "F" * 16,
        letter.offset_message_id[:-16] + f"{letter.physical_offset + 1:016X}",
        "0" * 32,
        "0" * 56,
    ):
        assert dead_ids(under_test, DeadLetterFilter(ids=(asked,)), group="") == []


def test_a_page_looks_at_a_bounded_number_of_letters(
    under_test: BrokerUnderTest, monkeypatch: Any
) -> None:
    """It may be empty, and say where to go on."""
    monkeypatch.setattr(module, "LOOK_MAX", 3)
    monkeypatch.setattr(reading, "SLICE_MAX", 2)
    several(under_test)
    pages = dead_pages(under_test, DeadLetterFilter(reason="nobody says this"))
    assert [(page.letters, page.looked_at) for page in pages] == [((), 3), ((), 3), ((), 1)]


def test_only_what_is_durable_is_listed_and_counted(under_test: BrokerUnderTest) -> None:
    """What a power cut can take back was seen by nobody."""
    several(under_test, 2)
    under_test.store.append([new_record("letter", DLQ)])
    assert len(dead_ids(under_test)) == groups(under_test)[GROUP].letters == 2
    under_test.sync()
    assert len(dead_ids(under_test)) == groups(under_test)[GROUP].letters == 3


@pytest.mark.parametrize(
    ("field", "query"),
    [
        ("group", DeadLettersQuery("")),
        ("group", DeadLettersQuery("", DeadLetterFilter(key="k1"))),
        ("max_letters", DeadLettersQuery(GROUP, max_letters=-1)),
        ("max_letters", DeadLettersQuery(GROUP, max_letters=DEAD_LETTERS_MAX + 1)),
        ("key", DeadLettersQuery(GROUP, DeadLetterFilter(key="a b"))),
        ("until_ms", DeadLettersQuery(GROUP, DeadLetterFilter(since_ms=2, until_ms=1))),
        ("cursor", DeadLettersQuery(GROUP, cursor="x")),
        ("cursor", DeadLettersQuery(GROUP, cursor="n.1")),
        ("cursor", DeadLettersQuery(GROUP, cursor="o.1", newest_first=True)),
        ("cursor", DeadLettersQuery(GROUP, cursor="o.-1")),
        ("cursor", DeadLettersQuery(GROUP, cursor="o." + "9" * 30)),
        ("cursor", DeadLettersQuery(GROUP, cursor="o.\u0661")),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    under_test: BrokerUnderTest, field: str, query: DeadLettersQuery
) -> None:
    """It says what is wrong."""
    save_group(under_test)
    with pytest.raises(InvalidValue) as raised:
        done(under_test.broker[DeadLetters].pages(query))
    assert raised.value.field == field


def test_a_group_that_nobody_knows_is_refused(under_test: BrokerUnderTest) -> None:
    """One without letters is not: it has none."""
    with pytest.raises(GroupUnknown):
        dead_letters(under_test)
    save_group(under_test)
    assert dead_letters(under_test) == []
    assert groups(under_test) == {}


@pytest.mark.parametrize("restart", WAYS)
def test_groups_are_counted_and_told_why(under_test: BrokerUnderTest, restart: Restart) -> None:
    """Counts, when the first and the last died, and the most frequent reasons."""
    begin_ms = under_test.clock.now_ms()
    several(under_test)
    for _ in range(2):
        found = groups(under_test)
        mine = found[GROUP]
        assert list(found) == [GROUP, "other"] or list(found) == ["other", GROUP]
        assert (mine.letters, mine.open, mine.redriven, mine.purged) == (7, 7, 0, 0)
        assert (mine.oldest_ms, mine.newest_ms) == (begin_ms, begin_ms + 6_000)
        assert reasons(under_test) == {"no stock": 4, "time-out": 3}
        assert mine.reasons[0].reason == "no stock"
        assert (mine.reasons_of, found["other"].reasons_of) == (7, 3)
        assert reasons(under_test, "other") == {"(no reason)": 3}
        restart(under_test)


def test_what_could_not_be_delivered_is_a_group_like_any_other(under_test: BrokerUnderTest) -> None:
    """The schedule's own dead letters: nobody has made that group."""
    under_test.send(named("m1", 1, tags="Paid"))
    forget_topic(under_test, TOPIC)
    deliver_all(under_test)
    (letter,) = dead_letters(under_test, group="SCHEDULE_CONSUMER")
    assert (letter.topic, letter.origin_topic) == (UNDELIVERABLE_TOPIC, TOPIC)
    assert (letter.message_id, letter.tags, letter.delivery_attempts) == ("m1", "Paid", 0)
    assert reasons(under_test, "SCHEDULE_CONSUMER") == {letter.reason: 1}
    assert dead_letters(under_test, DeadLetterFilter(topic=TOPIC), "SCHEDULE_CONSUMER") == [letter]


def test_letters_of_several_queues_come_in_the_order_of_the_log(make: Make) -> None:
    """Nobody but an operator makes such a topic; counts and reasons are of all of them."""
    broker = make()
    for number in range(9):
        properties = {"UNIQ_KEY": f"m{number}", "FAILURE_REASON": "rs"[number % 2]}
        record = new_record("letter", DLQ, number % 3, properties=properties)
        broker.store.append([record._replace(born_host=BORN_HOST)])
    broker.sync()
    ids = [f"m{number}" for number in range(9)]
    for page in (1, 2, 100):
        assert dead_ids(broker, max_letters=page) == ids
        assert dead_ids(broker, max_letters=page, newest_first=True) == ids[::-1]
    mine = groups(broker)[GROUP]
    assert (mine.letters, mine.reasons_of) == (9, 9)
    assert reasons(broker) == {"r": 5, "s": 4}


def test_a_retry_that_failed_again_is_one_letter(under_test: BrokerUnderTest) -> None:
    """Its attempts and both ends of its failures are told."""
    save_group(under_test, max_reconsume_times=1)
    send_back(under_test, received(under_test, message_id="m1"), reason="first")
    under_test.clock.forward(10_000)
    under_test.deliver()
    (retry,) = under_test.messages(f"%RETRY%{GROUP}")
    send_back(under_test, retry, reason="second")
    (letter,) = dead_letters(under_test)
    assert (letter.delivery_attempts, letter.reason) == (2, "second")
    assert letter.last_failure_ms - letter.first_failure_ms == 10_000


def test_a_page_of_letters_with_very_long_properties_is_shorter(
    under_test: BrokerUnderTest, monkeypatch: Any
) -> None:
    """It must fit into one answer."""
    monkeypatch.setattr(module, "PAGE_BYTES_MAX", 50_000)
    for number in range(5):
        dead(under_test, f"m{number}", properties={"long": "x" * 29_000})
    pages = dead_pages(under_test)
    assert [len(page.letters) for page in pages] == [2, 2, 1]
