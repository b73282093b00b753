"""The page of a broker with accounts: who gets in, what each account sees, and who gets out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from pydantic import SecretStr

from rmqlite.features.accounts.accounts import PERMS, Role
from rmqlite.features.changes.pending import Pending
from rmqlite.features.changes.requests import PendingQuery
from rmqlite.kernel.config.addresses import parse_addresses
from rmqlite.kernel.service.turns import done_in_turns
from rmqlite.kernel.words.message import Message
from rmqlite.web.sessions import IDLE_MS_MAX
from tests.server.web.browser import COOKIE, FORM, HOST, OURS, Browser, Page, browse
from tests.support.accounts import SECRET, account, accounts
from tests.support.brokers import BrokerUnderTest
from tests.support.web_letters import GROUP, dead_letters

ADMIN = account("operator", role=Role.ADMIN)
VIEWER = account("dashboard", role=Role.VIEWER)
CONSUMER = account(
    "consumer",
    group_perms={GROUP: PERMS["SUB"], "others": PERMS["DENY"]},
    topic_perms={"orders": PERMS["SUB"]},
)
ALL = accounts(ADMIN, VIEWER, CONSUMER)
PAGES = ("/", "/schedule", "/lateness", "/retries", "/dead", "/jobs", "/groups", "/message")
FORMS = ("/schedule/change", "/dead/purge", "/redrive", "/job", "/group", "/logout")
CHANGE = {"action": "cancel"}


@pytest.fixture
def waiting(under_test: BrokerUnderTest) -> BrokerUnderTest:
    """A broker with one pending message."""
    under_test.send(Message("orders", b"x", delay_level=5))
    return under_test


@pytest.fixture
def audited(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """The lines of the audit log."""
    caplog.set_level(logging.INFO, "rmqlite.audit")
    yield lambda: [each.getMessage() for each in caplog.records if each.name == "rmqlite.audit"]
    assert SECRET not in caplog.text


async def pending(under_test: BrokerUnderTest) -> int:
    page = await done_in_turns(under_test.broker[Pending].pages(PendingQuery()))
    return len(page.messages)


def buttons(page: Page) -> list[str]:
    """The forms that may change something; logging out is none."""
    return [
        attrs.get("action", "")
        for tag, attrs in page.elements
        if tag == "form" and attrs.get("method") == "post" and attrs.get("action") != "/logout"
    ]


@pytest.mark.parametrize("path", [*PAGES, "/nothing", "/job?id=a&x=%2F"])
def test_without_a_session_every_page_is_the_log_in(path: str, under_test: BrokerUnderTest) -> None:
    """It names the page, so that the log-in leads there."""

    async def scenario(browser: Browser) -> None:
        answer = await browser.raw("GET", path, follow_redirects=False)
        assert answer.status == 303
        page = await browser.get(path)
        assert (page.status, page.path) == (200, "/login")
        assert page.field("then") == path
        assert "Schedule" not in page.text
        assert (await browser.log_in("operator", then=page.field("then"))).path == path.split("?")[
            0
        ]

    browse(under_test, scenario, ALL)


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("path", FORMS)
def test_without_a_session_no_form_is_taken(
    method: str, path: str, under_test: BrokerUnderTest
) -> None:
    """Not even read: a stranger makes the broker hold no form in memory."""

    async def scenario(browser: Browser) -> None:
        token = (await browser.get("/login")).field("token")
        page = await browser.send(path, {"token": token, "x": "a" * 400_000}, method=method)
        assert page.status == 403
        assert "log in first" in page.text

    browse(under_test, scenario, ALL)


def test_files_of_the_pages_need_no_session(under_test: BrokerUnderTest) -> None:
    """The page of the log-in needs them."""

    async def scenario(browser: Browser) -> None:
        assert (await browser.get("/static/page.css")).status == 200

    browse(under_test, scenario, ALL)


@pytest.mark.parametrize("path", ["/login", "/logout"])
def test_without_accounts_there_is_no_log_in(path: str, under_test: BrokerUnderTest) -> None:
    """The page is then as it was before there were accounts."""

    async def scenario(browser: Browser) -> None:
        assert "Log" not in (await browser.get("/message")).text
        assert (await browser.get(path)).status in (404, 405)
        fields = {"token": (await browser.get("/schedule/change?action=cancel")).field("token")}
        assert (await browser.send(path, fields)).status == 404

    under_test.send(Message("orders", b"x", delay_level=5))
    browse(under_test, scenario)


@pytest.mark.parametrize(
    ("access_key", "secret"),
    [
        ("operator", "another secret"),
        ("operator", f" {SECRET}"),
        ("operator", ""),
        ("nobody", SECRET),
        ("", SECRET),
        ("", ""),
        ("operator\x00", SECRET),
        pytest.param("é" * 3_000, "\ud800é", id="long"),
    ],
)
def test_a_wrong_pair_gets_one_answer(
    access_key: str,
    secret: str,
    under_test: BrokerUnderTest,
    audited: Callable[[], list[str]],
) -> None:
    """It does not tell whether the account exists, and repeats no secret."""

    async def scenario(browser: Browser) -> None:
        safe = secret.encode("utf-8", "replace").decode()
        page = await browser.log_in(access_key, safe)
        assert page.status == 403
        assert page.path == "/login"
        assert not safe or safe not in page.html
        assert page.field("access_key") == access_key
        if access_key:
            assert "Access denied: the access key or the secret is wrong." in page.text
        assert browser.server.access.refused == 1
        assert (await browser.get("/")).path == "/login"

    browse(under_test, scenario, ALL)
    (line,) = audited()
    assert line.startswith("refused face=web account=")
    assert "client=127.0.0.1:5000" in line


def test_who_has_logged_in_is_named_on_each_page_and_logs_out(
    under_test: BrokerUnderTest, audited: Callable[[], list[str]]
) -> None:
    """After that the cookie is worth nothing."""

    async def scenario(browser: Browser) -> None:
        page = await browser.log_in("operator")
        assert (page.status, page.path) == (200, "/")
        for path in PAGES:
            assert "operator Log out" in (await browser.get(path)).text
        assert (await browser.get("/login")).path == "/"
        cookie = browser.cookie
        assert (await browser.log_out()).path == "/login"
        assert browser.cookie != cookie
        browser.cookie = cookie
        assert (await browser.get("/")).path == "/login"

    browse(under_test, scenario, ALL)
    assert audited() == [
        "log-in face=web account='operator' client=127.0.0.1:5000 call='' target='' outcome=ok",
        "log-out face=web account='operator' client=127.0.0.1:5000 call='' target='' outcome=ok",
    ]


def test_a_log_in_makes_a_new_session(under_test: BrokerUnderTest) -> None:
    """Otherwise whoever could plant a cookie before would be in, too."""

    async def scenario(browser: Browser) -> None:
        await browser.get("/login")
        planted = browser.cookie
        await browser.log_in("operator")
        first = browser.cookie
        assert first != planted
        other = Browser(browser.server)
        other.cookie = planted
        assert (await other.get("/")).path == "/login"
        token = (await browser.get("/")).field("token")
        fields = {"access_key": "operator", "secret": SECRET, "token": token}
        assert (await browser.send("/login", fields)).path == "/"
        assert browser.cookie not in (first, planted)
        other.cookie = first
        assert (await other.get("/")).path == "/login"
        await other.close()

    browse(under_test, scenario, ALL)


def test_a_token_is_of_one_session(waiting: BrokerUnderTest) -> None:
    """Not of the browser's session before, and not of another one of the same account."""

    async def scenario(browser: Browser) -> None:
        before = (await browser.get("/login")).field("token")
        await browser.log_in("operator")
        other = Browser(browser.server)
        await other.log_in("operator")
        for token in (before, (await other.get("/")).field("token"), ""):
            page = await browser.send("/schedule/change", CHANGE | {"token": token})
            assert page.status == 403
        await other.close()
        assert await pending(waiting) == 1
        token = (await browser.get("/")).field("token")
        page = await browser.send("/schedule/change", CHANGE | {"token": token})
        assert page.status == 200
        assert await pending(waiting) == 0

    browse(waiting, scenario, ALL)


