"""Logging in and out; and the answer to a browser in which nobody has logged in yet."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from rmqlite.kernel.service.access import Right, group_right
from rmqlite.kernel.words.errors import AccessDenied
from rmqlite.web.guard import Forbidden, new_session
from rmqlite.web.site import ROWS, Visit

_FIRST: Final = "/"
# Of "//x" and "/\x" a browser makes another site; it also drops tabs and line ends.
_LOCAL: Final = re.compile(r"/(?!/)[!-\[\]-~]*")


def asked_for(visit: Visit) -> Response:
    """The answer instead of a page: somebody must log in first."""
    request = visit.request
    if request.method not in ("GET", "HEAD"):
        raise Forbidden("nobody has logged in here, or the session has ended: log in first")
    query = request.url.query
    then = f"{request.url.path}?{query}" if query else request.url.path
    if "hx-request" in request.headers:
        # A part of a page that updates itself: the whole page must go.
        return Response(headers={"HX-Redirect": _path(then)})
    if visit.may_hide_session:
        return _step(then)
    return RedirectResponse(_path(then), HTTPStatus.SEE_OTHER)


async def form(visit: Visit) -> Response:
    _check_accounts(visit)
    if visit.is_in:
        return RedirectResponse(_then(visit), HTTPStatus.SEE_OTHER)
    return _step(_then(visit)) if visit.may_hide_session else _form(visit)


async def log_in(visit: Visit) -> Response:
    _check_accounts(visit)
    site, address = visit.site, visit.address
    if site.service.access.is_trusted(address):
        # There any name would do, and stand on the page and in the log.
        return RedirectResponse(_then(visit), HTTPStatus.SEE_OTHER)
    access_key, secret = visit.form.text("access_key"), visit.form.verbatim("secret")
    wait_s = site.attempts.wait_s(address, access_key)
    if wait_s:
        sentence = f"After a failed attempt the next one waits: try again in {wait_s} s."
        response = _form(visit, sentence, HTTPStatus.TOO_MANY_REQUESTS)
        response.headers["Retry-After"] = str(wait_s)
        return response
    try:
        session_id = site.sessions.log_in(address, access_key, secret)
    except AccessDenied as error:
        site.attempts.fail(address, access_key)
        return _form(visit, f"{error}.".capitalize(), HTTPStatus.FORBIDDEN)
    site.attempts.succeed(address, access_key)
    site.sessions.log_out(address, visit.cookie)
    response = RedirectResponse(_then(visit), HTTPStatus.SEE_OTHER)
    visit.set_session(response, session_id)
    return response


async def log_out(visit: Visit) -> Response:
    _check_accounts(visit)
    visit.site.sessions.log_out(visit.address, visit.cookie)
    response = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
    visit.set_session(response, new_session())
    return response


def own_groups(visit: Visit) -> list[str]:
    """Groups that an account may look at by name, for one that may not look at everything."""
    account = visit.visitor.caller.account if visit.visitor else None
    if account is None or visit.sees_all:
        return []
    named = [each for each in account.named_groups() if visit.may(group_right(Right.VIEW, each))]
    return named[:ROWS]


def _form(visit: Visit, problem: str = "", code: HTTPStatus = HTTPStatus.OK) -> Response:
    access_key = visit.fields.text("access_key") if visit.is_change else ""
    then = _then(visit)
    return visit.page("login.html", code=code, problem=problem, then=then, access_key=access_key)


def _step(then: str) -> Response:
    """A page that leads to the log-in: to a step of our own the browser shows its session."""
    headers = {"Refresh": f"0; url={_path(then)}", "Cache-Control": "no-store"}
    return Response("The log-in follows.\n", headers=headers, media_type="text/plain")


def _path(then: str) -> str:
    return f"/login?{urlencode({'then': then})}"


def _then(visit: Visit) -> str:
    """The page to go to; another site's is no page of ours."""
    wanted = visit.fields.text("then")
    return wanted if _LOCAL.fullmatch(wanted) else _FIRST


def _check_accounts(visit: Visit) -> None:
    if not visit.has_accounts:
        raise Forbidden("there is no such page: this broker has no accounts", HTTPStatus.NOT_FOUND)
