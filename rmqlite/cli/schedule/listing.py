"""rmqlite schedule list and count: waiting messages in due order, and how many wait."""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Final

from rmqlite.cli.broker_view import BrokerView, connected
from rmqlite.cli.filters import PendingListOptions
from rmqlite.cli.options import (
    DEFAULT_ENDPOINT,
    AsJson,
    Count,
    Cursor,
    Endpoint,
    option,
    with_options,
)
from rmqlite.cli.output.documents import Document, fields_of, many, prints
from rmqlite.cli.output.progress import listed, note_matches
from rmqlite.cli.output.terminal import (
    note,
    print_json,
    print_table,
    print_two_line_table,
    printable,
    time_text,
)
from rmqlite.client import PENDING_PAGE_MAX, PendingCount, PendingMessage, PendingPage, PendingQuery
from rmqlite.kernel.words.levels import LevelTable
from rmqlite.views.counts import COUNTED_MAX, size_text, times_text
from rmqlite.views.levels import delay_cell, level_text
from rmqlite.views.times import delay_text, until_text

_PENDING: Final = Document(
    "PendingMessage", "A waiting message without its body.", PendingMessage, offset_message_id=str
)
_LIST: Final = Document(
    "PendingMessages",
    "In due order; left_out: more that match; cursor: for the next part of the list, or empty.",
    **fields_of(int, "now_ms left_out"),
    messages=many(_PENDING),
    cursor=str,
)
_COUNT: Final = Document(
    "PendingCount",
    "How many wait; --by leaves columns out.",
    pending=int,
    optional={"level": int, "delay": str, "topic": str},
)
_COUNTS: Final = Document(
    "PendingCounts", "All that wait, by level and topic.", pending=int, counts=many(_COUNT)
)
ROWS_DEFAULT: Final = 50
INDEXED_MAX: Final = 100_000
"""The broker sorts messages with one key only in thousands, the newest first: so the command
fetches all of them, up to this many, and sorts them."""
_COLUMNS: Final = ("DUE", "IN", "LEVEL", "TOPIC", "KEYS")


@prints(lambda: _LIST)
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
    with connected(endpoint) as admin:
        broker = BrokerView(admin)
        wanted = options.filter(broker)
        is_indexed = bool(wanted.key or wanted.ids)

        def ask(query: PendingQuery, most: int) -> PendingPage:
            query = dataclasses.replace(query, max_messages=min(PENDING_PAGE_MAX, most))
            return broker.schedule.list_pending(query)

        found, more = listed(
            ask,
            PendingQuery(wanted, cursor),
            lambda page: (page.messages, len(page.messages)),
            INDEXED_MAX if is_indexed else count,
        )
        if not (as_json or is_indexed):
            query = PendingQuery(wanted, cursor, min(PENDING_PAGE_MAX, COUNTED_MAX))
            ask_page = broker.schedule.list_pending
            note_matches(len(found), ask_page, query, more, lambda p: len(p.messages), "message")
        now_ms = broker.now_ms
    if is_indexed:
        found = sorted(found, key=lambda each: (each.deliver_at_ms, each.level, each.queue_offset))
    shown = found[:count]
    left = len(found) - len(shown)
    if left:
        more = ""  # The cursor would continue behind the messages that are not shown.
    if as_json:
        trees = [_tree(each) for each in shown]
        print_json(_LIST.tree(now_ms=now_ms, messages=trees, left_out=left, cursor=more))
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
    return _PENDING.tree(message, offset_message_id=message.offset_message_id)


class By(enum.StrEnum):
    """The column by which counts are summed up."""

    LEVEL = "level"
    TOPIC = "topic"


@prints(lambda: _COUNTS)
def count(
    by: Annotated[By | None, option("--by", "Sum up by level or by topic.")] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Count pending messages per level and topic."""
    with connected(endpoint) as admin:
        broker = BrokerView(admin)
        counts = broker.schedule.count_pending()
        table = broker.table
    columns, rows = _summed(counts, by, table)
    total = sum([each.pending for each in counts])
    if as_json:
        names = [name.lower() for name in columns]
        trees = [_COUNT.tree(**dict(zip(names, row, strict=True))) for row in rows]
        print_json(_COUNTS.tree(pending=total, counts=trees))
        return
    sys.stdout.write(f"{total:,} {'message waits' if total == 1 else 'messages wait'}\n")
    if rows:
        print_table(columns, [_shown(row) for row in rows])


def _summed(
    counts: Sequence[PendingCount], by: By | None, table: LevelTable
) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    if by is By.TOPIC:
        topics: Counter[str] = Counter()
        for each in counts:
            topics[each.topic] += each.pending
        return ("TOPIC", "PENDING"), list(topics.most_common())
    if by is By.LEVEL:
        levels: Counter[int] = Counter()
        for each in counts:
            levels[each.level] += each.pending
        return ("LEVEL", "DELAY", "PENDING"), [
            (level, _delay(level, table), pending) for level, pending in sorted(levels.items())
        ]
    return ("LEVEL", "DELAY", "TOPIC", "PENDING"), [
        (each.level, _delay(each.level, table), each.topic, each.pending) for each in counts
    ]


def _delay(level: int, table: LevelTable) -> str:
    """The level's delay now; its messages may have got another one."""
    return delay_cell(level, table.own_name(level))


def _shown(row: tuple[object, ...]) -> tuple[object, ...]:
    return (level_text(row[0]), *row[1:]) if isinstance(row[0], int) else row