@pytest.mark.parametrize(
    ("headers", "takes"),
    [
        (OURS, True),
        (OURS | {"Origin": "https://evil.example"}, False),
        (OURS | {"Sec-Fetch-Site": "cross-site"}, False),
        ({}, False),
    ],
)
def test_no_other_site_logs_in_or_out(
    headers: dict[str, str], takes: bool, under_test: BrokerUnderTest
) -> None:
    """It could log the browser in with an account of its own, and watch what is done."""

    async def scenario(browser: Browser) -> None:
        token = (await browser.get("/login")).field("token")
        fields = {"access_key": "operator", "secret": SECRET, "token": token}
        page = await browser.send("/login", fields, headers)
        assert (page.path == "/") is takes
        if not takes:
            assert page.status == 403
            await browser.log_in("operator")
        token = (await browser.get("/")).field("token")
        page = await browser.send("/logout", {"token": token}, headers)
        assert (page.path == "/login") is takes

    browse(under_test, scenario, ALL)


def test_no_form_logs_in_or_out_without_its_token(under_test: BrokerUnderTest) -> None:
    """The same of a browser that sends no word of where a form comes from."""

    async def scenario(browser: Browser) -> None:
        await browser.get("/login")
        fields = {"access_key": "operator", "secret": SECRET}
        assert (await browser.send("/login", fields)).status == 403
        await browser.log_in("operator")
        assert (await browser.send("/logout", {})).status == 403
        assert (await browser.get("/")).path == "/"

    browse(under_test, scenario, ALL)


