"""Deleting topics and groups, and resetting offsets, by a page."""

from __future__ import annotations

import pytest

from rmqlite.kernel.requests.groups import HeartbeatRequest, OffsetsCommit, Subscription
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.message import Message
from tests.server.web.browser import Browser, browse
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import GROUP, TOPIC

HEAD = Queue(TOPIC, 0)


@pytest.fixture
def read(under_test: BrokerUnderTest) -> BrokerUnderTest:
    """Five messages, of which a group has taken three."""
    under_test.send(*[Message(TOPIC, b"x") for _ in range(5)])
    under_test.broker.commit_offsets(OffsetsCommit(GROUP, {HEAD: 3}))
    return under_test


@pytest.mark.parametrize(
    ("to", "after", "words", "counts"),
    [
        (
            "earliest",
            0,
            "from the earliest message on",
            "3 messages to come again, 0 to be",
        ),
        ("latest", 5, "behind the latest message", "0 messages to come again, 2 to be"),
        ("-1h", 0, "from the first message since", "3 messages to come again, 0 to be"),
    ],
)
def test_a_group_goes_on_from_another_place(
    read: BrokerUnderTest, to: str, after: int, words: str, counts: str
) -> None:
    """Shown first, done by the second button."""

    async def scenario(browser: Browser) -> None:
        seen = await browser.get(f"/groups/reset?name={GROUP}&to={to}&topic={TOPIC}")
        assert counts in seen.text
        assert read.broker.offsets.of(GROUP) == {HEAD: 3}
        done = await browser.send("/groups/reset", seen.fields())
        assert f"{GROUP} goes on {words}" in done.text
        assert read.broker.offsets.of(GROUP)[HEAD] == after
        again = await browser.get(f"/groups/reset?name={GROUP}&to={to}&topic={TOPIC}")
        assert "No queue changes." in again.text

    browse(read, scenario)


def test_a_live_member_stops_a_reset_and_a_deletion(read: BrokerUnderTest) -> None:
    """The box says that it shall be done all the same."""
    member = HeartbeatRequest(GROUP, "client", (Subscription(TOPIC),))

    async def scenario(browser: Browser) -> None:
        read.broker.heartbeat(member)
        for path in (f"/groups/reset?name={GROUP}&to=earliest", f"/groups/delete?name={GROUP}"):
            seen = await browser.get(path)
            assert "The group has 1 live member" in seen.text
            refused = await browser.send(path.partition("?")[0], seen.fields())
            assert refused.status == 409
            assert "stop its consumers first" in refused.text
            assert read.broker.offsets.of(GROUP) == {HEAD: 3}
        forced = await browser.send("/groups/delete", [*seen.fields(), ("force", "1")])
        assert f"Group {GROUP} is deleted" in forced.text

    browse(read, scenario)
    assert read.broker.groups.get(GROUP) is None
    assert not read.broker.offsets.of(GROUP)


def test_a_topic_is_deleted_with_what_is_shown_before(read: BrokerUnderTest) -> None:
    """What nobody has consumed, and what waits for it; a topic of the broker stays."""
    read.send(Message(TOPIC, b"x", delay_level=5))

    async def scenario(browser: Browser) -> None:
        seen = await browser.get(f"/groups/topic?name={TOPIC}")
        assert "5 messages in its queues, of which no group has consumed 2" in seen.text
        assert "1 message in the schedule for it: dead letters when they are due" in seen.text
        assert read.broker.topics.get(TOPIC) is not None
        assert (
            f"Topic {TOPIC} is deleted" in (await browser.send("/groups/topic", seen.fields())).text
        )
        assert (await browser.get(f"/groups/topic?name={TOPIC}")).status == 404
        assert (await browser.get("/groups/topic?name=SCHEDULE_TOPIC_XXXX")).status == 400

    browse(read, scenario)
    assert read.broker.topics.get(TOPIC) is None
