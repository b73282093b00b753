"""The view of the demo: live in a terminal, plain lines elsewhere, tables at the end."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orders.ledger import DeadLetters, Ledger
from rmqlite.kernel.requests.broker import BrokerStatus, LevelStatus
from rmqlite.kernel.words.clock import elapsed_s, local_text
from rmqlite.kernel.words.message import (
    DELIVERY_ATTEMPTS,
    DLQ_ORIGIN_TOPIC,
    FAILURE_REASON,
    FIRST_FAILURE_TIMESTAMP,
    LAST_FAILURE_TIMESTAMP,
)

LEVEL_COLUMNS = 3
BAR_WIDTH = 8
PLAIN_LINE_S = 2.0


class View:
    """Shows the ledger and the broker's status; a context manager."""

    def __init__(self, console: Console, endpoint: str) -> None:
        self._console = console
        self._endpoint = endpoint
        self._began_s = elapsed_s()
        self._line_s = -PLAIN_LINE_S
        self._peak = 1
        self._live = Live(console=console, refresh_per_second=8) if console.is_terminal else None

    def __enter__(self) -> View:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, ledger: Ledger, status: BrokerStatus) -> None:
        """Draw the present state; without a terminal, print a line every two seconds."""
        passed_s = elapsed_s() - self._began_s
        if self._live:
            self._live.update(self._drawn(ledger, status, passed_s))
        elif passed_s - self._line_s >= PLAIN_LINE_S:
            self._line_s = passed_s
            waiting = sum([level.pending for level in status.levels])
            self._console.print(
                f"{passed_s:5.1f} s  sent {len(ledger.sent)}  waiting {waiting}"
                f"  delivered {status.delivered}  retried {status.retried}"
                f"  done {len(ledger.done)}  dead {status.dead}"
            )

    def _drawn(self, ledger: Ledger, status: BrokerStatus, passed_s: float) -> Group:
        title = Text(f"{len(ledger.orders)} orders, broker at {self._endpoint}", style="bold")
        title.append(f"   {passed_s:.0f} s", style="dim")
        counts = Table.grid(padding=(0, 2))
        waiting = sum([level.pending for level in status.levels])
        rows = (
            ("sent", len(ledger.sent), "orders are on the broker's disk", ""),
            ("scheduled", waiting, "messages wait for their time", "yellow"),
            ("delivered", status.delivered, "messages left the schedule when due", ""),
            ("retried", status.retried, "deliveries failed and come back", "yellow"),
            ("done", len(ledger.done), "orders are finished", "green"),
            ("dead", status.dead, "orders are dead letters", "red"),
        )
        counts.add_column()
        counts.add_column(justify="right", width=6)
        for name, number, meaning, style in rows:
            counts.add_row(Text(name, style), Text(f"{number:,}", style), Text(meaning, "dim"))
        recent = Text("\n".join([*ledger.recent, *[""] * (5 - len(ledger.recent))]), style="dim")
        levels = self._levels(status.levels)
        head = Text("pending per delay level, and timers", style="bold")
        return Group(title, Text(), counts, Text(), head, levels, Text(), recent)

    def _levels(self, levels: Sequence[LevelStatus]) -> Table:
        """All levels in three columns, so that 21 of them fit on a small screen."""
        self._peak = max(self._peak, *[level.pending for level in levels])
        grid = Table.grid(padding=(0, 2))
        height = -(-len(levels) // LEVEL_COLUMNS)
        for row in range(height):
            grid.add_row(*[self._level(level) for level in levels[row::height]])
        return grid

    def _level(self, level: LevelStatus) -> Text:
        filled = -(-level.pending * BAR_WIDTH // self._peak)
        name = f"{level.level:>2} ({level.delay})" if level.level > 0 else level.delay
        text = Text(name.ljust(9), style="dim")
        text.append(f"{level.pending or '':>4} ", style="yellow")
        return text.append("█" * filled + " " * (BAR_WIDTH - filled), style="yellow")


def print_levels(console: Console, levels: Sequence[LevelStatus]) -> None:
    """Print how many messages each level delivered, and how late."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for name in ("level", "delay", "delivered", "late p50 ms", "p99 ms", "max ms"):
        table.add_column(name, justify="left" if name == "delay" else "right")
    for level in levels:
        numbers = (level.lateness_p50_ms, level.lateness_p99_ms, level.lateness_max_ms)
        if level.delivered:
            name = str(level.level) if level.level > 0 else ""
            table.add_row(name, level.delay, str(level.delivered), *[str(n) for n in numbers])
    console.print(table)


def print_dead_letters(console: Console, dead_letters: DeadLetters) -> None:
    """Print the dead letters with their failures and reasons."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("order", "tries", "first failure", "last failure", "from", "reason"):
        table.add_column(
            name, justify="right" if name == "tries" else "left", no_wrap=name != "reason"
        )
    for message in dead_letters:
        kept = message.properties
        table.add_row(
            message.keys[0],
            kept.get(DELIVERY_ATTEMPTS, "?"),
            _clock_text(kept.get(FIRST_FAILURE_TIMESTAMP, "")),
            _clock_text(kept.get(LAST_FAILURE_TIMESTAMP, "")),
            kept.get(DLQ_ORIGIN_TOPIC, "?"),
            Text(kept.get(FAILURE_REASON, "?")),
        )
    console.print(table)


def _clock_text(timestamp_ms: str) -> str:
    return local_text(int(timestamp_ms)).split()[1] if timestamp_ms.isdigit() else "?"
