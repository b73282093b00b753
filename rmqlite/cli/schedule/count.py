"""rmqlite schedule count: how many messages wait, for each level and topic."""

from __future__ import annotations

import enum
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import typer

from rmqlite.cli.broker_view import CALL_MS_MAX, BrokerView
from rmqlite.cli.options import DEFAULT_ENDPOINT, AsJson, Endpoint
from rmqlite.cli.output.terminal import print_json, print_table
from rmqlite.levels import LevelTable
from rmqlite.requests.schedule import PendingCount
from rmqlite.views.levels import delay_cell, level_text


class By(enum.StrEnum):
    """The column by which counts are summed up."""

    LEVEL = "level"
    TOPIC = "topic"


def count(
    by: Annotated[By | None, typer.Option("--by", help="Sum up by level or by topic.")] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Count pending messages per level and topic."""
    from rmqlite.client import AdminClient

    with AdminClient(endpoint, timeout_ms=CALL_MS_MAX) as admin:
        broker = BrokerView(admin)
        counts = broker.schedule.count_pending()
        table = broker.table
    columns, rows = _summed(counts, by, table)
    total = sum([each.pending for each in counts])
    if as_json:
        names = [name.lower() for name in columns]
        trees = [dict(zip(names, row, strict=True)) for row in rows]
        print_json({"pending": total, "counts": trees})
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
