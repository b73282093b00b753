"""Timers on the page: listed beside levels, found, moved to an instant and back."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlencode

import pytest

from rmqlite.features.changes.pending import Pending
from rmqlite.features.changes.requests import PendingQuery
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.words.clock import local_text
from rmqlite.kernel.words.message import Message
from tests.server.web.browser import Browser, browse
from tests.support.brokers import BrokerUnderTest
from tests.support.steps import done

DAY_MS = 86_400_000
LEVEL = 9
"""Its messages wait for 5 minutes."""


def waiting(under_test: BrokerUnderTest) -> list[tuple[int, int]]:
    """Level and deliver time of all that wait."""
    page = done(under_test.broker[Pending].pages(PendingQuery()))
    return [(each.level, each.deliver_at_ms) for each in page.messages]


def test_levels_and_timers_are_one_list_in_due_order(under_test: BrokerUnderTest) -> None:
    """A person reads a word, and never the number that stands for it."""
    under_test.send(Message("orders", b"x", keys="third", deliver_after="700d"))
    under_test.send(Message("orders", b"x", keys="second", delay_level=LEVEL))
    under_test.send(Message("orders", b"x", keys="first", deliver_after="61s"))

    async def scenario(browser: Browser) -> None:
        page = await browser.get("/schedule?span=2y")
        first, second, third = [page.text.index(each) for each in ("first", "second", "third")]
        assert first < second < third
        assert "Messages due within 2y: 3; due now: 0; due later: 0." in page.text
        assert "in 700d" in page.text
        for path in ("/schedule?span=2y", "/", "/lateness"):
            text = (await browser.get(path)).text
            assert not re.search(r"(?<!\d)-1\b", text), path
        timers = await browser.get("/schedule?level=timer")
        assert "Messages of timers due within 1h: 1; due now: 0; due later: 1." in timers.text
        assert "2 messages" in timers.text
        assert "second" not in timers.text
        overview = await browser.get("/")
        assert "timer any 2" in overview.text
        assert overview.link("/schedule?level=timer")

    browse(under_test, scenario)


@pytest.mark.parametrize("span", ["1y", "2y", "10y"])
def test_a_column_of_years_leads_to_its_messages(span: str, under_test: BrokerUnderTest) -> None:
    """The link has the bounds of the column, so the list has as many messages as it counts."""
    under_test.send(*[Message("orders", b"x", deliver_after=f"{n}d") for n in (35, 340)])

    async def scenario(browser: Browser) -> None:
        page = await browser.get(f"/schedule?span={span}")
        columns = [each for each in page.attributes("a", "href") if f"span={span}&from=" in each]
        counts = 0
        for column in dict.fromkeys(columns):
            counts += (await browser.get(column)).text.count("queue ")
        assert counts == 2

    browse(under_test, scenario)


def test_a_message_is_moved_to_an_instant_and_back(under_test: BrokerUnderTest) -> None:
    """The dry run says when it would be due; only the form that follows moves it."""
    (sent,) = under_test.send(Message("orders", b"x", delay_level=LEVEL))
    at_ms = (under_test.clock.now_ms() + 400 * DAY_MS) // 1_000 * 1_000
    local = local_text(at_ms).partition(".")[0]
    moves: list[tuple[dict[str, str], str, Callable[[int], tuple[int, int]]]] = [
        ({"at": local, "to": ""}, f"at {local}", lambda _: (TIMERS, at_ms)),
        ({"at": "in 36h"}, "36h from now", lambda now_ms: (TIMERS, now_ms + 36 * 3_600_000)),
        ({"at": "+1d12h"}, "1d12h from now", lambda now_ms: (TIMERS, now_ms + 36 * 3_600_000)),
        ({"to": "5"}, "1m from now", lambda now_ms: (5, now_ms + 60_000)),
    ]

    async def scenario(browser: Browser) -> None:
        for fields, said, moved in moves:
            before = waiting(under_test)
            chosen = {"action": "reschedule", "chosen": "1", "ids": sent.message_id, **fields}
            dry = await browser.get(f"/schedule/change?{urlencode(chosen)}")
            assert f"1 message would be rescheduled: it would be due {said}" in dry.text
            assert waiting(under_test) == before
            done = await browser.send("/schedule/change", dry.fields())
            assert "1 message was rescheduled" in done.text
            assert waiting(under_test) == [moved(under_test.clock.now_ms())]

    browse(under_test, scenario)


def test_all_timers_are_moved_by_a_filter(under_test: BrokerUnderTest) -> None:
    """The level stays what it was."""
    under_test.send(*[Message("orders", b"x", deliver_after="10d")] * 3)
    under_test.send(Message("orders", b"x", delay_level=LEVEL))

    async def scenario(browser: Browser) -> None:
        dry = await browser.get("/schedule/change?action=reschedule&level=timer&at=in+20d")
        assert "3 messages would be rescheduled: they would be due 20d from now" in dry.text
        await browser.send("/schedule/change", dry.fields())
        levels, due_ms = zip(*waiting(under_test), strict=True)
        assert levels == (LEVEL, TIMERS, TIMERS, TIMERS)
        assert min(due_ms[1:]) == under_test.clock.now_ms() + 20 * DAY_MS

    browse(under_test, scenario)


def test_a_timer_is_moved_from_its_own_page(under_test: BrokerUnderTest) -> None:
    """Also by its id with characters that a form would change."""
    under_test.send(Message("orders", b"x", message_id='a&b=c %2F"<', deliver_after="1d"))

    async def scenario(browser: Browser) -> None:
        listed = await browser.get("/schedule")
        record = await browser.get(listed.link("/record?id="))
        fields = [*record.fields(), ("at", "+2d"), ("action", "reschedule")]
        dry = await browser.get(f"/schedule/change?{urlencode(fields)}")
        assert "it would be due 2d from now" in dry.text
        await browser.send("/schedule/change", dry.fields())
        assert waiting(under_test) == [(TIMERS, under_test.clock.now_ms() + 2 * DAY_MS)]

    browse(under_test, scenario)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "to must be a level, or else an instant, not "),
        ({"to": "5", "at": "+1h"}, "to must be a level, or else an instant, not "),
        ({"at": "soon"}, "at must be a time of the broker's clock"),
        ({"at": "36h"}, "one from now such as +10m"),
        ({"at": "12345"}, "at must be milliseconds since 1970"),
        ({"at": "in x"}, "at must be whole numbers and units"),
    ],
)
def test_a_new_time_that_is_none_is_refused(
    fields: dict[str, str], said: str, under_test: BrokerUnderTest
) -> None:
    """One of both must be given, and mean something."""

    async def scenario(browser: Browser) -> None:
        asked = urlencode({"action": "reschedule", **fields})
        page = await browser.get(f"/schedule/change?{asked}")
        assert page.status == 400
        assert said in page.text

    browse(under_test, scenario)
