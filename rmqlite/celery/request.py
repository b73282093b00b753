"""The worker's request of a task, which tells the channel why it rejects a message."""

from __future__ import annotations

from typing import Any

from billiard.exceptions import WorkerLostError
from celery.worker import request


class Request(request.Request):
    """In the worker's main process."""

    def on_failure(self, exc_info: Any, *arguments: Any, **named: Any) -> Any:
        note = getattr(self.message.channel, "note_failure", None)
        if note is not None:
            error = exc_info.exception
            error = getattr(error, "exc", error)
            lost = isinstance(error, WorkerLostError)
            note(self.message.delivery_tag, error, is_lost=lost)
        return super().on_failure(exc_info, *arguments, **named)
