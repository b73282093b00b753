"""Answers a request with its page: the path of each page, and the answer if a page fails.

Also logging in and out, and the answer to a browser in which nobody has logged in yet.
"""

from __future__ import annotations

import asyncio
import logging
import re
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rmqlite.kernel.service.access import CALLER, NO_NOTE, NOTE, Note, Right, group_right
from rmqlite.kernel.words.errors import AccessDenied, RmqliteError
from rmqlite.protocols.shared.status import STATUS_NAMES
from rmqlite.web import groups, jobs, messages, schedule
from rmqlite.web.args import Args
from rmqlite.web.guard import FORM_TYPE, HEADERS, Forbidden, new_session
from rmqlite.web.sessions import PROTOCOL
from rmqlite.web.site import ROWS, PageMethod, Site, Visit

FORM_BYTES_MAX: Final = 256 << 10
ANSWER_S_MAX: Final = 60.0
"""How long one page may take, so that a form sent byte by byte does not last for ever."""
_STATUS: Final = {
    "INVALID_ARGUMENT": HTTPStatus.BAD_REQUEST,
    "NOT_FOUND": HTTPStatus.NOT_FOUND,
    "PERMISSION_DENIED": HTTPStatus.FORBIDDEN,
    "ALREADY_EXISTS": HTTPStatus.CONFLICT,
    "FAILED_PRECONDITION": HTTPStatus.CONFLICT,
    "UNAVAILABLE": HTTPStatus.SERVICE_UNAVAILABLE,
    "RESOURCE_EXHAUSTED": HTTPStatus.SERVICE_UNAVAILABLE,
    "UNIMPLEMENTED": HTTPStatus.NOT_IMPLEMENTED,
}
_FAILED: Final = HTTPStatus.INTERNAL_SERVER_ERROR
log = logging.getLogger(__name__)
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


async def log_in_form(visit: Visit) -> Response:
    _check_accounts(visit)
    if visit.is_in:
        return RedirectResponse(_then(visit), HTTPStatus.SEE_OTHER)
    return _step(_then(visit)) if visit.may_hide_session else _login_form(visit)


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
        response = _login_form(visit, sentence, HTTPStatus.TOO_MANY_REQUESTS)
        response.headers["Retry-After"] = str(wait_s)
        return response
    try:
        session_id = site.sessions.log_in(address, access_key, secret)
    except AccessDenied as error:
        site.attempts.fail(address, access_key)
        return _login_form(visit, f"{error}.".capitalize(), HTTPStatus.FORBIDDEN)
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


def _login_form(visit: Visit, problem: str = "", code: HTTPStatus = HTTPStatus.OK) -> Response:
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


_LOOKS: Final[dict[str, PageMethod]] = {
    "/": schedule.overview,
    "/lateness": schedule.lateness,
    "/schedule": schedule.schedule,
    "/schedule/change": schedule.change_preview,
    "/retries": groups.retries,
    "/message": messages.history,
    "/record": messages.record,
    "/dead": groups.dead_groups,
    "/dead/reasons": groups.reasons,
    "/dead/letters": groups.dead_letters,
    "/dead/purge": groups.purge_preview,
    "/redrive": jobs.form,
    "/redrive/preview": jobs.preview,
    "/jobs": jobs.jobs,
    "/job": jobs.job,
    "/job/outcomes": jobs.outcomes,
    "/job/bulk": jobs.bulk_job,
    "/groups": groups.groups,
    "/group": groups.group,
    "/groups/delete": groups.group_preview,
    "/groups/reset": groups.reset_preview,
    "/groups/topic": groups.topic_preview,
    "/login": log_in_form,
}
_CHANGES: Final[dict[str, PageMethod]] = {
    "/schedule/change": schedule.change,
    "/dead/purge": groups.purge,
    "/redrive": jobs.start,
    "/job": jobs.change,
    "/group": groups.change,
    "/groups/delete": groups.delete_group,
    "/groups/reset": groups.reset,
    "/groups/topic": groups.delete_topic,
}
_ENTRY: Final[dict[str, PageMethod]] = {"/login": log_in, "/logout": log_out}
"""Forms that change nothing of the broker; webAccess=read takes them, too."""
_OPEN: Final = frozenset({log_in_form, log_in})
"""Pages for a browser in which nobody has logged in yet."""


