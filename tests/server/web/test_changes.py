"""Changes by a page: first a dry run, then the change, which is on disk when the page says so."""

from __future__ import annotations

import asyncio
from urllib.parse import urlencode

import pytest

from rmqlite.features.changes.pending import Pending
from rmqlite.features.changes.requests import CHANGES_DEFAULT, ChangeByIds
from rmqlite.features.changes.service import ChangeCalls
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.requests.groups import GroupChange, OffsetsCommit
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import FlushFailed
from rmqlite.kernel.words.message import Message
from rmqlite.kernel.words.names import retry_topic
from rmqlite.web import schedule
from rmqlite.web.site import Site
from tests.server.web.browser import Browser, browse
from tests.support.brokers import BrokerUnderTest
from tests.support.letters import dead_letters as dead_in
from tests.support.letters import purge
from tests.support.services import Served, breaking, served
from tests.support.steps import done
from tests.support.web_letters import GROUP, dead_letters

CHOOSE = "Choose this dead letter"
ACTIONS = [
    ("cancel", "cancelled", 0),
    ("fire", "delivered now", 0),
    ("reschedule", "rescheduled", 2),
]


def pending(under_test: BrokerUnderTest) -> int:
    return sum([each.pending for each in done(under_test.broker[Pending].counts())])


@pytest.mark.parametrize(("action", "word", "left"), ACTIONS)
def test_the_chosen_ones_are_changed(
    action: str, word: str, left: int, under_test: BrokerUnderTest
) -> None:
    """Boxes are ticked, a dry run shows the result, and its form makes the change."""
    messages = [Message("orders", b"x", keys=f"k-{n}", delay_level=5) for n in range(5)]
    sent = under_test.send(*messages)

    async def scenario(browser: Browser) -> None:
        query = f"action={action}&to=4&chosen=1"
        chosen = f"ids={sent[0].message_id}&ids={sent[3].message_id}&ids=nobody"
        dry = await browser.get(f"/schedule/change?{query}&{chosen}")
        assert f"2 messages would be {word}" in dry.text
        assert "not found" in dry.text
        assert pending(under_test) == 5
        done = await browser.send("/schedule/change", dry.fields())
        assert f"2 messages were {word}" in done.text
        assert pending(under_test) == 3 + left

    browse(under_test, scenario)
    assert under_test.store.durable_end == under_test.store.end


@pytest.mark.parametrize(("action", "word", "left"), ACTIONS)
def test_all_that_fit_a_filter_are_changed(
    action: str, word: str, left: int, under_test: BrokerUnderTest
) -> None:
    """The change covers all pages of the list, not only the one that is shown."""
    under_test.send(*[Message("orders", b"x", tags="old", delay_level=5) for _ in range(2)])
    under_test.send(*[Message("orders", b"x", tags="new", delay_level=5) for _ in range(3)])

    async def scenario(browser: Browser) -> None:
        dry = await browser.get(f"/schedule/change?action={action}&to=4&tag=old&topic=orders")
        assert f"2 messages would be {word}" in dry.text
        assert pending(under_test) == 5
        done = await browser.send("/schedule/change", dry.fields())
        assert f"2 messages were {word}" in done.text
        assert pending(under_test) == 3 + left

    browse(under_test, scenario)


