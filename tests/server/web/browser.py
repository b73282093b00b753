"""A browser without a screen: asks the page of a broker that runs in the same loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import urlencode

import httpx

from rmqlite.server.group_commit import SyncThread
from rmqlite.server.redriving import Redriving
from rmqlite.server.web.app import web_app
from rmqlite.server.web.site import Site
from tests.support.brokers import BrokerUnderTest
from tests.support.fronts import Served

HOST: Final = "localhost:8080"
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


class Browser:
    """Keeps the cookie, and sends the headers that a browser sends."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

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

    def forget(self) -> None:
        """Be another browser."""
        self._client.cookies.clear()


Scenario = Callable[[Browser], Awaitable[None]]


def browse(under_test: BrokerUnderTest, scenario: Scenario, **settings: Any) -> None:
    """Run the scenario against this broker's page; settings of the configuration."""

    async def main() -> None:
        with closing(SyncThread()) as syncer:
            server = Served(under_test, syncer, **{"web_access": "write", **settings})
            redriving = Redriving(under_test.broker, server.commit, under_test.clock)
            transport = httpx.ASGITransport(web_app(Site(server.config, server.front)))
            async with httpx.AsyncClient(
                transport=transport, base_url=f"http://{HOST}", follow_redirects=True
            ) as client:
                running = [asyncio.create_task(each.run()) for each in (server.commit, redriving)]
                try:
                    await scenario(Browser(client))
                finally:
                    for task in running:
                        task.cancel()
                    await asyncio.wait(running)

    asyncio.run(main())
