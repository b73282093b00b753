"""rmqlite schedule list, count and timeline: waiting messages in due order, and how many wait when.

Without options the buckets of a timeline grow, from ten seconds to years, and end with the last
message; so an operator sees the next minutes and the whole backlog on one screen.  With --over the
buckets have one round size, and fill the lines of the terminal.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from rmqlite.cli.broker_view import BrokerView, connected
from rmqlite.cli.filters import Levels, PendingListOptions, PendingOptions
from rmqlite.cli.options import (
    DEFAULT_ENDPOINT,
    AsJson,
    Count,
    Cursor,
    Endpoint,
    option,
    refuse,
    with_options,
)
from rmqlite.cli.output.documents import Document, fields_of, many, prints
from rmqlite.cli.output.progress import listed, note_matches
from rmqlite.cli.output.terminal import (
    note,
    print_bars,
    print_json,
    print_table,
    print_tall_table,
    printable,
)
from rmqlite.client import (
    PENDING_PAGE_MAX,
    TIMELINE_BOUNDS_MAX,
    LevelTimeline,
    PendingCount,
    PendingFilter,
    PendingMessage,
    PendingPage,
    PendingQuery,
)
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import LevelTable, parse_levels, wait_ms
from rmqlite.views.levels import delay_cell, level_text, levels_text
from rmqlite.views.numbers import (
    COUNTED_MAX,
    delay_text,
    instant_text,
    size_text,
    time_text,
    times_text,
    until_text,
)

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
_GROWING: Final = parse_levels(
    "10s 30s 1m 2m 5m 10m 20m 30m 1h 2h 4h 8h 12h 1d 2d 7d 30d 90d 180d 365d 730d 3650d"
)
_ROWS_MAX: Final = 20
"""More rows of growing buckets would not fit a terminal of 24 lines."""
_SHOWN_MS_MIN: Final = 3_600_000
"""The growing buckets reach at least this far, so that an empty hour is shown."""
_ROUND: Final = parse_levels(
    "1s 2s 5s 10s 15s 30s 1m 2m 5m 10m 15m 30m 1h 2h 3h 6h 12h 1d 2d 7d 14d 30d 90d 180d 365d"
)
_OTHER_LINES: Final = 6
"""Lines of the terminal for title, head, overdue, later, the command and the prompt."""
_BUCKETS_MIN: Final = 5
_BUCKETS_MAX: Final = TIMELINE_BOUNDS_MAX - 1


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
        print_tall_table(_COLUMNS, [(_row(each, now_ms), _second_line(each)) for each in shown])
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


@dataclass(frozen=True, slots=True)
class Bucket:
    """The messages due in [from_ms, until_ms); None means no end."""

    from_ms: int | None
    until_ms: int | None
    levels: dict[int, int]

    @property
    def pending(self) -> int:
        return sum(self.levels.values())


_BUCKET: Final = Document("Bucket", "Messages by level.", Bucket, pending=int)
_TIMELINE: Final = Document(
    "Timeline", "Waiting messages by due time.", now_ms=int, buckets=many(_BUCKET)
)


@prints(lambda: _TIMELINE)
def timeline(
    over: Annotated[str, option("--over SPAN", "The span, in buckets of one size: 1h, 2d.")] = "",
    buckets: Annotated[
        int | None,
        option("--buckets -n", "With --over: how many buckets.", min=1, max=_BUCKETS_MAX),
    ] = None,
    level: Levels = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Draw the counts of pending messages by due time."""
    if buckets and not over:
        raise typer.BadParameter("--buckets divides a span: --over is missing")
    offsets_ms = _even_ms(over, buckets) if over else (0, *_GROWING.delays_ms)
    wanted = PendingOptions(level)
    with connected(endpoint) as admin:
        broker = BrokerView(admin)
        levels = wanted.filter(broker).levels
        now_ms = broker.now_ms
        bounds_ms = tuple([now_ms + each for each in offsets_ms])
        found = _buckets(bounds_ms, broker.schedule.timeline(bounds_ms, levels))
    if as_json:
        print_json(_TIMELINE.tree(now_ms=now_ms, buckets=[_bucket_tree(each) for each in found]))
        return
    shown = found if over else _shortened(found, now_ms)
    rows = [(_span(each, now_ms), _clock(each, now_ms), each.pending) for each in shown]
    print_bars(_title(found, PendingFilter(levels)), rows)


