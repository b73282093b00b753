"""What Celery's names and times are in the broker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import instant_ms

_UNFIT: Final = re.compile(rb"[^a-zA-Z0-9_-]")
_UNFIT_IN_TOKEN: Final = re.compile(rb"[^a-zA-Z0-9_.:@/-]")


def _escaped(unfit: re.Pattern[bytes], text: str) -> str:
    """With %XX for each byte that is unfit: no two texts become one."""
    return unfit.sub(lambda each: b"%%%02X" % ord(each[0]), text.encode()).decode()


def topic_of(queue: str) -> str:
    """The topic, and the consumer group, of a queue; the topic of an exchange that all hear."""
    return _escaped(_UNFIT, queue)


def tag_of(task: str) -> str:
    """The tag of messages of a task with this name."""
    return _escaped(_UNFIT_IN_TOKEN, task)


def key_of(task_id: str) -> str:
    """The message key of a task; no message of others has it: who revokes a task cancels all."""
    return f"celery:{_escaped(_UNFIT_IN_TOKEN, task_id)}"


def due_ms(headers: Mapping[str, Any]) -> int:
    """When a task's message is due, in milliseconds since 1970; 0 is now.

    Celery writes eta in ISO 8601, for a countdown, too; without a zone it is UTC.
    Raises InvalidValue.
    """
    eta = headers.get("eta")
    if not eta:
        return 0
    try:
        at = datetime.fromisoformat(eta)
    except (TypeError, ValueError):
        raise InvalidValue("eta", eta, "a time in ISO 8601") from None
    at_ms = instant_ms("eta", at if at.tzinfo else at.replace(tzinfo=UTC))
    return at_ms if at_ms > wall_ms() else 0
