"""rmqlite status: what is wrong with a broker, its counts, and its levels."""

from __future__ import annotations

import sys
import textwrap
from typing import Final

from rmqlite.cli.broker_view import CALL_MS_MAX
from rmqlite.cli.options import DEFAULT_ENDPOINT, AsJson, Endpoint
from rmqlite.cli.output.terminal import print_json, print_table
from rmqlite.requests.figures import BrokerStatus, LevelStatus, RegisteredBroker
from rmqlite.views.counts import counts_text
from rmqlite.views.levels import delay_text, level_text
from rmqlite.views.spans import span_text

_LINE_CHARS: Final = 80


def status(endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False) -> None:
    """Show what is wrong with the broker, its counts, and its delay levels.

    Wrong are open dead letters, groups with messages and no member, late levels, a full disk.
    """
    from rmqlite.cli.top.picture import whole_picture
    from rmqlite.cli.top.troubles import troubles
    from rmqlite.client import AdminClient

    with AdminClient(endpoint, timeout_ms=CALL_MS_MAX) as admin:
        if as_json:
            print_json(admin.broker_status())
            return
        picture = whole_picture(admin)
    answer = picture.status
    assert answer is not None, "whole_picture() has raised otherwise"
    print_table(
        ("BROKER", "VERSION", "UP", "POLLS", "DISK"),
        [
            (
                answer.broker_name,
                answer.version,
                span_text(answer.now_ms - answer.started_at_ms),
                answer.parked_polls,
                f"{answer.disk_used_ratio:.0%}",
            )
        ],
    )
    wrong = [f"warning: {each.sentence}" for each in troubles(picture)]
    for line in wrong or ["all is well"]:
        sys.stdout.write(line + "\n")
    counts = textwrap.fill(counts_text(answer), _LINE_CHARS, subsequent_indent="  ")
    sys.stdout.write(counts + "\n")
    print_table(
        ("LEVEL", "DELAY", "PENDING", "NEXT DUE", "DELIVERED", "P50 MS", "P99 MS", "MAX MS"),
        [_level_row(level, answer) for level in answer.levels if level.is_used],
        title="delay levels (delivered and lateness since the start)",
    )
    empty = sum([level.level > 0 and not level.is_used for level in answer.levels])
    if empty:
        sys.stdout.write(f"{empty} more without messages\n")
    _print_cluster(answer)


def _print_cluster(answer: BrokerStatus) -> None:
    """Where this broker has registered, and who has registered here."""
    if answer.name_servers:
        print_table(
            ("NAME SERVER", "REGISTERED", "FOR", "TOPICS"),
            [
                (
                    each.address,
                    "yes" if each.is_registered else "no",
                    span_text(answer.now_ms - each.since_ms) if each.since_ms else "-",
                    each.topics,
                )
                for each in answer.name_servers
            ],
            title="name servers",
        )
    if answer.registered:
        print_table(
            ("BROKER", "ID", "ADDRESS", "CLUSTER", "TOPICS", "LAST"),
            [_registered_row(each, answer) for each in answer.registered],
            title="brokers that have registered here",
        )


def _level_row(level: LevelStatus, answer: BrokerStatus) -> tuple[object, ...]:
    next_due = "-"
    if level.next_due_ms:
        wait_ms = level.next_due_ms - answer.now_ms
        next_due = f"in {span_text(wait_ms)}" if wait_ms > 0 else "now"
    return (
        level_text(level.level),
        delay_text(level.level, level.delay),
        level.pending,
        next_due,
        level.delivered,
        level.lateness_p50_ms,
        level.lateness_p99_ms,
        level.lateness_max_ms,
    )


def _registered_row(broker: RegisteredBroker, answer: BrokerStatus) -> tuple[object, ...]:
    return (
        broker.broker_name,
        broker.broker_id,
        broker.address,
        broker.cluster,
        broker.topics,
        span_text(answer.now_ms - broker.registered_at_ms),
    )
