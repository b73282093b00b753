"""The limits of every field of every request: one table for all calls of rmqlite.v1.

Each new field in the proto needs a line here; a test walks the proto and finds missing lines.
Each number has a name in the module of its noun, in kernel/words/limits.py, or, if an operator may
change it, in config.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from rmqlite.features.changes.requests import BOUNDS_MAX, IDS_MAX
from rmqlite.features.finding.requests import DEAD_LETTER_IDS_MAX, REASON_CHARS_MAX
from rmqlite.features.raw_log.requests import TOPICS_MAX
from rmqlite.features.redrive.requests import IMPORTED_DEAD_LETTERS_MAX, RedriveOutcome
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.words import limits
from rmqlite.kernel.words.errors import InvalidName, MessageTooLarge
from rmqlite.kernel.words.levels import LEVELS_MAX
from rmqlite.kernel.words.limits import JOB_ID_CHARS_MAX
from rmqlite.kernel.words.names import GROUP_BYTES_MAX, TOPIC_BYTES_MAX
from rmqlite.kernel.words.retry_policy import TEXT_CHARS_MAX
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.rpcs import Rpc
from rmqlite.protocols.shared.bounded import Bounds, Limit

SMALL_REQUEST_BYTES_MAX: Final = 128 << 10
LIST_REQUEST_BYTES_MAX: Final = 1 << 20

_TOPIC: Final = Limit(size=TOPIC_BYTES_MAX, error=InvalidName)
_GROUP: Final = Limit(size=GROUP_BYTES_MAX, error=InvalidName)
_SEARCHED: Final = Limit(size=limits.SEARCH_BYTES_MAX)
_TAGS: Final = Limit(size=limits.TAGS_BYTES_MAX)
_MESSAGE_ID: Final = Limit(size=limits.MESSAGE_ID_BYTES_MAX)
_REASON: Final = Limit(size=limits.REASON_BYTES_MAX)
_REASON_PART: Final = Limit(size=4 * limits.REASON_PART_CHARS_MAX)
_KIND: Final = Limit(size=4 * REASON_CHARS_MAX)
_LETTER_IDS: Final = Limit(count=DEAD_LETTER_IDS_MAX, total=limits.SEARCH_BYTES_MAX)
_CLIENT_ID: Final = Limit(size=limits.CLIENT_ID_BYTES_MAX)
_EXPRESSION: Final = Limit(size=limits.EXPRESSION_BYTES_MAX)
_SQL: Final = Limit(size=limits.SQL_BYTES_MAX)
_CURSOR: Final = Limit(size=limits.CURSOR_BYTES_MAX)
_JOB_ID: Final = Limit(size=JOB_ID_CHARS_MAX)
_PROPERTY: Final = Limit(size=limits.PROPERTIES_BYTES_MAX, error=MessageTooLarge)
_LEVELS: Final = Limit(count=LEVELS_MAX + 1)

_FIXED: Final[Mapping[str, Limit]] = {
    # sending
    "SendRequest.producer_group": _GROUP,
    "SendRequest.batches": Limit(count=limits.BATCHES_MAX),
    "EncodedBatch.topic": _TOPIC,
    "EncodedBatch.delay": Limit(size=limits.DELAY_BYTES_MAX),
    "ScheduleBulkRequest.job_id": _JOB_ID,
    # consuming
    "PullRequest.group": _GROUP,
    "PullRequest.topic": _TOPIC,
    "PullRequest.expression": _EXPRESSION,
    "PullRequest.sql": _SQL,
    "SendBackRequest.group": _GROUP,
    "SendBackRequest.reason": _REASON,
    "QueryOffsetsRequest.group": _GROUP,
    "QueryOffsetsRequest.queues": Limit(count=limits.QUEUES_MAX),
    "Queue.topic": _TOPIC,
    "CommitOffsetsRequest.group": _GROUP,
    "CommitOffsetsRequest.offsets": Limit(count=limits.QUEUES_MAX),
    "QueueOffset.topic": _TOPIC,
    "SearchOffsetRequest.topic": _TOPIC,
    "GetQueueRangesRequest.topic": _TOPIC,
    "HeartbeatRequest.group": _GROUP,
    "HeartbeatRequest.client_id": _CLIENT_ID,
    "HeartbeatRequest.subscriptions": Limit(count=limits.CALL_SUBSCRIPTIONS_MAX),
    "Subscription.topic": _TOPIC,
    "Subscription.expression": _EXPRESSION,
    "Subscription.sql": Limit(
        size=limits.SQL_BYTES_MAX,
        total=limits.SUBSCRIPTIONS_SQL_BYTES_MAX,
    ),
    "LeaveRequest.group": _GROUP,
    "LeaveRequest.client_id": _CLIENT_ID,
    # topics, groups and messages
    "GetRouteRequest.topic": _TOPIC,
    "Topic.topic": _TOPIC,
    "PreviewTopicDeletionRequest.topic": _TOPIC,
    "DeleteTopicRequest.topic": _TOPIC,
    "DescribeGroupRequest.group": _GROUP,
    "ListReasonsRequest.group": _GROUP,
    "DeleteGroupRequest.group": _GROUP,
    "ResetOffsetsRequest.group": _GROUP,
    "ResetOffsetsRequest.topic": _TOPIC,
    "SetGroupRequest.group": _GROUP,
    "SetGroupRequest.retry_policy": Limit(size=TEXT_CHARS_MAX),
    "QueryMessagesRequest.topic": _TOPIC,
    "QueryMessagesRequest.key": _SEARCHED,
    "GetMessageRequest.offset_message_id": _MESSAGE_ID,
    # the schedule
    "ListPendingRequest.cursor": _CURSOR,
    "PendingFilter.levels": _LEVELS,
    "PendingFilter.topic": _TOPIC,
    "PendingFilter.key": _SEARCHED,
    "PendingFilter.ids": _LETTER_IDS,
    "PendingFilter.origin_topic": _TOPIC,
    "PendingFilter.tag": _SEARCHED,
    "PendingFilter.reason": _REASON_PART,
    "PendingFilter.failure_kind": _KIND,
    "GetTimelineRequest.bounds_ms": Limit(count=BOUNDS_MAX),
    "GetTimelineRequest.levels": _LEVELS,
    "ChangeByIdsRequest.message_ids": replace(_SEARCHED, count=IDS_MAX),
    "ChangeByIdsRequest.topic": _TOPIC,
    "ChangeByFilterRequest.cursor": _CURSOR,
    "ChangeLevelsRequest.message_delay_level": Limit(size=limits.LEVELS_TEXT_BYTES_MAX),
    # letters and redrives
    "ListLettersRequest.group": _GROUP,
    "ListLettersRequest.cursor": _CURSOR,
    "LetterFilter.topic": _TOPIC,
    "LetterFilter.tag": _SEARCHED,
    "LetterFilter.key": _SEARCHED,
    "LetterFilter.reason": _REASON_PART,
    "LetterFilter.ids": _LETTER_IDS,
    "LetterFilter.failure_kind": _KIND,
    "LetterFilter.job_id": _JOB_ID,
    "PurgeDeadLettersRequest.group": _GROUP,
    "GetLifeRequest.message_id": _SEARCHED,
    "PreviewRedriveRequest.cursor": _CURSOR,
    "RedriveSpec.group": _GROUP,
    "RedriveSpec.to_topic": _TOPIC,
    "StartRedriveRequest.job_id": _JOB_ID,
    "GetRedriveJobRequest.job_id": _JOB_ID,
    "ImportLettersRequest.group": _GROUP,
    "ImportLettersRequest.letters": Limit(count=IMPORTED_DEAD_LETTERS_MAX),
    "ImportLettersRequest.to_topic": _TOPIC,
    "ImportedLetter.offset_message_id": _MESSAGE_ID,
    "ImportedLetter.properties": _PROPERTY,
    "ChangeRedriveJobRequest.job_id": _JOB_ID,
    "ListRedriveOutcomesRequest.job_id": _JOB_ID,
    "ListRedriveOutcomesRequest.outcomes": Limit(count=len(RedriveOutcome)),
    "ListRedriveOutcomesRequest.cursor": _CURSOR,
    "GetBulkJobRequest.job_id": _JOB_ID,
    # the log
    "GetLogSnapshotRequest.topics": Limit(
        size=TOPIC_BYTES_MAX, count=TOPICS_MAX, error=InvalidName
    ),
    "ReadQueueRequest.topic": _TOPIC,
}

_LISTS: Final = frozenset(
    {
        rpcs.QUERY_OFFSETS.name,
        rpcs.COMMIT_OFFSETS.name,
        rpcs.HEARTBEAT.name,
        rpcs.CHANGE_BY_IDS.name,
        rpcs.GET_LOG_SNAPSHOT.name,
    }
)
"""Calls whose requests have long lists."""


def limits_of(config: BrokerConfig) -> dict[str, Limit]:
    """The limit of every field that is repeated or has no fixed size, by "Message.field"."""
    several = Limit(
        count=config.bulk_messages_max, count_key="maxBulkMessages", error=MessageTooLarge
    )
    # MessageTooLarge makes a client split its call in two, and again, until the message that is
    # too large is alone and only it is refused.
    column = replace(several, size=limits.PROPERTIES_BYTES_MAX)
    text = Limit(size=limits.PROPERTIES_BYTES_MAX, error=MessageTooLarge)
    bodies = Limit(total=config.send_bytes_max, total_key="maxSendBytes", error=MessageTooLarge)
    return {
        **_FIXED,
        "EncodedBatch.messages": replace(
            bodies, total=config.send_bytes_max + limits.TEXTS_BYTES_MAX, total_key=""
        ),
        "ImportedLetter.body": bodies,
        "ScheduleBulkRequest.bodies": replace(
            bodies, count=several.count, count_key=several.count_key
        ),
        "ScheduleBulkRequest.message_ids": column,
        "ScheduleBulkRequest.topics": column,
        "ScheduleBulkRequest.tags": column,
        "ScheduleBulkRequest.keys": replace(column, total=limits.KEYS_BYTES_MAX),
        "ScheduleBulkRequest.properties": column,
        "ScheduleBulkRequest.delay_levels": several,
        "ScheduleBulkRequest.delays": column,
        "ScheduleBulkRequest.deliver_at_ms": several,
        "ScheduleBulkRequest.already_refused": several,
        "Refusal.message_id": text,
        "Refusal.code": text,
        "Refusal.sentence": text,
        "Refusal.field": text,
        "Refusal.value": text,
        "Refusal.rule": text,
    }


class NativeLimits:
    """The limits of one broker, for the requests of all its calls."""

    def __init__(self, config: BrokerConfig) -> None:
        fields = limits_of(config)
        beside = Limit(size=limits.TEXTS_BYTES_MAX, error=MessageTooLarge)
        whole = Limit(size=config.send_bytes_max + limits.TEXTS_BYTES_MAX, error=MessageTooLarge)
        self._bounds: dict[str, Bounds] = {}
        for rpc in rpcs.ALL:
            size = LIST_REQUEST_BYTES_MAX if rpc.name in _LISTS else SMALL_REQUEST_BYTES_MAX
            bounds = Bounds(rpc.request, fields, size=Limit(size=size, error=MessageTooLarge))
            if rpc in (rpcs.SEND, rpcs.SCHEDULE_BULK, rpcs.IMPORT_LETTERS):
                bounds = Bounds(rpc.request, fields, size=whole, beside=beside)
            self._bounds[rpc.path] = bounds

    def check(self, rpc: Rpc[Any, Any], data: bytes) -> int:
        """Check a request's bytes before they are parsed; how many stand beside the bodies.

        Raises InvalidValue, InvalidName or MessageTooLarge, with the field, its length or count,
        and the rule.
        """
        return self._bounds[rpc.path].check(data)
