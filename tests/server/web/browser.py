"""A browser without a screen: asks the page of a broker that runs in the same loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import urlencode

import httpx

from rmqlite.features.accounts.accounts import Accounts
from rmqlite.features.redrive.redriving import Redriving
from rmqlite.kernel.service.group_commit import SyncThread
from rmqlite.web.app import web_app
from rmqlite.web.site import Site
from tests.support.accounts import SECRET
from tests.support.brokers import BrokerUnderTest
from tests.support.services import Served

HOST: Final = "localhost:8080"
COOKIE: Final = "rmqlite_web_0"
FORM: Final = "application/x-www-form-urlencoded"
OURS: Final = {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin"}
"""The headers that a browser sends with a form of our page."""


class Page(HTMLParser):
    """An answer: its status and headers, its elements and its words."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__()
        self.status = response.status_code
        self.headers = response.headers
        self.html = response.text
        self.path = response.url.path
        self.elements: list[tuple[str, dict[str, str]]] = []
        self._words: list[str] = []
        self.feed(self.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self._words.append(data)

    @property
    def text(self) -> str:
        """All words, one blank between two."""
        return " ".join(" ".join(self._words).split())

    def attributes(self, tag: str, name: str) -> list[str]:
        """This attribute of every element that has it."""
        return [attrs[name] for kind, attrs in self.elements if kind == tag and name in attrs]

    def field(self, name: str) -> str:
        """The value of the first field of that name."""
        found = [
            attrs.get("value", "")
            for tag, attrs in self.elements
            if tag == "input" and attrs.get("name") == name
        ]
        assert found, f"no field {name} on: {self.text}"
        return found[0]

    def fields(self) -> list[tuple[str, str]]:
        """All hidden fields of the page's forms."""
        return [
            (attrs["name"], attrs.get("value", ""))
            for tag, attrs in self.elements
            if tag == "input" and attrs.get("type") == "hidden"
        ]

    def link(self, beginning: str) -> str:
        """The target of the first link that begins with this path."""
        found = [each for each in self.attributes("a", "href") if each.startswith(beginning)]
        assert found, f"no link {beginning} on: {self.text}"
        return found[0]


class Server(Served):
    """A broker and its page."""

    def __init__(self, under_test: BrokerUnderTest, syncer: SyncThread, **settings: Any) -> None:
        super().__init__(under_test, syncer, **settings)
        self.app = web_app(Site(self.config, self.service))


class Browser:
    """Keeps the cookie, and sends the headers that a browser sends."""

    def __init__(self, server: Server, host: str = "127.0.0.1", scheme: str = "http") -> None:
        """host: the browser's address."""
        self.server = server
        transport = httpx.ASGITransport(server.app, client=(host, 5000))
        base = f"{scheme}://{HOST}"
        self._client = httpx.AsyncClient(transport=transport, base_url=base, follow_redirects=True)

    async def close(self) -> None:
        await self._client.aclose()

    async def get(self, path: str, **headers: str) -> Page:
        return Page(await self._client.get(path, headers=headers))

    async def send(
        self,
        path: str,
        fields: Mapping[str, str] | list[tuple[str, str]],
        headers: Mapping[str, str] = OURS,
        method: str = "POST",
    ) -> Page:
        """Send a form, and follow a redirect in its answer."""
        response = await self._client.request(
            method, path, content=urlencode(fields), headers={"Content-Type": FORM, **headers}
        )
        return Page(response)

    async def raw(self, method: str, path: str, **more: Any) -> Page:
        return Page(await self._client.request(method, path, **more))

    async def log_in(self, access_key: str, secret: str = SECRET, **fields: str) -> Page:
        """Fill in the form of /login, and follow the redirect of its answer."""
        token = (await self.get("/login")).field("token")
        wanted = {"access_key": access_key, "secret": secret, "token": token, **fields}
        return await self.send("/login", wanted)

    async def log_out(self) -> Page:
        token = (await self.get("/")).field("token")
        return await self.send("/logout", {"token": token})

    @property
    def cookie(self) -> str:
        """The session's."""
        return self._client.cookies.get(COOKIE) or ""

    @cookie.setter
    def cookie(self, value: str) -> None:
        self.forget()
        self._client.cookies.set(COOKIE, value)

    def forget(self) -> None:
        """Be another browser."""
        self._client.cookies.clear()


Scenario = Callable[[Browser], Awaitable[None]]


def browse(
    under_test: BrokerUnderTest,
    scenario: Scenario,
    accounts: Accounts | None = None,
    **settings: Any,
) -> None:
    """Run the scenario against this broker's page; settings of the configuration."""

    async def main() -> None:
        with closing(SyncThread()) as syncer:
            server = Server(under_test, syncer, **{"web_access": "write", **settings})
            server.access.accounts = accounts
            redriving = Redriving(under_test.broker, server.commit, under_test.clock)
            browser = Browser(server)
            running = [asyncio.create_task(each.run()) for each in (server.commit, redriving)]
            try:
                await scenario(browser)
            finally:
                await browser.close()
                for task in running:
                    task.cancel()
                await asyncio.wait(running)

    asyncio.run(main())
