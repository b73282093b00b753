"""Texts of strangers are shown as text: no element, script or control character takes effect."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.words.message import Message
from rmqlite.kernel.words.names import dlq_topic
from tests.server.web.browser import Browser, Page, browse
from tests.support.brokers import BrokerUnderTest
from tests.support.web_letters import GROUP, HOSTILE, INVALID_UTF8, dead_letters, hostile_letter

ELEMENTS = frozenset(
    """html head meta title link script body a header nav span p main footer h1 h2 h3 section div
    dl dt dd ul ol li table thead tbody tr th td small strong em time form fieldset legend label
    input select datalist option button pre code details summary progress figure figcaption svg rect
    line noscript""".split()  # noqa: SIM905 - a list of words is read as one
)
"""The elements of our templates; an image is not among them."""
UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)


def check_inert(page: Page, of_fields: Sequence[str] = ()) -> None:
    """Check that the page has only elements and attributes of the templates.

    of_fields: a form gives back what its user wrote as it is, so that it can be sent again.
    """
    assert {tag for tag, _ in page.elements} <= ELEMENTS
    assert all(src.startswith("/static/") for src in page.attributes("script", "src"))
    assert len(page.attributes("script", "src")) == page.html.count("<script") == 2
    for tag, attrs in page.elements:
        assert not [name for name in attrs if name.startswith("on") or name == "style"], tag
        for name in ("href", "src", "action", "hx-get"):
            assert attrs.get(name, "/").startswith(("/", "#")), (tag, attrs)
            assert not attrs.get(name, "/").startswith("//"), (tag, attrs)
    unseen = set(UNSEEN.findall(page.html)) - set("".join(of_fields))
    assert not unseen


@pytest.mark.one_of(2)
@pytest.mark.parametrize("body", [HOSTILE.encode(), INVALID_UTF8, b'{"a": "%s"}' % b"<script>"])
@pytest.mark.parametrize("view", ["", "text", "json", "hex"])
def test_a_letter_is_shown_and_not_obeyed(
    body: bytes, view: str, under_test: BrokerUnderTest
) -> None:
    """All pages that show a letter's texts."""
    hostile_letter(under_test, body)

    async def scenario(browser: Browser) -> None:
        listed = await browser.get(f"/dead/letters?group={GROUP}")
        record = await browser.get(listed.link("/record?id=") + f"&as={view}")
        paths = ["/", "/dead", "/groups", f"/group?name={GROUP}", listed.link("/message?id=")]
        paths.append(f"/redrive/preview?group={GROUP}")
        link = (await browser.get("/dead")).link("/dead/letters?group=shop&kind=")
        by_kind = await browser.get(link)
        assert "1 dead letter" in by_kind.text
        check_inert(by_kind, of_fields=by_kind.attributes("input", "value"))
        for page in [listed, record, *[await browser.get(path) for path in paths]]:
            assert page.status == 200
            check_inert(page)
        assert "\\x1b]0;harm\\x07\\u202egnp.exe" in record.text
        assert '<script>alert("harm")</script>' in record.text
        assert "{{ 7 * 7 }}" in record.text

    browse(under_test, scenario)


def test_what_waits_is_shown_and_not_obeyed(under_test: BrokerUnderTest) -> None:
    """The schedule and the retries, and the dry run and change of chosen ones."""
    message_id = "<u>id'\"\u202e"
    (sent,) = under_test.send(
        Message("orders", b"x", tags="<b>t", keys=["<i>k"], message_id=message_id)
    )
    request = SendBackRequest(GROUP, sent.physical_offset, reason=HOSTILE)
    under_test.broker.send_back(request)
    under_test.sync()

    async def scenario(browser: Browser) -> None:
        listed = await browser.get("/schedule")
        chosen = listed.field("ids")
        retries = await browser.get(f"/retries?group={GROUP}")
        dry = await browser.get(f"/schedule/change?action=cancel&chosen=1&ids={chosen}")
        for page in (listed, retries, dry):
            assert page.status == 200
            check_inert(page)
        assert "1 message would be cancelled" in dry.text
        done = await browser.send("/schedule/change", dry.fields())
        check_inert(done)
        assert "1 message was cancelled" in done.text

    browse(under_test, scenario)


@pytest.mark.parametrize(
    "path",
    [
        "/schedule?topic={}",
        "/schedule?from={}",
        "/schedule?cursor={}",
        "/schedule/change?action=cancel&key={}",
        "/schedule/change?action=cancel&chosen=1&ids={}",
        "/schedule/change?action={}",
        "/dead/letters?group={}",
        "/dead/letters?group=shop&reason={}&key={}&since=",
        "/retries?group=shop&reason={}",
        "/redrive?group={}&reason={}&to_topic={}",
        "/redrive/preview?group=shop&reason={}",
        "/message?id={}",
        "/record?id={}",
        "/job?id={}",
        "/group?name={}",
        "/{}",
    ],
)
def test_what_an_address_says_is_shown_and_not_obeyed(
    path: str, under_test: BrokerUnderTest
) -> None:
    """A stranger may also write the link that somebody opens."""
    dead_letters(under_test, 1)
    words = "".join([f"%{byte:02x}" for byte in HOSTILE.encode()])

    async def scenario(browser: Browser) -> None:
        page = await browser.get(path.replace("{}", words))
        assert page.status in (200, 400, 404)
        check_inert(page, of_fields=page.attributes("input", "value"))

    browse(under_test, scenario)


def test_a_huge_body_is_shown_in_part(under_test: BrokerUnderTest) -> None:
    """A page of megabytes would hold up the browser, and making it the broker."""
    letters = [b"a" * 60_000, bytes(60_000), b"[" + b"1," * 29_000 + b"1]"]
    for body in letters:
        (sent,) = under_test.send(Message("orders", body))
        under_test.broker.send_back(SendBackRequest(GROUP, sent.physical_offset, -1, "large"))
        under_test.sync()
    assert under_test.messages(dlq_topic(GROUP))

    async def scenario(browser: Browser) -> None:
        listed = await browser.get(f"/dead/letters?group={GROUP}")
        links = [a for a in listed.attributes("a", "href") if a.startswith("/record?id=")]
        for link in links:
            for view in ("", "text", "hex"):
                page = await browser.get(f"{link}&as={view}")
                assert len(page.html) < 200_000
                assert "Only the first" in page.text

    browse(under_test, scenario)
