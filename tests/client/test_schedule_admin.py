"""What waits, asked for and changed from Python: pages, parts, and what an error interrupts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from rmqlite.client import AdminClient, Producer
from rmqlite.features.changes.requests import (
    CHANGED_IDS_MAX,
    CHANGES_MAX,
    ChangeByFilter,
    ChangeByIds,
    ChangedId,
    ChangedPage,
    ChangeOutcome,
    LevelTimeline,
    PendingCount,
    PendingFilter,
    PendingMessage,
    PendingPage,
    PendingQuery,
    TimelineRequest,
)
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.words.errors import BrokerClosing, BrokerUnreachable, InvalidValue
from tests.support.fake_broker import FakeBroker, failing_at


def waiting(number: int) -> PendingMessage:
    """The number-th message of level 3."""
    due_ms = 1_700_000_000_000 + number
    where = ("orders", 2, f"ID{number}", "paid", ("k1", "k2"))
    return PendingMessage(3, number, due_ms, *where, 1, 2, 3, 4, 5, 6, "10.0.0.2:10911")


def paged(pages: Sequence[Any], page_of: Callable[[Any, str], Any]) -> Callable[[Any], Any]:
    """Answers with the page that the cursor numbers; the cursor of the last one is empty."""

    def answer(query: Any) -> Any:
        number = int(query.cursor or 0)
        cursor = str(number + 1) if number + 1 < len(pages) else ""
        return page_of(pages[number], cursor)

    return answer


def all_done(change: ChangeByIds) -> tuple[ChangedId, ...]:
    return tuple([ChangedId(each, ChangeOutcome.DONE, 1, 7) for each in change.message_ids])


@pytest.fixture
def admin(broker: FakeBroker) -> Iterator[AdminClient]:
    with AdminClient(broker.endpoint, timeout_ms=20_000) as admin:
        yield admin


# ---- seeing


def test_a_question_arrives_whole_and_so_does_the_answer(
    broker: FakeBroker, admin: AdminClient
) -> None:
    """Nothing is lost or renamed between the broker's values and the caller's."""
    page = PendingPage((waiting(1), waiting(2)), "next")
    counts = (PendingCount(3, "orders", 2), PendingCount(4, "%RETRY%g", 1 << 40))
    timelines = (LevelTimeline(3, (1, 2, 3)), LevelTimeline(4, (0, 0, 1 << 40)))
    broker.answers = {
        "ListPending": lambda _: page,
        "CountPending": lambda _: counts,
        "GetTimeline": lambda _: timelines,
    }
    wanted = PendingFilter((3, 4), "orders", 1, 0, "k", ("ID",))
    assert admin.schedule.list_pending(PendingQuery(wanted, "c", 7)) == page
    assert admin.schedule.count_pending() == counts
    assert admin.schedule.timeline((1_000, 2_000), (3, 4)) == timelines
    assert broker.asked["ListPending"] == [PendingQuery(wanted, "c", 7)]
    assert broker.asked["GetTimeline"] == [TimelineRequest((1_000, 2_000), (3, 4))]


def test_pages_are_followed_to_the_last_one_also_through_empty_ones(
    broker: FakeBroker, admin: AdminClient
) -> None:
    """A broker that looked long and found nothing gives an empty page and a cursor."""
    pages = ((waiting(1), waiting(2)), (), (waiting(3),), ())
    broker.answers["ListPending"] = paged(pages, PendingPage)
    wanted = PendingFilter(topic="orders")
    assert list(admin.schedule.pending(wanted, page=2)) == [waiting(n) for n in (1, 2, 3)]
    cursors = ["", "1", "2", "3"]
    assert broker.asked["ListPending"] == [PendingQuery(wanted, each, 2) for each in cursors]


def test_the_next_page_is_asked_for_when_it_is_needed(
    broker: FakeBroker, admin: AdminClient
) -> None:
    """Who looks at ten of a million asks for ten."""
    broker.answers["ListPending"] = paged([(waiting(n),) for n in range(9)], PendingPage)
    messages = admin.schedule.pending()
    assert not broker.asked["ListPending"]
    assert [next(messages), next(messages)] == [waiting(0), waiting(1)]
    assert len(broker.asked["ListPending"]) == 2


# ---- changing by id


def test_every_action_says_what_it_wants(broker: FakeBroker, admin: AdminClient) -> None:
    """The outcome of each id comes back in the order of the ids."""
    broker.answers["ChangeByIds"] = all_done
    done = admin.schedule.cancel("A", "B", topic="orders")
    assert done == tuple([ChangedId(each, ChangeOutcome.DONE, 1, 7) for each in "AB"])
    admin.schedule.fire("A", dry_run=True)
    admin.schedule.reschedule("A", delay_level=5)
    instant = datetime(2028, 2, 29, 8, tzinfo=UTC)
    admin.schedule.reschedule("A", deliver_at=instant)
    admin.schedule.reschedule("A", deliver_after="1d12h")
    with pytest.raises(InvalidValue, match="deliver_at must be a datetime with a time zone"):
        admin.schedule.reschedule("A", deliver_at=instant.replace(tzinfo=None))
    assert broker.asked["ChangeByIds"] == [
        ChangeByIds(ScheduleAction.CANCEL, ("A", "B"), "orders"),
        ChangeByIds(ScheduleAction.FIRE, ("A",), dry_run=True),
        ChangeByIds(ScheduleAction.RESCHEDULE, ("A",), delay_level=5),
        ChangeByIds(ScheduleAction.RESCHEDULE, ("A",), deliver_at_ms=1_835_424_000_000),
        ChangeByIds(ScheduleAction.RESCHEDULE, ("A",), deliver_after_ms=129_600_000),
    ]


def test_that_an_id_does_not_wait_is_an_answer(broker: FakeBroker, admin: AdminClient) -> None:
    """Each outcome there is comes through."""
    answer = tuple([ChangedId(each.name, each) for each in ChangeOutcome])
    broker.answers["ChangeByIds"] = lambda _: answer
    assert admin.schedule.cancel(*[each.name for each in ChangeOutcome]) == answer


def test_more_ids_than_a_call_may_name_go_in_several(
    broker: FakeBroker, admin: AdminClient
) -> None:
    """In order, and with the same topic and level each; of none nothing is asked."""
    broker.answers["ChangeByIds"] = all_done
    ids = [f"ID{n}" for n in range(2 * CHANGED_IDS_MAX + 1)]
    done = admin.schedule.reschedule(*ids, delay_level=5, topic="orders", dry_run=True)
    assert [each.message_id for each in done] == ids
    calls = broker.asked["ChangeByIds"]
    assert [len(call.message_ids) for call in calls] == [CHANGED_IDS_MAX, CHANGED_IDS_MAX, 1]
    assert {(call.topic, call.delay_level, call.dry_run) for call in calls} == {("orders", 5, True)}
    assert admin.schedule.cancel() == ()
    assert len(calls) == 3


def test_an_error_says_how_many_ids_were_answered(broker: FakeBroker, admin: AdminClient) -> None:
    """The calls before it are done and stay done; and it is not tried again."""
    broker.answers["ChangeByIds"] = failing_at(1, all_done, BrokerClosing())
    with pytest.raises(BrokerClosing) as caught:
        admin.schedule.cancel(*[f"ID{n}" for n in range(2 * CHANGED_IDS_MAX + 1)])
    assert caught.value.__notes__ == ["1000 of 2001 message ids were answered before this"]
    assert len(broker.asked["ChangeByIds"]) == 2


# ---- changing by filter


def test_a_filter_is_followed_to_the_end_and_progress_told(
    broker: FakeBroker, admin: AdminClient
) -> None:
    """Also when a call changed nothing; what is told never shrinks."""
    broker.answers["ChangeByFilter"] = paged((5_000, 0, 17), ChangedPage)
    wanted = PendingFilter((3,), "orders", 1, 2)
    told: list[int] = []
    reschedule = ScheduleAction.RESCHEDULE
    changed = admin.schedule.change_pending(reschedule, wanted, delay_level=4, progress=told.append)
    assert (changed, told) == (5_017, [5_000, 5_000, 5_017])
    assert broker.asked["ChangeByFilter"] == [
        ChangeByFilter(reschedule, wanted, 4, cursor=each) for each in ("", "1", "2")
    ]


def test_a_dry_run_stays_one_on_every_page(broker: FakeBroker, admin: AdminClient) -> None:
    """A single page without the flag would be a loss."""
    broker.answers["ChangeByFilter"] = paged((10_000, 1), ChangedPage)
    wanted = PendingFilter(topic="orders")
    changed = admin.schedule.change_pending(ScheduleAction.CANCEL, wanted, dry_run=True)
    assert changed == 10_001
    asked = broker.asked["ChangeByFilter"]
    assert [(each.dry_run, each.max_messages) for each in asked] == [(True, CHANGES_MAX)] * 2


def test_an_error_says_how_many_messages_were_changed(
    broker: FakeBroker, admin: AdminClient
) -> None:
    """A change whose answer was lost is not made twice: that would be a later time for all."""
    answer = paged((5_000, 5_000, 1), ChangedPage)
    broker.answers["ChangeByFilter"] = failing_at(2, answer, BrokerUnreachable("gone"))
    with pytest.raises(BrokerUnreachable) as caught:
        admin.schedule.change_pending(ScheduleAction.FIRE, PendingFilter(topic="orders"))
    assert caught.value.__notes__ == ["10000 messages were changed before this"]
    assert len(broker.asked["ChangeByFilter"]) == 3


def test_what_the_broker_refuses_is_raised(broker: FakeBroker, admin: AdminClient) -> None:
    """Its own sentence, with the field."""
    refused = InvalidValue("bounds_ms", 0, "1 to 1,000 instants")
    broker.answers["GetTimeline"] = failing_at(0, paged((), ChangedPage), refused)
    with pytest.raises(InvalidValue, match="bounds_ms"):
        admin.schedule.timeline(())


# ---- the producer


def test_a_producer_takes_a_message_back(broker: FakeBroker) -> None:
    """One call, for whoever sent it and has changed his mind."""
    broker.answers["ChangeByIds"] = all_done
    with Producer(broker.endpoint, "shop") as producer:
        assert producer.cancel("A").outcome is ChangeOutcome.DONE
        assert producer.cancel("B", "orders").message_id == "B"
    assert broker.asked["ChangeByIds"] == [
        ChangeByIds(ScheduleAction.CANCEL, ("A",)),
        ChangeByIds(ScheduleAction.CANCEL, ("B",), "orders"),
    ]


def test_a_producers_cancel_is_repeated_and_then_may_have_been_done(broker: FakeBroker) -> None:
    """It can be done twice; the second answer is true, too."""
    again = (ChangedId("A", ChangeOutcome.ALREADY_CANCELLED),)
    broker.answers["ChangeByIds"] = failing_at(0, lambda _: again, BrokerClosing())
    with Producer(broker.endpoint, "shop", send_timeout_ms=20_000) as producer:
        assert producer.cancel("A") == again[0]
    assert len(broker.asked["ChangeByIds"]) == 2
