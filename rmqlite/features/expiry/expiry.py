"""Leaves out what has expired when messages are handed to a group.

A message says in EXPIRES_AT_MS until when it may be handed out; nothing waits for that time, and
the message stays in the log.  Each group decides by itself: for one that comes too late the message
is skipped and counted, or becomes its dead letter.  A retry keeps the property, so it expires, too.
Dead letters do not expire, and neither does anything for readers that are no group.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Final

from rmqlite.kernel import Steps
from rmqlite.kernel.admission import check_draft, has_timer, level_of
from rmqlite.kernel.failing import Failing
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.reading import outlines
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import WAIT_TOPICS
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.retry import is_in_chain, place_properties
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import INSTANT_MS_MAX, INSTANT_MS_MIN
from rmqlite.kernel.words.message import (
    EXPIRES_AT_MS,
    ORIGIN_MESSAGE_ID,
    UNIQ_KEY,
    find_property,
    property_marker,
)
from rmqlite.kernel.words.names import TOOLS_GROUP, dlq_topic, is_dlq
from rmqlite.kernel.words.property_string import PropertyString

REASON: Final = "expired"
"""The reason of its dead letters."""
DEAD_AT_ONCE: Final = 8
"""How many messages a step makes dead letters of, in 5 ms."""
SAME_ID_MAX: Final = 8
"""How many dead letters with a message's id, or its hash, are looked at."""
HANDLED_MAX: Final = 20_000
"""So many messages are known to have expired for a group, with 200 bytes each."""
_MARK: Final = f"{EXPIRES_AT_MS}\x01".encode()
_MARKER: Final = property_marker(EXPIRES_AT_MS)
_ORIGIN: Final = property_marker(ORIGIN_MESSAGE_ID)
_DIGITS: Final = re.compile(rb"[0-9]{1,15}")
_RULE: Final = f"milliseconds since 1970, from {INSTANT_MS_MIN} to {INSTANT_MS_MAX}"


class Expiry:
    """What has expired, by the broker's clock."""

    def __init__(self, parts: BrokerParts, failing: Failing) -> None:
        self._parts = parts
        self._failing = failing
        self._handled: OrderedDict[tuple[str, int], None] = OrderedDict()
        """By group and physical offset what was counted, and is a dead letter if the group wants
        that: another member, or another topic of a retry queue, may come by it again.  A restart
        forgets it, and then counts once more what comes again."""

    def check_expiring(
        self, draft: Draft, *, is_alone: bool = True, is_failed: bool = False
    ) -> None:
        """check_draft(), and InvalidValue for a time that is none, or at which it still waits.

        One that has expired already is accepted: it was sent in time, perhaps, and came late.
        """
        check_draft(draft, is_alone=is_alone, is_failed=is_failed)
        if _MARK not in draft.properties:
            return
        own = PropertyString(draft.properties)
        if (given := own.get(EXPIRES_AT_MS)) is None:
            return
        at_ms = _instant(given)
        if at_ms is None:
            raise InvalidValue(EXPIRES_AT_MS, own.text(EXPIRES_AT_MS), _RULE)
        due_ms = self._due_ms(draft.properties)
        if due_ms and at_ms <= due_ms:
            rule = f"later than {due_ms}, when the message is due"
            raise InvalidValue(EXPIRES_AT_MS, at_ms, rule)

    def _due_ms(self, properties: bytes) -> int:
        """When a message that waits is due; 0: at once."""
        now_ms = self._parts.clock.now_ms()
        if level := level_of(properties):
            return now_ms + self._parts.store.levels.current.delay_ms(level)
        return self._parts.timers.due_ms(properties, now_ms) if has_timer(properties) else 0

    def left(self, group: str, found: Sequence[Record]) -> Steps[Sequence[Record]]:
        """The records that have not expired for a group, in steps.

        Raises StoreUnavailable: what has expired and is no dead letter yet waits for its turn.
        """
        timed = [record for record in found if _MARK in record.head.properties]
        if not timed or self._sees_all(group, timed[0].head.topic):
            return found
        now_ms = self._parts.clock.now_ms()
        gone = [record for record in timed if _has_expired(record, now_ms)]
        if not gone:
            return found
        info = self._parts.groups.get(group)
        buries = info is not None and info.bury_expired
        dead = 0
        for record in gone:
            key = (group, record.head.physical_offset)
            if key in self._handled:
                self._handled.move_to_end(key)
                continue
            if buries:
                if dead and dead % DEAD_AT_ONCE == 0:
                    yield
                dead += 1
                self._bury(group, record)
            self._note(key)
        expired = {record.head.physical_offset for record in gone}
        return [record for record in found if record.head.physical_offset not in expired]

    def _sees_all(self, group: str, topic: str) -> bool:
        """Broadcasting members have no retries, and no offset of the group moves behind them."""
        if group == TOOLS_GROUP or is_dlq(topic) or topic in WAIT_TOPICS:
            return True
        return self._parts.membership.is_broadcasting(group)

    def _bury(self, group: str, record: Record) -> None:
        at = record.head.physical_offset
        # A consumer that has failed it just now has made its retry, which expires by itself.
        if self._failing.sent_back.result(SendBackRequest(group, at)) is not None:
            return
        if not self._is_dead(group, record):
            request = SendBackRequest(group, at, delay_level=-1, reason=REASON)
            self._failing.send_back(request)

    def _is_dead(self, group: str, record: Record) -> bool:
        """Is there a dead letter of it already?  After a crash a group comes by again."""
        own, first = record.properties, place_properties(record.head)[ORIGIN_MESSAGE_ID]
        if is_in_chain(record.head.topic, group):
            first = own.text(ORIGIN_MESSAGE_ID)
        if not (message_id := own.text(UNIQ_KEY)):
            return False
        dead = islice(outlines(self._parts.store, dlq_topic(group), message_id), SAME_ID_MAX)
        return any(find_property(each.properties, _ORIGIN) == first.encode() for each in dead)

    def _note(self, key: tuple[str, int]) -> None:
        self._parts.counts.expired[key[0]] += 1
        self._handled[key] = None
        if len(self._handled) > HANDLED_MAX:
            self._handled.popitem(last=False)


def _has_expired(record: Record, now_ms: int) -> bool:
    """A value that the broker would refuse is none: RocketMQ may have stored it."""
    at_ms = _instant(find_property(record.head.properties, _MARKER) or b"")
    return at_ms is not None and at_ms <= now_ms


def _instant(text: bytes) -> int | None:
    at_ms = int(text) if _DIGITS.fullmatch(text) else 0
    return at_ms if INSTANT_MS_MIN <= at_ms <= INSTANT_MS_MAX else None
