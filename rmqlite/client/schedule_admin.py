"""AdminClient.schedule: lists and changes waiting messages; and how every administrator calls.

A query or change that is too large for one call is made in several, one after the other.  After an
error the earlier calls are done, and the error's note says how far they went.  No change is
repeated here: a change whose answer was lost may have been made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from rmqlite.client.channel import Connection
from rmqlite.features.changes.requests import (
    CHANGE_BY_FILTER,
    CHANGE_BY_IDS,
    CHANGED_IDS_MAX,
    CHANGES_MAX,
    COUNT_PENDING,
    GET_TIMELINE,
    LIST_PENDING,
    ChangeByFilter,
    ChangeByIds,
    ChangedId,
    LevelTimeline,
    PendingCount,
    PendingFilter,
    PendingMessage,
    PendingPage,
    PendingQuery,
    TimelineRequest,
)
from rmqlite.features.cursors import pages
from rmqlite.features.rows import A, Q, Row
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.kernel.words.levels import Instant, Wait, instant_ms, wait_ms
from rmqlite.kernel.words.names import retry_topic
from rmqlite.kernel.words.visible import encodable

EVERYTHING = PendingFilter()


class AdminCalls:
    """Calls over one connection, with one time limit."""

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    def _ask(self, rpc: Row[Q, A], value: Q) -> A:
        return self._connection.call(rpc, value, self._timeout_s)


class ScheduleAdmin(AdminCalls):
    """Asks the broker behind a connection about its schedule, timeout_s for each call.

    Every method raises RmqliteError: InvalidValue for a value beyond a limit, Unavailable if the
    call may work later.
    """

    # ---- seeing

    def list_pending(self, query: PendingQuery) -> PendingPage:
        """One page of waiting messages in due order; it may be empty.

        While a page has a cursor there are more, even if the page is empty.  If thousands of
        messages have the same key, only each thousand of them is in due order, the newest thousand
        first.
        """
        return self._ask(LIST_PENDING, query)

    def pending(
        self, filter: PendingFilter = EVERYTHING, *, page: int = 0
    ) -> Iterator[PendingMessage]:
        """All waiting messages that match, in the order of list_pending(), page by page as needed.

        page: messages per call, 1 to 1,000; 0 means 100.
        """
        query = PendingQuery(filter, max_messages=page)
        for got in pages(self.list_pending, query):
            yield from got.messages

    def count_pending(self) -> tuple[PendingCount, ...]:
        """How many messages wait, for every level and topic that has any; by level, then topic."""
        return self._ask(COUNT_PENDING, None)

    def timeline(
        self, bounds_ms: tuple[int, ...], levels: tuple[int, ...] = ()
    ) -> tuple[LevelTimeline, ...]:
        """How many messages come due before, between and after these instants, for every level.

        bounds_ms: up to TIMELINE_BOUNDS_MAX, ascending, on the broker's clock
        (broker_status().now_ms).  levels: empty means all.
        """
        return self._ask(GET_TIMELINE, TimelineRequest(bounds_ms, levels))

    # ---- changing, by message id

    def cancel(
        self, *message_ids: str, topic: str = "", dry_run: bool = False
    ) -> tuple[ChangedId, ...]:
        """Cancel these messages; returns when that is on disk.

        topic: only messages for this topic; %RETRY%group for a group's retries. dry_run: change
        nothing, only return each outcome.
        """
        return self.change_by_ids(
            ChangeByIds(ScheduleAction.CANCEL, message_ids, topic, dry_run=dry_run)
        )

    def fire(
        self, *message_ids: str, topic: str = "", dry_run: bool = False
    ) -> tuple[ChangedId, ...]:
        """Deliver these messages at once; otherwise like cancel()."""
        return self.change_by_ids(
            ChangeByIds(ScheduleAction.FIRE, message_ids, topic, dry_run=dry_run)
        )

    def reschedule(
        self,
        *message_ids: str,
        delay_level: int = 0,
        deliver_at: Instant | None = None,
        deliver_after: Wait | None = None,
        topic: str = "",
        dry_run: bool = False,
    ) -> tuple[ChangedId, ...]:
        """Let these messages wait anew; otherwise like cancel().

        Give one of delay_level, deliver_at and deliver_after, as for a Message; a level and a
        length count from now on, by the broker's clock.
        """
        at_ms, after_ms = _ms_of(deliver_at, deliver_after)
        return self.change_by_ids(
            ChangeByIds(
                ScheduleAction.RESCHEDULE,
                message_ids,
                topic,
                delay_level,
                dry_run,
                at_ms,
                after_ms,
            )
        )

    def bury(
        self, group: str, *message_ids: str, reason: str = "", dry_run: bool = False
    ) -> tuple[ChangedId, ...]:
        """Make dead letters of these waiting retries of a group; otherwise like cancel().

        reason: why, up to 1 KiB; without it the reason of the last failure stays.
        """
        topic, text = retry_topic(group), encodable(reason)
        return self.change_by_ids(
            ChangeByIds(ScheduleAction.BURY, message_ids, topic, dry_run=dry_run, reason=text)
        )

    def change_by_ids(self, change: ChangeByIds) -> tuple[ChangedId, ...]:
        """The outcome of each message id, in the given order.

        A message that does not wait is an outcome, not an error.  More than CHANGED_IDS_MAX ids go
        in several calls; after an error it is safe to repeat them, but a RESCHEDULE starts anew.
        """
        ids = change.message_ids
        changed: list[ChangedId] = []
        for start in range(0, len(ids), CHANGED_IDS_MAX):
            part = replace(change, message_ids=ids[start : start + CHANGED_IDS_MAX])
            try:
                answered = self._ask(CHANGE_BY_IDS, part)
            except RmqliteError as error:
                if start:
                    error.add_note(f"{start} of {len(ids)} message ids were answered before this")
                raise
            changed.extend(answered)
        return tuple(changed)

    # ---- changing, by filter

    def change_pending(
        self,
        action: ScheduleAction,
        filter: PendingFilter,
        *,
        delay_level: int = 0,
        deliver_at: Instant | None = None,
        deliver_after: Wait | None = None,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Change all messages that wait and match at the first call; returns how many.

        delay_level, deliver_at, deliver_after: of a RESCHEDULE, as in reschedule().  dry_run: only
        count.  progress: called after every call with the number so far.
        """
        at_ms, after_ms = _ms_of(deliver_at, deliver_after)
        change = ChangeByFilter(
            action,
            filter,
            delay_level,
            dry_run,
            deliver_at_ms=at_ms,
            deliver_after_ms=after_ms,
        )
        return self.change_by_filter(change, progress)

    def change_by_filter(
        self, change: ChangeByFilter, progress: Callable[[int], None] | None = None
    ) -> int:
        """change_pending() for a change as one value."""
        if change.dry_run and not change.max_messages:
            # A count may take larger steps than a change, which keeps the broker busy writing.
            change = replace(change, max_messages=CHANGES_MAX)
        changed = 0
        try:
            for page in pages(partial(self._ask, CHANGE_BY_FILTER), change):
                changed += page.changed
                if progress:
                    progress(changed)
        except RmqliteError as error:
            if changed and not change.dry_run:
                error.add_note(f"{changed} messages were changed before this")
            raise
        return changed


def _ms_of(deliver_at: Instant | None, deliver_after: Wait | None) -> tuple[int, int]:
    """Both in milliseconds; 0 for what is not given.  Raises InvalidValue."""
    at_ms = 0 if deliver_at is None else instant_ms("deliver_at", deliver_at)
    return at_ms, 0 if deliver_after is None else wait_ms("deliver_after", deliver_after)
