"""A real browser for journeys: headless Chromium, driven, with a profile of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.chromium import Chromium
from tests.support.eventually import eventually

FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,800",
)


class WebBrowser:
    """Looks at the page of the broker at base; remembers what its console said."""

    def __init__(self, driver: webdriver.Chrome, base: str) -> None:
        self.driver = driver
        self.base = base

    def open(self, path: str) -> None:
        self.driver.get(self.base + path)

    @property
    def text(self) -> str:
        """All that is to be read; nothing between two pages."""
        return " ".join(str(self.run("return document.body?.innerText ?? ''")).split())

    def run(self, script: str) -> Any:
        """Run a script in the page, as its developer tools would."""
        return self.driver.execute_script(script)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def click(self, selector: str) -> None:
        """Click as a person would: it must be there to be seen."""
        element = self.one(selector)
        self._into_view(element)
        element.click()

    def button(self, words: str) -> None:
        """Click the button, or what looks like one, with these words, as soon as it is there."""
        eventually(lambda: self._clicked(words), f"a button {words!r}")

    def _clicked(self, words: str) -> bool:
        try:
            for each in self.all("button, a"):
                if words in each.text:
                    self._into_view(each)
                    each.click()
                    return True
        except StaleElementReferenceException:
            # The page has moved on between the look and the click.
            pass
        return False

    def _into_view(self, element: WebElement) -> None:
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)

    def write(self, field: str, text: str) -> None:
        element = self.one(f"input[name={field}]")
        element.clear()
        element.send_keys(text)

    def wait_for(self, words: str) -> None:
        """Until these words are to be read."""
        eventually(lambda: words in self.text, f"{words!r} on the page")

    def complaints(self) -> list[str]:
        """What the console has said since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def emulate(self, command: str, **settings: Any) -> None:
        """A setting of the developer tools."""
        self.driver.execute_cdp_cmd(command, settings)


@contextmanager
def started(chromium: Chromium, profile: Path) -> Iterator[webdriver.Chrome]:
    """A browser; paths are given, so that nothing is looked for or loaded from elsewhere."""
    options = Options()
    options.binary_location = str(chromium.browser)
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(chromium.driver)))
    try:
        driver.set_page_load_timeout(60)
        yield driver
    finally:
        driver.quit()


@contextmanager
def fresh_page(driver: webdriver.Chrome, base: str) -> Iterator[WebBrowser]:
    """An empty tab without a cookie, of a browser that looked at other brokers before."""
    before = driver.current_window_handle
    driver.switch_to.new_window("tab")
    driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    page = WebBrowser(driver, base)
    page.complaints()
    try:
        yield page
    finally:
        driver.close()
        driver.switch_to.window(before)
