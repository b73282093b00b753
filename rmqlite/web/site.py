"""The parts that every page needs: the broker's service, the templates, and one visit of a browser.

A page calls the same service as every protocol, so it obeys the same rules, waits for the same disk
and lets other calls have their turns.  Every template passes each value through visible() first, so
that no control character of a message reaches a browser; then the template escapes the value for
HTML.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from rmqlite.features.cursors import HasCursor
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.service.access import Need, Right, of_admins
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.words.clock import zone_text
from rmqlite.kernel.words.levels import LevelTable, parse_levels
from rmqlite.kernel.words.limits import NOTE_CHARS_MAX
from rmqlite.kernel.words.message import host_text
from rmqlite.kernel.words.visible import printable
from rmqlite.views.broker import RateRows
from rmqlite.views.levels import delay_cell, level_text
from rmqlite.views.messages import origin_text
from rmqlite.views.numbers import (
    COUNTED_MAX,
    age_text,
    counted,
    delay_text,
    matches_text,
    rate_text,
    second_text,
    share_text,
    size_text,
    span_text,
    time_text,
    until_text,
)
from rmqlite.views.tables import Subject
from rmqlite.web.args import Args
from rmqlite.web.guard import TOKEN_FIELD, WebGuard
from rmqlite.web.sessions import LoginAttempts, Sessions, Visitor

_SHORT_CHARS: Final = 160
_OPEN: Final = {"view": "open"}
_LEADS: Final[Mapping[Subject, tuple[str, tuple[str, ...], Mapping[str, str]]]] = {
    Subject.LEVELS: ("/schedule", ("level",), {}),
    Subject.DEAD_LETTERS: ("/dead/letters", ("group",), _OPEN),
    Subject.REASONS: ("/dead/letters", ("group", "kind"), _OPEN),
    Subject.UNDELIVERABLE: ("/dead/letters", ("group",), _OPEN),
    Subject.GROUPS: ("/group", ("name",), {}),
    Subject.RETRIES: ("/retries", ("group",), {}),
    Subject.REDRIVE: ("/job", ("id",), {}),
    Subject.BULK: ("/job/bulk", ("id",), {}),
}
"""The page, and its fields, where a thing is looked at closer."""
T = TypeVar("T")
Q = TypeVar("Q", bound=HasCursor)
P = TypeVar("P", bound=HasCursor)
FOLDER: Final = Path(__file__).parent
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_CACHED: Final = "public, max-age=31536000, immutable"
_CALLS_MAX: Final = 20
"""How many calls a page makes for its rows if few fit."""
ROWS: Final = 50
"""The rows of a page: so few that making it does not hold up the loop."""


def visible(value: Any) -> Any:
    """A value as a template writes it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, Markup) else printable(str(value))


def plain(value: object) -> Markup:
    """A value for an attribute: a number has no commas, a text stays as it is."""
    return Markup("{}").format(str(value))


def short(text: str, chars: int = _SHORT_CHARS) -> str:
    """The beginning of a text, cut to so many characters, for a table."""
    return text if len(text) <= chars else text[: chars - 1] + "…"


def moment(timestamp_ms: int) -> Markup | str:
    """A moment to the second, with milliseconds and time zone in a tooltip; - for 0: never."""
    if not timestamp_ms:
        return "-"
    title = f"{time_text(timestamp_ms)} {zone_text(timestamp_ms)}"
    return Markup('<time title="{}">{}</time>').format(title, second_text(timestamp_ms))


def quoted(text: str) -> Markup:
    """An id for a form's field: characters that a browser would change become %0d and the like."""
    return Markup("{}").format(quote(text, safe="", errors="surrogatepass"))


def url(path: str, values: Mapping[str, object] | None = None, **more: object) -> Markup:
    """A link to a page of ours; values are quoted, empty ones are left out, tuples repeated."""
    pairs = [
        (name, str(each))
        for name, value in {**(values or {}), **more}.items()
        for each in (value if isinstance(value, tuple) else (value,))
    ]
    query = urlencode([pair for pair in pairs if pair[1]], errors="surrogatepass")
    return Markup("{}").format(f"{path}?{query}" if query else path)


