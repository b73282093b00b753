"""What waits in the schedule, asked for and changed: AdminClient.schedule.

A question or a change that is larger than one call may be is made in several, one after the
other.  What an error interrupts is done up to some call, and the error's note says how far.
No change is repeated here: one whose answer was lost may have been made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from rmqlite.client.channel import Connection
from rmqlite.errors import RmqliteError
from rmqlite.requests.paging import pages
from rmqlite.requests.schedule import (
    CHANGES_MAX,
    IDS_MAX,
    ChangeByFilter,
    ChangeByIds,
    ChangedId,
    LevelTimeline,
    PendingCount,
    PendingFilter,
    PendingMessage,
    PendingPage,
    PendingQuery,
    ScheduleAction,
    TimelineRequest,
)
from rmqlite.wire import rpcs

EVERYTHING = PendingFilter()


class ScheduleAdmin:
    """Asks the broker behind a connection about its schedule, timeout_s for each call.

    Every method raises RmqliteError: InvalidValue for what breaks a limit, Unavailable when
    it may work later.
    """

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    # ---- seeing

    def list_pending(self, query: PendingQuery) -> PendingPage:
        """One page of what waits, in the order in which it comes due; it may be empty.

        There are more while the page has a cursor, whatever else is on it.  Where thousands
        have had the same key, only each thousand of them is in due order, the newest first.
        """
        return self._ask(rpcs.LIST_PENDING, query)

    def pending(
        self, filter: PendingFilter = EVERYTHING, *, page: int = 0
    ) -> Iterator[PendingMessage]:
        """All that waits and fits, in the order of list_pending(), page by page as it is needed.

        page: messages a call, 1 to 1,000; 0 means 100.
        """
        query = PendingQuery(filter, max_messages=page)
        for got in pages(self.list_pending, query):
            yield from got.messages

    def count_pending(self) -> tuple[PendingCount, ...]:
        """How many messages wait, for every level and topic that has any; by level, then topic."""
        return self._ask(rpcs.COUNT_PENDING, None)

    def timeline(
        self, bounds_ms: tuple[int, ...], levels: tuple[int, ...] = ()
    ) -> tuple[LevelTimeline, ...]:
        """How many come due before, between and after these instants, for every level.

        bounds_ms: up to BOUNDS_MAX, ascending, on the broker's clock (broker_status().now_ms).
        levels: none is all.
        """
        return self._ask(rpcs.GET_TIMELINE, TimelineRequest(bounds_ms, levels))

    # ---- changing, by message id

    def cancel(
        self, *message_ids: str, topic: str = "", dry_run: bool = False
    ) -> tuple[ChangedId, ...]:
        """These are not delivered any more; returns when that is on disk.

        topic: only what would be delivered there; %RETRY%group for a group's retries.
        dry_run: only say what would become of each.
        """
        return self.change_by_ids(
            ChangeByIds(ScheduleAction.CANCEL, message_ids, topic, dry_run=dry_run)
        )

    def fire(
        self, *message_ids: str, topic: str = "", dry_run: bool = False
    ) -> tuple[ChangedId, ...]:
        """These are delivered at once; else like cancel()."""
        return self.change_by_ids(
            ChangeByIds(ScheduleAction.FIRE, message_ids, topic, dry_run=dry_run)
        )

    def reschedule(
        self, *message_ids: str, delay_level: int, topic: str = "", dry_run: bool = False
    ) -> tuple[ChangedId, ...]:
        """These wait once more, from now on, as long as delay_level says; else like cancel()."""
        return self.change_by_ids(
            ChangeByIds(ScheduleAction.RESCHEDULE, message_ids, topic, delay_level, dry_run)
        )

    def change_by_ids(self, change: ChangeByIds) -> tuple[ChangedId, ...]:
        """What became of each message id, in the order in which they are given.

        That one does not wait is an answer, not an error.  More than IDS_MAX ids go in several
        calls; after an error it is safe to ask again, but for a RESCHEDULE that starts anew.
        """
        ids = change.message_ids
        changed: list[ChangedId] = []
        for start in range(0, len(ids), IDS_MAX):
            part = replace(change, message_ids=ids[start : start + IDS_MAX])
            try:
                answered = self._ask(rpcs.CHANGE_BY_IDS, part)
            except RmqliteError as error:
                if start:
                    error.add_note(f"{start} of {len(ids)} message ids were answered before this")
                raise
            changed.extend(answered)
        return tuple(changed)

    # ---- changing, by what they are

    def change_pending(
        self,
        action: ScheduleAction,
        filter: PendingFilter,
        *,
        delay_level: int = 0,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Change all that wait and fit when the first call is made; how many those are.

        delay_level: the new one, of a RESCHEDULE.  dry_run: only count.  progress: is told
        after every call how many it has been so far.
        """
        # A count may take larger steps than a change, which keeps the broker busy writing.
        step = CHANGES_MAX if dry_run else 0
        change = ChangeByFilter(action, filter, delay_level, dry_run, max_messages=step)
        changed = 0
        try:
            for page in pages(partial(self._ask, rpcs.CHANGE_BY_FILTER), change):
                changed += page.changed
                if progress:
                    progress(changed)
        except RmqliteError as error:
            if changed and not dry_run:
                error.add_note(f"{changed} messages were changed before this")
            raise
        return changed

    def _ask(self, rpc: rpcs.Rpc[rpcs.Q, rpcs.A], value: rpcs.Q) -> rpcs.A:
        return self._connection.call(rpc, value, self._timeout_s)