@pytest.mark.parametrize("path", ["/schedule?level=1", "/login?then=%2Fschedule%3Flevel%3D1"])
def test_a_link_on_another_site_ends_no_session(path: str, under_test: BrokerUnderTest) -> None:
    """The browser holds a strict cookie back; a new one would replace the session's."""
    led = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}

    async def scenario(browser: Browser) -> None:
        page = await browser.get(path, **led)
        assert "set-cookie" not in page.headers
        assert page.headers["refresh"] == "0; url=/login?then=%2Fschedule%3Flevel%3D1"
        page = await browser.send("/logout", {}, led)
        assert page.status == 403
        assert "set-cookie" not in page.headers
        await browser.log_in("operator")
        page = await browser.get("/login?then=%2Fschedule%3Flevel%3D1")
        assert page.path == "/schedule"

    browse(under_test, scenario, ALL)


@pytest.mark.parametrize(
    ("scheme", "origin", "is_secure"),
    [("http", "http", False), ("https", "https", True), ("http", "https", True)],
    ids=["plain", "TLS", "a proxy that adds TLS"],
)
def test_the_cookie_is_for_this_site_and_not_for_scripts(
    scheme: str, origin: str, is_secure: bool, under_test: BrokerUnderTest
) -> None:
    """Under TLS it is never sent without."""

    async def scenario(browser: Browser) -> None:
        own = Browser(browser.server, scheme=scheme)
        token = (await own.get("/login")).field("token")
        fields = f"access_key=operator&secret={SECRET.replace(' ', '+')}&token={token}"
        headers = OURS | {"Origin": f"{origin}://{HOST}", "Content-Type": FORM}
        answer = await own.raw(
            "POST", "/login", content=fields, headers=headers, follow_redirects=False
        )
        assert answer.status == 303
        found = answer.headers["set-cookie"].lower()
        assert found.startswith(f"{COOKIE}=")
        assert {"httponly", "samesite=strict", "path=/"} <= set(found.split("; "))
        assert ("secure" in found.split("; ")) is is_secure
        assert "domain" not in found
        assert "max-age" not in found
        await own.close()

    browse(under_test, scenario, ALL)


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "then",
    [
        "//evil.example",
        "https://evil.example/",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        "javascript:alert(1)",
        "evil.example",
        "/é",
        "/x\r\nSet-Cookie: a=b",
        "",
    ],
)
@pytest.mark.parametrize("is_in", [False, True])
def test_a_log_in_leads_to_no_other_site(
    then: str, is_in: bool, under_test: BrokerUnderTest
) -> None:
    """A link with the broker's name would else end on a copy of this page that takes secrets."""

    async def scenario(browser: Browser) -> None:
        if is_in:
            await browser.log_in("operator")
            answer = await browser.raw(
                "GET", "/login", params={"then": then}, follow_redirects=False
            )
            assert answer.headers["location"] == "/"
            return
        page = await browser.raw("GET", "/login", params={"then": then})
        assert page.field("then") == "/"
        page = await browser.log_in("operator", then=then)
        assert (page.status, page.path) == (200, "/")

    browse(under_test, scenario, ALL)


