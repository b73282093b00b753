"""The client library: producers, consumers, administrators, readers of the raw log.

Values that are sent and answered are imported at once.  What makes calls is imported when it is
asked for: the command line and executors of Spark use the values, and wait for no gRPC.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from rmqlite.features.bulk.requests import BulkJob, BulkMatch
from rmqlite.features.changes.requests import (
    CHANGED_IDS_MAX,
    PENDING_PAGE_MAX,
    TIMELINE_BOUNDS_MAX,
    ChangeByFilter,
    ChangeByIds,
    ChangedId,
    ChangeOutcome,
    LevelTimeline,
    PendingCount,
    PendingFilter,
    PendingMessage,
    PendingPage,
    PendingQuery,
)
from rmqlite.features.dead_letters.requests import (
    DEAD_LETTERS_MAX,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    DeadLetterPage,
    DeadLettersQuery,
    EventKind,
    History,
    HistoryEvent,
    Purged,
    PurgeRequest,
)
from rmqlite.features.finding.requests import (
    FoundMessage,
    FoundMessages,
    MessageQuery,
    MessageState,
    Place,
)
from rmqlite.features.operating.requests import (
    GroupStatus,
    OffsetReset,
    QueueProgress,
    QueueReset,
    TopicLoss,
)
from rmqlite.features.redrive.requests import (
    IMPORTED_DEAD_LETTERS_MAX,
    DeadLetterOutcome,
    ImportAnswer,
    ImportedDeadLetter,
    ImportRequest,
    JobState,
    OutcomesQuery,
    ReadersOfTopic,
    RedriveJob,
    RedriveOutcome,
    RedrivePreview,
    RedriveResults,
    RedriveSpec,
)
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.requests.messages import PullStatus
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.message import Message, StoredMessage
from rmqlite.protocols.native.bytes.messages import PullResult, SendResult

if TYPE_CHECKING:
    from rmqlite.client.admin_client import AdminClient
    from rmqlite.client.bulk import (
        BulkMessage,
        BulkOutcome,
        BulkProgress,
        BulkScheduler,
        BulkStatus,
    )
    from rmqlite.client.consuming.listener import (
        CONSUME_SUCCESS,
        DEAD_LETTER,
        RECONSUME_LATER,
        ConsumeResult,
        Listener,
        RetryLater,
        reconsume_later,
    )
    from rmqlite.client.consuming.pull_consumer import PullConsumer
    from rmqlite.client.consuming.push_consumer import PushConsumer
    from rmqlite.client.consuming.queue_reader import ConsumeFrom
    from rmqlite.client.consuming.simple_consumer import LeasedMessage, SimpleConsumer
    from rmqlite.client.credentials import Credentials
    from rmqlite.client.producer import Producer
    from rmqlite.client.raw import RawReader

__all__ = [
    "CHANGED_IDS_MAX",
    "CONSUME_SUCCESS",
    "DEAD_LETTER",
    "DEAD_LETTERS_MAX",
    "IMPORTED_DEAD_LETTERS_MAX",
    "PENDING_PAGE_MAX",
    "RECONSUME_LATER",
    "TIMELINE_BOUNDS_MAX",
    "AdminClient",
    "BulkJob",
    "BulkMatch",
    "BulkMessage",
    "BulkOutcome",
    "BulkProgress",
    "BulkScheduler",
    "BulkStatus",
    "ChangeByFilter",
    "ChangeByIds",
    "ChangeOutcome",
    "ChangedId",
    "ConsumeFrom",
    "ConsumeResult",
    "Credentials",
    "DeadLetter",
    "DeadLetterFilter",
    "DeadLetterGroup",
    "DeadLetterOutcome",
    "DeadLetterPage",
    "DeadLettersQuery",
    "EventKind",
    "FoundMessage",
    "FoundMessages",
    "GroupStatus",
    "History",
    "HistoryEvent",
    "ImportAnswer",
    "ImportRequest",
    "ImportedDeadLetter",
    "JobState",
    "LeasedMessage",
    "LevelTimeline",
    "Listener",
    "Message",
    "MessageQuery",
    "MessageState",
    "OffsetReset",
    "OutcomesQuery",
    "PendingCount",
    "PendingFilter",
    "PendingMessage",
    "PendingPage",
    "PendingQuery",
    "Place",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PurgeRequest",
    "Purged",
    "PushConsumer",
    "Queue",
    "QueueProgress",
    "QueueReset",
    "RawReader",
    "ReadersOfTopic",
    "RedriveJob",
    "RedriveOutcome",
    "RedrivePreview",
    "RedriveResults",
    "RedriveSpec",
    "RetryLater",
    "ScheduleAction",
    "SendResult",
    "SimpleConsumer",
    "StoredMessage",
    "TopicLoss",
    "reconsume_later",
]

_WITH_CALLS: Final = (
    "admin_client",
    "bulk",
    "consuming.listener",
    "consuming.pull_consumer",
    "consuming.push_consumer",
    "consuming.queue_reader",
    "consuming.simple_consumer",
    "credentials",
    "producer",
    "raw",
)
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
    if name in __all__:
        for module in _WITH_CALLS:
            found = vars(import_module(f"rmqlite.client.{module}"))
            if name in found:
                return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
