"""Every page shows the broker's state, and making it changes nothing."""

from __future__ import annotations

import pytest

from rmqlite.features.operating.progress import Progress
from rmqlite.kernel.requests.groups import (
    GroupChange,
    HeartbeatRequest,
    OffsetsCommit,
    Subscription,
)
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.message import Message
from rmqlite.kernel.words.retry_policy import RetryPolicy
from rmqlite.views.broker import JOINING_MS
from rmqlite.web.app import _CHANGES, _LOOKS
from rmqlite.web.site import ROWS
from tests.server.web.browser import Browser, browse
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import TOPIC, plain
from tests.support.steps import done
from tests.support.web_letters import GROUP, dead_letters

EMPTY = ("/", "/lateness", "/schedule", "/retries", "/message", "/dead", "/jobs", "/groups")


@pytest.mark.parametrize("path", EMPTY)
def test_a_page_of_a_broker_that_has_nothing_says_so(
    path: str, under_test: BrokerUnderTest
) -> None:
    """The first thing that a new user sees."""

    async def scenario(browser: Browser) -> None:
        page = await browser.get(path)
        assert page.status == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert ("main", {"id": "content", "tabindex": "-1"}) in page.elements

    browse(under_test, scenario)


def test_every_page_but_the_start_names_itself(under_test: BrokerUnderTest) -> None:
    """A browser's tabs and history show the title; a reader hears where it is."""

    async def scenario(browser: Browser) -> None:
        titles = set()
        for path in EMPTY:
            page = await browser.get(path)
            titles.add(page.html.partition("<title>")[2].partition("<")[0])
            assert page.html.count('aria-current="page"') == 1
        assert len(titles) == len(EMPTY)

    browse(under_test, scenario)


def test_the_overview_warns_of_ports_that_others_can_reach(under_test: BrokerUnderTest) -> None:
    """Whoever reads it may be the first to see that the broker is open."""

    async def scenario(browser: Browser) -> None:
        page = await browser.get("/")
        assert "anyone who reaches bindAddress=192.0.2.1 (listenPort=" in page.text
        assert ("li", {"class": "warn"}) in page.elements

    browse(under_test, scenario, bind_address="192.0.2.1")


def test_the_overview_counts_what_waits_fails_and_is_dead(under_test: BrokerUnderTest) -> None:
    """What top shows, for a browser."""
    under_test.send(*[Message("orders", b"x", delay_level=5) for _ in range(7)])
    dead_letters(under_test, 4)

    async def scenario(browser: Browser) -> None:
        page = await browser.get("/")
        assert page.link("/schedule?level=5")
        assert f"{GROUP} 0 " in page.text
        assert "KeyError: 'address'" in page.text
        assert "11 sent, 0 delivered, 0 retried, 4 died" in page.text

    browse(under_test, scenario)


def test_the_overview_of_a_healthy_broker_says_so_in_one_line(under_test: BrokerUnderTest) -> None:
    """An operator who sees it can go back to bed."""
    under_test.send(Message("orders", b"x", delay_level=5))

    async def scenario(browser: Browser) -> None:
        page = await browser.get("/")
        assert "All is well: nothing is late, no dead letter is open" in page.text
        assert ("ul", {"class": "wrong", "aria-label": "What is wrong"}) not in page.elements

    browse(under_test, scenario)


def test_the_overview_begins_with_what_is_wrong_also_after_a_restart(
    under_test: BrokerUnderTest,
) -> None:
    """The counts begin at 0 then; the letters are still there, and nobody reads for the group."""
    sent = dead_letters(under_test, 4)
    under_test.broker.commit_offsets(OffsetsCommit(GROUP, {Queue("orders", 0): 1}))
    under_test.restart()
    under_test.clock.forward(JOINING_MS)

    async def scenario(browser: Browser) -> None:
        page = await browser.get("/")
        assert page.text.index("4 open dead letters in shop") < page.text.index("Waiting")
        assert page.text.index("nobody reads for shop") < page.text.index("Waiting")
        assert "Dead letters 4 open, the newest 30.0s ago" in page.text
        assert "Died" not in page.text
        assert "0 died" in page.text
        assert page.link("/dead/letters?group=shop&view=open")
        assert page.link(f"/group?name={GROUP}")

    assert len(sent) == 4
    browse(under_test, scenario)


def test_the_overview_looks_at_every_group_not_at_its_first_page(
    under_test: BrokerUnderTest,
) -> None:
    """The group that is in trouble may be the last of many."""
    under_test.send(Message("orders", b"x"))
    for number in range(ROWS + 5):
        under_test.broker.groups.change(GroupChange(f"g-{number:03}"))
    under_test.broker.groups.change(GroupChange("last"))
    under_test.broker.commit_offsets(OffsetsCommit("last", {Queue("orders", 0): 0}))
    under_test.clock.forward(JOINING_MS)

    async def scenario(browser: Browser) -> None:
        page = await browser.get("/")
        assert "nobody reads for last" in page.text
        assert "6 more groups" in page.text

    browse(under_test, scenario)