def test_a_change_of_many_goes_on_where_there_was_no_more_time(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser gives up on a page that takes a minute; the form continues with the rest."""
    for _ in range(13):
        under_test.send(*[Message("orders", b"x", delay_level=5) for _ in range(400)])
    monkeypatch.setattr(schedule, "WORK_S_MAX", -1.0)

    async def scenario(browser: Browser) -> None:
        page = await browser.get("/schedule/change?action=cancel")
        assert f"{CHANGES_DEFAULT:,} messages would be cancelled, and more" in page.text
        page = await browser.send("/schedule/change", [*page.fields(), ("note", "INC-12")])
        assert "Not finished yet" in page.text
        assert page.field("note") == "INC-12"
        assert pending(under_test) == 200
        page = await browser.send("/schedule/change", page.fields())
        assert "5,200 messages were cancelled" in page.text
        assert pending(under_test) == 0

    browse(under_test, scenario)


@pytest.mark.parametrize(("action", "word"), [("Deliver now", "fire"), ("Cancel", "cancel")])
def test_one_message_is_changed_from_its_own_page(
    action: str, word: str, under_test: BrokerUnderTest
) -> None:
    """The message's own page has the buttons; its id may be any text."""
    ids = ["a&b=c %2F\u202e'\"<", "another"]
    under_test.send(*[Message("orders", b"x", delay_level=5, message_id=each) for each in ids])

    async def scenario(browser: Browser) -> None:
        listed = await browser.get("/schedule")
        record = await browser.get(listed.link("/record?id="))
        assert action in record.text
        (link,) = [each for each in record.attributes("a", "href") if f"action={word}" in each]
        dry = await browser.get(link)
        assert "1 message would be" in dry.text
        await browser.send("/schedule/change", dry.fields())
        assert pending(under_test) == 1
        after = await browser.get(listed.link("/record?id="))
        assert action not in after.text
        assert "waits" not in after.text

    browse(under_test, scenario)


def test_a_groups_retries_are_changed_and_no_others(under_test: BrokerUnderTest) -> None:
    """Two groups failed the same message; the change is only for one of them."""
    (sent,) = under_test.send(Message("orders", b"x"))
    for group in (GROUP, "other"):
        request = SendBackRequest(group, sent.physical_offset, reason="HTTP 503")
        under_test.broker.send_back(request)
    under_test.sync()

    async def scenario(browser: Browser) -> None:
        listed = await browser.get(f"/retries?group={GROUP}&reason=503")
        query = dict(listed.fields()[1:])
        assert query == {"chosen": "1", "topic": retry_topic(GROUP)} | query
        dry = await browser.get(
            f"/schedule/change?action=cancel&reason=503&topic=%25RETRY%25{GROUP}"
        )
        assert f"1 retry of {GROUP} would be cancelled" in dry.text
        done = await browser.send("/schedule/change", dry.fields())
        assert f"1 retry of {GROUP} was cancelled" in done.text
        assert "2 retries" not in (await browser.get("/retries?group=other")).text

    browse(under_test, scenario)
    (left,) = done(under_test.broker[Pending].counts())
    assert left.topic == retry_topic("other")


@pytest.mark.parametrize(
    ("wanted", "gone"), [("", 7), ("&until=-5s", 4), ("&kind=HTTP+503", 3)], ids=str
)
def test_letters_are_purged_and_brought_back(
    wanted: str, gone: int, under_test: BrokerUnderTest
) -> None:
    """The dry run counts the open letters; nothing is deleted."""
    dead_letters(under_test, 4)
    under_test.clock.forward(10_000)
    dead_letters(under_test, 3, reason="HTTP 503")

    async def scenario(browser: Browser) -> None:
        listed = await browser.get(f"/dead/letters?group={GROUP}{wanted}")
        dry = await browser.get(listed.link("/dead/purge?"))
        assert f"{gone} dead letters of {GROUP}" in dry.text
        assert f"would be hidden, {gone} of them open" in dry.text
        # The time is said as an instant: it means the same however long somebody thinks.
        under_test.clock.forward(60_000)
        done = await browser.send("/dead/purge", dry.fields())
        assert f"were hidden, {gone} of them open" in done.text
        listed = await browser.get(f"/dead/letters?group={GROUP}")
        assert f"{7 - gone} dead letters" in listed.text
        back = await browser.get(f"/dead/purge?group={GROUP}&what=restore")
        await browser.send("/dead/purge", back.fields())

    browse(under_test, scenario)
    restored = purge(under_test, dry_run=True)
    assert restored.letters == 7


def test_chosen_letters_are_purged_and_no_others(under_test: BrokerUnderTest) -> None:
    """The boxes of a list: without one that is ticked nothing happens."""
    dead_letters(under_test, 4)

    async def scenario(browser: Browser) -> None:
        chosen = [("group", GROUP), ("chosen", "1"), ("id", f"%DLQ%{GROUP}:0:2")]
        dry = await browser.get(f"/dead/purge?{urlencode(chosen)}")
        assert f"1 dead letter of {GROUP} would be hidden, 1 of them open" in dry.text
        assert "was hidden" in (await browser.send("/dead/purge", dry.fields())).text
        none = await browser.get(f"/dead/purge?{urlencode(chosen[:2])}")
        assert none.status == 400
        assert "at least one chosen dead letter" in none.text

    browse(under_test, scenario)
    left = [each.queue_offset for each in dead_in(under_test)]
    assert left == [0, 1, 3]


def test_letters_are_redriven_after_a_dry_run(under_test: BrokerUnderTest) -> None:
    """From the form to the job's end: the job does what the dry run has shown."""
    dead_letters(under_test, 6)
    dead_letters(under_test, 3, reason="HTTP 503")

    async def scenario(browser: Browser) -> None:
        form = await browser.get(f"/redrive?group={GROUP}&reason=http")
        assert form.field("reason") == "http"
        dry = await browser.get(f"/redrive/preview?group={GROUP}&reason=http&to_topic=again")
        assert (
            f"3 dead letters of {GROUP} would be sent to topic again, for every group" in dry.text
        )
        assert "no group yet" in dry.text
        assert under_test.broker.topics.get("again") is None
        fields = dry.fields()
        job = await browser.send("/redrive", fields)
        # Sent twice, as by an impatient finger, it is the same job.
        twice = await browser.send("/redrive", fields)
        assert dict(fields)["job_id"] in job.text
        assert twice.status == 200
        page = await browser.get(f"/job?id={dict(fields)['job_id']}")
        assert "Redrive of shop" in page.text
        jobs = await browser.get("/jobs")
        assert len([each for each in jobs.attributes("a", "href") if "/job?id" in each]) == 1

    browse(under_test, scenario)


def test_a_redrive_goes_back_to_the_group_unless_a_topic_is_chosen(
    under_test: BrokerUnderTest,
) -> None:
    """The dry run names who gets the letters, whichever it is."""
    dead_letters(under_test, 3)
    for group in (GROUP, "mails"):
        under_test.broker.groups.change(GroupChange(group))
        under_test.broker.commit_offsets(OffsetsCommit(group, {Queue("orders", 0): 0}))

    async def scenario(browser: Browser) -> None:
        form = await browser.get(f"/redrive?group={GROUP}")
        radios = [
            attrs["value"]
            for tag, attrs in form.elements
            if tag == "input" and attrs.get("type") == "radio" and "checked" in attrs
        ]
        assert radios == ["group"]
        back = await browser.get(f"/redrive/preview?group={GROUP}&to=group&to_topic=")
        assert f"3 dead letters of {GROUP} would be sent to group {GROUP} only" in back.text
        assert f"%RETRY%{GROUP} 3 group {GROUP}" in back.text
        topic = await browser.get(f"/redrive/preview?group={GROUP}&to=topic&to_topic=orders")
        assert "would be sent to topic orders, for every group that reads it" in topic.text
        assert f"orders 3 groups mails, {GROUP}" in topic.text
        for wrong in ("to=topic", "to=group&to_topic=orders", "to=both"):
            assert (await browser.get(f"/redrive/preview?group={GROUP}&{wrong}")).status == 400
        job = await browser.send("/redrive", back.fields())
        assert f"Sent to group {GROUP} only" in job.text

    browse(under_test, scenario)


def test_a_jobs_page_says_what_became_of_its_messages(under_test: BrokerUnderTest) -> None:
    """Sent is not repaired: what is dead again is one click away."""
    dead_letters(under_test, 3)

    async def scenario(browser: Browser) -> None:
        dry = await browser.get(f"/redrive/preview?group={GROUP}")
        job_id = dict(dry.fields())["job_id"]
        page = await browser.send("/redrive", dry.fields())
        while "Redrive of shop done" not in page.text:
            page = await browser.get(f"/job?id={job_id}")
        assert "Consumed 0 Waiting again 3" in page.text
        # The group commit may still be under way, and a reader sees what is on disk.
        under_test.sync()
        first, second, _ = under_test.messages(retry_topic(GROUP))
        again = SendBackRequest(GROUP, first.physical_offset, delay_level=-1, reason="HTTP 503")
        under_test.broker.send_back(again)
        progress = {Queue(retry_topic(GROUP), 0): second.queue_offset + 1}
        under_test.broker.commit_offsets(OffsetsCommit(GROUP, progress))
        under_test.sync()
        page = await browser.get(f"/job?id={job_id}")
        assert "Consumed 1 Waiting again 1" in page.text
        assert "Dead again 1" in page.text
        listed = await browser.get(page.link("/dead/letters?group=shop&job="))
        assert "1 dead letter" in listed.text
        assert "HTTP 503" in listed.text

    browse(under_test, scenario)


def test_chosen_letters_are_redriven_and_no_others(under_test: BrokerUnderTest) -> None:
    """With no box ticked the filter would match all: that is refused."""
    dead_letters(under_test, 5)

    async def scenario(browser: Browser) -> None:
        listed = await browser.get(f"/dead/letters?group={GROUP}")
        boxes = [a["value"] for _, a in listed.elements if a.get("aria-label") == CHOOSE]
        assert boxes == [f"%DLQ%{GROUP}:0:{offset}" for offset in (4, 3, 2, 1, 0)]
        hidden = [("group", GROUP), ("chosen", "1")]
        ids = [("id", boxes[1]), ("id", boxes[3])]
        form = await browser.get(f"/redrive?{urlencode(hidden + ids)}")
        assert [(n, v) for n, v in form.fields() if n == "id"] == ids
        dry = await browser.get(f"/redrive/preview?{urlencode(hidden + ids)}")
        assert f"2 dead letters of {GROUP} would be sent" in dry.text
        job = await browser.send("/redrive", dry.fields())
        assert f"{boxes[1]} or {boxes[3]}" in job.text
        for path in ("/redrive", "/redrive/preview"):
            none = await browser.get(f"{path}?{urlencode(hidden)}")
            assert none.status == 400
            assert "at least one chosen dead letter" in none.text

    browse(under_test, scenario)


def test_a_job_is_paused_goes_on_and_is_cancelled(under_test: BrokerUnderTest) -> None:
    """Each button brings the job into its state; a job that is over has no buttons."""
    dead_letters(under_test, 30)

    async def scenario(browser: Browser) -> None:
        dry = await browser.get(f"/redrive/preview?group={GROUP}&rate=1")
        job = await browser.send("/redrive", dry.fields())
        assert job.attributes("div", "hx-get")
        fields = dict(job.fields())
        paused = await browser.send("/job", fields | {"action": "pause"})
        assert "Redrive of shop paused" in paused.text
        rated = await browser.send("/job", fields | {"action": "set_rate", "rate": "2"})
        assert rated.field("rate") == "2"
        resumed = await browser.send("/job", fields | {"action": "resume"})
        assert "Redrive of shop running" in resumed.text
        ended = await browser.send("/job", fields | {"action": "cancel"})
        assert "Redrive of shop cancelled" in ended.text
        assert not ended.attributes("div", "hx-get")
        assert "post" not in ended.attributes("form", "method")
        again = await browser.send("/job", fields | {"action": "pause"})
        assert again.status == 409

    browse(under_test, scenario)


def test_what_breaks_a_rule_is_refused_with_the_rule(under_test: BrokerUnderTest) -> None:
    """The page has no rules of its own: it shows the broker's errors."""
    dead_letters(under_test, 1)

    async def scenario(browser: Browser) -> None:
        page = await browser.get(f"/group?name={GROUP}")
        fields = dict(page.fields())
        for policy in ("0 3", "soon", "exponential(1s)"):
            wrong = await browser.send("/group", fields | {"policy": policy, "max": "3"})
            assert wrong.status == 400
            assert policy in wrong.text
        wrong = await browser.get(f"/redrive/preview?group={GROUP}&to_topic=a/b")
        assert wrong.status == 400

    browse(under_test, scenario)


def test_a_sync_that_fails_in_a_pages_call_ends_the_broker(under_test: BrokerUnderTest) -> None:
    """The page calls the same service as every client."""
    (sent,) = under_test.send(Message("orders", b"x", delay_level=5))
    breaking(under_test, FlushFailed("cannot cut commitlog: Input/output error"))

    async def scenario(server: Served, ending: asyncio.Task[None]) -> None:
        site = Site(under_test.config, server.service)
        change = ChangeByIds(ScheduleAction.CANCEL, (sent.message_id,))
        with pytest.raises(FlushFailed, match="cannot cut"):
            await site.service[ChangeCalls].change_by_ids(change)
        with pytest.raises(FlushFailed, match="cannot cut"):
            await ending

    served(under_test, scenario)