def web_app(site: Site) -> Starlette:
    """The application that the port serves."""

    async def static(request: Request) -> Response:
        return await _answer(site, request, _file, is_open=True)

    async def failed(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return await _answer(site, request, _no_page(HTTPStatus(error.status_code)))

    routes = [Route("/static/{name}", static, methods=["GET"])]
    forms = _CHANGES | _ENTRY
    for path in sorted(_LOOKS | forms):
        methods = ["GET"] * (path in _LOOKS) + ["POST"] * (path in forms)

        async def page(request: Request, path: str = path) -> Response:
            make = (forms if request.method == "POST" else _LOOKS)[path]
            return await _answer(site, request, make, is_open=make in _OPEN)

        routes.append(Route(path, page, methods=methods))
    app = Starlette(routes=routes, exception_handlers={HTTPException: failed})
    app.router.redirect_slashes = False
    return app


async def _answer(
    site: Site, request: Request, make: PageMethod, *, is_open: bool = False
) -> Response:
    """is_open: whether or not somebody has logged in."""
    visit = None
    before, note_before = CALLER.set(None), NOTE.set(NO_NOTE)
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            site.guard.check(request.headers)
            visit = Visit(site, request)
            visit.args = Args(request.url.query)
            if not is_open and not visit.is_in:
                return _protected(asked_for(visit))
            CALLER.set(visit.visitor.caller if visit.visitor else None)
            if visit.is_change:
                await _take_form(visit, changes=make not in _ENTRY.values())
                NOTE.set(Note(visit.form.text("note"), visit.address, PROTOCOL))
            return _protected(await make(visit))
    except Forbidden as error:
        status, sentence = error.status, str(error)
    except RmqliteError as error:
        status, sentence = _STATUS.get(STATUS_NAMES[error.code], _FAILED), str(error)
        if error.rule and error.rule not in sentence:
            sentence = f"{sentence}: {error.rule}"
    except TimeoutError:
        status, sentence = (
            HTTPStatus.REQUEST_TIMEOUT,
            "the request took too long, the broker gave it up",
        )
    except ClientDisconnect:
        status, sentence = (
            HTTPStatus.BAD_REQUEST,
            "the connection closed before the whole form had arrived",
        )
    except Exception:
        log.exception("page failed path=%r", request.url.path)
        status, sentence = _FAILED, "the broker failed to make this page; its log says why"
    finally:
        CALLER.reset(before)
        NOTE.reset(note_before)
    return _protected(_error_page(request, status, sentence, visit))


def _error_page(
    request: Request, status: HTTPStatus, sentence: str, visit: Visit | None
) -> Response:
    if visit is None or status is HTTPStatus.MISDIRECTED_REQUEST:
        # A stranger gets nothing about the broker, and no cookie.
        return Response(f"{status.value} {sentence}\n", status, media_type="text/plain")
    wait = request.method != "POST" and status is HTTPStatus.SERVICE_UNAVAILABLE
    return visit.page(
        "error.html",
        code=status,
        reason=status.phrase,
        sentence=sentence,
        can_wait=wait,
        groups=own_groups(visit),
    )


def _no_page(status: HTTPStatus) -> PageMethod:
    async def refuse(_: Visit) -> Response:
        known = {
            HTTPStatus.NOT_FOUND: "there is no such page",
            HTTPStatus.METHOD_NOT_ALLOWED: "this page does not accept this kind of request",
        }
        raise Forbidden(known.get(status, status.phrase), status)

    return refuse


async def _file(visit: Visit) -> Response:
    found = visit.site.static.answer(visit.request)
    return found or await _no_page(HTTPStatus.NOT_FOUND)(visit)


async def _take_form(visit: Visit, *, changes: bool) -> None:
    """Raises Forbidden unless the form is ours, and the page may change something."""
    visit.form = Args(await _form(visit.request))
    if changes and not visit.site.guard.can_write:
        raise Forbidden("this page only shows: webAccess=read")
    visit.check_form()


async def _form(request: Request) -> str:
    """The form of a request.  Raises Forbidden if the body is no form, or is too large."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        raise Forbidden(f"a form is sent as {FORM_TYPE}", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > FORM_BYTES_MAX:
            sentence = f"a form has at most {FORM_BYTES_MAX:,} bytes"
            raise Forbidden(sentence, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return body.decode("utf-8", "replace")


def _protected(response: Response) -> Response:
    for name, value in HEADERS.items():
        response.headers[name] = value
    return response
