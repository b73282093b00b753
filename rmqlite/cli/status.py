"""rmqlite status: a broker's pending messages, lateness, disk and totals."""

from __future__ import annotations

import sys

from rmqlite.cli.options import DEFAULT_ENDPOINT, AsJson, Endpoint
from rmqlite.cli.output.spans import size_text, span_text
from rmqlite.cli.output.terminal import print_json, print_table, printable, time_text
from rmqlite.names import SCHEDULE_GROUP, dlq_topic
from rmqlite.requests.status import BrokerStatus, LevelStatus


def status(endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False) -> None:
    """Show the broker's totals, its disk, and the delay levels (pending, next due, lateness)."""
    from rmqlite.client import AdminClient

    with AdminClient(endpoint) as admin:
        answer = admin.broker_status()
    if as_json:
        print_json(answer)
        return
    print_table(
        ("BROKER", "VERSION", "UP", "SENT", "DELIVERED", "RETRIED", "DEAD", "POLLS", "DISK"),
        [
            (
                answer.broker_name,
                answer.version,
                span_text(answer.now_ms - answer.started_at_ms),
                answer.sent,
                answer.delivered,
                answer.retried,
                answer.dead,
                answer.parked_polls,
                f"{answer.disk_used_ratio:.0%}",
            )
        ],
    )
    warnings = [f"warning: {printable(sentence)}" for sentence in answer.warnings]
    for line in [*warnings, *schedule_lines(answer), *disk_lines(answer)]:
        sys.stdout.write(line + "\n")
    print_table(
        ("LEVEL", "DELAY", "PENDING", "NEXT DUE", "DELIVERED", "P50 MS", "P99 MS", "MAX MS"),
        [_level_row(level, answer) for level in answer.levels],
        title="delay levels (lateness since the broker started)",
    )


def schedule_lines(answer: BrokerStatus) -> list[str]:
    """Changed and undeliverable scheduled messages; empty if there are none."""
    lines = []
    changes = [
        f"{count:,} {done}"
        for count, done in (
            (answer.cancelled, "cancelled"),
            (answer.fired, "fired"),
            (answer.rescheduled, "rescheduled"),
        )
        if count
    ]
    if changes:
        lines.append(f"scheduled messages changed: {', '.join(changes)}")
    if answer.undeliverable:
        lines.append(
            f"{answer.undeliverable:,} undeliverable: they are in topic "
            f"{dlq_topic(SCHEDULE_GROUP)}, each with its reason"
        )
    return lines


def disk_lines(answer: BrokerStatus) -> list[str]:
    """Warnings for an operator about the disk; empty if all is well."""
    lines = []
    if answer.is_disk_full:
        used = f"{answer.disk_used_ratio:.1%}"
        lines.append(f"disk full ({used}): sends are refused until there is room again")
    if answer.pinned_bytes:
        lines.append(
            f"{size_text(answer.pinned_bytes)} of expired log files stay for a message of level "
            f"{answer.pinned_by_level}, due {time_text(answer.pinned_deliver_at_ms)}, "
            f"at physical offset {answer.pinned_physical_offset}"
        )
    return lines


def _level_row(level: LevelStatus, answer: BrokerStatus) -> tuple[object, ...]:
    next_due = "-"
    if level.next_due_ms:
        wait_ms = level.next_due_ms - answer.now_ms
        next_due = f"in {span_text(wait_ms)}" if wait_ms > 0 else "now"
    return (
        level.level,
        level.delay or "(old)",
        level.pending,
        next_due,
        level.delivered,
        level.lateness_p50_ms,
        level.lateness_p99_ms,
        level.lateness_max_ms,
    )