def test_levels_without_messages_are_folded(under_test: BrokerUnderTest) -> None:
    """Eighteen rows of nothing would hide the one that matters."""
    under_test.send(Message("orders", b"x", delay_level=5))

    async def scenario(browser: Browser) -> None:
        page = await browser.get("/")
        assert ("details", {"id": "empty-levels"}) in page.elements
        assert "17 levels without messages" in page.text
        assert page.link("/schedule?level=5")

    browse(under_test, scenario)


def test_a_rate_is_over_the_time_since_the_page_before(under_test: BrokerUnderTest) -> None:
    """The first page counts from the start."""

    async def scenario(browser: Browser) -> None:
        under_test.clock.forward(10_000)
        first = await browser.get("/")
        assert "over the last 10.0s" in first.text
        under_test.send(*[Message("orders", b"x") for _ in range(10)])
        under_test.clock.forward(2_000)
        second = await browser.get("/")
        assert "over the last 2.0s" in second.text
        assert "Sent 5.0 /s" in second.text

    browse(under_test, scenario)


def test_the_timeline_draws_what_comes_due(under_test: BrokerUnderTest) -> None:
    """The plot and its table have the same figures, and each column leads to its messages."""
    under_test.send(*[Message("orders", b"x", delay_level=level) for level in (5, 5, 6, 18)])

    async def scenario(browser: Browser) -> None:
        page = await browser.get("/schedule?span=10m")
        assert "Messages due within 10m: 3; due now: 0; due later: 1." in page.text
        assert len([tag for tag, attrs in page.elements if attrs.get("class") == "s0"]) == 2
        column = page.link("/schedule?span=10m&from=")
        chosen = await browser.get(column)
        assert "2 messages" in chosen.text

    browse(under_test, scenario)


def test_a_long_list_is_read_page_by_page(under_test: BrokerUnderTest) -> None:
    """Fifty rows at a time: no page holds up the broker."""
    under_test.send(*[Message("orders", b"x", keys=f"k-{n}", delay_level=5) for n in range(120)])

    async def scenario(browser: Browser) -> None:
        seen: list[str] = []
        path = "/schedule"
        for rows in (50, 50, 20):
            page = await browser.get(path)
            ids = [each for each in page.attributes("a", "href") if each.startswith("/message?id")]
            assert len(ids) == rows
            seen += ids
            if rows == 50:
                path = next(a["href"] for t, a in page.elements if a.get("rel") == "next")
        assert len(set(seen)) == 120

    browse(under_test, scenario)


def test_dead_letters_are_counted_filtered_and_looked_at(under_test: BrokerUnderTest) -> None:
    """From the groups to a letter to its body, each one link further."""
    dead_letters(under_test, 60)
    dead_letters(under_test, 2, reason="HTTP 503")

    async def scenario(browser: Browser) -> None:
        groups = await browser.get("/dead")
        assert "All 62 Open 62" in groups.text
        listed = await browser.get(groups.link("/dead/letters?group=shop&kind=KeyError"))
        assert "60 dead letters, the first 50 of them here" in listed.text
        path = next(a["href"] for t, a in listed.elements if a.get("rel") == "next")
        last = await browser.get(path)
        assert "10 dead letters here" in last.text
        few = await browser.get("/dead/letters?group=shop&reason=http")
        assert "2 dead letters" in few.text
        letter = await browser.get(few.link("/record?id="))
        assert "Dead letter" in letter.text
        assert '{ "n": 1 }' in letter.text

    browse(under_test, scenario)


def test_a_click_on_a_kind_lists_exactly_its_letters(under_test: BrokerUnderTest) -> None:
    """The number beside it is the number behind it: also for no reason, and after a redrive."""
    counts = {
        "no answer within {} s": 64,
        "HTTP 503": 7,
        "": 6,
        "order {} is locked by {}": 5,
        "KeyError: 'address'": 4,
        "no route to 10.0.0.{}": 3,
        "disk full": 2,
    }
    for reason, count in counts.items():
        for number in range(count):
            dead_letters(under_test, 1, reason=reason.format(number + 1, number * 7))

    async def scenario(browser: Browser) -> None:
        groups = await browser.get("/dead")
        assert "64 no answer within # s" in groups.text
        assert "6 (no reason)" in groups.text
        assert "5 of 2 other kinds" in groups.text
        every = await browser.get(f"/dead/reasons?group={GROUP}")
        assert "7 kinds of reasons" in every.text
        assert "disk full" in every.text
        assert f"/dead/reasons?group={GROUP}" in groups.attributes("a", "href")
        shown = [each for each in groups.attributes("a", "href") if "kind=" in each]
        assert [await count_letters(browser, path) for path in shown] == [64, 7, 6, 5, 4]
        dry = await browser.get(f"/redrive/preview?{shown[0].partition('?')[2]}")
        assert f"64 dead letters of {GROUP} would be sent" in dry.text
        await browser.send("/redrive", dry.fields())
        await browser.get("/dead")
        assert await count_letters(browser, shown[0]) == 0
        assert await count_letters(browser, shown[1]) == 7

    browse(under_test, scenario)