def lead(subject: Subject | None, *names: str) -> Markup | None:
    """A link to the page where a thing is looked at closer; None for a thing without one."""
    if subject is None or subject not in _LEADS:
        return None
    path, fields, more = _LEADS[subject]
    return url(path, dict(zip(fields, names, strict=True)), **more)


FILTERS: Final = {
    each.__name__.removesuffix("_text"): each
    for each in (plain, short, moment, quoted, second_text, span_text, size_text)
}
GLOBALS: Final = {
    each.__name__: each
    for each in (
        url,
        lead,
        zone_text,
        until_text,
        age_text,
        delay_text,
        counted,
        rate_text,
        share_text,
        level_text,
        delay_cell,
        origin_text,
    )
} | {"note_chars_max": NOTE_CHARS_MAX}


class Static:
    """The files that pages load.  Their URLs have a hash, so that a browser may cache them."""

    def __init__(self, folder: Path) -> None:
        found = [path for path in sorted(folder.iterdir()) if path.suffix in _TYPES]
        self._files = {path.name: path.read_bytes() for path in found}
        self._urls = {
            name: f"/static/{name}?{hashlib.sha256(content).hexdigest()[:12]}"
            for name, content in self._files.items()
        }

    def url(self, name: str) -> str:
        """The URL of a file; it changes with the file's content."""
        return self._urls[name]

    def answer(self, request: Request) -> Response | None:
        """The file that a request names; None if there is none."""
        name = request.path_params["name"]
        content = self._files.get(name)
        if content is None:
            return None
        response = Response(content, media_type=_TYPES[Path(name).suffix])
        response.headers["Cache-Control"] = _CACHED
        return response


@cache
def _templates() -> Environment:
    """All templates, compiled; once in a process, because that takes half a second."""
    # Only the templates are trusted: every value in them is escaped.
    templates = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        auto_reload=False,
        finalize=visible,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    templates.filters.update(FILTERS)
    templates.globals.update(GLOBALS)
    for name in templates.list_templates():
        templates.get_template(name)
    return templates


class Site:
    """One broker's web page."""

    def __init__(self, config: BrokerConfig, service: Service) -> None:
        self.config = config
        self.service = service
        self.guard = WebGuard(config)
        self.sessions = Sessions(service.access, service.clock)
        self.attempts = LoginAttempts(service.clock)
        self.static = Static(FOLDER / "static")
        self.rates = RateRows(from_start=True)
        """Of all visits that have asked for the status."""
        _templates()  # Now: to compile them later would hold up other calls.

    def rendered(self, template: str, values: Mapping[str, Any]) -> str:
        return _templates().get_template(template).render(values)


