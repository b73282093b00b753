"""The limits of every field of every request, and which calls there are: the kernel's and those of
all features.

Each new field in the proto needs a line here or in its feature; a test walks the proto and finds
missing lines.  Each number has a name in the module of its noun, in kernel/words/limits.py, or, if
an operator may change it, in config.py.
"""

from __future__ import annotations

from typing import Any, Final

from rmqlite.features.native import Limits, native_features
from rmqlite.features.rows import GROUP, TOPIC, Limit, Row
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.words import limits
from rmqlite.kernel.words.errors import MessageTooLarge
from rmqlite.kernel.words.retry_policy import TEXT_CHARS_MAX
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.shared.bounded import Bounds

_REASON: Final = Limit(size=limits.REASON_BYTES_MAX)
_CLIENT_ID: Final = Limit(size=limits.CLIENT_ID_BYTES_MAX)
_EXPRESSION: Final = Limit(size=limits.EXPRESSION_BYTES_MAX)
_SQL: Final = Limit(size=limits.SQL_BYTES_MAX)

_OF_KERNEL: Final[Limits] = {
    # sending
    "SendRequest.producer_group": GROUP,
    "SendRequest.batches": Limit(count=limits.BATCHES_MAX),
    "EncodedBatch.topic": TOPIC,
    "EncodedBatch.delay": Limit(size=limits.DELAY_BYTES_MAX),
    # consuming
    "PullRequest.group": GROUP,
    "PullRequest.topic": TOPIC,
    "PullRequest.expression": _EXPRESSION,
    "PullRequest.sql": _SQL,
    "SendBackRequest.group": GROUP,
    "SendBackRequest.reason": _REASON,
    "QueryOffsetsRequest.group": GROUP,
    "QueryOffsetsRequest.queues": Limit(count=limits.QUEUES_MAX),
    "Queue.topic": TOPIC,
    "CommitOffsetsRequest.group": GROUP,
    "CommitOffsetsRequest.offsets": Limit(count=limits.QUEUES_MAX),
    "QueueOffset.topic": TOPIC,
    "SearchOffsetRequest.topic": TOPIC,
    "GetQueueRangesRequest.topic": TOPIC,
    "HeartbeatRequest.group": GROUP,
    "HeartbeatRequest.client_id": _CLIENT_ID,
    "HeartbeatRequest.subscriptions": Limit(count=limits.CALL_SUBSCRIPTIONS_MAX),
    "Subscription.topic": TOPIC,
    "Subscription.expression": _EXPRESSION,
    "Subscription.sql": Limit(
        size=limits.SQL_BYTES_MAX,
        total=limits.SUBSCRIPTIONS_SQL_BYTES_MAX,
    ),
    "LeaveRequest.group": GROUP,
    "LeaveRequest.client_id": _CLIENT_ID,
    # topics, groups and levels
    "GetRouteRequest.topic": TOPIC,
    "Topic.topic": TOPIC,
    "SetGroupRequest.group": GROUP,
    "SetGroupRequest.retry_policy": Limit(size=TEXT_CHARS_MAX),
    "ChangeLevelsRequest.message_delay_level": Limit(size=limits.LEVELS_TEXT_BYTES_MAX),
}


def all_rows() -> tuple[Row[Any, Any], ...]:
    """Every call that a broker answers."""
    kernel = [row for row in vars(rpcs).values() if isinstance(row, Row)]
    return (*kernel, *[row for feature in native_features() for row in feature.answers])


def limits_of(config: BrokerConfig) -> dict[str, Limit]:
    """The limit of every field that is repeated or has no fixed size, by "Message.field"."""
    found = {
        **_OF_KERNEL,
        "EncodedBatch.messages": Limit(
            total=config.send_bytes_max + limits.TEXTS_BYTES_MAX, error=MessageTooLarge
        ),
    }
    for feature in native_features():
        found |= {**feature.limits, **feature.sized(config)}
    return found


class NativeLimits:
    """The limits of one broker, for the requests of all its calls."""

    def __init__(self, config: BrokerConfig) -> None:
        fields = limits_of(config)
        beside = Limit(size=limits.TEXTS_BYTES_MAX, error=MessageTooLarge)
        whole = Limit(size=config.send_bytes_max + limits.TEXTS_BYTES_MAX, error=MessageTooLarge)
        self._bounds: dict[Row[Any, Any], Bounds] = {}
        for row in all_rows():
            request = rpc_of(row).request
            if row.bytes_max is None:
                self._bounds[row] = Bounds(request, fields, size=whole, beside=beside)
            else:
                size = Limit(size=row.bytes_max, error=MessageTooLarge)
                self._bounds[row] = Bounds(request, fields, size=size)

    def check(self, row: Row[Any, Any], data: bytes) -> int:
        """Check a request's bytes before they are parsed; how many stand beside the bodies.

        Raises InvalidValue, InvalidName or MessageTooLarge, with the field, its length or count,
        and the rule.
        """
        return self._bounds[row].check(data)
