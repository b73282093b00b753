"""What a group will be given again: what is due and not consumed yet, then what waits."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.features.changes import pending
from rmqlite.features.changes.requests import PendingFilter
from rmqlite.features.dead_letters import retries as module
from rmqlite.features.dead_letters.requests import (
    DEAD_LETTERS_MAX,
    DeadLetterFilter,
    DeadLettersQuery,
)
from rmqlite.features.dead_letters.retries import Retries
from rmqlite.features.finding.finding import message_at
from rmqlite.features.operating.progress import Progress
from rmqlite.kernel.requests.groups import OffsetsCommit
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import GroupUnknown, InvalidValue
from rmqlite.kernel.words.names import SCHEDULE_TOPIC, retry_topic
from rmqlite.views.groups import group_figures
from tests.support.brokers import BrokerUnderTest
from tests.support.letters import retries, retry_pages
from tests.support.messages import GROUP, TOPIC, received, save_group, send_back
from tests.support.pending import CANCEL, by_filter, named
from tests.support.restarts import WAYS, Restart
from tests.support.steps import done
from tests.support.stores import new_record

RETRY = retry_topic(GROUP)


def failed(broker: BrokerUnderTest, message_id: str, level: int = 0, **more: Any) -> None:
    reason = more.pop("reason", "")
    group = more.pop("group", GROUP)
    message = received(broker, message_id=message_id, **more)
    send_back(broker, message, group=group, delay_level=level, reason=reason)


def several(broker: BrokerUnderTest) -> None:
    """Two are due, three wait, in the order m0 to m4; another group's lie between."""
    save_group(broker, retry_queues=2)
    for number, level in enumerate((1, 1, 3, 4, 5)):
        failed(
            broker,
            f"m{number}",
            level,
            topic=(TOPIC, "bills")[number % 2],
            tags=("Paid", "New")[number % 2],
            keys=(f"k{number}", "all"),
            reason=("no stock", "time-out")[number % 2],
        )
        failed(broker, f"other{number}", level, group="other")
        broker.send(named(f"later{number}", level))
        broker.clock.forward(100)
    broker.clock.forward(1_000)
    broker.deliver()


def ids(broker: BrokerUnderTest, *arguments: Any, **more: Any) -> list[str]:
    return [each.message_id for each in retries(broker, *arguments, **more)]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("page", [1, 2, 3, 100])
@pytest.mark.parametrize("restart", WAYS)
def test_what_is_due_comes_first_then_what_waits(
    under_test: BrokerUnderTest, page: int, restart: Restart
) -> None:
    """Page by page; looking consumes nothing."""
    several(under_test)
    restart(under_test)
    end = under_test.store.end
    pages = retry_pages(under_test, max_letters=page)
    found = [each for part in pages for each in part.letters]
    assert [each.message_id for each in found] == ["m0", "m1", "m2", "m3", "m4"]
    assert all(len(part.letters) <= page for part in pages)
    assert [each.due_ms for each in found] == sorted(each.due_ms for each in found)
    now_ms = under_test.clock.now_ms()
    assert [each.due_ms <= now_ms for each in found] == [True, True, False, False, False]
    assert {each.topic for each in found} == {RETRY}
    assert [each.delivery_attempts for each in found] == [1] * 5
    assert under_test.store.end == end
    assert ids(under_test, group="other") == [f"other{number}" for number in range(5)]


def test_a_waiting_retry_says_when_and_why(under_test: BrokerUnderTest) -> None:
    """Where it comes from, and where its record lies in the schedule."""
    message = received(under_test, message_id="m1", tags="Paid")
    result = send_back(under_test, message, reason="no stock\nat line 1")
    (letter,) = retries(under_test)
    assert (letter.group, letter.topic, letter.queue_offset) == (GROUP, RETRY, 0)
    assert (letter.origin_topic, letter.origin_queue_offset) == (TOPIC, message.queue_offset)
    assert letter.origin_message_id == message.offset_message_id
    assert (letter.reason, letter.delivery_attempts) == ("no stock\nat line 1", 1)
    assert letter.due_ms == result.deliver_at_ms
    assert (
        message_at(under_test.broker.parts, letter.offset_message_id).message.topic
        == SCHEDULE_TOPIC
    )


def test_what_the_group_has_consumed_is_no_retry_any_more(under_test: BrokerUnderTest) -> None:
    """Behind its committed offset, queue by queue."""
    several(under_test)
    due = [each for each in retries(under_test) if each.message_id in ("m0", "m1")]
    for each in due:
        offsets = {Queue(RETRY, each.queue_id): each.queue_offset + 1}
        under_test.broker.commit_offsets(OffsetsCommit(GROUP, offsets))
    assert ids(under_test) == ["m2", "m3", "m4"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"topic": TOPIC}, "m0 m2 m4"),
        ({"tag": "New"}, "m1 m3"),
        ({"key": "k3"}, "m3"),
        ({"key": "all", "reason": "STOCK"}, "m0 m2 m4"),
        ({"ids": ("m4",)}, "m4"),
        ({"ids": ("m0",)}, "m0"),
        ({"ids": ("other1",)}, ""),
        ({"since": 1}, "m1 m2 m3 m4"),
        ({"since": 1, "until": 3}, "m1 m2"),
        ({"until": 1, "reason": "no such"}, ""),
    ],
)
@pytest.mark.parametrize("page", [1, 100])
def test_retries_are_found_by_every_field(
    under_test: BrokerUnderTest, wanted: dict[str, Any], expected: str, page: int
) -> None:
    """The time is that of the last failure, not when the retry comes."""
    begin_ms = under_test.clock.now_ms()
    several(under_test)
    given = dict(wanted)
    for name in ("since", "until"):
        if name in given:
            given[f"{name}_ms"] = begin_ms + 100 * given.pop(name)
    assert ids(under_test, DeadLetterFilter(**given), max_letters=page) == expected.split()


