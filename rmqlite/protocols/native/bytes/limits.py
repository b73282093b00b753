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
from rmqlite.protocols.shared.bounded import Bounds


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
