"""The parts that every page needs: the broker's front, the templates, and one visit of a browser.

A page calls the same front as every other face, so it obeys the same rules, waits for the same
disk and lets other calls have their turns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from rmqlite.config import BrokerConfig
from rmqlite.server.front.front import Front
from rmqlite.server.web.args import Args
from rmqlite.server.web.guard import COOKIE, TOKEN_FIELD, Guard
from rmqlite.server.web.static_files import Static
from rmqlite.server.web.text import FILTERS, GLOBALS, visible

T = TypeVar("T")
FOLDER: Final = Path(__file__).parent
ROWS: Final = 50
"""The rows of a page: so few that making it does not hold up the loop."""


class Site:
    """One broker's web page."""

    def __init__(self, config: BrokerConfig, front: Front) -> None:
        self.config = config
        self.front = front
        self.guard = Guard(config)
        self.static = Static(FOLDER / "static")
        # Only the templates are trusted: every value in them is escaped.
        self._templates = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            auto_reload=False,
            finalize=visible,
            lstrip_blocks=True,
            trim_blocks=True,
            undefined=StrictUndefined,
        )
        self._templates.filters.update(FILTERS)
        self._templates.globals.update(GLOBALS)
        # Compile all now: compiling takes so long that it would hold up other calls.
        for name in self._templates.list_templates():
            self._templates.get_template(name)

    def rendered(self, template: str, values: Mapping[str, Any]) -> str:
        return self._templates.get_template(template).render(values)


class Visit:
    """One request, and everything that its page is made of."""

    def __init__(self, site: Site, request: Request) -> None:
        self._site = site
        self.front = site.front
        self.request = request
        self.args = Args("")
        self.form = Args("")
        self.now_ms = site.front.clock.now_ms()
        self._cookie = request.cookies.get(COOKIE, "")
        self._session = site.guard.session(self._cookie)

    @property
    def is_change(self) -> bool:
        return self.request.method == "POST"

    @property
    def fields(self) -> Args:
        """The fields of the form if one was sent, else those of the query."""
        return self.form if self.is_change else self.args

    @property
    def can_write(self) -> bool:
        return self._site.guard.can_write

    def check_change(self) -> None:
        """Raises Forbidden unless the form may change something."""
        headers, token = self.request.headers, self.form.text(TOKEN_FIELD)
        self._site.guard.check_change(headers, self._cookie, token)

    def page(self, template: str, *, code: int = 200, **values: Any) -> Response:
        """Answer with a page."""
        config = self._site.config
        common = {
            "here": self.request.url.path,
            "again": f"{self.request.url.path}?{self.request.url.query}",
            "is_change": self.is_change,
            "now_ms": self.now_ms,
            "broker_name": config.broker_name,
            "can_write": self.can_write,
            "token": self._site.guard.token(self._session),
            "static": self._site.static.url,
            "code": code,
        }
        response = HTMLResponse(self._site.rendered(template, common | values), code)
        response.headers["Cache-Control"] = "no-store"
        if self._session != self._cookie:
            response.set_cookie(COOKIE, self._session, httponly=True, samesite="strict")
        return response

    def go_to(self, path: str, **values: str) -> Response:
        """Answer with a redirect: the browser then gets that page."""
        return RedirectResponse(f"{path}?{urlencode(values)}", 303)

    def part_of(self, rows: Sequence[T]) -> tuple[Sequence[T], int]:
        """The rows that this page shows, and where the next page begins; 0 after the last."""
        begin = self.args.number("begin")
        end = begin + ROWS
        return rows[begin:end], end if end < len(rows) else 0


PageMethod = Callable[[Visit], Awaitable[Response]]
