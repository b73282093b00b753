"""What a record leaves out if its property string is longer than a record can carry.

A message that this broker has accepted has room for what names its origin and for the place where
it waits (SENT_PROPERTIES_BYTES_MAX).  Everything else that the broker adds is left out one by one;
a reason is first cut to what is left.  The pairs of the message itself go last of all: only a
message of RocketMQ or of an older broker can be so long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rmqlite.kernel.words.message import (
    CLAIMED_ORIGIN_MESSAGE_ID,
    DELIVERY_ATTEMPTS,
    DLQ_ORIGIN_MESSAGE_ID,
    FAILURE_REASON,
    FAILURE_REASON_ATTEMPT,
    FIRST_FAILURE_TIMESTAMP,
    LAST_FAILURE_TIMESTAMP,
    ORIGIN_MESSAGE_ID,
    ORIGIN_QUEUE_ID,
    ORIGIN_QUEUE_OFFSET,
    REDRIVEN_BY,
    REDRIVEN_FROM,
    REDRIVEN_MESSAGE_ID,
    REDRIVEN_TIMES,
    RESERVED_PROPERTIES,
)
from rmqlite.kernel.words.property_string import PropertyString

SPARED: Final = (
    FAILURE_REASON,
    FAILURE_REASON_ATTEMPT,
    DLQ_ORIGIN_MESSAGE_ID,
    ORIGIN_QUEUE_OFFSET,
    ORIGIN_QUEUE_ID,
    FIRST_FAILURE_TIMESTAMP,
    LAST_FAILURE_TIMESTAMP,
    DELIVERY_ATTEMPTS,
    CLAIMED_ORIGIN_MESSAGE_ID,
    REDRIVEN_TIMES,
    REDRIVEN_BY,
    REDRIVEN_MESSAGE_ID,
    REDRIVEN_FROM,
    ORIGIN_MESSAGE_ID,
)
"""What a failed message does without, in this order."""
_CHANGE_BYTES: Final = 64
"""A reason that is cut leaves so much free: a retry that waits may be rescheduled."""


class Spared(NamedTuple):
    """How a property string is edited so that it fits."""

    changes: dict[str, str | bytes]
    without: frozenset[str]

    def of(self, properties: PropertyString) -> PropertyString:
        is_same = not self.changes and not self.without
        return properties if is_same else properties.edited(self.changes, self.without)


_AS_IT_IS: Final = Spared({}, frozenset())


def left_after_sparing(
    properties: PropertyString, bytes_max: int, names: Sequence[str] = SPARED
) -> Spared | None:
    """What is left without the first of these properties; None if that is not enough."""
    too_long = len(properties.encoded) - bytes_max
    if too_long <= 0:
        return _AS_IT_IS
    gone: set[str] = set()
    for name in names:
        value = properties.get(name)
        if value is None:
            continue
        if name == FAILURE_REASON:
            kept = value[: max(0, len(value) - too_long - _CHANGE_BYTES)]
            reason = kept.decode("utf-8", "ignore").rstrip()
            if reason:
                return _if_it_fits(Spared({name: reason}, frozenset(gone)), properties, bytes_max)
            # Without its reason, the number of its attempt says nothing.
            gone.add(FAILURE_REASON_ATTEMPT)
        gone.add(name)
        too_long -= len(name) + len(value) + 2
        if too_long <= 0:
            break
    return _if_it_fits(Spared({}, frozenset(gone)), properties, bytes_max)


def _if_it_fits(left: Spared, properties: PropertyString, bytes_max: int) -> Spared | None:
    return left if len(left.of(properties).encoded) <= bytes_max else None


def without_longest(own: PropertyString, too_long: int) -> PropertyString:
    """A property string that is shorter by at least so many bytes, without its longest pairs.

    Those that RocketMQ gives a meaning (id, keys, tags, destination) go after all others.
    """
    parts = own.encoded.split(b"\x02")

    def last_needed(at: int) -> tuple[bool, int]:
        name = parts[at].partition(b"\x01")[0].decode("utf-8", "replace")
        return name in RESERVED_PROPERTIES, -len(parts[at])

    gone = set()
    for at in sorted(range(len(parts)), key=last_needed):
        if too_long <= 0:
            break
        gone.add(at)
        too_long -= len(parts[at]) + 1
    return PropertyString(b"\x02".join([part for at, part in enumerate(parts) if at not in gone]))
