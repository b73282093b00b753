"""rmqlite schedule timeline: counts of messages by due time, drawn as bars.

Without options the buckets grow, from ten seconds to years, and end with the last message; so an
operator sees the next minutes and the whole backlog on one screen.  With --over the buckets have
one round size, and fill the lines of the terminal.
"""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from rmqlite.cli.broker_view import BrokerView, connected
from rmqlite.cli.filters import Levels, PendingOptions
from rmqlite.cli.options import DEFAULT_ENDPOINT, AsJson, Endpoint, option, refuse
from rmqlite.cli.output.bars import print_bars
from rmqlite.cli.output.documents import Document, many, prints
from rmqlite.cli.output.terminal import print_json
from rmqlite.client import TIMELINE_BOUNDS_MAX, LevelTimeline, PendingFilter
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import parse_levels, wait_ms
from rmqlite.views.levels import levels_text
from rmqlite.views.times import delay_text, instant_text

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
        print_json(_TIMELINE.tree(now_ms=now_ms, buckets=[_tree(each) for each in found]))
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


def _tree(bucket: Bucket) -> dict[str, Any]:
    return _BUCKET.tree(bucket, pending=bucket.pending)