def test_a_retry_is_found_in_every_group_by_its_id(under_test: BrokerUnderTest) -> None:
    """Also by the offset message id of its record, due or waiting; never another message."""
    several(under_test)
    message = received(under_test, message_id="both")
    for group in (GROUP, "other"):
        send_back(under_test, message, group=group)
    under_test.send(named("m4", 5))
    both = retries(under_test, DeadLetterFilter(ids=("both",)), group="")
    assert sorted(each.group for each in both) == ["other", GROUP]
    for each in (*retries(under_test), *both):
        by_id = DeadLetterFilter(ids=(each.offset_message_id,))
        assert retries(under_test, by_id, group="") == [each]
    assert ids(under_test, DeadLetterFilter(ids=("m4",)), group="") == ["m4"]
    assert ids(under_test, DeadLetterFilter(ids=("nobody",)), group="") == []


def test_cancelled_retries_are_gone(under_test: BrokerUnderTest) -> None:
    """By the filter of the schedule, as `retry cancel` does it."""
    several(under_test)
    wanted = PendingFilter(topic=RETRY, reason="no stock")
    assert by_filter(under_test, CANCEL, wanted) == 2
    assert ids(under_test) == ["m0", "m1", "m3"]


def test_levels_at_which_nothing_of_the_group_waits_are_not_looked_at(
    under_test: BrokerUnderTest, monkeypatch: Any
) -> None:
    """Millions may wait there."""
    failed(under_test, "m1", 3)
    for number in range(20):
        under_test.send(named(f"later{number}", 1))
    monkeypatch.setattr(pending, "SCAN_MAX", 1)
    monkeypatch.setattr(pending, "PAGE_SLICES_MAX", 1)
    (page,) = retry_pages(under_test)
    assert [each.message_id for each in page.letters] == ["m1"]


def test_a_page_looks_at_a_bounded_number_of_messages(
    under_test: BrokerUnderTest, monkeypatch: Any
) -> None:
    """It may be empty, and say where to go on."""
    several(under_test)
    monkeypatch.setattr(module, "LOOK_MAX", 1)
    pages = retry_pages(under_test, DeadLetterFilter(tag="none such"))
    assert len(pages) >= 2
    assert not any(page.letters for page in pages)


@pytest.mark.parametrize(
    ("field", "query"),
    [
        ("group", DeadLettersQuery("")),
        ("newest_first", DeadLettersQuery(GROUP, newest_first=True)),
        ("is_open", DeadLettersQuery(GROUP, is_open=True)),
        ("max_letters", DeadLettersQuery(GROUP, max_letters=DEAD_LETTERS_MAX + 1)),
        ("key", DeadLettersQuery(GROUP, DeadLetterFilter(key="a b"))),
        ("cursor", DeadLettersQuery(GROUP, cursor="x")),
        ("cursor", DeadLettersQuery(GROUP, cursor="o.1")),
        ("cursor", DeadLettersQuery(GROUP, cursor="d.x")),
        ("cursor", DeadLettersQuery(GROUP, cursor="w")),
        ("cursor", DeadLettersQuery(GROUP, cursor="w.1.2")),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    under_test: BrokerUnderTest, field: str, query: DeadLettersQuery
) -> None:
    """It says what is wrong."""
    save_group(under_test)
    with pytest.raises(InvalidValue) as raised:
        done(under_test.broker[Retries].pages(query))
    assert raised.value.field == field


def test_a_group_that_nobody_knows_is_refused(under_test: BrokerUnderTest) -> None:
    """One without retries is not: it has none."""
    with pytest.raises(GroupUnknown):
        retries(under_test)
    save_group(under_test)
    assert retries(under_test) == []


def test_only_what_is_durable_is_listed(under_test: BrokerUnderTest) -> None:
    """Due or waiting: what a power cut can take back was seen by nobody."""
    message = received(under_test, message_id="m1")
    request = SendBackRequest(GROUP, message.physical_offset)
    under_test.broker.send_back(request)
    under_test.store.append([new_record("x", RETRY)])
    assert retries(under_test) == []
    under_test.sync()
    assert [each.due_ms > under_test.clock.now_ms() for each in retries(under_test)] == [
        *(False, True),
    ]


def test_due_retries_that_nobody_reads_are_in_the_groups_status(
    under_test: BrokerUnderTest,
) -> None:
    """Without a member and a commit they were missing, and LAG and DUE lacked them."""
    several(under_test)
    status = done(under_test.broker[Progress].status(GROUP))
    assert {each.queue.topic for each in status.progress} == {RETRY}
    assert {each.committed_offset for each in status.progress} == {None}
    assert group_figures(GROUP, status).due == group_figures(GROUP, status).lag == 2