class Visit:
    """One request, and everything that its page is made of."""

    def __init__(self, site: Site, request: Request) -> None:
        self.site = site
        self.service = site.service
        self.request = request
        self.args = Args("")
        self.form = Args("")
        self.now_ms = site.service.clock.now_ms()
        self.has_accounts = site.service.access.accounts is not None
        self.address = _address(request)
        self.cookie = request.cookies.get(site.guard.cookie, "")
        self._session = site.guard.session(self.cookie)
        self.visitor: Visitor | None = None
        """Who asks; None without accounts, and of somebody who has not logged in."""
        if self.has_accounts:
            # A part of a page that updates itself: nobody may be there any more.
            is_use = "hx-request" not in request.headers
            self.visitor = site.sessions.visitor(self.address, self.cookie, is_use=is_use)

    @property
    def is_in(self) -> bool:
        """May this browser ask for pages, or must somebody log in first?"""
        return self.visitor is not None or not self.has_accounts

    @property
    def is_change(self) -> bool:
        return self.request.method == "POST"

    @property
    def fields(self) -> Args:
        """The fields of the form if one was sent, else those of the query."""
        return self.form if self.is_change else self.args

    @property
    def can_write(self) -> bool:
        return self.site.guard.can_write and self.is_in and self.may(*of_admins())

    @property
    def sees_all(self) -> bool:
        return self.is_in and self.may(Need(Right.VIEW))

    def may(self, *needs: Need) -> bool:
        """Has the account these rights?  For what a page shows; the service decides on calls."""
        account = self.visitor.caller.account if self.visitor else None
        return account is None or account.why_not(needs) is None

    @property
    def may_hide_session(self) -> bool:
        """Has another site led the browser here?  Then it has not sent a strict cookie."""
        return not self.is_in and self.request.headers.get("sec-fetch-site") == "cross-site"

    def check_form(self) -> None:
        """Raises Forbidden unless a page of this browser's session has sent the form."""
        headers, token = self.request.headers, self.form.text(TOKEN_FIELD)
        self.site.guard.check_form(headers, self.cookie, token)

    def page(self, template: str, *, code: int = 200, **values: Any) -> Response:
        """Answer with a page."""
        config = self.site.config
        common = {
            "here": self.request.url.path,
            "again": f"{self.request.url.path}?{self.request.url.query}",
            "is_change": self.is_change,
            "now_ms": self.now_ms,
            "broker_name": config.broker_name,
            "is_in": self.is_in,
            "account": self.visitor.access_key if self.visitor else "",
            "can_write": self.can_write,
            "only_shows": not self.site.guard.can_write,
            "sees_all": self.sees_all,
            "note": self.form.text("note"),
            "token": self.site.guard.token(self._session),
            "static": self.site.static.url,
            "code": code,
        }
        response = HTMLResponse(self.site.rendered(template, common | values), code)
        response.headers["Cache-Control"] = "no-store"
        # Otherwise another site could end a session that the browser has not shown.
        if self._session != self.cookie and not self.may_hide_session:
            self.set_session(response, self._session)
        return response

    def set_session(self, response: Response, session_id: str) -> None:
        """Give the browser this session, instead of the one that it has."""
        # A proxy may add TLS: then only a form's origin tells it.
        origin = self.request.headers.get("origin", "")
        is_https = self.request.url.scheme == "https" or origin.startswith("https:")
        response.set_cookie(
            self.site.guard.cookie, session_id, httponly=True, samesite="strict", secure=is_https
        )

    def go_to(self, path: str, **values: str) -> Response:
        """Answer with a redirect: the browser then gets that page."""
        return RedirectResponse(f"{path}?{urlencode(values)}", 303)

    async def level_table(self) -> LevelTable:
        in_force = await self.service.schedule.levels()
        return parse_levels(in_force.message_delay_level)

    async def filled(
        self,
        ask: Callable[[Q, int], Awaitable[P]],
        query: Q,
        rows_of: Callable[[P], Sequence[T]],
        noun: str,
    ) -> tuple[list[T], str, str]:
        """The rows of a page, the next page's cursor, and how many rows there are in words.

        Makes several calls if few fit.
        """
        is_first = not query.cursor
        rows: list[T] = []
        for _ in range(_CALLS_MAX):
            page = await ask(query, ROWS - len(rows))
            rows += rows_of(page)
            query = replace(query, cursor=page.cursor)
            if not page.cursor or len(rows) == ROWS:
                break
        left, is_all = 0, not query.cursor
        if query.cursor and len(rows) == ROWS:
            behind = await ask(query, COUNTED_MAX)
            left, is_all = len(rows_of(behind)), not behind.cursor
        text = matches_text(len(rows), left, noun, is_all=is_all, is_first=is_first)
        return rows, query.cursor, text

    def part_of(self, rows: Sequence[T]) -> tuple[Sequence[T], int]:
        """The rows that this page shows, and where the next page begins; 0 after the last."""
        begin = self.args.number("begin")
        end = begin + ROWS
        return rows[begin:end], end if end < len(rows) else 0


def _address(request: Request) -> str:
    """Host and port of the browser, or of the proxy before the page."""
    return "" if request.client is None else host_text(*request.client)


PageMethod = Callable[[Visit], Awaitable[Response]]
