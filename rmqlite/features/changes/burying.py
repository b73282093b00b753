"""A retry that waits becomes a dead letter now, without another attempt.

One record does it: it lies in %DLQ%group and completes the waiting one, whose level or instant it
keeps (kernel/records/completion.py).  The failed attempts are those of the retry; what an operator
says of it is the reason.
"""

from __future__ import annotations

from rmqlite.features.changes.requests import ChangeByFilter, ChangeByIds
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.retry import origin_of, printable_reason
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import (
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    FAILURE_REASON,
    FAILURE_REASON_ATTEMPT,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
)
from rmqlite.kernel.words.names import is_retry
from rmqlite.kernel.words.property_string import PropertyString

_RULE = "%RETRY%group: only what its group has failed can be buried"


def check_burying(request: ChangeByIds | ChangeByFilter) -> None:
    """Raises InvalidValue unless a BURY names a group's retries, and only a BURY has a reason."""
    is_burying = request.action is ScheduleAction.BURY
    if request.reason and not is_burying:
        rule = f"left out: {request.action.name} takes no reason"
        raise InvalidValue("reason", request.reason, rule)
    topic = request.topic if isinstance(request, ChangeByIds) else request.filter.topic
    if is_burying and not is_retry(topic):
        raise InvalidValue("topic", topic, _RULE)


def buried(waiting: Record, reason: str) -> PropertyString:
    """The property string of the dead letter.  Without a reason it has that of the last failure."""
    own = waiting.properties
    origin = origin_of(waiting.head)
    changes: dict[str, str | bytes] = {DLQ_ORIGIN_TOPIC: origin, RETRY_TOPIC: origin}
    if (first_id := own.get(ORIGIN_MESSAGE_ID)) is not None:
        changes[DLQ_ORIGIN_MESSAGE_ID] = first_id
    if text := printable_reason(reason):
        changes[FAILURE_REASON] = text
        return own.edited(changes, frozenset({FAILURE_REASON_ATTEMPT}))
    return own.edited(changes)
