"""rmqlite status: what a broker holds back, how late it delivers, and its totals."""

from __future__ import annotations

from rmqlite.cli.options import DEFAULT_ENDPOINT, AsJson, Endpoint
from rmqlite.cli.terminal import print_json, print_table
from rmqlite.requests import BrokerStatus, LevelStatus


def status(endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False) -> None:
    """Show the delay levels (pending, next due, lateness) and the broker's totals."""
    from rmqlite.client import AdminClient

    with AdminClient(endpoint) as admin:
        answer = admin.broker_status()
    if as_json:
        print_json(answer)
        return
    print_table(
        ("BROKER", "VERSION", "UP", "SENT", "DELIVERED", "RETRIED", "DEAD", "POLLS"),
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
            )
        ],
    )
    print_table(
        ("LEVEL", "DELAY", "PENDING", "NEXT DUE", "DELIVERED", "P50 MS", "P99 MS", "MAX MS"),
        [_level_row(level, answer) for level in answer.levels],
        title="delay levels (lateness since the broker started)",
    )


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


def span_text(span_ms: int) -> str:
    """A duration in its two largest units: "1h 5m", "12.3s", "45ms"."""
    if span_ms < 1_000:
        return f"{span_ms}ms"
    if span_ms < 60_000:
        return f"{span_ms / 1000:.1f}s"
    minutes, seconds = divmod(span_ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {seconds}s"
