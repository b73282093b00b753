"""Why somebody makes a change by a page: in the audit log, and in the job."""

from __future__ import annotations

import logging

import pytest

from rmqlite.features.accounts.accounts import Role
from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.redrive.requests import JobState
from rmqlite.kernel.requests.groups import OffsetsCommit
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.limits import NOTE_CHARS_MAX
from rmqlite.kernel.words.message import Message
from tests.server.web.browser import Browser, browse
from tests.support.accounts import account, accounts
from tests.support.brokers import BrokerUnderTest
from tests.support.web_letters import GROUP, dead_letters

NOTE = ("note", "INC-12: für <b>Ämter</b>")
ADMIN = account("operator", role=Role.ADMIN)


@pytest.fixture
def filled(under_test: BrokerUnderTest) -> BrokerUnderTest:
    """Dead letters, pending messages, and a group that has consumed."""
    dead_letters(under_test)
    under_test.send(*[Message("orders", b"x", delay_level=5) for _ in range(3)])
    under_test.broker.commit_offsets(OffsetsCommit(GROUP, {Queue("orders", 0): 1}))
    return under_test


@pytest.mark.parametrize("has_accounts", [True, False])
def test_every_form_that_changes_something_takes_a_note(
    filled: BrokerUnderTest, caplog: pytest.LogCaptureFixture, has_accounts: bool
) -> None:
    """With the account of whoever sent it, or at least the address."""
    caplog.set_level(logging.INFO, "rmqlite.audit")

    async def scenario(browser: Browser) -> None:
        if has_accounts:
            await browser.log_in("operator")
        for look in (
            "/schedule/change?action=cancel",
            f"/dead/purge?group={GROUP}",
            f"/dead/purge?group={GROUP}&what=restore",
            f"/redrive/preview?group={GROUP}",
            f"/groups/reset?name={GROUP}&to=latest",
            f"/groups/delete?name={GROUP}",
            "/groups/topic?name=orders",
        ):
            page = await browser.get(look)
            assert page.field("note") == ""
            assert "INC-12" not in page.html
            path = look.partition("?")[0].removesuffix("/preview")
            done = await browser.send(path, [*page.fields(), NOTE])
            assert done.status == 200, done.text
        jobs = await browser.get("/jobs")
        page = await browser.get(jobs.link("/job?"))
        assert "INC-12: für &lt;b&gt;Ämter&lt;/b&gt;" in page.html

    browse(filled, scenario, accounts(ADMIN) if has_accounts else None)
    who = "'operator'" if has_accounts else "''"
    found = [each.getMessage() for each in caplog.records if each.name == "rmqlite.audit"]
    changes = [each for each in found if each.startswith("changes ")]
    begin = f"changes face=web account={who} client=127.0.0.1:5000"
    assert [each.split(" call=")[0] for each in changes] == [begin] * 7
    assert [each.partition(" note=")[2] for each in changes] == [repr(NOTE[1])] * 7


def test_the_note_of_a_job_that_is_paused(filled: BrokerUnderTest) -> None:
    """Its field stands outside of the part that loads itself anew, and belongs to the form."""

    async def scenario(browser: Browser) -> None:
        page = await browser.get(f"/redrive/preview?group={GROUP}&rate=1")
        job = await browser.send("/redrive", page.fields())
        before, _, after = job.html.partition('id="live"')[2].partition('form="steer"')
        assert before.count("<div") < before.count("</div>") + 1
        assert after
        fields = [("token", job.field("token")), ("id", job.field("id")), ("action", "cancel")]
        await browser.send("/job", [*fields, NOTE])

    browse(filled, scenario)
    (job,) = filled.broker[Redrive].all()
    assert (job.state, job.operator_notes) == (JobState.CANCELLED, (NOTE[1],))


def test_a_note_that_is_too_long_changes_nothing(filled: BrokerUnderTest) -> None:
    """A browser obeys maxlength; a program need not."""

    async def scenario(browser: Browser) -> None:
        page = await browser.get("/groups/topic?name=orders")
        long = ("note", "x" * (NOTE_CHARS_MAX + 1))
        refused = await browser.send("/groups/topic", [*page.fields(), long])
        assert refused.status == 400
        assert "note must be one line of at most 500 characters" in refused.text

    browse(filled, scenario)
    assert filled.broker.topics.get("orders")
