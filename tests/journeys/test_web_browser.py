"""The web page in a real Chromium: read, dry run, redrive, cancel; hostile letters; a crash."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.common.exceptions import NoAlertPresentException
from selenium.webdriver.common.keys import Keys

from rmqlite.client import AdminClient, Message, Producer
from rmqlite.client.channel import Connection
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.names import dlq_topic
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.testing import BrokerProcess
from tests.journeys.web_browser import WebBrowser, fresh_page
from tests.support.broker_processes import StartBroker
from tests.support.eventually import eventually
from tests.support.web_letters import HOSTILE, INVALID_UTF8

GROUP = "shop"
HARM = "window.harm=1;document.title='harm';alert(1)"
HARMFUL = f"""<script>{HARM}</script><img src=x onerror="{HARM}"><svg onload="{HARM}"></svg>
<iframe srcdoc="<script>parent.{HARM}</script>"></iframe><a href="javascript:{HARM}">x</a>"""
PAGES = ("/", "/schedule", "/lateness", "/retries", "/dead", "/jobs", "/groups", "/message")

pytestmark = pytest.mark.xdist_group("chromium")


@pytest.fixture
def broker(start_broker: StartBroker, web_port: int) -> BrokerProcess:
    """With a page that may write."""
    return start_broker(webPort=web_port, webAccess="write", messageDelayLevel="1s 10m 30m 1h")


@pytest.fixture
def browser(
    broker: BrokerProcess, web_port: int, chromium_of_all: webdriver.Chrome
) -> Iterator[WebBrowser]:
    """It must not have complained at the end: no script that failed, nothing that was refused."""
    assert broker.endpoint
    with fresh_page(chromium_of_all, f"http://127.0.0.1:{web_port}") as page:
        yield page
        assert page.complaints() == []


def die(broker: BrokerProcess, *messages: Message, reason: str = "KeyError: 'address'") -> None:
    """Send these; the group fails each of them for good."""
    connection = Connection(broker.endpoint, None)
    with Producer(broker.endpoint, "seed") as producer:
        for message in messages:
            sent = producer.send(message)
            request = SendBackRequest(GROUP, sent.physical_offset, delay_level=-1, reason=reason)
            connection.call(rpcs.SEND_BACK, request, 10)
    connection.close()


def orders(count: int) -> list[Message]:
    return [Message("orders", b'{"n": %d}' % n, keys=f"order-{n}") for n in range(count)]


@pytest.mark.long
def test_every_page_is_read_at_any_width_in_any_colour(
    broker: BrokerProcess, browser: WebBrowser
) -> None:
    """No page is wider than the screen, and dark is dark."""
    die(broker, *orders(3), Message("orders", b"x", keys="k" * 300, tags="t" * 120))
    with Producer(broker.endpoint, "seed") as producer:
        producer.send(Message("orders", b"x", keys="k" * 300, delay_level=2))
        timer = producer.send(Message("orders", b"x", deliver_after="700d"))
    listed = ["/schedule?span=2y&level=timer", f"/record?id={timer.offset_message_id}"]
    listed += [f"/dead/letters?group={GROUP}", f"/group?name={GROUP}", f"/redrive?group={GROUP}"]
    for width in (1280, 390):
        browser.emulate(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        for path in (*PAGES, *listed, f"/redrive/preview?group={GROUP}"):
            browser.open(path)
            assert browser.run("return document.documentElement.scrollWidth") <= width, path
            assert browser.all("h1"), path
    papers = []
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.emulate("Emulation.setEmulatedMedia", features=features)
        papers.append(browser.run("return getComputedStyle(document.body).backgroundColor"))
    assert papers == ["rgb(247, 248, 248)", "rgb(20, 24, 26)"]


@pytest.mark.long
def test_a_timer_is_found_two_years_away_and_moved(
    broker: BrokerProcess, browser: WebBrowser
) -> None:
    """By the plot, the filter, a box and the form, as a person does it."""
    with Producer(broker.endpoint, "seed") as producer:
        producer.send(Message("orders", b"x", keys="far", deliver_after="700d"))
        producer.send(Message("orders", b"x", keys="near", delay_level=2))
    browser.open("/schedule?span=2y")
    browser.wait_for("Messages due within 2y: 2")
    browser.run(
        "document.querySelectorAll('.timeline a')[1].dispatchEvent(new MouseEvent('click'))"
    )
    browser.wait_for("1 message")
    assert "far" in browser.text
    assert "near" not in browser.text
    browser.click(".tick input[name=ids]")
    browser.write("at", "in 36h")
    browser.button("Reschedule")
    browser.wait_for("1 message would be rescheduled: it would be due 36h from now")
    from_ms = wall_ms()
    browser.button("Reschedule them")
    browser.wait_for("1 message was rescheduled")
    with AdminClient(broker.endpoint) as admin:
        near, far = admin.schedule.pending()
    assert from_ms <= far.deliver_at_ms - 36 * 3_600_000 <= far.store_timestamp_ms
    assert near.level == 2


def test_letters_are_found_looked_at_and_redriven_to_the_end(
    broker: BrokerProcess, browser: WebBrowser
) -> None:
    """The whole repair: from the overview to the last letter sent again.

    At last the broker is killed: the page says that nobody answers, until somebody does.
    """
    die(broker, *orders(30))
    die(broker, *orders(5), reason="HTTP 503")
    browser.open("/")
    browser.wait_for("35 open dead letters in shop")
    browser.button("shop")
    browser.wait_for("Dead letters of shop")
    browser.write("reason", "keyerror")
    browser.one("input[name=reason]").send_keys(Keys.ENTER)
    browser.wait_for("30 dead letters")
    browser.button("peek")
    browser.wait_for('{ "n": 29 }')
    browser.driver.back()
    browser.wait_for("30 dead letters")
    browser.button("Redrive what fits the filter")
    browser.wait_for("Which dead letters")
    browser.write("rate", "10")
    browser.button("Dry run")
    browser.wait_for("30 dead letters of shop would be sent")
    with AdminClient(broker.endpoint) as admin:
        assert admin.redrives.jobs() == ()
        browser.button("Redrive 30")
        browser.wait_for("Redrive of shop running")
        seen = set()

        def is_done() -> bool:
            seen.add(browser.run("return document.querySelector('#live progress').value"))
            return "Redrive of shop done" in browser.text

        eventually(is_done, "the end of the redrive")
        assert len(seen) > 2, "the page moves by itself while the job runs"
        (job,) = admin.redrives.jobs()
        assert (job.sent, job.refused) == (30, 0)
    browser.button("Outcome of every dead letter")
    browser.wait_for("30 dead letters on this page")
    browser.open(f"/dead/letters?group={GROUP}&view=open")
    browser.wait_for("5 dead letters")
    browser.open("/")
    broker.kill()
    eventually(lambda: browser.one("#lost").is_displayed(), "the notice that nobody answers")
    broker.start()
    eventually(lambda: not browser.one("#lost").is_displayed(), "the notice is gone")
    browser.complaints()


@pytest.mark.long
def test_a_message_that_waits_is_chosen_and_cancelled(
    broker: BrokerProcess, browser: WebBrowser
) -> None:
    """Ticked, looked at, done; the others wait on."""
    with Producer(broker.endpoint, "seed") as producer:
        for n in range(4):
            producer.send(Message("orders", b"x", keys=f"k-{n}", delay_level=2))
    browser.open("/schedule")
    boxes = browser.all("input[name=ids]")
    assert len(boxes) == 4
    browser.click("input[data-all]")
    assert all(box.is_selected() for box in boxes)
    browser.click("input[data-all]")
    boxes[1].click()
    browser.button("Cancel …")
    browser.wait_for("1 message would be cancelled")
    browser.button("Cancel them")
    browser.wait_for("1 message was cancelled")
    browser.open("/schedule")
    assert len(browser.all("input[name=ids]")) == 3


def test_a_hostile_letter_is_inert(broker: BrokerProcess, browser: WebBrowser) -> None:
    """Nothing of it runs, on no page; and would it get through, the policy stops it."""
    words = HARMFUL.replace("\n", " ")
    tag = words.replace(" ", "")
    for body in (words.encode(), INVALID_UTF8, HOSTILE.encode()):
        message = Message("orders", body, tags=tag, keys=[tag], properties={"<b>p": words})
        die(broker, message, reason=words)
    browser.open(f"/dead/letters?group={GROUP}")
    letters = [each.get_attribute("href") for each in browser.all("a[href*='record?id']")]
    lives = [each.get_attribute("href") for each in browser.all("a[href*='message?id']")]
    paths = [(each or "").removeprefix(browser.base) for each in letters + lives]
    paths += [f"{path}&as=hex" for path in paths[:3]]
    paths += ["/", "/dead", f"/group?name={GROUP}", f"/redrive/preview?group={GROUP}"]
    for path in (*paths, f"/dead/letters?group={GROUP}"):
        browser.open(path)
        assert browser.run("return window.harm") is None, path
        assert "harm" not in browser.driver.title
        assert browser.all("iframe, img, body script") == []
        with pytest.raises(NoAlertPresentException):
            _ = browser.driver.switch_to.alert
    browser.wait_for("<script>window.harm=1")
    assert browser.complaints() == []
    browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"harm=1\">')")
    browser.run(
        "const s = document.createElement('script'); s.text = 'window.harm = 1';"
        "document.body.append(s)"
    )
    eventually(lambda: "Content Security Policy" in str(browser.complaints()), "a refusal")
    assert browser.run("return window.harm") is None
    browser.complaints()


@pytest.mark.long
def test_without_scripts_all_but_the_moving_works(
    broker: BrokerProcess, browser: WebBrowser
) -> None:
    """Plain links and plain forms."""
    die(broker, *orders(4))
    browser.emulate("Emulation.setScriptExecutionDisabled", value=True)
    browser.open("/dead")
    browser.button("Redrive …")
    browser.wait_for("Which dead letters")
    browser.button("Dry run")
    browser.wait_for("4 dead letters of shop would be sent")
    browser.button("Redrive 4")
    browser.wait_for("Redrive of shop")
    with AdminClient(broker.endpoint) as admin:
        eventually(lambda: admin.redrives.jobs()[0].is_over, "the end of the redrive")
        assert admin.redrives.jobs()[0].sent == 4
    browser.open("/jobs")
    assert any("done" in each.text for each in browser.all("td"))


@pytest.mark.long
def test_a_page_lives_on_over_a_crash_of_the_broker(
    broker: BrokerProcess, browser: WebBrowser
) -> None:
    """It says that nobody answers, and goes on when somebody does; an old form is not taken."""
    die(broker, *orders(2))
    browser.open(f"/group?name={GROUP}")
    form = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    browser.open("/")
    assert not browser.one("#lost").is_displayed()
    broker.kill()
    eventually(lambda: browser.one("#lost").is_displayed(), "the notice that nobody answers")
    browser.wait_for("No answer from the broker")
    refused = browser.complaints()
    assert [each for each in refused if "REFUSED" not in each and "htmx:" not in each] == []
    broker.start()
    eventually(lambda: not browser.one("#lost").is_displayed(), "the notice is gone")
    die(broker, *orders(1))
    browser.wait_for("1 died")
    browser.complaints()
    browser.driver.switch_to.window(form)
    browser.button("Change")
    browser.wait_for("load its page again")
    assert "403" in str(browser.complaints())
    browser.open(f"/group?name={GROUP}")
    browser.button("Change")
    browser.wait_for("Changed, and on disk")
    with AdminClient(broker.endpoint) as admin:
        assert dlq_topic(GROUP) in [each.topic for each in admin.list_topics()]


@pytest.mark.long
def test_a_page_does_not_move_under_who_reads_it(
    broker: BrokerProcess, browser: WebBrowser
) -> None:
    """What is selected stays selected, and what has the focus keeps it over a swap."""
    die(broker, *orders(2))
    browser.open("/")
    browser.run("document.querySelector('#live a[href^=\"/group\"]').focus()")
    browser.run("window.swaps = 0; addEventListener('htmx:afterSwap', () => swaps += 1)")
    eventually(lambda: browser.run("return swaps") > 0, "a swap")
    # The page settles some milliseconds after the swap.
    focused = "return document.activeElement.getAttribute('href')"
    eventually(lambda: browser.run(focused) == f"/group?name={GROUP}", "the focus")
    browser.run("getSelection().selectAllChildren(document.querySelector('h1'))")
    browser.run("window.swaps = 0")
    browser.run(
        "window.held = 0; document.addEventListener('htmx:beforeRequest',"
        " (event) => held += event.defaultPrevented)"
    )
    eventually(lambda: browser.run("return held") > 0, "a swap that waits")
    assert browser.run("return [swaps, String(getSelection())]") == [0, "Overview"]
