"""Which requests get a page or change something: another site's page must get nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rmqlite.features.changes.pending import Pending
from rmqlite.features.changes.requests import PendingQuery
from rmqlite.kernel.service.turns import done_in_turns
from rmqlite.kernel.words.message import Message
from rmqlite.web.app import FORM_BYTES_MAX
from tests.server.web.browser import FORM, HOST, OURS, Browser, browse
from tests.support.brokers import BrokerUnderTest
from tests.support.web_letters import GROUP, dead_letters

CHANGE = {"action": "cancel"}


async def pending(under_test: BrokerUnderTest) -> int:
    page = await done_in_turns(under_test.broker[Pending].pages(PendingQuery()))
    return len(page.messages)


@pytest.fixture
def waiting(under_test: BrokerUnderTest) -> BrokerUnderTest:
    """A broker with one pending message: a request that passes the guard cancels it."""
    under_test.send(Message("orders", b"x", delay_level=5))
    return under_test


async def token(browser: Browser) -> str:
    return (await browser.get("/schedule/change?action=cancel")).field("token")


def test_a_form_of_our_own_page_works(waiting: BrokerUnderTest) -> None:
    """Otherwise the refusals below would prove nothing."""

    async def scenario(browser: Browser) -> None:
        fields = CHANGE | {"token": await token(browser)}
        page = await browser.send("/schedule/change", fields)
        assert page.status == 200
        assert "1 message was cancelled" in page.text
        assert await pending(waiting) == 0

    browse(waiting, scenario)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": f"http://{HOST}"},
        {"Sec-Fetch-Site": "same-origin"},
        OURS | {"Origin": f"http://{HOST.upper()}"},
    ],
    ids=["only an origin", "only a site", "a name in capitals"],
)
def test_one_word_of_the_browser_is_enough(
    headers: dict[str, str], waiting: BrokerUnderTest
) -> None:
    """Not every browser sends both headers."""

    async def scenario(browser: Browser) -> None:
        fields = CHANGE | {"token": await token(browser)}
        assert (await browser.send("/schedule/change", fields, headers)).status == 200

    browse(waiting, scenario)


def test_behind_a_proxy_that_adds_tls_the_origin_is_the_same_name(
    waiting: BrokerUnderTest,
) -> None:
    """The browser says https and no port; the proxy passes the name on."""

    async def scenario(browser: Browser) -> None:
        fields = CHANGE | {"token": await token(browser)}
        headers = OURS | {"Host": "dlq.example.com", "Origin": "https://dlq.example.com"}
        page = await browser.send("/schedule/change", fields, headers)
        assert page.status == 200
        assert await pending(waiting) == 0

    browse(waiting, scenario, web_hosts="other.example;dlq.example.com")


Spoil = Callable[[dict[str, str], dict[str, str]], Any]
SPOILED: dict[str, Spoil] = {
    "no token": lambda fields, _: fields.pop("token"),
    "an empty token": lambda fields, _: fields.update(token=""),
    "another token": lambda fields, _: fields.update(token="0" * 64),
    "a token that is no text": lambda fields, _: fields.update(token="\ud800é\x00"),
    "another site": lambda _, headers: headers.update(Origin="https://evil.example"),
    "our name at another port": lambda _, headers: headers.update(Origin="http://localhost:9999"),
    "our name with another end": lambda _, headers: headers.update(Origin=f"http://{HOST}.evil"),
    "our name as a user": lambda _, headers: headers.update(Origin=f"http://{HOST}@evil.example"),
    "an opaque origin": lambda _, headers: headers.update(Origin="null"),
    "an origin that is none": lambda _, headers: headers.update(Origin="http://[::1"),
    "a file": lambda _, headers: headers.update(Origin="file://localhost"),
    "cross-site": lambda _, headers: headers.update({"Sec-Fetch-Site": "cross-site"}),
    "same-site": lambda _, headers: headers.update({"Sec-Fetch-Site": "same-site"}),
    "typed in": lambda _, headers: headers.update({"Sec-Fetch-Site": "none"}),
    "neither origin nor site": lambda _, headers: headers.clear(),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
@pytest.mark.parametrize("navigates", [True, False])
def test_a_form_that_is_not_of_our_page_changes_nothing(
    spoil: Spoil, navigates: bool, waiting: BrokerUnderTest
) -> None:
    """Any site can make a browser send a form to a broker that only the browser can reach."""

    async def scenario(browser: Browser) -> None:
        fields, headers = CHANGE | {"token": await token(browser)}, dict(OURS)
        if navigates:
            headers["Sec-Fetch-Mode"] = "navigate"
        spoil(fields, headers)
        safe = {name: value.encode("utf-8", "replace").decode() for name, value in fields.items()}
        page = await browser.send("/schedule/change", safe, headers)
        assert page.status == 403
        assert await pending(waiting) == 1

    browse(waiting, scenario)


def test_a_token_is_of_one_browser(waiting: BrokerUnderTest) -> None:
    """Otherwise an attacker could put his own token into a form for another browser."""

    async def scenario(browser: Browser) -> None:
        stolen = await token(browser)
        browser.forget()
        await browser.get("/")
        page = await browser.send("/schedule/change", CHANGE | {"token": stolen})
        assert page.status == 403
        browser.forget()
        page = await browser.send("/schedule/change", CHANGE | {"token": stolen})
        assert page.status == 403
        assert await pending(waiting) == 1

    browse(waiting, scenario)


def test_a_token_is_of_one_broker_process(waiting: BrokerUnderTest) -> None:
    """A form from before a restart must be loaded again; it then shows the present state."""
    old = []

    async def before(browser: Browser) -> None:
        old.append(await token(browser))

    async def after(browser: Browser) -> None:
        await browser.get("/")
        page = await browser.send("/schedule/change", CHANGE | {"token": old[0]})
        assert page.status == 403
        assert "load its page again" in page.text

    browse(waiting, before)
    browse(waiting, after)


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "evil.example:8080",
        "127.0.0.1.evil",
        "",
        "[::2]",
        "localhost@evil",
        "localhost:80:80",
        "localhost/",
        " localhost",
        "10.0.0.9",
    ],
)
@pytest.mark.parametrize("path", ["/", "/nothing", "/static/page.css"])
def test_another_name_that_leads_here_gets_nothing(
    host: str, path: str, under_test: BrokerUnderTest
) -> None:
    """A site can let its own name point at 127.0.0.1, and its page then reads what we answer."""

    async def scenario(browser: Browser) -> None:
        page = await browser.raw("GET", path, headers={"Host": host})
        assert page.status == 421
        assert "webHosts" in page.text
        assert "set-cookie" not in page.headers
        assert under_test.config.broker_name not in page.html

    browse(under_test, scenario)


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8080", "10.0.0.7", "dlq.example.com:8443"],
)
def test_the_names_that_are_known_are_answered(host: str, under_test: BrokerUnderTest) -> None:
    """The address, localhost and webHosts; with any port, as a proxy may have another."""

    async def scenario(browser: Browser) -> None:
        assert (await browser.get("/", Host=host)).status == 200

    browse(under_test, scenario, web_address="10.0.0.7", web_hosts="a.example;dlq.example.com")


@pytest.mark.parametrize(
    ("site", "mode", "status"),
    [
        ("same-origin", "cors", 200),
        ("none", "navigate", 200),
        ("cross-site", "navigate", 200),
        ("cross-site", "no-cors", 403),
        ("cross-site", "cors", 403),
        ("same-site", "no-cors", 403),
    ],
)
def test_another_sites_page_may_lead_here_but_not_use_ours(
    site: str, mode: str, status: int, under_test: BrokerUnderTest
) -> None:
    """A link in a chat works; an image or a script that is a page of ours makes no work."""

    async def scenario(browser: Browser) -> None:
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
        assert (await browser.get("/", **headers)).status == status

    browse(under_test, scenario)


def test_a_page_that_only_shows_changes_nothing(waiting: BrokerUnderTest) -> None:
    """webAccess=read, the default: pages have no buttons, and forms are refused."""
    sent = dead_letters(waiting, 2)

    async def scenario(browser: Browser) -> None:
        for path in ("/", "/schedule", f"/dead/letters?group={GROUP}", f"/group?name={GROUP}"):
            page = await browser.get(path)
            assert "post" not in page.attributes("form", "method")
            assert "webAccess=read" in page.text
            assert "Redrive" not in page.text.replace("Redriven", "")
        record = await browser.get(f"/record?id={sent[0].offset_message_id}")
        assert "/redrive" not in record.html
        dry = await browser.get("/schedule/change?action=cancel")
        assert "Dry run" in dry.text
        assert "Cancel them" not in dry.text
        page = await browser.send("/schedule/change", CHANGE | {"token": dry.field("token")})
        assert page.status == 403
        assert "webAccess=read" in page.text
        assert await pending(waiting) == 1

    browse(waiting, scenario, web_access="read")


@pytest.mark.one_of(2)
@pytest.mark.parametrize("path", ["/schedule/change", "/dead/purge", "/redrive", "/job", "/group"])
@pytest.mark.parametrize("access", ["read", "write"])
def test_no_form_is_taken_without_a_token(
    path: str, access: str, under_test: BrokerUnderTest
) -> None:
    """All pages are tried, so that none is forgotten."""
    dead_letters(under_test, 1)
    end, tables = under_test.store.end, under_test.tables()
    fields = {"group": GROUP, "name": GROUP, "what": "all", "action": "cancel", "job_id": "a"}

    async def scenario(browser: Browser) -> None:
        await browser.get("/")
        assert (await browser.send(path, fields | {"id": "a", "max": "1"})).status == 403

    browse(under_test, scenario, web_access=access)
    assert (under_test.store.end, under_test.tables()) == (end, tables)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_another_method_is_refused(method: str, under_test: BrokerUnderTest) -> None:
    """GET reads and POST changes; no other method is answered."""

    async def scenario(browser: Browser) -> None:
        assert (await browser.raw(method, "/schedule/change")).status == 405

    browse(under_test, scenario)


def test_a_form_has_a_size_and_a_type(waiting: BrokerUnderTest) -> None:
    """The broker holds a form in memory until it is complete."""

    async def scenario(browser: Browser) -> None:
        fields = CHANGE | {"token": await token(browser)}
        large = await browser.send("/schedule/change", fields | {"x": "a" * FORM_BYTES_MAX})
        assert large.status == 413
        for kind in ("text/plain", "multipart/form-data; boundary=x", "application/json", ""):
            headers = OURS | {"Content-Type": kind}
            page = await browser.raw("POST", "/schedule/change", content=b"a=b", headers=headers)
            assert page.status == 415
        assert FORM == "application/x-www-form-urlencoded"
        assert await pending(waiting) == 1

    browse(waiting, scenario)


@pytest.mark.parametrize("path", ["/", "/nothing", "/static/page.js", "/schedule?from=x", "/job"])
def test_whatever_is_answered_can_be_neither_framed_nor_scripted(
    path: str, under_test: BrokerUnderTest
) -> None:
    """Even if a letter's body reached a page as HTML, it would not run."""

    async def scenario(browser: Browser) -> None:
        page = await browser.get(path)
        policy = page.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["referrer-policy"] == "same-origin"

    browse(under_test, scenario)


def test_the_cookie_is_for_this_site_and_not_for_scripts(under_test: BrokerUnderTest) -> None:
    """A browser then does not send it with another site's form."""

    async def scenario(browser: Browser) -> None:
        cookie = (await browser.get("/")).headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "set-cookie" not in (await browser.get("/")).headers

    browse(under_test, scenario)
