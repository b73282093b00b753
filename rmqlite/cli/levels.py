"""rmqlite levels: shows and changes the table of delay levels.

A change is shown before it is made: for each level the delay now, the delay then, and how many
messages wait.  Waiting messages keep their times, so a change affects only new sends.
"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from rmqlite.cli.broker_view import SHORT_CALL_MS_MAX, connected
from rmqlite.cli.options import (
    DEFAULT_ENDPOINT,
    AsJson,
    ChangeOptions,
    Endpoint,
    option,
    with_options,
)
from rmqlite.cli.output.documents import Document, fields_of, many, prints
from rmqlite.cli.output.terminal import print_columns, print_json, print_lines, print_table
from rmqlite.kernel.requests.broker import BrokerStatus, LevelChange, LevelsChanged, LevelsInForce
from rmqlite.kernel.words.levels import FIRST_RETRY_LEVEL, LevelTable, parse_delay, parse_levels
from rmqlite.views.numbers import time_text

app = typer.Typer(
    no_args_is_help=True, help="Show the delay levels, or change them while the broker runs."
)

_WAITING: Final = Document(
    "Level", "Its waiting messages.", **fields_of(int, "level pending next_due_ms"), delay=str
)
_SHOWN: Final = Document(
    "ShownLevels", "The tables of levels, and what waits.", LevelsInForce, levels=many(_WAITING)
)
_CHANGE: Final = Document(
    "ChangedLevel",
    "change: new, removed, longer, shorter, same, or old for a level of an older table.",
    LevelChange,
    change=str,
)
_CHANGED: Final = Document(
    "ChangedLevels",
    "A change of the table; applied: it was made.",
    LevelsChanged,
    levels=many(_CHANGE),
    applied=bool,
)
LENGTHS_MAX: Final = 6
"""The most delays that a line names."""

TableWords = Annotated[
    list[str],
    typer.Argument(
        metavar="TABLE",
        show_default=False,
        help="1 to 64 delays such as 10m, as in messageDelayLevel; quotes are not needed.",
    ),
]


@app.command("show")
@prints(lambda: _SHOWN)
def show(
    history: Annotated[bool, option("--history", "Every table so far, the oldest first.")] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Show each level's delay and waiting messages, and the source of the table."""
    with connected(endpoint, SHORT_CALL_MS_MAX) as admin:
        levels = admin.levels()
        status = admin.broker_status()
    if as_json:
        waiting = [
            _WAITING.tree(
                level=s.level, delay=s.delay, pending=s.pending, next_due_ms=s.next_due_ms
            )
            for s in status.levels
            if s.level > 0
        ]
        print_json(_SHOWN.tree(levels, levels=waiting))
        return
    if history:
        rows = [(time_text(t.in_force_from_ms), t.message_delay_level) for t in levels.tables]
        print_table(("IN FORCE FROM", "MESSAGE DELAY LEVEL"), rows)
    else:
        _print_waiting(status)
    print_lines(["", *origin_lines(levels)])


@app.command("set")
@prints(lambda: _CHANGED)
@with_options
def set_levels(*, table: TableWords, how: ChangeOptions) -> None:
    """Put another table of delay levels in force at once; waiting messages keep their time."""
    how.check_can_ask()
    text = " ".join(table)
    with connected(how.endpoint, SHORT_CALL_MS_MAX, note=how.note) as admin:
        changed = admin.change_levels(text, dry_run=True)
        is_change = changed.before != changed.after
        if not how.as_json:
            _print_change(changed)
        if is_change and not how.dry_run:
            how.check_confirmed("put this table in force now?")
            changed = admin.change_levels(text)
    applied = is_change and not how.dry_run
    if how.as_json:
        rows = [_CHANGE.tree(each, change=word(each)) for each in changed.levels]
        print_json(_CHANGED.tree(changed, levels=rows, applied=applied))
    elif applied:
        print_lines(["", f"in force now, and after a restart, too: {changed.after}"])


