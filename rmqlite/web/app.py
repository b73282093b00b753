"""Answers a request with its page: the path of each page, and the answer if a page fails."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from rmqlite.kernel.service.access import CALLER, NO_NOTE, NOTE, Note
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.protocols.shared.status import STATUS_NAMES
from rmqlite.web import groups, jobs, login, messages, operating, overview, schedule
from rmqlite.web.args import Args
from rmqlite.web.guard import FORM_TYPE, HEADERS, Forbidden
from rmqlite.web.sessions import PROTOCOL
from rmqlite.web.site import PageMethod, Site, Visit

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
_LOOKS: Final[dict[str, PageMethod]] = {
    "/": overview.overview,
    "/lateness": overview.lateness,
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
    "/groups/delete": operating.group_preview,
    "/groups/reset": operating.reset_preview,
    "/groups/topic": operating.topic_preview,
    "/login": login.form,
}
_CHANGES: Final[dict[str, PageMethod]] = {
    "/schedule/change": schedule.change,
    "/dead/purge": groups.purge,
    "/redrive": jobs.start,
    "/job": jobs.change,
    "/group": groups.change,
    "/groups/delete": operating.delete_group,
    "/groups/reset": operating.reset,
    "/groups/topic": operating.delete_topic,
}
_ENTRY: Final[dict[str, PageMethod]] = {"/login": login.log_in, "/logout": login.log_out}
"""Forms that change nothing of the broker; webAccess=read takes them, too."""
_OPEN: Final = frozenset({login.form, login.log_in})
"""Pages for a browser in which nobody has logged in yet."""

log = logging.getLogger(__name__)


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
                return _protected(login.asked_for(visit))
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
        groups=login.own_groups(visit),
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