def test_attempts_are_slowed_before_the_secret_is_looked_at(under_test: BrokerUnderTest) -> None:
    """The right secret waits, too: otherwise a guess would cost nothing."""

    async def scenario(browser: Browser) -> None:
        for wait_s in (1, 2, 4):
            assert (await browser.log_in("operator", "a wrong secret")).status == 403
            page = await browser.log_in("operator")
            assert page.status == 429
            assert f"try again in {wait_s} s" in page.text
            assert page.headers["retry-after"] == str(wait_s)
            under_test.clock.forward(wait_s * 1000)
        assert browser.server.access.refused == 3
        assert (await browser.log_in("operator")).path == "/"
        assert (await browser.log_in("operator", "a wrong secret")).status == 403

    browse(under_test, scenario, ALL)


def test_another_address_waits_for_its_own_failures(under_test: BrokerUnderTest) -> None:
    """And for those of the account that it tries, at most five seconds."""

    async def scenario(browser: Browser) -> None:
        for _ in range(5):
            await browser.log_in("operator", "a wrong secret")
            under_test.clock.forward(60_000)
        await browser.log_in("operator", "a wrong secret")
        other = Browser(browser.server, "192.0.2.7")
        assert (await other.log_in("dashboard")).path == "/"
        await other.log_out()
        assert "try again in 5 s" in (await other.log_in("operator")).text
        under_test.clock.forward(5_000)
        assert (await other.log_in("operator")).path == "/"
        assert (await browser.log_in("operator")).status == 429
        await other.close()

    browse(under_test, scenario, ALL)


def test_an_idle_session_asks_again(under_test: BrokerUnderTest) -> None:
    """A page that updates itself is then replaced by the log-in, and keeps nothing alive."""

    async def scenario(browser: Browser) -> None:
        await browser.log_in("operator")
        under_test.clock.forward(IDLE_MS_MAX - 1)
        part = await browser.get("/?before=1", **{"HX-Request": "true"})
        assert part.status == 200
        assert "Overview" in part.text
        under_test.clock.forward(1)
        part = await browser.get("/?before=1", **{"HX-Request": "true"})
        assert part.headers["hx-redirect"] == "/login?then=%2F%3Fbefore%3D1"
        assert not part.html
        assert (await browser.get("/")).path == "/login"

    browse(under_test, scenario, ALL)


@pytest.mark.parametrize(
    "later",
    [
        accounts(VIEWER),
        accounts(ADMIN.model_copy(update={"secret": SecretStr("a newer secret")}), VIEWER),
    ],
    ids=["deleted", "another secret"],
)
def test_a_session_ends_with_its_account(later: object, waiting: BrokerUnderTest) -> None:
    """At the next request, also if that is a form; and for good."""

    async def scenario(browser: Browser) -> None:
        await browser.log_in("operator")
        token = (await browser.get("/")).field("token")
        browser.server.access.accounts = later  # type: ignore[assignment]
        page = await browser.send("/schedule/change", CHANGE | {"token": token})
        assert page.status == 403
        assert await pending(waiting) == 1
        browser.server.access.accounts = ALL
        assert (await browser.get("/")).path == "/login"

    browse(waiting, scenario, ALL)


def test_an_account_that_loses_its_rights_loses_them_at_once(waiting: BrokerUnderTest) -> None:
    """The session stays, with the rights of this moment."""

    async def scenario(browser: Browser) -> None:
        await browser.log_in("operator")
        token = (await browser.get("/")).field("token")
        lower = ADMIN.model_copy(update={"role": Role.VIEWER})
        browser.server.access.accounts = accounts(lower)
        page = await browser.send("/schedule/change", CHANGE | {"token": token})
        assert page.status == 403
        assert "Viewers change nothing" in page.text
        assert (await browser.get("/")).status == 200
        assert await pending(waiting) == 1

    browse(waiting, scenario, ALL)


def test_a_restart_ends_all_sessions(under_test: BrokerUnderTest) -> None:
    """They are only in memory."""
    found = []

    async def before(browser: Browser) -> None:
        await browser.log_in("operator")
        found.append(browser.cookie)

    async def after(browser: Browser) -> None:
        browser.cookie = found[0]
        assert (await browser.get("/")).path == "/login"

    browse(under_test, before, ALL)
    browse(under_test, after, ALL)