def word(change: LevelChange) -> str:
    """The change of a level: "new", "removed", "longer", "shorter", "same" or "old".

    "old": neither table has the level, but messages of an older table wait there.
    """
    before, after = change.delay_before, change.delay_after
    if not before:
        return "new" if after else "old"
    if not after:
        return "removed"
    before_ms, after_ms = parse_delay(before), parse_delay(after)
    if before_ms == after_ms:
        return "same"
    return "longer" if after_ms > before_ms else "shorter"


def origin_lines(levels: LevelsInForce) -> list[str]:
    """The source of the table in force."""
    in_force = parse_levels(levels.message_delay_level)
    since_ms = levels.tables[-1].in_force_from_ms
    since = f"in force since {time_text(since_ms)}" if since_ms else "there was no other before"
    if in_force.delays_ms == parse_levels(levels.configured).delays_ms:
        return [f"the table is broker.conf's messageDelayLevel; {since}"]
    return [
        f"the table was set while the broker ran; {since}",
        f"broker.conf says: {levels.configured}",
        "it is used again when messageDelayLevel is edited there",
    ]


def effect_lines(changed: LevelsChanged) -> list[str]:
    """The effects of a change that its rows do not show."""
    waiting = sum(each.pending for each in changed.levels)
    if waiting == 1:
        lines = ["the 1 message that waits keeps its time; new ones get the new delays"]
    elif waiting:
        lines = [
            f"the {waiting:,} messages that wait keep their times; new ones get the new delays"
        ]
    else:
        lines = ["no message waits; new ones get the new delays"]
    before, after = parse_levels(changed.before), parse_levels(changed.after)
    if before.delays_ms[FIRST_RETRY_LEVEL - 1 :] != after.delays_ms[FIRST_RETRY_LEVEL - 1 :]:
        last = after.max_level
        used = f"levels {FIRST_RETRY_LEVEL} to {last}"
        if last <= FIRST_RETRY_LEVEL:
            used = f"level {last} only"
        lines.append(f"retries of failed messages change, too: {used}, or their group's policy")
    if after.max_level < before.max_level:
        last = after.max_level
        lines.append(f"messages to a level above {last} go to level {last} ({after.name(last)})")
    return lines + _lost_lengths(before, after)


def _lost_lengths(before: LevelTable, after: LevelTable) -> list[str]:
    """The delays that can be asked for by their length until now, and not any more."""
    lost = [
        f'"{before.name(level)}"'
        for level, delay_ms in enumerate(before.delays_ms, 1)
        if delay_ms not in after.delays_ms
    ]
    if not lost:
        return []
    more = f" and {len(lost) - LENGTHS_MAX} more" if len(lost) > LENGTHS_MAX else ""
    return [
        f"no level is as long as {', '.join(lost[:LENGTHS_MAX])}{more} then:",
        "messages that are sent with such a delay, as delay=" + f"{lost[0]}, will be refused",
        "to change nothing for others, keep the levels and add new ones at the end",
    ]


def _print_waiting(status: BrokerStatus) -> None:
    rows = [
        (each.level, each.delay or "(removed)", each.pending, time_text(each.next_due_ms))
        for each in status.levels
        if each.level > 0 and (each.delay or each.pending)
    ]
    print_table(("LEVEL", "DELAY", "PENDING", "NEXT DUE"), rows)


def _print_change(changed: LevelsChanged) -> None:
    if changed.before == changed.after:
        print_lines(["", f"nothing to change, each level is that long already: {changed.before}"])
        return
    print_columns(
        {
            "LEVEL": [each.level for each in changed.levels],
            "NOW": [each.delay_before or "-" for each in changed.levels],
            "THEN": [each.delay_after or "-" for each in changed.levels],
            "": [word(each) for each in changed.levels],
            "PENDING": [each.pending for each in changed.levels],
            "NEXT DUE": [time_text(each.next_due_ms) for each in changed.levels],
        }
    )
    print_lines(["", *effect_lines(changed)])
