"""All calls of rmqlite.v1 and the limits of their fields: the kernel's and those of all features.

A new field of the proto needs a line here or in its feature, unless its name has a limit; a test
walks the proto and finds missing lines.  Each number has a name in the module of its noun, in
kernel/words/limits.py, or, if an operator may change it, in config.py.
"""

from __future__ import annotations

from typing import Any

from rmqlite.features.native import native_features
from rmqlite.features.rows import BY_NAME, GROUP, Limit, Row
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.words import limits
from rmqlite.kernel.words.errors import MessageTooLarge
from rmqlite.kernel.words.retry_policy import TEXT_CHARS_MAX
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.shared.bounded import RequestLimits


def all_rows() -> tuple[Row[Any, Any], ...]:
    """Every call that a broker answers."""
    kernel = [row for row in vars(rpcs).values() if isinstance(row, Row)]
    return (*kernel, *[row for feature in native_features() for row in feature.answers])


def limits_of(config: BrokerConfig) -> dict[str, Limit]:
    """The limit of every field that is repeated or has no fixed size, by name."""
    sent = Limit(total=config.send_bytes_max + limits.TEXTS_BYTES_MAX, error=MessageTooLarge)
    found = {
        **BY_NAME,
        "SendRequest.producer_group": GROUP,
        "SendRequest.batches": Limit(count=limits.BATCHES_MAX),
        "EncodedBatch.delay": Limit(size=limits.DELAY_BYTES_MAX),
        "EncodedBatch.messages": sent,
        "PullRequest.sql": Limit(size=limits.SQL_BYTES_MAX),
        "SendBackRequest.reason": Limit(size=limits.REASON_BYTES_MAX),
        "QueryOffsetsRequest.queues": Limit(count=limits.QUEUES_MAX),
        "CommitOffsetsRequest.offsets": Limit(count=limits.QUEUES_MAX),
        "HeartbeatRequest.subscriptions": Limit(count=limits.CALL_SUBSCRIPTIONS_MAX),
        "Subscription.sql": Limit(
            size=limits.SQL_BYTES_MAX, total=limits.SUBSCRIPTIONS_SQL_BYTES_MAX
        ),
        "SetGroupRequest.retry_policy": Limit(size=TEXT_CHARS_MAX),
        "ChangeLevelsRequest.message_delay_level": Limit(size=limits.LEVELS_TEXT_BYTES_MAX),
    }
    for feature in native_features():
        found |= feature.limits(config)
    return found


def native_limits(config: BrokerConfig) -> RequestLimits[Row[Any, Any]]:
    """The limits of one broker, for the requests of all its calls."""
    calls = {row: (rpc_of(row).request, row.bytes_max) for row in all_rows()}
    return RequestLimits(config, limits_of(config), calls)