def test_a_trusted_address_needs_no_account(waiting: BrokerUnderTest) -> None:
    """globalWhiteRemoteAddresses, as on the other protocols."""
    trusting = accounts(ADMIN, global_white_remote_addresses=(parse_addresses("192.0.2.*"),))

    async def scenario(browser: Browser) -> None:
        assert (await browser.get("/")).path == "/login"
        trusted = Browser(browser.server, "192.0.2.7")
        assert (await trusted.get("/login")).path == "/"
        token = (await trusted.get("/schedule/change?action=cancel")).field("token")
        named = {"access_key": "operator", "secret": "any", "token": token}
        assert "operator" not in (await trusted.send("/login", named)).text
        page = await trusted.get("/schedule/change?action=cancel")
        assert "Log out" not in page.text
        done = await trusted.send("/schedule/change", CHANGE | {"token": page.field("token")})
        assert done.status == 200
        await trusted.close()

    browse(waiting, scenario, trusting)


CHANGING = ("/schedule", f"/dead/letters?group={GROUP}", f"/group?name={GROUP}", "/dead")


@pytest.mark.parametrize(
    ("access_key", "web_access", "may_write"),
    [
        ("operator", "write", True),
        ("operator", "read", False),
        ("dashboard", "write", False),
        ("dashboard", "read", False),
    ],
)
def test_buttons_are_for_admins_where_the_page_may_write(
    access_key: str, web_access: str, may_write: bool, waiting: BrokerUnderTest
) -> None:
    """webAccess is the upper bound; a viewer sees all pages, and nothing to press."""
    dead_letters(waiting, 2)

    async def scenario(browser: Browser) -> None:
        await browser.log_in(access_key)
        for path in PAGES:
            assert (await browser.get(path)).status == 200
        shown = [await browser.get(path) for path in CHANGING]
        words = " ".join([page.text for page in shown])
        assert ("Purge them" in words) is may_write
        assert ("Deliver now" in words) is may_write
        assert ("Redrive" in words.replace("Redriven", "")) is may_write
        assert any(buttons(page) for page in shown) is may_write
        token = shown[0].field("token")
        page = await browser.send("/schedule/change", CHANGE | {"token": token})
        assert page.status == (200 if may_write else 403)
        assert await pending(waiting) == (0 if may_write else 1)
        if not may_write:
            rule = "webAccess=read" if web_access == "read" else "Viewers change nothing"
            assert rule in page.text

    browse(waiting, scenario, ALL, web_access=web_access)


def test_an_account_of_consumers_is_led_to_what_it_may_see(under_test: BrokerUnderTest) -> None:
    """The page that it may not see names the rule, and links to what it may."""
    dead_letters(under_test, 2)

    async def scenario(browser: Browser) -> None:
        page = await browser.log_in("consumer")
        assert (page.status, page.path) == (403, "/")
        assert "Need viewer or admin permission for the broker" in page.text
        assert "Log out" in page.text
        assert "others" not in page.text
        letters = await browser.get(page.link("/dead/letters"))
        assert "2 dead letters" in letters.text
        assert "Purge" not in letters.text
        assert not [each for each in letters.attributes("a", "href") if "/record" in each]
        assert (await browser.get(page.link("/retries"))).status == 200
        found = await browser.get("/message?topic=orders&key=none")
        assert "No message of that topic" in found.text
        for path in ("/message?topic=payments&key=a", "/dead/letters?group=others"):
            refused = await browser.get(path)
            assert refused.status == 403
            assert "No default permission" in refused.text

    browse(under_test, scenario, ALL)


def test_only_get_and_post_have_pages(under_test: BrokerUnderTest) -> None:
    """HEAD asks for a session as GET does."""

    async def scenario(browser: Browser) -> None:
        answer = await browser.raw("HEAD", "/", follow_redirects=False)
        assert answer.status == 303
        await browser.log_in("operator")
        assert (await browser.raw("PUT", "/")).status == 405
        assert (await browser.get("/logout")).status == 405

    browse(under_test, scenario, ALL)
