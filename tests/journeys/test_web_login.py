"""The web page of a broker with accounts, in a real Chromium: in, what one sees there, and out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from rmqlite.client import AdminClient, Message, Producer
from rmqlite.client.credentials import Credentials
from rmqlite.testing import BrokerProcess
from tests.journeys.web_browser import WebBrowser, fresh_page
from tests.support.accounts import SECRET
from tests.support.broker_processes import StartBroker
from tests.support.eventually import eventually

OPERATOR = f"- accessKey: operator\n  secretKey: {SECRET}\n  admin: true\n"
VIEWER = f"- accessKey: dashboard\n  secretKey: {SECRET}\n  role: viewer\n"
CONSUMER = f"- accessKey: billing\n  secretKey: {SECRET}\n  groupPerms:\n  - billing=SUB\n"

pytestmark = pytest.mark.xdist_group("chromium")


@pytest.fixture
def accounts(tmp_path: Path) -> Callable[[str], Path]:
    """Writes the file of accounts."""

    def write(text: str) -> Path:
        path = tmp_path / "accounts.yml"
        path.touch(mode=0o600)
        path.write_text(f"accounts:\n{text}")
        return path

    return write


@pytest.fixture
def broker(
    start_broker: StartBroker, web_port: int, accounts: Callable[[str], Path]
) -> BrokerProcess:
    """With a message that waits for an hour."""
    known = accounts(OPERATOR + VIEWER + CONSUMER)
    started = start_broker(webPort=web_port, webAccess="write", aclEnable="true", aclFile=known)
    credentials = Credentials("operator", SECRET)
    with AdminClient(started.endpoint, credentials=credentials) as admin:
        admin.create_topic("orders", queues=4)
    with Producer(started.endpoint, "seed", credentials=credentials) as producer:
        producer.send(Message("orders", b"x", keys="order-1", delay_level=17))
    return started


@pytest.fixture
def browser(
    broker: BrokerProcess, web_port: int, chromium_of_all: webdriver.Chrome
) -> Iterator[WebBrowser]:
    """Its console must have complained of nothing but of answers 403 and 429."""
    assert broker.endpoint
    with fresh_page(chromium_of_all, f"http://127.0.0.1:{web_port}") as page:
        yield page
        strange = [each for each in page.complaints() if "status of 4" not in each]
        assert strange == []


def enter(browser: WebBrowser, access_key: str, secret: str = SECRET) -> None:
    """Fill in the form, send it, and wait for the answer."""
    browser.wait_for("Access key")
    browser.write("access_key", access_key)
    browser.write("secret", secret)
    browser.run("window.isOld = true")
    browser.one("input[name=secret]").send_keys(Keys.ENTER)
    is_new = "return !window.isOld && document.readyState === 'complete'"
    eventually(lambda: browser.run(is_new), "an answer")


def log_in(browser: WebBrowser, access_key: str) -> None:
    """Log in, again and again while the page says that the next attempt must wait."""

    def is_in() -> bool:
        enter(browser, access_key)
        return "/login" not in location(browser)

    eventually(is_in, "a log-in")


def location(browser: WebBrowser) -> str:
    return str(browser.driver.current_url)


@pytest.mark.long
def test_a_viewer_looks_and_an_admin_changes(browser: WebBrowser) -> None:
    """From a link in a chat, through a wrong secret, to the page; and out again."""
    browser.open("/schedule?topic=orders")
    enter(browser, "dashboard", "not the secret")
    browser.wait_for("the access key or the secret is wrong")
    assert browser.one("input[name=access_key]").get_attribute("value") == "dashboard"
    assert browser.one("input[name=secret]").get_attribute("value") == ""
    assert browser.run("return document.activeElement.name") == "secret"
    log_in(browser, "dashboard")
    browser.wait_for("order-1")
    assert location(browser).endswith("/schedule?topic=orders")
    browser.open("/")
    browser.wait_for("dashboard Log out")
    assert [each.text for each in browser.all("button")] == ["Log out"]
    browser.open("/schedule")
    assert not browser.all("input[name=ids]")
    assert "Cancel" not in browser.text
    assert browser.run("return document.cookie") == ""

    browser.button("Log out")
    log_in(browser, "operator")
    browser.wait_for("operator Log out")
    browser.open("/schedule")
    browser.click("input[name=ids]")
    browser.button("Cancel …")
    browser.button("Cancel them")
    browser.wait_for("1 message was cancelled")

    browser.button("Log out")
    browser.wait_for("Access key")
    browser.driver.back()
    browser.open("/schedule")
    browser.wait_for("Access key")
    assert "1 message" not in browser.text


@pytest.mark.long
def test_a_page_that_updates_itself_asks_when_its_account_is_deleted(
    browser: WebBrowser, accounts: Callable[[str], Path]
) -> None:
    """Nobody has to press anything; after the log-in the same page is there again."""
    browser.open("/lateness")
    log_in(browser, "operator")
    browser.wait_for("Lateness")
    browser.open("/")
    browser.wait_for("operator Log out")
    accounts(VIEWER)
    browser.wait_for("Access key")
    assert "/login?then=" in location(browser)
    log_in(browser, "dashboard")
    browser.wait_for("dashboard Log out")
    browser.wait_for("Overview")


@pytest.mark.long
def test_a_link_on_another_site_leads_into_the_session(browser: WebBrowser) -> None:
    """A browser holds the strict cookie back on such a link; the session must not end by it."""
    browser.open("/")
    log_in(browser, "dashboard")
    browser.wait_for("dashboard Log out")
    browser.driver.get(browser.base.replace("127.0.0.1", "localhost") + "/login")
    browser.wait_for("Access key")
    browser.run(f"location.href = '{browser.base}/schedule?topic=orders'")
    browser.wait_for("order-1")
    assert location(browser) == f"{browser.base}/schedule?topic=orders"


@pytest.mark.long
def test_the_log_in_is_read_at_any_width(browser: WebBrowser) -> None:
    """Also its problems, the header with a name, and the page for who may see little."""
    for width in (1280, 390):
        browser.emulate(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        wide = "return document.documentElement.scrollWidth"
        browser.open("/login")
        assert browser.run(wide) <= width
        log_in(browser, "billing")
        browser.wait_for("Need viewer or admin permission")
        assert browser.run(wide) <= width
        browser.open("/dead/letters?group=billing")
        browser.wait_for("billing")
        browser.button("Log out")
        enter(browser, f"{width}" * 20, "not the secret")
        browser.wait_for("is wrong")
        assert browser.run(wide) <= width