def _even_ms(over: str, buckets: int | None) -> tuple[int, ...]:
    """The ends of buckets of one size, from 0 on; the last one may be cut."""
    try:
        over_ms = wait_ms("--over", over)
    except InvalidValue as error:
        refuse("--over", over, error.rule)
    if buckets:
        return tuple([over_ms * n // buckets for n in range(buckets + 1)])
    lines = shutil.get_terminal_size().lines - _OTHER_LINES
    buckets_max = min(_BUCKETS_MAX, max(_BUCKETS_MIN, lines))
    fitting = (each for each in _ROUND.delays_ms if over_ms <= each * buckets_max)
    step_ms = next(fitting, -(-over_ms // buckets_max))
    return (*range(0, over_ms, step_ms), over_ms)


def _buckets(bounds_ms: tuple[int, ...], timelines: Sequence[LevelTimeline]) -> tuple[Bucket, ...]:
    """Overdue, one bucket from each instant to the next, and later."""
    ends = itertools.pairwise((None, *bounds_ms, None))
    return tuple(
        [
            Bucket(
                start,
                end,
                {each.level: each.counts[n] for each in timelines if each.counts[n]},
            )
            for n, (start, end) in enumerate(ends)
        ]
    )


def _shortened(buckets: Sequence[Bucket], now_ms: int) -> list[Bucket]:
    """The buckets without empty ones at the end, and as few as fit; the last one has no end."""
    last = max([n for n, each in enumerate(buckets) if each.pending], default=0)
    shown = [
        each
        for n, each in enumerate(buckets[:-1])
        if n <= last or (each.until_ms or 0) - now_ms <= _SHOWN_MS_MIN
    ]
    shown.append(Bucket(shown[-1].until_ms, None, buckets[-1].levels))
    while len(shown) > _ROWS_MAX:
        # Join the two neighbours with the fewest messages, but not with overdue or later ones.
        sums = [one.pending + other.pending for one, other in itertools.pairwise(shown[1:-1])]
        at = 1 + sums.index(min(sums))
        shown[at : at + 2] = [_joined(*shown[at : at + 2])]
    return shown


def _joined(one: Bucket, other: Bucket) -> Bucket:
    levels = Counter(one.levels) + Counter(other.levels)
    return Bucket(one.from_ms, other.until_ms, dict(levels))


def _title(buckets: Sequence[Bucket], wanted: PendingFilter) -> str:
    total = sum([each.pending for each in buckets])
    where = f" ({levels_text(wanted.levels)})" if wanted.levels else ""
    overdue = f", {buckets[0].pending:,} overdue" if buckets[0].pending else ""
    return f"{total:,} {'message waits' if total == 1 else 'messages wait'}{where}{overdue}"


def _span(bucket: Bucket, now_ms: int) -> str:
    """A bucket as time from now: "30s - 1m"."""
    if bucket.from_ms is None:
        return "overdue"
    if bucket.until_ms is None:
        return "later"
    start = delay_text(bucket.from_ms - now_ms) if bucket.from_ms > now_ms else "now"
    return f"{start} - {delay_text(bucket.until_ms - now_ms)}"


def _clock(bucket: Bucket, now_ms: int) -> str:
    """A bucket on the clock: "10:15:30 - 10:16:00"; another day has its date."""
    if bucket.from_ms is None:
        return f"before {instant_text(bucket.until_ms or 0, now_ms)}"
    start = instant_text(bucket.from_ms, now_ms)
    if bucket.until_ms is None:
        return f"from {start} on"
    return f"{start} - {instant_text(bucket.until_ms, now_ms)}"


def _bucket_tree(bucket: Bucket) -> dict[str, Any]:
    return _BUCKET.tree(bucket, pending=bucket.pending)