async def count_letters(browser: Browser, path: str) -> int:
    """The letters of a list, on all its pages."""
    count = 0
    while path:
        page = await browser.get(path)
        assert page.status == 200
        count += len([h for h in page.attributes("a", "href") if h.startswith("/record?id=")])
        path = next((a["href"] for _, a in page.elements if a.get("rel") == "next"), "")
    return count


def test_retries_are_listed_with_when_and_why(under_test: BrokerUnderTest) -> None:
    """The messages that a group will get again."""
    for sent in under_test.send(Message("orders", b"x", keys="k-1"), Message("orders", b"y")):
        request = SendBackRequest(GROUP, sent.physical_offset, reason="HTTP 503")
        under_test.broker.send_back(request)
    under_test.sync()

    async def scenario(browser: Browser) -> None:
        groups = await browser.get("/retries")
        page = await browser.get(groups.link("/retries?group="))
        assert "2 retries" in page.text
        assert "in 10.0s" in page.text
        assert "HTTP 503" in page.text

    browse(under_test, scenario)


def test_a_message_is_found_by_its_key_and_leads_to_its_history(
    under_test: BrokerUnderTest,
) -> None:
    """From a key that a customer knows to the message's history."""
    dead_letters(under_test, 3)

    async def scenario(browser: Browser) -> None:
        found = await browser.get("/message?topic=orders&key=order-1")
        history = await browser.get(found.link("/message?id="))
        assert "sent to orders" in history.text
        assert f"dead in {GROUP} after one attempt: KeyError: 'address'" in history.text
        assert f"It is dead in {GROUP}; to send it again: rmqlite dlq redrive" in history.text
        none = await browser.get("/message?topic=orders&key=order-9")
        assert "No message of that topic has that key" in none.text
        assert (await browser.get("/message?topic=orders")).status == 400

    browse(under_test, scenario)


def test_a_group_that_hangs_says_so_above_its_settings(under_test: BrokerUnderTest) -> None:
    """Which message waits, and with whom; the plan of its retries comes last."""
    under_test.send(plain("a"))
    under_test.broker.heartbeat(HeartbeatRequest(GROUP, "client-1", (Subscription(TOPIC),)))
    under_test.clock.forward(400_000)
    under_test.broker.heartbeat(HeartbeatRequest(GROUP, "client-1", (Subscription(TOPIC),)))

    async def scenario(browser: Browser) -> None:
        text = (await browser.get(f"/group?name={GROUP}")).text
        assert f"{TOPIC}/0: nothing finished for 6m 40s, at queue offset 0, with client-1" in text
        heads = [text.index(f" {each} ") for each in ("Members Client", "Progress", "Settings")]
        assert heads == sorted(heads)
        assert heads[-1] < text.index("Retries by the policy")
        overview = (await browser.get("/")).text
        assert f"{GROUP} has 1 member and has finished nothing for 6m 40s" in overview

    browse(under_test, scenario)


def test_a_group_shows_when_its_retries_come(under_test: BrokerUnderTest) -> None:
    """When each retry comes, as the policy in force says."""
    dead_letters(under_test, 1)

    async def scenario(browser: Browser) -> None:
        page = await browser.get(f"/group?name={GROUP}")
        assert "2 3 10s 10s 3 4 30s 40s 4 5 1m 1m 40s" in page.text
        fields = [*page.fields(), ("max", "3"), ("policy", "1m 10m"), ("bury_expired", "1")]
        changed = await browser.send("/group", fields)
        assert "2 1m 5 1m 1m 3 to 4 10m 14 10m 21m" in changed.text

    browse(under_test, scenario)
    info = done(under_test.broker[Progress].status(GROUP)).info
    assert (info.max_reconsume_times, info.bury_expired, info.can_consume) == (3, True, False)
    assert RetryPolicy.parse(info.retry_policy).delays_ms == (60_000, 600_000)


