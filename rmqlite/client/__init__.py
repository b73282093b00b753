"""The client library: producers, consumers, administrators, readers of the raw log."""

from typing import Any, Final

from rmqlite.client.admin_client import AdminClient
from rmqlite.client.bulk import BulkMessage, BulkOutcome, BulkProgress, BulkScheduler, BulkStatus
from rmqlite.client.consuming.listener import (
    CONSUME_SUCCESS,
    DEAD_LETTER,
    RECONSUME_LATER,
    ConsumeResult,
    Listener,
    reconsume_later,
)
from rmqlite.client.consuming.pull_consumer import PullConsumer
from rmqlite.client.consuming.push_consumer import PushConsumer
from rmqlite.client.consuming.queue_reader import ConsumeFrom
from rmqlite.client.credentials import Credentials
from rmqlite.client.producer import Producer
from rmqlite.client.raw import RawReader
from rmqlite.features.bulk.requests import BulkJob, BulkMatch
from rmqlite.features.changes.requests import (
    ChangedId,
    ChangeOutcome,
    PendingFilter,
    PendingMessage,
    PendingQuery,
)
from rmqlite.features.dead_letters.requests import (
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    DeadLettersQuery,
    EventKind,
    History,
    HistoryEvent,
    PurgeRequest,
)
from rmqlite.features.redrive.requests import (
    DeadLetterOutcome,
    JobState,
    OutcomesQuery,
    RedriveJob,
    RedriveOutcome,
    RedriveResults,
    RedriveSpec,
)
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.requests.messages import PullStatus
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.message import Message, StoredMessage
from rmqlite.protocols.native.bytes.messages import PullResult, SendResult

__all__ = [
    "CONSUME_SUCCESS",
    "DEAD_LETTER",
    "RECONSUME_LATER",
    "AdminClient",
    "BulkJob",
    "BulkMatch",
    "BulkMessage",
    "BulkOutcome",
    "BulkProgress",
    "BulkScheduler",
    "BulkStatus",
    "ChangeOutcome",
    "ChangedId",
    "ConsumeFrom",
    "ConsumeResult",
    "Credentials",
    "DeadLetter",
    "DeadLetterFilter",
    "DeadLetterGroup",
    "DeadLetterOutcome",
    "DeadLettersQuery",
    "EventKind",
    "History",
    "HistoryEvent",
    "JobState",
    "Listener",
    "Message",
    "OutcomesQuery",
    "PendingFilter",
    "PendingMessage",
    "PendingQuery",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PurgeRequest",
    "PushConsumer",
    "Queue",
    "RawReader",
    "RedriveJob",
    "RedriveOutcome",
    "RedriveResults",
    "RedriveSpec",
    "ScheduleAction",
    "SendResult",
    "StoredMessage",
    "reconsume_later",
]

_FORMER_NAMES: Final = {
    "Hop": HistoryEvent,
    "HopKind": EventKind,
    "Letter": DeadLetter,
    "LetterFilter": DeadLetterFilter,
    "LettersQuery": DeadLettersQuery,
    "Life": History,
    "RedriveFates": RedriveResults,
    "RedrivenLetter": DeadLetterOutcome,
}
"""What programs written for rmqlite 0.8 import; the classes are the same."""


def __getattr__(name: str) -> Any:
    if name in _FORMER_NAMES:
        return _FORMER_NAMES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
