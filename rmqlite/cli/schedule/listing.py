"""rmqlite schedule list: waiting messages in due order."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from rmqlite.cli.broker_view import CALL_MS_MAX, BrokerView
from rmqlite.cli.options import DEFAULT_ENDPOINT, AsJson, Count, Cursor, Endpoint, with_options
from rmqlite.cli.output.progress import listed
from rmqlite.cli.output.terminal import note, print_json, print_two_line_table, printable, time_text
from rmqlite.cli.schedule.pending_options import PendingListOptions
from rmqlite.requests.schedule import PAGE_MAX, PendingMessage, PendingPage, PendingQuery
from rmqlite.views.counts import size_text, times_text
from rmqlite.views.levels import level_text
from rmqlite.views.times import delay_text, until_text

ROWS_DEFAULT: Final = 50
INDEXED_MAX: Final = 100_000
"""The broker sorts messages with one key only in thousands, the newest first: so the command
fetches all of them, up to this many, and sorts them."""
_COLUMNS: Final = ("DUE", "IN", "LEVEL", "TOPIC", "KEYS")


@with_options
def list_pending(
    *,
    options: PendingListOptions,
    count: Count = ROWS_DEFAULT,
    cursor: Cursor = "",
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """List pending messages in due order; below each its message id."""
    from rmqlite.client import AdminClient

    with AdminClient(endpoint, timeout_ms=CALL_MS_MAX) as admin:
        broker = BrokerView(admin)
        wanted = options.filter(broker)
        is_indexed = bool(wanted.key or wanted.ids)

        def ask(query: PendingQuery, most: int) -> PendingPage:
            query = dataclasses.replace(query, max_messages=min(PAGE_MAX, most))
            return broker.schedule.list_pending(query)

        found, more = listed(
            ask,
            PendingQuery(wanted, cursor),
            lambda page: (page.messages, len(page.messages)),
            INDEXED_MAX if is_indexed else count,
        )
        now_ms = broker.now_ms
    if is_indexed:
        found = sorted(found, key=lambda each: (each.deliver_at_ms, each.level, each.queue_offset))
    shown = found[:count]
    left = len(found) - len(shown)
    if left:
        more = ""  # The cursor would continue behind the messages that are not shown.
    if as_json:
        trees = [_tree(each) for each in shown]
        print_json({"now_ms": now_ms, "messages": trees, "left_out": left, "cursor": more})
        return
    if shown:
        print_two_line_table(_COLUMNS, [(_row(each, now_ms), _second_line(each)) for each in shown])
    else:
        note(
            "nothing waits"
            if options == PendingListOptions() and not cursor
            else "nothing that waits fits"
        )
    if left:
        note(f"{left:,} more: --max {len(found)}")
    if more:
        note(f"more: --cursor {more}")


def _row(message: PendingMessage, now_ms: int) -> tuple[str, ...]:
    level = level_text(message.level)
    if message.level > 0:
        # Show the delay that this message got; its level may have another delay now.
        level += f" ({delay_text(message.deliver_at_ms - message.store_timestamp_ms)})"
    return (
        time_text(message.deliver_at_ms),
        until_text(message.deliver_at_ms, now_ms).removeprefix("in "),
        level,
        printable(message.topic),
        printable(" ".join(message.keys)) or "-",
    )


def _second_line(message: PendingMessage) -> str:
    named = message.message_id or f"no message id, offset id {message.offset_message_id}"
    about = [f"tags {message.tags}"] * bool(message.tags)
    about += [f"failed {times_text(message.reconsume_times)}"] * bool(message.reconsume_times)
    about.append(size_text(message.body_size))
    return printable(f"{named}  {', '.join(about)}")


def _tree(message: PendingMessage) -> dict[str, Any]:
    return dataclasses.asdict(message) | {"offset_message_id": message.offset_message_id}
