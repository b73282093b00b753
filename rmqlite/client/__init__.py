"""The client library: producers, consumers, administrators, readers of the raw log."""

from rmqlite.client.admin.admin_client import AdminClient
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
from rmqlite.client.producing.bulk import (
    BulkMessage,
    BulkOutcome,
    BulkProgress,
    BulkScheduler,
    BulkStatus,
)
from rmqlite.client.producing.producer import Producer
from rmqlite.client.raw import RawReader
from rmqlite.message import Message, StoredMessage
from rmqlite.requests.bulk import BulkJob, BulkMatch
from rmqlite.requests.letters import (
    DeadLetterGroup,
    Hop,
    HopKind,
    Letter,
    LetterFilter,
    LettersQuery,
    Life,
    PurgeRequest,
)
from rmqlite.requests.messages import PullResult, PullStatus, SendResult
from rmqlite.requests.redrive import (
    JobState,
    OutcomesQuery,
    RedriveFates,
    RedriveJob,
    RedrivenLetter,
    RedriveOutcome,
    RedriveSpec,
)
from rmqlite.requests.schedule import (
    ChangedId,
    ChangeOutcome,
    PendingFilter,
    PendingMessage,
    PendingQuery,
    ScheduleAction,
)
from rmqlite.requests.topics import Queue

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
    "DeadLetterGroup",
    "Hop",
    "HopKind",
    "JobState",
    "Letter",
    "LetterFilter",
    "LettersQuery",
    "Life",
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
    "RedriveFates",
    "RedriveJob",
    "RedriveOutcome",
    "RedriveSpec",
    "RedrivenLetter",
    "ScheduleAction",
    "SendResult",
    "StoredMessage",
    "reconsume_later",
]