def test_a_group_shows_its_rate_limit_and_takes_another(under_test: BrokerUnderTest) -> None:
    """With the burst that is in force; an empty field ends it."""
    dead_letters(under_test, 1)
    shown = {"per_second": "0.5", "burst": "7"}
    line = "Rate limit: 0.5 a second, 7 at once; it held nothing back in the last minute."

    async def scenario(browser: Browser) -> None:
        page = await browser.get(f"/group?name={GROUP}")
        assert "Rate limit" not in page.text
        fields = dict(page.fields())
        for wrong in ("nan", "1e3", "-1", "1000001", "1.2.3"):
            refused = await browser.send("/group", fields | {"per_second": wrong})
            assert refused.status == 400
            assert wrong in refused.text
        assert line in (await browser.send("/group", fields | shown)).text
        again = await browser.get(f"/group?name={GROUP}")
        assert {name: again.field(name) for name in shown} == shown
        assert "Rate limit" not in (await browser.send("/group", fields)).text

    browse(under_test, scenario)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nothing", 404),
        ("/static/nothing.js", 404),
        ("/static/..%2f..%2fguard.py", 404),
        ("/static/htmx.LICENSE.txt", 404),
        ("/schedule/", 404),
        ("/dead/letters", 400),
        ("/dead/letters?group=nobody", 404),
        ("/group?name=nobody", 404),
        ("/group?name=%00%1b", 404),
        ("/job?id=none", 404),
        ("/job/bulk?id=none", 404),
        ("/record?id=none", 400),
        ("/record?id=7F00000100002A9F0000000000009999", 404),
        ("/schedule?from=tomorrow", 400),
        ("/schedule?from=%2B1x", 400),
        ("/schedule?level=-1", 400),
        ("/schedule?span=3d", 400),
        ("/schedule?cursor=nonsense", 400),
        ("/schedule/change?action=destroy", 400),
        ("/schedule/change?action=cancel&chosen=1", 400),
        ("/schedule/change?action=reschedule", 400),
        ("/dead/purge?group=shop&what=until", 400),
        ("/redrive/preview?group=shop&rate=fast", 400),
        ("/job/outcomes?id=x&only=odd", 400),
        ("/?" + "&".join(["a=1"] * 2_000), 400),
        ("/message?id=" + "x" * 33_000, 400),
    ],
)
def test_what_cannot_be_shown_is_a_page_of_ours_that_says_why(
    path: str, status: int, under_test: BrokerUnderTest
) -> None:
    """No answer is a stack, an empty page or another server's error page."""
    dead_letters(under_test, 1)

    async def scenario(browser: Browser) -> None:
        page = await browser.get(path)
        assert page.status == status, page.text
        assert f"HTTP {status}" in page.text
        assert page.attributes("a", "href").count("/") >= 2
        assert "Traceback" not in page.html

    browse(under_test, scenario)


def test_a_page_that_fails_tells_the_log_and_not_the_browser(
    under_test: BrokerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the operator, who reads the log, gets the stack."""
    under_test.broker.levels.in_force = None  # type: ignore[assignment, method-assign]

    async def scenario(browser: Browser) -> None:
        page = await browser.get("/schedule")
        assert page.status == 500
        assert "its log says why" in page.text
        assert "NoneType" not in page.html

    browse(under_test, scenario)
    assert "page failed path='/schedule'" in caplog.text
    assert "NoneType" in caplog.text


def test_looking_changes_nothing(under_test: BrokerUnderTest) -> None:
    """Browsers and chat programs load links by themselves."""
    sent = dead_letters(under_test, 3)
    under_test.send(*[Message("orders", b"x", delay_level=5) for _ in range(3)])
    end, tables = under_test.store.end, under_test.tables()

    async def scenario(browser: Browser) -> None:
        for path in _LOOKS:
            for query in ("", f"?group={GROUP}&name={GROUP}&id={sent[0].offset_message_id}"):
                await browser.get(path + query)
        for action in ("cancel", "fire", "reschedule"):
            page = await browser.get(f"/schedule/change?action={action}&to=3")
            assert "Dry run" in page.text
        for path in _CHANGES:
            await browser.get(f"{path}?group={GROUP}&what=all&action=cancel&job_id=x&id=x")

    browse(under_test, scenario)
    assert under_test.store.end == end
    assert under_test.tables() == tables


def test_pages_are_not_kept_and_files_are(under_test: BrokerUnderTest) -> None:
    """A page may show a customer's data; a file gets another URL after every change."""

    async def scenario(browser: Browser) -> None:
        page = await browser.get("/")
        assert page.headers["cache-control"] == "no-store"
        for address in [*page.attributes("script", "src"), *page.attributes("link", "href")]:
            file = await browser.raw("GET", address)
            assert file.status == 200
            assert "immutable" in file.headers["cache-control"]
            assert "?" in address

    browse(under_test, scenario)
