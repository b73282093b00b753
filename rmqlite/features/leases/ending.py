"""The end of leases: in time, by a client's word, or because the client is gone.

Of an ordinary group a message that has failed becomes a retry or a dead letter, like one that a
consumer sends back.  Of a group that consumes in order it is visible again in its place, until it
has failed too often.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from rmqlite.features.leases.lease_table import RENEWED_MS, LeaseTable
from rmqlite.features.leases.leased_queue import (
    RETURNS_MAX,
    Lease,
    LeasedQueue,
    Places,
    begun_ms,
    was_received,
)
from rmqlite.kernel.failing import Failed, Failing
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.words.errors import Refused

RENEWED_MS_MAX: Final = 3 * 3_600_000
"""For so long a lease is renewed: a listener that takes longer is stuck."""
BROKE: Final = "the answer with this message broke twice: is it larger than its consumer takes?"
CAME_BACK: Final = f"its consumers gave it back {RETURNS_MAX + 1} times and never failed it"
EXPIRED_AT_ONCE: Final = 32
"""How many messages a step of expire() makes retries of, in 5 ms."""

log = logging.getLogger(__name__)


class Ending:
    """Ends the leases of a table."""

    def __init__(self, parts: BrokerParts, failing: Failing, table: LeaseTable) -> None:
        self._parts = parts
        self._failing = failing
        self._table = table

    def expire(self) -> int | None:
        """Do a step of what is due: renew leases, or end them.  When the next step is due.

        Raises StoreUnavailable: then the leases stay.
        """
        table = self._table
        table.write_again()
        now_ms, ended = self._parts.clock.now_ms(), 0
        while (lease := table.first_to_end()) is not None and lease.until_ms <= now_ms:
            if ended >= EXPIRED_AT_ONCE:
                return now_ms
            if not lease.left:
                table.drop_if_empty(lease)
            elif self._is_renewable(lease, now_ms):
                table.renew(lease, now_ms + RENEWED_MS)
                ended += 1
            else:
                ended += self._end(lease)
        return lease.until_ms if lease else None

    def _is_renewable(self, lease: Lease, now_ms: int) -> bool:
        """The first time in any case: a client may receive before its first heartbeat, and one that
        has got a doubtful answer can acknowledge it.
        """
        if not lease.is_renewed or not was_received(lease):
            return lease.is_renewed
        is_member = self._parts.membership.is_member(lease.group, lease.client_id)
        is_stuck = now_ms - begun_ms(lease) >= RENEWED_MS_MAX
        return is_member and not lease.is_doubtful and not is_stuck

    def _end(self, lease: Lease) -> int:
        """End the lease of messages of one queue; how many they are."""
        places = lease.held()[:1]
        queue, offsets = places[0]
        if lease.counts:
            self._fail_or_stay(lease, queue, offsets)
        else:
            self.give_back(lease, places)
        return len(offsets)

    def give_back(self, lease: Lease, places: Places, *, is_broken: bool = False) -> None:
        """Messages are visible again; they have not failed, unless they came back too often.

        Every way back that counts nothing ends here.  is_broken: the answer with them broke; then
        they are answered alone, and the next break is a failed attempt.  Raises StoreUnavailable.
        """
        for queue, offsets in places:
            failed = [each for each in offsets if queue.is_spent(each, is_broken=is_broken)]
            returned = [each for each in offsets if each not in failed]
            if returned:
                self._table.give_back(lease, [(queue, returned)], counts=False)
                queue.came_back(returned, is_broken=is_broken)
            if failed:
                self._fail_or_stay(lease, queue, failed, BROKE if is_broken else CAME_BACK)

    def _fail_or_stay(
        self, lease: Lease, queue: LeasedQueue, offsets: Sequence[int], reason: str = ""
    ) -> None:
        try:
            self.fail(lease.group, queue, offsets, reason=reason)
        except Refused as error:
            # For example, the group was deleted, and is not made on demand.
            log.warning("messages that failed wait in place group=%s error=%s", lease.group, error)
            self._table.give_back(lease, [(queue, offsets)], counts=False)

    def fail(
        self,
        group: str,
        queue: LeasedQueue,
        offsets: Sequence[int],
        *,
        delay_ms: int | None = 0,
        is_dead: bool = False,
        reason: str = "",
    ) -> None:
        """Messages have failed: each is a retry, a dead letter, or visible again in its place.

        delay_ms: of a retry; None: as the group's policy says.

        Raises what Failing.record() raises, and StoreUnavailable: then they stay leased.
        """
        in_order = self.is_in_order(group)
        done: list[int] = []
        visible: list[int] = []
        failed: list[Failed] = []
        for offset, record in self._table.records(queue, offsets):
            if record is None:
                done.append(offset)
                continue
            request = SendBackRequest(
                group, record.head.physical_offset, delay_level=-1 if is_dead else 0, reason=reason
            )
            what = self._failing.record(
                record,
                request,
                delay_ms=delay_ms,
                failed_in_place=queue.failed_in_place.get(offset, 0),
            )
            if in_order and not what.failure.is_dead:
                visible.append(offset)
            else:
                done.append(offset)
                failed.append(what)
        if done:
            self._table.finish(group, [(queue, done)], failed)
        for offset in visible:
            self._table.give_back(queue.leased[offset], [(queue, [offset])], counts=True)

    def is_in_order(self, group: str) -> bool:
        info = self._parts.groups.get(group)
        return info is not None and info.orderly
