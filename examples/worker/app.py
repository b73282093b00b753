"""The application: takes reminders; lists, moves and cancels those that wait.

    uvicorn --factory worker.app:create_app

An answer says what the broker has on disk.  The clients live as long as the application: uvicorn
opens them before the first request, and closes them after the last one when it is stopped.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final, Self

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Query, Request, Response
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from rmqlite.client import ChangedId, ChangeOutcome, Message, PendingFilter
from rmqlite.client.asyncio import AsyncAdmin, AsyncProducer
from rmqlite.kernel.words.errors import RmqliteError
from worker.inbox import Inbox
from worker.reminder import Reminder
from worker.settings import Settings

STATUS: Final = {
    ChangeOutcome.DONE: 200,
    ChangeOutcome.ALREADY_CANCELLED: 200,  # as a repeated DELETE expects it
    ChangeOutcome.NOT_FOUND: 404,
    ChangeOutcome.ALREADY_DELIVERED: 409,
    ChangeOutcome.UNDELIVERABLE: 409,
}


@dataclass(frozen=True, slots=True)
class Context:
    """What every request works with."""

    settings: Settings
    producer: AsyncProducer
    admin: AsyncAdmin
    inbox: Inbox


class When(BaseModel):
    """deliver_at: an instant with a zone.  deliver_after: a length such as "90s" or "36h"."""

    model_config = ConfigDict(extra="forbid")

    deliver_at: AwareDatetime | None = None
    deliver_after: str | None = Field(None, max_length=32)


class NewReminder(Reminder, When):
    """With neither deliver_at nor deliver_after it is delivered now."""


class Move(When):
    @model_validator(mode="after")
    def one_is_given(self) -> Self:
        if self.deliver_at is None and self.deliver_after is None:
            raise ValueError("deliver_at or deliver_after must be given")
        return self


class Waiting(BaseModel):
    message_id: str
    deliver_at: datetime


def context_of(request: Request) -> Context:
    context: Context = request.state.context
    return context


Here = Annotated[Context, Depends(context_of)]
router = APIRouter()


@router.post("/reminders", status_code=201)
async def send(
    new: NewReminder,
    here: Here,
    idempotency_key: Annotated[str, Header(max_length=64, pattern=r"^[\w-]*$")] = "",
) -> Waiting:
    """A request without an answer may be repeated with the same Idempotency-Key."""
    reminder = Reminder(to=new.to, text=new.text)
    sent = await here.producer.send(
        Message(
            here.settings.topic,
            reminder.model_dump_json().encode(),
            keys=(new.to,),
            message_id=idempotency_key,
            deliver_at=new.deliver_at,
            deliver_after=new.deliver_after,
        )
    )
    due = _time(sent.deliver_at_ms) if sent.deliver_at_ms else datetime.now(UTC)
    return Waiting(message_id=sent.message_id, deliver_at=due)


@router.get("/reminders")
async def waiting(
    here: Here,
    to: Annotated[str, Query(max_length=254)] = "",
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> list[Waiting]:
    """The next ones that come due, of everybody or of one receiver."""
    wanted = PendingFilter(topic=here.settings.topic, key=to)
    found: list[Waiting] = []
    async for each in here.admin.schedule.pending(wanted, page=limit):
        found.append(Waiting(message_id=each.message_id, deliver_at=_time(each.deliver_at_ms)))
        if len(found) == limit:
            break
    return found


@router.patch("/reminders/{message_id}")
async def move(message_id: str, when: Move, here: Here) -> str:
    changed = await here.producer.reschedule(
        message_id,
        deliver_at=when.deliver_at,
        deliver_after=when.deliver_after,
        topic=here.settings.topic,
    )
    return _answer(changed)


@router.delete("/reminders/{message_id}")
async def cancel(message_id: str, here: Here) -> str:
    return _answer(await here.producer.cancel(message_id, here.settings.topic))


@router.get("/inbox/{receiver}")
async def delivered(receiver: str, here: Here) -> list[str]:
    """What the worker has delivered; here only so that the example can be seen."""
    return await asyncio.to_thread(here.inbox.texts, receiver)


@router.get("/healthz")
async def health(here: Here) -> str:
    """503 while the broker does not answer."""
    await here.admin.levels()
    return "ok"


def create_app() -> FastAPI:
    settings = Settings.from_environment()

    @asynccontextmanager
    async def clients(_: FastAPI) -> AsyncIterator[dict[str, Context]]:
        async with (
            AsyncProducer(settings.endpoint, "reminder-app") as producer,
            AsyncAdmin(settings.endpoint) as admin,
        ):
            yield {"context": Context(settings, producer, admin, Inbox(settings.inbox))}

    app = FastAPI(title="Reminders", lifespan=clients)
    app.include_router(router)
    app.add_exception_handler(RmqliteError, _failed)
    app.add_exception_handler(RequestValidationError, _invalid)
    return app


def _invalid(_: Request, error: Exception) -> Response:
    """The answer repeats the input, which may be half an emoji: that is no UTF-8, so escape it."""
    assert isinstance(error, RequestValidationError)
    content = json.dumps({"detail": jsonable_encoder(error.errors())})
    return Response(content, 422, media_type="application/json")


def _failed(_: Request, error: Exception) -> JSONResponse:
    """Unavailable may work later; what is Refused has to be changed first."""
    can_retry = isinstance(error, RmqliteError) and error.can_retry
    return JSONResponse({"detail": str(error)}, 503 if can_retry else 422)


def _answer(changed: ChangedId) -> str:
    outcome = changed.outcome.name.lower()
    if (status := STATUS[changed.outcome]) != 200:
        raise HTTPException(status, outcome)
    return outcome


def _time(timestamp_ms: int) -> datetime:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)
